//! Signatures that were made with a key of cosign.
//!
//! cosign signs a small text that contains the digest of the chart's manifest in the registry; the manifest
//! contains the digest of the archive. Text, signature and manifest together prove an archive. If the tag names an
//! index, its digest is signed, and it has that of the manifest.

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use ed25519_dalek::ed25519::signature::digest::Digest as _;
use p256::ecdsa::signature::Verifier as _;
use p256::pkcs8::{DecodePublicKey as _, EncodePublicKey as _};
use serde::{Deserialize, Serialize};

use super::{Subject, VerifyError, bundle};
use crate::digest::Digest;
use crate::registry::Layers;

/// Media type of a text that cosign signs.
pub(crate) const PAYLOAD_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation with its signature.
pub(crate) const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Annotation with the certificate of the key that has made the signature, if it is one of an identity.
pub(crate) const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
/// Annotation with the authorities between this certificate and a root.
pub(crate) const CHAIN: &str = "dev.sigstore.cosign/chain";
/// Annotation with the entry of the log, and the promise of the log to contain it.
pub(crate) const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
/// Type that cosign writes into the text.
const PAYLOAD_TYPE: &str = "cosign container image signature";

/// A public key, and the file it is from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CosignKey {
    path: PathBuf,
    key: Key,
    id: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Key {
    P256(p256::ecdsa::VerifyingKey),
    Ed25519(ed25519_dalek::VerifyingKey),
}

/// Evidence for an archive, signed with a key of cosign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    /// The manifest of the chart, or the index that has it.
    pub(crate) manifest: String,
    /// The documents that lead from the index to the manifest of the chart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) indexed: Vec<String>,
    /// The text that was signed.
    pub(crate) payload: String,
    /// Whether the text is the statement of a bundle.
    #[serde(default)]
    pub(crate) bundle: bool,
    /// The signature of the text in base64.
    pub(crate) signature: String,
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl CosignKey {
    /// Parses a public key in PEM format.
    pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Self, VerifyError> {
        let wrong = |why: &str| VerifyError::Key {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let text = std::str::from_utf8(text).map_err(|_| wrong("it is not a text"))?;
        let text = text.trim();
        if text.contains("PRIVATE KEY-----") {
            return Err(wrong(
                "it has a private key; give the public one (cosign.pub), and keep the private one away from here",
            ));
        }
        let (key, der) = if let Ok(key) = p256::ecdsa::VerifyingKey::from_public_key_pem(text) {
            (Key::P256(key), key.to_public_key_der())
        } else if let Ok(key) = ed25519_dalek::VerifyingKey::from_public_key_pem(text) {
            (Key::Ed25519(key), key.to_public_key_der())
        } else {
            return Err(wrong(
                "it is not an ECDSA P-256 or Ed25519 key in PEM format (-----BEGIN PUBLIC KEY-----)",
            ));
        };
        let der = der.map_err(|_| wrong("it cannot be encoded"))?;
        let id = Digest::of(der.as_bytes()).hex();
        Ok(Self {
            path: path.to_owned(),
            key,
            id: id.get(..16).unwrap_or_default().to_owned(),
        })
    }

    /// Returns what tells this key from others.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Verifies that evidence proves an archive.
    pub(super) fn check(&self, evidence: &[u8], subject: &Subject) -> Result<(), VerifyError> {
        let evidence: Evidence = serde_json::from_slice(evidence)
            .map_err(|_| VerifyError::Malformed("it is incomplete".to_owned()))?;
        let signature = BASE64
            .decode(evidence.signature.trim().as_bytes())
            .map_err(|_| VerifyError::Malformed("it is not base64".to_owned()))?;
        let is_signed = if evidence.bundle {
            self.has_signed(&bundle::encoded(&evidence.payload), &signature)
        } else {
            self.has_signed(evidence.payload.as_bytes(), &signature)
        };
        if !is_signed {
            return Err(VerifyError::OtherKey {
                path: self.path.clone(),
            });
        }
        // From here on, the text is what the owner of the key has written.
        if evidence.bundle {
            let manifest = Digest::of(evidence.manifest.as_bytes()).to_string();
            let signed = bundle::signed_digest(&evidence.payload, &manifest)?;
            return prove(&signed, &evidence.manifest, &evidence.indexed, subject);
        }
        let signed = signed_digest(&evidence.payload)?;
        prove(&signed, &evidence.manifest, &evidence.indexed, subject)
    }

    fn has_signed(&self, data: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Key::P256(key) => p256::ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.verify(data, &signature).is_ok()),
            Key::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| has_signed_ed25519(key, data, &signature)),
        }
    }
}

/// Returns the digest of the manifest that a text says is signed.
pub(super) fn signed_digest(payload: &str) -> Result<String, VerifyError> {
    let signed: Payload = serde_json::from_str(payload).map_err(|_| {
        VerifyError::OtherSubject("what was signed does not name a manifest".to_owned())
    })?;
    if signed.critical.kind != PAYLOAD_TYPE {
        return Err(VerifyError::OtherSubject(format!(
            "its type is {:?}, not {PAYLOAD_TYPE:?}",
            signed.critical.kind
        )));
    }
    Ok(signed.critical.image.digest)
}

/// Returns whether a signature is one of Ed25519, as cosign 2 makes it, or of Ed25519ph, as cosign 3 does.
fn has_signed_ed25519(
    key: &ed25519_dalek::VerifyingKey,
    data: &[u8],
    signature: &ed25519_dalek::Signature,
) -> bool {
    let digest = ed25519_dalek::Sha512::new_with_prefix(data);
    key.verify_strict(data, signature).is_ok()
        || key.verify_prehashed_strict(digest, None, signature).is_ok()
}

/// Checks that the digest that was signed is that of the manifest or index, and that this has the archive.
pub(super) fn prove(
    signed: &str,
    manifest: &str,
    indexed: &[String],
    subject: &Subject,
) -> Result<(), VerifyError> {
    let is = |signed: &str, actual: Digest| {
        if signed == actual.to_string() {
            return Ok(());
        }
        Err(VerifyError::Digest {
            signed: signed.to_owned(),
            actual,
        })
    };
    is(signed, Digest::of(manifest.as_bytes()))?;
    if let Some(manifest) = subject.manifest {
        is(signed, manifest)?;
    }
    let indexed = indexed.iter().map(String::as_bytes);
    let chain = std::iter::once(manifest.as_bytes()).chain(indexed);
    let layers = Layers::in_chain(chain).map_err(VerifyError::OtherSubject)?;
    is(&layers.chart.digest.to_string(), subject.archive)
}

impl fmt::Debug for CosignKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CosignKey({}, {})", self.path.display(), self.id)
    }
}
