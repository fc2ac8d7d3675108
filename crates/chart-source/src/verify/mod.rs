//! Policies for the signer of a chart.
//!
//! What proves a chart is called its evidence. It is kept in the cache as it was published, never as the
//! result of a verification, so that a chart from the cache is verified like one from its server.

mod bundle;
mod cosign;
mod error;
#[cfg(feature = "cosign-identity")]
pub(crate) mod identity;
#[cfg(feature = "provenance")]
mod keyring;
#[cfg(feature = "cosign-identity")]
mod matcher;
#[cfg(feature = "provenance")]
mod provenance;
#[cfg(feature = "cosign-identity")]
mod sigstore;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use error::VerifyError;

pub(crate) use bundle::{BUNDLE_LAYER, is_other_statement, parse as parse_bundle};
pub(crate) use cosign::{
    ANNOTATION, CERTIFICATE, CHAIN, CosignKey, Evidence, LOG_ENTRY, PAYLOAD_LAYER,
};
#[cfg(feature = "provenance")]
pub(crate) use provenance::{Keyring, Provenance};

use crate::digest::Digest;
use crate::limits;

/// Required signer of a chart; nobody by default. The key is in memory: a changed file needs a new policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy(pub(crate) Signer);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Signer {
    /// Charts are not verified.
    #[default]
    Anybody,
    /// The owner of a key of cosign.
    Cosign(Box<CosignKey>),
    /// An identity, whose key cosign has made and thrown away.
    #[cfg(feature = "cosign-identity")]
    Identity(Box<identity::Signer>),
    /// The owner of a key in a keyring of OpenPGP.
    #[cfg(feature = "provenance")]
    Provenance(Keyring),
}

/// Required signer without a key of his own: with a certificate that Sigstore has issued to an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Issuer of the token (OIDC) with which he has logged in.
    pub issuer: Name,
    /// The signer: a mail address, or the URL of a workflow.
    pub subject: Name,
    /// File with the trusted root of Sigstore: the keys of its authorities and logs, in JSON.
    pub trusted_root: PathBuf,
}

/// A name that must be in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// This name.
    Exact(String),
    /// A name that this regular expression matches as a whole.
    Pattern(String),
}

impl Name {
    /// Returns a pattern for the names of `what`: of the issuer or the subject.
    ///
    /// # Errors
    /// If it is not a regular expression. That is not checked without the feature `cosign-identity`.
    pub fn pattern(text: String, what: &'static str) -> Result<Self, VerifyError> {
        let name = Self::Pattern(text);
        #[cfg(feature = "cosign-identity")]
        matcher::Matcher::new(&name, what)?;
        #[cfg(not(feature = "cosign-identity"))]
        let _ = what;
        Ok(name)
    }
}

/// Digests that evidence must be about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) archive: Digest,
    /// Digest of the manifest in the registry, if it is known.
    pub(crate) manifest: Option<Digest>,
}

impl Policy {
    /// Whether provenance files can be verified: the crate was built with the feature `provenance`.
    pub const HAS_PROVENANCE: bool = cfg!(feature = "provenance");

    /// Whether signatures of an identity can be verified: the crate was built with the feature `cosign-identity`.
    pub const HAS_IDENTITY: bool = cfg!(feature = "cosign-identity");

    /// Reads the public key of cosign with which charts must be signed: an ECDSA P-256 or Ed25519 key in PEM
    /// format, as `cosign.pub`.
    ///
    /// # Errors
    /// If the file cannot be read, or is not such a key.
    pub fn cosign_key(path: &Path) -> Result<Self, VerifyError> {
        let text = read(path, limits::KEY)?;
        let key = CosignKey::parse(path, &text)?;
        Ok(Self(Signer::Cosign(Box::new(key))))
    }

    /// Reads the trusted root with which signatures of an identity are verified. Nothing is fetched, neither now nor
    /// later.
    ///
    /// # Errors
    /// If the file cannot be read or is not a trusted root, a pattern is not a regular expression, or the crate was
    /// built without the feature `cosign-identity`.
    #[cfg(feature = "cosign-identity")]
    pub fn cosign_identity(identity: &Identity) -> Result<Self, VerifyError> {
        let root = read(&identity.trusted_root, limits::TRUSTED_ROOT)?;
        let signer = identity::Signer::new(identity, &root)?;
        Ok(Self(Signer::Identity(Box::new(signer))))
    }

    /// Fails: the crate was built without the feature `cosign-identity`.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "cosign-identity"))]
    pub fn cosign_identity(_: &Identity) -> Result<Self, VerifyError> {
        Err(VerifyError::IdentityNotBuilt)
    }

    /// Reads the keyring with the public keys of those who may sign charts with Helm: GnuPG's `pubring.gpg` or
    /// `pubring.kbx`, or keys in ASCII armor.
    ///
    /// # Errors
    /// If the file cannot be read or has no keys, or the crate was built without the feature `provenance`.
    #[cfg(feature = "provenance")]
    pub fn keyring(path: &Path) -> Result<Self, VerifyError> {
        let data = read(path, limits::KEYRING)?;
        Ok(Self(Signer::Provenance(Keyring::parse(path, &data)?)))
    }

    /// Fails: the crate was built without the feature `provenance`.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "provenance"))]
    pub fn keyring(_: &Path) -> Result<Self, VerifyError> {
        Err(VerifyError::NotBuilt)
    }

    /// Returns the extension under which the evidence is kept in the cache.
    pub(crate) fn extension(&self) -> Option<String> {
        match &self.0 {
            Signer::Anybody => None,
            Signer::Cosign(key) => Some(format!("cosign-{}", key.id())),
            #[cfg(feature = "cosign-identity")]
            Signer::Identity(signer) => Some(format!("identity-{}", signer.id())),
            #[cfg(feature = "provenance")]
            Signer::Provenance(_) => Some("provenance".to_owned()),
        }
    }

    /// Verifies that `evidence` proves an archive.
    pub(crate) fn check(&self, evidence: &[u8], subject: &Subject) -> Result<(), VerifyError> {
        match &self.0 {
            Signer::Anybody => Ok(()),
            Signer::Cosign(key) => key.check(evidence, subject),
            #[cfg(feature = "cosign-identity")]
            Signer::Identity(signer) => signer.check(evidence, subject),
            #[cfg(feature = "provenance")]
            Signer::Provenance(keyring) => keyring.check(evidence, subject),
        }
    }
}

/// Reads a packaged chart on this machine, and verifies it with the file of the same name and `.prov`.
///
/// # Errors
/// If it is not a packaged chart, cannot be read, or is not signed as `policy` says.
#[cfg(feature = "provenance")]
pub fn read_archive(path: &Path, policy: &Policy) -> Result<Vec<u8>, VerifyError> {
    if path.is_dir() {
        return Err(VerifyError::NotApplicable(
            "a directory cannot be verified; give the packaged chart (.tgz)",
        ));
    }
    let archive = read(path, limits::ARCHIVE)?;
    if let Signer::Provenance(keyring) = &policy.0 {
        let mut name = path.as_os_str().to_owned();
        name.push(".prov");
        let text = match read(Path::new(&name), limits::PROVENANCE) {
            Err(VerifyError::File { path, source }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(VerifyError::NoSignature(format!(
                    "there is no {}",
                    path.display()
                )));
            }
            text => text?,
        };
        let file = path.file_name().map(|name| name.to_string_lossy().into());
        let evidence = Provenance::of(file, text)?;
        let subject = Subject {
            archive: Digest::of(&archive),
            manifest: None,
        };
        keyring.check(&evidence, &subject)?;
    }
    Ok(archive)
}

/// Fails: the crate was built without the feature `provenance`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "provenance"))]
pub fn read_archive(_: &Path, _: &Policy) -> Result<Vec<u8>, VerifyError> {
    Err(VerifyError::NotBuilt)
}

/// Reads a file that is not larger than `limit`.
fn read(path: &Path, limit: usize) -> Result<Vec<u8>, VerifyError> {
    let mut data = Vec::new();
    let read = File::open(path).and_then(|file| {
        file.take(limit as u64 + 1).read_to_end(&mut data)?;
        if data.len() > limit {
            let why = format!("it is larger than the limit of {} KiB", limit >> 10);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(())
    });
    read.map_err(|source| VerifyError::File {
        path: path.to_owned(),
        source,
    })?;
    Ok(data)
}
