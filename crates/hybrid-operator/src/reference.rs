//! Compares the tables of external names with the documentation and with the tests that they name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a page of the documentation.
pub(crate) fn page(name: &str) -> String {
    let path = root().join("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names in the first column of the tables below a heading of a page. A cell may have several,
/// each between backticks.
pub(crate) fn names(name: &str, heading: &str) -> BTreeSet<String> {
    let page = page(name);
    let below = page.split_once(&format!("{heading}\n"));
    let (_, below) = below.unwrap_or_else(|| panic!("{name} has no heading {heading}"));
    let end = below.find("\n## ").unwrap_or(below.len());
    let rows = below[..end].lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(ToOwned::to_owned)
        .collect()
}

/// Checks that the named tests exist.
pub(crate) fn assert_tests_exist<'a>(names: impl Iterator<Item = &'a str>) {
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests"] {
        functions(&root().join(folder), &mut known);
    }
    let missing: BTreeSet<&str> = names.filter(|name| !known.contains(*name)).collect();
    assert_eq!(missing, BTreeSet::new(), "no such tests");
}

fn functions(folder: &Path, known: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                functions(&path, known);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1);
            let names = names.filter_map(|rest| rest.split('(').next());
            known.extend(names.map(ToOwned::to_owned));
        }
    }
}
