//! SHA-256 digests, as `sha256:` and 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

const ALGORITHM: &str = "sha256:";

/// The SHA-256 digest of an archive or a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// A text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a SHA-256 digest: \"sha256:\" and 64 hexadecimal digits")]
pub struct DigestError(String);

impl Digest {
    /// Computes the digest of `data`.
    pub fn of(data: &[u8]) -> Self {
        Self(Sha256::digest(data).into())
    }

    /// Returns the hexadecimal digits.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns its bytes.
    #[cfg(feature = "cosign-identity")]
    pub(crate) fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Parses a digest of an index, which may lack the name of the algorithm.
    pub(crate) fn parse_bare(text: &str) -> Result<Self, DigestError> {
        let wrong = || DigestError(text.to_owned());
        let hex = text.strip_prefix(ALGORITHM).unwrap_or(text);
        let bytes = HEXLOWER
            .decode(hex.to_ascii_lowercase().as_bytes())
            .map_err(|_| wrong())?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        if text.starts_with(ALGORITHM) {
            Self::parse_bare(text)
        } else {
            Err(DigestError(text.to_owned()))
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn digests_are_read_with_their_algorithm_and_those_of_an_index_also_without() {
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let abc = Digest::of(b"abc");
        assert_eq!(abc.to_string(), text);
        assert_eq!(text.parse(), Ok(abc));
        let bare = text.trim_start_matches("sha256:").to_uppercase();
        assert_eq!(Digest::parse_bare(&bare), Ok(abc));
        for wrong in ["", "sha256:", "sha256:12", "sha512:00", &text[..70], &bare] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
