//! `toYaml`, `toYamlPretty`, `fromYaml` and `fromYamlArray`.

use bounded::{Budget, BudgetError, Buffer};
use std::borrow::Cow;
use std::sync::Arc;

use data_encoding::BASE64;
use go_template::sprig::{DURATION, TIME, json};
use go_template::{
    Args, Call, Func, FuncError, Kind, List, Map, Object, Seen, Str, Tree, TreeMap, Type, Value,
};
use go_yaml::emit::{Emitter, Version, key_sort};

use crate::yaml::{self, YamlError};

pub(crate) static FUNCS: &[Func] = &[
    Func::text("toYaml", &[Type::ANY], to_yaml),
    Func::text("mustToYaml", &[Type::ANY], must_to_yaml),
    Func::text("toYamlPretty", &[Type::ANY], to_yaml_pretty),
    Func::value("fromYaml", &[Type::STRING], from_yaml),
    Func::value("fromYamlArray", &[Type::STRING], from_yaml_array),
];

fn to_yaml(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let start = out.len();
    match write(args.get(0), call.budget(), out) {
        Err(error) if error.is_limit() => return Err(error),
        Err(_) => out.truncate(start),
        Ok(()) => {}
    }
    Ok(())
}

fn must_to_yaml(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    out: &mut Buffer,
) -> Result<(), FuncError> {
    write(args.get(0), call.budget(), out)
}

fn to_yaml_pretty(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    out: &mut Buffer,
) -> Result<(), FuncError> {
    document(args.get(0), YamlStyle::Direct, call.budget(), out)
}

/// The tag of a text that is not UTF-8, in base64.
const BINARY: &str = "!!binary";

/// Appends `value` as sigs.k8s.io/yaml writes it, without the trailing line break.
pub(crate) fn write(value: &Value, budget: &Budget, out: &mut Buffer) -> Result<(), FuncError> {
    document(value, YamlStyle::ThroughJson, budget, out)
}

/// Conversion of a value to YAML.
#[derive(Clone, Copy, PartialEq, Eq)]
enum YamlStyle {
    /// Through JSON, in the layout of yaml.v2.
    ThroughJson,
    /// Directly, in the layout of yaml.v3.
    Direct,
}

impl YamlStyle {
    fn version(self) -> Version {
        match self {
            Self::ThroughJson => Version::V2,
            Self::Direct => Version::V3,
        }
    }
}

fn document(
    value: &Value,
    style: YamlStyle,
    budget: &Budget,
    out: &mut Buffer,
) -> Result<(), FuncError> {
    let mut writer = YamlWriter {
        emitter: Emitter::new(out, style.version()),
        style,
        budget,
        depth: 0,
    };
    writer.value(value)?;
    writer.emitter.finish();
    out.check()?;
    if out.last() == Some(&b'\n') {
        out.pop();
    }
    Ok(())
}

struct YamlWriter<'o, 'b> {
    emitter: Emitter<'o>,
    style: YamlStyle,
    budget: &'b Budget,
    /// The nesting of what is being written.
    depth: usize,
}

impl YamlWriter<'_, '_> {
    fn value(&mut self, value: &Value) -> Result<(), FuncError> {
        match value {
            Value::Nil | Value::Invalid => self.emitter.plain("null"),
            Value::NilOf(ty) => self.nil(*ty),
            Value::Bool(value) => self.emitter.plain(if *value { "true" } else { "false" }),
            Value::Int(value) | Value::Int64(value) | Value::SmallInt(_, value) => {
                self.emitter.plain(&value.to_string());
            }
            Value::Uint(_, value) => self.emitter.plain(&value.to_string()),
            Value::Float(value) => self.float(*value)?,
            Value::Str(text) => self.text(text)?,
            Value::Bytes(bytes) => self.bytes(bytes.as_bytes()),
            Value::List(list) => self.nested(|writer| writer.list(list))?,
            Value::Map(map) => self.nested(|writer| writer.map(map))?,
            Value::Object(object) => self.nested(|writer| writer.object(value, object))?,
            Value::Complex(_) | Value::Func(_) => {
                let ty = value.type_name();
                return Err(FuncError::new(format!("cannot marshal type: {ty}")));
            }
        }
        Ok(())
    }

    fn nested(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), FuncError>,
    ) -> Result<(), FuncError> {
        self.emitter.check()?;
        // Go reads the JSON of the value as YAML.
        if self.style == YamlStyle::ThroughJson && self.depth >= json::MAX_DEPTH {
            let message = format!("yaml: exceeded max depth of {}", json::MAX_DEPTH);
            return Err(FuncError::new(message));
        }
        self.depth += 1;
        let budget = self.budget;
        let written = budget.descend(|| write(self));
        self.depth -= 1;
        written
    }

    fn nil(&mut self, ty: Type) {
        match (self.style, ty.kind()) {
            (YamlStyle::Direct, Kind::Map) => self.emitter.begin_map(0),
            (YamlStyle::Direct, Kind::Slice) => self.emitter.begin_list(0),
            _ => self.emitter.plain("null"),
        }
    }

    fn float(&mut self, value: f64) -> Result<(), FuncError> {
        match self.style {
            YamlStyle::Direct => self.emitter.float(value),
            YamlStyle::ThroughJson if value.is_finite() => self.emitter.json_float(value),
            YamlStyle::ThroughJson => return Err(FuncError::new("json: unsupported value")),
        }
        Ok(())
    }

    fn text(&mut self, text: &Str) -> Result<(), FuncError> {
        self.budget.string(text.len())?;
        match self.style {
            YamlStyle::ThroughJson => {
                let valid = text.to_string_lossy();
                let converted = go_yaml::text_through_json(&valid)
                    .map_err(|error| FuncError::new(error.to_string()))?;
                self.emitter.string(&converted);
            }
            YamlStyle::Direct => match text.to_str() {
                Some(text) => self.emitter.string(text),
                None => self.emitter.tagged(BINARY, &base64_lines(text.as_bytes())),
            },
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        match self.style {
            YamlStyle::ThroughJson => self.emitter.string(&BASE64.encode(bytes)),
            YamlStyle::Direct => {
                self.emitter.begin_list(bytes.len());
                for byte in bytes {
                    self.emitter.item();
                    self.emitter.plain(&byte.to_string());
                }
                self.emitter.end_list(bytes.len());
            }
        }
    }

    fn list(&mut self, list: &List) -> Result<(), FuncError> {
        let length = list.len();
        self.emitter.begin_list(length);
        for item in list {
            self.budget.step(1)?;
            self.emitter.check()?;
            self.emitter.item();
            self.value(&item)?;
        }
        self.emitter.end_list(length);
        Ok(())
    }

    fn map(&mut self, map: &Map) -> Result<(), FuncError> {
        if let Some(encode) = map.go_type().info().encode {
            return self.value(&encode(&Value::Map(map.clone())));
        }
        map.with_entries(|entries| self.entries(entries, true))
    }

    /// Writes a subtree that was never converted to values directly.
    fn tree(&mut self, tree: &Tree) -> Result<(), FuncError> {
        match tree {
            Tree::Nil => self.emitter.plain("null"),
            Tree::NilOf(ty) => self.nil(*ty),
            Tree::Bool(value) => self.emitter.plain(if *value { "true" } else { "false" }),
            Tree::Int(value) | Tree::Int64(value) => self.emitter.plain(&value.to_string()),
            Tree::Float(value) => self.float(*value)?,
            Tree::Str(text) => self.text(text)?,
            Tree::Bytes(bytes) => self.bytes(bytes.as_bytes()),
            Tree::List(list) => self.nested(|writer| writer.tree_list(list.items()))?,
            Tree::Map(map) => self.nested(|writer| writer.tree_map(map))?,
        }
        Ok(())
    }

    fn tree_list(&mut self, items: &[Tree]) -> Result<(), FuncError> {
        self.emitter.begin_list(items.len());
        for item in items {
            self.budget.step(1)?;
            self.emitter.check()?;
            self.emitter.item();
            self.tree(item)?;
        }
        self.emitter.end_list(items.len());
        Ok(())
    }

    fn tree_map(&mut self, map: &Arc<TreeMap>) -> Result<(), FuncError> {
        if let Some(encode) = map.go_type().info().encode {
            return self.value(&encode(&Value::Map(Map::from_tree(Arc::clone(map)))));
        }
        let mut entries = map.iter().map(|(key, value)| (key, Seen::Tree(value)));
        self.entries(&mut entries, true)
    }

    fn object(&mut self, value: &Value, object: &Object) -> Result<(), FuncError> {
        let ty = object.go_type();
        // yaml.v3 handles both types itself.
        if self.style == YamlStyle::Direct
            && (ty == TIME || ty == DURATION)
            && let Some(text) = ty.info().text
        {
            let text = match ty.info().encode {
                Some(encode) if ty == TIME => encode(value),
                _ => Value::Str(text(value)),
            };
            self.emitter
                .plain(&text.as_str().map(Str::to_string_lossy).unwrap_or_default());
            return Ok(());
        }
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
        let fields = pointee.info().fields.iter().zip(object.fields());
        let exported = fields.filter(|(field, _)| field.name.starts_with(char::is_uppercase));
        let entries = exported.filter_map(|(field, value)| {
            let key = match self.style {
                YamlStyle::ThroughJson => Str::from(field.json_key(value)?),
                YamlStyle::Direct => Str::from(field.name.to_lowercase()),
            };
            Some((key, value))
        });
        let entries: Vec<_> = entries.collect();
        let mut entries = entries.iter().map(|(key, value)| (key, Seen::Value(value)));
        // yaml.v3 keeps the order of a struct's fields.
        self.entries(&mut entries, self.style == YamlStyle::ThroughJson)
    }

    fn entries(
        &mut self,
        entries: &mut dyn Iterator<Item = (&Str, Seen<'_>)>,
        sorted: bool,
    ) -> Result<(), FuncError> {
        let mut keyed = Vec::with_capacity(entries.size_hint().0);
        for (key, value) in entries {
            keyed.push((self.key(key)?, key, value));
        }
        if sorted {
            let version = self.style.version();
            key_sort::sort(&mut keyed, |(a, ..), (b, ..)| key_sort::less(version, a, b));
        }
        self.emitter.begin_map(keyed.len());
        for (text, key, value) in &keyed {
            self.budget.step(1)?;
            self.emitter.check()?;
            if self.style == YamlStyle::Direct && key.to_str().is_none() {
                self.emitter
                    .tagged_key(BINARY, &base64_lines(key.as_bytes()));
            } else {
                self.emitter.key(text);
            }
            match value {
                Seen::Value(value) => self.value(value)?,
                Seen::Tree(tree) => self.tree(tree)?,
            }
        }
        self.emitter.end_map(keyed.len());
        Ok(())
    }

    fn key<'k>(&self, key: &'k Str) -> Result<Cow<'k, str>, FuncError> {
        let valid = key.to_string_lossy();
        if self.style == YamlStyle::Direct {
            return Ok(valid);
        }
        let folded = match go_yaml::text_through_json(&valid) {
            Ok(text) => matches!(text, Cow::Owned(_)),
            Err(error) => return Err(FuncError::new(error.to_string())),
        };
        if folded {
            return Err(FuncError::new(
                "mapping values are not allowed in this context",
            ));
        }
        Ok(valid)
    }
}

/// Returns base64 in lines of 70 characters, if it is longer than one line.
fn base64_lines(bytes: &[u8]) -> String {
    const LINE: usize = 70;
    let text = BASE64.encode(bytes);
    if text.len() < LINE {
        return text;
    }
    let mut lines = String::with_capacity(text.len() + text.len() / LINE + 1);
    for (index, c) in text.chars().enumerate() {
        if index > 0 && index % LINE == 0 {
            lines.push('\n');
        }
        lines.push(c);
    }
    lines.push('\n');
    lines
}

fn from_yaml(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let message = match yaml::parse_tree(args.str(0).as_bytes(), call.budget()) {
        Ok(tree @ Tree::Map(_)) => return Ok(Value::from(&tree)),
        Ok(Tree::Nil) => return Ok(Value::Map(Map::new())),
        Ok(other) => type_mismatch(&other, Type::MAP),
        Err(error) => go_message(&error)?,
    };
    Ok(Value::Map(Map::from_entries(
        Type::MAP,
        [("Error", Value::from(message))],
    )))
}

fn from_yaml_array(call: &mut Call<'_>, args: &mut Args<'_>) -> Result<Value, FuncError> {
    let message = match yaml::parse_tree(args.str(0).as_bytes(), call.budget()) {
        Ok(tree @ Tree::List(_)) => return Ok(Value::from(&tree)),
        Ok(Tree::Nil) => return Ok(Value::list(Vec::new())),
        Ok(other) => type_mismatch(&other, Type::LIST),
        Err(error) => go_message(&error)?,
    };
    Ok(Value::list(vec![Value::from(message)]))
}

/// Returns Go's error for a document that cannot be read.
///
/// # Errors
/// An exceeded limit that Go does not have.
fn go_message(error: &YamlError) -> Result<String, BudgetError> {
    match (error, error.limit()) {
        (YamlError::Depth(_), _) => Ok(format!(
            "error unmarshaling JSON: while decoding JSON: {error}"
        )),
        // A document that is nested too deeply is an error in Go, too.
        (_, None | Some(BudgetError::Nesting { .. })) => {
            Ok(format!("error converting YAML to JSON: {error}"))
        }
        (_, Some(limit)) => Err(limit.clone()),
    }
}

/// Returns Go's error for a document that is not a map or not a list.
fn type_mismatch(tree: &Tree, target: Type) -> String {
    let found = match tree {
        Tree::Bool(_) => "bool",
        Tree::Str(_) | Tree::Bytes(_) => "string",
        Tree::List(_) => "array",
        Tree::Map(_) => "object",
        Tree::Nil | Tree::NilOf(_) | Tree::Int(_) | Tree::Int64(_) | Tree::Float(_) => "number",
    };
    format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go \
         value of type {target}"
    )
}
