//! Writes YAML as Go's packages do, without building a tree of the document first.
//!
//! [`Emitter`] is told what to write in order; it knows the rules of layout, quoting and folding
//! of the two versions. Maps must be given in the order of [`key_sort::less`].

pub mod key_sort;
mod scalar;

pub use scalar::Version;
use scalar::{Analysis, Style};

/// Where a node stands, which decides how it is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Root,
    Item,
    Value,
}

/// A writer of one YAML document.
pub struct Emitter<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
    column: usize,
    indent: isize,
    indents: Vec<isize>,
    /// Whether the last thing written was white space, or an indicator that needs none after it.
    whitespace: bool,
    /// Whether only indentation was written in this line.
    indention: bool,
    context: Context,
}

const BEST_INDENT: isize = 2;
/// The longest key that stands before its `:` in one line.
const SIMPLE_KEY_LIMIT: usize = 128;

impl<'o> Emitter<'o> {
    /// A writer that appends to `out`.
    pub fn new(out: &'o mut Vec<u8>, version: Version) -> Self {
        Self {
            out,
            version,
            column: 0,
            indent: -1,
            indents: Vec::new(),
            whitespace: true,
            indention: true,
            context: Context::Root,
        }
    }

    /// Writes a string, quoted or as a block where it must be.
    pub fn string(&mut self, text: &str) {
        let style = scalar::style_of(text, self.version);
        self.scalar(text, style, false);
    }

    /// Writes a text after a tag, such as `!!binary`.
    pub fn tagged(&mut self, tag: &str, text: &str) {
        let style = if text.contains('\n') {
            Style::Literal
        } else {
            Style::Plain
        };
        self.indented(|e| e.indicator(tag, true, false, false));
        self.scalar(text, style, false);
    }

    /// Writes a text that means something by itself: `null`, `true`, a number.
    pub fn plain(&mut self, text: &str) {
        self.indented(|e| e.write_simple_plain(text));
    }

    /// Writes a float as Go prints it.
    pub fn float(&mut self, value: f64) {
        self.plain(&crate::float::shortest(value));
    }

    /// Writes a float that went through Go's JSON, where whole numbers below 1e21 become integers.
    pub fn json_float(&mut self, value: f64) {
        self.plain(&crate::float::through_json(value));
    }

    /// Begins a list of `len` items, each announced by [`item`](Self::item).
    pub fn begin_list(&mut self, len: usize) {
        if len == 0 {
            self.indicator("[", true, true, false);
            self.indicator("]", false, false, false);
            return;
        }
        let compact = self.version == Version::V2;
        let indentless = compact && self.context == Context::Value && !self.indention;
        self.increase_indent(false, indentless);
    }

    /// Announces the next item of a list.
    pub fn item(&mut self) {
        self.write_indent();
        self.indicator("-", true, false, true);
        self.context = Context::Item;
    }

    /// Ends a list of `len` items.
    pub fn end_list(&mut self, len: usize) {
        if len > 0 {
            self.pop_indent();
        }
    }

    /// Begins a map of `len` entries, each announced by [`key`](Self::key).
    pub fn begin_map(&mut self, len: usize) {
        if len == 0 {
            self.indicator("{", true, true, false);
            self.indicator("}", false, false, false);
            return;
        }
        self.increase_indent(false, false);
    }

    /// Writes a key; its value follows.
    pub fn key(&mut self, text: &str) {
        self.write_indent();
        let style = scalar::style_of(text, self.version);
        let simple = text.len() <= SIMPLE_KEY_LIMIT && !text.chars().any(scalar::is_break);
        if simple {
            self.scalar(text, style, true);
            self.indicator(":", false, false, false);
        } else {
            self.indicator("?", true, false, true);
            self.context = Context::Value;
            self.scalar(text, style, false);
            self.write_indent();
            self.indicator(":", true, false, true);
        }
        self.context = Context::Value;
    }

    /// Ends a map of `len` entries.
    pub fn end_map(&mut self, len: usize) {
        if len > 0 {
            self.pop_indent();
        }
    }

    /// Ends the document with a line break.
    pub fn finish(mut self) {
        self.indent = -1;
        self.write_indent();
    }

    // === Layout ===

    fn increase_indent(&mut self, flow: bool, indentless: bool) {
        self.indents.push(self.indent);
        if self.indent < 0 {
            self.indent = if flow { BEST_INDENT } else { 0 };
        } else if !indentless {
            self.indent += BEST_INDENT;
        }
    }

    fn pop_indent(&mut self) {
        self.indent = self.indents.pop().unwrap_or(-1);
    }

    fn indented(&mut self, write: impl FnOnce(&mut Self)) {
        self.increase_indent(true, false);
        write(self);
        self.pop_indent();
    }

    fn put_break(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
    }

    fn write_indent(&mut self) {
        let indent = usize::try_from(self.indent).unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.put_break();
        }
        if self.column < indent {
            self.out.resize(self.out.len() + indent - self.column, b' ');
            self.column = indent;
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(
        &mut self,
        text: &str,
        need_whitespace: bool,
        is_whitespace: bool,
        is_indention: bool,
    ) {
        if need_whitespace && !self.whitespace {
            self.out.push(b' ');
            self.column += 1;
        }
        self.out.extend_from_slice(text.as_bytes());
        self.column += text.len();
        self.whitespace = is_whitespace;
        self.indention = self.indention && is_indention;
    }

    fn write(&mut self, c: char) {
        self.out
            .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    // === Scalars ===

    fn scalar(&mut self, text: &str, wanted: Style, simple_key: bool) {
        if wanted == Style::SimplePlain {
            if self.fits(text) || simple_key {
                return self.indented(|e| e.write_simple_plain(text));
            }
            return self.indented(|e| e.write_plain(text, !simple_key));
        }
        let analysis = Analysis::of(text, self.version);
        let style = analysis.choose(wanted, simple_key);
        self.indented(|e| match style {
            Style::SimplePlain | Style::Plain => e.write_plain(text, !simple_key),
            Style::SingleQuoted => e.write_single_quoted(text, !simple_key),
            Style::DoubleQuoted => e.write_double_quoted(text, !simple_key),
            Style::Literal => e.write_literal(text),
        });
    }

    /// Whether a text stays within the width, so that nothing can be folded.
    fn fits(&self, text: &str) -> bool {
        self.version == Version::V3 || self.column + text.len() < self.version.width()
    }

    fn write_simple_plain(&mut self, text: &str) {
        if !self.whitespace && !text.is_empty() {
            self.out.push(b' ');
            self.column += 1;
        }
        self.out.extend_from_slice(text.as_bytes());
        self.column += text.len();
        self.whitespace = false;
        self.indention = false;
    }

    fn write_plain(&mut self, text: &str, allow_breaks: bool) {
        if !self.whitespace && !text.is_empty() {
            self.out.push(b' ');
            self.column += 1;
        }
        let width = self.version.width();
        let mut spaces = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' {
                let next_is_space = chars.peek() == Some(&' ');
                if allow_breaks && !spaces && self.column > width && !next_is_space {
                    self.write_indent();
                } else {
                    self.write(c);
                }
                spaces = true;
            } else {
                self.write(c);
                self.indention = false;
                spaces = false;
            }
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn write_single_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.indicator("'", true, false, false);
        let width = self.version.width();
        let (mut spaces, mut breaks) = (false, false);
        let mut chars = text.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            if c == ' ' {
                let inner = i > 0 && next.is_some() && next != Some(' ');
                if allow_breaks && !spaces && self.column > width && inner {
                    self.write_indent();
                } else {
                    self.write(c);
                }
                spaces = true;
            } else if scalar::is_break(c) {
                if !breaks && c == '\n' {
                    self.put_break();
                }
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if c == '\'' {
                    self.write(c);
                }
                self.write(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_double_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.indicator("\"", true, false, false);
        let width = self.version.width();
        let mut spaces = false;
        // Go escapes every character of a text that begins with a byte-order mark.
        let escape_all = text.starts_with('\u{feff}');
        let mut chars = text.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            if c == ' ' && !escape_all {
                let next = chars.peek().map(|(_, next)| *next);
                if allow_breaks && !spaces && self.column > width && i > 0 && next.is_some() {
                    self.write_indent();
                    if next == Some(' ') {
                        self.write('\\');
                    }
                } else {
                    self.write(c);
                }
                spaces = true;
                continue;
            }
            spaces = false;
            if !escape_all
                && c != '"'
                && c != '\\'
                && scalar::is_printable(c)
                && !scalar::is_break(c)
            {
                self.write(c);
            } else {
                self.write_escape(c);
            }
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_escape(&mut self, c: char) {
        let escape = scalar::escape(c);
        self.out.extend_from_slice(escape.as_bytes());
        self.column += escape.len();
    }

    fn write_literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        let first = text.chars().next();
        if first.is_some_and(|c| c == ' ' || scalar::is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut tail = text.chars().rev();
        let last_breaks = tail.next().is_some_and(scalar::is_break);
        if !last_breaks {
            self.indicator("-", false, false, false);
        } else if tail.next().is_none_or(scalar::is_break) {
            self.indicator("+", false, false, false);
        }
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        for c in text.chars() {
            if scalar::is_break(c) {
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.write(c);
                self.indention = false;
                breaks = false;
            }
        }
    }

    fn write_break(&mut self, c: char) {
        if c == '\n' {
            self.put_break();
        } else {
            self.write(c);
            self.column = 0;
        }
        self.indention = true;
    }
}
