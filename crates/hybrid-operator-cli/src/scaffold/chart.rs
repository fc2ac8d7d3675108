//! The chart of a new kind: a directory, a `.tgz`, or a new chart as `helm create` makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chart_source::Digest;
use helm_core::chart::archive;
use helm_core::chart::ignore::Rules;
use helm_core::chart::{Chart, DocumentIndex, File, Limits, LoadError, SchemaRoots};

use super::{CHARTS, names};
use crate::project::ChartOrigin;

/// Error with a chart that the user gave.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChartError {
    #[error(
        "the chart {} is not a directory or .tgz on this machine; for a chart of a repository, give its URL with --helm-chart-repo, and for one of a registry oci://HOST/PATH", .0.display()
    )]
    NotLocal(PathBuf),
    #[error("cannot load the chart {}", path.display())]
    Load {
        /// Directory or archive.
        path: PathBuf,
        #[source]
        source: Box<LoadError>,
    },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the chart {name} has version {present}, not {wanted}; leave out --helm-chart-version, or give another chart"
    )]
    Version {
        name: String,
        /// Version of the chart.
        present: String,
        /// The version that was asked for.
        wanted: String,
    },
    #[error(
        "the chart {name} is a library: it deploys nothing itself; use a chart of type application that depends on it"
    )]
    Library { name: String },
    #[error("the chart's name {name:?} cannot be the name of a directory; change it in Chart.yaml")]
    Name { name: String },
    #[error(
        "the chart {name} depends on charts that are not in its charts/ directory: {missing}; run 'helm dependency update {}' first",
        path.display()
    )]
    Dependencies {
        name: String,
        /// Names of those charts.
        missing: String,
        /// Directory of the chart.
        path: PathBuf,
    },
}

/// A chart and its files.
#[derive(Debug)]
pub(crate) struct ChartSource {
    pub(crate) chart: Chart,
    files: Vec<File>,
    /// Whether it is the user's own from now on, and not a copy of a chart.
    is_new: bool,
    /// Where it was fetched.
    pub(crate) origin: Option<ChartOrigin>,
}

impl ChartSource {
    /// Loads a chart from a directory or a `.tgz`.
    pub(crate) fn load(path: &Path, version: Option<&str>) -> Result<Self, ChartError> {
        if !path.exists() {
            return Err(ChartError::NotLocal(path.to_owned()));
        }
        let loaded = Self::read(path)?;
        loaded.check(path, version)?;
        Ok(loaded)
    }

    /// Reads an archive that was fetched or verified; `shown` names it in messages.
    pub(crate) fn from_archive(
        shown: &str,
        data: &[u8],
        version: Option<&str>,
    ) -> Result<Self, ChartError> {
        let path = Path::new(shown);
        let load = |source: LoadError| ChartError::Load {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let limits = Limits::default();
        let chart = Chart::from_archive(data, &limits).map_err(load)?;
        let files = archive::read(data, &limits).map_err(|error| load(error.into()))?;
        let loaded = Self {
            chart,
            files,
            is_new: false,
            origin: None,
        };
        loaded.check(path, version)?;
        Ok(loaded)
    }

    /// Reads an archive that `reference` was resolved to, and keeps where it comes from.
    pub(crate) fn fetched(
        reference: String,
        url: String,
        digest: &Digest,
        archive: &[u8],
    ) -> Result<Self, ChartError> {
        let mut source = Self::from_archive(&url, archive, None)?;
        source.origin = Some(ChartOrigin {
            reference,
            version: source.chart.metadata().version.clone(),
            url,
            digest: digest.to_string(),
        });
        Ok(source)
    }

    /// Reads a chart as it is, which may be a library or lack charts that it depends on.
    pub(crate) fn read(path: &Path) -> Result<Self, ChartError> {
        let load = |source: LoadError| ChartError::Load {
            path: path.to_owned(),
            source: Box::new(source),
        };
        // Reports everything that is wrong with it, with the limits of archives.
        let chart = Chart::load(path).map_err(load)?;
        let files = if path.is_dir() {
            directory(path)?
        } else {
            let data = fs::read(path).map_err(|source| ChartError::Read {
                path: path.to_owned(),
                source,
            })?;
            archive::read(&data, &Limits::default()).map_err(|error| load(error.into()))?
        };
        Ok(Self {
            chart,
            files,
            is_new: false,
            origin: None,
        })
    }

    fn check(&self, path: &Path, version: Option<&str>) -> Result<(), ChartError> {
        let metadata = self.chart.metadata();
        let name = metadata.name.clone();
        if metadata.is_library() {
            return Err(ChartError::Library { name });
        }
        let directory = Path::new(&name);
        if directory.file_name() != Some(directory.as_os_str()) {
            return Err(ChartError::Name { name });
        }
        if let Some(wanted) = version
            && wanted.trim_start_matches('v') != metadata.version.trim_start_matches('v')
        {
            return Err(ChartError::Version {
                name,
                present: metadata.version.clone(),
                wanted: wanted.to_owned(),
            });
        }
        let present = self.chart.dependencies();
        let missing: Vec<&str> = metadata
            .dependencies
            .iter()
            .map(|dependency| dependency.name.as_str())
            .filter(|name| !present.iter().any(|chart| chart.name() == *name))
            .collect();
        if !missing.is_empty() {
            return Err(ChartError::Dependencies {
                name,
                missing: missing.join(", "),
                path: path.to_owned(),
            });
        }
        Ok(())
    }

    /// Adds files, and replaces those of the same names.
    pub(crate) fn add_files(&mut self, files: Vec<File>) -> Result<(), ChartError> {
        let is_new = |file: &File| files.iter().any(|new| new.name() == file.name());
        self.files.retain(|file| !is_new(file));
        self.files.extend(files);
        self.load_again()
    }

    /// Adds, replaces and removes files.
    pub(crate) fn change_files(
        &mut self,
        changes: &BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<(), ChartError> {
        self.files.retain(|file| !changes.contains_key(file.name()));
        let new = changes.iter();
        let new = new.filter_map(|(name, data)| Some(File::new(name.as_str(), data.clone()?)));
        self.add_files(new.collect())
    }

    /// Removes the documents of the web that its schemas refer to.
    pub(crate) fn remove_documents(&mut self) -> Result<(), ChartError> {
        self.files.retain(|file| !DocumentIndex::has(file));
        self.load_again()
    }

    fn load_again(&mut self) -> Result<(), ChartError> {
        let chart = Chart::from_files(self.files.clone()).map_err(|source| ChartError::Load {
            path: self.chart.name().into(),
            source: Box::new(source),
        })?;
        self.chart = chart.with_schema_roots(SchemaRoots::of_process());
        Ok(())
    }

    /// Makes a new chart for a kind, with the files and the objects of `helm create`.
    pub(crate) fn new(kind: &str) -> Result<Self, ChartError> {
        let name = kind.to_ascii_lowercase();
        let files: Vec<File> = NEW_CHART
            .iter()
            // The text is itself a template, so only the name is filled in.
            .map(|(path, text)| File::new(*path, text.replace("<CHARTNAME>", &name)))
            .collect();
        let chart = Chart::from_files(files.clone()).map_err(|source| ChartError::Load {
            path: name.into(),
            source: Box::new(source),
        })?;
        Ok(Self {
            chart,
            files,
            is_new: true,
            origin: None,
        })
    }

    /// Returns the kind that operator-sdk would give to the chart.
    pub(crate) fn kind(&self) -> String {
        names::kind_of_chart(self.chart.name())
    }

    /// Returns the chart's directory in the project.
    pub(crate) fn directory(&self) -> String {
        format!("{CHARTS}/{}", self.chart.name())
    }

    /// Returns the files with their paths in the chart.
    pub(crate) fn own_files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|file| (file.name(), file.data()))
    }

    /// Returns the files that the chart's directory of a project has, and this chart has not: templates and
    /// dependencies of another version, which would be rendered too.
    pub(super) fn outdated(&self, root: &Path) -> Result<Vec<PathBuf>, ChartError> {
        let in_project = PathBuf::from(self.directory());
        let path = root.join(&in_project);
        if self.is_new || !path.is_dir() {
            return Ok(Vec::new());
        }
        let own: BTreeSet<&str> = self.files.iter().map(File::name).collect();
        let present = directory(&path)?;
        let outdated = present.iter().filter(|file| !own.contains(file.name()));
        Ok(outdated.map(|file| in_project.join(file.name())).collect())
    }

    /// Returns the files with their paths in the project.
    pub(super) fn files(&self) -> impl Iterator<Item = (PathBuf, &[u8])> {
        let directory = self.directory();
        self.files
            .iter()
            .map(move |file| (Path::new(&directory).join(file.name()), file.data()))
    }
}

/// Embeds the files of a new chart.
macro_rules! new_chart {
    ($($path:literal: $file:literal,)*) => {
        const NEW_CHART: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../../templates/chart/", $file))),)*];
    };
}

new_chart! {
    ".helmignore": "helmignore",
    "Chart.yaml": "Chart.yaml",
    "values.yaml": "values.yaml",
    "templates/NOTES.txt": "templates/NOTES.txt",
    "templates/_helpers.tpl": "templates/_helpers.tpl",
    "templates/deployment.yaml": "templates/deployment.yaml",
    "templates/hpa.yaml": "templates/hpa.yaml",
    "templates/httproute.yaml": "templates/httproute.yaml",
    "templates/ingress.yaml": "templates/ingress.yaml",
    "templates/service.yaml": "templates/service.yaml",
    "templates/serviceaccount.yaml": "templates/serviceaccount.yaml",
    "templates/tests/test-connection.yaml": "templates/tests/test-connection.yaml",
}

/// Returns the files of a chart's directory, without those that its `.helmignore` excludes. The chart
/// has been loaded from it, so its size is within the limits.
fn directory(root: &Path) -> Result<Vec<File>, ChartError> {
    let rules = fs::read(root.join(".helmignore")).ok();
    let rules = rules.and_then(|text| Rules::parse(&String::from_utf8_lossy(&text)).ok());
    let rules = rules.unwrap_or_default().with_defaults();
    let mut files = Vec::new();
    let mut left = vec![(root.to_owned(), String::new())];
    while let Some((folder, name)) = left.pop() {
        let read = |source| ChartError::Read {
            path: folder.clone(),
            source,
        };
        let entries: io::Result<Vec<_>> = fs::read_dir(&folder).and_then(Iterator::collect);
        for entry in entries.map_err(read)? {
            let (path, file) = (entry.path(), entry.file_name());
            let name = match name.as_str() {
                "" => file.to_string_lossy().into_owned(),
                name => format!("{name}/{}", file.to_string_lossy()),
            };
            let is_directory = path.is_dir();
            if name == ".git" || (rules.ignores(&name, is_directory) && name != ".helmignore") {
                continue;
            }
            if is_directory {
                left.push((path, name));
                continue;
            }
            let data = fs::read(&path).map_err(|source| ChartError::Read { path, source })?;
            files.push(File::new(name, data));
        }
    }
    Ok(files)
}
