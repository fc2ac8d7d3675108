//! Helm's command, of the version that the project follows, for tests that compare with it.

use std::path::PathBuf;

use go_programs::{BuildError, HELM};

use crate::shared::{may_skip, skipped};

/// Returns Helm's command, and builds it first when needed. The environment variable `HELM` names a
/// ready binary.
///
/// Building blocks for minutes when Go has nothing cached, and shows its progress on standard error.
///
/// # Errors
///
/// Any [`BuildError`].
pub fn ensure() -> Result<PathBuf, BuildError> {
    HELM.ensure()
}

/// Returns Helm's command, or none where the machine cannot build it; then a line on standard error
/// says which test is skipped and why.
///
/// # Errors
///
/// Every [`BuildError`] that is a defect rather than the machine's lack of something, and every
/// [`BuildError`] when the environment variable `REQUIRE_CONTROL_PLANE` is `1`.
pub fn ensure_or_skip() -> Result<Option<PathBuf>, BuildError> {
    match ensure() {
        Ok(path) => Ok(Some(path)),
        Err(error) if may_skip(&error) => {
            skipped(1, &error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
