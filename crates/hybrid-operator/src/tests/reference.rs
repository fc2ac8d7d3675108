//! Compares the tables of external names with the documentation and with the tests that they name, and
//! generates the pages of the reference from them.

pub(crate) mod conditions;
mod fields;

use std::collections::BTreeSet;
use std::path::Path;

#[path = "../../../operator-runtime/src/tests/pages.rs"]
mod pages;

use pages::root;
pub(crate) use pages::{assert_generated, table};

pub(crate) fn page(name: &str) -> String {
    let path = root().join("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a text with backticks around flags, variables and paths, which help texts have without them.
pub(crate) fn coded(text: &str) -> String {
    let word = |word: &str| {
        let name = word.trim_end_matches(['.', ',', ';', ':', ')']);
        let rest = word.get(name.len()..).unwrap_or_default();
        if name.starts_with("--") || name.starts_with('$') || name.starts_with('/') {
            format!("`{name}`{rest}")
        } else {
            word.to_owned()
        }
    };
    let words: Vec<String> = text.split(' ').map(word).collect();
    words.join(" ")
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
            let definitions = text.split("fn ").skip(1);
            let names = definitions.filter_map(|rest| rest.split('(').next());
            known.extend(names.map(ToOwned::to_owned));
        }
    }
}

#[test]
fn flags_variables_and_paths_of_help_texts_are_code() {
    for (text, wanted) in [
        ("Serve /metrics over TLS.", "Serve `/metrics` over TLS."),
        ("of --webhook-cert-dir.", "of `--webhook-cert-dir`."),
        ("`$POD_NAMESPACE`, else", "`$POD_NAMESPACE`, else"),
        ("such as `team=a`; or/and", "such as `team=a`; or/and"),
    ] {
        assert_eq!(coded(text), wanted);
    }
    let rows = [vec!["a".to_owned(), "b|c".to_owned()]];
    let expected = "| x | y |\n|---|---|\n| a | b\\|c |\n";
    assert_eq!(table(&["x", "y"], rows), expected);
}
