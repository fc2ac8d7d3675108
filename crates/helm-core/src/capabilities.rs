//! Capabilities of the cluster that templates see, and a record of what they read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use go_template::Str;
use serde::{Deserialize, Serialize};

use crate::{DigestBuilder, version};

/// Capabilities of a cluster, as templates read them in `.Capabilities`. Cheap to clone.
///
/// ```
/// use helm_core::capabilities::{ApiVersions, Capabilities, KubeVersion};
/// let mut capabilities = Capabilities::default();
/// capabilities.kube_version = KubeVersion::parse("1.33.4-gke.1245000")?;
/// capabilities.api_versions = ApiVersions::known().with(["monitoring.coreos.com/v1"]);
/// assert!(capabilities.api_versions.has("apps/v1"));
/// assert_eq!(capabilities.kube_version.comparable(), "v1.33.4");
/// # Ok::<(), helm_core::capabilities::VersionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The version of Kubernetes.
    pub kube_version: KubeVersion,
    /// The API versions and resources that the cluster serves.
    pub api_versions: ApiVersions,
    /// The version of Helm.
    pub helm_version: HelmVersion,
}

/// The capabilities that Helm assumes when it renders without a cluster.
impl Default for Capabilities {
    fn default() -> Self {
        Self {
            kube_version: KubeVersion::default(),
            api_versions: ApiVersions::known(),
            helm_version: HelmVersion::default(),
        }
    }
}

/// An error in the text of a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum VersionError {
    /// No number at the start.
    #[error("could not parse {0:?} as version")]
    NoVersion(String),
    /// Fewer than two numbers.
    #[error("illegal version string {0:?}")]
    TooShort(String),
    /// The first number begins with a zero.
    #[error("illegal zero-prefixed version component {component:?} in {text:?}")]
    ZeroPrefixed { component: String, text: String },
    /// A number that does not fit.
    #[error("illegal non-numeric version component {component:?} in {text:?}")]
    TooLarge { component: String, text: String },
}

/// A version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    version: String,
    normalized: Option<String>,
    major: String,
    minor: String,
}

impl KubeVersion {
    /// Parses a version as `--kube-version` does: at least two numbers, with an optional leading
    /// `v` and any text after them.
    ///
    /// # Errors
    /// If the text is not a version.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        let numbers = text.trim_start();
        let numbers = numbers.strip_prefix('v').unwrap_or(numbers);
        let components: Vec<&str> = leading_numbers(numbers);
        let [major, minor, ..] = components.as_slice() else {
            let text = text.to_owned();
            return Err(match components.as_slice() {
                [] => VersionError::NoVersion(text),
                _ => VersionError::TooShort(text),
            });
        };
        if major.starts_with('0') && *major != "0" {
            return Err(VersionError::ZeroPrefixed {
                component: (*major).to_owned(),
                text: text.to_owned(),
            });
        }
        let mut parsed = Vec::with_capacity(components.len());
        for component in &components {
            let number: u64 = component.parse().map_err(|_| VersionError::TooLarge {
                component: (*component).to_owned(),
                text: text.to_owned(),
            })?;
            parsed.push(number.to_string());
        }
        let (major, minor) = (major.to_string(), plain(minor));
        let version = if text.starts_with('v') {
            text.to_owned()
        } else {
            format!("v{text}")
        };
        let normalized = Some(format!("v{}", parsed.join(".")));
        Ok(Self {
            version,
            normalized,
            major,
            minor,
        })
    }

    /// Returns the version that a server reports in `/version`.
    pub fn from_server(
        git_version: impl Into<String>,
        major: impl Into<String>,
        minor: impl Into<String>,
    ) -> Self {
        Self {
            version: git_version.into(),
            normalized: None,
            major: major.into(),
            minor: minor.into(),
        }
    }

    /// Returns the whole version, such as `v1.33.4-gke.1245000`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the version to compare with a chart's `kubeVersion`: without suffixes if it was
    /// parsed by [`KubeVersion::parse`], otherwise as the server reports it.
    pub fn comparable(&self) -> &str {
        self.normalized.as_deref().unwrap_or(&self.version)
    }

    /// Returns the version without suffixes if it was parsed by [`KubeVersion::parse`].
    pub(crate) fn normalized(&self) -> Option<&str> {
        self.normalized.as_deref()
    }

    /// Returns the major version.
    pub fn major(&self) -> &str {
        &self.major
    }

    /// Returns the minor version; some servers report `33+`.
    pub fn minor(&self) -> &str {
        &self.minor
    }
}

impl Default for KubeVersion {
    fn default() -> Self {
        Self::parse(version::KUBERNETES)
            .unwrap_or_else(|_| Self::from_server(version::KUBERNETES, "1", "37"))
    }
}

/// Returns the dot-separated numbers at the start of `text`.
fn leading_numbers(text: &str) -> Vec<&str> {
    let mut numbers = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Some((number, after)) = rest.split_at_checked(end).filter(|_| end > 0) else {
            return numbers;
        };
        numbers.push(number);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => return numbers,
        }
    }
}

/// Returns a decimal number without leading zeros.
fn plain(number: &str) -> String {
    let trimmed = number.trim_start_matches('0');
    if trimmed.is_empty() {
        "0".to_owned()
    } else {
        trimmed.to_owned()
    }
}

/// The API versions (`apps/v1`) and resources (`apps/v1/Deployment`) that a cluster serves, in
/// the order in which templates see them.
#[derive(Clone, Debug)]
pub struct ApiVersions {
    list: Arc<[String]>,
    /// The same versions as template strings.
    texts: Arc<[Str]>,
    set: Arc<HashSet<String>>,
}

impl ApiVersions {
    /// Returns the versions that Helm knows without a cluster.
    pub fn known() -> Self {
        KNOWN.split_whitespace().collect()
    }

    /// Returns these versions and `more`.
    #[must_use]
    pub fn with<T: Into<String>>(&self, more: impl IntoIterator<Item = T>) -> Self {
        let more = more.into_iter().map(Into::into);
        self.list.iter().cloned().chain(more).collect()
    }

    /// Returns whether the cluster serves `version`.
    pub fn has(&self, version: &str) -> bool {
        self.set.contains(version)
    }

    /// Returns all versions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(String::as_str)
    }

    /// Returns all versions as template strings.
    pub(crate) fn texts(&self) -> &[Str] {
        &self.texts
    }
}

impl<T: Into<String>> FromIterator<T> for ApiVersions {
    fn from_iter<I: IntoIterator<Item = T>>(versions: I) -> Self {
        let list: Arc<[String]> = versions.into_iter().map(Into::into).collect();
        let texts = list.iter().map(Str::from).collect();
        let set = Arc::new(list.iter().cloned().collect());
        Self { list, texts, set }
    }
}

/// The version of Helm that templates see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub struct HelmVersion {
    /// The semantic version.
    pub version: String,
    /// The commit that it was built from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub git_commit: String,
    /// The state of the Git tree, such as `clean`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub git_tree_state: String,
    /// The Go release that it was built with.
    pub go_version: String,
    /// The Kubernetes version of its client.
    pub kube_client_version: String,
}

impl Default for HelmVersion {
    fn default() -> Self {
        Self {
            version: version::HELM.to_owned(),
            git_commit: String::new(),
            git_tree_state: String::new(),
            go_version: version::GO.to_owned(),
            kube_client_version: "v1.37".to_owned(),
        }
    }
}

/// The capabilities that the templates of one render read. They are part of the inputs of a
/// release: another cluster version changes a release only if its templates read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapabilityReads {
    /// The version, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_version: Option<String>,
    /// Each version passed to `.Capabilities.APIVersions.Has`, with the result.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub api_versions: BTreeMap<String, bool>,
}

impl CapabilityReads {
    /// Returns whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.kube_version.is_none() && self.api_versions.is_empty()
    }

    /// Returns the same reads with the results that `capabilities` gives.
    #[must_use]
    pub fn again(&self, capabilities: &Capabilities) -> Self {
        Self {
            kube_version: self
                .kube_version
                .as_ref()
                .map(|_| capabilities.kube_version.version().to_owned()),
            api_versions: self
                .api_versions
                .keys()
                .map(|query| (query.clone(), capabilities.api_versions.has(query)))
                .collect(),
        }
    }

    /// Returns whether `capabilities` would give the same results.
    pub fn hold(&self, capabilities: &Capabilities) -> bool {
        self.kube_version
            .as_deref()
            .is_none_or(|version| version == capabilities.kube_version.version())
            && self
                .api_versions
                .iter()
                .all(|(query, answer)| capabilities.api_versions.has(query) == *answer)
    }

    /// Adds the reads to a digest of inputs.
    pub fn digest_into(&self, digest: &mut DigestBuilder) {
        digest.add(self.kube_version.as_deref().unwrap_or_default());
        for (query, answer) in &self.api_versions {
            digest.add(query);
            digest.add([u8::from(*answer)]);
        }
    }
}

/// The versions that Helm knows, in its order.
const KNOWN: &str = "
    v1
    admissionregistration.k8s.io/v1 admissionregistration.k8s.io/v1alpha1
    admissionregistration.k8s.io/v1beta1
    internal.apiserver.k8s.io/v1alpha1
    apps/v1 apps/v1beta1 apps/v1beta2
    authentication.k8s.io/v1 authentication.k8s.io/v1alpha1 authentication.k8s.io/v1beta1
    authorization.k8s.io/v1 authorization.k8s.io/v1beta1
    autoscaling/v1 autoscaling/v2
    batch/v1 batch/v1beta1
    certificates.k8s.io/v1 certificates.k8s.io/v1beta1 certificates.k8s.io/v1alpha1
    coordination.k8s.io/v1alpha2 coordination.k8s.io/v1beta1 coordination.k8s.io/v1
    discovery.k8s.io/v1 discovery.k8s.io/v1beta1
    events.k8s.io/v1 events.k8s.io/v1beta1
    extensions/v1beta1
    flowcontrol.apiserver.k8s.io/v1 flowcontrol.apiserver.k8s.io/v1beta1
    flowcontrol.apiserver.k8s.io/v1beta2 flowcontrol.apiserver.k8s.io/v1beta3
    lifecycle.k8s.io/v1alpha1
    networking.k8s.io/v1 networking.k8s.io/v1beta1
    node.k8s.io/v1 node.k8s.io/v1alpha1 node.k8s.io/v1beta1
    policy/v1 policy/v1beta1
    rbac.authorization.k8s.io/v1 rbac.authorization.k8s.io/v1beta1
    rbac.authorization.k8s.io/v1alpha1
    resource.k8s.io/v1 resource.k8s.io/v1beta2 resource.k8s.io/v1beta1 resource.k8s.io/v1alpha3
    scheduling.k8s.io/v1alpha3 scheduling.k8s.io/v1beta1 scheduling.k8s.io/v1
    storage.k8s.io/v1beta1 storage.k8s.io/v1 storage.k8s.io/v1alpha1
    storagemigration.k8s.io/v1 storagemigration.k8s.io/v1beta1
    apiextensions.k8s.io/v1beta1 apiextensions.k8s.io/v1
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_as_in_kubernetes() {
        let gke = "v1.33.4-gke.1245000";
        for (text, version, comparable, major, minor) in [
            ("1.30", "v1.30", "v1.30", "1", "30"),
            (gke, gke, "v1.33.4", "1", "33"),
            ("1.030.x", "v1.030.x", "v1.30", "1", "30"),
        ] {
            let parsed = KubeVersion::parse(text).unwrap();
            assert_eq!(parsed.version(), version);
            assert_eq!(parsed.comparable(), comparable);
            assert_eq!((parsed.major(), parsed.minor()), (major, minor));
        }
        for text in ["", "abc", "1", "01.2", "1.99999999999999999999999"] {
            assert!(KubeVersion::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_hold_while_the_results_stay_the_same() {
        let mut capabilities = Capabilities::default();
        let reads = CapabilityReads {
            kube_version: None,
            api_versions: [("apps/v1".to_owned(), true), ("x/v1".to_owned(), false)].into(),
        };
        assert!(reads.hold(&capabilities));
        capabilities.api_versions = capabilities.api_versions.with(["x/v1"]);
        assert!(!reads.hold(&capabilities));
        assert!(reads.again(&capabilities).api_versions["x/v1"]);
    }
}
