//! The environment variables of this process, for the templates of `watches.yaml`.

use std::sync::LazyLock;

use crate::values::Environment;

/// Returns the environment variables at the first call. Those that are not UTF-8 are left out.
pub(super) fn environment() -> &'static Environment {
    static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment::new(std::env::vars_os().filter_map(text))
    });
    &ENVIRONMENT
}
