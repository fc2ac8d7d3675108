//! Argo CD's and Flux's judgement of objects, by their own code.

use std::path::PathBuf;

use go_programs::{ARGO_CD, BuildError, FLUX};

use crate::shared::built_or_skip;

/// Returns the path of a program that judges objects as Argo CD does, and of one that does as Flux. They are built
/// first if needed. `None` means that the machine cannot build them; then a line on standard error says that a test
/// is skipped and why. The environment variables `ARGO_CD` and `FLUX` name existing binaries.
///
/// # Errors
///
/// Any [`BuildError`] other than a missing prerequisite, and with `REQUIRE_CONTROL_PLANE=1` any
/// [`BuildError`].
pub fn ensure_or_skip() -> Result<Option<(PathBuf, PathBuf)>, BuildError> {
    let Some(argo_cd) = built_or_skip(&ARGO_CD)? else {
        return Ok(None);
    };
    let flux = built_or_skip(&FLUX)?;
    Ok(flux.map(|flux| (argo_cd, flux)))
}
