//! Parses tokens into documents: the grammar of YAML 1.1, anchors and tags.

use std::collections::HashMap;
use std::sync::Arc;

use bounded::Budget;
use bounded::memory::Held;

use crate::mark::{Error, Mark};
use crate::scanner::{ScalarStyle, Scanner, Token, TokenKind};
use crate::tree::{Node, NodeKind};

/// The prefix of YAML's own tags, written `!!`.
const YAML_PREFIX: &str = "tag:yaml.org,2002:";

pub(crate) struct Parser<'a> {
    scanner: Scanner<'a>,
    anchors: HashMap<String, Option<Arc<Node>>>,
    handles: Vec<(String, String)>,
    limits: &'a Budget,
    /// The memory of all nodes.
    held: Held,
    implicit_start: bool,
    /// The error of the first alias that stands in its own anchor.
    cyclic: Option<Error>,
    first: bool,
}

/// The properties before a node's content.
#[derive(Default)]
struct Properties {
    anchor: Option<String>,
    tag: Option<String>,
    start: Option<Mark>,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str, limits: &'a Budget) -> Self {
        Self {
            scanner: Scanner::new(text, limits.limits().nesting),
            anchors: HashMap::new(),
            handles: Vec::new(),
            limits,
            held: Held::default(),
            implicit_start: true,
            cyclic: None,
            first: true,
        }
    }

    /// Returns the offset up to which the text was read.
    pub(crate) fn position(&self) -> usize {
        self.scanner.position()
    }

    fn next_is(&mut self, kind: &TokenKind) -> Result<bool, Error> {
        Ok(self.scanner.peek()?.kind == *kind)
    }

    fn skip_if(&mut self, kind: &TokenKind) -> Result<bool, Error> {
        let found = self.next_is(kind)?;
        if found {
            self.scanner.take()?;
        }
        Ok(found)
    }

    /// Returns an error at the next token, in what began at `context`.
    fn fail<T>(&mut self, message: &str, context: Mark) -> Result<T, Error> {
        let mark = self.scanner.peek()?.start;
        Err(Error::parser(message, mark, context))
    }

    /// Returns the next document, or `None` at the end of the text.
    pub(crate) fn next_document(&mut self) -> Result<Option<Node>, Error> {
        // An end marker before the first document is ignored.
        while !self.first && self.skip_if(&TokenKind::DocumentEnd)? {}
        self.first = false;
        if self.next_is(&TokenKind::StreamEnd)? {
            return Ok(None);
        }
        self.anchors.clear();
        let explicit = self.directives()?;
        let begins = if explicit {
            self.skip_if(&TokenKind::DocumentStart)?
        } else {
            self.implicit_start
        };
        let mark = self.scanner.peek()?.start;
        if !begins {
            return self.fail("did not find expected <document start>", mark);
        }
        let empty = matches!(
            self.scanner.peek()?.kind,
            TokenKind::VersionDirective { .. }
                | TokenKind::TagDirective { .. }
                | TokenKind::DocumentStart
                | TokenKind::DocumentEnd
                | TokenKind::StreamEnd
        ) && (explicit || !self.next_is(&TokenKind::DocumentEnd)?);
        let root = if empty {
            empty_scalar(mark)
        } else {
            self.node(true, false)?
        };
        self.implicit_start = self.skip_if(&TokenKind::DocumentEnd)?;
        match self.cyclic.take() {
            Some(error) => Err(error),
            None => Ok(Some(root)),
        }
    }

    /// Reads directives. Returns whether the document must begin with `---`.
    fn directives(&mut self) -> Result<bool, Error> {
        self.handles = vec![
            ("!".to_owned(), "!".to_owned()),
            ("!!".to_owned(), YAML_PREFIX.to_owned()),
        ];
        let mut any = false;
        let mut version_seen = false;
        loop {
            match self.scanner.peek()?.kind.clone() {
                TokenKind::VersionDirective { major, minor } => {
                    let mark = self.scanner.take()?.start;
                    if version_seen {
                        return Err(Error::parser("found duplicate %YAML directive", mark, mark));
                    }
                    if (major, minor) != (1, 1) {
                        let message = "found incompatible YAML document";
                        return Err(Error::parser(message, mark, mark));
                    }
                    version_seen = true;
                }
                TokenKind::TagDirective { handle, prefix } => {
                    self.scanner.take()?;
                    self.handles.insert(0, (handle, prefix));
                }
                kind => return Ok(any || kind == TokenKind::DocumentStart),
            }
            any = true;
        }
    }

    fn node(&mut self, block: bool, indentless: bool) -> Result<Node, Error> {
        let mark = self.scanner.peek()?.start;
        // Collections hold their nodes in lists that grow, with room to spare.
        self.held.add(2 * size_of::<Node>());
        let limits = self.limits;
        limits
            .descend(|| self.node_at_depth(block, indentless))
            .map_err(|error: Error| error.located(mark))
    }

    /// Returns the memory of all nodes.
    pub(crate) fn into_held(self) -> Held {
        self.held
    }

    fn node_at_depth(&mut self, block: bool, indentless: bool) -> Result<Node, Error> {
        if let TokenKind::Alias(name) = self.scanner.peek()?.kind.clone() {
            let mark = self.scanner.take()?.start;
            return match self.anchors.get(&name) {
                Some(Some(node)) => Ok(Node {
                    mark,
                    tag: None,
                    kind: NodeKind::Alias(Arc::clone(node)),
                }),
                // Go finds this when it decodes the document, if it could parse it.
                Some(None) => {
                    let message = format!("anchor '{name}' value contains itself");
                    self.cyclic.get_or_insert(Error::at(message, mark));
                    Ok(empty_scalar(mark))
                }
                None => Err(Error::at(
                    format!("unknown anchor '{name}' referenced"),
                    mark,
                )),
            };
        }
        let properties = self.properties()?;
        let start = properties.start.unwrap_or(self.scanner.peek()?.start);
        if let Some(name) = &properties.anchor {
            self.anchors.insert(name.clone(), None);
        }
        let content = match self.scanner.peek()?.kind.clone() {
            TokenKind::BlockEntry if indentless => self.indentless_sequence()?,
            TokenKind::Scalar { text, style } => {
                self.scanner.take()?;
                self.held.add(text.len());
                NodeKind::Scalar { text, style }
            }
            TokenKind::FlowSequenceStart => self.flow_sequence()?,
            TokenKind::FlowMappingStart => self.flow_mapping()?,
            TokenKind::BlockSequenceStart if block => self.block_sequence()?,
            TokenKind::BlockMappingStart if block => self.block_mapping()?,
            _ if properties.anchor.is_some() || properties.tag.is_some() => NodeKind::Scalar {
                text: String::new(),
                style: ScalarStyle::Plain,
            },
            _ => return self.fail("did not find expected node content", start),
        };
        let node = Node {
            mark: start,
            tag: properties.tag,
            kind: content,
        };
        if let Some(name) = properties.anchor {
            if let NodeKind::List(_) | NodeKind::Map(_) = node.kind {
                let (mark, tag) = (node.mark, node.tag.clone());
                let shared = Arc::new(node);
                self.anchors.insert(name, Some(Arc::clone(&shared)));
                let kind = NodeKind::Anchored(shared);
                return Ok(Node { mark, tag, kind });
            }
            self.anchors.insert(name, Some(Arc::new(node.clone())));
        }
        Ok(node)
    }

    /// Reads an anchor and a tag, in either order.
    fn properties(&mut self) -> Result<Properties, Error> {
        let mut found = Properties::default();
        loop {
            let Token { kind, start, .. } = self.scanner.peek()?.clone();
            match kind {
                TokenKind::Anchor(name) if found.anchor.is_none() => found.anchor = Some(name),
                TokenKind::Tag { handle, suffix } if found.tag.is_none() => {
                    found.tag = Some(self.expand_tag(&handle, &suffix, start)?);
                }
                _ => return Ok(found),
            }
            found.start.get_or_insert(start);
            self.scanner.take()?;
        }
    }

    fn expand_tag(&self, handle: &str, suffix: &str, mark: Mark) -> Result<String, Error> {
        if handle.is_empty() {
            return Ok(suffix.to_owned());
        }
        self.handles
            .iter()
            .find(|(known, _)| known == handle)
            .map(|(_, prefix)| format!("{prefix}{suffix}"))
            .ok_or_else(|| Error::parser("found undefined tag handle", mark, mark))
    }

    /// Reads a node of a block, or none if a token follows that `ends` the place where it may stand.
    fn block_node(
        &mut self,
        indentless: bool,
        ends: impl Fn(&TokenKind) -> bool,
    ) -> Result<Node, Error> {
        let token = self.scanner.peek()?;
        if ends(&token.kind) {
            return Ok(empty_scalar(token.start));
        }
        self.node(true, indentless)
    }

    fn block_sequence(&mut self) -> Result<NodeKind, Error> {
        let context = self.scanner.take()?.start;
        let mut items = Vec::new();
        loop {
            if self.skip_if(&TokenKind::BlockEntry)? {
                let ends =
                    |kind: &TokenKind| matches!(kind, TokenKind::BlockEntry | TokenKind::BlockEnd);
                items.push(self.block_node(false, ends)?);
            } else if self.skip_if(&TokenKind::BlockEnd)? {
                return Ok(NodeKind::List(items));
            } else {
                return self.fail("did not find expected '-' indicator", context);
            }
        }
    }

    fn indentless_sequence(&mut self) -> Result<NodeKind, Error> {
        let mut items = Vec::new();
        while self.skip_if(&TokenKind::BlockEntry)? {
            let ends = |kind: &TokenKind| *kind == TokenKind::BlockEntry || ends_entry(kind);
            items.push(self.block_node(false, ends)?);
        }
        Ok(NodeKind::List(items))
    }

    fn block_mapping(&mut self) -> Result<NodeKind, Error> {
        let context = self.scanner.take()?.start;
        let mut entries = Vec::new();
        loop {
            let key = if self.skip_if(&TokenKind::Key)? {
                self.block_node(true, ends_entry)?
            } else if self.skip_if(&TokenKind::BlockEnd)? {
                return Ok(NodeKind::Map(entries));
            } else {
                return self.fail("did not find expected key", context);
            };
            let value = if self.skip_if(&TokenKind::Value)? {
                self.block_node(true, ends_entry)?
            } else {
                empty_scalar(self.scanner.peek()?.start)
            };
            entries.push((key, value));
        }
    }

    fn flow_sequence(&mut self) -> Result<NodeKind, Error> {
        let context = self.scanner.take()?.start;
        let mut items = Vec::new();
        while !self.skip_if(&TokenKind::FlowSequenceEnd)? {
            if !items.is_empty() {
                if !self.skip_if(&TokenKind::FlowEntry)? {
                    return self.fail("did not find expected ',' or ']'", context);
                }
                if self.skip_if(&TokenKind::FlowSequenceEnd)? {
                    break;
                }
            }
            if self.next_is(&TokenKind::Key)? {
                // `[a: b]` is a list of one map.
                let mark = self.scanner.take()?.start;
                let entry = self.flow_entry(&TokenKind::FlowSequenceEnd)?;
                items.push(Node {
                    mark,
                    tag: None,
                    kind: NodeKind::Map(vec![entry]),
                });
            } else {
                items.push(self.node(false, false)?);
            }
        }
        Ok(NodeKind::List(items))
    }

    fn flow_mapping(&mut self) -> Result<NodeKind, Error> {
        let context = self.scanner.take()?.start;
        let mut entries = Vec::new();
        while !self.skip_if(&TokenKind::FlowMappingEnd)? {
            if !entries.is_empty() {
                if !self.skip_if(&TokenKind::FlowEntry)? {
                    return self.fail("did not find expected ',' or '}'", context);
                }
                if self.skip_if(&TokenKind::FlowMappingEnd)? {
                    break;
                }
            }
            if self.skip_if(&TokenKind::Key)? {
                entries.push(self.flow_entry(&TokenKind::FlowMappingEnd)?);
            } else {
                let key = self.node(false, false)?;
                let mark = self.scanner.peek()?.start;
                entries.push((key, empty_scalar(mark)));
            }
        }
        Ok(NodeKind::Map(entries))
    }

    /// Reads a key and its value after a `Key` token; either may be missing.
    fn flow_entry(&mut self, end: &TokenKind) -> Result<(Node, Node), Error> {
        let token = self.scanner.peek()?;
        let mark = token.start;
        let bare =
            matches!(token.kind, TokenKind::Value | TokenKind::FlowEntry) || token.kind == *end;
        let key = if bare {
            if *end == TokenKind::FlowSequenceEnd {
                // Go drops what follows a missing key in a list, even the end of the list.
                self.scanner.take()?;
            }
            empty_scalar(mark)
        } else {
            self.node(false, false)?
        };
        let mut value = empty_scalar(self.scanner.peek()?.start);
        if self.skip_if(&TokenKind::Value)? {
            let next = self.scanner.peek()?;
            if next.kind != TokenKind::FlowEntry && next.kind != *end {
                value = self.node(false, false)?;
            }
        }
        Ok((key, value))
    }
}

/// Returns whether a token ends a key or a value of a block map.
fn ends_entry(kind: &TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd
    )
}

fn empty_scalar(mark: Mark) -> Node {
    let mut node = Node::null();
    node.mark = mark;
    node
}
