//! Picks a version out of a list, by the rules of Helm.

use std::cmp::Ordering;

use go_template::go::semver::{Constraints, ParseConstraintError, Version};

/// Sorts versions as Helm sorts those of an index: the newest first, and what is not a version last.
pub(crate) fn newest_first(a: &str, b: &str) -> Ordering {
    match (Version::new(a.as_bytes()), Version::new(b.as_bytes())) {
        (Ok(a), Ok(b)) => b.compare(&a),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => Ordering::Equal,
    }
}

/// Returns the index of the version in a list, newest first, that `wanted` means: the one that is
/// written the same, else the first in the range. Without `wanted`, it is the newest that is no
/// prerelease.
pub(crate) fn pick<'a>(
    versions: impl Iterator<Item = &'a str> + Clone,
    wanted: Option<&str>,
) -> Result<Option<usize>, ParseConstraintError> {
    let wanted = wanted.filter(|text| !text.is_empty());
    if let Some(wanted) = wanted
        && let Some(at) = versions.clone().position(|version| version == wanted)
    {
        return Ok(Some(at));
    }
    let range = Constraints::new(wanted.unwrap_or("*").as_bytes())?;
    let mut versions = versions;
    Ok(versions
        .position(|text| Version::new(text.as_bytes()).is_ok_and(|version| range.check(&version))))
}

/// Returns whether a text is one version, and not a range.
pub(crate) fn is_exact(text: &str) -> bool {
    Version::new(text.as_bytes()).is_ok()
}

/// Returns whether a text is one complete version, so that it does not also mean a range: `1.2` does.
pub(crate) fn is_one(text: &str) -> bool {
    Version::strict(text.strip_prefix('v').unwrap_or(text).as_bytes()).is_ok()
}

/// Returns whether a tag of a registry, with `+` restored, is a version of a chart.
pub(crate) fn is_tag_of_version(text: &str) -> bool {
    Version::strict(text.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{newest_first, pick};

    #[test]
    fn versions_are_picked_as_helm_picks_them() {
        let mut versions = [
            "1.2.0",
            "1.10.0",
            "broken",
            "2.0.0-rc.1",
            "1.9.3",
            "v1.3.0",
            "1.10.0+a",
        ];
        versions.sort_by(|a, b| newest_first(a, b));
        assert_eq!(versions.last(), Some(&"broken"));
        let cases = [
            (None, Some("1.10.0")),
            (Some(""), Some("1.10.0")),
            (Some("1.9.3"), Some("1.9.3")),
            (Some("~1.2"), Some("1.2.0")),
            (Some("1.3.0"), Some("v1.3.0")),
            (Some("^1.2.0, <1.10"), Some("1.9.3")),
            (Some(">0.0.0-0"), Some("2.0.0-rc.1")),
            (Some("1.10.0+a"), Some("1.10.0+a")),
            (Some("3"), None),
        ];
        for (wanted, expected) in cases {
            let at = pick(versions.iter().copied(), wanted).unwrap();
            assert_eq!(at.map(|at| versions[at]), expected, "{wanted:?}");
        }
        assert!(pick(versions.iter().copied(), Some("not a range")).is_err());
    }
}
