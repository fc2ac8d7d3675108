//! Pages of the reference that tests generate. The crate `hybrid-operator` uses this file, too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a generated page of the reference with its file, or writes the file if `$UPDATE_GENERATED` is set.
/// `text` is what follows the title.
pub(crate) fn assert_generated(name: &str, title: &str, text: &str) {
    let path = root().join("docs/reference").join(name);
    let wanted = format!(
        "# {title}\n\n<!-- Generated from the code by `make generate`; do not edit. -->\n\n{}\n",
        text.trim()
    );
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &wanted).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == wanted,
        "{} is out of date; run `make generate`",
        path.display()
    );
}

/// Returns a table in Markdown.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let cells = row.iter().map(|cell| cell.replace('|', "\\|"));
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
