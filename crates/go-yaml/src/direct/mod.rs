//! The direct reader: reads common documents in one pass, without tokens or marks.
//!
//! Nearly all YAML around Kubernetes consists of block maps and lists, scalars and JSON-like
//! collections. Such a text is read into a [`Tape`] whose strings are slices of it. This reader
//! declines everything else: anchors, tags, directives, complex keys, tabs between tokens, and
//! everything that may be an error. Declined texts are read by [`crate::parser`], which supports
//! all of YAML and words the errors. This reader therefore never fails: it returns what the parser
//! would return, or nothing.
//!
//! With it, the charts of `docs/contributing/benchmarks.md` render three times as fast in the median, and 1.8 times with loading
//! and compiling. Tests compare it with the parser on random texts.

mod block;
mod de;
mod flow;
mod scalar;

use std::borrow::Cow;

use bounded::memory::Held;
use bounded::{Budget, BudgetError};

use crate::Selection;
use crate::resolve::{Scalar, resolve_plain};

/// The reader declines a text.
struct Declined;

impl From<BudgetError> for Declined {
    fn from(_: BudgetError) -> Self {
        Self
    }
}

/// Entries of a tape for which there is always room.
const ROOM: usize = 8;

/// Maximum length of a key, below the limit of YAML for text before the `:`.
const MAX_KEY_LENGTH: usize = 1000;

/// A document: its nodes in the order of the text, with the content of a collection right after it.
#[derive(Debug)]
pub(crate) struct Tape<'t> {
    entries: Vec<Entry<'t>>,
    _held: Held,
}

/// A node of a [`Tape`].
#[derive(Debug)]
enum Entry<'t> {
    Scalar(Scalar<'t>),
    /// A list, with the index after its last item.
    List(usize),
    Map {
        /// The index after the last value. Keys, which are strings, and values alternate.
        end: usize,
        /// Whether there may be duplicate keys.
        repeats: bool,
    },
}

/// Reads a part of the first document of a text returned by [`simple_text`], all of which is checked. Returns `None`
/// if it uses anything that this reader does not support.
pub(crate) fn read<'t>(text: &'t str, part: Selection, limits: &Budget) -> Option<Tape<'t>> {
    let mut reader = DirectReader::new(text, part, limits)?;
    reader.document()?;
    Some(Tape {
        entries: reader.tape,
        _held: reader.held,
    })
}

/// Returns the text if it has only characters with the same meaning everywhere: no line break but
/// the line feed, no byte-order mark, nothing that YAML forbids. Carriage returns before line feeds
/// are removed, where they have no meaning.
pub(crate) fn simple_text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(bytes).ok()?;
    if is_printable(bytes) {
        return Some(Cow::Borrowed(text));
    }
    let text = if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n"))
    } else {
        Cow::Borrowed(text)
    };
    let fits = |c| {
        crate::tree::allowed(c)
            && !matches!(c, '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
    };
    text.chars().all(fits).then_some(text)
}

/// Returns whether there are only printable ASCII characters, line feeds and tabs.
fn is_printable(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    let mut last = [b' '; 8];
    last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    let others = words.iter().chain([&last]);
    others.fold(0, |others, word| others | unprintable(*word)) == 0
}

/// Marks the bytes that [`is_printable`] excludes with their highest bit. Programs that are optimized for size have no
/// vectorized loops, so that this handles eight bytes at once without them.
fn unprintable(bytes: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(bytes);
    // For bytes without the highest bit, nothing is carried to the next byte.
    let below = |word: u64, limit: u8| !((word | HIGH) - ONES * u64::from(limit)) & HIGH;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let controls = below(word, b' ') & !equal(b'\n') & !equal(b'\t');
    word & HIGH | controls | equal(0x7f)
}

/// A text and the reading position.
struct DirectReader<'t, 'b> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    /// Start of the current line.
    line: usize,
    /// The column of the next block node; -1 at the end of the document.
    column: isize,
    limits: &'b Budget,
    /// The part of the next node that is put on the tape; `None` if it is only checked.
    part: Option<Selection>,
    tape: Vec<Entry<'t>>,
    held: Held,
    /// Fingerprints of the keys of all open maps.
    fingerprints: Vec<u64>,
}

impl<'t, 'b> DirectReader<'t, 'b> {
    fn new(text: &'t str, part: Selection, limits: &'b Budget) -> Option<Self> {
        let capacity = match part {
            // A node of a manifest takes about sixteen bytes of text, in a values file more.
            Selection::Whole => text.len() / 32 + 1,
            _ => 4 * ROOM,
        };
        limits.memory(capacity * size_of::<Entry<'_>>()).ok()?;
        limits.step(text.len() as u64 / 64).ok()?;
        Some(Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            line: 0,
            column: -1,
            limits,
            part: Some(part),
            tape: Vec::with_capacity(capacity),
            held: Held::new(capacity * size_of::<Entry<'_>>()),
            fingerprints: Vec::new(),
        })
    }

    fn document(&mut self) -> Option<()> {
        self.skip_to_next_node()?;
        if self.at_separator() {
            self.at += 3;
            self.end_line()?;
        }
        if self.column < 0 {
            self.push_null()?;
        } else {
            self.block_node(-1)?;
        }
        // What follows a separator is another document.
        let ends = self.column < 0 && (self.at >= self.bytes.len() || self.at_separator());
        ends.then_some(())
    }

    /// Returns whether there is a document separator (`---`) here.
    fn at_separator(&self) -> bool {
        self.at == self.line && self.here().starts_with(b"---") && self.ends_word(3)
    }

    // === Characters ===

    /// Returns the byte at some distance, or 0 beyond the end.
    #[inline]
    fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn here(&self) -> &'t [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns whether there is a blank, a line break or the end at some distance.
    #[inline]
    fn ends_word(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t' | b'\n' | 0)
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while self.byte(0) == b' ' {
            self.at += 1;
        }
    }

    /// Advances to the end of the line.
    fn skip_line(&mut self) {
        let rest = memchr::memchr(b'\n', self.here());
        self.at = rest.map_or(self.bytes.len(), |rest| self.at + rest);
    }

    /// Skips spaces and a comment up to the end of the line, and advances to the next node.
    /// Anything else is declined.
    fn end_line(&mut self) -> Option<()> {
        let start = self.at;
        self.skip_spaces();
        match self.byte(0) {
            b'\n' | 0 => {}
            b'#' if self.at > start => self.skip_line(),
            _ => return None,
        }
        self.skip_to_next_node()
    }

    /// Skips blank lines up to the first non-blank character of a line. Returns the number of line
    /// breaks.
    #[inline]
    fn skip_blank_lines(&mut self) -> Option<usize> {
        let mut breaks = 0;
        loop {
            match self.byte(0) {
                b'\n' => {
                    self.at += 1;
                    self.line = self.at;
                    breaks += 1;
                }
                b' ' => self.at += 1,
                b'\t' => return None,
                _ => return Some(breaks),
            }
        }
    }

    /// Skips blank lines and comments up to the next node, starting within the indentation of a
    /// line or at its end.
    fn skip_to_next_node(&mut self) -> Option<()> {
        self.skip_blank_lines()?;
        while self.byte(0) == b'#' {
            self.skip_line();
            self.skip_blank_lines()?;
        }
        self.column = if self.at >= self.bytes.len() || self.at_marker() {
            -1
        } else {
            self.column_here()?
        };
        Some(())
    }

    /// Returns whether the start of the line may be a document marker.
    fn at_marker(&self) -> bool {
        self.at == self.line && (self.here().starts_with(b"---") || self.here().starts_with(b"..."))
    }

    /// Returns the column, if only ASCII characters precede it.
    fn column_here(&self) -> Option<isize> {
        isize::try_from(self.at - self.line).ok()
    }

    // === Nodes ===

    /// Runs `read` one nesting level deeper.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let limits = self.limits;
        limits
            .descend(|| self.make_room().and_then(|()| read(self)).ok_or(Declined))
            .ok()
    }

    /// Makes room on the tape before it is full. Returns nothing if it does not fit.
    fn make_room(&mut self) -> Option<()> {
        let (length, capacity) = (self.tape.len(), self.tape.capacity());
        if capacity - length < ROOM {
            let more = capacity.max(ROOM);
            let bytes = more * size_of::<Entry<'_>>();
            self.limits.memory(bytes.saturating_mul(2)).ok()?;
            self.tape.reserve_exact(more);
            self.held.add(bytes);
        }
        Some(())
    }

    #[inline]
    fn push(&mut self, scalar: Scalar<'t>) {
        if self.part.is_some() {
            self.tape.push(Entry::Scalar(scalar));
        }
    }

    /// Adds a missing value, which is not a nested node.
    fn push_null(&mut self) -> Option<()> {
        self.make_room()?;
        self.push(Scalar::Null);
        Some(())
    }

    /// Adds a plain scalar on one line.
    fn push_plain(&mut self, text: &'t str) -> Option<()> {
        let scalar = resolve_plain(text);
        // JSON has no infinity.
        if matches!(scalar, Scalar::Float(value) if !value.is_finite()) {
            return None;
        }
        self.push(scalar);
        Some(())
    }

    /// Begins a map; returns the argument of [`DirectReader::end_map`].
    fn begin_map(&mut self) -> Map {
        let map = Map {
            part: self.part,
            at: self.tape.len(),
            fingerprints: self.fingerprints.len(),
        };
        if self.part.is_some() {
            self.tape.push(Entry::Map {
                end: 0,
                repeats: false,
            });
        }
        map
    }

    /// Adds a key, if its value is part of the tape.
    #[inline]
    fn push_key(&mut self, map: &Map, key: Key<'t>) -> Option<()> {
        let Some(part) = map.part else {
            return key.is_text().then_some(());
        };
        let key = key.text()?;
        self.part = part.below(&key);
        if self.part.is_some() {
            self.fingerprints.push(fingerprint(key.as_bytes()));
            self.push(Scalar::Str(key));
        }
        Some(())
    }

    fn end_map(&mut self, map: &Map) {
        self.part = map.part;
        if map.part.is_none() {
            return;
        }
        let end = self.tape.len();
        let fingerprints = self.fingerprints.get_mut(map.fingerprints..);
        let fingerprints = fingerprints.unwrap_or_default();
        fingerprints.sort_unstable();
        let repeats = fingerprints
            .windows(2)
            .any(|pair| pair.first() == pair.last());
        self.fingerprints.truncate(map.fingerprints);
        if let Some(entry) = self.tape.get_mut(map.at) {
            *entry = Entry::Map { end, repeats };
        }
    }

    /// Begins a list; returns the argument of [`DirectReader::end_list`].
    fn begin_list(&mut self) -> List {
        let list = List {
            part: self.part,
            at: self.tape.len(),
        };
        if let Some(part) = self.part {
            self.tape.push(Entry::List(0));
            self.part = part.of_items();
        }
        list
    }

    fn end_list(&mut self, list: &List) {
        self.part = list.part;
        if list.part.is_none() {
            return;
        }
        let end = self.tape.len();
        if let Some(entry) = self.tape.get_mut(list.at) {
            *entry = Entry::List(end);
        }
    }
}

/// A map that is being read.
struct Map {
    part: Option<Selection>,
    /// The index of its entry.
    at: usize,
    /// The number of fingerprints of the keys of the maps around it.
    fingerprints: usize,
}

/// A list that is being read.
struct List {
    part: Option<Selection>,
    /// The index of its entry.
    at: usize,
}

/// The key of an entry in its source form.
enum Key<'t> {
    Plain(&'t str),
    Quoted(Cow<'t, str>),
}

impl<'t> Key<'t> {
    /// Returns whether [`Key::text`] returns something.
    #[inline]
    fn is_text(&self) -> bool {
        match self {
            Self::Quoted(_) => true,
            // Only numbers and short words are not text.
            Self::Plain(text) => match text.as_bytes() {
                [first, ..] if first.is_ascii_alphabetic() => {
                    text.len() != 4 || !matches!(*text, "null" | "Null" | "NULL")
                }
                _ => Self::Plain(text).text().is_some(),
            },
        }
    }

    /// Returns the key as in JSON: as text.
    fn text(self) -> Option<Cow<'t, str>> {
        let text = match self {
            Self::Quoted(text) => return Some(text),
            Self::Plain("<<") => return None,
            Self::Plain(text) => text,
        };
        match resolve_plain(text) {
            Scalar::Str(text) => Some(text),
            Scalar::Bool(true) => Some("true".into()),
            Scalar::Bool(false) => Some("false".into()),
            Scalar::Int(value) => Some(value.to_string().into()),
            Scalar::Float(value) => Some(crate::float::key(value).into()),
            Scalar::Null | Scalar::Uint(_) => None,
        }
    }
}

/// Returns a hash that is equal for equal keys and nearly always distinct otherwise.
fn fingerprint(key: &[u8]) -> u64 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |print: u64, word: u64| (print.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    let (words, _) = key.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    mix(words.fold(key.len() as u64, mix), last_word(key))
}

/// Returns the last bytes, some of which may be in another word, too: a loop over them takes longer.
fn last_word(key: &[u8]) -> u64 {
    let half = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
    match key {
        [_, _, _, _, _, _, _, _, ..] => {
            key.last_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        }
        [_, _, _, _, ..] => {
            u64::from(half(key.first_chunk())) | u64::from(half(key.last_chunk())) << 32
        }
        [first, second, .., last] => {
            u64::from(*first) | u64::from(*second) << 8 | u64::from(*last) << 16
        }
        [first, last] => u64::from(*first) | u64::from(*last) << 8,
        [only] => u64::from(*only),
        [] => 0,
    }
}

#[cfg(test)]
mod tests;
