//! Parses a text directly into the code of its templates.
//!
//! The parser rejects what Go rejects, with Go's messages. It has a stricter limit of its own: control structures
//! and parentheses together may nest as deep as parentheses alone in Go, and 100 deep where the stack cannot grow.

mod build;
mod control;
mod expr;
mod number;

use std::collections::HashMap;

use bounded::STACK_GROWS;
use build::TreeBuilder;
pub(crate) use build::{Build, Part, Word};
pub(crate) use control::Control;

use crate::ast::{NodeList, Pos};
use crate::delimiters::Delimiters;
use crate::error::{Location, ParseError};
use crate::func::Funcs;
use crate::go::strconv::quoted;
use crate::lex::{self, Lexer, Token, TokenKind};
use crate::value::Str;

/// Maximum nesting of control structures and parentheses together.
const MAX_NESTING: usize = if STACK_GROWS { 10_000 } else { 100 };
/// Number of tokens that can be put back.
const KEPT_TOKENS: usize = 2;
/// Maximum length of chains of `{{else if}}` and `{{else with}}` that are open together.
const MAX_LINKS: usize = if STACK_GROWS { 10_000 } else { 100 };

/// A template defined by a text.
#[derive(Debug)]
pub(crate) struct Definition<T> {
    pub(crate) name: Str,
    /// Start of its nodes, which identifies it within the text.
    pub(crate) start: Pos,
    pub(crate) template: T,
    /// Whether it is only white space: such a template does not replace another.
    pub(crate) is_empty: bool,
}

/// Parses `text` under the name `file` and returns the builder. The template of the text itself
/// comes last, unless it is empty and the text defines a template with that name.
pub(crate) fn parse<'t, B: Build<'t>>(
    file: &'t Str,
    text: &'t [u8],
    (funcs, delimiters): (&'t Funcs, &'t Delimiters),
    builder: B,
) -> Result<(Vec<Definition<B::Template>>, B)> {
    let mut parser = Parser::new(file, Lexer::new(text, delimiters), funcs, builder);
    if text.len() > lex::MAX_TEXT_LENGTH {
        return Err(parser.error("the text is too long"));
    }
    parser.top_level()?;
    Ok((parser.definitions, parser.builder))
}

/// Returns the syntax tree of the template that begins at `start` of a text that parsed before.
pub(crate) fn tree(
    file: &Str,
    text: &[u8],
    language: (&Funcs, &Delimiters),
    start: Pos,
) -> NodeList {
    let (definitions, _) = parse(file, text, language, TreeBuilder).unwrap_or_default();
    let mut definitions = definitions.into_iter();
    let found = definitions.find(|definition| definition.start == start);
    found.map_or_else(NodeList::default, |definition| definition.template)
}

struct Parser<'t, B: Build<'t>> {
    file: &'t Str,
    funcs: &'t Funcs,
    lexer: Lexer<'t>,
    /// The tokens read last, of which the parser has taken `taken` and seen `seen`.
    tokens: Vec<Token>,
    taken: usize,
    seen: usize,
    builder: B,
    scope: TemplateScope<'t>,
    nesting: usize,
    /// Number of open links of chains of `{{else if}}`.
    links: usize,
    definitions: Vec<Definition<B::Template>>,
    by_name: HashMap<Str, usize>,
}

/// State of one template while it is parsed.
struct TemplateScope<'t> {
    /// Start of the token seen last, where errors are reported.
    last: Pos,
    /// The variables in scope, except `$`.
    variables: Vec<&'t [u8]>,
    range_depth: usize,
    /// Whether there is anything but white space.
    has_content: bool,
    /// Maximum nesting so far, counted like `nesting`.
    depth: usize,
    /// Start of the current action.
    action: Option<Pos>,
}

impl TemplateScope<'_> {
    fn new() -> Self {
        Self {
            last: 0,
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
    fn new(file: &'t Str, mut lexer: Lexer<'t>, funcs: &'t Funcs, builder: B) -> Self {
        lexer.break_is_keyword = funcs.find(b"break").is_none();
        lexer.continue_is_keyword = funcs.find(b"continue").is_none();
        Self {
            file,
            funcs,
            lexer,
            tokens: Vec::new(),
            taken: 0,
            seen: 0,
            builder,
            scope: TemplateScope::new(),
            nesting: 0,
            links: 0,
            definitions: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    #[inline]
    fn next(&mut self) -> Token {
        let token = self.peek();
        self.taken += 1;
        token
    }

    /// Puts the last `count` tokens back, which is at most [`KEPT_TOKENS`].
    fn backup(&mut self, count: usize) {
        self.taken = self.taken.saturating_sub(count);
    }

    #[inline]
    fn peek(&mut self) -> Token {
        const NONE: Token = Token {
            kind: TokenKind::Eof,
            is_spaced: false,
            start: 0,
            end: 0,
        };
        if self.taken == self.tokens.len() {
            self.read();
        }
        let token = self.tokens.get(self.taken).copied().unwrap_or(NONE);
        if self.taken == self.seen {
            self.seen += 1;
            self.scope.last = token.start;
        }
        token
    }

    /// Reads further tokens when all are taken.
    fn read(&mut self) {
        let kept = self.taken.min(KEPT_TOKENS);
        self.tokens.drain(..self.taken - kept);
        self.taken = kept;
        self.seen = kept;
        self.lexer.read(&mut self.tokens);
    }

    /// Returns the end of the last token taken.
    fn position(&self) -> Pos {
        let last = self.taken.checked_sub(1);
        last.and_then(|last| self.tokens.get(last))
            .map_or(0, |token| token.end)
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> Result<Token> {
        let token = self.next();
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

    /// Returns the name of a field without its dot.
    fn field_name(&self, token: Token) -> &'t [u8] {
        self.bytes(token).get(1..).unwrap_or_default()
    }

    fn location(&self, offset: Pos) -> Location {
        let name = self.file.to_string_lossy();
        Location::new(&name, self.lexer.text(), offset as usize)
    }

    /// Returns an error at the last token seen.
    #[cold]
    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.location(self.scope.last), message)
    }

    #[cold]
    fn unexpected(&self, token: Token, context: &str) -> ParseError {
        if token.kind != TokenKind::Error {
            return self.error(format!("unexpected {} in {context}", self.show(token)));
        }
        let mut message = self.lexer.error().to_owned();
        if let Some(action) = self.scope.action {
            let line = self.location(action).line;
            if line != self.location(token.start).line {
                // Avoids "action in action".
                let names_action = message.ends_with(" action");
                let what = if names_action { "" } else { " in action" };
                message = format!("{message}{what} started at {}:{line}", self.file);
            }
        }
        self.error(message)
    }

    /// Formats a token as Go does in messages.
    fn show(&self, token: Token) -> String {
        let text = self.bytes(token);
        match token.kind {
            TokenKind::Eof => "EOF".to_owned(),
            TokenKind::Error => self.lexer.error().to_owned(),
            kind if kind.is_keyword() => format!("<{}>", String::from_utf8_lossy(text)),
            _ => {
                let runes = crate::go::utf8::runes(text).take(11).collect::<Vec<_>>();
                let cut = if text.len() > 10 { runes.get(10) } else { None };
                let shown = cut.map_or(text, |(end, ..)| text.get(..*end).unwrap_or(text));
                let dots = if text.len() > 10 { "..." } else { "" };
                format!("{}{dots}", quoted(shown))
            }
        }
    }

    /// Runs `parse` for the next link of a chain, which is nested in the one before.
    fn link<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.links >= MAX_LINKS {
            return Err(self.error("max expression depth exceeded"));
        }
        self.links += 1;
        self.scope.depth = self.scope.depth.max(self.nesting + self.links);
        let result = bounded::grow(|| parse(self));
        self.links -= 1;
        result
    }

    /// Runs `parse` one nesting level deeper.
    fn nest<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting >= MAX_NESTING {
            return Err(self.error("max expression depth exceeded"));
        }
        self.nesting += 1;
        self.scope.depth = self.scope.depth.max(self.nesting);
        let result = bounded::grow(|| parse(self));
        self.nesting -= 1;
        result
    }

    /// Adds a definition; of two with the same name, one must be empty.
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
                let name = quoted(name.as_bytes());
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
        let language = (&Funcs::new(), &Delimiters::default());
        let parsed = parse(&Str::from("t"), text.as_bytes(), language, TreeBuilder);
        parsed.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn errors_match_go() {
        let cases = r#"
{{else}} => 1: unexpected {{else}}
{{if 1}} => 1: unexpected EOF
{{if}}{{end}} => 1: missing value for if
{{nope}} => 1: function "nope" not defined
{{$x}} => 1: undefined variable "$x"
{{1 | 2}} => 1: non executable command in pipeline stage 2
{{1.x}} => 1: bad number syntax: "1.x"
{{true.x}} => 1: unexpected . after term "true"
{{break}} => 1: {{break}} outside {{range}}
{{range 1}}{{break 2}}{{end}} => 1: unexpected "2" in {{break}}
{{template 1}} => 1: unexpected "1" in template clause
{{define `a`}}1{{end}}{{define `a`}}2{{end}} => 1: template: multiple definition of template "a"
{{if 1}}{{else}}{{else}}{{end}} => 1: expected end; found {{else}}
{{$x := 1, 2}} => 1: unexpected "," in operand
{{$x, $y := 1}} => 1: too many declarations in command
{{range $x, 1}}{{end}} => 1: range can only initialize variables
{{0x}} => 1: illegal number syntax: "0x"
{{999999999999999999999}} => 1: integer overflow: "999999999999999999999"
{{(1))}} => 1: unexpected right paren
{{block}} => 1: unexpected "}}" in block clause"#;
        for case in cases.trim_start().lines() {
            let (text, message) = case.split_once(" => ").unwrap();
            assert_eq!(error(text), format!("template: t:{message}"), "{text}");
        }
        assert_eq!(error("\n{{end}}"), "template: t:2: unexpected {{end}}");
        let unclosed = "template: t:3: unclosed action started at t:1";
        assert_eq!(error("{{\n1\n"), unclosed);
    }

    #[test]
    fn empty_definition_does_not_replace_another() {
        let (file, text) = (
            Str::from("t"),
            b"{{define `a`}}x{{end}}{{define `a`}} {{/* c */}}{{end}}",
        );
        let (funcs, delimiters) = (Funcs::new(), Delimiters::default());
        let language = (&funcs, &delimiters);
        let (definitions, _) = parse(&file, text, language, TreeBuilder).unwrap();
        let names: Vec<_> = definitions.iter().map(|def| def.name.to_string()).collect();
        assert_eq!(names, ["a", "t"]);
        assert!(!definitions[0].is_empty && definitions[1].is_empty);
    }

    #[test]
    fn excessive_nesting_is_an_error() {
        let parens = format!("{{{{{}1{}}}}}", "(".repeat(10_001), ")".repeat(10_001));
        assert!(error(&parens).contains("max expression depth exceeded"));
        let ifs = "{{if 1}}".repeat(10_001);
        assert!(error(&ifs).contains("max expression depth exceeded"));
    }
}
