//! Ranges of versions, as Helm's semver library reads them.

use go_template::go::semver::{Constraints, Version};

/// Whether `version` lies in `range`; not if one of the two cannot be read.
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
