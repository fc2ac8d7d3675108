//! Actions: text, control structures, definitions.

use super::{Parser, Result, Scope, Tree, pos};
use crate::ast::{Branch, List, Node};
use crate::lex::{Kind, Token};
use crate::value::Str;

/// A control structure that has a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    If,
    With,
    Range,
}

impl Control {
    fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::With => "with",
            Self::Range => "range",
        }
    }

    fn keyword(self) -> Kind {
        match self {
            Self::If => Kind::If,
            Self::With => Kind::With,
            Self::Range => Kind::Range,
        }
    }
}

/// What ends a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    End,
    Else,
}

impl Stop {
    fn name(self) -> &'static str {
        match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        }
    }
}

enum Item {
    Node(Node),
    Stop(Stop),
}

impl Parser<'_> {
    /// The whole text: nodes and definitions.
    pub(super) fn top_level(&mut self) -> Result<List> {
        let mut list = List::default();
        loop {
            match self.peek().kind {
                Kind::Eof => return Ok(list),
                Kind::LeftDelim => {
                    let delimiter = self.next();
                    if self.next_non_space().kind == Kind::Define {
                        self.define()?;
                        continue;
                    }
                    self.backup2(delimiter);
                }
                _ => {}
            }
            match self.text_or_action()? {
                Item::Node(node) => list.nodes.push(node),
                Item::Stop(stop) => {
                    return Err(self.error(format!("unexpected {}", stop.name())));
                }
            }
        }
    }

    /// `{{define "name"}} … {{end}}`; the keyword was read.
    fn define(&mut self) -> Result<()> {
        const CONTEXT: &str = "define clause";
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        let token = self.next_non_space();
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return Err(self.unexpected(token, CONTEXT));
        }
        let name = self.unquote(token)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        self.body(name, CONTEXT)?;
        self.scope = outer;
        Ok(())
    }

    /// The nodes of a definition up to its end.
    fn body(&mut self, name: Str, context: &str) -> Result<()> {
        let (root, stop) = self.list()?;
        if stop != Stop::End {
            return Err(self.error(format!("unexpected {} in {context}", stop.name())));
        }
        self.add(Tree { name, root })
    }

    /// Nodes up to `{{end}}` or `{{else}}`.
    fn list(&mut self) -> Result<(List, Stop)> {
        let mut list = List::default();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => list.nodes.push(node),
                Item::Stop(stop) => return Ok((list, stop)),
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text(token.start..token.end))),
            Kind::LeftDelim => {
                self.scope.action = Some(token.start);
                let item = self.action()?;
                self.scope.action = None;
                Ok(item)
            }
            _ => Err(self.unexpected(token, "input")),
        }
    }

    /// What stands between delimiters; the left one was read.
    fn action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            Kind::Block => self.block()?,
            Kind::Break => self.jump(Node::Break, "{{break}}")?,
            Kind::Continue => self.jump(Node::Continue, "{{continue}}")?,
            Kind::Else => {
                let next = self.peek_non_space().kind;
                if !matches!(next, Kind::If | Kind::With) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Item::Stop(Stop::Else));
            }
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::Stop(Stop::End));
            }
            Kind::If => self.control(Control::If)?,
            Kind::Range => self.control(Control::Range)?,
            Kind::Template => self.template()?,
            Kind::With => self.control(Control::With)?,
            _ => {
                self.backup();
                let pos = pos(self.peek());
                Node::Action {
                    pos,
                    pipe: self.pipeline("command", Kind::RightDelim)?,
                }
            }
        };
        Ok(Item::Node(node))
    }

    fn jump(&mut self, node: Node, name: &str) -> Result<Node> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return Err(self.unexpected(token, name));
        }
        if self.scope.range_depth == 0 {
            return Err(self.error(format!("{name} outside {{{{range}}}}")));
        }
        Ok(node)
    }

    fn control(&mut self, control: Control) -> Result<Node> {
        self.nest(|parser| {
            let variables = parser.scope.variables.len();
            let branch = Box::new(parser.branch(control)?);
            parser.scope.variables.truncate(variables);
            Ok(match control {
                Control::If => Node::If(branch),
                Control::With => Node::With(branch),
                Control::Range => Node::Range(branch),
            })
        })
    }

    fn branch(&mut self, control: Control) -> Result<Branch> {
        let pipe = self.pipeline(control.name(), Kind::RightDelim)?;
        if control == Control::Range {
            self.scope.range_depth += 1;
        }
        let (list, stop) = self.list()?;
        if control == Control::Range {
            self.scope.range_depth -= 1;
        }
        let otherwise = match stop {
            Stop::End => None,
            // `{{else if}}` is `{{else}}{{if}}` that shares the end; `{{else with}}` likewise.
            Stop::Else if control != Control::Range && self.peek().kind == control.keyword() => {
                self.next();
                Some(List {
                    nodes: vec![self.control(control)?],
                })
            }
            Stop::Else => {
                let (otherwise, stop) = self.list()?;
                if stop != Stop::End {
                    return Err(self.error(format!("expected end; found {}", stop.name())));
                }
                Some(otherwise)
            }
        };
        Ok(Branch {
            pipe,
            list,
            otherwise,
        })
    }

    /// `{{block "name" pipeline}} … {{end}}`: a definition and its execution.
    fn block(&mut self) -> Result<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        self.nest(|parser| parser.body(name.clone(), CONTEXT))?;
        self.scope = outer;
        Ok(Node::Template {
            pos: pos(token),
            name,
            pipe: Some(pipe),
        })
    }

    /// `{{template "name" pipeline}}`, the pipeline being optional.
    fn template(&mut self) -> Result<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let mut pipe = None;
        if self.next_non_space().kind != Kind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(CONTEXT, Kind::RightDelim)?);
        }
        Ok(Node::Template {
            pos: pos(token),
            name,
            pipe,
        })
    }

    fn template_name(&mut self, token: Token, context: &str) -> Result<Str> {
        match token.kind {
            Kind::String | Kind::RawString => self.unquote(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    pub(super) fn unquote(&self, token: Token) -> Result<Str> {
        match crate::go::strconv::unquote(self.bytes(token)) {
            Ok(text) => Ok(Str::from(text)),
            Err(_) => Err(self.error("invalid syntax")),
        }
    }
}
