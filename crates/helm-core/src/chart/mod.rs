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
pub use schema::{DocumentIndex, DocumentsError, Fetch, Fetched, IndexError, SchemaRoots};

use content_digest::LazyDigest;
use schema::Schema;

use crate::Digest;
use crate::release::{ReleaseChart, StoredFile, Time};
use crate::values::{self, Values, ValuesError, tree};

/// A file of a chart. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    name: Arc<str>,
    data: Arc<[u8]>,
    modified: Option<Time>,
    /// Target of a link that was followed out of the chart's directory.
    outside: Option<Arc<Path>>,
}

impl File {
    /// Creates a file from its path within the chart, with `/` as the separator.
    pub fn new(name: impl Into<Arc<str>>, data: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.into(),
            data: data.as_ref().into(),
            modified: None,
            outside: None,
        }
    }

    /// Returns the file as one that a link led to, out of the chart's directory.
    pub(crate) fn found_at(mut self, outside: Option<&Path>) -> Self {
        self.outside = outside.map(Arc::from);
        self
    }

    /// Returns where the file is, if a link led to it out of the chart's directory.
    pub(crate) fn outside(&self) -> Option<&Path> {
        self.outside.as_deref()
    }

    /// Returns the file with its modification time set to `time`.
    #[must_use]
    pub fn modified_at(mut self, time: Option<Time>) -> Self {
        self.modified = time;
        self
    }

    /// Returns the path within the chart.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns the content.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Returns the shared content.
    pub fn shared_data(&self) -> Arc<[u8]> {
        Arc::clone(&self.data)
    }

    /// Returns the modification time, if known.
    pub fn modified(&self) -> Option<Time> {
        self.modified
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.data.len())
    }
}

/// A file in the `crds/` directory of a chart or one of its dependencies. It is installed before
/// everything else and is never rendered, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdFile {
    path: String,
    file: File,
}

impl CrdFile {
    /// Returns the path prefixed with the names of the charts, as in `# Source:` lines.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the file, which may contain several documents.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A chart with its dependencies, as loaded: none of them disabled or renamed.
#[derive(Clone)]
pub struct Chart(Arc<ChartInner>);

#[derive(Clone)]
struct ChartInner {
    metadata: Arc<Metadata>,
    lock: Option<Arc<Lock>>,
    values: OwnValues,
    values_file: Option<File>,
    schema: Option<Arc<Schema>>,
    templates: Arc<[File]>,
    files: Arc<[File]>,
    dependencies: Vec<Chart>,
    modified: Option<Time>,
    /// Names that several files have.
    repeated: Arc<[Arc<str>]>,
    /// File or directory of the chart in `charts/` of the chart above.
    entry: Arc<str>,
    /// Digest of the chart as it was loaded, before dependencies were disabled or renamed.
    digest: Arc<LazyDigest>,
    /// The directories that its schemas may refer to. Those of a dependency are not used.
    schema_roots: SchemaRoots,
    /// Whether values are accepted that its schemas reject. That of a dependency is not used.
    skips_schemas: bool,
}

/// A chart's own values in the forms in which they are used, each made on first use.
#[derive(Clone, Default)]
struct OwnValues {
    /// `values.yaml`, unless the values come from elsewhere.
    file: Option<File>,
    trees: OnceLock<ValueTrees>,
    json: OnceLock<Arc<Values>>,
    /// Whether there are values, even if they are empty.
    present: bool,
}

#[derive(Clone)]
struct ValueTrees {
    raw: Arc<TreeMap>,
    /// Without the nulls in maps.
    clean: Arc<TreeMap>,
}

impl OwnValues {
    fn of_file(file: Option<File>) -> Self {
        Self {
            present: file.is_some(),
            file,
            ..Self::default()
        }
    }

    fn new(values: Arc<TreeMap>) -> Self {
        Self {
            trees: OnceLock::from(ValueTrees::new(values)),
            present: true,
            ..Self::default()
        }
    }

    /// Reads the file, unless that was done before. Every load does so, and reports the error.
    fn read(&self) -> Result<&ValueTrees, ValuesError> {
        if let Some(known) = self.trees.get() {
            return Ok(known);
        }
        let values = match &self.file {
            Some(file) => values::read_tree(file.name(), file.data())?,
            None => TreeMap::new(Type::MAP, []),
        };
        let trees = ValueTrees::new(Arc::new(values));
        Ok(self.trees.get_or_init(|| trees))
    }

    fn trees(&self) -> &ValueTrees {
        let empty = || ValueTrees::new(Arc::new(TreeMap::new(Type::MAP, [])));
        // There are no charts whose values cannot be read.
        self.read()
            .unwrap_or_else(|_| self.trees.get_or_init(empty))
    }
}

impl ValueTrees {
    fn new(raw: Arc<TreeMap>) -> Self {
        let clean = match tree::without_nulls(&Tree::Map(Arc::clone(&raw))) {
            Tree::Map(clean) => clean,
            _ => Arc::clone(&raw),
        };
        Self { raw, clean }
    }
}

impl Chart {
    /// Loads a chart from a directory, honouring its `.helmignore`, or from a `.tgz` archive, with
    /// the default [`Limits`]. Its schemas may refer to files of [`SchemaRoots::of_process`].
    ///
    /// # Errors
    /// If a file cannot be read, is malformed, or exceeds a limit.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::load_within(path, &Limits::default())
    }

    /// Loads a chart with the given `limits`.
    ///
    /// # Errors
    /// Like [`Chart::load`].
    pub fn load_within(path: impl AsRef<Path>, limits: &Limits) -> Result<Self, LoadError> {
        load::path(path.as_ref(), limits)?.with_values_read()
    }

    /// Loads a chart from the bytes of a `.tgz` archive. Its schemas may refer to its own files only, unless
    /// [`Chart::with_schema_roots`] says otherwise.
    ///
    /// # Errors
    /// If the text is not an archive, or the files are not those of a chart.
    pub fn from_archive(archive: &[u8], limits: &Limits) -> Result<Self, LoadError> {
        Self::outline(archive, limits)?.with_values_read()
    }

    /// Loads a chart like [`Chart::from_archive`], except for its values.
    pub(crate) fn outline(archive: &[u8], limits: &Limits) -> Result<Self, LoadError> {
        load::archive(archive, &archive::Room::new(limits), 0)
    }

    /// Loads a chart like [`Chart::load`], except for its values.
    pub(crate) fn outline_of(path: &Path) -> Result<Self, LoadError> {
        load::path(path, &Limits::default())
    }

    /// Reads the chart's values, without those of its dependencies.
    pub(crate) fn read_own_values(&self) -> Result<(), LoadError> {
        self.0.values.read().map_err(LoadError::Values)?;
        Ok(())
    }

    /// Reads the chart's values, and those of its dependencies.
    pub(crate) fn with_values_read(self) -> Result<Self, LoadError> {
        load::read_values(&self)?;
        Ok(self)
    }

    /// Builds a chart from its files. Directories and archives are loaded through this function
    /// too. Its schemas may refer to these files only, unless [`Chart::with_schema_roots`] says otherwise.
    ///
    /// # Errors
    /// If the files are not those of a chart.
    pub fn from_files(files: impl IntoIterator<Item = File>) -> Result<Self, LoadError> {
        let limits = Limits::default();
        let room = archive::Room::new(&limits);
        load::files(files.into_iter().collect(), &room, 0)?.with_values_read()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.metadata.name
    }

    /// Returns the content of `Chart.yaml`.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Returns the content of `Chart.lock`.
    pub fn lock(&self) -> Option<&Lock> {
        self.0.lock.as_deref()
    }

    /// Returns the chart's own values, without those of its dependencies.
    pub fn values(&self) -> &Values {
        self.0
            .values
            .json
            .get_or_init(|| Arc::new(tree::to_map(&self.0.values.trees().raw)))
    }

    /// Returns the file `values.yaml`, as the chart's author wrote it.
    pub fn values_file(&self) -> Option<&File> {
        self.0.values_file.as_ref()
    }

    /// Returns the chart's own values with nulls and without them.
    pub(crate) fn value_trees(&self) -> (&Arc<TreeMap>, &Arc<TreeMap>) {
        let trees = self.0.values.trees();
        (&trees.raw, &trees.clean)
    }

    /// Returns the file `values.schema.json`.
    pub fn schema(&self) -> Option<&File> {
        self.0.schema.as_deref().map(Schema::file)
    }

    /// Returns the chart with other directories that its schemas may refer to, besides its own.
    ///
    /// Files are read when values are checked for the first time, and not again: what changes in them later does not
    /// count until the chart is loaded again.
    #[must_use]
    pub fn with_schema_roots(&self, roots: SchemaRoots) -> Self {
        self.with(|chart| chart.schema_roots = chart.schema_roots.replaced_by(roots))
    }

    /// Returns the chart without the check of values against its schemas and those of its dependencies, as with
    /// `--skip-schema-validation`.
    #[must_use]
    pub fn skip_schemas(&self) -> Self {
        self.with(|chart| chart.skips_schemas = true)
    }

    /// Returns whether values are not checked against its schemas.
    pub fn skips_schemas(&self) -> bool {
        self.0.skips_schemas
    }

    /// Fetches the documents of the web that its schemas, and those of its dependencies, refer to and that the charts
    /// do not keep, and those that these refer to. There are at most 256, with 16 MiB together.
    ///
    /// Other mistakes of the schemas are no errors here: they are found when values are checked.
    ///
    /// # Errors
    /// If `fetch` fails, or a document is not a part of a schema.
    pub fn fetch_documents(&self, fetch: &mut Fetch<'_>) -> Result<Fetched, DocumentsError> {
        let mut fetched = Fetched::new();
        schema::fetch_below(&[self], &mut fetched, fetch)?;
        Ok(fetched)
    }

    pub(crate) fn schema_roots(&self) -> &SchemaRoots {
        &self.0.schema_roots
    }

    /// Returns the schema that validates values.
    pub(crate) fn checker(&self) -> Option<&Schema> {
        self.0.schema.as_deref()
    }

    /// Returns the files of `templates/`.
    pub fn templates(&self) -> &[File] {
        &self.0.templates
    }

    /// Returns all other files, which templates see as `.Files`.
    pub fn files(&self) -> &[File] {
        &self.0.files
    }

    /// Returns the charts in `charts/`.
    pub fn dependencies(&self) -> &[Self] {
        &self.0.dependencies
    }

    /// Returns the files of `crds/`, including those of the dependencies.
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

    /// Returns the modification time of `Chart.yaml`, if known.
    pub fn modified(&self) -> Option<Time> {
        self.0.modified
    }

    /// Returns the names that several files of the chart have, which is possible in an archive. The
    /// last of these files counts, as in Helm.
    pub fn repeated_files(&self) -> &[Arc<str>] {
        &self.0.repeated
    }

    /// Returns a copy of the chart after a change.
    fn with(&self, change: impl FnOnce(&mut ChartInner)) -> Self {
        let mut changed = (*self.0).clone();
        change(&mut changed);
        Self(Arc::new(changed))
    }

    /// Returns the chart with other dependencies.
    pub(crate) fn with_dependencies(&self, dependencies: Vec<Self>) -> Self {
        self.with(|chart| chart.dependencies = dependencies)
    }

    /// Returns the chart with other metadata.
    pub(crate) fn with_metadata(&self, metadata: Metadata) -> Self {
        self.with(|chart| chart.metadata = Arc::new(metadata))
    }

    /// Returns the chart under another name; an empty name changes nothing.
    pub(crate) fn with_name(&self, name: &str) -> Self {
        if name.is_empty() {
            return self.clone();
        }
        self.with_metadata(Metadata {
            name: name.to_owned(),
            ..self.metadata().clone()
        })
    }

    /// Returns the chart with other values.
    pub(crate) fn with_values(&self, values: Arc<TreeMap>) -> Self {
        self.with(|chart| chart.values = OwnValues::new(values))
    }

    /// Returns the chart as a release record stores it.
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

    /// Returns the digest of all files of the chart. It does not depend on whether the chart came
    /// from a directory or an archive, nor on the times of its files.
    pub fn digest(&self) -> Digest {
        self.0.digest.get()
    }
}

impl fmt::Debug for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.metadata.name, self.0.metadata.version)
    }
}
