//! `Str`: Go's string, a cheap shared run of bytes that need not be UTF-8.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The longest string that is kept inside the handle itself.
const INLINE: usize = 22;

/// An immutable string in Go's sense: any bytes, compared and ordered as bytes.
///
/// Up to 22 bytes live in the handle, so most strings of a template need no memory of their own;
/// longer ones are shared, and a clone counts a reference. A `Str` is `Send` and `Sync`: compiled
/// templates and value trees hold the same strings that a render uses.
///
/// ```
/// use go_template::Str;
/// let name = Str::from("release-name");
/// assert_eq!(name.slice(0, 7), Str::from("release"));
/// assert_eq!(Str::from(&b"h\xc3"[..]).to_string(), "h\u{fffd}");
/// ```
#[derive(Clone)]
pub struct Str(Repr);

#[derive(Clone)]
enum Repr {
    Plain(Plain),
    Shared(Arc<[u8]>),
}

/// What needs no count of references. A type of its own, so that a clone copies whole words.
#[derive(Clone, Copy)]
enum Plain {
    Inline { len: u8, bytes: [u8; INLINE] },
    Static(&'static [u8]),
}

impl Str {
    /// The empty string.
    pub const EMPTY: Self = Self::from_static("");

    /// A string that lives as long as the program, without a copy.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Repr::Plain(Plain::Static(text.as_bytes())))
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Plain(Plain::Inline { len, bytes }) => {
                bytes.get(..usize::from(*len)).unwrap_or_default()
            }
            Repr::Plain(Plain::Static(bytes)) => bytes,
            Repr::Shared(bytes) => bytes,
        }
    }

    /// The text, if the bytes are UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }

    /// The text, with U+FFFD for what is not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }

    /// The length in bytes, as Go's `len`.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes from `start` to before `end`, both cut to the length.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let end = end.min(self.len());
        if start == 0 && end == self.len() {
            return self.clone();
        }
        if let Repr::Plain(Plain::Static(bytes)) = self.0 {
            let part = bytes.get(start..end).unwrap_or_default();
            return Self(Repr::Plain(Plain::Static(part)));
        }
        Self::from(self.as_bytes().get(start..end).unwrap_or_default())
    }
}

impl Default for Str {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<&[u8]> for Str {
    #[inline]
    fn from(source: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..source.len()), u8::try_from(source.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(source);
                Self(Repr::Plain(Plain::Inline { len, bytes }))
            }
            _ => Self(Repr::Shared(Arc::from(source))),
        }
    }
}

impl From<&str> for Str {
    fn from(source: &str) -> Self {
        Self::from(source.as_bytes())
    }
}

impl From<String> for Str {
    fn from(source: String) -> Self {
        Self::from(source.as_bytes())
    }
}

impl From<&String> for Str {
    fn from(source: &String) -> Self {
        Self::from(source.as_bytes())
    }
}

impl From<Vec<u8>> for Str {
    fn from(source: Vec<u8>) -> Self {
        Self::from(source.as_slice())
    }
}

impl From<&Vec<u8>> for Str {
    fn from(source: &Vec<u8>) -> Self {
        Self::from(source.as_slice())
    }
}

impl From<Arc<[u8]>> for Str {
    fn from(source: Arc<[u8]>) -> Self {
        Self(Repr::Shared(source))
    }
}

impl AsRef<[u8]> for Str {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Str {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Str {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // The bytes beyond the length are zero in every handle.
            (
                Repr::Plain(Plain::Inline {
                    len: a,
                    bytes: left,
                }),
                Repr::Plain(Plain::Inline {
                    len: b,
                    bytes: right,
                }),
            ) => a == b && left == right,
            (Repr::Shared(a), Repr::Shared(b)) if Arc::ptr_eq(a, b) => true,
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_string_lossy())
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_strings_compare_by_bytes() {
        let long = "x".repeat(40);
        assert_eq!(Str::from("abc"), Str::from_static("abc"));
        assert_eq!(Str::from(long.as_str()), Str::from(long.as_str()));
        let (a, b) = (Str::from("a"), Str::from("b"));
        assert!(a < b);
        assert_eq!(Str::from(long.as_str()).slice(38, 99), Str::from("xx"));
        assert_eq!(Str::from("abc").slice(2, 1), Str::EMPTY);
    }

    #[test]
    fn the_handle_is_three_words() {
        assert_eq!(size_of::<Str>(), 24);
        assert_eq!(size_of::<Option<Str>>(), 24);
    }
}
