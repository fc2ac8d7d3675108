//! `common.Values`: the Go type of dot, `.Values` and `.Template`, and its methods.

use go_template::{
    Args, Buffer, Call, FuncError, Map, Method, Str, Type, TypeInfo, Value, go::strconv,
};

use super::funcs_yaml;

static VALUES: TypeInfo = TypeInfo {
    named: true,
    methods: &[
        Method::new("YAML", &[], yaml),
        Method::new("Table", &[Type::STRING], table),
        Method::new("AsMap", &[], as_map),
        Method::new("Encode", &WRITER_PARAM, encode),
        Method::new("PathValue", &[Type::STRING], path_value),
    ],
    ..TypeInfo::map("common.Values", Type::ANY)
};

/// The type of dot, `.Values` and `.Template`.
pub(crate) const VALUES_TYPE: Type = Type::new(&VALUES);

/// The type `io.Writer`; no template value has it.
static WRITER: TypeInfo = TypeInfo {
    named: true,
    ..TypeInfo::new("io.Writer", go_template::Kind::Interface)
};
static WRITER_PARAM: [Type; 1] = [Type::new(&WRITER)];

fn yaml(call: &mut Call<'_>, values: &Value, _: &mut Args<'_>) -> Result<Value, FuncError> {
    let mut out = Buffer::new();
    funcs_yaml::write(values, call.budget(), &mut out)?;
    out.push(b'\n');
    Ok(Value::from(out))
}

fn encode(_: &mut Call<'_>, _: &Value, _: &mut Args<'_>) -> Result<Value, FuncError> {
    Err(FuncError::new("no writer available"))
}

/// Returns the map itself or, if it is empty, a new one.
fn as_map(_: &mut Call<'_>, values: &Value, _: &mut Args<'_>) -> Result<Value, FuncError> {
    Ok(Value::Map(match values {
        Value::Map(map) if !map.is_empty() => map.as_type(Type::MAP),
        _ => Map::new(),
    }))
}

fn table(_: &mut Call<'_>, values: &Value, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let path = args.str(0);
    match below(values, parts(path)) {
        Ok(map) => Ok(Value::Map(map)),
        Err(part) => Err(FuncError::new(format!("{} is not a table", quoted(part)))),
    }
}

fn path_value(_: &mut Call<'_>, values: &Value, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let path = args.str(0).as_bytes();
    if path.is_empty() {
        return Err(FuncError::new("YAML path cannot be empty"));
    }
    let (tables, key) = match path.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => (path.get(..dot), path.get(dot + 1..).unwrap_or_default()),
        None => (None, path),
    };
    let table = match tables {
        Some(tables) => below(values, tables.split(|byte| *byte == b'.')).ok(),
        None => values.as_map().cloned(),
    };
    match table.and_then(|table| table.get(key)) {
        Some(value) if value.go_type() != Some(Type::MAP) => Ok(value),
        _ => Err(FuncError::new(format!("{} is not a value", quoted(key)))),
    }
}

fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(&strconv::quote(text)).into_owned()
}

fn parts(path: &Str) -> impl Iterator<Item = &[u8]> {
    path.as_bytes().split(|byte| *byte == b'.')
}

/// Returns the table below `values` at a path, as `common.Values`, or the part of the path that is
/// not a table.
pub(super) fn below<'p>(
    values: &Value,
    path: impl Iterator<Item = &'p [u8]>,
) -> Result<Map, &'p [u8]> {
    let mut current = values.as_map().cloned().unwrap_or_else(Map::new);
    for part in path {
        current = match current.get(part) {
            Some(Value::Map(map)) if [Type::MAP, VALUES_TYPE].contains(&map.go_type()) => map,
            _ => return Err(part),
        };
    }
    Ok(current.as_type(VALUES_TYPE))
}
