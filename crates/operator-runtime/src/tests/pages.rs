//! Sections of the reference that tests generate. The crate `hybrid-operator` uses this file, too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a generated section of a page of the reference with its file, or writes it if `$UPDATE_GENERATED` is
/// set. The section begins with a heading of the second level, and ends before the next one.
pub(crate) fn assert_generated(name: &str, heading: &str, text: &str) {
    /// Tests of several sections of one page run at the same time.
    static PAGES: Mutex<()> = Mutex::new(());
    let _guard = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("docs/reference").join(name);
    let present = std::fs::read_to_string(&path).unwrap();
    let begin = format!("\n## {heading}\n");
    let (before, rest) = present.split_once(&begin).unwrap_or((&present, ""));
    let after = rest.split_once("\n## ");
    let after = after.map_or_else(String::new, |(_, after)| format!("\n## {after}"));
    let text = text.trim();
    let wanted = format!(
        "{before}{begin}\n<!-- Generated from the code by `make generate`; do not edit. -->\n\n{text}\n{after}"
    );
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            present == wanted,
            "{}: {heading} is out of date; run `make generate`",
            path.display()
        );
    }
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
