//! A version: parsing, comparing, incrementing and formatting.

use std::cmp::Ordering;
use std::fmt;

use super::{Parts, split};
use crate::go::cut;
use crate::go::strconv::{NumError, parse_uint};

/// Maximum length of a version, in bytes.
const MAX_LENGTH: usize = 256;

/// An error in the text of a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseVersionError {
    /// Malformed text.
    #[error("invalid semantic version")]
    Invalid,
    /// Empty text for a strict version.
    #[error("version string empty")]
    Empty,
    /// The text is too long.
    #[error("version string is too long (max {MAX_LENGTH} bytes)")]
    TooLong,
    /// A part of a strict version contains a non-digit.
    #[error("invalid characters in version")]
    Characters,
    /// A number begins with zero where that is not allowed.
    #[error("version segment starts with 0")]
    LeadingZero,
    /// A number does not fit.
    #[error("error parsing version segment: {0}")]
    Segment(String),
    /// A number of a strict version does not fit.
    #[error("{0}")]
    StrictSegment(String),
    /// A malformed part after `-`.
    #[error("invalid prerelease string")]
    Prerelease,
    /// A malformed part after `+`.
    #[error("invalid metadata string")]
    Metadata,
    /// Incrementing would overflow.
    #[error("{0} version increment would overflow uint64")]
    Overflow(&'static str),
}

/// A semantic version.
///
/// ```
/// use go_template::go::semver::Version;
/// let version = Version::new(b"v1.2")?;
/// assert_eq!(version.to_string(), "1.2.0");
/// assert!(version < Version::new(b"1.10.0")?);
/// # Ok::<(), go_template::go::semver::ParseVersionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    /// The part after `-`, or empty.
    pub prerelease: String,
    /// The part after `+`, or empty.
    pub metadata: String,
    /// The parsed text.
    pub original: String,
}

impl Version {
    /// Parses a version loosely, like `semver.NewVersion`.
    ///
    /// # Errors
    /// If the text is not a version.
    pub fn new(text: &[u8]) -> Result<Self, ParseVersionError> {
        if text.len() > MAX_LENGTH {
            return Err(ParseVersionError::TooLong);
        }
        let (parts, rest) =
            split(text, |c| c.is_ascii_digit()).ok_or(ParseVersionError::Invalid)?;
        if !rest.is_empty() {
            return Err(ParseVersionError::Invalid);
        }
        let segment = |digits: &[u8]| number(digits).map_err(ParseVersionError::Segment);
        let version = Self::from_parts(&parts, text, segment)?;
        if !version.prerelease.is_empty() {
            check_prerelease(&version.prerelease)?;
        }
        Ok(version)
    }

    /// Parses a version by the specification, like `semver.StrictNewVersion`.
    ///
    /// # Errors
    /// If the text is not a version of three numbers.
    pub fn strict(text: &[u8]) -> Result<Self, ParseVersionError> {
        if text.is_empty() {
            return Err(ParseVersionError::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(ParseVersionError::TooLong);
        }
        let mut numbers = text.splitn(3, |&c| c == b'.');
        let (Some(major), Some(minor), Some(tail)) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(ParseVersionError::Invalid);
        };
        let (tail, metadata) = cut(tail, b'+');
        if let Some(metadata) = metadata {
            check_identifiers(metadata, &ParseVersionError::Metadata)?;
        }
        let (patch, prerelease) = cut(tail, b'-');
        if let Some(prerelease) = prerelease {
            check_prerelease(&String::from_utf8_lossy(prerelease))?;
        }
        for digits in [major, minor, patch] {
            if !digits.iter().all(u8::is_ascii_digit) {
                return Err(ParseVersionError::Characters);
            }
            if digits.len() > 1 && digits.starts_with(b"0") {
                return Err(ParseVersionError::LeadingZero);
            }
        }
        let (prerelease, metadata) = (prerelease.unwrap_or_default(), metadata.unwrap_or_default());
        let parts = Parts {
            major,
            minor,
            patch,
            prerelease,
            metadata,
        };
        Self::from_parts(&parts, text, |digits: &[u8]| {
            parse_uint(digits, 10, 64)
                .map_err(|error| ParseVersionError::StrictSegment(describe(&error, digits)))
        })
    }

    fn from_parts(
        parts: &Parts<'_>,
        text: &[u8],
        segment: impl Fn(&[u8]) -> Result<u64, ParseVersionError>,
    ) -> Result<Self, ParseVersionError> {
        let owned = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        Ok(Self {
            major: segment(parts.major)?,
            minor: segment(parts.minor)?,
            patch: segment(parts.patch)?,
            prerelease: owned(parts.prerelease),
            metadata: owned(parts.metadata),
            original: owned(text),
        })
    }

    /// Returns the next patch version; a prerelease becomes its release.
    ///
    /// # Errors
    /// If the number would overflow.
    pub fn next_patch(&self) -> Result<Self, ParseVersionError> {
        let step = u64::from(self.prerelease.is_empty());
        let patch = increased(self.patch, step, "patch")?;
        Ok(self.numbered(self.major, self.minor, patch))
    }

    /// Returns the next minor version.
    ///
    /// # Errors
    /// If the number would overflow.
    pub fn next_minor(&self) -> Result<Self, ParseVersionError> {
        let minor = increased(self.minor, 1, "minor")?;
        Ok(self.numbered(self.major, minor, 0))
    }

    /// Returns the next major version.
    ///
    /// # Errors
    /// If the number would overflow.
    pub fn next_major(&self) -> Result<Self, ParseVersionError> {
        let major = increased(self.major, 1, "major")?;
        Ok(self.numbered(major, 0, 0))
    }

    fn numbered(&self, major: u64, minor: u64, patch: u64) -> Self {
        Self {
            major,
            minor,
            patch,
            prerelease: String::new(),
            metadata: String::new(),
            original: self.original.clone(),
        }
        .renamed()
    }

    /// Returns the version with another prerelease.
    ///
    /// # Errors
    /// If the text is not a pre-release.
    pub fn with_prerelease(&self, prerelease: &str) -> Result<Self, ParseVersionError> {
        if !prerelease.is_empty() {
            check_prerelease(prerelease)?;
        }
        Ok(Self {
            prerelease: prerelease.to_owned(),
            ..self.clone()
        }
        .renamed())
    }

    /// Returns the version with other metadata.
    ///
    /// # Errors
    /// If the text is not build metadata.
    pub fn with_metadata(&self, metadata: &str) -> Result<Self, ParseVersionError> {
        if !metadata.is_empty() {
            check_identifiers(metadata.as_bytes(), &ParseVersionError::Metadata)?;
        }
        Ok(Self {
            metadata: metadata.to_owned(),
            ..self.clone()
        }
        .renamed())
    }

    /// Updates the original text to match the version, keeping its `v`.
    fn renamed(mut self) -> Self {
        let has_v = self.original.starts_with('v');
        let v = if has_v { "v" } else { "" };
        self.original = format!("{v}{self}");
        self
    }

    /// Compares versions: metadata is ignored, a prerelease precedes its release.
    pub fn compare(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| compare_prereleases(&self.prerelease, &other.prerelease))
    }
}

impl PartialOrd for Version {
    /// Like [`Version::compare`], except that versions which differ only in metadata or spelling
    /// are unordered.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.compare(other) {
            Ordering::Equal if self != other => None,
            order => Some(order),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

fn increased(number: u64, step: u64, name: &'static str) -> Result<u64, ParseVersionError> {
    let next = number.checked_add(step);
    next.ok_or(ParseVersionError::Overflow(name))
}

/// Parses a number that may be missing.
fn number(digits: &[u8]) -> Result<u64, String> {
    if digits.is_empty() {
        return Ok(0);
    }
    parse_uint(digits, 10, 64).map_err(|error| describe(&error, digits))
}

fn describe(error: &NumError<u64>, digits: &[u8]) -> String {
    error.describe("ParseUint", digits)
}

fn check_prerelease(text: &str) -> Result<(), ParseVersionError> {
    for part in text.as_bytes().split(|&c| c == b'.') {
        let numeric = !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        if numeric && part.len() > 1 && part.starts_with(b"0") {
            return Err(ParseVersionError::LeadingZero);
        }
        check_identifier(part, &ParseVersionError::Prerelease)?;
    }
    Ok(())
}

fn check_identifiers(text: &[u8], error: &ParseVersionError) -> Result<(), ParseVersionError> {
    text.split(|&c| c == b'.')
        .try_for_each(|part| check_identifier(part, error))
}

fn check_identifier(part: &[u8], error: &ParseVersionError) -> Result<(), ParseVersionError> {
    let fine = !part.is_empty() && part.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-');
    if fine { Ok(()) } else { Err(error.clone()) }
}

/// A release comes after its prereleases.
fn compare_prereleases(a: &str, b: &str) -> Ordering {
    let releases = a.is_empty().cmp(&b.is_empty());
    releases.then_with(|| compare_identifiers(a, b))
}

/// Compares dotted identifiers one by one; the longer list is greater if all others are equal.
pub(super) fn compare_identifiers(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) => compare_identifier(a.unwrap_or_default(), b.unwrap_or_default()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Numbers precede words, and a missing identifier precedes everything.
fn compare_identifier(a: &str, b: &str) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    if a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    let number = |text: &str| parse_uint(text.as_bytes(), 10, 64).ok();
    match (number(a), number(b)) {
        (None, None) => a.cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        // For equal numbers with different spelling, the library treats the first as lower.
        (Some(a), Some(b)) => a.cmp(&b).then(Ordering::Less),
    }
}
