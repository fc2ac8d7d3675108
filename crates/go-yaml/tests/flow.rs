//! Flow collections as Go's `sigs.k8s.io/yaml` reads them, which follows yaml.v2: a table of texts
//! with Go's answers.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use serde_json::Value;

/// Texts with the value that Go reads, or `"error": true` where it refuses them.
const TABLE: &str = include_str!("flow.jsonl");

/// Numbers as Go's JSON decoder makes them: floats.
fn floats(value: Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, floats(v))).collect(),
        other => other,
    }
}

#[test]
fn flow_collections_are_read_as_go_reads_them() {
    let mut wrong = Vec::new();
    for line in TABLE.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row["text"].as_str().unwrap();
        let expected = row.get("value").cloned().map(floats);
        assert!(expected.is_some() || row["error"] == true, "{line}");
        // The direct reader with the other one behind it, and the other one alone.
        let direct = go_yaml::from_str::<Value>(text);
        let tree = go_yaml::tree::parse(text.as_bytes());
        let tree = tree.and_then(|node| go_yaml::from_node::<Value>(&node));
        for read in [direct, tree] {
            let read = read.map(floats);
            if read.as_ref().ok() != expected.as_ref() {
                wrong.push(format!("{text:?}: {read:?}, in Go {expected:?}"));
            }
        }
    }
    assert!(TABLE.lines().count() > 100);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
