//! The templates in `tests/vectors`, beside what Helm's engine answered.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::path::Path;

use go_template::sprig;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

#[test]
fn templates_of_our_own_answer_as_helm_does() {
    let outcomes = support::vectors::run(&folder());
    let (table, failed) = support::report(&outcomes);
    assert!(failed == 0 && outcomes.len() > 1000, "{table}");
}

#[test]
fn every_function_of_sprig_is_in_a_template() {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        text.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: std::collections::HashSet<&str> = text.split(|c| !is_word(c)).collect();
    let missing: Vec<&str> = (sprig::FUNCS.iter().map(|func| func.name()))
        .filter(|name| !words.contains(name) && !matches!(*name, "env" | "expandenv"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
