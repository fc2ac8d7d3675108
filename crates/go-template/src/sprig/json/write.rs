//! JSON encoding like Go's `encoding/json`: sorted keys, floats as in JavaScript and, unless raw,
//! HTML escapes.

use std::collections::HashSet;

use crate::go::strconv::{format_float, push_int, push_uint};
use crate::go::utf8::{RUNE_ERROR, decode_rune};
use crate::sprig::encoding::push_base64;
use crate::value::{Kind, List, Map, Object, Type, Value};
use bounded::{Budget, BudgetError, Buffer};

/// Nesting from which enclosing containers are tracked to detect cycles.
const DEPTH_BEFORE_CYCLES: usize = 100;

/// The layout of JSON output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether `<`, `>` and `&` are escaped.
    pub escape_html: bool,
    /// Whether every member is on a separate line, indented by two spaces.
    pub pretty: bool,
}

impl Style {
    /// Go's `json.Marshal`.
    pub const COMPACT: Self = Self {
        escape_html: true,
        pretty: false,
    };
    /// Go's `json.MarshalIndent` with two spaces.
    pub const PRETTY: Self = Self {
        escape_html: true,
        pretty: true,
    };
    /// Go's encoder with `SetEscapeHTML(false)`, without the trailing newline.
    pub const RAW: Self = Self {
        escape_html: false,
        pretty: false,
    };
}

/// An error while encoding a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A float that JSON cannot represent.
    #[error("json: unsupported value: {0}")]
    UnsupportedValue(&'static str),
    /// A value that contains itself.
    #[error("json: unsupported value: encountered a cycle via {0}")]
    Cycle(&'static str),
    /// A kind that JSON does not support.
    #[error("json: unsupported type: {0}")]
    UnsupportedType(&'static str),
    /// A limit was exceeded.
    #[error(transparent)]
    Budget(#[from] BudgetError),
}

/// Appends a value as JSON. After an error the appended text is unspecified.
///
/// # Errors
/// If JSON has no counterpart of a value, or a limit is exceeded.
pub fn encode(
    value: &Value,
    style: Style,
    budget: &Budget,
    out: &mut Buffer,
) -> Result<(), EncodeError> {
    let start = out.len();
    JsonWriter {
        style,
        budget,
        start,
        out,
        depth: 0,
        enclosing: HashSet::new(),
    }
    .value(value)
}

struct JsonWriter<'a> {
    style: Style,
    budget: &'a Budget,
    start: usize,
    out: &'a mut Buffer,
    depth: usize,
    /// The addresses of the enclosing containers.
    enclosing: HashSet<usize>,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value) -> Result<(), EncodeError> {
        match value {
            Value::NilOf(ty) if ty.kind() == Kind::Func => {
                return Err(EncodeError::UnsupportedType(ty.name()));
            }
            Value::Invalid | Value::Nil | Value::NilOf(_) => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Int(number) | Value::Int64(number) | Value::SmallInt(_, number) => {
                push_int(self.out, *number);
            }
            Value::Uint(_, number) => push_uint(self.out, *number),
            Value::Float(number) => return push_float(self.out, *number),
            Value::Str(text) => push_string(self.out, text.as_bytes(), self.style.escape_html),
            Value::Bytes(bytes) => self.bytes(bytes.as_bytes()),
            Value::List(list) => return self.list(list),
            Value::Map(map) => return self.map(map),
            Value::Object(object) => return self.object(value, object),
            Value::Complex(_) | Value::Func(_) => {
                return Err(EncodeError::UnsupportedType(value.type_name()));
            }
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        push_base64(self.out, bytes);
        self.out.push(b'"');
    }

    /// Writes a container in its brackets, unless it encloses itself or is nested too deeply.
    fn nested(
        &mut self,
        address: usize,
        name: &'static str,
        [open, close]: [u8; 2],
        body: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        // Shared parts can turn a small value into a long text.
        let limit = self.budget.limits().string;
        if self.out.len() - self.start > limit {
            return Err(BudgetError::String { limit }.into());
        }
        self.out.check()?;
        let watched = self.depth >= DEPTH_BEFORE_CYCLES;
        if watched && !self.enclosing.insert(address) {
            return Err(EncodeError::Cycle(name));
        }
        self.depth += 1;
        self.out.push(open);
        let budget = self.budget;
        let result = budget.descend(|| body(self));
        self.depth -= 1;
        if watched {
            self.enclosing.remove(&address);
        }
        result?;
        self.new_line();
        self.out.push(close);
        Ok(())
    }

    /// Begins a member of a container: writes the comma and, if pretty, a new line.
    fn begin_member(&mut self, first: bool) {
        if !first {
            self.out.push(b',');
        }
        self.new_line();
    }

    fn new_line(&mut self) {
        if self.style.pretty {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * self.depth, b' ');
        }
    }

    fn list(&mut self, list: &List) -> Result<(), EncodeError> {
        let ty = list.go_type();
        if ty == Type::BYTES {
            let byte = |item: Value| {
                item.number()
                    .and_then(|number| u8::try_from(number.to_i64()?).ok())
            };
            let bytes: Vec<u8> = list.iter().filter_map(byte).collect();
            self.bytes(&bytes);
            return Ok(());
        }
        if list.is_empty() {
            self.out.extend_from_slice(b"[]");
            return Ok(());
        }
        self.nested(list.address(), ty.name(), *b"[]", |writer| {
            for (index, item) in list.iter().enumerate() {
                writer.begin_member(index == 0);
                writer.budget.step(1)?;
                writer.out.check()?;
                writer.value(&item)?;
            }
            Ok(())
        })
    }

    fn map(&mut self, map: &Map) -> Result<(), EncodeError> {
        if map.is_empty() {
            self.out.extend_from_slice(b"{}");
            return Ok(());
        }
        self.nested(map.address(), map.go_type().name(), *b"{}", |writer| {
            for (index, (key, value)) in map.iter().enumerate() {
                writer.begin_member(index == 0);
                writer.budget.step(1)?;
                writer.out.check()?;
                writer.key(key.as_bytes());
                writer.value(&value)?;
            }
            Ok(())
        })
    }

    fn key(&mut self, key: &[u8]) {
        push_string(self.out, key, self.style.escape_html);
        self.out
            .extend_from_slice(if self.style.pretty { b": " } else { b":" });
    }

    fn object(&mut self, value: &Value, object: &Object) -> Result<(), EncodeError> {
        let ty = object.go_type();
        let encode = ty.info().encode.or_else(|| match ty.kind() {
            Kind::Ptr => ty.elem().info().encode,
            _ => None,
        });
        if let Some(encode) = encode {
            return self.value(&encode(value));
        }
        if !matches!(object.underlying(), Value::Invalid) {
            return self.value(object.underlying());
        }
        let is_exported = |name: &str| name.starts_with(|c: char| c.is_uppercase());
        let fields = ty.structure().fields.iter().zip(object.fields());
        let exported = fields.filter(|(field, _)| is_exported(field.name));
        let members: Vec<_> = exported
            .filter_map(|(field, value)| Some((field.json_key(value)?, value)))
            .collect();
        if members.is_empty() {
            self.out.extend_from_slice(b"{}");
            return Ok(());
        }
        self.nested(object.address(), ty.name(), *b"{}", |writer| {
            for (index, (key, value)) in members.into_iter().enumerate() {
                writer.begin_member(index == 0);
                writer.key(key.as_bytes());
                writer.value(value)?;
            }
            Ok(())
        })
    }
}

/// Appends a float: with an exponent below `1e-6` and from `1e21` on, otherwise in full.
///
/// # Errors
/// If the number is not finite.
pub fn push_float(out: &mut Buffer, number: f64) -> Result<(), EncodeError> {
    if number.is_nan() {
        return Err(EncodeError::UnsupportedValue("NaN"));
    }
    if number.is_infinite() {
        let name = if number > 0.0 { "+Inf" } else { "-Inf" };
        return Err(EncodeError::UnsupportedValue(name));
    }
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        format_float(out, number, b'f', None, 64);
        return Ok(());
    }
    format_float(out, number, b'e', None, 64);
    // Removes the leading zero of the exponent: `e-09` becomes `e-9`.
    if let [.., b'e', b'-', b'0', last] = out.as_slice() {
        let last = *last;
        out.truncate(out.len() - 2);
        out.push(last);
    }
    Ok(())
}

/// Appends a quoted string. Invalid UTF-8 becomes U+FFFD.
pub fn push_string(out: &mut Buffer, text: &[u8], escape_html: bool) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let hex = |digit: u8| HEX.get(usize::from(digit & 15)).copied().unwrap_or(b'0');
    let plain = |c: &u8| match c {
        b'<' | b'>' | b'&' => !escape_html,
        b'"' | b'\\' | 0..0x20 | 0x80.. => false,
        _ => true,
    };
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    loop {
        let length = rest.iter().position(|c| !plain(c)).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(length);
        out.extend_from_slice(run);
        let (rune, width) = decode_rune(tail);
        let (head, after) = tail.split_at(width);
        match rune {
            _ if width == 0 => break,
            RUNE_ERROR if width == 1 => out.extend_from_slice(b"\\ufffd"),
            '"' | '\\' => out.extend_from_slice(&[b'\\', rune as u8]),
            '\x08' => out.extend_from_slice(b"\\b"),
            '\x0C' => out.extend_from_slice(b"\\f"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\0'..='\x7F' => {
                let byte = rune as u8;
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[hex(byte >> 4), hex(byte)]);
            }
            '\u{2028}' => out.extend_from_slice(b"\\u2028"),
            '\u{2029}' => out.extend_from_slice(b"\\u2029"),
            _ => out.extend_from_slice(head),
        }
        rest = after;
    }
    out.push(b'"');
}
