//! Reads the source of templates without rendering it: the actions with their tokens, and the
//! literal text around them. Comments and strings are recognised as Go's lexer does.

use std::collections::BTreeSet;

use helm_core::chart::Chart;

/// Stands for an action in [`TemplateSource::lines`].
pub(crate) const ACTION: char = '\u{1}';

/// Keywords of the language; other words are function calls.
const KEYWORDS: &[&str] = &[
    "block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template",
    "true", "false", "with",
];

/// A template file of a chart or of one of its dependencies.
#[derive(Debug)]
pub(crate) struct TemplateFile {
    /// Path relative to the chart's directory.
    pub(crate) path: String,
    /// The same path as `# Source:` lines give it, without the chart's name: dependencies have
    /// their aliases.
    pub(crate) rendered_path: String,
    /// Path of the chart's values within those of the whole.
    pub(crate) values_path: Vec<String>,
    /// Whether it is rendered: of library charts, and of files whose name begins with `_`, only the definitions are used.
    pub(crate) is_rendered: bool,
    /// The content.
    pub(crate) source: TemplateSource,
}

/// Returns the templates of a chart and its dependencies.
pub(crate) fn templates(chart: &Chart) -> Vec<TemplateFile> {
    let mut files = Vec::new();
    add_templates(chart, "", "", &[], &mut files);
    files
}

fn add_templates(
    chart: &Chart,
    directory: &str,
    rendered: &str,
    values_path: &[String],
    files: &mut Vec<TemplateFile>,
) {
    for file in chart.templates() {
        let name = file.name().rsplit('/').next().unwrap_or_default();
        files.push(TemplateFile {
            is_rendered: !name.starts_with('_') && !chart.metadata().is_library(),
            path: format!("{directory}{}", file.name()),
            rendered_path: format!("{rendered}{}", file.name()),
            values_path: values_path.to_vec(),
            source: TemplateSource::read(&String::from_utf8_lossy(file.data())),
        });
    }
    for dependency in chart.dependencies() {
        let name = dependency.name();
        for called in names_of(chart, name) {
            let mut values_path = values_path.to_vec();
            values_path.push(called.clone());
            add_templates(
                dependency,
                &format!("{directory}charts/{name}/"),
                &format!("{rendered}charts/{called}/"),
                &values_path,
                files,
            );
        }
    }
}

/// Returns the names under which a chart uses a dependency: its aliases, or its own name.
fn names_of(chart: &Chart, dependency: &str) -> Vec<String> {
    let declared = chart.metadata().dependencies.iter();
    let mut names: Vec<String> = declared
        .filter(|declared| declared.name == dependency)
        .map(|declared| match declared.alias.as_str() {
            "" => dependency.to_owned(),
            alias => alias.to_owned(),
        })
        .collect();
    if names.is_empty() {
        names.push(dependency.to_owned());
    }
    names
}

/// The parts of a template.
#[derive(Debug, Default)]
pub(crate) struct TemplateSource {
    /// The actions in order; comments are left out.
    pub(crate) actions: Vec<Action>,
    /// The literal text by line. Each action is the character [`ACTION`], each comment nothing.
    pub(crate) lines: Vec<String>,
}

/// An action: what is between `{{` and `}}`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Action {
    /// Line on which it begins, counted from 1.
    pub(crate) line: usize,
    pub(crate) tokens: Vec<Token>,
}

/// A token of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Line of the token, counted from 1.
    pub(crate) line: usize,
    pub(crate) kind: TokenKind,
    /// Text of the token; of a string, the content.
    pub(crate) text: String,
}

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A keyword or a function.
    Word,
    /// A path such as `.Values.image`.
    Field,
    /// A variable with a path, such as `$root.Values.image`.
    Variable,
    /// A string constant.
    Text,
    /// Anything else: a number, a character, or punctuation.
    Other,
}

impl Token {
    /// Returns the path below `.Values` that the token reads.
    pub(crate) fn values_path(&self) -> Option<Vec<String>> {
        if !matches!(self.kind, TokenKind::Field | TokenKind::Variable) {
            return None;
        }
        let mut parts = self.text.split('.');
        parts.by_ref().find(|part| *part == "Values")?;
        let path: Vec<String> = parts.map(ToOwned::to_owned).collect();
        (!path.is_empty()).then_some(path)
    }

    /// Returns the names of the fields that the token reads.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        let is_path = matches!(self.kind, TokenKind::Field | TokenKind::Variable);
        let parts = self.text.split('.').skip(1);
        parts.filter(move |part| is_path && !part.is_empty())
    }
}

impl Action {
    /// Returns the first word if it is a keyword.
    pub(crate) fn keyword(&self) -> Option<&str> {
        let first = self.tokens.first()?;
        let is_keyword = first.kind == TokenKind::Word && KEYWORDS.contains(&&*first.text);
        is_keyword.then_some(first.text.as_str())
    }

    /// Returns whether what follows depends on the action: `if`, `with`, `range` and `else if`.
    pub(crate) fn is_condition(&self) -> bool {
        match self.keyword() {
            Some("if" | "with" | "range") => true,
            Some("else") => self.tokens.len() > 1,
            _ => false,
        }
    }

    /// Returns the calls of functions with their arguments up to the end of the action.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&Token, &[Token])> {
        let tokens = self.tokens.iter().enumerate();
        tokens.filter_map(|(index, token)| {
            let is_call = token.kind == TokenKind::Word && !KEYWORDS.contains(&&*token.text);
            let arguments = self.tokens.get(index + 1..).unwrap_or_default();
            is_call.then_some((token, arguments))
        })
    }
}

impl TemplateSource {
    /// Splits a template.
    pub(crate) fn read(text: &str) -> Self {
        let mut lexer = Lexer {
            rest: text,
            line: 1,
        };
        let mut source = Self {
            actions: Vec::new(),
            lines: vec![String::new()],
        };
        while let Some(start) = lexer.rest.find("{{") {
            source.push_text(lexer.take(start));
            lexer.take(2);
            let before = lexer.line;
            match lexer.action() {
                Some(action) => {
                    source.push_text(&ACTION.to_string());
                    source.actions.push(action);
                }
                None => lexer.end_of_comment(),
            }
            // A following line of the action has no text.
            for _ in before..lexer.line {
                source.lines.push(String::new());
            }
        }
        source.push_text(lexer.rest);
        source
    }

    fn push_text(&mut self, text: &str) {
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                self.lines.push(String::new());
            }
            if let Some(line) = self.lines.last_mut() {
                line.push_str(part);
            }
        }
    }

    /// Returns the documents of the literal text that have a kind.
    pub(crate) fn documents(&self) -> Vec<Document> {
        let mut documents = Vec::new();
        let mut current = Document::default();
        for (index, line) in self.lines.iter().enumerate() {
            let number = index + 1;
            // An action before a field, as in `{{- if .x }}kind: Service`, is not part of it.
            let text = line.trim_start_matches(ACTION);
            if text.starts_with("---") {
                documents.push(std::mem::take(&mut current));
            } else if let Some(value) = text.strip_prefix("kind:") {
                if current.kind_line > 0 {
                    // Another definition of the same file.
                    documents.push(std::mem::take(&mut current));
                }
                current.kind_line = number;
                current.kinds = constants(value);
            } else if let Some(value) = text.strip_prefix("apiVersion:") {
                if current.kind_line > 0 && current.api_line > 0 {
                    documents.push(std::mem::take(&mut current));
                }
                current.api_line = number;
                current.api_versions = constants(value);
            } else if let Some(value) = text.trim_start().strip_prefix("name:")
                && current.name_line == 0
                && text.starts_with("  ")
                && !text.starts_with("   ")
            {
                current.name_line = number;
                current.names = constants(value);
            } else if text.starts_with("items:") {
                current.is_list = true;
            }
            if current.first_line == 0 && !text.trim().is_empty() {
                current.first_line = number;
            }
            current.last_line = number;
        }
        documents.push(current);
        documents.retain(|document| document.kind_line > 0);
        for document in documents.iter_mut().filter(|document| document.is_list) {
            for kind in &mut document.kinds {
                let of_items = kind.strip_suffix("List").unwrap_or(kind);
                *kind = of_items.to_owned();
            }
            document.kinds.retain(|kind| !kind.is_empty());
        }
        documents
    }
}

impl TemplateSource {
    /// Returns the lines that are within `define` or `block`, at least in part.
    fn lines_of_definitions(&self) -> BTreeSet<usize> {
        let mut actions = self.actions.iter();
        let mut open: Vec<bool> = Vec::new();
        let mut lines = BTreeSet::new();
        for (index, line) in self.lines.iter().enumerate() {
            let mut is_defined = open.contains(&true);
            for _ in line.matches(ACTION) {
                match actions.next().and_then(Action::keyword) {
                    Some("define" | "block") => open.push(true),
                    Some("if" | "with" | "range") => open.push(false),
                    Some("end") => drop(open.pop()),
                    _ => {}
                }
                is_defined |= open.contains(&true);
            }
            if is_defined {
                lines.insert(index + 1);
            }
        }
        lines
    }

    /// Returns the documents that are not within a definition.
    pub(crate) fn documents_outside_of_definitions(&self) -> Vec<Document> {
        let defined = self.lines_of_definitions();
        let mut documents = self.documents();
        documents.retain(|document| !defined.contains(&document.kind_line));
        documents
    }
}

/// A document in the literal text of a template. Lines are counted from 1; 0 means none.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    /// First line with text.
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
    pub(crate) kind_line: usize,
    /// Whether the document is a list.
    pub(crate) is_list: bool,
    /// The kinds that are constant, those of its items for a list; empty if they are computed, or if each
    /// item has its own.
    pub(crate) kinds: Vec<String>,
    /// Line of `apiVersion`.
    pub(crate) api_line: usize,
    /// The API versions that are constant.
    pub(crate) api_versions: Vec<String>,
    /// Line of `metadata.name`.
    pub(crate) name_line: usize,
    /// The constant parts of the name.
    pub(crate) names: Vec<String>,
}

/// Returns the constants between the actions of a value.
fn constants(value: &str) -> Vec<String> {
    let value = value.split(" #").next().unwrap_or_default();
    let parts = value.split(ACTION);
    let parts = parts.map(|part| part.trim().trim_matches(['"', '\'']));
    parts
        .filter(|part| !part.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
}

impl<'t> Lexer<'t> {
    /// Consumes bytes, up to a character boundary.
    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .unwrap_or((self.rest, ""));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !accept(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// Reads an action after its `{{`; `None` for a comment.
    fn action(&mut self) -> Option<Action> {
        let line = self.line;
        let trimmed = self
            .rest
            .strip_prefix('-')
            .filter(|rest| rest.starts_with([' ', '\t', '\r', '\n']));
        if trimmed.is_some() {
            self.take(1);
        }
        let start = self.rest.trim_start();
        if start.starts_with("/*") {
            return None;
        }
        let mut tokens = Vec::new();
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.is_empty() {
                break;
            }
            if self.rest.starts_with("}}") {
                self.take(2);
                break;
            }
            if self.rest.starts_with("-}}") {
                self.take(3);
                break;
            }
            tokens.push(self.token());
        }
        Some(Action { line, tokens })
    }

    fn end_of_comment(&mut self) {
        let end = self.rest.find("*/").map_or(self.rest.len(), |at| at + 2);
        self.take(end);
        let close = self.rest.find("}}").map_or(self.rest.len(), |at| at + 2);
        self.take(close);
    }

    fn token(&mut self) -> Token {
        let line = self.line;
        let first = self.rest.chars().next().unwrap_or_default();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let (kind, text) = match first {
            '"' => (TokenKind::Text, self.quoted()),
            '`' => {
                self.take(1);
                let text = self.take_while(|c| c != '`').to_owned();
                self.take(1);
                (TokenKind::Text, text)
            }
            '$' | '.' => {
                let kind = if first == '$' {
                    TokenKind::Variable
                } else {
                    TokenKind::Field
                };
                let text = self.take(1).to_owned();
                (kind, text + self.take_while(|c| is_name(c) || c == '.'))
            }
            c if c.is_alphabetic() || c == '_' => {
                (TokenKind::Word, self.take_while(is_name).to_owned())
            }
            '\'' => {
                let quote = self.take(1).to_owned();
                let text = quote + self.take_while(|c| c != '\'' && c != '}');
                (TokenKind::Other, text + self.take(1))
            }
            c if c.is_ascii_digit() => (
                TokenKind::Other,
                self.take_while(|c| is_name(c) || c == '.').to_owned(),
            ),
            c => (TokenKind::Other, self.take(c.len_utf8()).to_owned()),
        };
        Token { line, kind, text }
    }

    /// Reads an interpreted string constant.
    fn quoted(&mut self) -> String {
        self.take(1);
        let mut text = String::new();
        let mut escaped = false;
        let mut length = 0;
        for c in self.rest.chars() {
            length += c.len_utf8();
            match (escaped, c) {
                (false, '"' | '\n') => break,
                (false, '\\') => escaped = true,
                (true, 'n') => {
                    text.push('\n');
                    escaped = false;
                }
                (true, 't') => {
                    text.push('\t');
                    escaped = false;
                }
                (_, c) => {
                    text.push(c);
                    escaped = false;
                }
            }
        }
        self.take(length);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &TemplateSource) -> Vec<(usize, &str)> {
        let calls = source.actions.iter().flat_map(Action::calls);
        calls
            .map(|(token, _)| (token.line, token.text.as_str()))
            .collect()
    }

    #[test]
    fn comments_and_strings_are_not_calls() {
        let text = "a: {{/* now */}}\nb: {{- /* randInt\nnow */ -}}\nc: {{ \"now }} \\\" now\" }}\n\
                    d: {{ `now\n` | quote }}\ne: {{ .now }}{{ $now }}\nf: {{ if\n  now }}x{{ end }}\n";
        let source = TemplateSource::read(text);
        assert_eq!(words(&source), [(6, "quote"), (9, "now")]);
    }

    #[test]
    fn literal_text_keeps_its_lines() {
        let text = "a: {{ .x }}\n{{/* one\ntwo */}}\nb: {{ .y\n}} c\nd\n";
        let source = TemplateSource::read(text);
        assert_eq!(
            source.lines,
            ["a: \u{1}", "", "", "b: \u{1}", " c", "d", ""]
        );
    }

    #[test]
    fn documents_have_the_lines_of_their_fields() {
        let text = "{{- if .Values.a }}\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n---\n\
                    {{ end -}}\nkind: {{ if .b }}DaemonSet{{ else }}Deployment{{ end }}\n\
                    apiVersion: {{ include \"x\" . }}\nroleRef:\n  kind: Role\n";
        let documents = TemplateSource::read(text).documents();
        let found: Vec<_> = documents
            .iter()
            .map(|found| {
                (
                    found.kind_line,
                    found.kinds.join(","),
                    found.api_versions.join(","),
                )
            })
            .collect();
        let expected = [
            (3, "Service".to_owned(), "v1".to_owned()),
            (8, "DaemonSet,Deployment".to_owned(), String::new()),
        ];
        assert_eq!(found, expected);
        assert_eq!((documents[0].name_line, documents[0].first_line), (5, 2));
    }

    #[test]
    fn paths_below_values_are_found_in_fields_and_variables() {
        let source = TemplateSource::read("{{ eq .Values.a.b \"X\" $.Values.c .Chart.Name }}");
        let paths: Vec<_> = source.actions[0]
            .tokens
            .iter()
            .filter_map(Token::values_path)
            .collect();
        assert_eq!(paths, [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn an_unfinished_action_ends_with_the_file() {
        let source = TemplateSource::read("a: {{ \"b");
        assert_eq!(source.actions.len(), 1);
        assert!(TemplateSource::read("{{/* x").actions.is_empty());
    }
}
