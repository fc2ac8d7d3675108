//! Structural schemas: pruning, defaults and validation of objects, as the API server does them.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema`.

use std::collections::BTreeMap;

use regex_automata::meta::Regex;
use serde_json::{Map, Value};

use super::list_types::ListType;
use super::object::{items, text, texts};
use super::status::Cause;

/// A schema of custom resources, or of a built-in kind.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a keyword")]
pub(super) struct Schema {
    type_: String,
    pub(super) properties: BTreeMap<String, Schema>,
    /// Schema of the values of other fields.
    pub(super) additional: Option<Box<Schema>>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) list_type: ListType,
    required: Vec<String>,
    allowed: Vec<Value>,
    default: Option<Value>,
    nullable: bool,
    preserve_unknown: bool,
    int_or_string: bool,
    embedded: bool,
    pattern: Option<Box<(String, Regex)>>,
    limits: BTreeMap<&'static str, f64>,
    exclusive: (bool, bool),
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

const LIMITS: [&str; 8] = [
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// Keywords that change what is accepted and are not modelled.
const UNMODELLED: [&str; 3] = ["x-kubernetes-validations", "multipleOf", "uniqueItems"];

impl Schema {
    /// Parses an `openAPIV3Schema`.
    ///
    /// # Errors
    /// The keyword that is not modelled.
    pub(super) fn parse(schema: &Value) -> Result<Self, String> {
        for keyword in UNMODELLED {
            let value = schema.get(keyword);
            if value.is_some_and(|value| value != &Value::Bool(false)) {
                return Err(format!("schemas with {keyword}"));
            }
        }
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let one = |key: &str| {
            let schema = schema.get(key).filter(|value| value.is_object());
            schema.map(Self::parse)
        };
        let many = |key: &str| -> Result<Vec<Self>, String> {
            items(schema.get(key)).iter().map(Self::parse).collect()
        };
        let mut parsed = Self {
            type_: text(schema, "type").to_owned(),
            additional: one("additionalProperties").transpose()?.map(Box::new),
            items: one("items").transpose()?.map(Box::new),
            list_type: ListType::parse(schema),
            required: texts(schema.get("required")),
            allowed: items(schema.get("enum")).to_vec(),
            default: schema.get("default").cloned(),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            embedded: flag("x-kubernetes-embedded-resource"),
            exclusive: (flag("exclusiveMinimum"), flag("exclusiveMaximum")),
            all_of: many("allOf")?,
            any_of: many("anyOf")?,
            one_of: many("oneOf")?,
            not: one("not").transpose()?.map(Box::new),
            ..Self::default()
        };
        if schema.get("additionalProperties") == Some(&Value::Bool(true)) {
            parsed.preserve_unknown = true;
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let property = Self::parse(property)?;
                parsed.properties.insert(name.clone(), property);
            }
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
            let regex = Regex::new(pattern).map_err(|_| format!("the pattern {pattern:?}"))?;
            parsed.pattern = Some(Box::new((pattern.to_owned(), regex)));
        }
        for limit in LIMITS {
            if let Some(value) = schema.get(limit).and_then(Value::as_f64) {
                parsed.limits.insert(limit, value);
            }
        }
        Ok(parsed)
    }

    /// Removes the fields of an object that the schema does not know, and returns their paths. The
    /// fields `apiVersion`, `kind` and `metadata` of the object stay.
    pub(super) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruned = Vec::new();
        self.prune_at(object, "", true, &mut pruned);
        pruned
    }

    fn prune_at(&self, value: &mut Value, path: &str, root: bool, pruned: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                let names: Vec<String> = fields.keys().cloned().collect();
                for name in names {
                    let kept = matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
                    if kept && (root || self.embedded) {
                        continue;
                    }
                    let inner = join(path, &name);
                    if let Some(schema) = self.field(&name) {
                        if let Some(value) = fields.get_mut(&name) {
                            schema.prune_at(value, &inner, false, pruned);
                        }
                    } else if !self.preserve_unknown {
                        fields.remove(&name);
                        pruned.push(inner);
                    }
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    schema.prune_at(item, &format!("{path}[{index}]"), false, pruned);
                }
            }
            _ => {}
        }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Calls a function with each field or item that has a schema, and with its schema.
    fn each_part(&self, value: &mut Value, act: impl Fn(&Self, &mut Value)) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    if let Some(schema) = self.field(name) {
                        act(schema, value);
                    }
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    act(schema, item);
                }
            }
            _ => {}
        }
    }

    /// Adds the defaults of fields that are missing, and of fields that are null but not nullable.
    pub(super) fn fill_defaults(&self, value: &mut Value) {
        if let Value::Object(fields) = value {
            for (name, schema) in &self.properties {
                let Some(default) = &schema.default else {
                    continue;
                };
                let is_missing = |present: &Value| present.is_null() && !schema.nullable;
                if fields.get(name).is_none_or(is_missing) {
                    fields.insert(name.clone(), default.clone());
                }
            }
        }
        self.each_part(value, Self::fill_defaults);
    }

    /// Removes nulls at fields that are not nullable and have no default.
    pub(super) fn drop_nulls(&self, value: &mut Value) {
        if let Value::Object(fields) = value {
            fields.retain(|name, value| {
                let stays = |schema: &Self| schema.nullable || schema.default.is_some();
                !value.is_null() || self.field(name).is_none_or(stays)
            });
        }
        self.each_part(value, Self::drop_nulls);
    }

    /// Returns what is invalid in an object. What an update does not change is valid.
    pub(super) fn validate(&self, object: &Value, before: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.validate_at(object, before, "", &mut causes);
        causes
    }

    /// Returns what is invalid in the status of an object. The words of the server do not name the status.
    pub(super) fn validate_status(&self, object: &Value, before: Option<&Value>) -> Vec<Cause> {
        let (Some(schema), Some(status)) = (self.properties.get("status"), object.get("status"))
        else {
            return Vec::new();
        };
        // A status that was absent was null.
        let before = before.map(|before| before.get("status").unwrap_or(&Value::Null));
        let causes = schema.validate(status, before).into_iter();
        causes.map(|cause| cause.inside("status")).collect()
    }

    fn validate_at(
        &self,
        value: &Value,
        before: Option<&Value>,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        if (value.is_null() && self.nullable) || before == Some(value) {
            return;
        }
        if !self.accepts_type(value) {
            let expected = if self.int_or_string {
                "integer,string"
            } else {
                &self.type_
            };
            causes.push(Cause::wrong_type(path, type_of(value), expected));
            return;
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            causes.push(Cause::not_supported(path, value, &self.allowed));
        }
        match value {
            Value::Object(fields) => self.validate_fields(fields, before, path, causes),
            Value::Array(items) => self.validate_items(items, path, causes),
            Value::String(text) => self.validate_text(text, value, path, causes),
            Value::Number(number) => self.validate_number(number.as_f64(), value, path, causes),
            Value::Null | Value::Bool(_) => {}
        }
        self.validate_combinations(value, path, causes);
    }

    fn accepts_type(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_string() || is_integer(value);
        }
        match self.type_.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => is_integer(value),
            _ => true,
        }
    }

    fn limit(&self, name: &str) -> Option<f64> {
        self.limits.get(name).copied()
    }

    fn validate_fields(
        &self,
        fields: &Map<String, Value>,
        before: Option<&Value>,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        for name in &self.required {
            if !fields.contains_key(name) {
                causes.push(Cause::required(join(path, name), ""));
            }
        }
        let limits = ["minProperties", "maxProperties"];
        self.validate_count(fields.len(), limits, "properties", path, causes);
        for (name, value) in fields {
            if let Some(schema) = self.field(name) {
                let before = before.and_then(|before| before.get(name));
                schema.validate_at(value, before, &join(path, name), causes);
            }
        }
    }

    fn validate_count(
        &self,
        count: usize,
        [least, most]: [&str; 2],
        what: &str,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        if let Some(most) = self.limit(most)
            && as_f64(count) > most
        {
            causes.push(Cause::too_many(path, count, whole(most)));
        }
        if let Some(least) = self.limit(least)
            && as_f64(count) < least
        {
            let detail = format!("{path} in body should have at least {least} {what}");
            causes.push(Cause::invalid(path, &count.into(), &detail));
        }
    }

    fn validate_items(&self, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
        let limits = ["minItems", "maxItems"];
        self.validate_count(items.len(), limits, "items", path, causes);
        let Some(schema) = &self.items else { return };
        for (index, item) in items.iter().enumerate() {
            schema.validate_at(item, None, &format!("{path}[{index}]"), causes);
        }
    }

    /// Reports only the first rule that a text breaks, as the server does.
    fn validate_text(&self, text: &str, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let length = as_f64(text.chars().count());
        if let Some(most) = self.limit("maxLength")
            && length > most
        {
            causes.push(Cause::too_long(path, whole(most)));
            return;
        }
        let detail = if let Some(least) = self.limit("minLength")
            && length < least
        {
            format!("{path} in body should be at least {least} chars long")
        } else if let Some((pattern, regex)) = self.pattern.as_deref()
            && !regex.is_match(text)
        {
            format!("{path} in body should match '{pattern}'")
        } else {
            return;
        };
        causes.push(Cause::invalid(path, value, &detail));
    }

    fn validate_number(
        &self,
        number: Option<f64>,
        value: &Value,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        let number = number.unwrap_or_default();
        let mut wrong = |words: &str, limit: f64| {
            let detail = format!("{path} in body should be {words} {limit}");
            causes.push(Cause::invalid(path, value, &detail));
        };
        if let Some(least) = self.limit("minimum") {
            if self.exclusive.0 && number <= least {
                wrong("greater than", least);
            } else if number < least {
                wrong("greater than or equal to", least);
            }
        }
        if let Some(most) = self.limit("maximum") {
            if self.exclusive.1 && number >= most {
                wrong("less than", most);
            } else if number > most {
                wrong("less than or equal to", most);
            }
        }
    }

    fn validate_combinations(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let accepts = |schema: &Self| {
            let mut found = Vec::new();
            schema.validate_at(value, None, path, &mut found);
            found.is_empty()
        };
        for schema in &self.all_of {
            schema.validate_at(value, None, path, causes);
        }
        let shown = Value::from("");
        let mut wrong = |detail: &str| {
            let detail = format!("{path} in body {detail}");
            causes.push(Cause::invalid(path, &shown, &detail));
        };
        if !self.any_of.is_empty() && !self.any_of.iter().any(accepts) {
            wrong("must validate at least one schema (anyOf)");
        }
        let matching = self.one_of.iter().filter(|schema| accepts(schema)).count();
        if !self.one_of.is_empty() && matching != 1 {
            wrong("must validate one and only one schema (oneOf)");
        }
        if self.not.as_deref().is_some_and(accepts) {
            wrong("must not validate the schema (not)");
        }
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[allow(clippy::cast_precision_loss, reason = "lengths are small")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits of lengths are small whole numbers"
)]
fn whole(limit: f64) -> u64 {
    limit as u64
}
