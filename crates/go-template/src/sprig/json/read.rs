//! JSON decoding like Go's `encoding/json` into an `interface {}`, with its messages.

use crate::go::strconv::{parse_float, quote};
use crate::go::utf8::{RUNE_ERROR, decode_rune, push_rune};
use crate::value::{List, Map, Str, Value};
use bounded::memory::Held;
use bounded::{Budget, BudgetError, Buffer, Limits};

/// Go's limit for nested containers.
pub const MAX_DEPTH: usize = 10_000;

/// The result of decoding a text.
#[derive(Debug)]
pub struct Decoded {
    /// The value, with nil for a number that does not fit; nil for invalid JSON.
    pub value: Value,
    /// The error in the text, if any.
    pub error: Option<DecodeError>,
}

/// An error in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// An unexpected character.
    #[error("invalid character {} {context}", shown(*.character))]
    Character {
        /// The byte, as a Latin-1 character.
        character: u8,
        /// The context.
        context: &'static str,
    },
    /// A limit was exceeded.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// Unexpected end of the text.
    #[error("unexpected end of JSON input")]
    End,
    /// A number beyond the range of a `float64`.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
}

fn shown(character: u8) -> String {
    match character {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let text = (character as char).to_string();
            let quoted = quote(text.as_bytes());
            let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            format!("'{}'", String::from_utf8_lossy(inner))
        }
    }
}

/// Decodes a text that consists of one JSON value.
pub fn decode(text: &[u8]) -> Decoded {
    decode_within(text, &Budget::new(Limits::NESTING_ONLY))
}

/// Decodes an untrusted text that consists of one JSON value.
pub fn decode_within(text: &[u8], budget: &Budget) -> Decoded {
    let mut reader = JsonReader {
        rest: text,
        budget,
        held: Held::default(),
        open: Vec::new(),
        number_error: None,
    };
    let (value, error) = match reader.read() {
        Ok(value) => (value, reader.number_error),
        Err(error) => (Value::Nil, Some(error)),
    };
    Decoded { value, error }
}

/// An open container.
enum Open {
    List(Vec<Value>),
    /// With the key of the next value.
    Map(Map, Str),
}

struct JsonReader<'t> {
    rest: &'t [u8],
    budget: &'t Budget,
    /// The memory of the elements of open lists.
    held: Held,
    open: Vec<Open>,
    number_error: Option<DecodeError>,
}

impl JsonReader<'_> {
    fn read(&mut self) -> Result<Value, DecodeError> {
        'value: loop {
            self.budget.step(1)?;
            self.held.add(2 * size_of::<Value>());
            // Read a value, or the start of a container followed by its first member.
            let mut value = match self.peek()? {
                b'{' => {
                    self.open_container()?;
                    if self.peek()? != b'}' {
                        let key = self.key()?;
                        self.open.push(Open::Map(Map::new(), key));
                        continue 'value;
                    }
                    self.advance(1);
                    Value::Map(Map::new())
                }
                b'[' => {
                    self.open_container()?;
                    if self.peek()? != b']' {
                        self.open.push(Open::List(Vec::new()));
                        continue 'value;
                    }
                    self.advance(1);
                    Value::list(Vec::new())
                }
                b'"' => Value::Str(self.string()?),
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.literal(b"true", Value::Bool(true))?,
                b'f' => self.literal(b"false", Value::Bool(false))?,
                b'n' => self.literal(b"null", Value::Nil)?,
                _ => return Err(self.unexpected("looking for beginning of value")),
            };
            // Read what follows the value while it closes containers.
            loop {
                let Some(container) = self.open.pop() else {
                    self.skip_spaces();
                    return match self.rest {
                        [] => Ok(value),
                        _ => Err(self.unexpected("after top-level value")),
                    };
                };
                let next = self.peek()?;
                match (container, next) {
                    (Open::List(mut items), b',' | b']') => {
                        self.advance(1);
                        items.push(value);
                        if next == b',' {
                            self.open.push(Open::List(items));
                            continue 'value;
                        }
                        value = Value::List(List::from(items).appended_to(0));
                    }
                    (Open::Map(map, key), b',' | b'}') => {
                        self.advance(1);
                        map.insert(key, value);
                        if next == b',' {
                            let next_key = self.key()?;
                            self.open.push(Open::Map(map, next_key));
                            continue 'value;
                        }
                        value = Value::Map(map);
                    }
                    (Open::List(_), _) => return Err(self.unexpected("after array element")),
                    (Open::Map(..), _) => {
                        return Err(self.unexpected("after object key:value pair"));
                    }
                }
            }
        }
    }

    fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    fn skip_spaces(&mut self) {
        let spaces = self
            .rest
            .iter()
            .take_while(|c| matches!(c, b' ' | b'\t' | b'\r' | b'\n'));
        self.advance(spaces.count());
    }

    /// Returns the next byte that is not a space.
    fn peek(&mut self) -> Result<u8, DecodeError> {
        self.skip_spaces();
        self.rest.first().copied().ok_or(DecodeError::End)
    }

    /// Returns an error for the next byte. At the end of the text, Go reports a space.
    fn unexpected(&self, context: &'static str) -> DecodeError {
        let character = self.rest.first().copied().unwrap_or(b' ');
        DecodeError::Character { character, context }
    }

    fn open_container(&mut self) -> Result<(), DecodeError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.advance(1);
        Ok(())
    }

    /// Reads a key with its colon.
    fn key(&mut self) -> Result<Str, DecodeError> {
        if self.peek()? != b'"' {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        if self.peek()? != b':' {
            return Err(self.unexpected("after object key"));
        }
        self.advance(1);
        Ok(key)
    }

    fn literal(&mut self, word: &'static [u8], value: Value) -> Result<Value, DecodeError> {
        let contexts: &[&str] = match word {
            b"true" => &[
                "in literal true (expecting 'r')",
                "in literal true (expecting 'u')",
                "in literal true (expecting 'e')",
            ],
            b"false" => &[
                "in literal false (expecting 'a')",
                "in literal false (expecting 'l')",
                "in literal false (expecting 's')",
                "in literal false (expecting 'e')",
            ],
            _ => &[
                "in literal null (expecting 'u')",
                "in literal null (expecting 'l')",
                "in literal null (expecting 'l')",
            ],
        };
        self.advance(1);
        for (expected, context) in word.iter().skip(1).zip(contexts) {
            if self.rest.first() != Some(expected) {
                return Err(self.unexpected(context));
            }
            self.advance(1);
        }
        Ok(value)
    }

    fn digits(&mut self, context: &'static str) -> Result<(), DecodeError> {
        let count = self.rest.iter().take_while(|c| c.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.unexpected(context));
        }
        self.advance(count);
        Ok(())
    }

    fn number(&mut self) -> Result<Value, DecodeError> {
        let start = self.rest;
        if let [b'-', ..] = self.rest {
            self.advance(1);
        }
        match self.rest {
            [b'0', ..] => self.advance(1),
            _ => self.digits("in numeric literal")?,
        }
        if let [b'.', ..] = self.rest {
            self.advance(1);
            self.digits("after decimal point in numeric literal")?;
        }
        if let [b'e' | b'E', ..] = self.rest {
            self.advance(1);
            if let [b'+' | b'-', ..] = self.rest {
                self.advance(1);
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = start
            .get(..start.len() - self.rest.len())
            .unwrap_or_default();
        if let Ok(number) = parse_float(text, 64) {
            return Ok(Value::Float(number));
        }
        let text = String::from_utf8_lossy(text).into_owned();
        self.number_error.get_or_insert(DecodeError::Number(text));
        Ok(Value::Nil)
    }

    /// Reads a string, starting at the opening quote.
    fn string(&mut self) -> Result<Str, DecodeError> {
        self.advance(1);
        let plain = self.plain_length();
        let (text, after) = self.rest.split_at(plain);
        if let [b'"', rest @ ..] = after
            && std::str::from_utf8(text).is_ok()
        {
            self.rest = rest;
            return Ok(Str::from(text));
        }
        let mut out = Buffer::with_capacity(plain + 16);
        loop {
            let length = self.plain_length();
            let (run, tail) = self.rest.split_at(length);
            push_valid(&mut out, run);
            self.rest = tail;
            match tail.first() {
                None => return Err(DecodeError::End),
                Some(b'"') => {
                    self.advance(1);
                    return Ok(Str::from(out));
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(_) => return Err(self.unexpected("in string literal")),
            }
        }
    }

    /// Returns the number of bytes before the next quote, backslash or control character.
    fn plain_length(&self) -> usize {
        let special = |c: &u8| matches!(c, b'"' | b'\\' | 0..0x20);
        let length = self.rest.iter().position(special);
        length.unwrap_or(self.rest.len())
    }

    fn escape(&mut self, out: &mut Buffer) -> Result<(), DecodeError> {
        self.advance(1);
        let plain = match self.rest.first() {
            Some(c @ (b'"' | b'\\' | b'/')) => *c,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.advance(1);
                let unit = self.hex_digits()?;
                push_rune(out, self.surrogate_pair(unit)?);
                return Ok(());
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.advance(1);
        out.push(plain);
        Ok(())
    }

    fn hex_digits(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.rest.first().and_then(|&c| (c as char).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            value = value * 16 + digit;
            self.advance(1);
        }
        Ok(value)
    }

    /// Returns the rune of a `\u` escape, combined with a following low surrogate.
    fn surrogate_pair(&mut self, unit: u32) -> Result<char, DecodeError> {
        if let Some(rune) = char::from_u32(unit) {
            return Ok(rune);
        }
        if unit < 0xDC00
            && let [b'\\', b'u', after @ ..] = self.rest
        {
            let before = self.rest;
            self.rest = after;
            let low = self.hex_digits()?;
            if (0xDC00..0xE000).contains(&low) {
                let rune = char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
                return Ok(rune.unwrap_or(RUNE_ERROR));
            }
            // The second escape is not a low surrogate and is read separately.
            self.rest = before;
        }
        Ok(RUNE_ERROR)
    }
}

/// Appends text with U+FFFD for invalid UTF-8.
fn push_valid(out: &mut Buffer, text: &[u8]) {
    if std::str::from_utf8(text).is_ok() {
        return out.extend_from_slice(text);
    }
    let mut rest = text;
    while !rest.is_empty() {
        let (rune, width) = decode_rune(rest);
        push_rune(out, rune);
        rest = rest.get(width..).unwrap_or_default();
    }
}
