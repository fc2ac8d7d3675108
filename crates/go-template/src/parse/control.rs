//! Actions: text, control structures, definitions.

use super::build::{Build, Part};
use super::{Definition, Parser, Result, Scope};
use crate::go::{strconv, unicode};
use crate::lex::{Kind, Token};
use crate::value::Str;

/// A control structure that has a body.
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

enum Item<Part> {
    Part(Part),
    Stop(Stop),
}

type PartOf<'t, B> = Part<<B as Build<'t>>::Pipe, <B as Build<'t>>::List>;

impl<'t, B: Build<'t>> Parser<'t, B> {
    /// The whole text: nodes and definitions.
    pub(super) fn top_level(&mut self) -> Result<()> {
        let outer = self.builder.begin();
        let mut list = self.builder.list();
        loop {
            match self.peek().kind {
                Kind::Eof => break,
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
                Item::Part(part) => self.builder.push(&mut list, part),
                Item::Stop(stop) => {
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
        let start = self.lexer.position();
        let outer = self.builder.begin();
        let (list, stop) = self.list()?;
        if stop != Stop::End {
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

    /// Nodes up to `{{end}}` or `{{else}}`.
    fn list(&mut self) -> Result<(B::List, Stop)> {
        let mut list = self.builder.list();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Item::Part(part) => self.builder.push(&mut list, part),
                Item::Stop(stop) => return Ok((self.builder.close_list(list), stop)),
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Result<Item<PartOf<'t, B>>> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => {
                self.scope.has_content = self.scope.has_content || !is_blank(self.bytes(token));
                Ok(Item::Part(Part::Text(token.start..token.end)))
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

    /// What stands between delimiters; the left one was read.
    fn action(&mut self) -> Result<Item<PartOf<'t, B>>> {
        let token = self.next_non_space();
        let part = match token.kind {
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
                    pipe: self.pipeline("command", Kind::RightDelim)?,
                }
            }
        };
        self.scope.has_content = true;
        Ok(Item::Part(part))
    }

    fn jump(&mut self, part: PartOf<'t, B>, name: &str) -> Result<PartOf<'t, B>> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return Err(self.unexpected(token, name));
        }
        if self.scope.range_depth == 0 {
            return Err(self.error(format!("{name} outside {{{{range}}}}")));
        }
        Ok(part)
    }

    fn control(&mut self, control: Control) -> Result<PartOf<'t, B>> {
        self.nest(|parser| {
            let variables = parser.scope.variables.len();
            let part = parser.branch(control)?;
            parser.scope.variables.truncate(variables);
            Ok(part)
        })
    }

    fn branch(&mut self, control: Control) -> Result<PartOf<'t, B>> {
        self.builder.enter();
        let pipe = self.pipeline(control.name(), Kind::RightDelim)?;
        self.builder.body(control);
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
                self.builder.otherwise();
                let mut list = self.builder.list();
                let nested = self.control(control)?;
                self.builder.push(&mut list, nested);
                Some(self.builder.close_list(list))
            }
            Stop::Else => {
                self.builder.otherwise();
                let (otherwise, stop) = self.list()?;
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
    fn block(&mut self) -> Result<PartOf<'t, B>> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let outer = std::mem::replace(&mut self.scope, Scope::new());
        self.nest(|parser| parser.definition(name.clone(), CONTEXT))?;
        self.scope = outer;
        Ok(Part::Template {
            pos: token.start,
            name,
            pipe: Some(pipe),
        })
    }

    /// `{{template "name" pipeline}}`, the pipeline being optional.
    fn template(&mut self) -> Result<PartOf<'t, B>> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return Err(self.unexpected(token, CONTEXT));
        }
        let name = self.text(token)?;
        let mut pipe = None;
        if self.next_non_space().kind != Kind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(CONTEXT, Kind::RightDelim)?);
        }
        Ok(Part::Template {
            pos: token.start,
            name,
            pipe,
        })
    }

    fn template_name(&mut self, token: Token, context: &str) -> Result<Str> {
        match token.kind {
            Kind::String | Kind::RawString => self.text(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    /// The text of a literal in quotes.
    pub(super) fn text(&self, token: Token) -> Result<Str> {
        let literal = self.bytes(token);
        let text = match literal {
            // What is not UTF-8 is read rune by rune.
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
