//! `Str`: Go's string, cheaply shared bytes that need not be UTF-8.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bounded::memory;

/// Maximum length of a string that is stored in the handle itself.
const INLINE: usize = 22;

/// An immutable Go string: arbitrary bytes, compared and ordered as bytes.
///
/// Up to 22 bytes are stored in the handle, so that most strings of a template need no allocation;
/// longer ones are reference-counted. A `Str` is `Send` and `Sync`: compiled templates and value
/// trees share strings with renders.
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
    Unshared(Unshared),
    Shared(Shared),
}

/// Bytes with a reference count, which count as memory of the thread that allocates them.
struct Shared(Arc<[u8]>);

impl Shared {
    fn new(bytes: Arc<[u8]>) -> Self {
        memory::hold(bytes.len());
        Self(bytes)
    }
}

impl Clone for Shared {
    #[inline]
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) == 1 {
            memory::release(self.0.len());
        }
    }
}

/// Content without a reference count. It is a separate type, so that a clone copies whole words.
#[derive(Clone, Copy)]
enum Unshared {
    Inline { len: u8, bytes: [u8; INLINE] },
    Static(&'static [u8]),
}

impl Str {
    /// The empty string.
    pub const EMPTY: Self = Self::from_static("");

    /// Wraps a static string without copying it.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Repr::Unshared(Unshared::Static(text.as_bytes())))
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Unshared(Unshared::Inline { len, bytes }) => {
                bytes.get(..usize::from(*len)).unwrap_or_default()
            }
            Repr::Unshared(Unshared::Static(bytes)) => bytes,
            Repr::Shared(bytes) => &bytes.0,
        }
    }

    /// Returns the text, if the bytes are UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }

    /// Returns the text, with U+FFFD for each byte of invalid UTF-8, as in Go.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        if let Some(text) = self.to_str() {
            return Cow::Borrowed(text);
        }
        let mut text = String::with_capacity(self.len());
        for chunk in self.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        Cow::Owned(text)
    }

    /// Returns the length in bytes, like Go's `len`.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Returns whether the string is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes from `start` up to `end`, both clamped to the length.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let end = end.min(self.len());
        if start == 0 && end == self.len() {
            return self.clone();
        }
        if let Repr::Unshared(Unshared::Static(bytes)) = self.0 {
            let part = bytes.get(start..end).unwrap_or_default();
            return Self(Repr::Unshared(Unshared::Static(part)));
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
                Self(Repr::Unshared(Unshared::Inline { len, bytes }))
            }
            _ => Self(Repr::Shared(Shared::new(Arc::from(source)))),
        }
    }
}

macro_rules! copied {
    ($($source:ty => $bytes:ident),*) => {
        $(impl From<$source> for Str {
            fn from(source: $source) -> Self {
                Self::from(source.$bytes())
            }
        })*
    };
}

copied!(
    &str => as_bytes,
    String => as_bytes,
    &String => as_bytes,
    Vec<u8> => as_slice,
    &Vec<u8> => as_slice,
    bounded::Buffer => as_slice
);

impl From<Arc<[u8]>> for Str {
    fn from(source: Arc<[u8]>) -> Self {
        Self(Repr::Shared(Shared::new(source)))
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
            // Bytes beyond the length are always zero.
            (
                Repr::Unshared(Unshared::Inline {
                    len: a,
                    bytes: left,
                }),
                Repr::Unshared(Unshared::Inline {
                    len: b,
                    bytes: right,
                }),
            ) => a == b && left == right,
            (Repr::Shared(a), Repr::Shared(b)) if Arc::ptr_eq(&a.0, &b.0) => true,
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
    fn str_handle_is_three_words() {
        assert_eq!(size_of::<Str>(), 24);
        assert_eq!(size_of::<Option<Str>>(), 24);
    }
}
