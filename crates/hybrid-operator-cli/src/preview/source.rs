//! Path of the watches file: given, or that of the project of the current directory.

use std::path::{Path, PathBuf};

use hybrid_operator::watches::{self, Watch};
use kube::core::GroupVersionKind;

use crate::project::{Project, ProjectError, WATCHES};

/// Flag that names the watches file.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct SourceArgs {
    /// Path of the watches file [default: watches.yaml of the project of the current directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) watches_file: Option<PathBuf>,
}

/// A watches file, and the project that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) watches_file: PathBuf,
    /// Directory of the project, or of the watches file.
    pub(crate) root: PathBuf,
    project: Option<Project>,
}

/// Error finding the watches file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error(
        "no {WATCHES}: {} is not in a project and has no such file; give --watches-file", directory.display()
    )]
    Missing {
        /// The current directory.
        directory: PathBuf,
    },
    /// The project cannot be opened.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

impl SourceArgs {
    /// Finds the watches file from `directory`.
    pub(crate) fn find(&self, directory: &Path) -> Result<Source, SourceError> {
        if let Some(file) = &self.watches_file {
            let parent = file.parent().filter(|path| !path.as_os_str().is_empty());
            return Ok(Source::new(file.clone(), parent.unwrap_or(Path::new("."))));
        }
        match Project::find(directory) {
            Ok(project) => Ok(Source {
                watches_file: shortest(&project.watches_file(), directory),
                root: project.root.clone(),
                project: Some(project),
            }),
            // Only what writes into a project needs its PROJECT file.
            Err(ProjectError::Version { path, .. }) => {
                let root = path.parent().unwrap_or(directory);
                let file = shortest(&root.join(WATCHES), directory);
                Ok(Source::new(file, root))
            }
            Err(ProjectError::NotAProject { .. }) => {
                let file = directory.join(WATCHES);
                if file.is_file() {
                    Ok(Source::new(file, directory))
                } else {
                    let directory = directory.to_owned();
                    Err(SourceError::Missing { directory })
                }
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns a path relative to `directory` if it is inside of it, so that messages are short.
fn shortest(path: &Path, directory: &Path) -> PathBuf {
    let whole = std::fs::canonicalize(directory).ok();
    let inside = whole.and_then(|directory| path.strip_prefix(directory).ok().map(Path::to_owned));
    inside.unwrap_or_else(|| path.to_owned())
}

impl Source {
    /// Uses a watches file, with the `PROJECT` beside it if there is one.
    pub(crate) fn new(watches_file: PathBuf, root: &Path) -> Self {
        Self {
            watches_file,
            root: root.to_owned(),
            project: Project::open(root).ok(),
        }
    }

    /// Reads the watches file.
    pub(crate) fn watches(&self) -> anyhow::Result<Vec<Watch>> {
        Ok(watches::load(&self.watches_file)?)
    }

    /// Returns the kinds of the project that have no chart.
    pub(crate) fn native_kinds(&self) -> impl Iterator<Item = GroupVersionKind> {
        let resources = self.project.iter().flat_map(|p| &p.file.resources);
        let native = resources.filter(|resource| resource.controller && resource.chart.is_none());
        native.map(|resource| {
            GroupVersionKind::gvk(&resource.full_group(), &resource.version, &resource.kind)
        })
    }

    /// Returns whether the custom resources of an entry are cluster-scoped, as far as the project
    /// tells.
    pub(crate) fn is_cluster_scoped(&self, watch: &Watch) -> bool {
        let resources = self.project.iter().flat_map(|p| &p.file.resources);
        let mut same = resources.filter(|resource| {
            resource.kind == watch.gvk.kind && resource.full_group() == watch.gvk.group
        });
        match same.find_map(|resource| resource.api.as_ref()) {
            Some(api) => !api.namespaced,
            None => watch.release_namespace.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_of_other_versions_have_a_watches_file_too() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(directory.path()).unwrap();
        let inside = root.join("helm-charts");
        std::fs::create_dir(&inside).unwrap();
        let find = |project: &str| {
            std::fs::write(root.join("PROJECT"), project).unwrap();
            let args = SourceArgs { watches_file: None };
            args.find(&inside)
        };
        for project in [
            "version: 3-alpha\nlayout: helm.sdk.operatorframework.io/v1\n",
            "version: \"2\"\nunknown: {}\n",
        ] {
            let source = find(project).unwrap();
            assert_eq!(source.watches_file, root.join(WATCHES));
            assert_eq!(source.root, root);
        }
        let error = find("version: \"3\"\nresources: wrong\n").unwrap_err();
        assert!(matches!(error, SourceError::Project(_)), "{error}");
    }
}
