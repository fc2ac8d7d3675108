//! Documents as trees of marked nodes, for readers that report where a mistake stands.
//!
//! ```
//! let root = go_yaml::tree::parse(b"a: 1\nb: [x]\n")?;
//! let (key, value) = &root.as_map().unwrap()[1];
//! assert_eq!((key.as_str(), key.line(), value.column()), (Some("b"), 2, 4));
//! # Ok::<(), go_yaml::Error>(())
//! ```

use std::sync::Arc;

use crate::mark::{Error, Mark};
use crate::parser::Parser;
use crate::resolve::{Scalar, resolve};
use crate::scanner::ScalarStyle;

/// A node of a document and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub(crate) mark: Mark,
    pub(crate) tag: Option<String>,
    pub(crate) kind: Kind,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Scalar {
        text: String,
        style: ScalarStyle,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// A repetition of an anchored node.
    Alias(Arc<Node>),
}

/// Reads the first document of a text. An empty text is null.
///
/// # Errors
/// When the text is not UTF-8 or not YAML.
pub fn parse(text: &[u8]) -> Result<Node, Error> {
    let text = utf8(text)?;
    let mut parser = Parser::new(&text);
    Ok(parser.next_document()?.unwrap_or_else(Node::null))
}

/// The text as UTF-8, from UTF-16 when a byte-order mark says so.
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

/// The characters that a YAML text may hold.
pub(crate) fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

impl Node {
    pub(crate) fn null() -> Self {
        let kind = Kind::Scalar {
            text: String::new(),
            style: ScalarStyle::Plain,
        };
        Self {
            mark: Mark::default(),
            tag: None,
            kind,
        }
    }

    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.mark.line + 1
    }

    /// The column in characters, counted from 1.
    pub fn column(&self) -> usize {
        self.mark.column + 1
    }

    /// The node that an alias repeats, else the node itself.
    pub(crate) fn target(&self) -> &Self {
        match &self.kind {
            Kind::Alias(node) => node,
            _ => self,
        }
    }

    /// What a scalar means by YAML 1.1's rules; `None` for lists and maps.
    pub(crate) fn scalar(&self) -> Option<Result<Scalar<'_>, Error>> {
        let node = self.target();
        match &node.kind {
            Kind::Scalar { text, style } => Some(resolve(
                node.tag.as_deref(),
                text,
                *style == ScalarStyle::Plain,
                node.mark,
            )),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.target().kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a map in the order of the text; keys may repeat, merges are not applied.
    pub fn as_map(&self) -> Option<&[(Self, Self)]> {
        match &self.target().kind {
            Kind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The text of a scalar that is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self.scalar()? {
            Ok(Scalar::Str(_)) => match &self.target().kind {
                Kind::Scalar { text, .. } => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.scalar()? {
            Ok(Scalar::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// A whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match self.scalar()? {
            Ok(Scalar::Int(value)) => Some(value),
            _ => None,
        }
    }

    /// Whether the node is null or empty.
    pub fn is_null(&self) -> bool {
        matches!(self.scalar(), Some(Ok(Scalar::Null)))
    }

    /// The node's type in words, with its article.
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
