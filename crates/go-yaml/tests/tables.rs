//! Texts as read by Go's `sigs.k8s.io/yaml`, which follows yaml.v2: tables of texts with the value that Go reads, or
//! its error, which is `true` where only the fact of an error counts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;

/// Converts numbers to floats, like Go's JSON decoder.
fn floats(value: Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, floats(v))).collect(),
        other => other,
    }
}

/// Compares the rows of a table with what is read: through the direct reader with its fallback, and through the tree
/// reader alone.
fn compare(table: &str) {
    let mut wrong = Vec::new();
    for line in table.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row.get("text").and_then(Value::as_str).unwrap();
        let expected = row.get("value").cloned().map(floats);
        let error = row.get("error");
        assert!(expected.is_some() != error.is_some(), "{line}");
        let direct = go_yaml::from_str::<Value>(text);
        let tree = go_yaml::tree::parse(text.as_bytes())
            .and_then(|node| go_yaml::from_node::<Value>(&node));
        for read in [direct, tree] {
            let is_right = match &read {
                Ok(value) => expected == Some(floats(value.clone())),
                Err(found) => {
                    error.is_some_and(|error| *error == true || *error == found.to_string())
                }
            };
            if !is_right {
                wrong.push(format!("{text:?}: {read:?}, in Go {row}"));
            }
        }
    }
    assert!(table.lines().count() > 30);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flow_collections_are_read_as_in_go() {
    compare(include_str!("flow.jsonl"));
}

#[test]
fn errors_are_those_of_go() {
    compare(include_str!("errors.jsonl"));
}

#[test]
fn deepest_documents_fit_into_the_default_thread_stack() {
    const MAX_DEPTH: usize = 511;
    let flow = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
    let block = "- ".repeat(MAX_DEPTH) + "a";
    for text in [flow, block] {
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let read = thread.spawn(move || go_yaml::from_str::<Value>(&text).is_ok());
        assert!(read.unwrap().join().unwrap());
    }
    let deeper = "[".repeat(2_000);
    let error = go_yaml::from_str::<Value>(&deeper).unwrap_err();
    assert!(error.to_string().contains("exceeded max depth"), "{error}");
}

#[test]
fn merged_maps_do_not_expand_excessively() {
    use std::fmt::Write as _;
    let text = |levels: usize, times: usize| {
        let mut text = "a0: &a0 {k: v}\n".to_owned();
        for level in 1..levels {
            let below = vec![format!("*a{}", level - 1); times].join(", ");
            writeln!(text, "a{level}: &a{level} {{<<: [{below}], k{level}: 1}}").unwrap();
        }
        text
    };
    let read: Value = go_yaml::from_str(&text(3, 3)).unwrap();
    assert_eq!(read["a2"], serde_json::json!({"k": "v", "k1": 1, "k2": 1}));
    // As in Go; expanding the last one would take years.
    for levels in [4, 6, 12] {
        let error = go_yaml::from_str::<Value>(&text(levels, 10)).unwrap_err();
        let message = "document contains excessive aliasing";
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn error_with_an_expanding_key_is_truncated() {
    use std::fmt::Write as _;
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..18 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{below}]").unwrap();
    }
    text += "? *a17\n: y\n";
    let error = go_yaml::from_str::<Value>(&text).unwrap_err().to_string();
    assert!(error.len() < 10_000, "{}", error.len());
}
