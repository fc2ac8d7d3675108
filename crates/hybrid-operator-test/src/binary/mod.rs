//! Finds the control plane's binary, and builds it from the embedded Go sources when it is absent.
//!
//! Where it is looked for:
//!
//! 1. the environment variable `CONTROL_PLANE_BIN`: a ready binary, used as it is;
//! 2. `<cache>/<hash of the sources>/controlplane`, where `<cache>` is the environment variable
//!    `CONTROL_PLANE_DIR`, else `control-plane` in Cargo's target directory.
//!
//! Another hash is another directory, so a change of the sources is another build and an old
//! checkout still finds its own.

mod compile;
mod progress;
mod sources;
mod toolchain;

use std::env;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use progress::Progress;

/// The Go release that the sources ask for, as (major, minor).
pub const GO_NEEDED: (u32, u32) = (1, 26);

/// What still runs on a machine without the control plane.
const WITHOUT: &str = "Unit, snapshot and scripted-API tests run without it. \
    CONTROL_PLANE_BIN names a ready binary, HYBRID_OPERATOR_TEST_KUBECONFIG an existing test cluster.";

/// Why there is no binary.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// `CONTROL_PLANE_BIN` names something that is not a file.
    #[error("CONTROL_PLANE_BIN is {0}, which is not a file")]
    NotThere(PathBuf),
    /// The binary is not built and there is no Go to build it.
    #[error(
        "the control plane for tests is not built yet, and there is no `go` command to build it. \
         Install Go {}.{} or newer (https://go.dev/dl/) and have it on PATH. {WITHOUT}", GO_NEEDED.0, GO_NEEDED.1
    )]
    GoMissing(#[source] io::Error),
    /// The binary is not built and the Go that is installed cannot build it.
    #[error(
        "the control plane for tests is not built yet, and `go` is {found}, which is too old to build it. \
         Install Go {}.{} or newer (https://go.dev/dl/). {WITHOUT}", GO_NEEDED.0, GO_NEEDED.1
    )]
    GoTooOld {
        /// What `go env GOVERSION` answers.
        found: String,
    },
    /// The binary is not built and building it would fill the disk.
    #[error(
        "the control plane for tests is not built yet, and building it needs {needed_mib} MiB in {}, where {free_mib} MiB are free. \
         Free some space, or point CONTROL_PLANE_DIR, GOCACHE and GOMODCACHE to another disk. {WITHOUT}", dir.display()
    )]
    Disk {
        /// The directory that is short of space.
        dir: PathBuf,
        /// MiB that the build writes there.
        needed_mib: u64,
        /// MiB that are free.
        free_mib: u64,
    },
    /// `go build` failed.
    #[error("building the control plane for tests failed ({status}); the whole output is in {}, and ends so:\n{tail}", log.display())]
    Compile {
        /// How `go build` ended.
        status: String,
        /// The file with its output.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A file or directory of the cache cannot be used.
    #[error("cannot {action} {}", path.display())]
    Cache {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl BinaryError {
    /// Whether the machine lacks something that the tests may be skipped for, as against a defect.
    pub fn is_missing_prerequisite(&self) -> bool {
        matches!(
            self,
            Self::GoMissing(_) | Self::GoTooOld { .. } | Self::Disk { .. }
        )
    }

    fn cache<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Cache {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// Returns the binary if it is there, and builds nothing.
///
/// # Errors
///
/// [`BinaryError::NotThere`] when `CONTROL_PLANE_BIN` is set and wrong.
pub fn find() -> Result<Option<PathBuf>, BinaryError> {
    if let Some(named) = env::var_os("CONTROL_PLANE_BIN").filter(|v| !v.is_empty()) {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(Some(path))
        } else {
            Err(BinaryError::NotThere(path))
        };
    }
    let path = built_path();
    Ok(path.is_file().then_some(path))
}

/// Returns the binary, and builds it first when needed.
///
/// Blocks for 6 to 9 minutes on two cores when nothing is in Go's caches, and shows progress on
/// standard error meanwhile. Of several processes one builds and the others wait for it.
///
/// # Errors
///
/// Any [`BinaryError`]; [`BinaryError::is_missing_prerequisite`] tells those that are the machine's.
pub fn ensure() -> Result<PathBuf, BinaryError> {
    if let Some(path) = find()? {
        return Ok(path);
    }
    toolchain::check(&cache_dir())?;
    let path = built_path();
    let dir = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(dir).map_err(BinaryError::cache("create", dir))?;

    let lock_path = dir.join("lock");
    let lock = File::create(&lock_path).map_err(BinaryError::cache("create", &lock_path))?;
    if lock.try_lock().is_err() {
        Progress::line("control plane: another process is building it; waiting");
        lock.lock()
            .map_err(BinaryError::cache("lock", &lock_path))?;
        if path.is_file() {
            return Ok(path);
        }
    }
    compile::compile(dir, &path)?;
    Ok(path)
}

/// Returns where the binary is, or would be, without `CONTROL_PLANE_BIN`.
pub fn built_path() -> PathBuf {
    cache_dir().join(sources::hash()).join("controlplane")
}

/// Returns the directory of everything that this crate keeps between runs.
pub(crate) fn cache_dir() -> PathBuf {
    if let Some(dir) = env::var_os("CONTROL_PLANE_DIR").filter(|v| !v.is_empty()) {
        return PathBuf::from(dir);
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

/// Returns the target directory that holds an executable of Cargo's: Cargo tags it for backup tools.
fn target_of(exe: &Path) -> Option<PathBuf> {
    exe.ancestors()
        .skip(1)
        .find(|dir| dir.join("CACHEDIR.TAG").is_file())
        .map(Path::to_owned)
}

/// Returns the outermost directory with a lock file, which is the workspace's.
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
    fn the_cache_of_a_test_is_in_cargos_target_directory() {
        let target = target_of(&env::current_exe().unwrap()).unwrap();
        assert!(target.join("CACHEDIR.TAG").is_file());
    }

    #[test]
    fn a_tagged_directory_above_the_executable_is_the_target_directory() {
        let dir = tempfile::tempdir().unwrap();
        let deps = dir.path().join("debug/deps");
        std::fs::create_dir_all(&deps).unwrap();
        assert_eq!(target_of(&deps.join("test-1")), None);
        std::fs::write(dir.path().join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(target_of(&deps.join("test-1")).as_deref(), Some(dir.path()));
    }

    #[test]
    fn the_workspace_is_the_outermost_directory_with_a_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let member = dir.path().join("crates/one");
        std::fs::create_dir_all(&member).unwrap();
        std::fs::write(dir.path().join("Cargo.lock"), "").unwrap();
        assert_eq!(workspace_of(&member).as_deref(), Some(dir.path()));
    }

    #[test]
    fn messages_say_what_to_install_and_what_runs_without() {
        let text = BinaryError::GoTooOld {
            found: "go1.21.3".to_owned(),
        }
        .to_string();
        assert!(
            text.contains("go1.21.3") && text.contains("Go 1.26 or newer"),
            "{text}"
        );
        assert!(
            text.contains("run without it") && text.contains("CONTROL_PLANE_BIN"),
            "{text}"
        );
    }
}
