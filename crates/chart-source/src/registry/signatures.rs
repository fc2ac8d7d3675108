//! Signatures of cosign for a manifest: texts in a tag, as cosign 2 publishes them, and the bundles of cosign 3.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;

use super::manifest::Descriptor;
use super::{INDEX, MANIFESTS, Manifest, Registry, check, parse};
use crate::digest::Digest;
use crate::error::PullError;
use crate::limits;
use crate::verify::{
    ANNOTATION, BUNDLE_LAYER, CERTIFICATE, CHAIN, LOG_ENTRY, PAYLOAD_LAYER, is_other_statement,
};

/// A document that somebody has signed with cosign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signed {
    /// A text, as cosign 2 publishes it in a tag.
    Text {
        digest: Digest,
        payload: Vec<u8>,
        /// The signature in base64.
        signature: String,
        /// Evidence of the signer's identity, unless the text was signed with a key of cosign.
        keyless: Option<Keyless>,
    },
    /// A bundle, as cosign 3 publishes it.
    Bundle(Vec<u8>),
}

/// Certificates and log entry that cosign 2 publishes beside a signature of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "cosign-identity"),
    allow(dead_code, reason = "only the feature reads it")
)]
pub(crate) struct Keyless {
    /// The certificate of the key, in PEM format.
    pub(crate) certificate: String,
    /// The authorities between the certificate and a root, in PEM format.
    pub(crate) chain: String,
    /// The entry of the log, in JSON.
    pub(crate) entry: String,
}

/// Referrers of a manifest.
#[derive(Deserialize)]
struct Referrers {
    #[serde(default)]
    manifests: Vec<Referrer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: String,
    #[serde(default)]
    artifact_type: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Signed {
    /// Returns the text, if it has this digest.
    fn text(&self, wanted: &Digest) -> Option<&[u8]> {
        match self {
            Self::Text {
                digest, payload, ..
            } if digest == wanted => Some(payload),
            _ => None,
        }
    }
}

impl Keyless {
    /// Reads the annotations of a signature. One with a key of cosign has no certificate.
    fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let annotation = |name: &str| annotations.get(name).cloned().unwrap_or_default();
        let keyless = Self {
            certificate: annotation(CERTIFICATE),
            chain: annotation(CHAIN),
            entry: annotation(LOG_ENTRY),
        };
        let lengths = [&keyless.certificate, &keyless.chain, &keyless.entry].map(String::len);
        let is_one = lengths[0] > 0 && lengths.iter().all(|length| *length <= limits::KEYLESS);
        is_one.then_some(keyless)
    }
}

impl Registry<'_> {
    /// Fetches what cosign has signed about a manifest, with the signatures. There may be none.
    pub(crate) async fn signatures(&mut self, subject: &Digest) -> Result<Vec<Signed>, PullError> {
        let path = format!("manifests/sha256-{}.sig", subject.hex());
        let request = self.document(&path, "signature", MANIFESTS)?;
        let answer = match self.send(request.clone()).await {
            Err(PullError::NotFound { .. }) => return Ok(Vec::new()),
            answer => answer?,
        };
        let body = answer.success(&request)?;
        let manifest: Manifest = parse(&body, &request, "its signature has no manifest")?;
        let wrong = |why: String| PullError::Manifest {
            url: request.shown(),
            why,
        };
        let payloads: Vec<_> = manifest
            .layers
            .iter()
            .filter(|one| one.media_type == PAYLOAD_LAYER)
            .collect();
        if payloads.len() > limits::SIGNATURES {
            let limit = limits::SIGNATURES;
            return Err(wrong(format!("it has more than {limit} signatures")));
        }
        let mut signed: Vec<Signed> = Vec::new();
        for descriptor in payloads {
            let annotations = descriptor.annotations.as_ref();
            let Some(signature) = annotations.and_then(|all| all.get(ANNOTATION)) else {
                continue;
            };
            if signature.len() > limits::SIGNATURE {
                continue;
            }
            let layer = descriptor.blob().map_err(&wrong)?;
            let known = signed.iter().find_map(|one| one.text(&layer.digest));
            let payload = match known {
                Some(known) => known.to_vec(),
                None => self.blob(&layer, "signature", limits::PAYLOAD).await?,
            };
            let signature = signature.clone();
            signed.push(Signed::Text {
                digest: layer.digest,
                payload,
                signature,
                keyless: annotations.and_then(Keyless::of),
            });
        }
        Ok(signed)
    }

    /// Fetches the bundles in which cosign 3 keeps what was signed about a manifest. There may be none.
    pub(crate) async fn bundles(&mut self, subject: &Digest) -> Result<Vec<Signed>, PullError> {
        let mut signed = Vec::new();
        for referrer in self.referrers(subject).await? {
            let digest: Option<Digest> = referrer.digest.parse().ok();
            let Some(digest) = digest else {
                continue;
            };
            let path = format!("manifests/{digest}");
            let request = self.document(&path, "signature", MANIFESTS)?;
            let body = self.send(request.clone()).await?.success(&request)?;
            check(request.shown(), "the list of signatures", digest, &body)?;
            let manifest: Manifest = parse(&body, &request, "its signature has no manifest")?;
            let mut layers = manifest.layers.iter();
            let layer = layers.find(|one| one.media_type.starts_with(BUNDLE_LAYER));
            let Some(Ok(layer)) = layer.map(Descriptor::blob) else {
                continue;
            };
            let bundle = self.blob(&layer, "signature", limits::BUNDLE).await?;
            signed.push(Signed::Bundle(bundle));
        }
        Ok(signed)
    }

    /// Returns the bundles with signatures that refer to a manifest: those that the registry knows of or, if it
    /// does not list them, those in the tag for such registries.
    async fn referrers(&mut self, manifest: &Digest) -> Result<Vec<Referrer>, PullError> {
        let tag = manifest.to_string().replace(':', "-");
        for path in [format!("referrers/{manifest}"), format!("manifests/{tag}")] {
            let request = self.document(&path, "signature", INDEX)?;
            let answer = match self.send(request.clone()).await {
                Err(PullError::NotFound { .. }) => continue,
                answer => answer?,
            };
            // Registries without the list say so in different ways.
            if answer.status.is_client_error() || answer.status == StatusCode::NOT_IMPLEMENTED {
                continue;
            }
            let body = answer.success(&request)?;
            let list: Referrers = parse(&body, &request, "its list of signatures is not one")?;
            let bundles = list.manifests.into_iter().filter(|one| {
                let annotations = one.annotations.as_ref();
                one.artifact_type.starts_with(BUNDLE_LAYER)
                    && !is_other_statement(|name| annotations?.get(name))
            });
            let bundles: Vec<Referrer> = bundles.collect();
            if bundles.len() > limits::SIGNATURES {
                return Err(PullError::Manifest {
                    url: request.shown(),
                    why: format!("it has more than {} signatures", limits::SIGNATURES),
                });
            }
            return Ok(bundles);
        }
        Ok(Vec::new())
    }
}
