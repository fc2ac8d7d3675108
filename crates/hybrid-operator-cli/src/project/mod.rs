//! The project of an operator: the directory with its `PROJECT` file, charts and watches file.

mod file;
mod plural;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub(crate) use file::{Api, ChartOrigin, ProjectFile, Resource};
pub(crate) use plural::plural;

/// Name of the file that marks the directory of a project.
pub(crate) const PROJECT: &str = "PROJECT";
/// Name of the watches file.
pub(crate) const WATCHES: &str = "watches.yaml";
/// The dashboard of Grafana.
pub(crate) const DASHBOARD: &str = "config/grafana/operator.json";
/// Directory with the objects of the deployed operator.
pub(crate) const DEPLOYED: &str = "config/default";
/// Image of the operator, from which chart projects build their own. A release names the one that it publishes,
/// in `HYBRID_OPERATOR_IMAGE` when it is built. Without one, it is an image of the user's machine.
pub(crate) static BASE_IMAGE: LazyLock<String> = LazyLock::new(|| {
    let name = option_env!("HYBRID_OPERATOR_IMAGE").unwrap_or("localhost/hybrid-operator");
    format!("{name}:v{}", env!("CARGO_PKG_VERSION"))
});

/// Returns whether the base image is one that `make base-image` of a checkout builds, and no registry has.
pub(crate) fn base_image_is_local() -> bool {
    BASE_IMAGE.starts_with("localhost/")
}

/// Error opening a project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectError {
    #[error(
        "{} is not in a project: neither it nor a directory above it has a PROJECT file; run this in the directory of a project, or create one with 'hybrid-operator init'",
        directory.display()
    )]
    NotAProject {
        /// Directory in which the search began.
        directory: PathBuf,
    },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a PROJECT file of version 3", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: go_yaml::Error,
    },
    #[error(
        "{} has version {version:?}; only version \"3\" is supported, to which 'kubebuilder alpha update' converts older projects",
        path.display()
    )]
    Version { path: PathBuf, version: String },
}

/// A project on disk.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    /// Directory of the project.
    pub(crate) root: PathBuf,
    /// Content of `PROJECT`.
    pub(crate) file: ProjectFile,
}

impl Project {
    /// Opens the project of a directory, which may be any directory inside of it.
    pub(crate) fn find(directory: &Path) -> Result<Self, ProjectError> {
        let start = fs::canonicalize(directory).map_err(|source| ProjectError::Read {
            path: directory.to_owned(),
            source,
        })?;
        let root = start
            .ancestors()
            .find(|directory| directory.join(PROJECT).is_file())
            .ok_or(ProjectError::NotAProject {
                directory: directory.to_owned(),
            })?;
        Self::open(root)
    }

    /// Opens the project whose `PROJECT` file is in `root` itself.
    pub(crate) fn open(root: &Path) -> Result<Self, ProjectError> {
        let path = root.join(PROJECT);
        let text = fs::read(&path).map_err(|source| ProjectError::Read {
            path: path.clone(),
            source,
        })?;
        let failed = |source| ProjectError::Parse {
            path: path.clone(),
            source,
        };
        let any: serde_json::Value = go_yaml::from_slice(&text).map_err(failed)?;
        let version = any.get("version").and_then(serde_json::Value::as_str);
        if let Some(version) = version.filter(|version| *version != file::VERSION) {
            let version = version.to_owned();
            return Err(ProjectError::Version { path, version });
        }
        let file = go_yaml::from_slice_strict(&text).map_err(failed)?;
        Ok(Self {
            root: root.to_owned(),
            file,
        })
    }

    pub(crate) fn watches_file(&self) -> PathBuf {
        self.root.join(WATCHES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_found_from_a_directory_inside_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("helm-charts/shop");
        fs::create_dir_all(&inside).unwrap();
        let missing = Project::find(&inside).unwrap_err();
        let is_none = matches!(missing, ProjectError::NotAProject { .. });
        assert!(is_none, "{missing}");
        let file = "domain: example.com\nlayout:\n- helm.sdk.operatorframework.io/v1\nprojectName: shop\nversion: \"3\"\n";
        fs::write(directory.path().join(PROJECT), file).unwrap();
        let project = Project::find(&inside).unwrap();
        assert_eq!(project.root, fs::canonicalize(directory.path()).unwrap());
        assert_eq!(project.file.project_name, "shop");
    }

    #[test]
    fn a_project_of_version_2_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = "domain: example.com\nlayout: go\nprojectName: shop\nversion: \"2\"\n";
        fs::write(directory.path().join(PROJECT), file).unwrap();
        let error = Project::open(directory.path()).unwrap_err();
        assert!(matches!(error, ProjectError::Version { .. }), "{error}");
    }
}
