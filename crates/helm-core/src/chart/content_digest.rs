//! Digest of a chart's files, computed on first use.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::File;
use crate::{Digest, DigestBuilder};

/// The digest of a chart's own files and of its dependencies' digests.
pub(super) struct LazyDigest {
    known: OnceLock<Digest>,
    /// Input of the digest, until it is computed.
    source: Mutex<Source>,
}

#[derive(Default)]
struct Source {
    files: Vec<File>,
    below: Vec<Arc<LazyDigest>>,
}

impl LazyDigest {
    /// Returns the digest of `files` and of the digests `below`.
    pub(super) fn new(files: Vec<File>, below: Vec<Arc<Self>>) -> Self {
        Self {
            known: OnceLock::new(),
            source: Mutex::new(Source { files, below }),
        }
    }

    pub(super) fn get(&self) -> Digest {
        *self.known.get_or_init(|| {
            let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *source).digest()
        })
    }
}

impl Source {
    fn digest(mut self) -> Digest {
        self.files.sort_by(|a, b| a.name.cmp(&b.name));
        let mut digest = DigestBuilder::new();
        for file in &self.files {
            digest.add(file.name());
            digest.add(file.data());
        }
        let below = self.below.iter().map(|chart| chart.get());
        let mut below: Vec<Digest> = below.collect();
        below.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        for dependency in below {
            digest.add(dependency.as_bytes());
        }
        digest.finish()
    }
}
