//! Version ranges of Helm's semver library.

use go_template::go::semver::{Constraints, Version};

/// Returns whether `version` is in `range`, or false if either cannot be parsed.
///
/// ```
/// use helm_core::chart::version_range::contains;
/// assert!(contains("^1.2.0", "1.9.3"));
/// assert!(!contains(">= 1.30", "v1.29.0"));
/// ```
pub fn contains(range: &str, version: &str) -> bool {
    match (
        Constraints::new(range.as_bytes()),
        Version::new(version.as_bytes()),
    ) {
        (Ok(range), Ok(version)) => range.check(&version),
        _ => false,
    }
}
