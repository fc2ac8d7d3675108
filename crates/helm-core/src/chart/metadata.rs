//! `Metadata`: the content of `Chart.yaml`, with the JSON that Helm writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::release::{Time, null_is_empty};

/// What `Chart.yaml` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name of the chart.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// The URL of its home page.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub home: String,
    /// URLs of its sources.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub sources: Vec<String>,
    /// Its semantic version.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub version: String,
    /// One sentence about it.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub description: String,
    /// Key words.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub keywords: Vec<String>,
    /// Who maintains it.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub maintainers: Vec<Maintainer>,
    /// The URL of an icon.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub api_version: String,
    /// Unused by Helm.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub condition: String,
    /// Unused by Helm.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub tags: String,
    /// The version of what it installs.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub app_version: String,
    /// Whether it should no longer be used.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub deprecated: bool,
    /// Whatever else.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The versions of Kubernetes that it runs on.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub kube_version: String,
    /// The charts that it depends on.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub dependencies: Vec<Dependency>,
    /// `application` or `library`; empty means the former.
    #[serde(
        rename = "type",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub chart_type: String,
}

impl Metadata {
    /// Whether the chart is a library: it defines templates and installs nothing.
    pub fn is_library(&self) -> bool {
        self.chart_type.eq_ignore_ascii_case("library")
    }
}

/// Who maintains a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// A name.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// An e-mail address.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub email: String,
    /// A URL.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub url: String,
}

/// A chart that another depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Dependency {
    /// Its name.
    #[serde(deserialize_with = "null_is_empty")]
    pub name: String,
    /// The versions that will do.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub version: String,
    /// The repository that it comes from.
    #[serde(deserialize_with = "null_is_empty")]
    pub repository: String,
    /// Paths of values, comma-separated; the first that is a boolean switches it on or off.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub condition: String,
    /// Tags that switch it on or off.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tags: Vec<String>,
    /// Whether it is switched on; known once values are.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub enabled: bool,
    /// Which of its values the parent takes over: names below its `exports`, or pairs of paths.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_values: Vec<Value>,
    /// Another name for it.
    #[serde(
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub alias: String,
}

/// What `Chart.lock` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// When it was written.
    #[serde(
        deserialize_with = "crate::release::time::lenient",
        serialize_with = "crate::release::codec::time_or_year_one"
    )]
    pub generated: Option<Time>,
    /// The digest of the dependencies in `Chart.yaml`.
    #[serde(deserialize_with = "null_is_empty")]
    pub digest: String,
    /// The dependencies with exact versions; null when there are none.
    pub dependencies: Option<Vec<Dependency>>,
}
