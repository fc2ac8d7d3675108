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
    let text = utf8(text)?;
    let mut parser = Parser::new(&text, limits);
    let root = parser.next_document()?.unwrap_or_else(Node::null);
    Ok((root, parser.into_held()))
}

/// Decodes the text as UTF-8, or as UTF-16 if it has such a byte-order mark.
pub(crate) fn utf8(text: &[u8]) -> Result<std::borrow::Cow<'_, str>, Error> {
    let wide = |big: bool, bytes: &[u8]| {
        let units = bytes
            .chunks_exact(2)
            .filter_map(|pair| <[u8; 2]>::try_from(pair).ok());
        let units = units.map(|p| {
            if big {
                u16::from_be_bytes(p)
            } else {
                u16::from_le_bytes(p)
            }
        });
        char::decode_utf16(units).collect::<Result<String, _>>()
    };
    let decoded = match text {
        [0xFE, 0xFF, rest @ ..] => wide(true, rest).map(Into::into).ok(),
        [0xFF, 0xFE, rest @ ..] => wide(false, rest).map(Into::into).ok(),
        _ => std::str::from_utf8(text).map(Into::into).ok(),
    };
    let decoded: std::borrow::Cow<'_, str> =
        decoded.ok_or_else(|| Error::at("invalid leading UTF-8 octet", Mark::default()))?;
    match decoded.chars().position(|c| !allowed(c)) {
        Some(_) => Err(Error::at(
            "control characters are not allowed",
            Mark::default(),
        )),
        None => Ok(decoded),
    }
}

/// Returns whether a YAML text may contain the character.
pub(crate) fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
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
