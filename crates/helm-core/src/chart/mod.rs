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
pub mod ignore;
mod load;
mod metadata;
pub mod path_match;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

pub use archive::{ArchiveError, Limits};
pub use chart_yaml::ChartYamlError;
pub use load::LoadError;
pub use metadata::{Dependency, Lock, Maintainer, Metadata};

use crate::release::Time;
use crate::values::Values;
use crate::{Digest, DigestBuilder};

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
    metadata: Metadata,
    lock: Option<Lock>,
    values: Option<Arc<Values>>,
    schema: Option<File>,
    templates: Arc<[File]>,
    files: Arc<[File]>,
    dependencies: Vec<Chart>,
    modified: Option<Time>,
    digest: Digest,
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
        self.0.lock.as_ref()
    }

    /// The chart's own values; its dependencies' are theirs.
    pub fn values(&self) -> &Values {
        static EMPTY: LazyLock<Values> = LazyLock::new(Values::new);
        self.0.values.as_deref().unwrap_or(&EMPTY)
    }

    /// The file `values.schema.json`.
    pub fn schema(&self) -> Option<&File> {
        self.0.schema.as_ref()
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

    /// The digest of all files that make the chart, whether it came from a directory or an
    /// archive and whatever the times of its files.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }
}

impl fmt::Debug for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.metadata.name, self.0.metadata.version)
    }
}

/// The digest of a chart's own files and its dependencies' digests.
fn digest(files: &[File], dependencies: &[Chart]) -> Digest {
    let mut files: Vec<&File> = files.iter().collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let mut digest = DigestBuilder::new();
    for file in files {
        digest.add(file.name());
        digest.add(file.data());
    }
    let mut below: Vec<_> = dependencies
        .iter()
        .map(|chart| *chart.digest().as_bytes())
        .collect();
    below.sort_unstable();
    for dependency in below {
        digest.add(dependency);
    }
    digest.finish()
}
