//! Reasons why a chart does not count as signed.

use std::io;
use std::path::PathBuf;

use crate::digest::Digest;

/// A chart is not proven to be signed as it must be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum VerifyError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file does not have the key that it must have.
    #[error("{} is not a public key of cosign: {why}", path.display())]
    Key { path: PathBuf, why: String },
    /// A file is not a trusted root.
    #[error(
        "{} is not a trusted root of Sigstore: {why}; 'cosign trusted-root create --with-default-services --out \
         trusted_root.json' writes one",
        path.display()
    )]
    TrustedRoot { path: PathBuf, why: String },
    /// A pattern for an identity is not a regular expression.
    #[error(
        "the pattern {pattern:?} for the {what} of a signature is not a regular expression: {why}"
    )]
    Pattern {
        /// The compared field: `issuer` or `subject`.
        what: &'static str,
        pattern: String,
        /// Problem with the pattern.
        why: String,
    },
    /// A file is not a keyring.
    #[error("{} is not a keyring of OpenPGP: {why}", path.display())]
    Keyring { path: PathBuf, why: String },
    /// The key of a signature is not in the keyring.
    #[error(
        "it is signed with the key {key}, which is not in {}; if you trust its owner, add the public key",
        keyring.display()
    )]
    UnknownSigner {
        /// Fingerprint or number of the key.
        key: String,
        keyring: PathBuf,
    },
    /// The key of a signature must not be used.
    #[error("it is signed with the key {key}, which does not count: {why}")]
    Signer {
        key: String,
        /// Reason why the key does not count.
        why: &'static str,
    },
    /// A text is not what was signed.
    #[error("its provenance file was changed after it was signed with the key {key}")]
    Changed { key: String },
    /// There is no signature.
    #[error("it is not signed: {0}")]
    NoSignature(String),
    /// No signature was made with the key.
    #[error(
        "no signature of it was made with the key {}; check the key and who has signed the chart",
        path.display()
    )]
    OtherKey {
        /// The file with the key.
        path: PathBuf,
    },
    /// Somebody else has signed it.
    #[error(
        "the {what} of its signature is {found:?}, which is not {wanted}; check the identity and who has signed the \
         chart"
    )]
    OtherIdentity {
        /// The field that differs: `issuer` or `subject`.
        what: &'static str,
        /// The name in the certificate.
        found: String,
        /// The required name or pattern.
        wanted: String,
    },
    /// A signature of an identity is not valid.
    #[error("its signature does not count: {0}")]
    Unproven(String),
    /// The signature is about something else.
    #[error("its signature is about something else: {0}")]
    OtherSubject(String),
    /// The digest that was signed differs.
    #[error(
        "its signature is for {signed}, but it is {actual}; the chart was changed after it was signed"
    )]
    Digest {
        /// The digest that was signed.
        signed: String,
        /// The digest of what is there.
        actual: Digest,
    },
    /// The signature, or what was signed, cannot be read.
    #[error("its signature cannot be read: {0}")]
    Malformed(String),
    /// The program cannot verify provenance files.
    #[error(
        "this program was built without the feature `provenance`, which verifies provenance files (.prov)"
    )]
    NotBuilt,
    /// The program cannot verify signatures of an identity.
    #[error(
        "this program was built without the feature `cosign-identity`, which verifies signatures of cosign by the \
         identity of the signer"
    )]
    IdentityNotBuilt,
    /// The chart is where such signatures cannot be.
    #[error("{0}")]
    NotApplicable(&'static str),
}
