//! `Metadata`: the content of `Chart.yaml`, serialized to the JSON that Helm writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::release::{Time, is_empty, null_is_empty};

/// The content of `Chart.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name of the chart.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub name: String,
    /// URL of its home page.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub home: String,
    /// URLs of its sources.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub sources: Vec<String>,
    /// Semantic version of the chart.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub version: String,
    /// A one-sentence description.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub description: String,
    /// Keywords.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub keywords: Vec<String>,
    /// Maintainers.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub maintainers: Vec<Maintainer>,
    /// URL of an icon.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub api_version: String,
    /// Unused by Helm.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub condition: String,
    /// Unused by Helm.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub tags: String,
    /// The version of the application that it installs.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub app_version: String,
    /// Whether it is deprecated.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub deprecated: bool,
    /// Free-form annotations.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The Kubernetes versions that it supports, as a constraint.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub kube_version: String,
    /// The charts that it depends on.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub dependencies: Vec<Dependency>,
    /// Whether `Chart.yaml` has a list of dependencies, be it an empty one. Without one, Helm takes the
    /// charts in `charts/` as they are.
    #[serde(skip)]
    pub(crate) declares_dependencies: bool,
    /// `application` or `library`; empty means `application`.
    #[serde(
        rename = "type",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub chart_type: String,
}

impl Metadata {
    /// Returns whether this is a library chart, which defines templates and installs nothing.
    pub fn is_library(&self) -> bool {
        self.chart_type.eq_ignore_ascii_case("library")
    }
}

/// A maintainer of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// The name.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub name: String,
    /// The e-mail address.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub email: String,
    /// A URL.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub url: String,
}

/// A dependency of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Dependency {
    /// The name of the chart.
    #[serde(deserialize_with = "null_is_empty")]
    pub name: String,
    /// The acceptable versions, as a constraint.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub version: String,
    /// The repository of the chart.
    #[serde(deserialize_with = "null_is_empty")]
    pub repository: String,
    /// Comma-separated paths of values; the first one that is a boolean enables or disables it.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub condition: String,
    /// Tags that enable or disable it.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub tags: Vec<String>,
    /// Whether it is enabled, once the values are known.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub enabled: bool,
    /// The values that the parent imports: names below its `exports`, or pairs of paths.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub import_values: Vec<Value>,
    /// An alternative name.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub alias: String,
}

/// The content of `Chart.lock`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// Time at which the file was written.
    #[serde(
        deserialize_with = "crate::release::time::lenient",
        serialize_with = "crate::release::codec::time_or_year_one"
    )]
    pub generated: Option<Time>,
    /// The digest of the dependencies in `Chart.yaml`.
    #[serde(deserialize_with = "null_is_empty")]
    pub digest: String,
    /// The dependencies with exact versions; null if there are none.
    pub dependencies: Option<Vec<Dependency>>,
}
