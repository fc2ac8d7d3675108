//! Writes YAML like Go's packages, without building a tree of the document first.
//!
//! [`Emitter`] receives the content in order and applies the layout, quoting and folding rules of
//! both versions. Maps must be given in the order of [`key_sort::less`].

pub mod key_sort;
mod scalar;
mod write;

use bounded::Buffer;
use scalar::Style;
pub use scalar::Version;

/// The position of a node, which decides its layout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Root,
    Item,
    Value,
}

/// A writer of one YAML document.
pub struct Emitter<'o> {
    out: &'o mut Buffer,
    version: Version,
    column: usize,
    indent: isize,
    indents: Vec<isize>,
    /// Whether the last output was white space, or an indicator that needs none after it.
    whitespace: bool,
    /// Whether the current line has only indentation.
    indention: bool,
    context: Context,
}

const BEST_INDENT: isize = 2;
/// Maximum length of a key on one line with its `:`.
const SIMPLE_KEY_LIMIT: usize = 128;

impl<'o> Emitter<'o> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'o mut Buffer, version: Version) -> Self {
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

    /// Returns an error if the document does not fit into the memory that is left.
    ///
    /// # Errors
    /// [`bounded::BudgetError::Memory`].
    pub fn check(&self) -> Result<(), bounded::BudgetError> {
        self.out.check()
    }

    /// Writes a string, quoted or as a block if necessary.
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

    /// Writes a text with a meaning of its own: `null`, `true`, a number.
    pub fn plain(&mut self, text: &str) {
        self.indented(|e| e.write_simple_plain(text));
    }

    /// Writes a float as Go formats it.
    pub fn float(&mut self, value: f64) {
        self.plain(&crate::float::shortest(value));
    }

    /// Writes a float that passed through Go's JSON, where whole numbers below 1e21 become
    /// integers.
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
        self.key_of(simple, |e| e.scalar(text, style, simple));
    }

    /// Writes a key after a tag, such as `!!binary`; its value follows.
    pub fn tagged_key(&mut self, tag: &str, text: &str) {
        self.write_indent();
        let length = tag.len() + text.len();
        let simple = length <= SIMPLE_KEY_LIMIT && !text.chars().any(scalar::is_break);
        self.key_of(simple, |e| {
            if simple {
                e.indicator(tag, true, false, false);
                e.scalar(text, Style::Plain, true);
            } else {
                e.tagged(tag, text);
            }
        });
    }

    /// Writes a key with its indicators; a simple one stands on one line with its `:`.
    fn key_of(&mut self, simple: bool, write: impl FnOnce(&mut Self)) {
        if !simple {
            self.indicator("?", true, false, true);
            self.context = Context::Value;
        }
        write(self);
        if !simple {
            self.write_indent();
        }
        self.indicator(":", !simple, false, !simple);
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
}
