//! One control plane for all tests of a process, and the report of skipped tests.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use go_programs::{BuildError, CONTROL_PLANE, Program};
use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, Options, StartError};

/// Environment variable with the kubeconfig of a cluster to use instead of starting one.
/// `KUBECONFIG` and `~/.kube/config` are never used, because tests create and delete objects.
pub const KUBECONFIG_VARIABLE: &str = "HYBRID_OPERATOR_TEST_KUBECONFIG";

/// Environment variable that, set to `1`, makes tests fail instead of being skipped if the control
/// plane or Helm cannot be built. Continuous integration sets it.
pub const REQUIRE_VARIABLE: &str = "REQUIRE_CONTROL_PLANE";

/// A failure is kept, too, so that not every test repeats a failing build.
static SHARED: OnceCell<Result<ControlPlane, StartError>> = OnceCell::const_new();

/// Returns the control plane of this process. The first call starts it, with an audit log.
///
/// It stops with the process. With [`KUBECONFIG_VARIABLE`], it is the cluster of that kubeconfig.
///
/// # Errors
///
/// Any [`StartError`]; later calls return the same.
pub async fn shared() -> Result<&'static ControlPlane, StartError> {
    let start = || async {
        match env::var_os(KUBECONFIG_VARIABLE).filter(|value| !value.is_empty()) {
            Some(kubeconfig) => Ok(ControlPlane::existing(kubeconfig)),
            None => {
                ControlPlane::start(Options {
                    audit: true,
                    ..Options::default()
                })
                .await
            }
        }
    };
    SHARED
        .get_or_init(start)
        .await
        .as_ref()
        .map_err(Clone::clone)
}

/// Returns the control plane of this process, or `None` if the machine cannot build one; then a
/// line on standard error says which test is skipped and why.
///
/// # Errors
///
/// Any [`StartError`] other than a missing prerequisite, and with [`REQUIRE_VARIABLE`] any
/// [`StartError`].
pub async fn shared_or_skip() -> Result<Option<&'static ControlPlane>, StartError> {
    match shared().await {
        Ok(plane) => Ok(Some(plane)),
        Err(StartError::Binary(error)) if may_skip(&error) => {
            skipped(1, &error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the binary of the control plane, for [`crate::Program`], or `None` like
/// [`shared_or_skip`]. Builds it if needed.
///
/// # Errors
///
/// As [`shared_or_skip`].
pub async fn binary_or_skip() -> Result<Option<PathBuf>, StartError> {
    let ensured = tokio::task::spawn_blocking(|| CONTROL_PLANE.ensure()).await;
    match ensured {
        Ok(Ok(binary)) => Ok(Some(binary)),
        Ok(Err(error)) if may_skip(&error) => {
            skipped(1, &error);
            Ok(None)
        }
        Ok(Err(error)) => Err(StartError::Binary(Arc::new(error))),
        Err(error) => Err(StartError::Exited {
            output: error.to_string(),
        }),
    }
}

/// Returns the path of a program, which is built first if needed, or `None` if the machine cannot build it; then a
/// line on standard error says that a test is skipped and why.
pub(crate) fn built_or_skip(program: &Program) -> Result<Option<PathBuf>, BuildError> {
    match program.ensure() {
        Ok(path) => Ok(Some(path)),
        Err(error) if may_skip(&error) => {
            skipped(1, &error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a test may be skipped because a program is missing.
fn may_skip(error: &BuildError) -> bool {
    let required = env::var_os(REQUIRE_VARIABLE);
    error.is_missing_prerequisite() && !is_required(required.as_deref())
}

/// Returns whether the value of [`REQUIRE_VARIABLE`] forbids skipping.
fn is_required(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// Writes `SKIPPED (tests): reason` to standard error, with the name of the calling test.
pub fn skipped(tests: usize, reason: &dyn std::fmt::Display) {
    // The test harness names threads after tests.
    let thread = std::thread::current();
    let name = thread
        .name()
        .filter(|name| *name != "main" && !name.starts_with("tokio-"));
    let line = match name {
        Some(name) => format!("SKIPPED ({tests}): {name}: {reason}"),
        None => format!("SKIPPED ({tests}): {reason}"),
    };
    drop(writeln!(io::stderr(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipping_is_forbidden_by_any_value_but_0() {
        for (value, required) in [
            (None, false),
            (Some(""), false),
            (Some("0"), false),
            (Some("1"), true),
            (Some("true"), true),
        ] {
            assert_eq!(is_required(value.map(OsStr::new)), required, "{value:?}");
        }
    }
}
