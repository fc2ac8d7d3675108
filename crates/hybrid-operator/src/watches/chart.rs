//! Location of the chart of an entry: on this machine, or behind a URL, in a repository or in a registry.

use std::fmt;
use std::path::{Path, PathBuf};

use chart_source::verify::{Policy, VerifyError};
use chart_source::{ChartReference, Digest, Location, check_version};
use go_yaml::tree::Node;
use operator_runtime::naming;

use super::fields::{Fields, name};
use super::lock::LockedChart;
use super::verify::{self, Verify};

/// Location of the chart of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartSource {
    /// A directory or a `.tgz`.
    Local(PathBuf),
    /// A chart that is fetched.
    Remote(Box<RemoteChart>),
}

/// A chart that is fetched, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteChart {
    /// Reference to the chart, as the watches file has it.
    pub reference: ChartReference,
    /// File with certificates of authorities that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Whether the registry is reached without TLS.
    pub plain_http: bool,
    /// Whether certificates are accepted without verification.
    pub insecure_skip_tls_verify: bool,
    /// The Secret with the credentials.
    pub credentials_secret: Option<SecretName>,
    /// Required signer of the chart.
    pub verify: Option<Verify>,
    /// Entry of the lock for the chart.
    pub locked: Option<LockedChart>,
}

/// Namespace and name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    /// The namespace; the operator's own if there is none.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ChartSource {
    /// Returns the path of a chart on this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }

    /// Returns the chart that is fetched, if it is one.
    pub fn remote(&self) -> Option<&RemoteChart> {
        match self {
            Self::Local(_) => None,
            Self::Remote(chart) => Some(chart),
        }
    }
}

impl fmt::Display for ChartSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Remote(chart) => chart.fmt(f),
        }
    }
}

impl fmt::Display for RemoteChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)?;
        match self.locked.as_ref().and_then(|lock| lock.version.as_ref()) {
            Some(version) => write!(f, " (locked: {version})"),
            None => Ok(()),
        }
    }
}

impl RemoteChart {
    /// Creates a chart that is reached without further options.
    pub fn new(reference: ChartReference) -> Self {
        Self {
            reference,
            ca_file: None,
            plain_http: false,
            insecure_skip_tls_verify: false,
            credentials_secret: None,
            verify: None,
            locked: None,
        }
    }

    /// Reads the key with which the chart must be signed; without one, every chart is accepted.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub fn policy(&self) -> Result<Policy, VerifyError> {
        self.verify
            .as_ref()
            .map_or_else(|| Ok(Policy::default()), Verify::policy)
    }

    /// Returns what is fetched: the locked version with its digest, if there is a lock.
    pub fn wanted(&self) -> ChartReference {
        let Some(locked) = &self.locked else {
            return self.reference.clone();
        };
        let mut wanted = self.reference.clone();
        match &self.reference.location {
            // The URL has the digest of the manifest, so that a tag that moves does not matter.
            Location::Oci(_) => {
                if let Ok(exact) = ChartReference::parse(&locked.url, None, None) {
                    wanted = exact;
                }
            }
            Location::Repository { .. } => wanted.version.clone_from(&locked.version),
            Location::Archive(_) | Location::Path(_) => {}
        }
        wanted.digest = Some(locked.digest);
        wanted
    }
}

/// Reads the field `chart`: a path, a URL, an OCI name, or a map.
pub(super) fn chart(fields: &mut Fields<'_>, base: &Path) -> Option<ChartSource> {
    if fields.is_map("chart") {
        let remote = fields.section("chart", |map| remote(map, base))??;
        return Some(ChartSource::Remote(Box::new(remote)));
    }
    let read = |node: &Node| {
        let text = name(node)?;
        if text.contains("://") {
            return url(node).map(|reference| {
                let remote = RemoteChart::new(reference);
                ChartSource::Remote(Box::new(remote))
            });
        }
        Ok(ChartSource::Local(base.join(text)))
    };
    fields.required("chart", read)
}

fn remote(fields: &mut Fields<'_>, base: &Path) -> Option<RemoteChart> {
    let has = ["url", "repo", "name"].map(|field| fields.has(field));
    let from_url = fields.optional("url", url);
    let repo = fields.optional("repo", repo);
    let chart = fields.optional("name", chart_name);
    let version = fields.optional("version", version);
    let digest = fields.optional("digest", digest);
    let ca_file = fields.optional("caFile", name);
    let plain_http = fields.flag("plainHttp");
    let insecure_skip_tls_verify = fields.flag("insecureSkipTlsVerify");
    let credentials_secret = fields.optional("credentialsSecret", secret);
    let verify = verify::read(fields, base);
    let forms = "give either `url` (https://HOST/NAME-VERSION.tgz or oci://HOST/PATH), or `repo` and `name`";
    let (text, repo) = match has {
        [true, false, false] => (from_url?.key(), None),
        [false, true, true] => (chart?, Some(repo?)),
        _ => {
            fields.wrong(forms.to_owned());
            return None;
        }
    };
    match ChartReference::parse(&text, repo.as_deref(), version.as_deref()) {
        Ok(ChartReference {
            location: Location::Archive(_),
            ..
        }) if verify.as_ref().is_some_and(Verify::needs_registry) => {
            fields.wrong(verify::COSIGN_NEEDS_REGISTRY.to_owned());
            None
        }
        Ok(reference) => Some(RemoteChart {
            reference: ChartReference {
                digest,
                ..reference
            },
            ca_file: ca_file.map(|file| base.join(file)),
            plain_http,
            insecure_skip_tls_verify,
            credentials_secret,
            verify,
            locked: None,
        }),
        Err(error) => {
            fields.wrong(error.to_string());
            None
        }
    }
}

/// Reads the URL of an archive, or an OCI name.
fn url(node: &Node) -> Result<ChartReference, String> {
    let text = name(node)?;
    let reference = ChartReference::parse(&text, None, None).map_err(|error| error.to_string())?;
    if matches!(reference.location, Location::Path(_)) {
        return Err(format!(
            "`{text}` is not a URL, such as https://HOST/NAME-VERSION.tgz or oci://HOST/PATH; a path \
             is written as the value of `chart` itself"
        ));
    }
    without_credentials(reference)
}

fn repo(node: &Node) -> Result<String, String> {
    let text = name(node)?;
    let reference = ChartReference::parse("chart", Some(&text), None);
    without_credentials(reference.map_err(|error| error.to_string())?)?;
    Ok(text)
}

/// Refuses a URL with a user, because everybody who reads the project would read the password.
fn without_credentials(reference: ChartReference) -> Result<ChartReference, String> {
    if reference.has_credentials() {
        return Err(format!(
            "{reference} is given with a user or password, which do not belong in this file; remove them \
             from the URL"
        ));
    }
    Ok(reference)
}

fn chart_name(node: &Node) -> Result<String, String> {
    let text = name(node)?;
    let reference = ChartReference::parse(&text, Some("https://example.com"), None);
    reference.map_err(|error| error.to_string())?;
    Ok(text)
}

fn secret(node: &Node) -> Result<SecretName, String> {
    let text = name(node)?;
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text.as_str()),
    };
    if !namespace.is_none_or(naming::is_label) || !naming::is_subdomain(name) {
        return Err(format!(
            "`{text}` does not name a Secret: NAME in the namespace of the operator, or NAMESPACE/NAME"
        ));
    }
    Ok(SecretName {
        namespace: namespace.map(ToOwned::to_owned),
        name: name.to_owned(),
    })
}

/// Reads a version or a range.
fn version(node: &Node) -> Result<String, String> {
    let text = name(node)?;
    check_version(&text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn digest(node: &Node) -> Result<Digest, String> {
    let text = name(node)?;
    text.parse().map_err(|error| format!("{error}"))
}
