//! A chart that is ready to be installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chart_source::PullError;
use helm_core::chart::LoadError;
use helm_core::{CompiledChart, RenderError};

/// Error loading a chart.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The chart cannot be fetched.
    #[error("cannot fetch the chart {chart}")]
    Fetch {
        /// The chart, as its entry names it.
        chart: String,
        /// The underlying error.
        #[source]
        source: Box<PullError>,
    },
    /// The chart cannot be read.
    #[error("cannot load the chart {}", path.display())]
    Load {
        /// Path of the chart, or its name if it was not read from a file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: Box<LoadError>,
    },
    /// A template of the chart cannot be parsed.
    #[error("cannot parse the templates of {}", path.display())]
    Parse {
        /// Path of the chart, or its name if it was not read from a file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: Box<RenderError>,
    },
}

/// A chart whose templates are parsed. Cheap to clone.
#[derive(Clone)]
pub struct Chart(Arc<CompiledChart>);

impl Chart {
    /// Loads a chart from a directory or an archive (`.tgz`).
    ///
    /// # Errors
    /// If the chart cannot be read, or a template cannot be parsed.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = path.as_ref();
        Self::compile(path, helm_core::Chart::load(path))
    }

    /// Reads an archive that is in memory, for example one that `include_bytes!` has put into the
    /// program.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_archive(archive: &[u8]) -> Result<Self, BuildError> {
        let limits = helm_core::chart::Limits::default();
        Self::compile(
            Path::new("in the given archive"),
            helm_core::Chart::from_archive(archive, &limits),
        )
    }

    fn compile(
        path: &Path,
        chart: Result<helm_core::Chart, LoadError>,
    ) -> Result<Self, BuildError> {
        let chart = chart.map_err(|source| BuildError::Load {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Self::of(path, &chart)
    }

    /// Compiles a chart that was read from `path`, or fetched under that name.
    pub(super) fn of(path: &Path, chart: &helm_core::Chart) -> Result<Self, BuildError> {
        let compiled = CompiledChart::compile(chart).map_err(|source| BuildError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        Ok(Self(Arc::new(compiled)))
    }

    /// Returns a chart without templates.
    pub(super) fn empty() -> Result<Self, BuildError> {
        let metadata = "apiVersion: v2\nname: empty\nversion: 0.0.0\n";
        let files = [helm_core::chart::File::new("Chart.yaml", metadata)];
        Self::compile(Path::new("empty"), helm_core::Chart::from_files(files))
    }

    /// Returns whether this is a clone of the same chart.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the name of the chart.
    pub fn name(&self) -> &str {
        self.0.chart().name()
    }

    pub(super) fn compiled(&self) -> &Arc<CompiledChart> {
        &self.0
    }
}
