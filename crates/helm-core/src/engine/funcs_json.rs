//! `fromJson` and `fromJsonArray`, which return parse errors in their result.

use go_template::sprig::json;
use go_template::{Args, Call, Func, FuncError, Kind, List, Map, Type, Value};

pub(crate) static FUNCS: &[Func] = &[
    Func::value("fromJson", &[Type::STRING], from_json),
    Func::value("fromJsonArray", &[Type::STRING], from_json_array),
];

fn from_json(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let (value, error) = decode(call, args, Type::MAP)?;
    if let Some(error) = error {
        let map = value.as_map().cloned().unwrap_or_else(Map::new);
        map.insert("Error", Value::from(error));
        return Ok(Value::Map(map));
    }
    Ok(value)
}

fn from_json_array(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let (value, error) = decode(call, args, Type::LIST)?;
    Ok(match error {
        Some(error) => Value::List(List::new(Type::LIST, vec![Value::from(error)])),
        None => value,
    })
}

/// Returns what Go decodes into a variable of type `target`, and the error.
fn decode(
    call: &mut Call<'_>,
    args: &Args<'_>,
    target: Type,
) -> Result<(Value, Option<String>), FuncError> {
    let text = args.str(0).as_bytes();
    let json::Decoded { value, error } = json::decode_within(text, call.budget());
    if let Some(json::DecodeError::Budget(error)) = error {
        return Err(error.into());
    }
    if let (Value::Nil, Some(error)) = (&value, &error) {
        return Ok((empty(target), Some(error.to_string())));
    }
    let found = match &value {
        Value::Nil => return Ok((Value::NilOf(target), None)),
        Value::Map(_) if target.kind() == Kind::Map => {
            return Ok((value, error.map(|error| error.to_string())));
        }
        Value::List(_) if target.kind() == Kind::Slice => {
            return Ok((value, error.map(|error| error.to_string())));
        }
        Value::Map(_) => "object",
        Value::List(_) => "array",
        Value::Str(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    let message = format!("json: cannot unmarshal {found} into Go value of type {target}");
    Ok((empty(target), Some(message)))
}

fn empty(target: Type) -> Value {
    if target.kind() == Kind::Map {
        Value::Map(Map::with_type(target))
    } else {
        Value::List(List::new(target, Vec::new()))
    }
}
