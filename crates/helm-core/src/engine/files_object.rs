//! `.Files`: the files of a chart in templates.

use std::sync::Arc;

use data_encoding::BASE64;
use go_template::{
    Args, Buffer, Call, FuncError, List, Map, Method, Str, Tree, TreeMap, Type, TypeInfo, Value,
};

use super::funcs_yaml;
use super::glob::Glob;
use crate::chart::File;

static INFO: TypeInfo = TypeInfo {
    named: true,
    methods: METHODS,
    ..TypeInfo::map("engine.files", Type::BYTES)
};
const TYPE: Type = Type::new(&INFO);

static METHODS: &[Method] = &[
    Method::new("Get", &[Type::STRING], get),
    Method::new("GetBytes", &[Type::STRING], get_bytes),
    Method::new("Glob", &[Type::STRING], glob),
    Method::new("AsConfig", &[], as_config),
    Method::new("AsSecrets", &[], as_secrets),
    Method::new("Lines", &[Type::STRING], lines),
];

/// Returns the files of a chart by path.
pub(crate) fn tree(files: &[File]) -> Tree {
    let entries = files.iter().map(|file| {
        let content = Tree::Bytes(Arc::new(Str::from(file.shared_data())));
        (Str::from(file.name()), content)
    });
    Tree::from(TreeMap::new(TYPE, entries))
}

type Answer = Result<Value, FuncError>;

/// Returns the content of the file that an argument names, or an empty string.
fn content(files: &Value, args: &Args<'_>) -> Str {
    match files.as_map().and_then(|files| files.get(args.str(0))) {
        Some(Value::Bytes(bytes)) => Str::clone(&bytes),
        _ => Str::EMPTY,
    }
}

fn get(_: &mut Call<'_>, files: &Value, args: &mut Args<'_>) -> Answer {
    Ok(Value::Str(content(files, args)))
}

fn get_bytes(_: &mut Call<'_>, files: &Value, args: &mut Args<'_>) -> Answer {
    Ok(Value::bytes(content(files, args)))
}

fn glob(_: &mut Call<'_>, files: &Value, args: &mut Args<'_>) -> Answer {
    let pattern = Glob::new(&args.str(0).to_string_lossy());
    let matching = entries(files)
        .into_iter()
        .filter(|(path, _)| pattern.matches(&path.to_string_lossy()));
    let matching = matching.map(|(path, content)| (path, Value::bytes(content)));
    Ok(Value::Map(Map::from_entries(TYPE, matching)))
}

/// Returns all paths with their contents.
fn entries(files: &Value) -> Vec<(Str, Str)> {
    let Some(files) = files.as_map() else {
        return Vec::new();
    };
    let entries = files.iter().filter_map(|(path, content)| match content {
        Value::Bytes(bytes) => Some((path, Str::clone(&bytes))),
        _ => None,
    });
    entries.collect()
}

fn as_config(call: &mut Call<'_>, files: &Value, _: &mut Args<'_>) -> Answer {
    by_base_name(call, files, Value::Str)
}

fn as_secrets(call: &mut Call<'_>, files: &Value, _: &mut Args<'_>) -> Answer {
    by_base_name(call, files, |content| {
        Value::from(BASE64.encode(content.as_bytes()))
    })
}

/// Returns a map from base names to contents, as YAML.
fn by_base_name(call: &Call<'_>, files: &Value, show: impl Fn(Str) -> Value) -> Answer {
    let named = entries(files)
        .into_iter()
        .map(|(path, content)| (base(&path), show(content)));
    let map = Value::Map(Map::from_entries(Type::STRING_MAP, named));
    let mut text = Buffer::new();
    match funcs_yaml::write(&map, call.budget(), &mut text) {
        Err(error) if error.is_limit() => return Err(error),
        Err(_) => text.clear(),
        Ok(()) => {}
    }
    Ok(Value::from(text))
}

/// Returns the last component of a path.
fn base(path: &Str) -> Str {
    let path = path.as_bytes();
    let start = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    Str::from(path.get(start..).unwrap_or_default())
}

fn lines(_: &mut Call<'_>, files: &Value, args: &mut Args<'_>) -> Answer {
    let content = content(files, args);
    let text = content.as_bytes();
    if text.is_empty() {
        return Ok(Value::List(List::strings(Vec::<Str>::new())));
    }
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    Ok(Value::List(List::strings(
        text.split(|byte| *byte == b'\n').map(Str::from),
    )))
}
