//! Compares with recorded output of Helm: outputs byte for byte, errors word for word.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::path::Path;

use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, Value};
use support::{json_to_tree, parse_error, reformat, root};

/// Returns the output of this crate.
fn answer(template: &str, values: &serde_json::Value) -> Result<Vec<u8>, String> {
    let mut set = TemplateSet::new("gotpl", Funcs::new().into());
    let name = "chart/templates/main.yaml";
    set.parse(name, template)
        .map_err(|error| parse_error(&error))?;
    let root = Value::from(&root(&json_to_tree(values)));
    let mut out = Buffer::new();
    let result = Session::new(Limits::default()).execute(&set, name, &root, &mut out);
    result.map_err(|error| error.to_string())?;
    Ok(out.into_vec())
}

fn check(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let values = std::fs::read_to_string(folder.join("values.json")).unwrap();
    let values: serde_json::Value = serde_json::from_str(&values).unwrap();
    let mut wrong = Vec::new();
    for line in std::fs::read_to_string(folder.join(file)).unwrap().lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let template = case["template"].as_str().unwrap();
        let field = |name: &str| case[name].as_str();
        let right = match (answer(template, &values), field("error")) {
            (Ok(output), None) => match field("output") {
                Some(wanted) => {
                    wanted == String::from_utf8_lossy(&output).replace("<no value>", "")
                }
                None => field("outputBase64").is_some_and(|text| {
                    data_encoding::BASE64.decode(text.as_bytes()).unwrap() == output
                }),
            },
            (Err(error), Some(wanted)) => wanted == error || wanted == reformat(&error),
            _ => false,
        };
        if !right {
            let ours = answer(template, &values)
                .map(|output| String::from_utf8_lossy(&output).into_owned());
            wrong.push(format!("{line}\n  ours: {ours:?}"));
        }
    }
    let (count, wrong) = (wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty(), "{count} wrong in {file}:\n{wrong}");
}

#[test]
fn actions_match_go() {
    check("actions.jsonl");
}

#[test]
fn comparisons_match_go() {
    check("compare.jsonl");
}

#[test]
fn printf_matches_go() {
    check("printf.jsonl");
}

#[test]
fn syntax_is_accepted_and_rejected_as_in_go() {
    check("syntax.jsonl");
}
