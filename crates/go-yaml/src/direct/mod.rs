//! The direct reader: documents of the plain kind in one pass, without tokens or marks.
//!
//! Nearly all YAML around Kubernetes is made of block maps and lists, scalars and JSON-like
//! collections. Such a text is read here into a [`Tape`] whose strings are slices of it. Whatever
//! this reader does not know for certain, it declines: anchors, tags, directives, complex keys,
//! tabs between tokens, and everything that may be a mistake. What it declines goes to
//! [`crate::parser`], which knows all of YAML and words the errors. So this reader never fails:
//! it gives what the parser would give, or nothing.

mod block;
mod de;
mod flow;
mod scalar;

use std::borrow::Cow;

use crate::resolve::{Scalar, resolve_plain};

/// Levels of nesting that are read here; few documents have ten.
const MAX_DEPTH: usize = 100;

/// Fewer than the characters that may come before the `:` of a key.
const LONGEST_KEY: usize = 1000;

/// A document: its nodes in the order of the text, what is in a collection right after it.
#[derive(Debug)]
pub(crate) struct Tape<'t>(Vec<Entry<'t>>);

/// A node of a [`Tape`].
#[derive(Debug)]
enum Entry<'t> {
    Scalar(Scalar<'t>),
    /// A list; the index after its last item.
    List(usize),
    Map {
        /// The index after the last value. Keys, which are strings, and values alternate.
        end: usize,
        /// Whether a key may stand twice.
        repeats: bool,
    },
}

/// Reads the first document of a text that [`plain_kind`] gives; `None` when it has more than this
/// reader knows.
pub(crate) fn read(text: &str) -> Option<Tape<'_>> {
    let mut reader = Reader::new(text);
    reader.document()?;
    Some(Tape(reader.tape))
}

/// The text, if it has only characters that mean the same everywhere: no line break but the line
/// feed, no byte-order mark, nothing that YAML forbids. Carriage returns before line feeds are
/// taken out, where they never mean anything.
pub(crate) fn plain_kind(bytes: &[u8]) -> Option<Cow<'_, str>> {
    // Without a branch, so that many bytes are looked at together.
    let odd = bytes.iter().fold(0, |odd, byte| {
        let is_printable = u8::from((b' '..=b'~').contains(byte));
        odd | (1 ^ is_printable) & u8::from(*byte != b'\n') & u8::from(*byte != b'\t')
    });
    let text = std::str::from_utf8(bytes).ok()?;
    if odd == 0 {
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

/// A text and how far it has been read.
struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    /// Where the line at hand begins.
    line: usize,
    /// The column of the block node that comes next; -1 at the end of the document.
    column: isize,
    depth: usize,
    tape: Vec<Entry<'t>>,
    /// Fingerprints of the keys of all maps that are being read.
    prints: Vec<u64>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            line: 0,
            column: -1,
            depth: 0,
            // A node of a manifest takes some sixteen bytes, one of a values file more.
            tape: Vec::with_capacity(text.len() / 32 + 1),
            prints: Vec::new(),
        }
    }

    fn document(&mut self) -> Option<()> {
        self.settle()?;
        if self.at_separator() {
            self.at += 3;
            self.end_line()?;
        }
        if self.column < 0 {
            self.push(Scalar::Null);
        } else {
            self.block_node(-1)?;
        }
        // What follows a separator is another document.
        let ends = self.column < 0 && (self.at >= self.bytes.len() || self.at_separator());
        ends.then_some(())
    }

    /// Whether `---` stands here, which separates documents.
    fn at_separator(&self) -> bool {
        self.at == self.line && self.here().starts_with(b"---") && self.ends_word(3)
    }

    // === Characters ===

    /// The byte at some distance, 0 beyond the end.
    #[inline]
    fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn here(&self) -> &'t [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Whether a blank, a line break or the end stands at some distance.
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

    /// Goes to the end of the line.
    fn skip_line(&mut self) {
        let rest = memchr::memchr(b'\n', self.here());
        self.at = rest.map_or(self.bytes.len(), |rest| self.at + rest);
    }

    /// Reads spaces and a comment to the end of the line, and goes on to the next node. Only a
    /// comment may stand there.
    fn end_line(&mut self) -> Option<()> {
        let start = self.at;
        self.skip_spaces();
        match self.byte(0) {
            b'\n' | 0 => {}
            b'#' if self.at > start => self.skip_line(),
            _ => return None,
        }
        self.settle()
    }

    /// Goes over blank lines to the first character of the next line that is not blank; gives the
    /// number of line breaks.
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

    /// Goes over blank lines and comments to the next node, from within the indentation of a line
    /// or from its end.
    fn settle(&mut self) -> Option<()> {
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

    /// Whether what stands at the start of a line may be a marker between documents.
    fn at_marker(&self) -> bool {
        self.at == self.line && (self.here().starts_with(b"---") || self.here().starts_with(b"..."))
    }

    /// The column, where only ASCII characters come before.
    fn column_here(&self) -> Option<isize> {
        isize::try_from(self.at - self.line).ok()
    }

    // === Nodes ===

    /// Runs `read` one level deeper.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        read(self)?;
        self.depth -= 1;
        Some(())
    }

    #[inline]
    fn push(&mut self, scalar: Scalar<'t>) {
        self.tape.push(Entry::Scalar(scalar));
    }

    /// Adds a plain scalar that stands on one line.
    fn push_plain(&mut self, text: &'t str) -> Option<()> {
        let scalar = resolve_plain(text);
        // JSON has no infinity.
        if matches!(scalar, Scalar::Float(value) if !value.is_finite()) {
            return None;
        }
        self.push(scalar);
        Some(())
    }

    /// Begins a map; gives what [`Reader::end_map`] wants to know.
    fn begin_map(&mut self) -> (usize, usize) {
        let start = (self.tape.len(), self.prints.len());
        self.tape.push(Entry::Map {
            end: 0,
            repeats: false,
        });
        start
    }

    fn push_key(&mut self, key: Key<'t>) -> Option<()> {
        let key = key.text()?;
        self.prints.push(fingerprint(key.as_bytes()));
        self.push(Scalar::Str(key));
        Some(())
    }

    fn end_map(&mut self, (at, first): (usize, usize)) {
        let end = self.tape.len();
        let prints = self.prints.get_mut(first..).unwrap_or_default();
        prints.sort_unstable();
        let repeats = prints.windows(2).any(|pair| pair.first() == pair.last());
        self.prints.truncate(first);
        if let Some(entry) = self.tape.get_mut(at) {
            *entry = Entry::Map { end, repeats };
        }
    }

    /// Begins a list; gives what [`Reader::end_list`] wants to know.
    fn begin_list(&mut self) -> usize {
        self.tape.push(Entry::List(0));
        self.tape.len() - 1
    }

    fn end_list(&mut self, at: usize) {
        let end = self.tape.len();
        if let Some(entry) = self.tape.get_mut(at) {
            *entry = Entry::List(end);
        }
    }
}

/// The key of an entry as it is written.
enum Key<'t> {
    Plain(&'t str),
    Quoted(Cow<'t, str>),
}

impl<'t> Key<'t> {
    /// The key as JSON has it: text.
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

/// Equal for equal keys, and nearly always different for others.
fn fingerprint(key: &[u8]) -> u64 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |print: u64, word: u64| (print.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    let (words, rest) = key.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest
        .iter()
        .fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(words.fold(key.len() as u64, mix), rest)
}

#[cfg(test)]
mod tests;
