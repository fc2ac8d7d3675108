//! Charts that are fetched: from memory, else from the cache, else from their server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use chart_source::verify::Policy;
use chart_source::{Access, Cache, CacheError, Patience, PullError, Pulled, Puller};
use helm_core::chart::{Limits, SchemaRoots};
use parking_lot::Mutex;
use tracing::warn;

use super::chart::{BuildError, Chart};
use super::credentials::Credentials;
use crate::watches::{ChartSource, RemoteChart};

/// Reads the charts of entries of a watches file: those on this machine, and those that are fetched. A clone
/// shares what was fetched.
///
/// The functions block the calling thread while they read files and wait for servers.
#[derive(Clone, Default)]
pub struct ChartReader {
    shared: Arc<Shared>,
    /// The directory of the project, if it is not the working directory.
    project: Option<PathBuf>,
}

#[derive(Default)]
struct Shared {
    /// The cache on disk, if there is one.
    cache: Mutex<Option<Cache>>,
    /// The charts that were fetched, while an entry names them.
    compiled: Mutex<Vec<Compiled>>,
}

/// A chart that was fetched.
struct Compiled {
    source: RemoteChart,
    /// The key with which it was verified.
    policy: Policy,
    chart: Chart,
}

impl ChartReader {
    /// Keeps fetched archives in a cache on disk. Without one, they are kept in memory only.
    pub fn new(cache: Option<Cache>) -> Self {
        Self {
            shared: Arc::new(Shared {
                cache: Mutex::new(cache),
                compiled: Mutex::default(),
            }),
            project: None,
        }
    }

    /// Uses the default cache: that of `$CHART_CACHE`, else of the user.
    pub fn open_default() -> Self {
        Self::new(Cache::open_default())
    }

    /// Takes the directory of a project for the working directory of its operator, below which the schemas of charts may
    /// refer to files.
    #[must_use]
    pub fn in_project(mut self, directory: impl Into<PathBuf>) -> Self {
        self.project = Some(directory.into());
        self
    }

    fn schema_roots(&self) -> SchemaRoots {
        match &self.project {
            Some(project) => SchemaRoots::of_project(project),
            None => SchemaRoots::of_process(),
        }
    }

    /// Reads a chart, and fetches it if needed.
    ///
    /// # Errors
    /// If it cannot be fetched or read.
    pub fn read(&self, source: &ChartSource) -> Result<helm_core::Chart, BuildError> {
        let chart = match source {
            ChartSource::Local(path) => {
                helm_core::Chart::load(path).map_err(|source| BuildError::Load {
                    path: path.clone(),
                    source: Box::new(source),
                })?
            }
            ChartSource::Remote(chart) => {
                let policy = policy(chart)?;
                let pulled = self.pull(chart, &policy, &access(chart, Patience::default()))?;
                Self::unpack(chart, &pulled.archive)?
            }
        };
        Ok(chart.with_schema_roots(self.schema_roots()))
    }

    /// Reads and compiles a chart, and fetches it if needed.
    ///
    /// # Errors
    /// If it cannot be fetched, read or compiled.
    pub fn load(&self, source: &ChartSource) -> Result<Chart, BuildError> {
        match source {
            ChartSource::Local(path) => {
                Ok(Chart::load(path)?.with_schema_roots(self.schema_roots()))
            }
            ChartSource::Remote(chart) => {
                self.fetch_with(chart, &access(chart, Patience::default()))
            }
        }
    }

    /// Fetches a chart, unless it is in memory. There is one attempt, because the caller tries again.
    pub(super) fn fetch(
        &self,
        chart: &RemoteChart,
        credentials: &Credentials,
    ) -> Result<Chart, BuildError> {
        let patience = Patience {
            attempts: 1,
            ..Patience::default()
        };
        self.fetch_with(chart, &credentials.add_to(access(chart, patience)))
    }

    fn fetch_with(&self, chart: &RemoteChart, access: &Access) -> Result<Chart, BuildError> {
        let policy = policy(chart)?;
        if let Some(known) = self.in_memory(chart, &policy) {
            return Ok(known);
        }
        let pulled = self.pull(chart, &policy, access)?;
        self.compile(chart, policy, &pulled.archive)
    }

    /// Returns a chart that is in memory or, if its digest is known, in the cache, where it is verified. Sends
    /// no requests. An unusable one counts as missing; fetching it tells why.
    pub(super) fn known(&self, chart: &RemoteChart) -> Option<Chart> {
        let policy = chart.policy().ok()?;
        if let Some(known) = self.in_memory(chart, &policy) {
            return Some(known);
        }
        let cache = self.shared.cache.lock().clone()?;
        let found = cache.find(&chart.wanted(), &policy).ok()??;
        self.compile(chart, policy, &found.archive).ok()
    }

    /// Forgets the charts that no entry names any longer.
    pub(super) fn keep_only(&self, used: &[RemoteChart]) {
        self.shared
            .compiled
            .lock()
            .retain(|known| used.contains(&known.source));
    }

    /// Returns a chart that was verified with the same key.
    fn in_memory(&self, chart: &RemoteChart, policy: &Policy) -> Option<Chart> {
        let compiled = self.shared.compiled.lock();
        let known = compiled
            .iter()
            .find(|known| known.source == *chart && known.policy == *policy);
        known.map(|known| known.chart.clone())
    }

    fn compile(
        &self,
        chart: &RemoteChart,
        policy: Policy,
        archive: &[u8],
    ) -> Result<Chart, BuildError> {
        let ready = Chart::of_archive(Path::new(&chart.to_string()), archive)?;
        let ready = ready.with_schema_roots(self.schema_roots());
        let mut compiled = self.shared.compiled.lock();
        compiled.retain(|known| known.source != *chart);
        compiled.push(Compiled {
            source: chart.clone(),
            policy,
            chart: ready.clone(),
        });
        Ok(ready)
    }

    fn unpack(chart: &RemoteChart, archive: &[u8]) -> Result<helm_core::Chart, BuildError> {
        helm_core::Chart::from_archive(archive, &Limits::default()).map_err(|source| {
            BuildError::Load {
                path: chart.to_string().into(),
                source: Box::new(source),
            }
        })
    }

    /// Fetches an archive. A cache that cannot be used is given up with a warning.
    fn pull(
        &self,
        chart: &RemoteChart,
        policy: &Policy,
        access: &Access,
    ) -> Result<Pulled, BuildError> {
        let cache = self.shared.cache.lock().clone();
        let pulled = match pull(chart, policy, access, cache) {
            Err(PullError::Cache(error)) => {
                pull(chart, policy, access, self.without_writes(&error))
            }
            pulled => pulled,
        };
        pulled.map_err(|error| not_fetched(chart, error))
    }

    /// Gives up writing to the cache, or the cache if it is not written to already.
    fn without_writes(&self, error: &CacheError) -> Option<Cache> {
        let mut cache = self.shared.cache.lock();
        warn!(
            error = error as &dyn std::error::Error,
            "the cache of charts cannot be used; charts are kept in memory only, and fetched again by the next process"
        );
        let readable = cache.take().filter(|cache| !cache.is_read_only());
        cache.clone_from(&readable.map(Cache::read_only));
        cache.clone()
    }
}

/// Returns how the server of a chart is reached.
fn access(chart: &RemoteChart, patience: Patience) -> Access {
    Access {
        ca_file: chart.ca_file.clone(),
        plain_http: chart.plain_http,
        insecure_skip_tls_verify: chart.insecure_skip_tls_verify,
        docker_configs: Access::default_docker_configs(|name| std::env::var(name).ok()),
        patience,
        ..Access::default()
    }
}

/// Fetches an archive on a thread of its own: the calling one may run asynchronous tasks.
fn pull(
    chart: &RemoteChart,
    policy: &Policy,
    access: &Access,
    cache: Option<Cache>,
) -> Result<Pulled, PullError> {
    let puller = Puller::new(access, cache)?.verifying(policy.clone());
    let wanted = chart.wanted();
    thread::scope(|scope| {
        let pulls = thread::Builder::new().spawn_scoped(scope, || puller.pull_blocking(&wanted));
        let ended = pulls.map_err(PullError::Runtime)?.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Reads the key with which a chart must be signed.
fn policy(chart: &RemoteChart) -> Result<Policy, BuildError> {
    let policy = chart.policy();
    policy.map_err(|error| not_fetched(chart, PullError::Policy(error)))
}

fn not_fetched(chart: &RemoteChart, source: PullError) -> BuildError {
    BuildError::Fetch {
        chart: chart.to_string(),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use chart_source::Digest;
    use hybrid_operator_test::http_server::Reply;
    use hybrid_operator_test::{HttpServer, packaged_chart};

    use super::*;
    use crate::watches;

    /// Reads the chart of the only entry of a watches file.
    fn entry(chart: &str) -> RemoteChart {
        let text = format!("- {{version: v1, kind: Web, chart: {chart}}}");
        let (entries, problems) = watches::parse(text.as_bytes(), Path::new("/base"));
        assert_eq!(problems, [], "{text}");
        entries[0].watch.chart.remote().unwrap().clone()
    }

    fn archive() -> Vec<u8> {
        packaged_chart(
            "web",
            "1.2.3",
            &[("templates/a.yaml", "a: {{ .Values.a }}")],
        )
    }

    /// Serves a repository while `up`.
    fn repository(up: &Arc<AtomicBool>) -> HttpServer {
        let up = Arc::clone(up);
        HttpServer::start(move |request| {
            let index = "apiVersion: v1\nentries: {web: [{name: web, version: 1.2.3, urls: [web-1.2.3.tgz]}]}";
            match request.target.as_str() {
                _ if !up.load(Ordering::SeqCst) => Reply::status(503),
                "/index.yaml" => Reply::body(index),
                "/web-1.2.3.tgz" => Reply::body(archive()),
                "/broken.tgz" => Reply::body(packaged_chart("b", "1.0.0", &[("templates/a.yaml", "{{")])),
                "/private.tgz" => Reply::status(401),
                _ => Reply::status(404),
            }
        })
        .unwrap()
    }

    fn said(result: Result<Chart, BuildError>) -> String {
        match result {
            Ok(chart) => chart.name().to_owned(),
            Err(error) => kube_objects::with_causes(&error),
        }
    }

    #[test]
    fn charts_are_fetched_as_their_entries_say() {
        let up = Arc::new(AtomicBool::new(true));
        let server = repository(&up);
        let (url, digest) = (server.url(""), Digest::of(&archive()));
        let other = Digest::of(b"other");
        let get = |chart: &str| {
            said(ChartReader::default().fetch(&entry(chart), &Credentials::default()))
        };
        for (chart, expected) in [
            (
                format!("{{repo: '{url}', name: web, version: 1.2.3}}"),
                "web",
            ),
            (
                format!("{{repo: '{url}', name: web, digest: '{digest}'}}"),
                "web",
            ),
            (format!("'{url}/web-1.2.3.tgz'"), "web"),
            (
                format!("{{repo: '{url}', name: wep}}"),
                "did you mean \"web\"?",
            ),
            (
                format!("{{repo: '{url}', name: web, version: 2.0.0}}"),
                "has no version \"2.0.0\"",
            ),
            (
                format!("{{url: '{url}/web-1.2.3.tgz', digest: '{other}'}}"),
                "was changed or damaged",
            ),
            (format!("'{url}/none.tgz'"), "does not exist (status 404)"),
            (
                format!("'{url}/private.tgz'"),
                "needs credentials (status 401)",
            ),
            (
                format!("'{url}/broken.tgz'"),
                "cannot parse the templates of",
            ),
        ] {
            let said = get(&chart);
            assert!(said.contains(expected), "{chart}: {said}");
        }
        let chart = entry(
            "{url: 'oci://h/web:1.0.0', caFile: ca.crt, plainHttp: true, insecureSkipTlsVerify: true}",
        );
        let access = access(&chart, Patience::default());
        assert_eq!(access.ca_file, Some(PathBuf::from("/base/ca.crt")));
        assert!(access.plain_http && access.insecure_skip_tls_verify);
    }

    #[test]
    fn a_chart_with_a_known_digest_needs_no_request_once_it_is_cached() {
        let up = Arc::new(AtomicBool::new(true));
        let server = repository(&up);
        let dir = tempfile::tempdir().unwrap();
        let reader = || ChartReader::new(Some(Cache::at(dir.path())));
        let (url, digest) = (server.url(""), Digest::of(&archive()));
        let exact = entry(&format!("'{url}/web-1.2.3.tgz'"));
        let pinned = entry(&format!("{{repo: '{url}', name: web, digest: '{digest}'}}"));
        assert!(reader().known(&pinned).is_none(), "nothing is cached yet");
        let first = reader();
        assert_eq!(said(first.fetch(&exact, &Credentials::default())), "web");
        up.store(false, Ordering::SeqCst);
        assert!(first.known(&exact).is_some(), "it is in memory");
        first.keep_only(&[]);
        assert!(first.known(&exact).is_none(), "its digest is not known");
        let requests = server.received().len();
        assert!(reader().known(&pinned).is_some());
        assert_eq!(
            said(reader().fetch(&pinned, &Credentials::default())),
            "web"
        );
        assert_eq!(server.received().len(), requests);
        let refused = said(reader().fetch(&exact, &Credentials::default()));
        assert!(refused.contains("answers with status 503"), "{refused}");
    }

    #[test]
    fn charts_are_kept_in_memory_if_the_cache_cannot_be_written() {
        let up = Arc::new(AtomicBool::new(true));
        let server = repository(&up);
        let dir = tempfile::tempdir().unwrap();
        // A file in place of a directory, which root cannot write to either.
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let reader = ChartReader::new(Some(Cache::at(file.join("charts"))));
        let chart = entry(&format!("'{}/web-1.2.3.tgz'", server.url("")));
        assert_eq!(said(reader.fetch(&chart, &Credentials::default())), "web");
        assert!(reader.known(&chart).is_some());
    }
}
