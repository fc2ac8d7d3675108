//! Errors of a fetch. Each message names the URL, the cause and, where there is one, the fix; none
//! contains credentials or a query.

use std::path::PathBuf;
use std::time::Duration;

use crate::cache::CacheError;
use crate::digest::Digest;
use crate::docker_config::DockerConfigError;
use crate::reference::ReferenceError;
use crate::verify::VerifyError;

/// The error of a library below this one.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Returns a number of bytes, as people read it.
fn size(bytes: usize) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

/// A chart could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PullError {
    /// The reference of the chart, or a URL that a server gave, is wrong.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The chart is on this machine, so there is nothing to fetch.
    #[error("{} is on this machine and is not fetched", .0.display())]
    Local(PathBuf),
    /// A file with certificates or a key cannot be used.
    #[error("cannot use {} for TLS: {why}", path.display())]
    Certificate {
        path: PathBuf,
        /// Problem with the file.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] Cause),
    /// The asynchronous runtime of a blocking call cannot be started.
    #[error("cannot start what sends the requests")]
    Runtime(#[source] std::io::Error),
    /// The proxy of the environment is not supported.
    #[error(
        "cannot use the proxy {proxy}: only http:// proxies are supported; change HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or name the host in NO_PROXY"
    )]
    Proxy {
        /// Scheme, host and port of the proxy.
        proxy: String,
    },
    /// The certificate of a server is not trusted.
    #[error(
        "the certificate of {url} is not trusted; if it is that of your own authority, give its certificate with --ca-file (caFile)"
    )]
    Untrusted {
        url: String,
        #[source]
        source: Cause,
    },
    /// A server cannot be reached.
    #[error("cannot reach {url}; check the address, the network, and HTTPS_PROXY and NO_PROXY")]
    Unreachable {
        url: String,
        #[source]
        source: Cause,
    },
    /// A server does not answer in time.
    #[error("{url} did not answer within {} s; try again later, or check HTTPS_PROXY and NO_PROXY", after.as_secs_f32())]
    Timeout {
        url: String,
        /// The limit that was exceeded.
        after: Duration,
    },
    /// The connection broke.
    #[error("the answer of {url} is incomplete")]
    Incomplete {
        url: String,
        #[source]
        source: Cause,
    },
    /// Credentials are needed.
    #[error(
        "{url} needs credentials (status {status}); give --username and --password, log in with 'helm registry login {host}', or name a Secret"
    )]
    NeedsCredentials {
        url: String,
        /// Host of the URL.
        host: String,
        status: u16,
    },
    /// Credentials were rejected.
    #[error(
        "{url} rejects the credentials {source_of_credentials} (status {status}); check the user, the password and what this user may read"
    )]
    Denied {
        url: String,
        /// Source of the credentials.
        source_of_credentials: String,
        status: u16,
    },
    /// There is nothing at a URL.
    #[error("{url} does not exist (status 404); check {}{}", match *.what { "index" => "the URL of the repository", "document" => "the URL", "image" => "the name of the image and its tag", _ => "the name of the chart and its version" }, if *.private { ", and whether it needs credentials" } else { "" })]
    NotFound {
        url: String,
        what: &'static str,
        /// Whether no credentials were given; many servers hide private charts so.
        private: bool,
    },
    /// Another status than success.
    #[error("{url} answers with status {status}{}", if *.attempts > 1 { format!(", after {} attempts; try again later", .attempts) } else { String::new() })]
    Status {
        url: String,
        status: u16,
        /// Number of attempts.
        attempts: u32,
    },
    /// More redirects than the limit.
    #[error("{url} is redirected more than {limit} times; give the URL that it leads to")]
    Redirects {
        /// The URL that was asked for.
        url: String,
        limit: usize,
    },
    /// A redirect that is not followed.
    #[error("{url} redirects to {target}, which is not followed: {why}")]
    Redirect {
        /// The URL that redirects.
        url: String,
        /// Target of the redirect.
        target: String,
        why: &'static str,
    },
    /// An answer is larger than the limit.
    #[error("the {what} at {url} is larger than the limit of {}{}", size(*limit), if *.what == "index" { "; name the chart by its URL or in an OCI registry" } else { "" })]
    TooLarge {
        url: String,
        what: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The digest differs from the one that was promised.
    #[error(
        "{url} has the digest {actual}, but {by} says {expected}; the chart was changed or damaged and is not used"
    )]
    Digest {
        url: String,
        /// Source of the expected digest, such as "the index".
        by: &'static str,
        /// The digest that it must have.
        expected: Digest,
        /// The digest that it has.
        actual: Digest,
    },
    /// The length differs from the one in the manifest.
    #[error(
        "{url} has {actual} bytes, but the manifest says {expected}; the registry contradicts itself, and the chart is not used"
    )]
    Length {
        url: String,
        /// The length in the manifest.
        expected: u64,
        actual: u64,
    },
    /// The policy that says who must have signed the chart cannot be used.
    #[error(transparent)]
    Policy(#[from] VerifyError),
    /// The chart is not signed as it must be.
    #[error("{url} cannot be verified and is not used")]
    Unproven {
        url: String,
        #[source]
        source: VerifyError,
    },
    /// The signature in the cache does not prove the chart, and cannot be fetched again.
    #[error(
        "the signature of {chart} in {} does not prove it ({why}): somebody changed the cache, or another key is \
         asked for; it cannot be fetched again either",
        path.display()
    )]
    Kept {
        chart: String,
        /// The file in the cache.
        path: PathBuf,
        why: Box<VerifyError>,
        /// Error of the fetch.
        #[source]
        source: Box<PullError>,
    },
    /// The fetched file is not a packaged chart.
    #[error("{url} is not a packaged chart (.tgz); check the URL")]
    NotAnArchive { url: String },
    /// The index of a repository cannot be used.
    #[error("the index at {url} cannot be used: {why}")]
    Index {
        url: String,
        /// Problem with the index.
        why: String,
    },
    /// The index has no such chart.
    #[error("the index at {url} has no chart {name:?}{}", match nearest { Some(near) => format!("; did you mean {near:?}?"), None => String::new() })]
    NoChart {
        /// URL of the index.
        url: String,
        name: String,
        /// A similar name that there is.
        nearest: Option<String>,
    },
    /// No version is in the range.
    #[error("{chart} has no version {wanted:?}{}", match newest { Some(newest) => format!("; the newest is {newest}"), None => "; it has no version at all".to_owned() })]
    NoVersion {
        chart: String,
        /// The version or range.
        wanted: String,
        /// The newest version that there is.
        newest: Option<String>,
    },
    /// A range that cannot be parsed.
    #[error("{wanted:?} is neither a version nor a range such as \">=1.2, <2\"")]
    Range {
        wanted: String,
        #[source]
        source: Cause,
    },
    /// An artifact in a registry is not a chart.
    #[error("{url} is not a Helm chart: {why}")]
    Manifest {
        /// URL of the manifest.
        url: String,
        /// Problem with the artifact.
        why: String,
    },
    /// A registry asks for credentials in a way that is not answered.
    #[error("{url} asks for credentials in a way that is refused: {why}")]
    Challenge { url: String, why: String },
    /// The credentials of a registry cannot be read.
    #[error(transparent)]
    DockerConfig(#[from] DockerConfigError),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
}
