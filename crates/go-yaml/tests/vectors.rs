//! Compares with Helm's output: every vector that only reads or writes YAML.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

/// Returns the folder with Helm's output, if present.
fn conformance() -> Option<PathBuf> {
    let folder = std::env::var_os("CONFORMANCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    // Written past libtest, which hides the output of passing tests, and at once, so that no other line gets between.
    let line = format!(
        "SKIPPED (1): go-yaml's comparison with Helm: no folder {}\n",
        folder.display()
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
    None
}

fn vectors(family: &str) -> Vec<Value> {
    let Some(folder) = conformance() else {
        return Vec::new();
    };
    let text = std::fs::read_to_string(folder.join("functions").join(family)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Converts numbers to floats, like Go's JSON decoder.
fn floats(value: &Value) -> Value {
    match value {
        Value::Number(n) => n.as_f64().map_or_else(|| value.clone(), Value::from),
        Value::Array(items) => items.iter().map(floats).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(k, v)| (k.clone(), floats(v))).collect())
        }
        other => other.clone(),
    }
}

fn none_differ(wrong: &[String]) {
    let (count, wrong) = (wrong.len(), wrong.join("\n\n"));
    assert!(wrong.is_empty(), "{count} differ:\n{wrong}");
}

#[test]
fn yaml_is_written_as_in_go() {
    let mut wrong = Vec::new();
    for vector in vectors("yaml_out.jsonl") {
        let template = vector["template"].as_str().unwrap_or_default();
        let at = match template {
            "{{ toYaml .Values }}" => "",
            "{{ toYaml .Values.m }}" => "/m",
            "{{ toYaml .Values.v }}" => "/v",
            _ => continue,
        };
        let (Some(output), Some(value)) = (vector["output"].as_str(), vector["values"].pointer(at))
        else {
            continue;
        };
        let written = go_yaml::to_string(&floats(value)).unwrap_or_default();
        if written.strip_suffix('\n').unwrap_or(&written) != output {
            let id = &vector["id"];
            wrong.push(format!(
                "{id}: {value}\n--- Go\n{output}\n--- here\n{written}"
            ));
        }
    }
    none_differ(&wrong);
}

#[test]
fn yaml_is_read_as_in_go() {
    let mut wrong = Vec::new();
    for vector in vectors("yaml_in.jsonl") {
        if vector["template"] != "{{ fromYaml .Values.doc | toJson }}" {
            continue;
        }
        let (Some(text), Some(output)) =
            (vector["values"]["doc"].as_str(), vector["output"].as_str())
        else {
            continue;
        };
        let expected: Value = serde_json::from_str(output).unwrap();
        let read = match go_yaml::from_str::<Option<serde_json::Map<String, Value>>>(text) {
            Ok(map) => floats(&Value::Object(map.unwrap_or_default())),
            Err(error) => serde_json::json!({"Error": error.to_string()}),
        };
        let same = if let Some(message) = expected.get("Error") {
            read.get("Error").is_some() && {
                let ours = read["Error"].as_str().unwrap_or_default();
                message.as_str().unwrap_or_default().contains(ours)
                    || !ours.starts_with("yaml: line")
            }
        } else {
            read == floats(&expected)
        };
        if !same {
            let id = &vector["id"];
            wrong.push(format!("{id}: {text:?}\nGo   {expected}\nhere {read}"));
        }
    }
    none_differ(&wrong);
}
