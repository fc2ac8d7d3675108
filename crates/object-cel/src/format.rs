//! `format`: `'%s has %d replicas'.format([name, replicas])`.

use data_encoding::HEXLOWER;

use crate::Type;
use crate::time::duration_seconds;
use crate::value::{Value, double_text};

/// Part of a format.
enum Piece<'t> {
    Text(&'t str),
    /// The letter after the `%`.
    Verb(char),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        pieces.push(Piece::Text(before));
        let mut chars = after.chars();
        match chars.next() {
            Some('%') => pieces.push(Piece::Text("%")),
            Some(verb @ ('s' | 'd' | 'b' | 'o' | 'x' | 'X')) => pieces.push(Piece::Verb(verb)),
            Some(other) => {
                return Err(format!(
                    "%{other} is not supported in a format; use %s, %d, %b, %o, %x or %X"
                ));
            }
            None => return Err("a format cannot end with %; write %%".to_owned()),
        }
        rest = chars.as_str();
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Checks a format and the types of its arguments.
pub(crate) fn check(text: &str, types: &[Type]) -> Result<(), String> {
    let pieces = pieces(text)?;
    let verbs = pieces.iter().filter_map(|piece| match piece {
        Piece::Verb(verb) => Some(*verb),
        Piece::Text(_) => None,
    });
    let count = verbs.clone().count();
    if count != types.len() {
        return Err(format!(
            "the format takes {count} values, not {}",
            types.len()
        ));
    }
    for (verb, type_) in verbs.zip(types) {
        let takes = match (verb, type_) {
            (_, Type::Dyn | Type::Int | Type::Uint)
            | ('b', Type::Bool)
            | ('x' | 'X', Type::String | Type::Bytes) => true,
            ('s', other) => !matches!(
                other,
                Type::List(_)
                    | Type::Map(_)
                    | Type::Object(_)
                    | Type::Optional(_)
                    | Type::Library(_)
            ),
            _ => false,
        };
        if !takes {
            return Err(format!("%{verb} of a format cannot take {type_}"));
        }
    }
    Ok(())
}

/// Formats values.
pub(crate) fn format(text: &str, values: &[Value]) -> Result<String, String> {
    let mut formatted = String::new();
    let mut values = values.iter();
    for piece in pieces(text)? {
        match piece {
            Piece::Text(text) => formatted.push_str(text),
            Piece::Verb(verb) => {
                let value = values.next().ok_or("a value is missing")?;
                let text = verb_text(verb, value);
                let cannot = || format!("%{verb} of a format cannot take {}", value.type_name());
                formatted.push_str(&text.ok_or_else(cannot)?);
            }
        }
    }
    Ok(formatted)
}

fn verb_text(verb: char, value: &Value) -> Option<String> {
    let digits = |number: u64| match verb {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        _ => number.to_string(),
    };
    let bytes = |bytes: &[u8]| HEXLOWER.encode(bytes);
    Some(match (verb, value) {
        (_, Value::Int(number)) => {
            let sign = if *number < 0 { "-" } else { "" };
            format!("{sign}{}", digits(number.unsigned_abs()))
        }
        (_, Value::Uint(number)) => digits(*number),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('x', Value::String(text)) => bytes(text.as_bytes()),
        ('X', Value::String(text)) => bytes(text.as_bytes()).to_uppercase(),
        ('x', Value::Bytes(value)) => bytes(value),
        ('X', Value::Bytes(value)) => bytes(value).to_uppercase(),
        ('s', Value::Null) => "null".to_owned(),
        ('s', value) => string(value)?,
        _ => return None,
    })
}

/// Converts a value to a string, as `string(...)` does.
pub(crate) fn string(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => double_text(*number),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Value::Duration(nanoseconds) => duration_seconds(*nanoseconds),
        Value::Timestamp(time) => time.text(),
        _ => return None,
    })
}
