//! `Buffer`: an output that does not grow beyond the memory that is left.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::budget::BudgetError;
use crate::memory;

/// Bytes that a render writes, in place of a `Vec<u8>`.
///
/// Writing cannot fail, so that writers stay simple. What does not fit into the memory that is
/// left is dropped, and the buffer is over its limit from then on: [`Buffer::check`] returns the
/// error. Whoever executes a function that writes checks afterwards.
///
/// ```
/// use bounded::{Buffer, memory};
/// let scope = memory::Scope::open(1000);
/// let mut out = Buffer::new();
/// out.extend_from_slice(b"fits");
/// assert!(out.check().is_ok());
/// out.extend_from_slice(&[b'x'; 5000]);
/// assert!(out.check().is_err());
/// assert_eq!(out, b"fits");
/// # drop((out, scope));
/// ```
#[derive(Clone, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Buffer {
    /// Creates an empty buffer.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            is_over: false,
        }
    }

    /// Creates an empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buffer = Self::new();
        if capacity > 0 && memory::fits(capacity) {
            buffer.bytes.reserve_exact(capacity);
            memory::hold(buffer.bytes.capacity());
        }
        buffer
    }

    /// Appends a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        if self.bytes.len() < self.bytes.capacity() || self.make_room(1) {
            self.bytes.push(byte);
        }
    }

    /// Appends bytes, or none of them if they do not fit.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.bytes.capacity() - self.bytes.len() || self.make_room(bytes.len()) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Makes room for `more` bytes. Returns whether they fit.
    #[cold]
    fn make_room(&mut self, more: usize) -> bool {
        let capacity = self.bytes.capacity();
        let needed = self.bytes.len().saturating_add(more);
        // The old allocation is freed only after its content was copied.
        let ample = needed.max(capacity.saturating_mul(2)).max(64);
        // Growing by a few bytes each time would copy a long text again and again.
        let modest = needed.saturating_add(needed / 8);
        let wanted = [ample, modest].into_iter().find(|n| memory::fits(*n));
        let Some(wanted) = wanted.filter(|_| !self.is_over) else {
            self.is_over = true;
            return false;
        };
        self.bytes.reserve_exact(wanted - self.bytes.len());
        memory::hold(self.bytes.capacity() - capacity);
        true
    }

    /// Returns the number of bytes for which memory is allocated.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Reserves room for `more` bytes, if they fit.
    pub fn reserve(&mut self, more: usize) {
        if more > self.bytes.capacity() - self.bytes.len() {
            self.make_room(more);
        }
    }

    /// Returns whether something did not fit.
    ///
    /// # Errors
    /// [`BudgetError::Memory`].
    #[inline]
    pub fn check(&self) -> Result<(), BudgetError> {
        if self.is_over {
            Err(memory::exceeded())
        } else {
            Ok(())
        }
    }

    /// Removes the bytes from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.is_over = false;
    }

    /// Removes the last byte.
    pub fn pop(&mut self) -> Option<u8> {
        self.bytes.pop()
    }

    /// Appends or removes bytes at the end.
    pub fn resize(&mut self, length: usize, byte: u8) {
        let more = length.saturating_sub(self.bytes.len());
        if more <= self.bytes.capacity() - self.bytes.len() || self.make_room(more) {
            self.bytes.resize(length, byte);
        }
    }

    /// Removes the bytes from `at` on and returns them.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Vec<u8> {
        self.bytes.split_off(at)
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Inserts bytes at `at`, or none of them if they do not fit.
    pub fn insert_slice(&mut self, at: usize, bytes: &[u8]) {
        let at = at.min(self.bytes.len());
        let before = self.bytes.len();
        self.extend_from_slice(bytes);
        if self.bytes.len() > before
            && let Some(tail) = self.bytes.get_mut(at..)
        {
            tail.rotate_right(bytes.len());
        }
    }

    /// Removes the first byte.
    pub fn remove_first(&mut self) {
        if !self.bytes.is_empty() {
            self.bytes.remove(0);
        }
    }

    /// Returns the bytes. Their memory is no longer counted.
    pub fn into_vec(mut self) -> Vec<u8> {
        memory::release(self.bytes.capacity());
        std::mem::take(&mut self.bytes)
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::new();
        buffer.extend_from_slice(bytes);
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        memory::release(self.bytes.capacity());
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Extend<u8> for Buffer {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        for byte in bytes {
            if self.is_over {
                break;
            }
            self.push(byte);
        }
    }
}

impl<'b> Extend<&'b u8> for Buffer {
    fn extend<I: IntoIterator<Item = &'b u8>>(&mut self, bytes: I) {
        self.extend(bytes.into_iter().copied());
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Buffer {
    fn eq(&self, other: &T) -> bool {
        self.bytes == other.as_ref()
    }
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.bytes), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_beyond_the_memory_that_is_left() {
        let scope = memory::Scope::open(10_000);
        let mut out = Buffer::new();
        for _ in 0..100_000 {
            out.push(b'x');
        }
        assert_eq!(out.check(), Err(BudgetError::Memory { limit: 10_000 }));
        assert!(out.len() <= 10_000, "{}", out.len());
        drop(out);
        assert!(memory::fits(10_000));
        drop(scope);
    }

    #[test]
    fn bytes_are_inserted_in_the_middle() {
        let mut out = Buffer::new();
        out.extend_from_slice(b"ad");
        out.insert_slice(1, b"bc");
        assert_eq!(out, b"abcd");
    }
}
