//! Actions: text, control structures, definitions.

use super::build::{Build, Part};
use super::{Definition, Parser, Result, TemplateScope};
use crate::go::{strconv, unicode};
use crate::lex::{Token, TokenKind};
use crate::value::Str;

/// A control structure with a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
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

    fn keyword(self) -> TokenKind {
        match self {
            Self::If => TokenKind::If,
            Self::With => TokenKind::With,
            Self::Range => TokenKind::Range,
        }
    }
}

/// The end of a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    End,
    Else,
}

impl ListEnd {
    fn name(self) -> &'static str {
        match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        }
    }
}

enum Item<Part> {
    Part(Part),
    ListEnd(ListEnd),
}

type PartOf<'t, B> = Part<<B as Build<'t>>::Pipe, <B as Build<'t>>::List>;

impl<'t, B: Build<'t>> Parser<'t, B> {
    /// Parses the whole text: nodes and definitions.
    pub(super) fn top_level(&mut self) -> Result<()> {
        let outer = self.builder.begin();
        let mut list = self.builder.list();
        loop {
            match self.peek().kind {
                TokenKind::Eof => break,
                TokenKind::LeftDelim => {
                    self.next();
                    if self.next().kind == TokenKind::Define {
                        self.define()?;
                        continue;
                    }
                    self.backup(2);
                }
                _ => {}
            }
            match self.text_or_action()? {
                Item::Part(part) => self.builder.push(&mut list, part),
                Item::ListEnd(stop) => {
                    return Err(self.error(format!("unexpected {}", stop.name())));
                }
            }
        }
        let list = self.builder.close_list(list);
        let template = self.builder.end(outer, list, self.scope.depth);
        self.add(Definition {
            name: self.file.clone(),
            start: 0,
            template,
            is_empty: !self.scope.has_content,
        })
    }

    /// Parses `{{define "name"}} … {{end}}` after the keyword.
    fn define(&mut self) -> Result<()> {
        const CONTEXT: &str = "define clause";
        let outer = std::mem::replace(&mut self.scope, TemplateScope::new());
        let token = self.next();
        let name = self.template_name(token, CONTEXT)?;
        self.expect(TokenKind::RightDelim, CONTEXT)?;
        self.definition(name, CONTEXT)?;
        self.scope = outer;
        Ok(())
    }

    /// Parses the nodes of a definition up to its end.
    fn definition(&mut self, name: Str, context: &str) -> Result<()> {
        let start = self.position();
        let outer = self.builder.begin();
        let (list, stop) = self.list()?;
        if stop != ListEnd::End {
            return Err(self.error(format!("unexpected {} in {context}", stop.name())));
        }
        let template = self.builder.end(outer, list, self.scope.depth);
        self.add(Definition {
            name,
            start,
            template,
            is_empty: !self.scope.has_content,
        })
    }

    /// Parses nodes up to `{{end}}` or `{{else}}`.
    fn list(&mut self) -> Result<(B::List, ListEnd)> {
        let mut list = self.builder.list();
        while self.peek().kind != TokenKind::Eof {
            match self.text_or_action()? {
                Item::Part(part) => self.builder.push(&mut list, part),
                Item::ListEnd(stop) => return Ok((self.builder.close_list(list), stop)),
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Result<Item<PartOf<'t, B>>> {
        let token = self.next();
        match token.kind {
            TokenKind::Text => {
                self.scope.has_content = self.scope.has_content || !is_blank(self.bytes(token));
                Ok(Item::Part(Part::Text(token.start..token.end)))
            }
            TokenKind::LeftDelim => {
                self.scope.action = Some(token.start);
                let item = self.action()?;
                self.scope.action = None;
                Ok(item)
            }
            _ => Err(self.unexpected(token, "input")),
        }
    }

    /// Parses an action after the left delimiter.
    fn action(&mut self) -> Result<Item<PartOf<'t, B>>> {
        let token = self.next();
        let part = match token.kind {
            TokenKind::Block => self.block()?,
            TokenKind::Break => self.jump(Part::Break, "{{break}}")?,
            TokenKind::Continue => self.jump(Part::Continue, "{{continue}}")?,
            TokenKind::Else => {
                let next = self.peek().kind;
                if !matches!(next, TokenKind::If | TokenKind::With) {
                    self.expect(TokenKind::RightDelim, "else")?;
                }
                return Ok(Item::ListEnd(ListEnd::Else));
            }
            TokenKind::End => {
                self.expect(TokenKind::RightDelim, "end")?;
                return Ok(Item::ListEnd(ListEnd::End));
            }
            TokenKind::If => self.control(Control::If)?,
            TokenKind::Range => self.control(Control::Range)?,
            TokenKind::Template => self.template()?,
            TokenKind::With => self.control(Control::With)?,
            _ => {
                self.backup(1);
                Part::Action {
                    pos: self.peek().start,
                    pipe: self.pipeline("command", TokenKind::RightDelim)?,
                }
            }
        };
        self.scope.has_content = true;
        Ok(Item::Part(part))
    }

    fn jump(&mut self, part: PartOf<'t, B>, name: &str) -> Result<PartOf<'t, B>> {
        let token = self.next();
        if token.kind != TokenKind::RightDelim {
            return Err(self.unexpected(token, name));
        }
        if self.scope.range_depth == 0 {
            return Err(self.error(format!("{name} outside {{{{range}}}}")));
        }
        Ok(part)
    }

    fn control(&mut self, control: Control) -> Result<PartOf<'t, B>> {
        self.nest(|parser| parser.scoped(control))
    }

    /// Parses a control structure, whose variables end with it.
    fn scoped(&mut self, control: Control) -> Result<PartOf<'t, B>> {
        let variables = self.scope.variables.len();
        let part = self.branch(control)?;
        self.scope.variables.truncate(variables);
        Ok(part)
    }

    fn branch(&mut self, control: Control) -> Result<PartOf<'t, B>> {
        self.builder.enter();
        let pipe = self.pipeline(control.name(), TokenKind::RightDelim)?;
        self.builder.body(control);
        if control == Control::Range {
            self.scope.range_depth += 1;
        }
        let (list, stop) = self.list()?;
        if control == Control::Range {
            self.scope.range_depth -= 1;
        }
        let otherwise = match stop {
            ListEnd::End => None,
            // `{{else if}}` is `{{else}}{{if}}` with a shared end; likewise `{{else with}}`.
            ListEnd::Else if control != Control::Range && self.peek().kind == control.keyword() => {
                self.next();
                self.builder.otherwise();
                let mut otherwise = self.builder.list();
                let nested = self.link(|parser| parser.scoped(control))?;
                self.builder.push(&mut otherwise, nested);
                Some(self.builder.close_list(otherwise))
            }
            ListEnd::Else => {
                self.builder.otherwise();
                let (otherwise, end) = self.list()?;
                if end != ListEnd::End {
                    return Err(self.error(format!("expected end; found {}", end.name())));
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

    /// Parses `{{block "name" pipeline}} … {{end}}`: a definition and its execution.
    fn block(&mut self) -> Result<PartOf<'t, B>> {
        const CONTEXT: &str = "block clause";
        let token = self.next();
        let name = self.template_name(token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, TokenKind::RightDelim)?;
        let outer = std::mem::replace(&mut self.scope, TemplateScope::new());
        self.nest(|parser| parser.definition(name.clone(), CONTEXT))?;
        self.scope = outer;
        Ok(Part::Template {
            pos: token.start,
            name,
            pipe: Some(pipe),
        })
    }

    /// Parses `{{template "name" pipeline}}` with an optional pipeline.
    fn template(&mut self) -> Result<PartOf<'t, B>> {
        const CONTEXT: &str = "template clause";
        let token = self.next();
        let name = self.template_name(token, CONTEXT)?;
        let mut pipe = None;
        if self.next().kind != TokenKind::RightDelim {
            self.backup(1);
            pipe = Some(self.pipeline(CONTEXT, TokenKind::RightDelim)?);
        }
        Ok(Part::Template {
            pos: token.start,
            name,
            pipe,
        })
    }

    fn template_name(&mut self, token: Token, context: &str) -> Result<Str> {
        match token.kind {
            TokenKind::String | TokenKind::RawString => self.text(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    /// Returns the text of a quoted literal.
    pub(super) fn text(&self, token: Token) -> Result<Str> {
        let literal = self.bytes(token);
        let text = match literal {
            // Text that is not UTF-8 is unquoted rune by rune.
            [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => {
                std::str::from_utf8(plain).ok().map(Str::from)
            }
            _ => None,
        };
        text.or_else(|| strconv::unquote(literal).ok().map(Str::from))
            .ok_or_else(|| self.error("invalid syntax"))
    }
}

fn is_blank(text: &[u8]) -> bool {
    let is_plain = matches!(text.first(), Some(b'!'..=b'~'));
    !is_plain && unicode::trim_start_matches(text, unicode::is_space).is_empty()
}
