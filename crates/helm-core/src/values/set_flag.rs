//! The flags `--set`, `--set-string`, `--set-json`, `--set-file` and `--set-literal`
//! (Helm's package `strvals`).

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use bounded::memory::Held;
use bounded::{Budget, BudgetError, Limits};
use serde_json::Value;

use super::{UserValues, Values, merge};

/// The largest index that a flag may use.
const MAX_INDEX: i64 = 65_536;
/// Maximum number of dots in a name.
const MAX_NESTING: usize = 30;

/// An error in a `--set` flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A name without a value.
    #[error("key {0:?} has no value")]
    NoValue(String),
    /// A name before a comma.
    #[error("key {0:?} has no value (cannot end with ,)")]
    EndsWithComma(String),
    /// A name that ends with a dot.
    #[error("key map {0:?} has no value")]
    NoMapValue(String),
    /// Too many dots.
    #[error("value name nested level is greater than maximum supported nested level of 30")]
    TooDeep,
    /// An index that is not a number.
    #[error("error parsing index: {0:?}")]
    Index(String),
    /// A negative index.
    #[error("negative {0} index not allowed")]
    NegativeIndex(i64),
    /// A large index.
    #[error("index of {0} is greater than maximum supported index of {MAX_INDEX}")]
    LargeIndex(i64),
    /// Text between `]` and what must follow it.
    #[error("unexpected data at end of array index: {0:?}")]
    AfterIndex(String),
    /// An unclosed list.
    #[error("list must terminate with '}}'")]
    OpenList,
    /// A name whose existing value is neither a map nor a list.
    #[error("unable to parse key: {0:?} is not a {1}")]
    WrongType(String, &'static str),
    /// Invalid JSON.
    #[error("failed parsing JSON: {0}")]
    Json(String),
    /// A file that cannot be read.
    #[error("cannot read {path}: {message}")]
    File {
        /// The path of the file.
        path: String,
        /// The error.
        message: String,
    },
    /// A limit was exceeded: the flag is nested too deeply, or its lists are too long.
    #[error("cannot set {0:?}: {1}")]
    Limit(String, BudgetError),
    /// An incomplete flag.
    #[error("unexpected end")]
    End,
    /// A name that is not that of one value.
    #[error("{0:?} is not one path: `=` and `,` in a name are written as `\\=` and `\\,`")]
    NotOnePath(String),
    /// Text after the value of a single path.
    #[error(
        "text follows the value: a comma that belongs to it is written as `\\,`, and other paths are \
         set on their own"
    )]
    AfterValue,
}

impl From<BudgetError> for SetError {
    fn from(error: BudgetError) -> Self {
        Self::Limit(String::new(), error)
    }
}

/// Applies a `--set` flag: `name=value,list[0].name=value,names={a,b}`. Integers, booleans and null
/// are typed.
///
/// ```
/// use helm_core::values::{set, Values};
/// let mut values = Values::new();
/// set("a.b=1,c={x,2},d[1].e=true", &mut values)?;
/// let expected = serde_json::json!({"a": {"b": 1}, "c": ["x", 2], "d": [null, {"e": true}]});
/// assert_eq!(serde_json::Value::from(values), expected);
/// # Ok::<(), helm_core::values::SetError>(())
/// ```
///
/// # Errors
/// If the text is malformed, or names an index that is too large.
pub fn set(flag: &str, values: &mut Values) -> Result<(), SetError> {
    parse(flag, values, &mut |word| Ok(word.typed()))
}

/// Applies a `--set-string` flag: all values are strings.
///
/// # Errors
/// If the text is malformed, or names an index that is too large.
pub fn set_string(flag: &str, values: &mut Values) -> Result<(), SetError> {
    parse(flag, values, &mut |word| Ok(word.string()))
}

/// A text in the syntax of `--set` of which parts are data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetText {
    /// The text.
    pub text: String,
    /// The parts of the text that are data, in ascending order: none of their characters has a
    /// meaning, and the word that contains one is never null.
    pub data: Vec<Range<usize>>,
}

impl From<&str> for SetText {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            data: Vec::new(),
        }
    }
}

/// Sets the value at one path, in the syntax of `--set`: `{a,b}` is a list, and `\` escapes a
/// character. With `typed`, words become integers, booleans and null.
///
/// ```
/// use helm_core::values::{set_one, SetText, Values};
/// let mut values = Values::new();
/// let text = SetText { text: "{a,x,y}".into(), data: vec![3..6] };
/// set_one("list", &text, true, &mut values)?;
/// assert_eq!(values["list"], serde_json::json!(["a", "x,y"]));
/// # Ok::<(), helm_core::values::SetError>(())
/// ```
///
/// # Errors
/// If the path or the text is malformed, an index is too large, or the text sets another path.
pub fn set_one(
    path: &str,
    text: &SetText,
    typed: bool,
    values: &mut Values,
) -> Result<(), SetError> {
    let mut unescaped = path.chars();
    while let Some(c) = unescaped.next() {
        match c {
            '=' | ',' => return Err(SetError::NotOnePath(path.to_owned())),
            '\\' => drop(unescaped.next()),
            _ => {}
        }
    }
    let flag = format!("{path}={}", text.text);
    let start = path.len() + 1;
    let data: Vec<_> = text
        .data
        .iter()
        .map(|r| r.start + start..r.end + start)
        .collect();
    let read = &mut |word: Word| Ok(if typed { word.typed() } else { word.string() });
    let mut parser = FlagParser::new(&flag, Style::Typed, read);
    parser.data = &data;
    match parser.key(values, 0) {
        // An index without its end has no effect, as in Helm.
        Ok(()) | Err(SetError::End) => {}
        Err(error) => return Err(error),
    }
    if parser.rest.is_empty() {
        Ok(())
    } else {
        Err(SetError::AfterValue)
    }
}

/// Applies a `--set-file` flag: each value is the content of the named file, which `read` returns.
/// The content need not be UTF-8.
///
/// # Errors
/// If the text is malformed, names an index that is too large, or a file that cannot be read.
pub fn set_file(
    flag: &str,
    user: &mut UserValues,
    read: impl Fn(&str) -> std::io::Result<Vec<u8>>,
) -> Result<(), SetError> {
    let (values, files) = user.parts_mut();
    parse(flag, values, &mut |word| {
        let path = word.text;
        let content = read(&path).map_err(|failure| SetError::File {
            path: path.clone(),
            message: failure.to_string(),
        })?;
        Ok(Value::String(match String::from_utf8(content) {
            Ok(text) => text,
            Err(other) => UserValues::keep(files, other.into_bytes()),
        }))
    })
}

/// Applies a `--set-literal` flag: everything after the first `=` is one string.
///
/// # Errors
/// If the text is malformed, or names an index that is too large.
pub fn set_literal(flag: &str, values: &mut Values) -> Result<(), SetError> {
    FlagParser::new(flag, Style::Literal, &mut |word| Ok(word.string())).run(values)
}

/// Applies a `--set-json` flag: a JSON object to merge, or names with JSON values.
///
/// # Errors
/// If the text is malformed, or names an index that is too large.
pub fn set_json(flag: &str, values: &mut Values) -> Result<(), SetError> {
    let flag = &*without_lone_surrogates(flag);
    if flag.trim_start().starts_with('{') {
        let mut object: Value =
            serde_json::from_str(flag).map_err(|error| SetError::Json(error.to_string()))?;
        crate::yaml::all_floats(&mut object);
        if let Value::Object(object) = object {
            *values = merge(std::mem::take(values), object);
        }
        return Ok(());
    }
    FlagParser::new(flag, Style::Json, &mut |word| Ok(word.string())).run(values)
}

/// Replaces escapes of surrogates that are not pairs by that of U+FFFD, as Go's JSON decoder does.
/// The length of the text stays the same.
fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    const REPLACEMENT: &str = "\\ufffd";
    let escape = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut replaced = Cow::Borrowed(json);
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        at += match escape(at) {
            Some(0xD800..=0xDBFF) if matches!(escape(at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => {
                replaced.to_mut().replace_range(at..at + 6, REPLACEMENT);
                6
            }
            Some(_) => 6,
            // The escaped character may be several bytes long.
            None => {
                1 + json
                    .get(at + 1..)
                    .map_or(0, |rest| rest.chars().next().map_or(0, char::len_utf8))
            }
        };
    }
    replaced
}

fn parse(
    flag: &str,
    values: &mut Values,
    read: &mut dyn FnMut(Word) -> Result<Value, SetError>,
) -> Result<(), SetError> {
    FlagParser::new(flag, Style::Typed, read).run(values)
}

/// Syntax of values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Up to the next comma, or a list in braces; a backslash escapes the next character.
    Typed,
    Json,
    /// Up to the end.
    Literal,
}

struct FlagParser<'a> {
    rest: &'a str,
    length: usize,
    /// The ranges of the flag whose characters have no meaning.
    data: &'a [Range<usize>],
    style: Style,
    read: &'a mut dyn FnMut(Word) -> Result<Value, SetError>,
    budget: Rc<Budget>,
    /// The memory of lists.
    held: Held,
}

/// End of a text: one of the searched characters, or the end of the flag.
type Terminator = Option<char>;

/// A value, or an item of a list, without its escapes.
#[derive(Default)]
struct Word {
    text: String,
    /// Whether a part of it is data.
    has_data: bool,
}

impl<'a> FlagParser<'a> {
    fn new(
        flag: &'a str,
        style: Style,
        read: &'a mut dyn FnMut(Word) -> Result<Value, SetError>,
    ) -> Self {
        Self {
            rest: flag,
            length: flag.len(),
            data: &[],
            style,
            read,
            budget: Rc::new(Budget::new(Limits::default().for_json())),
            held: Held::default(),
        }
    }

    fn run(&mut self, values: &mut Values) -> Result<(), SetError> {
        while !self.rest.is_empty() {
            match self.key(values, 0) {
                // An incomplete end of a flag has no effect, as in Helm.
                Err(SetError::End) => break,
                result => result?,
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// Returns whether the next character is data.
    fn at_data(&self) -> bool {
        let position = self.length - self.rest.len();
        let after = self.data.partition_point(|range| range.end <= position);
        let range = self.data.get(after);
        range.is_some_and(|range| range.start <= position)
    }

    /// Consumes the text up to and including one of `stops`.
    fn until(&mut self, stops: &[char]) -> (Word, Terminator) {
        let mut word = Word::default();
        loop {
            let mut is_data = self.at_data();
            let Some(mut c) = self.next() else { break };
            if !is_data && stops.contains(&c) {
                return (word, Some(c));
            }
            if !is_data && c == '\\' && self.style != Style::Literal {
                is_data = self.at_data();
                match self.next() {
                    Some(escaped) => c = escaped,
                    None => break,
                }
            }
            word.has_data |= is_data;
            word.text.push(c);
        }
        (word, None)
    }

    /// Consumes the character `wanted`, if it follows and is not data.
    fn skip(&mut self, wanted: char) -> bool {
        let is_next = self.rest.starts_with(wanted) && !self.at_data();
        if is_next {
            self.next();
        }
        is_next
    }

    fn key(&mut self, values: &mut Values, nesting: usize) -> Result<(), SetError> {
        let stops: &[char] = match self.style {
            Style::Literal => &['=', '[', '.'],
            _ => &['=', '[', ',', '.'],
        };
        let (Word { text: key, .. }, stop) = self.until(stops);
        match stop {
            None if key.is_empty() => Err(SetError::End),
            None => Err(SetError::NoValue(key)),
            Some(',') => {
                insert(values, key.clone(), Value::String(String::new()));
                Err(SetError::EndsWithComma(key))
            }
            Some('=') => {
                let at_end = self.style == Style::Typed && self.rest.is_empty();
                let value = self.value()?;
                insert(values, key, value);
                if at_end { Err(SetError::End) } else { Ok(()) }
            }
            Some('[') => {
                let index = self.index()?;
                let mut list = match values.remove(&key) {
                    None => Vec::new(),
                    Some(Value::Array(list)) => list,
                    Some(other) => {
                        values.insert(key.clone(), other);
                        return Err(SetError::WrongType(key, "list"));
                    }
                };
                let result = self.item(&mut list, index, nesting);
                insert(values, key.clone(), Value::Array(list));
                result.map_err(|error| match error {
                    SetError::Limit(_, limit) => SetError::Limit(key, limit),
                    error => error,
                })
            }
            Some(_) => self.below(values, key, nesting + 1),
        }
    }

    /// Parses what follows `key.`.
    fn below(&mut self, values: &mut Values, key: String, nesting: usize) -> Result<(), SetError> {
        if nesting > MAX_NESTING {
            return Err(SetError::TooDeep);
        }
        let mut inner = match values.remove(&key) {
            None => Values::new(),
            Some(Value::Object(inner)) => inner,
            Some(other) => {
                values.insert(key.clone(), other);
                return Err(SetError::WrongType(key, "map"));
            }
        };
        let result = self.key(&mut inner, nesting);
        if inner.is_empty() {
            return match result {
                Ok(()) => Err(SetError::NoMapValue(key)),
                failed => failed,
            };
        }
        insert(values, key, Value::Object(inner));
        result
    }

    fn index(&mut self) -> Result<i64, SetError> {
        let (Word { text, .. }, stop) = self.until(&[']']);
        if stop.is_none() {
            return Err(SetError::End);
        }
        text.parse().map_err(|_| SetError::Index(text))
    }

    /// Parses what follows `[index]`.
    fn item(&mut self, list: &mut Vec<Value>, index: i64, nesting: usize) -> Result<(), SetError> {
        if index < 0 {
            return Err(SetError::NegativeIndex(index));
        }
        let (Word { text, .. }, stop) = self.until(&['[', '.', '=']);
        if !text.is_empty() {
            return Err(SetError::AfterIndex(text));
        }
        let position = usize::try_from(index).unwrap_or(usize::MAX);
        let value = match stop {
            None => return Err(SetError::End),
            Some('=') => self.value()?,
            Some('[') => {
                let next = self.index()?;
                let mut inner = match list.get(position) {
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::Array(inner)) => inner.clone(),
                    Some(_) => return Err(SetError::WrongType(format!("[{index}]"), "list")),
                };
                let budget = Rc::clone(&self.budget);
                budget.descend(|| self.item(&mut inner, next, nesting))?;
                Value::Array(inner)
            }
            Some(_) => {
                let mut inner = match list.get_mut(position).map(Value::take) {
                    Some(Value::Object(inner)) => inner,
                    _ => Values::new(),
                };
                if let Err(error) = self.key(&mut inner, nesting) {
                    // What was set before the error stays in maps that already existed.
                    if let Some(slot) = list.get_mut(position) {
                        *slot = Value::Object(inner);
                    }
                    return Err(error);
                }
                Value::Object(inner)
            }
        };
        if index > MAX_INDEX {
            return Err(SetError::LargeIndex(index));
        }
        if list.len() <= position {
            let more = (position + 1 - list.len()) * size_of::<Value>();
            self.budget.memory(more)?;
            self.held.add(more);
            list.resize(position + 1, Value::Null);
        }
        if let Some(slot) = list.get_mut(position) {
            *slot = value;
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Value, SetError> {
        match self.style {
            Style::Literal => Ok(Value::String(std::mem::take(&mut self.rest).to_owned())),
            Style::Json => self.json(),
            Style::Typed if self.rest.is_empty() => Ok(Value::String(String::new())),
            Style::Typed => {
                if self.skip('{') {
                    return self.list();
                }
                let (word, _) = self.until(&[',']);
                (self.read)(word)
            }
        }
    }

    fn list(&mut self) -> Result<Value, SetError> {
        let mut list = Vec::new();
        loop {
            let (word, stop) = self.until(&[',', '}']);
            match stop {
                None => return Err(SetError::OpenList),
                Some(',') => list.push((self.read)(word)?),
                Some(_) => {
                    self.skip(',');
                    list.push((self.read)(word)?);
                    return Ok(Value::Array(list));
                }
            }
        }
    }

    fn json(&mut self) -> Result<Value, SetError> {
        if self.skip_empty() {
            return Ok(Value::Null);
        }
        let mut stream = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let mut value = match stream.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) => return Err(SetError::Json(error.to_string())),
            None => return Err(SetError::End),
        };
        let taken = stream.byte_offset();
        self.rest = self.rest.get(taken..).unwrap_or_default();
        self.skip_empty();
        crate::yaml::all_floats(&mut value);
        Ok(value)
    }

    /// Consumes blanks and one comma. Returns whether nothing else came before it or the end.
    fn skip_empty(&mut self) -> bool {
        let rest = self.rest.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            self.rest = after;
            return true;
        }
        self.rest = rest;
        rest.is_empty()
    }
}

/// Sets `key`; an empty key is ignored.
fn insert(values: &mut Values, key: String, value: Value) {
    if !key.is_empty() {
        values.insert(key, value);
    }
}

impl Word {
    /// Converts a value of `--set`: `true`, `false` and `null` in any case, and integers without
    /// leading zeros.
    fn typed(self) -> Value {
        let Self { text, has_data } = self;
        if text.eq_ignore_ascii_case("true") {
            return Value::Bool(true);
        }
        if text.eq_ignore_ascii_case("false") {
            return Value::Bool(false);
        }
        if text.eq_ignore_ascii_case("null") && !has_data {
            return Value::Null;
        }
        if text == "0" {
            return Value::from(0);
        }
        match text.parse::<i64>() {
            Ok(number) if !text.starts_with('0') => Value::from(number),
            _ => Value::String(text),
        }
    }

    fn string(self) -> Value {
        Value::String(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_lone_surrogates_in_json_are_replaced_as_in_go() {
        for (flag, expected) in [
            (r#"a="\ud800""#, "{\"a\":\"\u{fffd}\"}"),
            (r#"{"a":"\ud800x\udc00"}"#, "{\"a\":\"\u{fffd}x\u{fffd}\"}"),
            (
                r#"a="\ud83d\ude00\\ud800""#,
                "{\"a\":\"\u{1f600}\\\\ud800\"}",
            ),
            (r#"a={"\udfff":1}"#, "{\"a\":{\"\u{fffd}\":1.0}}"),
            (
                r#"a="\ud800\ud83d\ude00é\n",b=1"#,
                "{\"a\":\"\u{fffd}\u{1f600}é\\n\",\"b\":1.0}",
            ),
        ] {
            let mut values = Values::new();
            set_json(flag, &mut values).unwrap();
            assert_eq!(Value::from(values).to_string(), expected, "{flag}");
        }
        let mut values = Values::new();
        assert!(set_json("a=\"\\", &mut values).is_err());
        assert!(set_json("a=\"\\ud8", &mut values).is_err());
    }

    /// Marks what stands between `«` and `»` as data.
    fn marked(marked: &str) -> SetText {
        let mut found = SetText::default();
        for part in marked.split_inclusive(['«', '»']) {
            let start = found.text.len();
            if let Some(data) = part.strip_suffix('»') {
                found.text.push_str(data);
                found.data.push(start..found.text.len());
            } else {
                found.text.push_str(part.trim_end_matches('«'));
            }
        }
        found
    }

    #[test]
    fn data_in_a_text_adds_no_path_list_or_escape_and_is_never_null() {
        use serde_json::json;
        for (text, expected) in [
            ("", json!("")),
            ("a", json!("a")),
            ("{a,b}", json!(["a", "b"])),
            ("{}", json!([""])),
            ("a\\,b", json!("a,b")),
            ("a,", json!("a")),
            ("null", json!(null)),
            ("«»null", json!(null)),
            ("«null»", json!("null")),
            ("«NULL»", json!("NULL")),
            ("nu«ll»", json!("null")),
            ("«true»", json!(true)),
            ("tr«ue»", json!(true)),
            ("«7»", json!(7)),
            ("1«2»", json!(12)),
            ("«007»", json!("007")),
            ("«x,other=y»", json!("x,other=y")),
            ("«{a,b}»", json!("{a,b}")),
            ("«{»a,b«}»", json!(null)),
            ("«{}»", json!("{}")),
            ("a«\\»", json!("a\\")),
            ("«\\,»", json!("\\,")),
            ("\\«,»", json!(",")),
            ("{a,«b,c}»,d}", json!(["a", "b,c}", "d"])),
            ("{«»,«null»,null,«1»}", json!(["", "null", null, 1])),
            ("{«a»}", json!(["a"])),
            ("«a\nb: [c]»", json!("a\nb: [c]")),
            ("é«é,é»é", json!("éé,éé")),
        ] {
            let mut values = Values::new();
            let result = set_one("p.q[1]", &marked(text), true, &mut values);
            if text == "«{»a,b«}»" {
                assert_eq!(result, Err(SetError::AfterValue), "{text}");
                continue;
            }
            assert_eq!(result, Ok(()), "{text}");
            let wanted = json!({"p": {"q": [null, expected]}});
            assert_eq!(Value::from(values), wanted, "{text}");
        }
        let mut values = Values::new();
        set_one("p", &marked("{1,«true»,null}"), false, &mut values).unwrap();
        assert_eq!(values["p"], json!(["1", "true", "null"]));
    }

    #[test]
    fn text_of_one_path_sets_no_other() {
        for text in ["a,b", "a,b=c", "{a}b", "{a},b=c", "{a}},", "«x»,y=z"] {
            let mut values = Values::new();
            let result = set_one("p", &marked(text), true, &mut values);
            assert_eq!(result, Err(SetError::AfterValue), "{text}");
        }
        for path in ["a=b", "a,b", "a=1,b", "a[0],b"] {
            let mut values = Values::new();
            let result = set_one(path, &SetText::from("x"), true, &mut values);
            assert_eq!(result, Err(SetError::NotOnePath(path.to_owned())));
        }
        let mut values = Values::new();
        set_one(r"a\.b\,c\=d", &SetText::from("x"), true, &mut values).unwrap();
        assert_eq!(values["a.b,c=d"], "x");
        assert_eq!(
            set_one("a", &SetText::from("{x"), true, &mut Values::new()),
            Err(SetError::OpenList)
        );
    }
}
