//! Parses TOML as `github.com/BurntSushi/toml` does, with the same error messages.
//!
//! It is a single pass without a separate lexer, because the wording of an error depends on the
//! state of the parser, and the reported line on how far it has read.

mod number;
mod table;

use std::collections::HashSet;

use bounded::memory::Held;
use bounded::{Budget, BudgetError};
use go_template::go::strconv::quote;
use go_template::{Map, Value};

use table::dotted;

/// Parses a document. The error is the message that Go prints.
///
/// # Errors
/// The outer error is an exceeded limit.
pub(super) fn read(text: &[u8], budget: &Budget) -> Result<Result<Map, String>, BudgetError> {
    let text = text
        .strip_prefix(b"\xff\xfe")
        .or_else(|| text.strip_prefix(b"\xfe\xff"))
        .or_else(|| text.strip_prefix(b"\xef\xbb\xbf"))
        .unwrap_or(text);
    if text.iter().take(6).any(|byte| *byte == 0) {
        return Ok(Err(
            "toml: line 1: files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8"
                .to_owned(),
        ));
    }
    let mut reader = TomlReader {
        text,
        at: 0,
        line: 1,
        key_line: 1,
        root: Map::new(),
        context: Vec::new(),
        key: String::new(),
        implicit: HashSet::new(),
        budget,
        held: Held::default(),
        string: 0,
    };
    match reader.document() {
        Ok(()) => Ok(Ok(reader.root)),
        Err(TomlError {
            limit: Some(limit), ..
        }) => Err(limit),
        Err(error) => Ok(Err(reader.message(&error))),
    }
}

/// An error and its line.
struct TomlError {
    line: usize,
    text: String,
    limit: Option<BudgetError>,
}

impl From<BudgetError> for TomlError {
    fn from(error: BudgetError) -> Self {
        Self {
            line: 0,
            text: String::new(),
            limit: Some(error),
        }
    }
}

type Read<T = ()> = Result<T, TomlError>;

struct TomlReader<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
    /// The line of the last key.
    key_line: usize,
    root: Map,
    context: Vec<String>,
    key: String,
    implicit: HashSet<Vec<String>>,
    budget: &'t Budget,
    /// The memory of the values.
    held: Held,
    /// Start of the current string.
    string: usize,
}

impl TomlReader<'_> {
    fn message(&self, error: &TomlError) -> String {
        let mut path = dotted(&self.context);
        if !self.key.is_empty() {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&self.key);
        }
        let TomlError { line, text, .. } = error;
        if path.is_empty() {
            format!("toml: line {line}: {text}")
        } else {
            let path = quote(path.as_bytes());
            let path = String::from_utf8_lossy(&path);
            format!("toml: line {line} (last key {path}): {text}")
        }
    }

    // === characters ===

    /// Returns the next character, or `None` at the end.
    fn next(&mut self) -> Read<Option<char>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(first) = rest.first() else {
            return Ok(None);
        };
        if *first == b'\n' {
            self.line += 1;
        }
        let length = match first {
            0..=0x7f => 1,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        };
        let character = rest
            .get(..length)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| text.chars().next());
        let Some(c) = character else {
            return self.fail(format!("invalid UTF-8 byte: 0x{first:02x}"));
        };
        let lone_return = c == '\r' && rest.get(1) != Some(&b'\n');
        if (c.is_ascii_control() && !matches!(c, '\t' | '\r' | '\n')) || lone_return {
            let code = u32::from(c);
            return self.fail(format!(
                "TOML files cannot contain control characters: '0x{code:02x}'"
            ));
        }
        self.at += length;
        Ok(Some(c))
    }

    fn back(&mut self, c: Option<char>) {
        if let Some(c) = c {
            self.at -= c.len_utf8();
            if c == '\n' {
                self.line -= 1;
            }
        }
    }

    fn peek(&mut self) -> Read<Option<char>> {
        let c = self.next()?;
        self.back(c);
        Ok(c)
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool) -> Read {
        loop {
            let c = self.next()?;
            if !c.is_some_and(&skipped) {
                self.back(c);
                return Ok(());
            }
        }
    }

    /// Fails at the current position; at the end of the text, in the last line that has content.
    fn fail<T>(&self, text: impl Into<String>) -> Read<T> {
        let ended = self.at >= self.text.len() && self.text.last() == Some(&b'\n');
        Self::fail_line(self.line - usize::from(ended && self.line > 1), text)
    }

    /// Fails at a character that was consumed, which may be the end of its line.
    fn fail_at<T>(&self, c: Option<char>, text: impl Into<String>) -> Read<T> {
        match c {
            None => self.fail(text),
            Some(_) => Self::fail_line(self.line, text),
        }
    }

    fn fail_line<T>(line: usize, text: impl Into<String>) -> Read<T> {
        Err(TomlError {
            line,
            text: text.into(),
            limit: None,
        })
    }

    // === structure ===

    fn document(&mut self) -> Read {
        loop {
            match self.next()? {
                Some(' ' | '\t' | '\r' | '\n') => {}
                Some('#') => self.comment()?,
                Some('[') => {
                    self.header()?;
                    self.end_of_item()?;
                }
                None => return Ok(()),
                c @ Some(_) => {
                    self.back(c);
                    let outer = self.context.clone();
                    let (value, name) = self.assignment()?;
                    self.set(&name, value)?;
                    self.context = outer;
                    self.key.clear();
                    self.end_of_item()?;
                }
            }
        }
    }

    fn comment(&mut self) -> Read {
        self.skip(|c| !matches!(c, '\n' | '\r'))
    }

    fn end_of_item(&mut self) -> Read {
        loop {
            match self.next()? {
                Some('#') => return self.comment(),
                Some(' ' | '\t') => {}
                Some('\n' | '\r') | None => return Ok(()),
                Some(c) => {
                    return self.fail(format!(
                        "expected a top-level item to end with a newline, comment, or EOF, but got {} instead",
                        quoted_char(c)
                    ));
                }
            }
        }
    }

    /// Parses `[a.b]` or `[[a.b]]` after the first bracket.
    fn header(&mut self) -> Read {
        let array = self.peek()? == Some('[');
        if array {
            self.next()?;
        }
        let mut key = Vec::new();
        loop {
            self.skip(is_blank)?;
            match self.peek()? {
                Some(']') | None => {
                    return self.fail("unexpected end of table name (table names cannot be empty)");
                }
                Some('.') => {
                    return self.fail("unexpected table separator (table names cannot be empty)");
                }
                _ => {}
            }
            if key.is_empty() {
                self.key_line = self.line;
            }
            key.push(self.name()?);
            self.skip(is_blank)?;
            match self.next()? {
                Some('.') => {}
                Some(']') => break,
                c => {
                    let text = format!(
                        "expected '.' or ']' to end table name, but got {} instead",
                        shown(c)
                    );
                    return self.fail_at(c, text);
                }
            }
        }
        if array {
            let c = self.next()?;
            if c != Some(']') {
                let text = format!(
                    "expected end of table array name delimiter ']', but got {} instead",
                    shown(c)
                );
                return self.fail_at(c, text);
            }
        }
        self.enter(&key, array)
    }

    /// Parses one part of a key.
    fn name(&mut self) -> Read<String> {
        match self.next()? {
            Some(quote @ ('"' | '\'')) => self.single_line(quote),
            c => {
                self.back(c);
                let start = self.at;
                self.skip(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))?;
                let text = self.text.get(start..self.at).unwrap_or_default();
                Ok(String::from_utf8_lossy(text).into_owned())
            }
        }
    }

    /// Parses `a.b = value`: enters the tables of the key, and returns the value and the last name.
    fn assignment(&mut self) -> Read<(Value, String)> {
        let mut names = self.names()?;
        let name = names.pop().unwrap_or_default();
        self.key.clone_from(&name);
        for part in names {
            let mut path = self.context.clone();
            path.push(part);
            self.imply(path.clone())?;
            self.enter(&path, false)?;
        }
        self.key.clone_from(&name);
        let value = self.value(false)?;
        self.key.clone_from(&name);
        Ok((value, name))
    }

    /// Parses the names of a key up to its equals sign.
    fn names(&mut self) -> Read<Vec<String>> {
        self.skip(is_blank)?;
        match self.peek()? {
            Some('=') | None => return self.fail("unexpected '=': key name appears blank"),
            Some('.') => return self.fail("unexpected '.': keys cannot start with a '.'"),
            _ => {}
        }
        self.key_line = self.line;
        let mut names = Vec::new();
        loop {
            self.skip(is_blank)?;
            match self.peek()? {
                Some('=') | None if !names.is_empty() => return self.fail("unexpected '='"),
                Some('.') => return self.fail("unexpected '.'"),
                _ => {}
            }
            names.push(self.name()?);
            self.skip(is_blank)?;
            match self.next()? {
                None => return self.fail("unexpected EOF; expected key separator '='"),
                Some('.') => {}
                Some('=') => return Ok(names),
                Some(c) => {
                    let line = self.line - usize::from(c == '\n');
                    let text = format!("expected '.' or '=', but got {} instead", quoted_char(c));
                    return Self::fail_line(line, text);
                }
            }
        }
    }

    // === values ===

    fn value(&mut self, in_list: bool) -> Read<Value> {
        self.held.add(2 * size_of::<Value>());
        let budget = self.budget;
        budget.descend(|| self.one_value(in_list))
    }

    fn one_value(&mut self, in_list: bool) -> Read<Value> {
        self.skip(is_blank)?;
        let line = self.line;
        let c = self.next()?;
        match c {
            Some('0'..='9') => {
                self.back(c);
                self.number_or_date()
            }
            Some('[') => self.list(),
            Some('{') => self.inline_table(in_list),
            Some(quote @ ('"' | '\'')) => {
                if self.take_two(quote)? {
                    return self.multiline(quote);
                }
                Ok(Value::from(self.single_line(quote)?))
            }
            Some('.') => self.fail("floats must start with a digit, not '.'"),
            Some('-' | '+') => self.signed(c),
            // Go accepts either ending after either letter and fails later.
            Some('i' | 'n') if self.rest_starts(b"nf") || self.rest_starts(b"an") => {
                let start = self.at - 1;
                self.at += 2;
                self.float(start)
            }
            Some(letter) if letter.is_alphabetic() => {
                // For a word that begins like `inf` or `nan`, Go names the part that went wrong.
                let begun = matches!(letter, 'i' | 'n')
                    && (self.rest_starts(b"n") || self.rest_starts(b"a"));
                if !begun {
                    self.back(c);
                }
                let start = self.at;
                self.skip(char::is_alphabetic)?;
                match self.text.get(start..self.at).unwrap_or_default() {
                    b"true" => Ok(Value::Bool(true)),
                    b"false" => Ok(Value::Bool(false)),
                    other => {
                        let word = String::from_utf8_lossy(&quote(other)).into_owned();
                        self.fail(format!("expected value but found {word} instead"))
                    }
                }
            }
            None => self.fail("unexpected EOF; expected value"),
            Some(other) => Self::fail_line(
                line,
                format!("expected value but found {} instead", quoted_char(other)),
            ),
        }
    }

    fn rest_starts(&self, with: &[u8]) -> bool {
        self.text
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(with))
    }

    /// Consumes two more quotes if both are there.
    fn take_two(&mut self, quote: char) -> Read<bool> {
        let mut two = [0; 2];
        let byte = u8::try_from(quote).unwrap_or(b'"');
        two.fill(byte);
        let found = self.rest_starts(&two);
        if found {
            self.at += 2;
        }
        Ok(found)
    }

    /// Advances to the first item, or the one after a comma. Returns whether there is one.
    fn item_begins(&mut self, end: char) -> Read<bool> {
        loop {
            self.skip(is_space)?;
            match self.next()? {
                Some('#') => self.comment()?,
                Some(',') => return self.fail("unexpected comma"),
                Some(c) if c == end => return Ok(false),
                c => {
                    self.back(c);
                    return Ok(true);
                }
            }
        }
    }

    fn list(&mut self) -> Read<Value> {
        let mut items = Vec::new();
        while self.item_begins(']')? {
            items.push(self.value(true)?);
            loop {
                self.skip(is_space)?;
                match self.next()? {
                    Some('#') => self.comment()?,
                    Some(',') => break,
                    Some(']') => return Ok(Value::list(items)),
                    c => {
                        let text = format!(
                            "expected a comma (',') or array terminator (']'), but got {}",
                            found(c)
                        );
                        return self.fail_at(c, text);
                    }
                }
            }
        }
        Ok(Value::list(items))
    }

    fn inline_table(&mut self, in_list: bool) -> Read<Value> {
        let (outer, outer_key) = (self.context.clone(), self.key.clone());
        // The outer path, the inner one, and that of the table.
        self.hold(&outer, 3)?;
        let mut path = outer.clone();
        path.push(std::mem::take(&mut self.key));
        self.imply(path.clone())?;
        self.enter(&path, in_list)?;
        let inner = self.context.clone();
        let table = Map::new();
        while self.item_begins('}')? {
            let (value, name) = self.assignment()?;
            self.set(&name, value.clone())?;
            let mut hash = table.clone();
            for part in self.context.get(inner.len()..).unwrap_or_default() {
                let below = if let Some(Value::Map(map)) = hash.get(part) {
                    map
                } else {
                    let map = Map::new();
                    hash.insert(part.as_str(), Value::Map(map.clone()));
                    map
                };
                hash = below;
            }
            hash.insert(name.as_str(), value);
            self.context.clone_from(&inner);
            if !self.inline_pair_ends()? {
                break;
            }
        }
        (self.context, self.key) = (outer, outer_key);
        Ok(Value::Map(table))
    }

    /// Advances to the next pair of an inline table. Returns whether there is one.
    fn inline_pair_ends(&mut self) -> Read<bool> {
        loop {
            self.skip(is_space)?;
            match self.next()? {
                Some('#') => self.comment()?,
                Some(',') => {
                    self.skip(is_blank)?;
                    if self.peek()? != Some('}') {
                        return Ok(true);
                    }
                }
                Some('}') => return Ok(false),
                c => {
                    let text = format!(
                        "expected a comma or an inline table terminator '}}', but got {} instead",
                        found(c)
                    );
                    return self.fail_at(c, text);
                }
            }
        }
    }

    /// Parses a string in single or double quotes after the first one.
    fn single_line(&mut self, quote: char) -> Read<String> {
        self.string = self.at;
        let mut text = String::new();
        loop {
            match self.next()? {
                None => {
                    return self.fail(format!("unexpected EOF; expected {}", enclosed(quote, 1)));
                }
                Some(c @ ('\n' | '\r')) => {
                    let line = self.line - usize::from(c == '\n');
                    return Self::fail_line(line, "strings cannot contain newlines");
                }
                Some('\\') if quote == '"' => text.push(self.escape()?),
                Some(c) if c == quote => return Ok(text),
                Some(c) => text.push(c),
            }
        }
    }

    /// Parses a string in triple quotes after the first three quotes.
    fn multiline(&mut self, quote: char) -> Read<Value> {
        self.string = self.at;
        let mut text = String::new();
        if self.rest_starts(b"\r\n") {
            self.next()?;
        }
        if self.rest_starts(b"\n") {
            self.next()?;
        }
        loop {
            let c = self.next()?;
            match c {
                None => {
                    return self.fail(format!("unexpected EOF; expected {}", enclosed(quote, 3)));
                }
                Some('\\') if quote == '"' => {
                    if !self.line_ending_backslash()? {
                        text.push(self.escape()?);
                    }
                }
                Some(c) if c == quote => {
                    let mut count = 1;
                    while count < 5 && self.peek()? == Some(quote) {
                        self.next()?;
                        count += 1;
                    }
                    if count == 5 && self.peek()? == Some(quote) {
                        return self.fail(format!("unexpected {}", enclosed(quote, 6)));
                    }
                    if count >= 3 {
                        text.extend(std::iter::repeat_n(quote, count - 3));
                        return Ok(Value::from(text));
                    }
                    text.extend(std::iter::repeat_n(quote, count));
                }
                Some(c) => text.push(c),
            }
        }
    }

    /// Skips the white space after a backslash at the end of a line.
    fn line_ending_backslash(&mut self) -> Read<bool> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let blank = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        if !blank.into_iter().any(|byte| *byte == b'\n') {
            return Ok(false);
        }
        self.skip(is_space)?;
        Ok(true)
    }

    fn escape(&mut self) -> Read<char> {
        let c = self.next()?;
        Ok(match c {
            Some('b') => '\u{8}',
            Some('t') => '\t',
            Some('n') => '\n',
            Some('f') => '\u{c}',
            Some('r') => '\r',
            Some('e') => '\u{1b}',
            Some('"') => '"',
            Some('\\') => '\\',
            Some('x') => return self.hex(2, "two", 'x'),
            Some('u') => return self.hex(4, "four", 'u'),
            Some('U') => return self.hex(8, "eight", 'U'),
            Some(blank @ (' ' | '\t')) => {
                return self.fail(format!("invalid escape: '\\{blank}'"));
            }
            Some(other) => {
                return self.fail_at(c, format!("invalid escape in string '\\{other}'"));
            }
            None => {
                // Go reports the previous line and the character 0.
                let text = "invalid escape in string '\\\0'".to_owned();
                return Self::fail_line(self.line - 1, text);
            }
        })
    }

    fn hex(&mut self, digits: usize, word: &str, letter: char) -> Read<char> {
        let mut text = String::new();
        for _ in 0..digits {
            match self.next()? {
                Some(c) if c.is_ascii_hexdigit() => text.push(c),
                c => {
                    let seen = quote(self.text.get(self.string..self.at).unwrap_or_default());
                    let seen = String::from_utf8_lossy(&seen).into_owned();
                    let message = format!(
                        "expected {word} hexadecimal digits after '\\{letter}', but got {seen} instead"
                    );
                    return self.fail_at(c, message);
                }
            }
        }
        let code = u32::from_str_radix(&text, 16).unwrap_or(u32::MAX);
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.fail(format!("Escaped character '\\u{text}' is not valid UTF-8.")),
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Returns some quotes of one kind between two of the other.
fn enclosed(quote: char, count: usize) -> String {
    let around = if quote == '"' { '\'' } else { '"' };
    let quotes: String = std::iter::repeat_n(quote, count).collect();
    format!("{around}{quotes}{around}")
}

/// Returns a character or the end, as in the errors of lists and inline tables.
fn found(c: Option<char>) -> String {
    c.map_or("end of file".to_owned(), |c| format!("'{c}'"))
}

/// Returns a character as Go's `%q` prints it.
fn quoted_char(c: char) -> String {
    match c {
        '\n' => "'\\n'".to_owned(),
        '\r' => "'\\r'".to_owned(),
        '\t' => "'\\t'".to_owned(),
        '\'' => "'\\''".to_owned(),
        '\\' => "'\\\\'".to_owned(),
        c => format!("'{c}'"),
    }
}

/// Returns a character or, at the end, the one that Go's lexer uses for it.
fn shown(c: Option<char>) -> String {
    c.map_or("'\\x00'".to_owned(), quoted_char)
}

#[cfg(test)]
mod tests {
    use bounded::{Budget, Limits};

    use super::read;

    #[test]
    fn hostile_documents_are_errors() {
        for text in [
            "[".repeat(5000),
            format!("a = {}", "[".repeat(5000)),
            format!("a = {}", "{a=".repeat(5000)),
            "a = \"\\uD800\"".to_owned(),
            "a = 1\na.b = 2".to_owned(),
            "'''".to_owned(),
            "a = '''".to_owned(),
        ] {
            let budget = Budget::new(Limits::default());
            let read = read(text.as_bytes(), &budget);
            assert!(!matches!(read, Ok(Ok(_))), "{text:.20}");
        }
    }
}
