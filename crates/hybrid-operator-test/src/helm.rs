//! The `helm` command of the pinned version, for tests that compare with it.

use std::path::PathBuf;

use go_programs::{BuildError, HELM};

use crate::shared::built_or_skip;

/// Returns the path of the `helm` command, building it first if needed. The environment variable
/// `HELM` names an existing binary.
///
/// Building blocks for minutes if Go has nothing cached, and prints its progress to standard error.
///
/// # Errors
///
/// Any [`BuildError`].
pub fn ensure() -> Result<PathBuf, BuildError> {
    HELM.ensure()
}

/// Returns the path of the `helm` command, or `None` if the machine cannot build it; then a line on
/// standard error says which test is skipped and why.
///
/// # Errors
///
/// Any [`BuildError`] other than a missing prerequisite, and with `REQUIRE_CONTROL_PLANE=1` any
/// [`BuildError`].
pub fn ensure_or_skip() -> Result<Option<PathBuf>, BuildError> {
    built_or_skip(&HELM)
}
