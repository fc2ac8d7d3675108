//! Bundles, in which cosign 3 keeps signatures: a statement of in-toto about the manifest in an envelope of DSSE.

use data_encoding::BASE64;
use serde::Deserialize;

use super::VerifyError;

/// Prefix of the media types of bundles; a version follows.
pub(crate) const BUNDLE_LAYER: &str = "application/vnd.dev.sigstore.bundle.";
/// Type of the statement that a chart is signed, in contrast to other statements about it.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// Annotation with the type of a statement.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";
/// Type of what is in the envelope.
const STATEMENT: &str = "application/vnd.in-toto+json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Envelope,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    digest: Digests,
}

#[derive(Deserialize)]
struct Digests {
    sha256: Option<String>,
}

/// Returns whether the annotations of a bundle say that it has another statement than a signature.
pub(crate) fn is_other_statement<'a>(annotation: impl FnOnce(&str) -> Option<&'a String>) -> bool {
    annotation(PREDICATE).is_some_and(|kind| kind != SIGNED)
}

/// Returns the statement in a bundle and its signatures in base64. A bundle with something else has none.
pub(crate) fn parse(data: &[u8]) -> Option<(Vec<u8>, Vec<String>)> {
    let Bundle { dsse_envelope } = serde_json::from_slice(data).ok()?;
    if dsse_envelope.payload_type != STATEMENT {
        return None;
    }
    let payload = BASE64.decode(dsse_envelope.payload.as_bytes()).ok()?;
    let signatures = dsse_envelope.signatures.into_iter();
    Some((payload, signatures.map(|one| one.sig).collect()))
}

/// Returns what is signed for a statement: DSSE's encoding of its type and content.
pub(super) fn encoded(statement: &str) -> Vec<u8> {
    let (kind, length) = (STATEMENT.len(), statement.len());
    format!("DSSEv1 {kind} {STATEMENT} {length} {statement}").into_bytes()
}

/// Returns the digest of the manifest that a statement says is signed.
pub(super) fn signed_digest(statement: &str, manifest: &str) -> Result<String, VerifyError> {
    let other = |why: String| VerifyError::OtherSubject(why);
    let statement: Statement = serde_json::from_str(statement)
        .map_err(|_| other("what was signed is not a statement of in-toto".to_owned()))?;
    if statement.predicate_type != SIGNED {
        return Err(other(format!(
            "its statement has the type {:?}, not {SIGNED:?}",
            statement.predicate_type
        )));
    }
    let mut digests = statement
        .subject
        .into_iter()
        .filter_map(|one| one.digest.sha256)
        .map(|hex| format!("sha256:{hex}"));
    let first = digests.next();
    let named = first.clone().into_iter().chain(digests);
    let mut matching = named.filter(|digest| digest == manifest);
    matching
        .next()
        .or(first)
        .ok_or_else(|| other("its statement names no digest".to_owned()))
}
