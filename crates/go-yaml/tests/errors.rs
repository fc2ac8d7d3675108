//! Errors as Go's `sigs.k8s.io/yaml` words them: a table of texts with Go's errors, or its values where it
//! accepts a text that looks wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

const TABLE: &str = include_str!("errors.jsonl");

#[test]
fn errors_are_those_of_go() {
    let mut wrong = Vec::new();
    for line in TABLE.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row["text"].as_str().unwrap();
        // Through the direct reader with its fallback, and through the tree reader alone.
        let direct = go_yaml::from_str::<Value>(text);
        let tree = go_yaml::tree::parse(text.as_bytes());
        let tree = tree.and_then(|node| go_yaml::from_node::<Value>(&node));
        for read in [direct, tree] {
            let is_right = match &read {
                Ok(value) => row.get("value") == Some(value),
                Err(error) => row["error"] == error.to_string(),
            };
            if !is_right {
                wrong.push(format!("{text:?}: {read:?}, in Go {row}"));
            }
        }
    }
    assert!(TABLE.lines().count() > 30);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
