//! Property: what Helm accepts, the CRD accepts, and loses nothing of it.

#![allow(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "numbers are compared as JSON schemas compare them"
)]

use std::cell::Cell;

use helm_core::CompiledChart;
use helm_core::chart::{Chart, File};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use super::{Strictness, of_chart, structural};

const NAMES: [&str; 3] = ["a", "b", "c"];
const KINDS: [&str; 7] = [
    "string", "integer", "number", "boolean", "object", "array", "null",
];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(NAMES.as_slice()).prop_map(ToOwned::to_owned)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(4),
        json!(1.5),
        json!(-2),
        json!(""),
        json!("a"),
        json!("b.c"),
        json!("abcd"),
    ])
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn values() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(name(), value(), 0..4).prop_map(|map| map.into_iter().collect())
}

/// Keywords without subschemas.
fn plain_schema() -> impl Strategy<Value = Map<String, Value>> {
    let kind = || prop::sample::select(KINDS.as_slice());
    let of = |name: &'static str| move |value: Value| Map::from_iter([(name.to_owned(), value)]);
    prop_oneof![
        Just(Map::new()),
        kind().prop_map(|kind| json!(kind)).prop_map(of("type")),
        kind().prop_map(|kind| json!(kind)).prop_map(of("type")),
        prop::collection::btree_set(kind(), 1..4)
            .prop_map(|kinds| json!(kinds))
            .prop_map(of("type")),
        prop::collection::vec(scalar(), 1..4)
            .prop_map(Value::from)
            .prop_map(of("enum")),
        scalar().prop_map(of("const")),
        (-2..5).prop_map(|n| json!({"type": "integer", "minimum": n})
            .as_object()
            .unwrap()
            .clone()),
        (-2..5).prop_map(|n| json!({"type": "number", "exclusiveMaximum": n})
            .as_object()
            .unwrap()
            .clone()),
        (0..4).prop_map(|n| json!({"type": "string", "minLength": n})
            .as_object()
            .unwrap()
            .clone()),
        (0..4).prop_map(|n| json!({"type": "array", "maxItems": n})
            .as_object()
            .unwrap()
            .clone()),
        (1..3).prop_map(|n| json!({"type": "integer", "multipleOf": n})
            .as_object()
            .unwrap()
            .clone()),
        Just(
            json!({"type": "string", "format": "ipv4"})
                .as_object()
                .unwrap()
                .clone()
        ),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        8 => plain_schema().prop_map(Value::Object),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop::sample::select(vec!["#/$defs/one", "#/$defs/two", "#"])
            .prop_map(|reference| json!({"$ref": reference})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let properties = || prop::collection::btree_map(name(), inner.clone(), 0..4);
        let others = prop_oneof![Just(json!(true)), Just(json!(false)), inner.clone(),];
        let list = || prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            3 => (properties(), others, prop::collection::btree_set(name(), 0..2)).prop_map(
                |(properties, others, required)| json!({"type": "object",
                    "properties": properties, "additionalProperties": others,
                    "required": required})),
            2 => properties().prop_map(|properties| json!({ "properties": properties })),
            1 => (properties(), 0..3).prop_map(|(properties, count)| json!({"type": "object",
                "patternProperties": {"^b": {}}, "additionalProperties": false,
                "properties": properties, "minProperties": count})),
            2 => inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            1 => (prop::sample::select(vec!["allOf", "anyOf", "oneOf"]), list(), inner.clone())
                .prop_map(|(keyword, list, base)| {
                    let mut schema = base.as_object().cloned().unwrap_or_default();
                    schema.insert(keyword.to_owned(), Value::from(list));
                    Value::Object(schema)
                }),
            1 => (inner.clone(), inner.clone()).prop_map(|(condition, then)|
                json!({"if": condition, "then": then, "not": {"required": ["c"]}})),
        ]
    })
}

fn chart(schema: Option<&Value>, defaults: &Map<String, Value>) -> Chart {
    let mut files = vec![
        File::new("Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}"),
        File::new("values.yaml", json!(defaults).to_string()),
    ];
    if let Some(schema) = schema {
        files.push(File::new("values.schema.json", schema.to_string()));
    }
    Chart::from_files(files).unwrap()
}

/// Validates as the API server does, as far as the generator uses it. Returns the first error; a
/// field that would be dropped is one.
fn refused(schema: &Value, value: &Value) -> Option<String> {
    let is = |name: &str| schema[name] == json!(true);
    let open = is("x-kubernetes-preserve-unknown-fields");
    if value.is_null() {
        let null = is("nullable") && schema.get("enum").is_none();
        return (!null).then(|| "null".to_owned());
    }
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = match schema.get("type").and_then(Value::as_str) {
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("number") => value.is_number(),
        Some("integer") => whole,
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(other) => return Some(format!("unknown type {other}")),
        None if is("x-kubernetes-int-or-string") => value.is_string() || whole,
        None if open => true,
        None => return Some("not structural".to_owned()),
    };
    if !fits {
        return Some(format!("{value} is no {}", schema["type"]));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed
            .iter()
            .any(|one| one == value || one.as_f64().is_some() && one.as_f64() == value.as_f64())
    {
        return Some(format!("{value} is not in {allowed:?}"));
    }
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    let size = |value: &Value| match value {
        Value::String(text) => (text.chars().count() as f64, "Length"),
        Value::Array(items) => (items.len() as f64, "Items"),
        _ => (value.as_f64().unwrap_or_default(), "imum"),
    };
    let (number, suffix) = size(value);
    if value.is_number() || value.is_string() || value.is_array() {
        let least = limit(&format!("min{suffix}"));
        let most = limit(&format!("max{suffix}"));
        let below = least.is_some_and(|n| number < n || number == n && is("exclusiveMinimum"));
        let above = most.is_some_and(|n| number > n || number == n && is("exclusiveMaximum"));
        if below || above {
            return Some(format!("{value} is outside of {least:?} to {most:?}"));
        }
    }
    if let Some(factor) = limit("multipleOf")
        && number % factor != 0.0
    {
        return Some(format!("{value} is not a multiple of {factor}"));
    }
    if let (Some(pattern), Some(text)) = (
        schema.get("pattern").and_then(Value::as_str),
        value.as_str(),
    ) {
        // The generated schemas have no patterns of their own.
        let choices = pattern
            .strip_prefix("^(")
            .unwrap()
            .strip_suffix(")$")
            .unwrap();
        if !choices
            .split('|')
            .any(|choice| choice.replace('\\', "") == text)
        {
            return Some(format!("{text:?} does not match {pattern}"));
        }
    }
    match value {
        Value::Array(items) => {
            let below = schema.get("items");
            items.iter().find_map(|item| match below {
                Some(below) => refused(below, item),
                None => (!open).then(|| "items".to_owned()),
            })
        }
        Value::Object(map) => {
            let required = schema.get("required").and_then(Value::as_array);
            let missing = required
                .into_iter()
                .flatten()
                .find(|name| !map.contains_key(name.as_str().unwrap()));
            if let Some(name) = missing {
                return Some(format!("{name} is missing"));
            }
            let properties = schema.get("properties");
            let others = schema.get("additionalProperties");
            assert!(properties.is_none() || others.is_none(), "not structural");
            map.iter().find_map(|(name, value)| {
                match properties.and_then(|p| p.get(name)).or(others) {
                    Some(below) => refused(below, value).map(|error| format!("{name}: {error}")),
                    // A null removes nothing that is not there.
                    None => (!open && !value.is_null()).then(|| format!("{name} is dropped")),
                }
            })
        }
        _ => None,
    }
}

/// Runs the property for charts with or without a schema; returns how many values Helm accepted.
fn check(schemas: impl Strategy<Value = Option<Value>>) -> usize {
    let mut runner = TestRunner::new_with_rng(
        Config {
            cases: 300,
            failure_persistence: None,
            ..Config::default()
        },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let accepted = Cell::new(0);
    let users = prop::collection::vec(values(), 6);
    let result = runner.run(&(schemas, values(), users), |(schema, defaults, users)| {
        let chart = chart(schema.as_ref(), &defaults);
        let crd = structural::spec(&of_chart(&chart, Strictness::default()).unwrap());
        let compiled = CompiledChart::compile(&chart).unwrap();
        for user in users {
            if compiled.coalesce(user.clone()).is_err() {
                continue;
            }
            accepted.set(accepted.get() + 1);
            let refused = refused(&crd, &Value::Object(user.clone()));
            prop_assert!(refused.is_none(), "{}: {refused:?} of {crd:#}", json!(user));
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    accepted.get()
}

#[test]
fn what_helm_accepts_with_a_schema_the_crd_accepts() {
    let document = (schema(), plain_schema(), schema()).prop_map(|(root, one, two)| {
        let mut root = root.as_object().cloned().unwrap_or_default();
        root.insert("$defs".to_owned(), json!({"one": one, "two": two}));
        Some(Value::Object(root))
    });
    let accepted = check(document);
    assert!(accepted > 200, "Helm accepted only {accepted}");
}

#[test]
fn what_helm_accepts_without_a_schema_the_crd_accepts() {
    let accepted = check(Just(None));
    assert!(accepted > 1000, "Helm accepted only {accepted}");
}

#[test]
fn schemas_of_subcharts_apply_where_helm_applies_them() {
    let chart = Chart::from_files([
        File::new(
            "Chart.yaml",
            "{apiVersion: v2, name: web, version: 1.0.0, dependencies: [\
             {name: db, version: 1.0.0, alias: first},\
             {name: db, version: 1.0.0, alias: second, condition: second.enabled}]}",
        ),
        File::new(
            "charts/db/Chart.yaml",
            "{apiVersion: v2, name: db, version: 1.0.0}",
        ),
        File::new(
            "charts/db/values.schema.json",
            r#"{"properties": {"size": {"type": "integer"}}}"#,
        ),
    ])
    .unwrap();
    let crd = structural::spec(&of_chart(&chart, Strictness::default()).unwrap());
    let compiled = CompiledChart::compile(&chart).unwrap();
    for (values, accepted) in [
        (json!({"first": {"size": "x"}}), false),
        (json!({"second": {"size": "x", "enabled": false}}), true),
        (json!({"first": {"size": 2}}), true),
    ] {
        let helm = compiled.coalesce(values.as_object().unwrap().clone());
        assert_eq!(helm.is_ok(), accepted, "{values}");
        assert_eq!(refused(&crd, &values).is_none(), accepted, "{values}");
    }
}
