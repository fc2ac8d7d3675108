//! Actions: text, control structures, definitions.

use super::build::{Build, Check, Part};
use super::{Body, Definition, Parser, Result, Scope};
use crate::lex::{Kind, Token};
use crate::value::Str;

/// A control structure that has a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
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

enum Item<B: Build> {
    Node(B::Node),
    Stop(Stop),
}

impl Parser<'_> {
    /// The whole text: nodes and definitions, which are only checked.
    pub(super) fn top_level<B: Build>(&mut self) -> Result<B::List> {
        let mut list = B::List::default();
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
            match self.text_or_action::<B>()? {
                Item::Node(node) => B::push(&mut list, node),
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
        let name = self.template_name(token, CONTEXT)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        self.definition(name, CONTEXT)?;
        self.scope = outer;
        Ok(())
    }

    /// The nodes of a definition up to its end.
    fn definition(&mut self, name: Str, context: &str) -> Result<()> {
        let body = Body::At(self.lexer.position());
        let (found, stop) = self.list::<Check>()?;
        if stop != Stop::End {
            return Err(self.error(format!("unexpected {} in {context}", stop.name())));
        }
        self.add(Definition {
            name,
            body,
            is_empty: !found.0,
        })
    }

    /// The nodes of a definition that was checked before.
    pub(super) fn body<B: Build>(&mut self) -> Result<B::List> {
        Ok(self.list::<B>()?.0)
    }

    /// Nodes up to `{{end}}` or `{{else}}`.
    fn list<B: Build>(&mut self) -> Result<(B::List, Stop)> {
        let mut list = B::List::default();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action::<B>()? {
                Item::Node(node) => B::push(&mut list, node),
                Item::Stop(stop) => return Ok((list, stop)),
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action<B: Build>(&mut self) -> Result<Item<B>> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => {
                let part = Part::<B>::Text(token.start..token.end);
                Ok(Item::Node(self.node(part)))
            }
            Kind::LeftDelim => {
                self.scope.action = Some(token.start);
                let item = self.action()?;
                self.scope.action = None;
                Ok(item)
            }
            _ => Err(self.unexpected(token, "input")),
        }
    }

    fn node<B: Build>(&self, part: Part<B>) -> B::Node {
        B::node(part, self.lexer.text())
    }

    /// What stands between delimiters; the left one was read.
    fn action<B: Build>(&mut self) -> Result<Item<B>> {
        let token = self.next_non_space();
        let part: Part<B> = match token.kind {
            Kind::Block => self.block()?,
            Kind::Break => self.jump(Part::Break, "{{break}}")?,
            Kind::Continue => self.jump(Part::Continue, "{{continue}}")?,
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
                Part::Action {
                    pos: self.peek().start,
                    pipe: self.pipeline::<B>("command", Kind::RightDelim)?,
                }
            }
        };
        Ok(Item::Node(self.node(part)))
    }

    fn jump<B: Build>(&mut self, part: Part<B>, name: &str) -> Result<Part<B>> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return Err(self.unexpected(token, name));
        }
        if self.scope.range_depth == 0 {
            return Err(self.error(format!("{name} outside {{{{range}}}}")));
        }
        Ok(part)
    }

    fn control<B: Build>(&mut self, control: Control) -> Result<Part<B>> {
        self.nest(|parser| {
            let variables = parser.scope.variables.len();
            let part = parser.branch(control)?;
            parser.scope.variables.truncate(variables);
            Ok(part)
        })
    }

    fn branch<B: Build>(&mut self, control: Control) -> Result<Part<B>> {
        let pipe = self.pipeline::<B>(control.name(), Kind::RightDelim)?;
        if control == Control::Range {
            self.scope.range_depth += 1;
        }
        let (list, stop) = self.list::<B>()?;
        if control == Control::Range {
            self.scope.range_depth -= 1;
        }
        let otherwise = match stop {
            Stop::End => None,
            // `{{else if}}` is `{{else}}{{if}}` that shares the end; `{{else with}}` likewise.
            Stop::Else if control != Control::Range && self.peek().kind == control.keyword() => {
                self.next();
                let nested = self.control::<B>(control)?;
                let mut list = B::List::default();
                B::push(&mut list, self.node(nested));
                Some(list)
            }
            Stop::Else => {
                let (otherwise, stop) = self.list::<B>()?;
                if stop != Stop::End {
                    return Err(self.error(format!("expected end; found {}", stop.name())));
                }
                Some(otherwise)
            }
        };
        Ok(Part::Control {
            control,
            pipe,
            list,
            otherwise,
        })
    }

    /// `{{block "name" pipeline}} … {{end}}`: a definition and its execution.
    fn block<B: Build>(&mut self) -> Result<Part<B>> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let pipe = self.pipeline::<B>(CONTEXT, Kind::RightDelim)?;
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        self.nest(|parser| parser.definition(name, CONTEXT))?;
        self.scope = outer;
        Ok(Part::Template {
            pos: token.start,
            name: self.text::<B>(token)?,
            pipe: Some(pipe),
        })
    }

    /// `{{template "name" pipeline}}`, the pipeline being optional.
    fn template<B: Build>(&mut self) -> Result<Part<B>> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return Err(self.unexpected(token, CONTEXT));
        }
        let name = self.text::<B>(token)?;
        let mut pipe = None;
        if self.next_non_space().kind != Kind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline::<B>(CONTEXT, Kind::RightDelim)?);
        }
        Ok(Part::Template {
            pos: token.start,
            name,
            pipe,
        })
    }

    fn template_name(&mut self, token: Token, context: &str) -> Result<Str> {
        match token.kind {
            Kind::String | Kind::RawString => self.text::<super::build::Trees>(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    pub(super) fn text<B: Build>(&self, token: Token) -> Result<B::Text> {
        B::text(self.bytes(token)).ok_or_else(|| self.error("invalid syntax"))
    }
}
