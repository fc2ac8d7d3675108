//! Finds and fetches charts.

use url::Url;

use crate::access::Access;
use crate::cache::Cache;
use crate::digest::Digest;
use crate::error::PullError;
use crate::evidence::{Kept, Origin};
use crate::index;
use crate::limits;
use crate::reference::{ChartReference, Location, OciName, http_url, shown};
use crate::registry::{Registry, check};
use crate::transport::{Request, Transport};
use crate::verify::Policy;

/// The first bytes of an archive.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Fetches charts.
pub struct Puller {
    pub(crate) transport: Transport,
    pub(crate) access: Access,
    pub(crate) cache: Option<Cache>,
    pub(crate) policy: Policy,
}

/// A chart that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The resolved reference.
    pub resolved: Resolved,
    /// The packaged chart (`.tgz`).
    pub archive: Vec<u8>,
}

/// A resolved reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The version, unless only the archive says it.
    pub version: Option<String>,
    /// Location of the archive: a URL without its query, or an OCI name with the digest of the manifest.
    pub url: String,
    /// Digest of the archive.
    pub digest: Digest,
}

/// Waits for an answer on the calling thread.
pub(crate) fn block_on<T>(
    answer: impl Future<Output = Result<T, PullError>>,
) -> Result<T, PullError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(PullError::Runtime)?;
    let answer = runtime.block_on(answer);
    // A name lookup that hangs does not hold up the caller.
    runtime.shutdown_background();
    answer
}

impl Puller {
    /// Creates a puller; no request is sent. Without a cache, each call fetches the archive.
    ///
    /// # Errors
    /// If the files for TLS cannot be used.
    pub fn new(access: &Access, cache: Option<Cache>) -> Result<Self, PullError> {
        Ok(Self {
            transport: Transport::new(access)?,
            access: access.clone(),
            cache,
            policy: Policy::default(),
        })
    }

    /// Returns charts only if they are signed as `policy` says.
    #[must_use]
    pub fn verifying(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Finds the version and returns its archive. If the digest of the archive is known, it is taken
    /// from the cache; if the reference names it, without a request.
    ///
    /// # Errors
    /// If the chart cannot be found or fetched, does not have the digest that it must have, or is not
    /// signed as it must be.
    pub async fn pull(&self, chart: &ChartReference) -> Result<Pulled, PullError> {
        let kept = match &self.cache {
            Some(cache) => cache.kept(chart, &self.policy)?,
            None => Kept::Missing,
        };
        match kept {
            Kept::Proven(pulled) => Ok(pulled),
            Kept::Missing => self.fetch(chart).await,
            // What is published now replaces it.
            Kept::Wrong { path, why } => {
                let fetched = self.fetch(chart).await;
                fetched.map_err(|source| match source {
                    PullError::Cache(_) => source,
                    source => PullError::Kept {
                        chart: chart.to_string(),
                        path,
                        why: Box::new(why),
                        source: Box::new(source),
                    },
                })
            }
        }
    }

    async fn fetch(&self, chart: &ChartReference) -> Result<Pulled, PullError> {
        let wanted = chart.version.as_deref();
        let pulled = match &chart.location {
            Location::Path(path) => return Err(PullError::Local(path.clone())),
            Location::Archive(url) => {
                let expected = chart.digest.map(|digest| ("the given digest", digest));
                self.archive(url, None, expected, true).await?
            }
            Location::Oci(name) => self.pull_from_registry(name, wanted).await?.0,
            Location::Repository { url, name } => self.pull_from_index(url, name, wanted).await?,
        };
        if let Some(expected) = chart.digest {
            let url = pulled.resolved.url.clone();
            check(url, "the given digest", expected, &pulled.archive)?;
        }
        Ok(pulled)
    }

    /// Does what [`pull`](Self::pull) does on the calling thread, which must not be one that runs
    /// asynchronous tasks.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    pub fn pull_blocking(&self, chart: &ChartReference) -> Result<Pulled, PullError> {
        block_on(self.pull(chart))
    }

    /// Returns the digest of what a registry has under the tag of a name: a chart or an image. Only this is asked for.
    ///
    /// # Errors
    /// If the registry does not answer, or does not have it.
    pub async fn digest(&self, name: &OciName) -> Result<Digest, PullError> {
        let mut registry = Registry::new(&self.transport, &self.access, name);
        registry.digest().await
    }

    /// Does what [`digest`](Self::digest) does on the calling thread, which must not be one that runs asynchronous tasks.
    ///
    /// # Errors
    /// As [`digest`](Self::digest).
    pub fn digest_blocking(&self, name: &OciName) -> Result<Digest, PullError> {
        block_on(self.digest(name))
    }

    fn cached(&self, digest: &Digest) -> Result<Option<Vec<u8>>, PullError> {
        match &self.cache {
            Some(cache) => Ok(cache.get(digest)?),
            None => Ok(None),
        }
    }

    fn keep(&self, digest: &Digest, archive: &[u8]) -> Result<(), PullError> {
        match &self.cache {
            Some(cache) => Ok(cache.put(digest, archive)?),
            None => Ok(()),
        }
    }

    async fn pull_from_index(
        &self,
        repository: &Url,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<Pulled, PullError> {
        let mut request = Request::get(index::url_of(repository), "index", limits::INDEX);
        request.authorization = self.access.basic();
        let text = self.transport.send(&request).await?.success(&request)?;
        let picked = index::pick(&text, repository, name, wanted)?;
        drop(text);
        if picked.url.starts_with("oci://") {
            let chart = ChartReference::parse(&picked.url, None, None)?;
            let Location::Oci(oci) = &chart.location else {
                return Err(PullError::NotAnArchive { url: picked.url });
            };
            let (pulled, manifest) = self.pull_from_registry(oci, Some(&picked.version)).await?;
            // An index may name the digest of the manifest or that of the archive.
            if let Some(expected) = picked.digest.filter(|digest| *digest != manifest) {
                let url = pulled.resolved.url.clone();
                check(url, "the index", expected, &pulled.archive)?;
            }
            return Ok(pulled);
        }
        let url = http_url(&picked.url)?;
        let trusted = url.origin() == repository.origin() || self.access.pass_credentials;
        if let Some(digest) = picked.digest
            && let Some(archive) = self.cached(&digest)?
        {
            let resolved = Resolved {
                version: Some(picked.version),
                url: shown(&url),
                digest,
            };
            let origin = Origin::Beside { url: &url, trusted };
            return self.proven(resolved, archive, origin).await;
        }
        let expected = picked.digest.map(|digest| ("the index", digest));
        let version = Some(picked.version);
        self.archive(&url, version, expected, trusted).await
    }

    /// Fetches the archive behind a URL, with the credentials if its host is `trusted`, and compares
    /// it with the digest that somebody says.
    async fn archive(
        &self,
        url: &Url,
        version: Option<String>,
        expected: Option<(&'static str, Digest)>,
        trusted: bool,
    ) -> Result<Pulled, PullError> {
        let mut request = Request::get(url.clone(), "chart", limits::ARCHIVE);
        request.authorization = trusted.then(|| self.access.basic()).flatten();
        let archive = self.transport.send(&request).await?.success(&request)?;
        let shown = shown(url);
        if let Some((by, expected)) = expected {
            check(shown.clone(), by, expected, &archive)?;
        }
        if !archive.starts_with(&GZIP) {
            return Err(PullError::NotAnArchive { url: shown });
        }
        let digest = Digest::of(&archive);
        self.keep(&digest, &archive)?;
        let resolved = Resolved {
            version,
            url: shown,
            digest,
        };
        let origin = Origin::Beside { url, trusted };
        self.proven(resolved, archive, origin).await
    }

    /// Fetches a chart from a registry, and returns the digest of its manifest with it.
    async fn pull_from_registry(
        &self,
        name: &OciName,
        wanted: Option<&str>,
    ) -> Result<(Pulled, Digest), PullError> {
        let mut registry = Registry::new(&self.transport, &self.access, name);
        let found = registry.find(wanted).await?;
        let layer = &found.layers.chart;
        let digest = layer.digest;
        let archive = if let Some(archive) = self.cached(&digest)? {
            archive
        } else {
            let archive = registry.archive(layer).await?;
            self.keep(&digest, &archive)?;
            archive
        };
        let version = found.tag.as_deref().map(|tag| tag.replace('_', "+"));
        let resolved = Resolved {
            version,
            url: OciName {
                tag: found.tag.clone(),
                digest: Some(found.digest),
                ..name.clone()
            }
            .to_string(),
            digest,
        };
        if !archive.starts_with(&GZIP) {
            return Err(PullError::NotAnArchive { url: resolved.url });
        }
        let origin = Origin::Registry(&mut registry, &found);
        let pulled = self.proven(resolved, archive, origin).await?;
        Ok((pulled, found.digest))
    }
}
