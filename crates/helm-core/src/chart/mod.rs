//! Charts: loaded once from a directory or an archive, then immutable and shared.
//!
//! ```
//! use helm_core::chart::{Chart, File};
//! let chart = Chart::from_files([
//!     File::new("Chart.yaml", r#"{"apiVersion": "v2", "name": "web", "version": "0.1.0"}"#),
//!     File::new("templates/service.yaml", "kind: Service"),
//! ])?;
//! assert_eq!(chart.name(), "web");
//! assert_eq!(chart.templates().len(), 1);
//! # Ok::<(), helm_core::chart::LoadError>(())
//! ```

pub mod archive;
mod chart_yaml;
mod content_digest;
pub(crate) mod dependency;
pub mod ignore;
mod load;
mod metadata;
pub mod path_match;
pub(crate) mod schema;
pub mod version_range;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use go_template::{Tree, TreeMap, Type};

pub use archive::{ArchiveError, Limits};
pub use chart_yaml::ChartYamlError;
pub use load::LoadError;
pub use metadata::{Dependency, Lock, Maintainer, Metadata};

use content_digest::LazyDigest;
use schema::Schema;

use crate::Digest;
use crate::release::{ReleaseChart, StoredFile, Time};
use crate::values::{Values, tree};

/// A file of a chart. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    name: Arc<str>,
    data: Arc<[u8]>,
    modified: Option<Time>,
}

impl File {
    /// A file by its path within the chart, with `/` between the parts.
    pub fn new(name: impl Into<Arc<str>>, data: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.into(),
            data: data.as_ref().into(),
            modified: None,
        }
    }

    /// The same file, changed at `time`.
    #[must_use]
    pub fn modified_at(mut self, time: Option<Time>) -> Self {
        self.modified = time;
        self
    }

    /// The path within the chart.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The content.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The content, shared.
    pub fn shared_data(&self) -> Arc<[u8]> {
        Arc::clone(&self.data)
    }

    /// When the file was changed, where that is known.
    pub fn modified(&self) -> Option<Time> {
        self.modified
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.data.len())
    }
}

/// A file of `crds/`, of a chart or one of its dependencies. It is installed before everything
/// else, never rendered, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdFile {
    path: String,
    file: File,
}

impl CrdFile {
    /// The path with the names of the charts in front, as in `# Source:` lines.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file; it may hold several documents.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A chart with its dependencies, as loaded: nothing is switched off or renamed yet.
#[derive(Clone)]
pub struct Chart(Arc<Content>);

#[derive(Clone)]
struct Content {
    metadata: Arc<Metadata>,
    lock: Option<Arc<Lock>>,
    values: OwnValues,
    schema: Option<Arc<Schema>>,
    templates: Arc<[File]>,
    files: Arc<[File]>,
    dependencies: Vec<Chart>,
    modified: Option<Time>,
    /// Of the chart as it was loaded, whatever was switched or renamed since.
    digest: Arc<LazyDigest>,
}

/// A chart's own values in the forms in which they are read.
#[derive(Clone)]
struct OwnValues {
    raw: Arc<TreeMap>,
    /// Without the nulls in maps.
    clean: Arc<TreeMap>,
    /// Made when first asked for.
    json: OnceLock<Arc<Values>>,
    /// Whether there is a `values.yaml`.
    present: bool,
}

impl OwnValues {
    fn new(values: Option<Arc<TreeMap>>) -> Self {
        let present = values.is_some();
        let raw = values.unwrap_or_else(|| Arc::new(TreeMap::new(Type::MAP, [])));
        let clean = match tree::without_nulls(&Tree::Map(Arc::clone(&raw))) {
            Tree::Map(clean) => clean,
            _ => Arc::clone(&raw),
        };
        Self {
            raw,
            clean,
            json: OnceLock::new(),
            present,
        }
    }
}

impl Chart {
    /// Loads a chart from a directory, honouring its `.helmignore`, or from a `.tgz` archive,
    /// within the default [`Limits`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::load_within(path, &Limits::default())
    }

    /// Loads a chart within `limits`.
    pub fn load_within(path: impl AsRef<Path>, limits: &Limits) -> Result<Self, LoadError> {
        load::path(path.as_ref(), limits)
    }

    /// Loads a chart from the bytes of a `.tgz` archive.
    pub fn from_archive(archive: &[u8], limits: &Limits) -> Result<Self, LoadError> {
        load::archive(archive, limits, 0)
    }

    /// Makes a chart of its files; those of a directory or archive come here too.
    pub fn from_files(files: impl IntoIterator<Item = File>) -> Result<Self, LoadError> {
        load::files(files.into_iter().collect(), &Limits::default(), 0)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.metadata.name
    }

    /// What `Chart.yaml` says.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// What `Chart.lock` says.
    pub fn lock(&self) -> Option<&Lock> {
        self.0.lock.as_deref()
    }

    /// The chart's own values; its dependencies' are theirs.
    pub fn values(&self) -> &Values {
        self.0
            .values
            .json
            .get_or_init(|| Arc::new(tree::to_map(&self.0.values.raw)))
    }

    /// The chart's own values as they are, and without nulls.
    pub(crate) fn value_trees(&self) -> (&Arc<TreeMap>, &Arc<TreeMap>) {
        (&self.0.values.raw, &self.0.values.clean)
    }

    /// The file `values.schema.json`.
    pub fn schema(&self) -> Option<&File> {
        self.0.schema.as_deref().map(Schema::file)
    }

    /// The schema, to check values with.
    pub(crate) fn checker(&self) -> Option<&Schema> {
        self.0.schema.as_deref()
    }

    /// The files of `templates/`.
    pub fn templates(&self) -> &[File] {
        &self.0.templates
    }

    /// All files that have no other place, as `.Files` gives them to templates.
    pub fn files(&self) -> &[File] {
        &self.0.files
    }

    /// The charts in `charts/`.
    pub fn dependencies(&self) -> &[Self] {
        &self.0.dependencies
    }

    /// The files of `crds/`, also of the dependencies.
    pub fn crds(&self) -> Vec<CrdFile> {
        let mut crds = Vec::new();
        self.add_crds(self.name(), &mut crds);
        crds
    }

    fn add_crds(&self, path: &str, crds: &mut Vec<CrdFile>) {
        let is_manifest = |file: &&File| {
            file.name().starts_with("crds/")
                && file.name().rsplit_once('.').is_some_and(|(_, extension)| {
                    ["yaml", "yml", "json"]
                        .iter()
                        .any(|known| extension.eq_ignore_ascii_case(known))
                })
        };
        crds.extend(self.files().iter().filter(is_manifest).map(|file| CrdFile {
            path: format!("{path}/{}", file.name()),
            file: file.clone(),
        }));
        for dependency in self.dependencies() {
            dependency.add_crds(&format!("{path}/charts/{}", dependency.name()), crds);
        }
    }

    /// When `Chart.yaml` was changed, where that is known.
    pub fn modified(&self) -> Option<Time> {
        self.0.modified
    }

    /// The same chart with other dependencies.
    pub(crate) fn with_dependencies(&self, dependencies: Vec<Self>) -> Self {
        Self(Arc::new(Content {
            dependencies,
            ..(*self.0).clone()
        }))
    }

    /// The same chart with other metadata.
    pub(crate) fn with_metadata(&self, metadata: Metadata) -> Self {
        Self(Arc::new(Content {
            metadata: Arc::new(metadata),
            ..(*self.0).clone()
        }))
    }

    /// The same chart under another name; an empty one changes nothing.
    pub(crate) fn with_name(&self, name: &str) -> Self {
        if name.is_empty() {
            return self.clone();
        }
        self.with_metadata(Metadata {
            name: name.to_owned(),
            ..self.metadata().clone()
        })
    }

    /// The same chart with other values.
    pub(crate) fn with_values(&self, values: Arc<TreeMap>) -> Self {
        Self(Arc::new(Content {
            values: OwnValues::new(Some(values)),
            ..(*self.0).clone()
        }))
    }

    /// The chart as a release record holds it.
    pub fn to_record(&self) -> ReleaseChart {
        let stored = |files: &[File]| {
            let files = files.iter().map(|file| StoredFile {
                name: file.name().to_owned(),
                data: file.shared_data(),
                modified: file.modified(),
            });
            Some(files.collect::<Vec<_>>()).filter(|files| !files.is_empty())
        };
        ReleaseChart {
            metadata: Some(self.metadata().clone()),
            lock: self.lock().cloned(),
            templates: stored(self.templates()),
            values: self.0.values.present.then(|| self.values().clone()),
            schema: self.schema().map(File::shared_data),
            schema_modified: self.schema().and_then(File::modified),
            files: stored(self.files()),
            modified: self.modified(),
        }
    }

    /// The digest of all files that make the chart, whether it came from a directory or an
    /// archive and whatever the times of its files.
    pub fn digest(&self) -> Digest {
        self.0.digest.get()
    }
}

impl fmt::Debug for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.metadata.name, self.0.metadata.version)
    }
}
