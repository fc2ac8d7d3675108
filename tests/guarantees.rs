//! Checks that every test named in `docs/guarantees.md` and `docs/security.md` exists, and that every
//! sentence in the tables of `docs/security.md` names one.
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

/// Returns the names of all tests and functions of the workspace.
fn known() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    functions(&root.join("crates"), &mut names);
    functions(&root.join("tests"), &mut names);
    names
}

/// Returns the rows of the tables of a page, without their heads.
fn rows(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.filter(|row| !row.ends_with("| test |"))
        .map(ToOwned::to_owned)
        .collect()
}

/// Returns the tests that a row names in its last column.
fn tests_of(row: &str) -> Vec<String> {
    let cell = row.split('|').nth(2).unwrap_or_default();
    let names = cell.split('`').skip(1).step_by(2);
    names
        .filter(|name| name.contains('_') && !name.contains('/') && *name != "real_cluster")
        .map(ToOwned::to_owned)
        .collect()
}

#[test]
fn every_test_named_in_the_guarantees_exists() {
    let names = known();
    for (page, at_least) in [("guarantees.md", 30), ("security.md", 15)] {
        let shown: Vec<String> = rows(page).iter().flat_map(|row| tests_of(row)).collect();
        assert!(shown.len() > at_least, "{page}: {shown:?}");
        let missing: Vec<&String> = shown.iter().filter(|name| !names.contains(*name)).collect();
        assert!(missing.is_empty(), "{page}: not found: {missing:#?}");
    }
}

#[test]
fn every_sentence_about_security_names_a_test() {
    let rows = rows("security.md");
    let without: Vec<&String> = rows.iter().filter(|row| tests_of(row).is_empty()).collect();
    assert!(without.is_empty(), "{without:#?}");
}
