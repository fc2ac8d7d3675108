//! The Go programs that tests and the demo run, built from source once: a Kubernetes
//! [control plane](CONTROL_PLANE), [Helm's command](HELM), an [OCI registry](REGISTRY), the
//! [Operator Lifecycle Manager](OLM), a [sharder](SHARDER), the Helm operators of [operator-sdk](HELM_OPERATOR) and
//! [helm-operator-plugins](HELM_OPERATOR_PLUGINS), also [with releases in chunks](HELM_OPERATOR_CHUNKS), and the health
//! checks of [Argo CD](ARGO_CD) and [Flux](FLUX).
//!
//! Where [`Program::ensure`] looks for a program:
//!
//! 1. the environment variable [`Program::variable`], which names a ready binary;
//! 2. `<cache>/<hash of the sources>/<file>`, where `<cache>` is the environment variable
//!    `CONTROL_PLANE_DIR`, else `control-plane` in Cargo's target directory.
//!
//! The sources are embedded, so that the crate also works outside of this workspace. The directory
//! is named by their hash: changed sources are built into a new directory, and an older checkout
//! still finds its binary.

mod compile;
mod error;
mod progress;
mod sources;
mod toolchain;

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

pub use error::BuildError;
pub use sources::{
    ARGO_CD, CONTROL_PLANE, FLUX, HELM, HELM_OPERATOR, HELM_OPERATOR_CHUNKS, HELM_OPERATOR_PLUGINS,
    OLM, REGISTRY, SHARDER,
};

/// The minimum Go release that the sources need, as (major, minor).
pub const GO_NEEDED: (u32, u32) = (1, 26);

/// A program that is built from embedded Go sources.
#[derive(Debug)]
pub struct Program {
    /// The name in messages.
    pub name: &'static str,
    /// The environment variable that names a ready binary.
    pub variable: &'static str,
    /// The binary's file name.
    file: &'static str,
    /// Names and contents of the files of its Go module.
    sources: &'static [(&'static str, &'static str)],
    /// The package to build, relative to that module.
    package: &'static str,
    /// Flags of `go build`.
    flags: &'static [&'static str],
    /// Directory of its largest dependency in Go's module cache. If it is missing, the build needs
    /// much disk space.
    largest_module: &'static str,
    /// Text for the first line of progress: what is built and how long it takes.
    build: &'static str,
}

impl Program {
    /// Returns the binary if it exists, without building it.
    ///
    /// # Errors
    ///
    /// [`BuildError::NotFound`] if the environment variable is set but does not name a file.
    pub fn find(&self) -> Result<Option<PathBuf>, BuildError> {
        if let Some(named) = set_variable(self.variable) {
            return if named.is_file() {
                Ok(Some(named))
            } else {
                Err(BuildError::NotFound {
                    variable: self.variable,
                    path: named,
                })
            };
        }
        let path = self.built_path();
        Ok(path.is_file().then_some(path))
    }

    /// Returns the binary, building it if necessary.
    ///
    /// Building blocks for minutes if Go has nothing cached, and reports progress on standard
    /// error. Only one of several processes builds; the others wait for it.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`]; [`BuildError::is_missing_prerequisite`] distinguishes missing
    /// prerequisites from defects.
    pub fn ensure(&self) -> Result<PathBuf, BuildError> {
        if let Some(path) = self.find()? {
            return Ok(path);
        }
        toolchain::check(self, &cache_dir())?;
        let path = self.built_path();
        let dir = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(dir).map_err(BuildError::cache("create", dir))?;

        let lock_path = dir.join("lock");
        let lock = File::create(&lock_path).map_err(BuildError::cache("create", &lock_path))?;
        if lock.try_lock().is_err() {
            progress::write_line(&format!(
                "{}: waiting for another process that is building it",
                self.name
            ));
            lock.lock().map_err(BuildError::cache("lock", &lock_path))?;
            if path.is_file() {
                return Ok(path);
            }
        }
        compile::compile(self, dir, &path)?;
        Ok(path)
    }

    /// Returns the path of the built binary, whether it exists or not, if no environment variable
    /// names one.
    pub fn built_path(&self) -> PathBuf {
        cache_dir().join(self.hash()).join(self.file)
    }
}

/// Returns the directory that is kept between test runs.
pub fn cache_dir() -> PathBuf {
    if let Some(dir) = set_variable("CONTROL_PLANE_DIR") {
        return dir;
    }
    let exe = env::current_exe().unwrap_or_default();
    let target = target_of(&exe)
        .or_else(|| env::var_os("CARGO_TARGET_DIR").map(PathBuf::from))
        .or_else(|| {
            env::var_os("CARGO_MANIFEST_DIR")
                .and_then(|dir| workspace_of(Path::new(&dir)))
                .map(|dir| dir.join("target"))
        })
        .unwrap_or_else(env::temp_dir);
    target.join("control-plane")
}

/// Returns the path in an environment variable that is set and not empty.
fn set_variable(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// File in which Cargo caches compiler information in each target directory. (Cargo's CACHEDIR.TAG
/// is only written into directories that Cargo created itself.)
const RUSTC_CACHE_FILE: &str = ".rustc_info.json";

/// Returns the target directory that contains an executable.
fn target_of(exe: &Path) -> Option<PathBuf> {
    exe.ancestors()
        .skip(1)
        .find(|dir| dir.join(RUSTC_CACHE_FILE).is_file())
        .map(Path::to_owned)
}

/// Returns the outermost directory with a lock file, which is the workspace.
fn workspace_of(package: &Path) -> Option<PathBuf> {
    package
        .ancestors()
        .filter(|dir| dir.join("Cargo.lock").is_file())
        .last()
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_of_a_test_is_in_the_target_directory() {
        let exe = env::current_exe().unwrap();
        let target = target_of(&exe).unwrap();
        assert!(exe.starts_with(&target) && target.join("debug").is_dir());
    }

    #[test]
    fn marked_directory_above_the_executable_is_the_target_directory() {
        let dir = tempfile::tempdir().unwrap();
        let deps = dir.path().join("debug/deps");
        std::fs::create_dir_all(&deps).unwrap();
        assert_eq!(target_of(&deps.join("test-1")), None);
        std::fs::write(dir.path().join(RUSTC_CACHE_FILE), "").unwrap();
        assert_eq!(target_of(&deps.join("test-1")).as_deref(), Some(dir.path()));
    }

    #[test]
    fn workspace_is_the_outermost_directory_with_a_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let member = dir.path().join("crates/one");
        std::fs::create_dir_all(&member).unwrap();
        std::fs::write(dir.path().join("Cargo.lock"), "").unwrap();
        assert_eq!(workspace_of(&member).as_deref(), Some(dir.path()));
    }

    #[test]
    fn programs_are_built_into_separate_directories() {
        let (plane, helm) = (CONTROL_PLANE.built_path(), HELM.built_path());
        assert!(plane.ends_with("controlplane") && helm.ends_with("helm"));
        assert_ne!(plane.parent(), helm.parent());
    }
}
