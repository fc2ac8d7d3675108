//! Compares with the recorded output of Helm's engine in `tests/vectors` and, if present, in the
//! conformance folder. `examples/conformance.rs` compares other folders, and charts with a helm
//! binary.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking and prints a table"
)]

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use go_template::sprig;

#[test]
fn charts_and_functions_render_as_in_helm() {
    let Some(folder) = support::folder() else {
        // Written past libtest, which hides the output of passing tests.
        let reason = "SKIPPED (1): helm-core's comparison with Helm: no conformance folder";
        let _ = writeln!(std::io::stderr(), "{reason}");
        return;
    };
    let mut outcomes = support::cases::run(&folder.join("charts"));
    outcomes.extend(support::vectors::run(&folder.join("functions")));
    let (table, failed) = support::report(&outcomes);
    println!("{table}");
    assert!(failed == 0 && !outcomes.is_empty(), "{table}");
}

fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

#[test]
fn own_vectors_render_as_in_helm() {
    let outcomes = support::vectors::run(&own_folder());
    let (table, failed) = support::report(&outcomes);
    assert!(failed == 0 && outcomes.len() > 1000, "{table}");
}

#[test]
fn every_sprig_function_is_covered_by_a_vector() {
    let mut text = String::new();
    for entry in std::fs::read_dir(own_folder()).unwrap() {
        text.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: std::collections::HashSet<&str> = text.split(|c| !is_word(c)).collect();
    let missing: Vec<&str> = (sprig::FUNCS.iter().map(go_template::Func::name))
        .filter(|name| !words.contains(name) && !matches!(*name, "env" | "expandenv"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
