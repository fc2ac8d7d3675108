//! The `PROJECT` file: kubebuilder's project configuration, version 3
//! (`pkg/config/v3` of kubernetes-sigs/kubebuilder). Fields of other tools are kept.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the format.
pub(super) const VERSION: &str = "3";

/// Content of a `PROJECT` file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProjectFile {
    /// Suffix of the API groups, such as `example.com`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) domain: String,
    /// Plugins that wrote the project, such as `helm.sdk.operatorframework.io/v1`.
    #[serde(default, deserialize_with = "one_or_more")]
    pub(crate) layout: Vec<String>,
    /// Name of the project: a DNS label.
    #[serde(default)]
    pub(crate) project_name: String,
    /// Kinds of custom resources, in the order in which they were created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<Resource>,
    /// Version of the format: `3`.
    pub(crate) version: String,
    /// Other fields, such as `plugins`, `multigroup` and `repo`.
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

/// A kind of custom resource.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    /// CRD; absent if the project does not define the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api: Option<Api>,
    /// Directory of the chart that is run for it, relative to the project. Only in projects of this
    /// command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chart: Option<String>,
    /// Where the chart was copied from, unless that was on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chart_source: Option<ChartOrigin>,
    /// Whether a controller written in code reconciles it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) controller: bool,
    /// Suffix of its API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    /// API group without the domain; may be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    pub(crate) kind: String,
    /// File of its type, or Go package; absent for charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Plural name, if it is not the regular one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plural: Option<String>,
    pub(crate) version: String,
    /// Webhooks that the project serves for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) webhooks: Option<Value>,
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

/// The chart that a directory of the project is a copy of, with the fields of `watches.lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChartOrigin {
    /// The chart, its repository, and the version or range of versions that was asked for.
    pub(crate) reference: String,
    pub(crate) version: String,
    /// Location of the archive.
    pub(crate) url: String,
    /// Digest of the archive.
    pub(crate) digest: String,
}

/// The CRD of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Api {
    /// API version of the CRD: `v1`.
    #[serde(default = "v1")]
    pub(crate) crd_version: String,
    /// Whether custom resources are in a namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) namespaced: bool,
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

fn v1() -> String {
    "v1".to_owned()
}

/// Reads a list, or a string of values separated by commas, as kubebuilder does.
fn one_or_more<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(input)? {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(text.split(',').map(ToOwned::to_owned).collect()),
        list @ Value::Array(_) => serde_json::from_value(list).map_err(D::Error::custom),
        other => Err(D::Error::custom(format!(
            "layout is {other}; it must be a string or a list of strings"
        ))),
    }
}

impl ProjectFile {
    /// Returns the text of the file.
    pub(crate) fn to_yaml(&self) -> Result<String, go_yaml::Error> {
        go_yaml::to_string(self)
    }
}

impl Resource {
    /// Returns the API group, such as `cache.example.com`.
    pub(crate) fn full_group(&self) -> String {
        let parts = [self.group.as_deref(), self.domain.as_deref()];
        let present: Vec<&str> = parts
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect();
        present.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_operator_sdk_keeps_the_fields_of_its_plugins() {
        let text = "\
domain: example.com
layout:
- helm.sdk.operatorframework.io/v1
plugins:
  manifests.sdk.operatorframework.io/v2: {}
  scorecard.sdk.operatorframework.io/v2: {}
projectName: nginx-operator
resources:
- api:
    crdVersion: v1
    namespaced: true
  domain: example.com
  group: demo
  kind: Nginx
  version: v1alpha1
version: \"3\"
";
        let file: ProjectFile = go_yaml::from_str(text).unwrap();
        assert_eq!(file.resources[0].full_group(), "demo.example.com");
        assert_eq!(file.to_yaml().unwrap(), text);
    }

    #[test]
    fn a_layout_may_be_one_string() {
        let file: ProjectFile =
            go_yaml::from_str("layout: go.kubebuilder.io/v2,helm\nversion: \"3\"\n").unwrap();
        assert_eq!(file.layout, ["go.kubebuilder.io/v2", "helm"]);
    }

    #[test]
    fn a_resource_without_group_or_domain_has_the_other_as_its_group() {
        let of = |group: Option<&str>, domain: Option<&str>| {
            let resource = Resource {
                group: group.map(ToOwned::to_owned),
                domain: domain.map(ToOwned::to_owned),
                ..Resource::default()
            };
            resource.full_group()
        };
        assert_eq!(of(Some("cache"), Some("example.com")), "cache.example.com");
        assert_eq!(of(Some("cache"), None), "cache");
        assert_eq!(of(None, Some("example.com")), "example.com");
    }
}
