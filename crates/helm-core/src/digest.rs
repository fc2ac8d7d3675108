//! `Digest`: a stable SHA-256 over named parts, for charts and for the inputs of a release.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; displays as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of some bytes.
    ///
    /// ```
    /// let digest = helm_core::Digest::of(b"");
    /// assert!(digest.to_string().starts_with("e3b0c44298fc1c14"));
    /// assert_eq!(digest.short(), "e3b0c44298fc1c14");
    /// ```
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the first 16 hexadecimal digits, for labels and messages.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(16);
        text
    }

    /// Returns the digest as bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct ParseDigestError;

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE
            .decode(text.as_bytes())
            .map_err(|_| ParseDigestError)?;
        bytes.try_into().map(Self).map_err(|_| ParseDigestError)
    }
}

/// Builds a digest of several parts. Each part is preceded by its length, so that different lists
/// of parts give different digests.
///
/// ```
/// use helm_core::DigestBuilder;
/// let ab_c = DigestBuilder::new().part("ab").part("c").finish();
/// let a_bc = DigestBuilder::new().part("a").part("bc").finish();
/// assert_ne!(ab_c, a_bc);
/// ```
#[derive(Clone, Default)]
pub struct DigestBuilder(Sha256);

impl DigestBuilder {
    /// Creates a builder without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.add(bytes);
        self
    }

    /// Adds a part.
    pub fn add(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Returns the digest of all parts.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for DigestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestBuilder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_parses_its_display_form() {
        let digest = Digest::of("text");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!("abc".parse::<Digest>(), Err(ParseDigestError));
    }
}
