//! `Place`: a position in a file, which errors name and show.

use std::fmt;

use go_yaml::tree::{self, Node};

use crate::yaml::YamlError;

/// Limit on the characters of a line in an excerpt.
const MAX_SHOWN: usize = 200;

/// A position in a file of a chart, or in a text that a template rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: String,
    line: usize,
    column: usize,
    excerpt: String,
}

impl Place {
    /// Creates a place; line and column (in characters) are from 1. `text` is that of the file.
    pub(crate) fn new(file: &str, text: &str, line: usize, column: usize) -> Self {
        let source = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Self {
            file: file.to_owned(),
            line,
            column,
            excerpt: excerpt(source, line, column),
        }
    }

    /// Returns the place of an error of the YAML reader.
    pub(crate) fn of_yaml(file: &str, text: &str, error: &YamlError) -> Self {
        Self::new(file, text, error.line(), error.column())
    }

    /// Returns the place where a text stops being UTF-8.
    pub(crate) fn of_utf8(file: &str, text: &[u8], error: std::str::Utf8Error) -> Self {
        let valid = text.get(..error.valid_up_to()).unwrap_or_default();
        let valid = String::from_utf8_lossy(valid);
        let line = valid.matches('\n').count() + 1;
        let last = valid.rsplit('\n').next().unwrap_or_default();
        Self::new(
            file,
            &String::from_utf8_lossy(text),
            line,
            last.chars().count() + 1,
        )
    }

    /// Returns the place of the value at `path` in a YAML or JSON text: keys, and indexes of lists.
    pub(crate) fn of_path<S: AsRef<str>>(file: &str, text: &[u8], path: &[S]) -> Option<Self> {
        let root = tree::parse(text).ok()?;
        let mut node = &root;
        for step in path {
            node = child(node, step.as_ref())?;
        }
        let text = String::from_utf8_lossy(text);
        Some(Self::new(file, &text, node.line(), node.column()))
    }

    /// Puts the file below a directory.
    pub(crate) fn move_below(&mut self, directory: &str) {
        self.file = format!("{directory}/{}", self.file);
    }

    /// Returns the line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns the line of the file with a caret below the column, or an empty text.
    pub fn excerpt(&self) -> &str {
        &self.excerpt
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file, line, column, ..
        } = self;
        if file.is_empty() {
            write!(f, "line {line}, column {column}")
        } else {
            write!(f, "{file}:{line}:{column}")
        }
    }
}

/// Formats a line with a caret below the column, as errors of templates do.
pub(crate) fn excerpt(source: &str, line: usize, column: usize) -> String {
    if source.trim().is_empty() {
        return String::new();
    }
    let number = line.to_string();
    let shown: String = source.chars().take(MAX_SHOWN).collect();
    let width = number.len();
    let before = source.chars().take(column.saturating_sub(1).min(MAX_SHOWN));
    // Keep tabs, so that the caret is aligned.
    let indent: String = before.map(|c| if c == '\t' { c } else { ' ' }).collect();
    format!("  {number} | {shown}\n  {:width$} | {indent}^\n", "")
}

/// Returns the value of a key, the last one of duplicates as in JSON, or an item of a list. A key of
/// another case counts if there is none of this case, as when Go decodes a struct.
fn child<'n>(node: &'n Node, step: &str) -> Option<&'n Node> {
    if let Some(items) = node.as_list() {
        return items.get(step.parse::<usize>().ok()?);
    }
    let entries = node.as_map()?;
    let is_alike = |key: &Node| {
        key.text()
            .is_some_and(|text| text.eq_ignore_ascii_case(step))
    };
    let same = entries
        .iter()
        .rev()
        .find(|(key, _)| key.text() == Some(step));
    let found = same.or_else(|| entries.iter().rev().find(|(key, _)| is_alike(key)));
    found.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_line_and_column_of_its_value() {
        let text = "a:\n  b: [x, {c: 1}]\n  80: y\na:\n  d: {}\n";
        for (path, expected) in [
            (&["a", "d"][..], Some("f:5:6")),
            (&["a", "b"], None),
            (&[], Some("f:1:1")),
            (&["a", "d", "e"], None),
        ] {
            let found = Place::of_path("f", text.as_bytes(), path);
            let found = found.map(|place| place.to_string());
            assert_eq!(found.as_deref(), expected, "{path:?}");
        }
        let place = Place::of_path("f", b"l:\n- 1\n- {80: z}\n", &["l", "1", "80"]).unwrap();
        assert_eq!(place.to_string(), "f:3:8");
        assert_eq!(place.excerpt(), "  3 | - {80: z}\n    |        ^\n");
    }

    #[test]
    fn carets_are_aligned_below_tabs_and_long_lines_are_cut() {
        assert_eq!(excerpt("\tab", 12, 3), "  12 | \tab\n     | \t ^\n");
        assert_eq!(excerpt(" ", 1, 1), "");
        let long = "x".repeat(1000);
        assert!(excerpt(&long, 1, 900).len() < 2 * MAX_SHOWN + 40);
    }

    #[test]
    fn a_byte_that_is_not_utf8_has_a_place() {
        let text = [b"a: 1\nb: ".as_slice(), &[0xff, b'\n']].concat();
        let error = std::str::from_utf8(&text).unwrap_err();
        assert_eq!(
            Place::of_utf8("", &text, error).to_string(),
            "line 2, column 4"
        );
    }
}
