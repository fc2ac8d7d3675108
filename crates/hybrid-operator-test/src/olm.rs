//! The Operator Lifecycle Manager: one program that asks the packages of Operator Framework about bundles
//! and catalogs, serves catalogs, and installs bundles. [`crate::Program`] runs the last two.

use std::path::PathBuf;

use go_programs::{BuildError, OLM};

use crate::shared::built_or_skip;

/// Returns the path of the program, which is built first if needed, or `None` if the machine cannot
/// build it; then a line on standard error says that a test is skipped and why. The environment
/// variable `OLM` names an existing binary.
///
/// # Errors
///
/// Any [`BuildError`] other than a missing prerequisite, and with `REQUIRE_CONTROL_PLANE=1` any
/// [`BuildError`].
pub fn ensure_or_skip() -> Result<Option<PathBuf>, BuildError> {
    built_or_skip(&OLM)
}
