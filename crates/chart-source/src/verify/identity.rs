//! Signatures of an identity, without a key of its own ("keyless").
//!
//! The signer proves to an authority, Fulcio, who he is, and gets a certificate that is valid for some minutes. A
//! log, Rekor, proves when the signature was made. The trusted root has the keys of the authority and the logs;
//! nothing is asked of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::BASE64;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{Artifact, Bundle, Sha256Hash, SignatureContent};
use sigstore_verify::{VerificationPolicy, VerificationResult, Verifier};

use super::matcher::Matcher;
use super::{Identity, Subject, VerifyError, bundle, cosign, sigstore};
use crate::digest::Digest;
use crate::registry;

/// Required signer, and the root that proves the signature.
#[derive(Clone)]
pub(crate) struct Signer {
    issuer: Matcher,
    subject: Matcher,
    /// The file with the trusted root, and its digest.
    path: PathBuf,
    root: Digest,
    verifier: Arc<Verifier>,
    id: String,
}

/// Evidence for an archive, signed by an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    /// The manifest of the chart, or the index that has it.
    pub(crate) manifest: String,
    /// The documents that lead from the index to the manifest of the chart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) indexed: Vec<String>,
    /// The signed document.
    pub(crate) signed: Signed,
}

/// A signed document, with the certificate and the entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum Signed {
    /// A bundle of cosign 3.
    Bundle(String),
    /// A text, and what cosign 2 publishes beside it.
    Text {
        payload: String,
        signature: String,
        certificate: String,
        chain: String,
        entry: String,
    },
}

/// The entry of a log, as cosign 2 keeps it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    signed_entry_timestamp: String,
    payload: EntryPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryPayload {
    body: String,
    integrated_time: i64,
    log_index: i64,
    #[serde(rename = "logID")]
    log_id: String,
}

/// The type of what a log contains.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryBody {
    api_version: String,
    kind: String,
}

impl Signed {
    /// Returns what proves an identity; nothing of what was signed with a key of cosign.
    pub(crate) fn of(signed: registry::Signed) -> Option<Self> {
        match signed {
            registry::Signed::Bundle(bundle) => {
                let bundle = String::from_utf8(bundle).ok()?;
                let parsed: Value = serde_json::from_str(&bundle).ok()?;
                let is_of_key = parsed.pointer("/verificationMaterial/publicKey").is_some();
                (!is_of_key).then_some(Self::Bundle(bundle))
            }
            registry::Signed::Text {
                payload,
                signature,
                keyless,
                ..
            } => {
                let keyless = keyless?;
                Some(Self::Text {
                    payload: String::from_utf8(payload).ok()?,
                    signature,
                    certificate: keyless.certificate,
                    chain: keyless.chain,
                    entry: keyless.entry,
                })
            }
        }
    }
}

impl Signer {
    /// Reads a trusted root in the format of Sigstore.
    pub(super) fn new(identity: &Identity, root: &[u8]) -> Result<Self, VerifyError> {
        let path = identity.trusted_root.as_path();
        let wrong = |why: String| VerifyError::TrustedRoot {
            path: path.to_owned(),
            why,
        };
        let text = std::str::from_utf8(root).map_err(|_| wrong("it is not a text".to_owned()))?;
        sigstore::install();
        let parsed = TrustedRoot::from_json(text).map_err(|error| wrong(error.to_string()))?;
        for (is_missing, what) in [
            (
                parsed.certificate_authorities.is_empty(),
                "no authority for certificates (certificateAuthorities)",
            ),
            (parsed.tlogs.is_empty(), "no log of signatures (tlogs)"),
            (parsed.ctlogs.is_empty(), "no log of certificates (ctlogs)"),
        ] {
            if is_missing {
                return Err(wrong(format!("it has {what}")));
            }
        }
        let verifier = Verifier::new(&parsed).map_err(|error| wrong(error.to_string()))?;
        let names = format!("{:?} {:?}", identity.issuer, identity.subject);
        let id = Digest::of(names.as_bytes()).hex();
        Ok(Self {
            issuer: Matcher::new(&identity.issuer, "issuer")?,
            subject: Matcher::new(&identity.subject, "subject")?,
            path: path.to_owned(),
            root: Digest::of(root),
            verifier: Arc::new(verifier),
            id: id.get(..16).unwrap_or_default().to_owned(),
        })
    }

    /// Returns what tells this identity from others.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Verifies that evidence proves an archive.
    pub(super) fn check(&self, evidence: &[u8], subject: &Subject) -> Result<(), VerifyError> {
        let evidence: Evidence = serde_json::from_slice(evidence)
            .map_err(|_| VerifyError::Malformed("it is incomplete".to_owned()))?;
        let manifest = Digest::of(evidence.manifest.as_bytes());
        let (bundle, payload) = match &evidence.signed {
            Signed::Bundle(text) => (parse(text)?, None),
            Signed::Text { payload, .. } => (as_bundle(&evidence.signed)?, Some(payload)),
        };
        let statement = match (&bundle.content, payload) {
            (SignatureContent::DsseEnvelope(envelope), None) => {
                String::from_utf8_lossy(envelope.payload.as_bytes()).into_owned()
            }
            (SignatureContent::MessageSignature(_), Some(_)) => String::new(),
            _ => {
                let why = "its bundle has no statement in an envelope of DSSE, as 'cosign sign' writes it";
                return Err(VerifyError::Malformed(why.to_owned()));
            }
        };
        let artifact = match payload {
            Some(payload) => Artifact::from(payload.as_bytes()),
            None => Artifact::from(Sha256Hash::new(manifest.bytes())),
        };
        let policy = VerificationPolicy::any_identity();
        let result = match self.verifier.verify(artifact, &bundle, &policy) {
            Ok(result) => result,
            // What was signed names another manifest: say which.
            Err(error @ sigstore_verify::Error::ArtifactMismatch(_)) if payload.is_none() => {
                let signed = bundle::signed_digest(&statement, &manifest.to_string())?;
                cosign::prove(&signed, &evidence.manifest, &evidence.indexed, subject)?;
                return Err(unproven(&error));
            }
            Err(error) => return Err(unproven(&error)),
        };
        self.is_signer(&result)?;
        // From here on, the text is what the identity has written.
        let signed = match payload {
            Some(payload) => cosign::signed_digest(payload)?,
            None => bundle::signed_digest(&statement, &manifest.to_string())?,
        };
        cosign::prove(&signed, &evidence.manifest, &evidence.indexed, subject)
    }

    /// Checks who has signed.
    fn is_signer(&self, result: &VerificationResult) -> Result<(), VerifyError> {
        if !(result.certificate_verified() && result.sct_verified() && result.tlog_verified()) {
            return Err(unproven(&"it was not verified as a whole"));
        }
        let subject = result.identity().map(ToString::to_string);
        for (what, wanted, found) in [
            ("issuer", &self.issuer, result.issuer()),
            ("subject", &self.subject, subject.as_deref()),
        ] {
            // A certificate without a name has none that could be the one, or match a pattern.
            if !found.is_some_and(|found| wanted.matches(found)) {
                return Err(VerifyError::OtherIdentity {
                    what,
                    found: found.unwrap_or_default().to_owned(),
                    wanted: wanted.to_string(),
                });
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<Bundle, VerifyError> {
    Bundle::from_json(text).map_err(|error| VerifyError::Malformed(error.to_string()))
}

/// Returns what cosign 2 has published as a bundle of the first version, which has the same parts.
fn as_bundle(signed: &Signed) -> Result<Bundle, VerifyError> {
    let malformed = |why: &str| VerifyError::Malformed(why.to_owned());
    let Signed::Text {
        payload,
        signature,
        certificate,
        chain,
        entry,
    } = signed
    else {
        return Err(malformed("it is not a text"));
    };
    if entry.is_empty() {
        return Err(unproven(
            &"it has no entry of the log (annotation dev.sigstore.cosign/bundle), which proves when it was made",
        ));
    }
    let entry: Entry =
        serde_json::from_str(entry).map_err(|_| malformed("its entry of the log is incomplete"))?;
    let EntryPayload {
        body,
        integrated_time,
        log_index,
        log_id,
    } = entry.payload;
    let decoded = BASE64.decode(body.as_bytes()).ok();
    let kind: Option<EntryBody> = decoded.and_then(|body| serde_json::from_slice(&body).ok());
    let kind = kind.ok_or_else(|| malformed("its entry of the log has no kind"))?;
    let log_id = data_encoding::HEXLOWER_PERMISSIVE
        .decode(log_id.as_bytes())
        .map_err(|_| malformed("its entry of the log does not name the log"))?;
    let mut certificates = certificates(certificate, "certificate")?;
    certificates.truncate(1);
    if certificates.is_empty() {
        return Err(malformed("its certificate is not in PEM format"));
    }
    certificates.extend(self::certificates(chain, "chain of certificates")?);
    let bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.1",
        "verificationMaterial": {
            "x509CertificateChain": {"certificates": certificates},
            "tlogEntries": [{
                "logIndex": log_index.to_string(),
                "logId": {"keyId": BASE64.encode(&log_id)},
                "kindVersion": {"kind": kind.kind, "version": kind.api_version},
                "integratedTime": integrated_time.to_string(),
                "inclusionPromise": {"signedEntryTimestamp": entry.signed_entry_timestamp},
                "canonicalizedBody": body,
            }],
        },
        "messageSignature": {
            "messageDigest": {
                "algorithm": "SHA2_256",
                "digest": BASE64.encode(&Digest::of(payload.as_bytes()).bytes()),
            },
            "signature": signature.trim(),
        },
    });
    serde_json::from_value(bundle).map_err(|error| VerifyError::Malformed(error.to_string()))
}

/// Returns certificates in PEM format as those of a bundle.
fn certificates(text: &str, what: &str) -> Result<Vec<Value>, VerifyError> {
    CertificateDer::pem_slice_iter(text.as_bytes())
        .map(|one| Ok(json!({"rawBytes": BASE64.encode(&one?)})))
        .collect::<Result<_, rustls::pki_types::pem::Error>>()
        .map_err(|error| VerifyError::Malformed(format!("its {what} is wrong: {error:?}")))
}

fn unproven(why: &dyn fmt::Display) -> VerifyError {
    VerifyError::Unproven(why.to_string())
}

impl PartialEq for Signer {
    fn eq(&self, other: &Self) -> bool {
        self.issuer.name() == other.issuer.name()
            && self.subject.name() == other.subject.name()
            && self.path == other.path
            && self.root == other.root
    }
}

impl Eq for Signer {}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: &Path = &self.path;
        let (issuer, subject) = (self.issuer.name(), self.subject.name());
        write!(f, "Identity({issuer:?}, {subject:?}, {})", path.display())
    }
}
