//! `json.Unmarshal` into `interface {}`: numbers are floats, objects maps, arrays slices.

use super::JsonError;
use crate::value::{Kind, List, Map, Str, Type, Value};

/// As deep as Go reads.
const DEEPEST: usize = 10_000;

/// Reads a JSON text.
pub fn decode(text: &[u8]) -> Result<Value, JsonError> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        misfit: None,
    };
    let value = parser.document()?;
    match parser.misfit {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// Reads a JSON text into a variable of type `target`, which is a map or slice type of
/// `interface {}`; null gives the type's nil. A number that does not fit is an error too, which
/// comes with what was read.
pub fn decode_into(text: &[u8], target: Type) -> (Value, Option<JsonError>) {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        misfit: None,
    };
    let value = match parser.document() {
        Ok(value) => value,
        Err(error) => return (empty(target), Some(error)),
    };
    let found = match &value {
        Value::Nil => return (Value::NilOf(target), None),
        Value::Map(_) if target.kind() == Kind::Map => return (value, parser.misfit),
        Value::List(_) if target.kind() == Kind::Slice => return (value, parser.misfit),
        Value::Map(_) => "object",
        Value::List(_) => "array",
        Value::Str(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    let message = format!("json: cannot unmarshal {found} into Go value of type {target}");
    (empty(target), Some(JsonError::new(message)))
}

fn empty(target: Type) -> Value {
    if target.kind() == Kind::Map {
        Value::Map(Map::with_type(target))
    } else {
        Value::List(List::new(target, Vec::new()))
    }
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    /// The first number that does not fit into a float.
    misfit: Option<JsonError>,
}

impl Parser<'_> {
    fn document(&mut self) -> Result<Value, JsonError> {
        let value = self.value("looking for beginning of value")?;
        match self.peek() {
            None => Ok(value),
            Some(other) => Err(invalid(other, "after top-level value")),
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..)?;
        let blanks = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        self.at += blanks.count();
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, JsonError> {
        let byte = self.text.get(self.at).copied().ok_or_else(end)?;
        self.at += 1;
        Ok(byte)
    }

    fn value(&mut self, context: &str) -> Result<Value, JsonError> {
        match self.peek().ok_or_else(end)? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::array),
            b'"' => {
                self.at += 1;
                self.string().map(Value::Str)
            }
            b't' => self.literal("true", Value::Bool(true)),
            b'f' => self.literal("false", Value::Bool(false)),
            b'n' => self.literal("null", Value::Nil),
            b'-' | b'0'..=b'9' => self.number(),
            other => Err(invalid(other, context)),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Value, JsonError>,
    ) -> Result<Value, JsonError> {
        let bracket = self.next()?;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(invalid(bracket, "exceeded max depth"));
        }
        let value = crate::stack::grow(|| read(self))?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, JsonError> {
        let map = Map::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(map));
        }
        loop {
            match self.peek().ok_or_else(end)? {
                b'"' => self.at += 1,
                other => return Err(invalid(other, "looking for beginning of object key string")),
            }
            let key = self.string()?;
            match self.peek().ok_or_else(end)? {
                b':' => self.at += 1,
                other => return Err(invalid(other, "after object key")),
            }
            let value = self.value("looking for beginning of value")?;
            map.insert(key, value);
            match self.peek().ok_or_else(end)? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(Value::Map(map));
                }
                other => return Err(invalid(other, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Result<Value, JsonError> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::list(items));
        }
        loop {
            items.push(self.value("looking for beginning of value")?);
            match self.peek().ok_or_else(end)? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(Value::list(items));
                }
                other => return Err(invalid(other, "after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        self.at += 1;
        for expected in word.chars().skip(1) {
            let found = self.next()?;
            if char::from(found) != expected {
                let context = format!("in literal {word} (expecting '{expected}')");
                return Err(invalid(found, &context));
            }
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.next()? {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            other => return Err(invalid(other, "in numeric literal")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let number: f64 = text.parse().unwrap_or(f64::INFINITY);
        if number.is_infinite() && self.misfit.is_none() {
            let message =
                format!("json: cannot unmarshal number {text} into Go value of type float64");
            self.misfit = Some(JsonError::new(message));
            return Ok(Value::Nil);
        }
        Ok(Value::Float(number))
    }

    fn digits(&mut self) {
        while matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<(), JsonError> {
        match self.next()? {
            b'0'..=b'9' => {
                self.digits();
                Ok(())
            }
            other => Err(invalid(other, context)),
        }
    }

    /// The rest of a string, after its quote.
    fn string(&mut self) -> Result<Str, JsonError> {
        let start = self.at;
        loop {
            match self.next()? {
                b'"' => {
                    let plain = self.text.get(start..self.at - 1).unwrap_or_default();
                    return Ok(match std::str::from_utf8(plain) {
                        Ok(text) => Str::from(text),
                        Err(_) => valid(plain),
                    });
                }
                b'\\' => {
                    self.at -= 1;
                    return self.escaped(start);
                }
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    /// The rest of a string from its first escape on.
    fn escaped(&mut self, start: usize) -> Result<Str, JsonError> {
        let mut out = self.text.get(start..self.at).unwrap_or_default().to_vec();
        loop {
            match self.next()? {
                b'"' => break,
                b'\\' => match self.next()? {
                    b'b' => out.push(0x08),
                    b'f' => out.push(0x0c),
                    b'n' => out.push(b'\n'),
                    b'r' => out.push(b'\r'),
                    b't' => out.push(b'\t'),
                    byte @ (b'\\' | b'/' | b'"') => out.push(byte),
                    b'u' => {
                        let rune = self.unicode()?;
                        out.extend(rune.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    other => return Err(invalid(other, "in string escape code")),
                },
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                byte => out.push(byte),
            }
        }
        Ok(match std::str::from_utf8(&out) {
            Ok(text) => Str::from(text),
            Err(_) => valid(&out),
        })
    }

    /// The rune of an escape after its `\u`; half a surrogate pair is U+FFFD.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let back = self.at;
        if first < 0xdc00 && self.text.get(self.at..self.at + 2) == Some(b"\\u") {
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let rune = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(rune).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.next()?;
            let digit = char::from(byte)
                .to_digit(16)
                .ok_or_else(|| invalid(byte, "in \\u hexadecimal character escape"))?;
            code = code * 16 + digit;
        }
        Ok(code)
    }
}

/// The text with U+FFFD for every byte that is not UTF-8.
fn valid(text: &[u8]) -> Str {
    let runes = crate::go::utf8::runes(text).map(|(_, rune, _)| rune);
    Str::from(runes.collect::<String>())
}

fn end() -> JsonError {
    JsonError::new("unexpected end of JSON input")
}

fn invalid(byte: u8, context: &str) -> JsonError {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        _ => {
            let rune = char::from(byte).to_string();
            let quoted = crate::go::strconv::quote(rune.as_bytes());
            let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            String::from_utf8_lossy(inner).into_owned()
        }
    };
    JsonError::new(format!("invalid character '{shown}' {context}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> String {
        let mut out = Vec::new();
        match decode(text.as_bytes()) {
            Ok(value) => {
                super::super::encode(&value, super::super::Style::default(), &mut out).unwrap();
                String::from_utf8(out).unwrap()
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn texts_are_read_as_go_reads_them() {
        for (text, expected) in [
            (
                r#" {"b":1,"a":[true,null,-0.5e3],"b":2} "#,
                r#"{"a":[true,null,-500],"b":2}"#,
            ),
            (r#""\ud83d\ude00\ud83dx\u00e9\/""#, "\"😀\u{fffd}xé/\""),
            ("", "unexpected end of JSON input"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            (
                "{,}",
                "invalid character ',' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 1}",
                "invalid character '1' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("1 x", "invalid character 'x' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            (
                "trux",
                "invalid character 'x' in literal true (expecting 'e')",
            ),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            (
                "'",
                "invalid character '\\'' looking for beginning of value",
            ),
            (
                "1e999",
                "json: cannot unmarshal number 1e999 into Go value of type float64",
            ),
        ] {
            assert_eq!(round(text), expected, "{text}");
        }
        assert!(round(&"[".repeat(20_000)).contains("exceeded max depth"));
    }

    #[test]
    fn other_types_than_the_target_are_errors() {
        let (value, error) = decode_into(b"[1]", Type::MAP);
        assert!(value.as_map().unwrap().is_empty());
        assert_eq!(
            error.unwrap().to_string(),
            "json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        assert!(matches!(
            decode_into(b"null", Type::MAP),
            (Value::NilOf(_), None)
        ));
    }
}
