//! Checks that every test named in `docs/guarantees.md` exists.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

/// Collects the names of all functions below a folder.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                functions(&path, names);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            names.extend(
                text.split("fn ")
                    .skip(1)
                    .filter_map(|rest| rest.split('(').next())
                    .map(ToOwned::to_owned),
            );
        }
    }
}

#[test]
fn every_test_named_in_the_guarantees_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    functions(&root.join("crates"), &mut names);
    functions(&root.join("tests"), &mut names);
    let page = std::fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let shown: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(2))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.contains('_') && !name.contains('/') && *name != "real_cluster")
        .collect();
    assert!(shown.len() > 30, "{shown:?}");
    let missing: Vec<&&str> = shown
        .iter()
        .filter(|name| !names.contains(**name))
        .collect();
    assert!(missing.is_empty(), "not found: {missing:#?}");
}
