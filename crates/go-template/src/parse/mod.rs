//! Parses a text into the code of its templates, without a tree in between.
//!
//! The parser reads tokens with three of look-ahead and refuses what Go refuses, with Go's
//! messages. Two limits are its own: control structures and parentheses may nest 500 deep.

mod build;
mod control;
mod expr;
mod number;

use std::collections::HashMap;

use build::Trees;
pub(crate) use build::{Build, Part, Word};
pub(crate) use control::Control;

use crate::ast::{List, Pos};
use crate::error::{Location, ParseError};
use crate::func::Funcs;
use crate::lex::{self, Kind, Lexer, Token};
use crate::value::Str;

/// How deep control structures and parentheses may nest, taken together.
const MAX_NESTING: usize = 500;

/// A template that a text gives.
#[derive(Debug)]
pub(crate) struct Definition<T> {
    pub(crate) name: Str,
    /// Where its nodes begin: no two of a text do at the same place.
    pub(crate) start: Pos,
    pub(crate) template: T,
    /// Whether there is nothing but white space: such a template does not replace another.
    pub(crate) is_empty: bool,
}

/// Parses `text`, which gets the name `file`, and gives the builder back. The template of the text
/// itself comes last, unless it is empty and the text defines a template of that name.
pub(crate) fn parse<'t, B: Build<'t>>(
    file: &'t Str,
    text: &'t [u8],
    funcs: &'t Funcs,
    builder: B,
) -> Result<(Vec<Definition<B::Template>>, B)> {
    let mut parser = Parser::new(file, text, funcs, builder);
    if text.len() > lex::LONGEST {
        return Err(parser.error("the text is too long"));
    }
    parser.top_level()?;
    Ok((parser.definitions, parser.builder))
}

/// The syntax tree of the template that begins at `start` of a text that was parsed before.
pub(crate) fn tree(file: &Str, text: &[u8], funcs: &Funcs, start: Pos) -> List {
    let (definitions, _) = parse(file, text, funcs, Trees::default()).unwrap_or_default();
    let mut definitions = definitions.into_iter();
    let found = definitions.find(|definition| definition.start == start);
    found.map_or_else(List::default, |definition| definition.template)
}

struct Parser<'t, B: Build<'t>> {
    file: &'t Str,
    funcs: &'t Funcs,
    lexer: Lexer<'t>,
    builder: B,
    scope: Scope<'t>,
    nesting: usize,
    definitions: Vec<Definition<B::Template>>,
    by_name: HashMap<Str, usize>,
}

/// What each template has of its own while it is parsed.
struct Scope<'t> {
    /// Look-ahead; the first is the token that was read last.
    tokens: [Token; 3],
    peeked: usize,
    /// The variables in scope, but for `$`.
    variables: Vec<&'t [u8]>,
    range_depth: usize,
    /// Whether there is something beside white space.
    has_content: bool,
    /// How deep it has nested at most, counted as `nesting`.
    depth: usize,
    /// Where the current action begins.
    action: Option<Pos>,
}

impl Scope<'_> {
    fn new() -> Self {
        let none = Token {
            kind: Kind::Eof,
            start: 0,
            end: 0,
        };
        Self {
            tokens: [none; 3],
            peeked: 0,
            variables: Vec::new(),
            range_depth: 0,
            has_content: false,
            depth: 0,
            action: None,
        }
    }
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

impl<'t, B: Build<'t>> Parser<'t, B> {
    fn new(file: &'t Str, text: &'t [u8], funcs: &'t Funcs, builder: B) -> Self {
        let mut lexer = Lexer::new(text);
        lexer.break_is_keyword = funcs.find(b"break").is_none();
        lexer.continue_is_keyword = funcs.find(b"continue").is_none();
        Self {
            file,
            funcs,
            lexer,
            builder,
            scope: Scope::new(),
            nesting: 0,
            definitions: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    #[inline]
    fn next(&mut self) -> Token {
        let scope = &mut self.scope;
        if scope.peeked == 0 {
            scope.tokens[0] = self.lexer.next_token();
            return scope.tokens[0];
        }
        scope.peeked -= 1;
        let token = scope.tokens.get(scope.peeked).copied();
        token.unwrap_or(scope.tokens[0])
    }

    /// Puts the token that was read last back.
    fn backup(&mut self) {
        self.scope.peeked += 1;
    }

    /// Puts back the last token and `before` it.
    fn backup2(&mut self, before: Token) {
        self.scope.tokens[1] = before;
        self.scope.peeked = 2;
    }

    /// Puts back the last token, `before` it and `first` before that.
    fn backup3(&mut self, first: Token, before: Token) {
        self.scope.tokens[1] = before;
        self.scope.tokens[2] = first;
        self.scope.peeked = 3;
    }

    #[inline]
    fn peek(&mut self) -> Token {
        let scope = &mut self.scope;
        if scope.peeked == 0 {
            scope.tokens[0] = self.lexer.next_token();
            scope.peeked = 1;
        }
        let token = scope.tokens.get(scope.peeked - 1).copied();
        token.unwrap_or(scope.tokens[0])
    }

    #[inline]
    fn next_non_space(&mut self) -> Token {
        self.skip_space();
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    #[inline]
    fn peek_non_space(&mut self) -> Token {
        self.skip_space();
        loop {
            let token = self.peek();
            if token.kind != Kind::Space {
                return token;
            }
            self.scope.peeked -= 1;
        }
    }

    /// Reads white space, if that comes next and can be told without a token.
    #[inline]
    fn skip_space(&mut self) -> bool {
        self.scope.peeked == 0 && self.lexer.skip_space()
    }

    /// Whether a field may come next.
    #[inline]
    fn may_be_field(&self) -> bool {
        self.scope.peeked > 0 || self.lexer.at_field()
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Result<Token> {
        let token = self.next_non_space();
        if token.kind == kind {
            Ok(token)
        } else {
            Err(self.unexpected(token, context))
        }
    }

    #[inline]
    fn bytes(&self, token: Token) -> &'t [u8] {
        token.of(self.lexer.text())
    }

    /// The name of a field, without its dot.
    fn field_name(&self, token: Token) -> &'t [u8] {
        self.bytes(token).get(1..).unwrap_or_default()
    }

    fn location(&self, offset: Pos) -> Location {
        let name = self.file.to_string_lossy();
        Location::new(&name, self.lexer.text(), offset as usize)
    }

    /// An error where the parser stands, which is at the last token read.
    #[cold]
    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.location(self.scope.tokens[0].start), message)
    }

    #[cold]
    fn unexpected(&self, token: Token, context: &str) -> ParseError {
        if token.kind != Kind::Error {
            return self.error(format!("unexpected {} in {context}", self.show(token)));
        }
        let mut message = self.lexer.error().to_owned();
        if let Some(action) = self.scope.action {
            let line = self.location(action).line;
            if line != self.location(token.start).line {
                // Not "action in action".
                let what = if message.ends_with(" action") {
                    ""
                } else {
                    " in action"
                };
                message = format!("{message}{what} started at {}:{line}", self.file);
            }
        }
        self.error(message)
    }

    /// How Go writes a token in messages.
    fn show(&self, token: Token) -> String {
        let text = self.bytes(token);
        match token.kind {
            Kind::Eof => "EOF".to_owned(),
            Kind::Error => self.lexer.error().to_owned(),
            kind if kind.is_keyword() => format!("<{}>", String::from_utf8_lossy(text)),
            _ => {
                let runes = crate::go::utf8::runes(text).take(11).collect::<Vec<_>>();
                let cut = if text.len() > 10 { runes.get(10) } else { None };
                let shown = cut.map_or(text, |(end, ..)| text.get(..*end).unwrap_or(text));
                let quoted = crate::go::strconv::quote(shown);
                let dots = if text.len() > 10 { "..." } else { "" };
                format!("{}{dots}", String::from_utf8_lossy(&quoted))
            }
        }
    }

    /// Goes one level deeper into what `parse` parses.
    fn nest<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting >= MAX_NESTING {
            return Err(self.error("max expression depth exceeded"));
        }
        self.nesting += 1;
        self.scope.depth = self.scope.depth.max(self.nesting);
        let result = crate::stack::grow(|| parse(self));
        self.nesting -= 1;
        result
    }

    /// Adds a definition that was read; of two with a name one must be empty.
    fn add(&mut self, definition: Definition<B::Template>) -> Result<()> {
        let name = &definition.name;
        let earlier = self.by_name.get(name);
        match earlier.and_then(|at| self.definitions.get_mut(*at)) {
            None => {
                self.by_name.insert(name.clone(), self.definitions.len());
                self.definitions.push(definition);
            }
            Some(earlier) if earlier.is_empty => *earlier = definition,
            Some(_) if definition.is_empty => {}
            Some(_) => {
                let name = crate::go::strconv::quote(name.as_bytes());
                let name = String::from_utf8_lossy(&name);
                return Err(self.error(format!("template: multiple definition of template {name}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let parsed = parse(
            &Str::from("t"),
            text.as_bytes(),
            &Funcs::new(),
            Trees::default(),
        );
        parsed.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn errors_are_those_of_go() {
        for (text, message) in [
            ("{{else}}", "template: t:1: unexpected {{else}}"),
            ("\n{{end}}", "template: t:2: unexpected {{end}}"),
            ("{{if 1}}", "template: t:1: unexpected EOF"),
            ("{{if}}{{end}}", "template: t:1: missing value for if"),
            ("{{nope}}", "template: t:1: function \"nope\" not defined"),
            ("{{$x}}", "template: t:1: undefined variable \"$x\""),
            (
                "{{1 | 2}}",
                "template: t:1: non executable command in pipeline stage 2",
            ),
            ("{{1.x}}", "template: t:1: bad number syntax: \"1.x\""),
            (
                "{{true.x}}",
                "template: t:1: unexpected . after term \"true\"",
            ),
            ("{{break}}", "template: t:1: {{break}} outside {{range}}"),
            (
                "{{range 1}}{{break 2}}{{end}}",
                "template: t:1: unexpected \"2\" in {{break}}",
            ),
            (
                "{{template 1}}",
                "template: t:1: unexpected \"1\" in template clause",
            ),
            (
                "{{define `a`}}1{{end}}{{define `a`}}2{{end}}",
                "template: t:1: template: multiple definition of template \"a\"",
            ),
            (
                "{{if 1}}{{else}}{{else}}{{end}}",
                "template: t:1: expected end; found {{else}}",
            ),
            (
                "{{$x := 1, 2}}",
                "template: t:1: unexpected \",\" in operand",
            ),
            (
                "{{$x, $y := 1}}",
                "template: t:1: too many declarations in command",
            ),
            (
                "{{range $x, 1}}{{end}}",
                "template: t:1: range can only initialize variables",
            ),
            ("{{\n1\n", "template: t:3: unclosed action started at t:1"),
            ("{{0x}}", "template: t:1: illegal number syntax: \"0x\""),
            (
                "{{999999999999999999999}}",
                "template: t:1: integer overflow: \"999999999999999999999\"",
            ),
            ("{{(1))}}", "template: t:1: unexpected right paren"),
            (
                "{{block}}",
                "template: t:1: unexpected \"}}\" in block clause",
            ),
        ] {
            assert_eq!(error(text), message, "{text}");
        }
    }

    #[test]
    fn an_empty_definition_replaces_nothing() {
        let (file, text) = (
            Str::from("t"),
            b"{{define `a`}}x{{end}}{{define `a`}} {{/* c */}}{{end}}",
        );
        let (definitions, _) = parse(&file, text, &Funcs::new(), Trees::default()).unwrap();
        let names: Vec<_> = definitions.iter().map(|def| def.name.to_string()).collect();
        assert_eq!(names, ["a", "t"]);
        assert!(!definitions[0].is_empty && definitions[1].is_empty);
    }

    #[test]
    fn too_deep_nesting_is_an_error() {
        let parens = format!("{{{{{}1{}}}}}", "(".repeat(5_000), ")".repeat(5_000));
        assert!(error(&parens).contains("max expression depth exceeded"));
        let ifs = "{{if 1}}".repeat(5_000);
        assert!(error(&ifs).contains("max expression depth exceeded"));
    }
}
