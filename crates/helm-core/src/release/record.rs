//! The release record: Helm's `release.Release` with the field names and order of its JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ReleaseName, Revision, Status, Time, is_empty, null_is_empty, time};
use crate::chart::{Lock, Metadata};
use crate::manifest::Hook;
use crate::values::Values;

/// The labels that Helm itself sets on a record's Secret.
pub const SYSTEM_LABELS: [&str; 6] = [
    "name",
    "owner",
    "status",
    "version",
    "createdAt",
    "modifiedAt",
];

/// Method by which the objects of a release were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyMethod {
    /// Server-side apply.
    #[serde(rename = "ssa")]
    ServerSide,
    /// Three-way merge by the client; also implied by records of Helm 3.
    #[serde(rename = "csa")]
    ClientSide,
}

/// One revision of a release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// The name of the release.
    pub name: ReleaseName,
    /// Status and times.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub info: Info,
    /// The chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<ReleaseChart>,
    /// The user's values, not coalesced with those of the chart.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Values::is_empty"
    )]
    pub config: Values,
    /// The manifest, without hooks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// The hooks.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub hooks: Vec<Hook>,
    /// The revision.
    #[serde(default, rename = "version", skip_serializing_if = "is_empty")]
    pub revision: Revision,
    /// The namespace of the release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Additional labels of the Secret; not part of the JSON.
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
    /// Method by which the objects were applied; missing in records of Helm 3.
    #[serde(
        default,
        deserialize_with = "apply_method",
        skip_serializing_if = "Option::is_none"
    )]
    pub apply_method: Option<ApplyMethod>,
    /// The texts of an operator's optional references, by reference and key. Helm neither reads nor
    /// preserves them.
    #[serde(
        default,
        rename = "valuesFrom",
        skip_serializing_if = "Option::is_none"
    )]
    pub values_from: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

fn apply_method<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ApplyMethod>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(match text.as_deref() {
        Some("ssa") => Some(ApplyMethod::ServerSide),
        Some("csa") => Some(ApplyMethod::ClientSide),
        _ => None,
    })
}

impl Release {
    /// Creates a record without content.
    pub fn new(name: ReleaseName, namespace: impl Into<String>, revision: Revision) -> Self {
        Self {
            name,
            info: Info::default(),
            chart: None,
            config: Values::new(),
            manifest: String::new(),
            hooks: Vec::new(),
            revision,
            namespace: namespace.into(),
            labels: BTreeMap::new(),
            apply_method: None,
            values_from: None,
        }
    }

    /// Sets status and description.
    pub fn set_status(&mut self, status: Status, description: impl Into<String>) {
        self.info.status = status;
        self.info.description = description.into();
    }

    /// Returns the name of the Secret that holds this record.
    pub fn secret_name(&self) -> String {
        super::name::secret_name(&self.name, self.revision)
    }

    /// Returns the labels of the Secret that holds this record, Helm's and the additional ones,
    /// except `createdAt` and `modifiedAt`, the time of writing in Unix seconds.
    pub fn secret_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert("name".to_owned(), self.name.to_string());
        labels.insert("owner".to_owned(), "helm".to_owned());
        labels.insert("status".to_owned(), self.info.status.to_string());
        labels.insert("version".to_owned(), self.revision.to_string());
        labels
    }
}

/// Status and times of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Time at which the first revision was deployed.
    #[serde(deserialize_with = "time::lenient", skip_serializing_if = "is_empty")]
    pub first_deployed: Option<Time>,
    /// Time at which this revision was deployed.
    #[serde(deserialize_with = "time::lenient", skip_serializing_if = "is_empty")]
    pub last_deployed: Option<Time>,
    /// Time at which the release was uninstalled.
    #[serde(deserialize_with = "time::lenient", skip_serializing_if = "is_empty")]
    pub deleted: Option<Time>,
    /// Human-readable description of the last action.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub description: String,
    /// The state.
    pub status: Status,
    /// The revision that this one rolled back to; 0 if none.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub rollback_revision: Revision,
    /// The rendered notes.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub notes: String,
}

/// A file of a chart in a record.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// The path within the chart.
    pub name: String,
    /// The content.
    #[serde(with = "super::codec::base64_bytes")]
    pub data: std::sync::Arc<[u8]>,
    /// The modification time.
    #[serde(
        default,
        rename = "modtime",
        deserialize_with = "time::lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub modified: Option<Time>,
}

impl fmt::Debug for StoredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.data.len())
    }
}

/// A chart in a record: without its subcharts, whose values are part of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReleaseChart {
    /// The content of `Chart.yaml`.
    pub metadata: Option<Metadata>,
    /// The content of `Chart.lock`.
    pub lock: Option<Lock>,
    /// The templates.
    pub templates: Option<Vec<StoredFile>>,
    /// The chart's values.
    pub values: Option<Values>,
    /// The content of `values.schema.json`.
    #[serde(with = "super::codec::base64_option")]
    pub schema: Option<std::sync::Arc<[u8]>>,
    /// The modification time of the schema.
    #[serde(
        rename = "schemamodtime",
        deserialize_with = "time::lenient",
        serialize_with = "super::codec::time_or_year_one"
    )]
    pub schema_modified: Option<Time>,
    /// All other files.
    pub files: Option<Vec<StoredFile>>,
    /// The modification time of `Chart.yaml`.
    #[serde(
        rename = "modtime",
        deserialize_with = "time::lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub modified: Option<Time>,
}

impl ReleaseChart {
    /// Returns name and version, if the record has them.
    pub fn name_and_version(&self) -> Option<(&str, &str)> {
        let metadata = self.metadata.as_ref()?;
        Some((&metadata.name, &metadata.version))
    }
}
