//! Who must have signed a chart.
//!
//! What proves a chart is called its evidence. It is kept in the cache as it was published, never as the
//! result of a verification, so that a chart from the cache is verified like one from its server.

mod cosign;
mod error;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub use error::VerifyError;

pub(crate) use cosign::{ANNOTATION, CosignKey, Evidence, PAYLOAD_LAYER};

use crate::digest::Digest;
use crate::limits;

/// Who must have signed a chart; nobody by default. The key is in memory: a changed file needs a new policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy(pub(crate) Signer);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Signer {
    /// Charts are not verified.
    #[default]
    Anybody,
    /// The owner of a key of cosign.
    Cosign(Box<CosignKey>),
}

/// What evidence must be about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    /// Digest of the archive.
    pub(crate) archive: Digest,
    /// Digest of the manifest in the registry, if it is known.
    pub(crate) manifest: Option<Digest>,
}

impl Policy {
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

    /// Returns the extension under which the evidence is kept in the cache.
    pub(crate) fn extension(&self) -> Option<String> {
        match &self.0 {
            Signer::Anybody => None,
            Signer::Cosign(key) => Some(format!("cosign-{}", key.id())),
        }
    }

    /// Verifies that `evidence` proves an archive.
    pub(crate) fn check(&self, evidence: &[u8], subject: &Subject) -> Result<(), VerifyError> {
        match &self.0 {
            Signer::Anybody => Ok(()),
            Signer::Cosign(key) => key.check(evidence, subject),
        }
    }
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
