//! A chart that is ready to be installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chart_source::PullError;
use helm_core::chart::{Chart as ChartFiles, LoadError, SchemaRoots};
use helm_core::engine::OpenError;
use helm_core::{CompiledChart, RenderError};

use crate::watches::Watch;

/// Error loading a chart.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BuildError {
    /// The chart cannot be fetched.
    #[error("cannot fetch the chart {chart}")]
    Fetch {
        /// The chart, as its entry names it.
        chart: String,
        #[source]
        source: Box<PullError>,
    },
    /// The chart cannot be read.
    #[error("cannot load the chart {}", path.display())]
    Load {
        /// Path of the chart, or its name if it was not read from a file.
        path: PathBuf,
        #[source]
        source: Box<LoadError>,
    },
    /// A template of the chart cannot be parsed.
    #[error("cannot parse the templates of {}", path.display())]
    Parse {
        /// Path of the chart, or its name if it was not read from a file.
        path: PathBuf,
        #[source]
        source: Box<RenderError>,
    },
}

/// A chart whose templates are parsed. Cheap to clone.
#[derive(Clone)]
pub struct Chart(Arc<CompiledChart>);

impl Chart {
    /// Loads a chart from a directory or an archive (`.tgz`). Its schemas may refer to files of `/helm-charts`, of the
    /// working directory and of the chart.
    ///
    /// # Errors
    /// If the chart cannot be read, or a template cannot be parsed.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = path.as_ref();
        Self::opened(path, CompiledChart::load(path))
    }

    /// Reads an archive that is in memory, for example one that `include_bytes!` has put into the
    /// program. Its schemas may refer to files of the chart only.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_archive(archive: &[u8]) -> Result<Self, BuildError> {
        Self::of_archive(Path::new("in the given archive"), archive)
    }

    /// Returns the chart with other directories that its schemas may refer to.
    pub(super) fn with_schema_roots(&self, roots: SchemaRoots) -> Self {
        Self(Arc::new(self.0.with_schema_roots(roots)))
    }

    /// Reads an archive that was fetched under the name `path`.
    pub(super) fn of_archive(path: &Path, archive: &[u8]) -> Result<Self, BuildError> {
        let chart = CompiledChart::from_archive(archive, &helm_core::chart::Limits::default());
        Self::opened(path, chart)
    }

    fn opened(path: &Path, chart: Result<CompiledChart, OpenError>) -> Result<Self, BuildError> {
        let path = path.to_owned();
        match chart {
            Ok(chart) => {
                for template in namespace_hooks(chart.chart()) {
                    tracing::warn!(
                        template,
                        "a Namespace is a hook: Helm would delete it with everything in it before each run; the operator keeps it, and takes it as created"
                    );
                }
                for dependency in chart.missing_dependencies() {
                    tracing::warn!(
                        chart = chart.chart().name(),
                        dependency,
                        "a dependency of Chart.yaml is not in charts/, and is not deployed; fetch it with helm dependency update"
                    );
                }
                Ok(Self(Arc::new(chart)))
            }
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

    /// Returns the chart as an entry uses it: without the check of its schemas if that is skipped.
    pub(super) fn used_by(&self, watch: &Watch) -> Arc<CompiledChart> {
        if watch.skip_schema {
            Arc::new(self.0.skip_schemas())
        } else {
            Arc::clone(&self.0)
        }
    }
}

/// Returns the templates with a Namespace that is a hook, as far as their texts show it.
fn namespace_hooks(chart: &ChartFiles) -> Vec<String> {
    let is_hook = |document: &str| {
        let mut lines = document.lines().map(str::trim);
        let is_namespace = |line: &str| {
            let kind = line.strip_prefix("kind:").map(str::trim);
            kind.is_some_and(|kind| kind.trim_matches(['"', '\'']) == "Namespace")
        };
        lines.any(is_namespace) && document.contains("helm.sh/hook")
    };
    let mut found = Vec::new();
    for file in chart.templates() {
        let text = String::from_utf8_lossy(file.data());
        if text.split("\n---").any(is_hook) {
            found.push(format!("{}/{}", chart.name(), file.name()));
        }
    }
    found.extend(chart.dependencies().iter().flat_map(namespace_hooks));
    found
}

#[cfg(test)]
mod tests {
    use helm_core::chart::File;

    use super::{ChartFiles, namespace_hooks};

    #[test]
    fn namespaces_that_are_hooks_are_found() {
        let hook = "  annotations: {\"helm.sh/hook\": pre-install}\n";
        let files = [
            (
                "Chart.yaml",
                "apiVersion: v2\nname: web\nversion: 1.0.0\n".to_owned(),
            ),
            (
                "templates/plain.yaml",
                "kind: Namespace\nmetadata:\n  name: a\n".to_owned(),
            ),
            (
                "templates/other.yaml",
                format!("kind: Job\nmetadata:\n{hook}---\nkind: Namespace\n"),
            ),
            (
                "templates/hook.yaml",
                format!("{{{{ if true }}}}\nkind: 'Namespace'\nmetadata:\n{hook}{{{{ end }}}}\n"),
            ),
        ];
        let files = files.map(|(name, text)| File::new(name, text));
        let chart = ChartFiles::from_files(files).unwrap();
        assert_eq!(namespace_hooks(&chart), ["web/templates/hook.yaml"]);
    }
}
