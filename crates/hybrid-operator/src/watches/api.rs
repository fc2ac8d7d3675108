//! Fields of the spec that a kind has instead of the chart's values.

use std::collections::BTreeSet;

use go_yaml::tree::Node;
use object_cel::{Type, Variables};
use serde_json::{Map, Number, Value, json};

use super::expression::{condition, expression};
use super::fields::{Fields, expected, named_entries, problem};
use super::problem::Problem;

/// Maximum length of the name of a type, which bounds its nesting.
const MAX_TYPE: usize = 128;

/// The spec of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Api {
    /// Structural schema, without defaults.
    pub schema: Value,
    /// Defaults, which the operator fills in.
    pub defaults: Value,
    /// Paths of the fields that refer to a Secret.
    pub secrets: BTreeSet<Vec<String>>,
}

impl Api {
    /// Reads the field `api` of an entry.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        fields.section("api", |api| {
            let mut spec = Object::default();
            for (name, field) in api.named("fields", field) {
                spec.add(name, field);
            }
            let (mut schema, defaults, secrets) = spec.finish();
            let variables = Variables::default().with("self", named("spec", &schema));
            let rules = api.items("rules", |node| rule(node, &variables));
            if !rules.is_empty() {
                set(&mut schema, "x-kubernetes-validations", json!(rules));
            }
            Some(Self {
                schema,
                defaults,
                secrets,
            })
        })?
    }

    /// Returns the type of the spec, as expressions see it.
    pub(super) fn spec(&self) -> Type {
        named("spec", &self.schema)
    }

    /// Returns a spec with the defaults of what it leaves out.
    pub(crate) fn with_defaults(&self, spec: &Value) -> Value {
        let mut whole = self.defaults.clone();
        fill(&mut whole, spec);
        whole
    }
}

/// Returns the type of an object, with a name for messages.
fn named(name: &str, schema: &Value) -> Type {
    match Type::of_schema(schema) {
        Ok(Type::Object(object)) => Type::object(name, object.fields.clone()),
        _ => Type::Dyn,
    }
}

/// Puts the fields of a spec over the defaults.
fn fill(defaults: &mut Value, spec: &Value) {
    match (defaults, spec) {
        (Value::Object(known), Value::Object(fields)) => {
            for (name, value) in fields {
                fill(known.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (defaults, spec) if !spec.is_null() => spec.clone_into(defaults),
        _ => {}
    }
}

/// A field of the spec or of an object in it.
struct Field {
    schema: Value,
    /// Default of the field, or defaults of the fields below it.
    default: Option<Value>,
    is_required: bool,
    /// Paths within it that refer to a Secret.
    secrets: BTreeSet<Vec<String>>,
}

/// The fields of an object.
#[derive(Default)]
struct Object {
    secrets: BTreeSet<Vec<String>>,
    properties: Map<String, Value>,
    defaults: Map<String, Value>,
    required: Vec<String>,
}

impl Object {
    fn add(&mut self, name: String, field: Field) {
        if field.is_required {
            self.required.push(name.clone());
        }
        if let Some(default) = field.default {
            self.defaults.insert(name.clone(), default);
        }
        let secrets = field.secrets.into_iter();
        self.secrets
            .extend(secrets.map(|path| [vec![name.clone()], path].concat()));
        self.properties.insert(name, field.schema);
    }

    /// Returns the schema of the object, its defaults, and the paths that refer to a Secret.
    fn finish(self) -> (Value, Value, BTreeSet<Vec<String>>) {
        let mut schema = json!({"type": "object", "properties": self.properties});
        if !self.required.is_empty() {
            set(&mut schema, "required", json!(self.required));
        }
        (schema, Value::Object(self.defaults), self.secrets)
    }
}

/// Reads a field: a type with marks, or a map of fields. One that is wrong is a field of any type, so that what reads it
/// is not reported, too.
fn field(_: &str, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Field> {
    let entries = match (node.as_str().map(short), node.merged()) {
        (Some(Ok(field)), _) => return Some(field),
        (None, Some(entries)) => entries,
        (text, _) => {
            let wanted = "a type, such as `string | optional`, or a map of fields";
            let message = text.and_then(Result::err);
            let message = message.unwrap_or_else(|| expected(wanted, node));
            problems.push(problem(node, path, message));
            return short("any | optional").ok();
        }
    };
    let is_flag = |(key, value): &(&Node, &Node)| {
        key.as_str() == Some("secretRef") && value.as_bool().is_some()
    };
    if entries.iter().any(is_flag) {
        return Fields::read(node, path, problems, secret);
    }
    let mut object = Object::default();
    for (name, field) in named_entries(entries, path, problems, field) {
        object.add(name, field);
    }
    let is_required = !object.required.is_empty();
    let (schema, defaults, secrets) = object.finish();
    let default = Some(defaults).filter(|defaults| *defaults != json!({}));
    Some(Field {
        schema,
        default,
        is_required,
        secrets,
    })
}

/// Reads a field that refers to a key of a Secret.
fn secret(fields: &mut Fields<'_>) -> Field {
    if !fields.flag("secretRef") {
        fields.wrong("`secretRef` is true, or the field is left out".to_owned());
    }
    let is_required = !fields.flag("optional");
    let text = json!({"type": "string", "minLength": 1});
    let schema = json!({
        "type": "object",
        "required": ["key", "name"],
        "properties": {"name": text, "key": text},
    });
    Field {
        schema,
        default: None,
        is_required,
        secrets: [Vec::new()].into(),
    }
}

/// Reads a type with marks: `string | enum=small,large | default=small`.
fn short(text: &str) -> Result<Field, String> {
    let mut parts = text.split(" | ").map(str::trim);
    let name = parts.next().unwrap_or_default();
    let known = (name.len() <= MAX_TYPE).then(|| schema_of(name)).flatten();
    let mut schema = known.ok_or_else(|| {
        format!("`{name}` is not a type; types are string, integer, number, boolean, any, []TYPE and map[string]TYPE")
    })?;
    let (mut default, mut is_optional) = (None, false);
    for mark in parts {
        let (mark, value) = mark.split_once('=').unwrap_or((mark, ""));
        let limit = |value: &str| {
            value
                .parse::<Number>()
                .map_err(|_| format!("{mark}: `{value}` is not a number"))
        };
        match mark {
            "optional" if value.is_empty() => is_optional = true,
            "default" => default = Some(value),
            "description" | "pattern" => set(&mut schema, mark, json!(value)),
            "enum" => {
                let values = value.split(',').map(|value| literal(value.trim(), &schema));
                let values: Vec<Value> = values.collect::<Result<_, _>>()?;
                set(&mut schema, mark, json!(values));
            }
            "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems" => {
                set(&mut schema, mark, Value::Number(limit(value)?));
            }
            _ => {
                return Err(format!(
                    "`{mark}` is no mark of a type; marks are optional, default=, enum=, pattern=, minimum=, maximum=, minLength=, maxLength=, minItems=, maxItems= and description="
                ));
            }
        }
    }
    let default = default.map(|value| literal(value, &schema)).transpose()?;
    if let (Some(default), Some(Value::Array(allowed))) = (&default, schema.get("enum"))
        && !allowed.contains(default)
    {
        return Err(format!(
            "the default {default} is not one of the values of enum"
        ));
    }
    let is_required = !is_optional && default.is_none();
    Ok(Field {
        schema,
        default,
        is_required,
        secrets: BTreeSet::new(),
    })
}

fn set(schema: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = schema {
        fields.insert(name.to_owned(), value);
    }
}

/// Returns the schema of a type.
fn schema_of(name: &str) -> Option<Value> {
    if let Some(item) = name.strip_prefix("[]") {
        return Some(json!({"type": "array", "items": schema_of(item)?}));
    }
    if let Some(value) = name.strip_prefix("map[string]") {
        return Some(json!({"type": "object", "additionalProperties": schema_of(value)?}));
    }
    Some(match name {
        "string" | "integer" | "number" | "boolean" => json!({"type": name}),
        "int" => json!({"type": "integer"}),
        "float" => json!({"type": "number"}),
        "bool" => json!({"type": "boolean"}),
        "any" => json!({"x-kubernetes-preserve-unknown-fields": true}),
        _ => return None,
    })
}

/// Reads a value of a type from a text. Lists and maps are in YAML's flow style.
fn literal(text: &str, schema: &Value) -> Result<Value, String> {
    let name = schema.get("type").and_then(Value::as_str).unwrap_or("any");
    let value: Value = match name {
        "string" => Value::from(text),
        _ => go_yaml::from_str(text).map_err(|error| format!("`{text}`: {error}"))?,
    };
    let fits = match name {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if fits {
        Ok(value)
    } else {
        Err(format!("`{text}` is not of the type {name}"))
    }
}

/// Reads a rule for the spec, which the API server checks.
fn rule(node: &Node, variables: &Variables) -> Result<Value, String> {
    let rule = condition(expression(node, variables)?)?;
    Ok(json!({"rule": rule.source()}))
}
