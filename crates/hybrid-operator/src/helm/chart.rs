//! A chart that is ready to be installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chart_source::PullError;
use helm_core::chart::LoadError;
use helm_core::engine::OpenError;
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
        Self::opened(path, CompiledChart::load(path))
    }

    /// Reads an archive that is in memory, for example one that `include_bytes!` has put into the
    /// program.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_archive(archive: &[u8]) -> Result<Self, BuildError> {
        Self::of_archive(Path::new("in the given archive"), archive)
    }

    /// Reads an archive that was fetched under the name `path`.
    pub(super) fn of_archive(path: &Path, archive: &[u8]) -> Result<Self, BuildError> {
        let chart = CompiledChart::from_archive(archive, &helm_core::chart::Limits::default());
        Self::opened(path, chart)
    }

    /// Returns a chart without templates.
    pub(super) fn empty() -> Result<Self, BuildError> {
        let metadata = "apiVersion: v2\nname: empty\nversion: 0.0.0\n";
        let files = [helm_core::chart::File::new("Chart.yaml", metadata)];
        let chart = helm_core::Chart::from_files(files).map_err(OpenError::from);
        let compiled = chart.and_then(|chart| Ok(CompiledChart::compile(&chart)?));
        Self::opened(Path::new("empty"), compiled)
    }

    fn opened(path: &Path, chart: Result<CompiledChart, OpenError>) -> Result<Self, BuildError> {
        let path = path.to_owned();
        match chart {
            Ok(chart) => Ok(Self(Arc::new(chart))),
            Err(OpenError::Load(source)) => Err(BuildError::Load {
                path,
                source: Box::new(source),
            }),
            Err(OpenError::Compile(source)) => Err(BuildError::Parse {
                path,
                source: Box::new(source),
            }),
        }
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
