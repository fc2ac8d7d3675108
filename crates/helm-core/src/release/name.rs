//! `ReleaseName` and `Revision`: the identity of a revision, and the name of the Secret that holds
//! it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// The longest name that Helm accepts, in bytes.
pub const MAX_LENGTH: usize = 53;

const HASH_LENGTH: usize = 8;

/// An error in a release name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("no release name given")]
    Empty,
    /// Too long, or not a DNS subdomain.
    #[error(
        "invalid release name {0:?}: it must consist of lower-case letters, digits, '-' and '.', \
         begin and end with a letter or digit, and be no longer than 53 characters"
    )]
    Invalid(String),
}

/// The name of a release: a DNS subdomain of at most 53 bytes.
///
/// ```
/// use helm_core::release::ReleaseName;
/// let name: ReleaseName = "web.prod".parse()?;
/// assert_eq!(name.as_str(), "web.prod");
/// assert!("Web".parse::<ReleaseName>().is_err());
/// # Ok::<(), helm_core::release::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ReleaseName(String);

impl ReleaseName {
    /// Validates the name as Helm does.
    ///
    /// # Errors
    /// If Helm does not accept the name.
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = name.into();
        if name.is_empty() {
            Err(NameError::Empty)
        } else if name.len() > MAX_LENGTH || !is_subdomain(&name) {
            Err(NameError::Invalid(name))
        } else {
            Ok(Self(name))
        }
    }

    /// Returns the release name for a custom resource: its own name. If that is too long, it is cut
    /// and ends with `-` and 8 characters of its hash.
    ///
    /// ```
    /// use helm_core::release::ReleaseName;
    /// let name = ReleaseName::for_resource(&"x".repeat(60))?;
    /// assert_eq!(name.as_str().len(), 53);
    /// # Ok::<(), helm_core::release::NameError>(())
    /// ```
    ///
    /// # Errors
    /// If Helm does not accept the name.
    pub fn for_resource(name: &str) -> Result<Self, NameError> {
        if name.len() <= MAX_LENGTH {
            return Self::new(name);
        }
        let hash = Digest::of(name).short();
        let keep = MAX_LENGTH - HASH_LENGTH - 1;
        let head: String = name.chars().take(keep).collect();
        let head = head.trim_end_matches(['-', '.']);
        let hash: String = hash.chars().take(HASH_LENGTH).collect();
        Self::new(format!("{head}-{hash}"))
    }

    /// Returns the release name for a custom resource whose own name is taken by another resource's
    /// release: `NAME-KIND`, shortened as in [`ReleaseName::for_resource`].
    ///
    /// # Errors
    /// If Helm does not accept the name.
    pub fn for_resource_of_kind(name: &str, kind: &str) -> Result<Self, NameError> {
        Self::for_resource(&format!("{name}-{}", kind.to_lowercase()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether a name consists of `[a-z0-9]([-a-z0-9]*[a-z0-9])?` separated by dots.
fn is_subdomain(name: &str) -> bool {
    name.split('.').all(|label| {
        let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|byte| *byte == b'-' || alphanumeric(byte))
    })
}

impl FromStr for ReleaseName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl fmt::Display for ReleaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ReleaseName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ReleaseName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The number of a revision, from 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Revision(pub u32);

impl Revision {
    /// The first revision of a release.
    pub const FIRST: Self = Self(1);

    /// Returns the next revision.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const SECRET_PREFIX: &str = "sh.helm.release.v1.";

/// The type of the Secrets that hold release records.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";

/// The key of the record in the data of its Secret.
pub const SECRET_KEY: &str = "release";

/// Returns the name of the Secret that holds a revision.
///
/// ```
/// use helm_core::release::{name, ReleaseName, Revision};
/// let secret = name::secret_name(&"web.a".parse()?, Revision(3));
/// assert_eq!(secret, "sh.helm.release.v1.web.a.v3");
/// assert_eq!(name::from_secret_name(&secret), Some(("web.a".parse()?, Revision(3))));
/// # Ok::<(), helm_core::release::NameError>(())
/// ```
pub fn secret_name(name: &ReleaseName, revision: Revision) -> String {
    format!("{SECRET_PREFIX}{name}.v{revision}")
}

/// Returns the release and revision encoded in a Secret's name.
pub fn from_secret_name(secret: &str) -> Option<(ReleaseName, Revision)> {
    let (name, revision) = secret.strip_prefix(SECRET_PREFIX)?.rsplit_once(".v")?;
    Some((
        ReleaseName::new(name).ok()?,
        Revision(revision.parse().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated_as_in_helm() {
        for good in ["a", "a-b", "0.a-9.b", &"x".repeat(53)] {
            assert!(ReleaseName::new(good).is_ok(), "{good}");
        }
        let long = "x".repeat(54);
        for bad in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "a.-b", "é", &long] {
            assert!(ReleaseName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_distinct() {
        let a = ReleaseName::for_resource(&format!("{}-one", "a".repeat(60))).unwrap();
        let b = ReleaseName::for_resource(&format!("{}-two", "a".repeat(60))).unwrap();
        assert_ne!(a, b);
        assert!(a.as_str().len() <= MAX_LENGTH);
        let dotted = format!("{}.{}", "a".repeat(43), "b".repeat(30));
        assert!(ReleaseName::for_resource(&dotted).is_ok());
        let kind = ReleaseName::for_resource_of_kind("web", "Memcached").unwrap();
        assert_eq!(kind.as_str(), "web-memcached");
    }
}
