//! References of charts: a path, a URL, an OCI name, or a name in a repository.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use url::Url;

use crate::digest::{Digest, DigestError};
use crate::version;

/// The scheme of charts in OCI registries.
const OCI: &str = "oci://";

/// Reference to a chart, as users write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartReference {
    /// Location of the chart.
    pub location: Location,
    /// The version or range of versions; the newest by default.
    pub version: Option<String>,
    /// The digest that the archive must have.
    pub digest: Option<Digest>,
}

/// Location of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory or an archive on this machine.
    Path(PathBuf),
    /// An archive behind a URL.
    Archive(Url),
    /// A repository of an OCI registry.
    Oci(OciName),
    /// A name in the index of an HTTP repository.
    Repository {
        /// URL of the folder with the `index.yaml`.
        url: Url,
        /// Name of the chart.
        name: String,
    },
}

/// The name of a chart in an OCI registry: `oci://HOST[:PORT]/PATH[:TAG][@DIGEST]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciName {
    /// Host and port.
    pub host: String,
    /// Path of the repository, such as `charts/podinfo`.
    pub repository: String,
    /// The tag, with `_` for the `+` of a version.
    pub tag: Option<String>,
    /// The digest of the manifest.
    pub digest: Option<Digest>,
}

/// A text does not name a chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ReferenceError {
    /// A URL that cannot be parsed, or has no host.
    #[error("{url:?} is not a URL of a chart or repository, such as https://example.com/charts")]
    Url { url: String },
    /// A scheme that is not supported.
    #[error("{url:?} has the scheme {scheme:?}; charts are fetched by https, http or oci")]
    Scheme { url: String, scheme: String },
    /// A URL of a document with a user.
    #[error("the URL of {url:?} has a user; documents are fetched without credentials")]
    User {
        /// The URL without the user.
        url: String,
    },
    /// An OCI name that is malformed.
    #[error("{name:?} does not name a chart in a registry: {why}; write oci://HOST/PATH[:VERSION]")]
    Oci {
        name: String,
        /// Problem with the name.
        why: String,
    },
    /// The digest of an OCI name is malformed.
    #[error("{name:?} has no valid digest")]
    Digest {
        name: String,
        #[source]
        source: DigestError,
    },
    /// A tag and a version that differ.
    #[error("{name} names the version {tag}, not {version}; leave out one of the two")]
    VersionMismatch {
        name: String,
        /// The tag in the reference.
        tag: String,
        /// The version beside it.
        version: String,
    },
    /// A version for something that has only one.
    #[error(
        "a version cannot be chosen for {0}, which is one certain chart; leave out the version"
    )]
    Version(String),
    /// A text that is neither a version nor a range.
    #[error("{0:?} is neither a version nor a range such as \">=1.2, <2\"")]
    Range(String),
    /// A repository and a reference that needs none.
    #[error("{0:?} is not a name of a chart in a repository; leave out the repository")]
    NotAName(String),
}

impl ChartReference {
    /// Parses `chart` as Helm does: with `repo`, the name of a chart in that repository; else a URL,
    /// an `oci://` name, or a path.
    pub fn parse(
        chart: &str,
        repo: Option<&str>,
        version: Option<&str>,
    ) -> Result<Self, ReferenceError> {
        let version = version.filter(|text| !text.is_empty());
        let location = match repo.filter(|text| !text.is_empty()) {
            Some(repo) => in_repository(chart, repo)?,
            None => location(chart)?,
        };
        match (&location, version) {
            (Location::Path(_) | Location::Archive(_), Some(_)) => {
                return Err(ReferenceError::Version(location.to_string()));
            }
            (Location::Oci(oci), Some(version)) => oci.check_version(version)?,
            _ => {}
        }
        Ok(Self {
            location,
            version: version.map(str::to_owned),
            digest: None,
        })
    }

    /// Returns the same chart in another version, or range of versions.
    ///
    /// # Errors
    /// If it is one certain chart, or the text is neither a version nor a range.
    pub fn with_version(&self, version: &str) -> Result<Self, ReferenceError> {
        check_version(version)?;
        let location = match &self.location {
            Location::Path(_) | Location::Archive(_) => {
                return Err(ReferenceError::Version(self.location.to_string()));
            }
            Location::Oci(name) => Location::Oci(OciName {
                tag: None,
                digest: None,
                ..name.clone()
            }),
            named @ Location::Repository { .. } => named.clone(),
        };
        Ok(Self {
            location,
            version: Some(version.to_owned()),
            digest: None,
        })
    }

    /// Returns whether the reference means one certain chart for as long as its publisher changes
    /// nothing: it has a digest, an exact version, or is the URL of an archive.
    pub fn is_exact(&self) -> bool {
        let exact = |version: Option<&str>| version.is_some_and(version::is_one);
        let version = self.version.as_deref();
        self.digest.is_some()
            || match &self.location {
                Location::Path(_) | Location::Archive(_) => true,
                Location::Repository { .. } => exact(version),
                Location::Oci(name) => {
                    let tag = name.tag.as_deref().map(|tag| tag.replace('_', "+"));
                    name.digest.is_some() || exact(tag.as_deref()) || exact(version)
                }
            }
    }

    /// Returns whether the reference contains a user or a password.
    pub fn has_credentials(&self) -> bool {
        match &self.location {
            Location::Archive(url) | Location::Repository { url, .. } => {
                !url.username().is_empty() || url.password().is_some()
            }
            Location::Path(_) | Location::Oci(_) => false,
        }
    }

    /// Returns the reference with all of its parts except for the digest of the archive, as the key of a
    /// lock.
    pub fn key(&self) -> String {
        let location = match &self.location {
            Location::Archive(url) => url.to_string(),
            Location::Repository { url, name } => format!("{name} in {url}"),
            other => other.to_string(),
        };
        match &self.version {
            Some(version) => format!("{location} {version}"),
            None => location,
        }
    }
}

/// Checks that a text is a version, or a range of versions such as `^1.2`.
///
/// # Errors
/// If it is neither.
pub fn check_version(text: &str) -> Result<(), ReferenceError> {
    match version::pick(std::iter::empty(), Some(text)) {
        Ok(_) => Ok(()),
        Err(_) => Err(ReferenceError::Range(text.to_owned())),
    }
}

impl fmt::Display for ChartReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)?;
        match &self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}

/// Parses what `Display` writes for a chart that is not a path.
impl FromStr for ChartReference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let named = text.split_once(" in ");
        let named = named.filter(|(name, _)| !name.contains("://"));
        let (name, rest) = named.map_or((None, text), |(name, rest)| (Some(name), rest));
        let (location, version) = match rest.split_once(' ') {
            Some((location, version)) => (location, Some(version)),
            None => (rest, None),
        };
        match name {
            Some(name) => Self::parse(name, Some(location), version),
            None => Self::parse(location, None, version),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Archive(url) => f.write_str(&shown(url)),
            Self::Oci(oci) => oci.fmt(f),
            Self::Repository { url, name } => write!(f, "{name} in {}", shown(url)),
        }
    }
}

impl fmt::Display for OciName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OCI}{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Returns a URL without what may be secret: its user, its query and its fragment.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// Parses the URL of a repository or an archive.
pub(crate) fn http_url(text: &str) -> Result<Url, ReferenceError> {
    let wrong = || ReferenceError::Url {
        url: without_user(text),
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    match url.scheme() {
        "http" | "https" if url.host_str().is_some() => Ok(url),
        "http" | "https" => Err(wrong()),
        scheme => Err(ReferenceError::Scheme {
            url: without_user(text),
            scheme: scheme.to_owned(),
        }),
    }
}

/// Returns a malformed URL without its user, who may have a password, and without its query.
fn without_user(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.find("://"), text.rfind('@')) {
        (Some(start), Some(end)) if start < end => {
            let scheme = text.get(..start + 3).unwrap_or_default();
            let rest = text.get(end + 1..).unwrap_or_default();
            format!("{scheme}{rest}")
        }
        _ => text.to_owned(),
    }
}

fn in_repository(chart: &str, repo: &str) -> Result<Location, ReferenceError> {
    if repo.starts_with(OCI) {
        return Err(ReferenceError::Oci {
            name: repo.to_owned(),
            why: "a registry has no index".to_owned(),
        });
    }
    if chart.is_empty() || chart.contains("://") || chart.starts_with(['/', '.', '~']) {
        return Err(ReferenceError::NotAName(without_user(chart)));
    }
    Ok(Location::Repository {
        url: http_url(repo)?,
        name: chart.to_owned(),
    })
}

fn location(chart: &str) -> Result<Location, ReferenceError> {
    if let Some(name) = chart.strip_prefix(OCI) {
        return oci(name).map(Location::Oci);
    }
    if chart.contains("://") {
        return http_url(chart).map(Location::Archive);
    }
    Ok(Location::Path(chart.into()))
}

/// Parses the part of an OCI name after the scheme.
fn oci(name: &str) -> Result<OciName, ReferenceError> {
    let wrong = |why: &str| ReferenceError::Oci {
        name: format!("{OCI}{name}"),
        why: why.to_owned(),
    };
    if name.contains('@')
        && name
            .split('/')
            .next()
            .is_some_and(|host| host.contains('@'))
    {
        let name = without_user(&format!("{OCI}{name}"));
        return Err(ReferenceError::Oci {
            name,
            why: "credentials are not part of it".to_owned(),
        });
    }
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => {
            let parsed = digest.parse().map_err(|source| ReferenceError::Digest {
                name: format!("{OCI}{name}"),
                source,
            })?;
            (rest, Some(parsed))
        }
        None => (name, None),
    };
    let (host, path) = rest
        .split_once('/')
        .ok_or_else(|| wrong("it has no path"))?;
    let (repository, tag) = match path.rsplit_once(':') {
        Some((repository, tag)) => (repository, Some(tag.replace('+', "_"))),
        None => (path, None),
    };
    let host_is_valid = Url::parse(&format!("https://{host}/")).is_ok_and(|url| {
        url.host_str().is_some() && url.path() == "/" && url.username().is_empty()
    });
    if !host_is_valid {
        return Err(wrong("it has no valid host"));
    }
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(allowed)
    };
    if !repository.split('/').all(is_part) {
        return Err(wrong(
            "the path has lower-case letters, digits, `.`, `-` and `_` between slashes",
        ));
    }
    if let Some(tag) = &tag {
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let starts = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if !starts || tag.len() > 128 || !tag.chars().all(allowed) {
            return Err(wrong("the version is not a tag"));
        }
    }
    Ok(OciName {
        host: host.to_owned(),
        repository: repository.to_owned(),
        tag,
        digest,
    })
}

impl OciName {
    fn check_version(&self, version: &str) -> Result<(), ReferenceError> {
        match &self.tag {
            Some(tag) if *tag != version.replace('+', "_") => {
                Err(ReferenceError::VersionMismatch {
                    name: self.to_string(),
                    tag: tag.clone(),
                    version: version.to_owned(),
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChartReference, Location, check_version};
    use crate::rows::{given, rows};

    fn parse(chart: &str, repo: Option<&str>, version: Option<&str>) -> Result<String, String> {
        let reference = ChartReference::parse(chart, repo, version).map_err(|e| e.to_string())?;
        let kind = match &reference.location {
            Location::Path(_) => "path",
            Location::Archive(_) => "archive",
            Location::Oci(_) => "oci",
            Location::Repository { .. } => "repository",
        };
        Ok(format!("{kind} {reference}"))
    }

    #[test]
    fn only_complete_versions_digests_and_urls_of_archives_are_exact() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for [chart, repo, version, expected] in rows(
            "
            https://h/web.tgz   |                  |           | true
            oci://h/web         |                  |           | false
            oci://h/web:1.2.3_b |                  |           | true
            oci://h/web:1.2     |                  |           | false
            oci://h/web:latest  |                  |           | false
            oci://h/web         |                  | ^1        | false
            oci://h/web         |                  | 1.2.3     | true
            oci://h/web@DIGEST  |                  |           | true
            web                 | https://h/charts |           | false
            web                 | https://h/charts | v1.2.3    | true
            web                 | https://h/charts | 1.2       | false
            web                 | https://h/charts | 1.2.3 - 2 | false
            ",
        ) {
            let chart = chart.replace("DIGEST", &digest);
            let reference = ChartReference::parse(&chart, given(repo), given(version)).unwrap();
            let is_exact = reference.is_exact().to_string();
            assert_eq!(is_exact, expected, "{chart} {version:?}");
        }
        assert!(check_version("^1.2").is_ok() && check_version("1.2.3").is_ok());
        assert!(check_version("newest").is_err());
    }

    #[test]
    fn what_is_shown_of_a_reference_can_be_parsed_and_moved_to_another_version() {
        for [shown, moved] in rows(
            "
            web in https://h/charts             | web in https://h/charts ^2
            web in https://h/charts >=1.2, <2   | web in https://h/charts ^2
            oci://h/web                         | oci://h/web ^2
            oci://h/web >=1.2 <2                | oci://h/web ^2
            oci://h/web:1.2.3                   | oci://h/web ^2
            https://h/web.tgz                   |
            ",
        ) {
            let reference: ChartReference = shown.parse().unwrap();
            assert_eq!(reference.to_string(), shown);
            let other = reference.with_version("^2").map(|other| other.to_string());
            assert_eq!(other.unwrap_or_default(), moved);
            assert!(reference.with_version("newest").is_err());
        }
    }

    #[test]
    fn references_are_paths_urls_oci_names_or_names_in_a_repository() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for [chart, repo, version, expected] in rows(
            "
            ./web | | | path ./web
            web-1.0.0.tgz | | | path web-1.0.0.tgz
            https://me:secret@example.com/web-1.0.0.tgz?token=secret | | | archive https://example.com/web-1.0.0.tgz
            oci://r.example.com/web | | ^1 | oci oci://r.example.com/web ^1
            oci://r.example.com/web:1.0.0+b | | 1.0.0+b | oci oci://r.example.com/web:1.0.0_b 1.0.0+b
            oci://r.example.com:5000/a/b:1.0.0@DIGEST | | | oci oci://r.example.com:5000/a/b:1.0.0@DIGEST
            web | https://me:secret@example.com/charts/?token=secret | 1.x | repository web in https://example.com/charts/ 1.x
            ",
        ) {
            let [chart, expected] = [chart, expected].map(|text| text.replace("DIGEST", &digest));
            let parsed = parse(&chart, given(repo), given(version));
            assert_eq!(parsed, Ok(expected), "{chart}");
        }
    }

    #[test]
    fn wrong_references_are_refused_without_showing_credentials() {
        for [chart, repo, version, expected] in rows(
            r#"
            https://                  |                     |       | is not a URL
            https://me:secret@:99999/x |                    |       | is not a URL
            s3://me:secret@bucket/web |                     |       | has the scheme "s3"
            oci://host                |                     |       | it has no path
            oci://me:secret@host/web  |                     |       | credentials are not part
            oci://host/Web            |                     |       | lower-case letters
            oci://host/a//b           |                     |       | lower-case letters
            oci://host/../v2          |                     |       | lower-case letters
            oci://host/web:a?b        |                     |       | is not a tag
            oci://host/web@sha256:1   |                     |       | has no valid digest
            oci://host/web:1.0.0      |                     | 2.0.0 | names the version 1.0.0, not 2.0.0
            https://host/w.tgz        |                     | 2.0.0 | a version cannot be chosen
            ./web                     | https://example.com |       | is not a name of a chart
            ~/web                     | https://example.com |       | is not a name of a chart
            web                       | oci://host/web      |       | a registry has no index
            web                       | example.com         |       | is not a URL
            "#,
        ) {
            let error = parse(chart, given(repo), given(version)).unwrap_err();
            assert!(error.contains(expected), "{chart}: {error}");
            assert!(!error.contains("secret"), "{chart}: {error}");
        }
    }
}
