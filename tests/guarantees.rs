//! Checks that every test named in `docs/contributing/guarantees.md` exists, and is where the page says, and that
//! every sentence in the tables of `docs/contributing/security.md` names one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

/// Collects the paths of all functions below a folder.
fn functions(folder: &Path, found: &mut BTreeMap<String, Vec<String>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                functions(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for rest in text.split("fn ").skip(1) {
                let name = rest.split('(').next().unwrap_or_default().to_owned();
                found
                    .entry(name)
                    .or_default()
                    .push(path.display().to_string());
            }
        }
    }
}

/// Returns the tests of a row, each with the place that follows it in the row: `tests/e2e` by default.
fn tests_of(row: &str) -> Vec<(String, String)> {
    let cell = row.split('|').nth(2).unwrap_or_default();
    let quoted: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    let is_place = |text: &str| cell.contains(&format!("(`{text}`)"));
    let mut tests = Vec::new();
    for (index, name) in quoted.iter().enumerate() {
        if !is_place(name) && name.contains('_') {
            let mut rest = quoted.iter().skip(index);
            let place = rest.find(|text| is_place(text)).unwrap_or(&"tests/e2e");
            tests.push(((*name).to_owned(), (*place).to_owned()));
        }
    }
    tests
}

/// Returns the rows of the tables of a page, without their heads.
fn rows(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/contributing")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.filter(|row| !row.ends_with("| test |"))
        .map(ToOwned::to_owned)
        .collect()
}

/// Returns the paths of all functions below `crates` and `tests` by name.
fn known() -> BTreeMap<String, Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeMap::new();
    functions(&root.join("crates"), &mut known);
    functions(&root.join("tests"), &mut known);
    known
}

#[test]
fn every_test_named_in_the_guarantees_exists() {
    let known = known();
    let shown: Vec<(String, String)> = rows("guarantees.md")
        .iter()
        .flat_map(|row| tests_of(row))
        .collect();
    assert!(shown.len() > 30, "{shown:?}");
    let missing: Vec<_> = shown
        .iter()
        .filter(|(name, place)| {
            let paths = known.get(name).into_iter().flatten();
            !paths.into_iter().any(|path| path.contains(place.as_str()))
        })
        .collect();
    assert!(missing.is_empty(), "not found: {missing:#?}");
}

#[test]
fn every_sentence_about_security_names_a_test_that_exists() {
    let known = known();
    let rows = rows("security.md");
    assert!(rows.len() > 15, "{rows:?}");
    for row in &rows {
        let tests = tests_of(row);
        assert!(!tests.is_empty(), "no test: {row}");
        let missing: Vec<_> = tests
            .iter()
            .filter(|(name, _)| !known.contains_key(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}: {row}");
    }
}
