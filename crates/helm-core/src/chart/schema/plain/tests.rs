use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{File, Schema};
use super::{PlainSchema, Verdict};
use crate::values::tree;

fn verdict(schema: &Value, value: &Value) -> Option<Verdict> {
    let plain = PlainSchema::read(schema.to_string().as_bytes())?;
    Some(plain.check(&tree::from_json(value)))
}

/// Returns the result of the full library; an error in the schema counts as an invalid value.
fn library(schema: &Value, value: &Value) -> bool {
    let schema = Schema::new(File::new("values.schema.json", schema.to_string()));
    schema.check_fully(value.clone(), &[]).is_ok()
}

#[test]
fn unsupported_schemas_are_rejected() {
    for schema in [
        json!({"pattern": "a{2}"}),
        json!({"pattern": "\\d"}),
        json!({"pattern": "[[a]]"}),
        json!({"pattern": "(a"}),
        json!({"properties": {"a": {"format": "date"}}}),
        json!({"type": "text"}),
        json!({"type": []}),
        json!({"enum": []}),
        json!({"items": [{"type": "string"}]}),
        json!({"required": true}),
        json!({"required": ["a", "a"]}),
        json!({"minimum": "1"}),
        json!({"minLength": -1}),
        json!({"exclusiveMinimum": true}),
        json!({"maximum": 9_007_199_254_740_993_u64}),
        json!({"title": 1}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#"}),
        json!({"properties": {"a": {"$schema": "http://json-schema.org/schema"}}}),
        json!({"$ref": "#/definitions/none"}),
        json!({"$ref": "https://example.com/x.json"}),
        json!({"$id": "http://json-schema.org/draft-07/schema"}),
        json!({"properties": {"a": {"$id": "https://example.com/a"}}}),
        json!({"enum": [1], "const": 1}),
        json!({"$defs": {"a": {"type": "x"}}}),
        json!("no schema"),
    ] {
        assert!(
            PlainSchema::read(schema.to_string().as_bytes()).is_none(),
            "{schema}"
        );
    }
    let twice = br#"{"type": "string", "type": "object"}"#;
    assert!(PlainSchema::read(twice).is_none());
}

#[test]
fn supported_dialects_are_known_to_the_full_library() {
    for name in super::read::DIALECTS {
        for url in [format!("http://{name}#"), format!("https://{name}")] {
            let schema = json!({"$schema": url, "type": "object"});
            assert_eq!(verdict(&schema, &json!({})), Some(Verdict::Valid), "{url}");
            assert!(library(&schema, &json!({})), "{url}");
        }
    }
}

#[test]
fn references_resolve_to_definitions_and_other_locations() {
    let schema = json!({
        "definitions": {
            "port": {"type": "integer", "maximum": 65535},
            "more": {"odd": {"type": "string"}},
        },
        "$defs": {"list": {"items": {"$ref": "#/definitions/port"}}},
        "properties": {
            "port": {"$ref": "#/definitions/port"},
            "ports": {"$ref": "#/$defs/list"},
            "odd": {"$ref": "#/definitions/more/odd"},
            "below": {"$ref": "#"},
            "same": {"$ref": "#/properties/port"},
        },
    });
    for (value, expected) in [
        (
            json!({"port": 1, "ports": [2], "odd": "x", "same": 3}),
            true,
        ),
        (json!({"port": 70_000}), false),
        (json!({"ports": [1, "x"]}), false),
        (json!({"odd": 1}), false),
        (json!({"below": {"below": {"port": "x"}}}), false),
        (json!({"same": "x"}), false),
    ] {
        assert_eq!(verdict(&schema, &value), Some(expected.into()), "{value}");
        assert_eq!(library(&schema, &value), expected, "{value}");
    }
    // Draft 7 ignores siblings of `$ref`; the result is certain only if that makes no difference.
    let beside = json!({
        "$id": "https://example.com/charts",
        "properties": {"a": {"$ref": "#/definitions/a", "type": "string"}},
        "definitions": {"a": {"enum": ["x", 1]}},
    });
    for (value, expected) in [
        (json!({"a": "x"}), Verdict::Valid),
        (json!({"a": 1}), Verdict::Unknown),
        (json!({"a": "y"}), Verdict::Invalid),
    ] {
        assert_eq!(verdict(&beside, &value), Some(expected), "{value}");
        assert_eq!(library(&beside, &value), expected == Verdict::Valid);
    }
    // A reference cycle has no result.
    let endless = json!({"$ref": "#"});
    assert_eq!(verdict(&endless, &json!(1)), Some(Verdict::Unknown));
}

/// Generates schemas of every supported keyword.
fn schema() -> impl Strategy<Value = Value> {
    let types = prop::sample::select(vec![
        "null", "boolean", "integer", "number", "string", "array", "object",
    ]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        types.clone().prop_map(|name| json!({"type": name})),
        prop::collection::btree_set(types, 1..3).prop_map(|names| json!({"type": names})),
        (0_u64..3, 0_u64..4)
            .prop_map(|(least, most)| json!({"minLength": least, "maxLength": most})),
        (0_u64..2, 0_u64..3).prop_map(
            |(least, most)| json!({"minItems": least, "maxItems": most, "uniqueItems": true})
        ),
        (0_u64..2, 0_u64..3)
            .prop_map(|(least, most)| json!({"minProperties": least, "maxProperties": most})),
        (-2..3, 0..3).prop_map(|(least, most)| json!({"minimum": least, "exclusiveMaximum": most})),
        (-2..3, 0..3).prop_map(|(least, most)| json!({"exclusiveMinimum": least, "maximum": most})),
        prop::collection::vec(value(), 1..3).prop_map(|choices| json!({"enum": choices})),
        value()
            .prop_map(|value| json!({"const": value, "title": "x", "default": {}, "form": true})),
        Just(json!({"required": ["a"]})),
        prop::sample::select(vec!["^a*$", "^(a|[b-c])+$|x", "a.?", "[^a]", "^$"])
            .prop_map(|pattern| json!({"pattern": pattern})),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(
                |(a, other)| json!({"properties": {"a": a}, "additionalProperties": other})
            ),
            inner.clone().prop_map(|items| json!({"items": items})),
            list.clone().prop_map(|list| json!({"allOf": list})),
            list.clone().prop_map(|list| json!({"anyOf": list})),
            list.prop_map(|list| json!({"oneOf": list})),
            inner.clone().prop_map(|node| json!({"not": node})),
            (inner.clone(), inner.clone(), inner).prop_map(
                |(test, then, otherwise)| json!({"if": test, "then": then, "else": otherwise})
            ),
        ]
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..4).prop_map(Value::from),
        prop::sample::select(vec![-1.5, 0.0, 1.0, 2.5]).prop_map(Value::from),
        "[aé]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn certain_results_agree_with_the_full_library(schema in schema(), value in value()) {
        let schema = json!({"properties": {"root": schema}});
        let value = json!({"root": value});
        match verdict(&schema, &value) {
            Some(Verdict::Unknown) => {}
            Some(found) => prop_assert_eq!(found == Verdict::Valid, library(&schema, &value)),
            None => prop_assert!(false, "not read: {}", schema),
        }
    }
}
