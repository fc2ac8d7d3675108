//! Documents as trees of nodes with positions, for readers that report the position of an error.
//!
//! ```
//! let root = go_yaml::tree::parse(b"a: 1\nb: [x]\n")?;
//! let (key, value) = &root.as_map().unwrap()[1];
//! assert_eq!((key.as_str(), key.line(), value.column()), (Some("b"), 2, 4));
//! # Ok::<(), go_yaml::Error>(())
//! ```

use std::sync::Arc;

use bounded::memory::Held;
use bounded::{Budget, Limits};

use crate::de::is_merge;
use crate::mark::{Error, Mark};
use crate::parser::Parser;
use crate::resolve::{Scalar, resolve};
use crate::scanner::ScalarStyle;

/// A node of a document with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub(crate) mark: Mark,
    pub(crate) tag: Option<String>,
    pub(crate) kind: NodeKind,
}

/// The content of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeKind {
    Scalar {
        text: String,
        style: ScalarStyle,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// An anchored collection, which its aliases share.
    Anchored(Arc<Node>),
    /// An alias of an anchored node.
    Alias(Arc<Node>),
}

/// Parses the first document of a text. An empty text is null.
///
/// # Errors
/// If the text is not UTF-8 or not YAML.
pub fn parse(text: &[u8]) -> Result<Node, Error> {
    Ok(parse_within(text, &Budget::new(Limits::NESTING_ONLY))?.0)
}

/// Parses the first document of an untrusted text. The tree counts as memory as long as the second
/// result exists.
pub(crate) fn parse_within(text: &[u8], limits: &Budget) -> Result<(Node, Held), Error> {
    let decoded = match utf8(text) {
        Ok(decoded) => decoded,
        Err(error) => return before_error(text, error, limits),
    };
    let mut parser = Parser::new(&decoded, limits);
    let root = parser.next_document()?.unwrap_or_else(Node::null);
    Ok((root, parser.into_held()))
}

/// Number of bytes that Go's reader decodes at once.
const CHUNK: usize = 512;
/// Number of characters that Go's reader looks ahead at the start of a document.
const AHEAD: usize = 4;

/// Parses the first document of a text that has an invalid character. Go reads a text in chunks, and
/// does not see what is in a later chunk than the end of the document.
fn before_error(text: &[u8], error: Error, limits: &Budget) -> Result<(Node, Held), Error> {
    let invalid = error.offset();
    let valid = text.get(..invalid).unwrap_or_default();
    let Ok(valid) = std::str::from_utf8(valid) else {
        return Err(error);
    };
    let mut parser = Parser::new(valid, limits);
    match parser.next_document() {
        Ok(Some(node)) if (parser.position() + AHEAD).next_multiple_of(CHUNK) <= invalid => {
            Ok((node, parser.into_held()))
        }
        _ => Err(error),
    }
}

/// Decodes the text as UTF-8, or as UTF-16 if it has such a byte-order mark.
pub(crate) fn utf8(text: &[u8]) -> Result<std::borrow::Cow<'_, str>, Error> {
    let decoded: std::borrow::Cow<'_, str> = match text {
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes)?.into(),
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes)?.into(),
        _ => match std::str::from_utf8(text) {
            Ok(text) => text.into(),
            Err(error) => {
                let (valid, invalid) = text.split_at(error.valid_up_to());
                let valid = String::from_utf8_lossy(valid);
                let control = valid.char_indices().find(|(_, c)| !allowed(*c));
                return Err(match control {
                    Some((offset, _)) => Error::at(CONTROL, mark_of(&valid, offset)),
                    None => Error::at(invalid_octets(invalid), mark_of(&valid, valid.len())),
                });
            }
        },
    };
    match decoded.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((offset, _)) => Err(Error::at(CONTROL, mark_of(&decoded, offset))),
        None => Ok(decoded),
    }
}

const CONTROL: &str = "control characters are not allowed";

/// Returns what is wrong with the sequence of UTF-8 that a text begins with.
fn invalid_octets(text: &[u8]) -> &'static str {
    let width = match text.first() {
        Some(0xC0..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    match (text.get(..width), text) {
        (None, _) => "incomplete UTF-8 octet sequence",
        (Some([_, trailing @ ..]), _) if trailing.iter().any(|octet| octet & 0xC0 != 0x80) => {
            "invalid trailing UTF-8 octet"
        }
        (_, [0xC0 | 0xC1, ..] | [0xE0, 0x80..=0x9F, ..] | [0xF0, 0x80..=0x8F, ..]) => {
            "invalid length of a UTF-8 sequence"
        }
        _ => "invalid Unicode character",
    }
}

/// Decodes UTF-16 without its byte-order mark.
fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Error> {
    let pairs = bytes.chunks_exact(2);
    let is_incomplete = !pairs.remainder().is_empty();
    let mut units = pairs.filter_map(|pair| Some(unit(pair.try_into().ok()?)));
    let mut text = String::with_capacity(bytes.len());
    while let Some(first) = units.next() {
        let message = match first {
            0xDC00..=0xDFFF => "unexpected low surrogate area",
            0xD800..=0xDBFF => match units.next() {
                Some(second) => {
                    if let Some(Ok(c)) = char::decode_utf16([first, second]).next() {
                        text.push(c);
                        continue;
                    }
                    "expected low surrogate area"
                }
                None => "incomplete UTF-16 surrogate pair",
            },
            unit => {
                text.extend(char::from_u32(unit.into()));
                continue;
            }
        };
        return Err(Error::at(message, mark_of(&text, text.len())));
    }
    if is_incomplete {
        let mark = mark_of(&text, text.len());
        return Err(Error::at("incomplete UTF-16 character", mark));
    }
    Ok(text)
}

/// Returns the position of a byte.
fn mark_of(text: &str, offset: usize) -> Mark {
    let before = text.get(..offset).unwrap_or_default();
    let last = before.rsplit('\n').next().unwrap_or_default();
    Mark {
        offset,
        line: before.matches('\n').count(),
        column: last.chars().count(),
    }
}

/// Returns whether a YAML text may contain the character.
pub(crate) fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// Drops deep trees with enough stack, wherever that happens.
impl Drop for Node {
    fn drop(&mut self) {
        if !matches!(self.kind, NodeKind::Scalar { .. }) {
            let kind = std::mem::replace(&mut self.kind, NodeKind::List(Vec::new()));
            bounded::grow(|| drop(kind));
        }
    }
}

impl Node {
    pub(crate) fn null() -> Self {
        let kind = NodeKind::Scalar {
            text: String::new(),
            style: ScalarStyle::Plain,
        };
        Self {
            mark: Mark::default(),
            tag: None,
            kind,
        }
    }

    /// Returns the line, from 1.
    pub fn line(&self) -> usize {
        self.mark.line + 1
    }

    /// Returns the column in characters, from 1.
    pub fn column(&self) -> usize {
        self.mark.column + 1
    }

    /// Returns the target of an alias or anchor, otherwise the node itself.
    pub(crate) fn target(&self) -> &Self {
        match &self.kind {
            NodeKind::Alias(node) => node.target(),
            NodeKind::Anchored(node) => node,
            _ => self,
        }
    }

    /// Resolves a scalar by the rules of YAML 1.1; returns `None` for lists and maps.
    pub(crate) fn scalar(&self) -> Option<Result<Scalar<'_>, Error>> {
        let node = self.target();
        match &node.kind {
            NodeKind::Scalar { text, style } => Some(resolve(
                node.tag.as_deref(),
                text,
                *style == ScalarStyle::Plain,
                node.mark,
            )),
            _ => None,
        }
    }

    /// Returns the items of a list.
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.target().kind {
            NodeKind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the entries of a map in the order of the text; keys may repeat, merges are not
    /// applied.
    pub fn as_map(&self) -> Option<&[(Self, Self)]> {
        match &self.target().kind {
            NodeKind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// Returns the entries of a map, and those that it merges (`<<`) unless it has others of their keys. A merge of
    /// anything but maps is an entry like any other.
    pub fn merged(&self) -> Option<Vec<(&Self, &Self)>> {
        let entries = self.as_map()?.iter().map(|(key, value)| (key, value));
        let (merges, mut all): (Vec<_>, Vec<_>) =
            entries.partition(|(key, value)| is_merge(key) && value.sources().is_some());
        for source in merges
            .iter()
            .filter_map(|(_, value)| value.sources())
            .flatten()
        {
            for (key, value) in source.merged().unwrap_or_default() {
                if !all.iter().any(|(known, _)| known.text() == key.text()) {
                    all.push((key, value));
                }
            }
        }
        Some(all)
    }

    /// Returns the maps that a merge of this node merges.
    fn sources(&self) -> Option<&[Self]> {
        let sources = self.as_list().unwrap_or(std::slice::from_ref(self));
        let is_map = |source: &Self| source.as_map().is_some();
        sources.iter().all(is_map).then_some(sources)
    }

    /// Returns the text of a string scalar.
    pub fn as_str(&self) -> Option<&str> {
        match self.scalar()? {
            Ok(Scalar::Str(_)) => match &self.target().kind {
                NodeKind::Scalar { text, .. } => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the text of a scalar as it is written, without quotes.
    pub fn text(&self) -> Option<&str> {
        match &self.target().kind {
            NodeKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.scalar()? {
            Ok(Scalar::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns a whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match self.scalar()? {
            Ok(Scalar::Int(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns whether the node is null or empty.
    pub fn is_null(&self) -> bool {
        matches!(self.scalar(), Some(Ok(Scalar::Null)))
    }

    /// Returns the node's type in words, with an article.
    pub fn type_name(&self) -> &'static str {
        match self.scalar() {
            Some(Ok(Scalar::Null)) => "nothing",
            Some(Ok(Scalar::Bool(_))) => "a boolean",
            Some(Ok(Scalar::Int(_) | Scalar::Uint(_) | Scalar::Float(_))) => "a number",
            Some(_) => "a string",
            None if self.as_list().is_some() => "a list",
            None => "a map",
        }
    }
}
