//! Versions and constraints as parsed and compared by `Masterminds/semver` 3.5.
//!
//! Versions are parsed loosely, as in Helm and Sprig: `v1`, `1.2` and leading zeros are accepted.
//! The treatment of prereleases, wildcards and missing parts in constraints is not specified;
//! charts rely on the rules of that library.

mod constraint;
mod version;

pub use constraint::{Constraints, ParseConstraintError};
pub use version::{ParseVersionError, Version};

/// The parts of a version in a text, before they are parsed as numbers: digits, or wildcards in
/// constraints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Parts<'t> {
    major: &'t [u8],
    minor: &'t [u8],
    patch: &'t [u8],
    prerelease: &'t [u8],
    metadata: &'t [u8],
}

/// Matches the longest version at the start of `s` and returns the rest. `in_number` returns
/// whether a byte may occur in a number.
fn split(s: &[u8], in_number: fn(u8) -> bool) -> Option<(Parts<'_>, &[u8])> {
    let mut parts = Parts::default();
    let mut rest = s.strip_prefix(b"v").unwrap_or(s);
    (parts.major, rest) = run(rest, in_number)?;
    for part in [&mut parts.minor, &mut parts.patch] {
        let Some((digits, after)) = rest
            .strip_prefix(b".")
            .and_then(|rest| run(rest, in_number))
        else {
            break;
        };
        (*part, rest) = (digits, after);
    }
    for (part, sign) in [(&mut parts.prerelease, b"-"), (&mut parts.metadata, b"+")] {
        if let Some((identifiers, after)) = rest.strip_prefix(sign).and_then(identifiers) {
            (*part, rest) = (identifiers, after);
        }
    }
    Some((parts, rest))
}

/// Splits off the longest non-empty run of bytes that satisfy `belongs`.
fn run(s: &[u8], belongs: fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let length = s.iter().position(|&c| !belongs(c)).unwrap_or(s.len());
    (length > 0).then(|| s.split_at(length))
}

/// Splits off identifiers separated by single dots.
fn identifiers(s: &[u8]) -> Option<(&[u8], &[u8])> {
    let belongs = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
    let (_, mut rest) = run(s, belongs)?;
    while let Some((_, after)) = rest.strip_prefix(b".").and_then(|rest| run(rest, belongs)) {
        rest = after;
    }
    Some(s.split_at(s.len() - rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(constraint: &str, version: &str) -> Result<bool, String> {
        let constraints =
            Constraints::new(constraint.as_bytes()).map_err(|error| error.to_string())?;
        let version = Version::new(version.as_bytes()).map_err(|error| error.to_string())?;
        Ok(constraints.check(&version))
    }

    #[test]
    fn constraints_hold_as_in_helm() {
        let cases = [
            (">=1.19-0", "v1.29.3-eks-1234", true),
            (">=1.19", "1.29.3-eks-1234", false),
            ("^1.2.3", "1.9.0", true),
            ("^0.2.3", "0.3.0", false),
            ("^0.0.3", "0.0.4", false),
            ("^*", "1.0.0", false),
            ("~1.2", "1.2.9", true),
            ("~>1", "1.9.0", true),
            ("~0.0.0", "7.0.0", true),
            ("1.2 - 2.3", "2.3.4", true),
            ("1.2.x", "1.2.7", true),
            ("!=1.2.x", "1.2.7", false),
            (">11", "11.1.0", false),
            (">11.1", "11.2.0", true),
            ("<=11", "11.9.0", true),
            ("=>1, =<2", "1.5", true),
            (">1 <2 || ~3", "3.9", true),
            ("*", "0.0.1", true),
            ("1.0.0-alpha.2", "1.0.0-alpha.10", false),
            (">1.0.0-alpha.2", "1.0.0-alpha.10", true),
            (">1.0.0-2", "1.0.0-alpha", true),
        ];
        for (constraint, version, want) in cases {
            let holds = holds(constraint, version);
            assert_eq!(holds, Ok(want), "{constraint} {version}");
        }
    }

    #[test]
    fn invalid_texts_have_errors_of_the_library() {
        let error = |constraint: &str, version: &str| holds(constraint, version).unwrap_err();
        assert_eq!(error("", "1"), "improper constraint: \"\"");
        assert_eq!(error(">=1.2>3", "1"), "improper constraint: \">=1.2>3\"");
        assert_eq!(error("1|2", "1"), "constraint parser error");
        assert_eq!(error("xx", "1"), "constraint parser error");
        let many = error(&"1||".repeat(40), "1");
        assert_eq!(many, "too many constraint groups (max 32)");
        let long = error(&"1".repeat(600), "1");
        assert_eq!(long, "constraint string is too long (max 512 bytes)");
        assert_eq!(error("1", "x"), "invalid semantic version");
        assert_eq!(error("1", "1.0.0-01"), "version segment starts with 0");
        assert_eq!(
            error("1", "18446744073709551616"),
            "error parsing version segment: strconv.ParseUint: parsing \
             \"18446744073709551616\": value out of range"
        );
    }

    #[test]
    fn versions_are_parsed_loosely_and_strictly() {
        let version = Version::new(b"v01.2-rc.1+b").unwrap();
        assert_eq!(version.to_string(), "1.2.0-rc.1+b");
        assert_eq!(version.original, "v01.2-rc.1+b");
        assert_eq!(version.next_patch().unwrap().original, "v1.2.0");
        assert_eq!(version.next_minor().unwrap().to_string(), "1.3.0");
        assert_eq!(version.next_major().unwrap().to_string(), "2.0.0");
        assert_eq!(version.with_metadata("").unwrap().to_string(), "1.2.0-rc.1");
        assert!(version.with_prerelease("a_b").is_err());
        let highest = Version::new(b"18446744073709551615").unwrap();
        assert!(highest.next_major().is_err());
        let strict = |text: &str| Version::strict(text.as_bytes());
        assert_eq!(strict("1.2.3-a+b").unwrap().metadata, "b");
        assert_eq!(strict("1.2"), Err(ParseVersionError::Invalid));
        assert_eq!(strict("01.2.3"), Err(ParseVersionError::LeadingZero));
        assert_eq!(strict("v1.2.3"), Err(ParseVersionError::Characters));
        assert_eq!(strict("1.2.3+"), Err(ParseVersionError::Metadata));
    }
}
