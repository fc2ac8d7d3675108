//! `json.Marshal`: values as JSON, maps in the order of their keys.

use std::io::Write as _;

use super::JsonError;
use crate::go::utf8;
use crate::value::{Kind, List, Map, Object, Type, Value};

/// Deeper nesting than any document has: Go looks for cycles from here on.
const DEEPEST: usize = 1000;

/// How JSON is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether `<`, `>` and `&` are escaped, which is Go's default.
    pub escape_html: bool,
    /// What each level is indented by; without it everything stands in one line.
    pub indent: Option<&'static str>,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            escape_html: true,
            indent: None,
        }
    }
}

/// Appends `value` as JSON. What was appended before an error stays.
pub fn encode(value: &Value, style: Style, out: &mut Vec<u8>) -> Result<(), JsonError> {
    Encoder {
        style,
        out,
        depth: 0,
    }
    .value(value)
}

struct Encoder<'o> {
    style: Style,
    out: &'o mut Vec<u8>,
    depth: usize,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value) -> Result<(), JsonError> {
        match value {
            Value::Invalid | Value::Nil | Value::NilOf(_) => self.out.extend(b"null"),
            Value::Bool(true) => self.out.extend(b"true"),
            Value::Bool(false) => self.out.extend(b"false"),
            Value::Int(value) | Value::Int64(value) | Value::SmallInt(_, value) => {
                let _ = write!(self.out, "{value}");
            }
            Value::Uint(_, value) => {
                let _ = write!(self.out, "{value}");
            }
            Value::Float(value) => write_float(*value, self.out)?,
            Value::Complex(_) => return Err(unsupported("complex128")),
            Value::Str(text) => write_string(text.as_bytes(), self.style.escape_html, self.out),
            Value::Bytes(bytes) => {
                let text = data_encoding::BASE64.encode(bytes.as_bytes());
                let _ = write!(self.out, "\"{text}\"");
            }
            Value::List(list) => self.nested(value, |encoder| encoder.list(list))?,
            Value::Map(map) => self.nested(value, |encoder| encoder.map(map))?,
            Value::Object(object) => self.nested(value, |encoder| encoder.object(value, object))?,
            Value::Func(_) => return Err(unsupported("func")),
        }
        Ok(())
    }

    fn nested(
        &mut self,
        value: &Value,
        write: impl FnOnce(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        if self.depth > DEEPEST {
            let message = format!(
                "json: unsupported value: encountered a cycle via {}",
                value.go_type().map_or("interface {}", Type::name)
            );
            return Err(JsonError::new(message));
        }
        self.depth += 1;
        let result = crate::stack::grow(|| write(self));
        self.depth -= 1;
        result
    }

    fn list(&mut self, list: &List) -> Result<(), JsonError> {
        self.out.push(b'[');
        for (index, item) in list.iter().enumerate() {
            self.separate(index);
            self.value(&item)?;
        }
        self.close(b']', list.is_empty());
        Ok(())
    }

    fn map(&mut self, map: &Map) -> Result<(), JsonError> {
        if let Some(encode) = map.go_type().info().encode {
            return self.value(&encode(&Value::Map(map.clone())));
        }
        self.out.push(b'{');
        for (index, (key, value)) in map.iter().enumerate() {
            self.separate(index);
            self.key(key.as_bytes());
            self.value(&value)?;
        }
        self.close(b'}', map.is_empty());
        Ok(())
    }

    fn object(&mut self, value: &Value, object: &Object) -> Result<(), JsonError> {
        let ty = object.go_type();
        let pointee = if ty.kind() == Kind::Ptr {
            ty.elem()
        } else {
            ty
        };
        if let Some(encode) = ty.info().encode.or(pointee.info().encode) {
            return self.value(&encode(value));
        }
        if !matches!(object.underlying(), Value::Invalid) {
            return self.value(object.underlying());
        }
        self.out.push(b'{');
        let mut written = 0;
        for (field, value) in pointee.info().fields.iter().zip(object.fields()) {
            if !field.name.starts_with(|first: char| first.is_uppercase()) {
                continue;
            }
            self.separate(written);
            self.key(field.json.unwrap_or(field.name).as_bytes());
            self.value(value)?;
            written += 1;
        }
        self.close(b'}', written == 0);
        Ok(())
    }

    fn key(&mut self, key: &[u8]) {
        write_string(key, self.style.escape_html, self.out);
        self.out.push(b':');
        if self.style.indent.is_some() {
            self.out.push(b' ');
        }
    }

    /// What stands before the item at `index`.
    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push(b',');
        }
        self.break_line();
    }

    fn close(&mut self, bracket: u8, is_empty: bool) {
        if !is_empty {
            self.depth -= 1;
            self.break_line();
            self.depth += 1;
        }
        self.out.push(bracket);
    }

    fn break_line(&mut self) {
        if let Some(indent) = self.style.indent {
            self.out.push(b'\n');
            for _ in 0..self.depth {
                self.out.extend(indent.as_bytes());
            }
        }
    }
}

fn unsupported(ty: &str) -> JsonError {
    JsonError::new(format!("json: unsupported type: {ty}"))
}

/// Appends a float: the shortest digits, with an exponent below 1e-6 and from 1e21 on.
pub fn write_float(value: f64, out: &mut Vec<u8>) -> Result<(), JsonError> {
    if !value.is_finite() {
        let shown = if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        };
        return Err(JsonError::new(format!("json: unsupported value: {shown}")));
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        let _ = write!(out, "{value}");
        return Ok(());
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if magnitude >= 1.0 => {
            let _ = write!(out, "{digits}e+{exponent}");
        }
        _ => out.extend(text.as_bytes()),
    }
    Ok(())
}

/// Appends a string in quotes. What is not UTF-8 becomes U+FFFD.
pub fn write_string(text: &[u8], escape_html: bool, out: &mut Vec<u8>) {
    let plain = |byte: u8| {
        (b' '..0x80).contains(&byte)
            && !matches!(byte, b'"' | b'\\')
            && !(escape_html && matches!(byte, b'<' | b'>' | b'&'))
    };
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    loop {
        let length = rest.iter().position(|byte| !plain(*byte));
        let (head, tail) = rest.split_at(length.unwrap_or(rest.len()));
        out.extend_from_slice(head);
        let Some(first) = tail.first() else { break };
        let mut taken = 1;
        match first {
            b'"' => out.extend(b"\\\""),
            b'\\' => out.extend(b"\\\\"),
            0x08 => out.extend(b"\\b"),
            0x0c => out.extend(b"\\f"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            byte if *byte < 0x80 => {
                let _ = write!(out, "\\u{byte:04x}");
            }
            _ => {
                let (rune, size) = utf8::decode_rune(tail);
                taken = size.max(1);
                let bytes = tail.get(..taken).unwrap_or_default();
                match rune {
                    char::REPLACEMENT_CHARACTER if taken == 1 => out.extend(b"\\ufffd"),
                    '\u{2028}' | '\u{2029}' => {
                        let _ = write!(out, "\\u{:04x}", u32::from(rune));
                    }
                    _ => out.extend_from_slice(bytes),
                }
            }
        }
        rest = tail.get(taken..).unwrap_or_default();
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value, style: Style) -> Result<String, String> {
        let mut out = Vec::new();
        encode(value, style, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_are_written_as_go_writes_them() {
        let map: Map = [
            ("b", Value::Float(1e21)),
            ("a", Value::from("<\u{2028}\u{7f}\u{1}é\"")),
            (
                "c",
                Value::list(vec![Value::Nil, Value::bytes(&b"x"[..]), Value::Float(1e6)]),
            ),
            ("d", Value::from(&b"\xff"[..])),
        ]
        .into_iter()
        .collect();
        assert_eq!(
            json(&Value::Map(map), Style::default()).unwrap(),
            "{\"a\":\"\\u003c\\u2028\u{7f}\\u0001é\\\"\",\"b\":1e+21,\
             \"c\":[null,\"eA==\",1000000],\"d\":\"\\ufffd\"}"
        );
        for (float, text) in [(-0.0, "-0"), (1.5e-7, "1.5e-7"), (0.000_001, "0.000001")] {
            assert_eq!(json(&Value::Float(float), Style::default()).unwrap(), text);
        }
    }

    #[test]
    fn indented_json_has_empty_containers_in_one_line() {
        let map: Map = [
            ("a", Value::list(vec![])),
            ("b", Value::list(vec![Value::Int(1)])),
        ]
        .into_iter()
        .collect();
        let style = Style {
            indent: Some("  "),
            escape_html: false,
        };
        assert_eq!(
            json(&Value::Map(map), style).unwrap(),
            "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}"
        );
    }

    #[test]
    fn what_json_cannot_say_is_an_error() {
        assert_eq!(
            json(&Value::Float(f64::NAN), Style::default()).unwrap_err(),
            "json: unsupported value: NaN"
        );
        let map = Map::new();
        map.insert("self", Value::Map(map.clone()));
        let error = json(&Value::Map(map.clone()), Style::default()).unwrap_err();
        map.clear();
        assert!(
            error.contains("encountered a cycle via map[string]interface {}"),
            "{error}"
        );
    }
}
