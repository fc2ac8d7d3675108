//! Releases of etcd 3, and between which of them a cluster may change. Pure.

use std::fmt;

/// A release of etcd 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    minor: u32,
    patch: u32,
}

impl Version {
    /// Parses `3.MINOR.PATCH`; a suffix such as `-rc.1` is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let release = text.split(['-', '+']).next()?;
        let (minor, patch) = release.strip_prefix("3.")?.split_once('.')?;
        Some(Self {
            minor: minor.parse().ok()?,
            patch: patch.parse().ok()?,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}.{}", self.minor, self.patch)
    }
}

/// Returns an error with the next step if a cluster whose members run `running` cannot be changed to
/// `wanted`.
///
/// etcd supports rolling upgrades by one minor release, and no rolling downgrades except between
/// patch releases of one minor release (<https://etcd.io/docs/v3.6/upgrades/>).
///
/// # Errors
/// The message for the condition.
pub(crate) fn check(wanted: Version, running: &[Version]) -> Result<(), String> {
    let (Some(oldest), Some(newest)) = (running.iter().min(), running.iter().max()) else {
        return Ok(());
    };
    if wanted.minor < newest.minor {
        return Err(format!(
            "spec.version {wanted} is an older minor release than {newest}, which a member runs, and etcd \
             cannot be downgraded while it runs; set spec.version to {newest} or a later release"
        ));
    }
    if wanted.minor > oldest.minor + 1 {
        let next = oldest.minor + 1;
        return Err(format!(
            "spec.version {wanted} is more than one minor release later than {oldest}, which a member \
             runs; set spec.version to a release of 3.{next} first"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Version, check};

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn releases_are_parsed_and_ordered_by_number() {
        assert!(version("3.5.9") < version("3.5.21"));
        assert!(version("3.9.0") < version("3.10.0"));
        assert_eq!(version("3.6.0-rc.1").to_string(), "3.6.0");
        for text in ["", "3", "3.5", "2.5.1", "3.5.x", "v3.5.1", "3.5.1.1"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn upgrades_go_one_minor_release_at_a_time_and_never_back() {
        for (wanted, running, problem) in [
            ("3.6.8", &[][..], None),
            ("3.6.8", &["3.6.8"], None),
            ("3.6.8", &["3.5.21", "3.5.21"], None),
            // In the middle of an upgrade, and back to an older patch release.
            ("3.6.8", &["3.5.21", "3.6.8"], None),
            ("3.5.20", &["3.5.21"], None),
            (
                "3.5.21",
                &["3.5.21", "3.6.8"],
                Some("set spec.version to 3.6.8"),
            ),
            (
                "3.7.0",
                &["3.5.21", "3.6.8"],
                Some("a release of 3.6 first"),
            ),
            ("3.5.21", &["3.6.8"], Some("set spec.version to 3.6.8")),
        ] {
            let running: Vec<Version> = running.iter().map(|text| version(text)).collect();
            let result = check(version(wanted), &running);
            match problem {
                None => assert_eq!(result, Ok(()), "{wanted} {running:?}"),
                Some(problem) => {
                    let message = result.unwrap_err();
                    assert!(message.contains(problem), "{message}");
                }
            }
        }
    }
}
