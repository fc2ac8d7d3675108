//! The user's values, with the contents of files that JSON cannot hold.

use go_template::{Str, Tree, TreeMap};

use super::{Values, tree};

/// The values of a user: JSON, and the contents of files that are not UTF-8, which a template can
/// encode. Equal to [`Values`] but for those.
#[derive(Clone, Default)]
pub struct UserValues {
    values: Values,
    /// The contents of files. The values have the token of its index in place of each.
    files: Vec<Str>,
}

/// The first and last character of a token, which no text has: it is not a character of Unicode.
const MARK: char = '\u{10ffff}';

impl From<Values> for UserValues {
    fn from(values: Values) -> Self {
        Self {
            values,
            files: Vec::new(),
        }
    }
}

impl UserValues {
    /// Returns the values, to change them. A string in them may stand for the content of a file.
    pub fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    /// Keeps the content of a file; returns the text that stands for it in the values.
    pub(super) fn keep(files: &mut Vec<Str>, content: Vec<u8>) -> String {
        let token = token(files.len());
        files.push(Str::from(content));
        token
    }

    /// Returns both parts, to change them.
    pub(super) fn parts_mut(&mut self) -> (&mut Values, &mut Vec<Str>) {
        (&mut self.values, &mut self.files)
    }

    /// Returns the values as templates read them, and as JSON, which has U+FFFD for each byte that is
    /// not UTF-8, as a release of Helm.
    pub(super) fn into_tree(self) -> (TreeMap, Values) {
        let given = tree::from_map(&self.values);
        if self.files.is_empty() {
            return (given, self.values);
        }
        let given = self.with_files_in(&given);
        let json = tree::to_map(&given);
        (given, json)
    }

    fn with_files_in(&self, map: &TreeMap) -> TreeMap {
        let entries = map
            .iter()
            .map(|(key, value)| (key.clone(), self.with_files(value)));
        TreeMap::new(map.go_type(), entries)
    }

    fn with_files(&self, value: &Tree) -> Tree {
        match value {
            Tree::Str(text) => Tree::Str(self.file(text).unwrap_or(text).clone()),
            Tree::List(list) => {
                let items = list.items().iter().map(|item| self.with_files(item));
                Tree::from(items.collect::<Vec<_>>())
            }
            Tree::Map(map) => Tree::from(self.with_files_in(map)),
            other => other.clone(),
        }
    }

    /// Returns the content for which a text stands.
    fn file(&self, text: &Str) -> Option<&Str> {
        let text = text.to_str()?;
        let index = text.strip_prefix(MARK)?.strip_suffix(MARK)?;
        self.files.get(index.parse::<usize>().ok()?)
    }
}

fn token(index: usize) -> String {
    format!("{MARK}{index}{MARK}")
}

impl std::fmt::Debug for UserValues {
    /// Omits the values, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (keys, files) = (self.values.len(), self.files.len());
        write!(f, "{keys} values and {files} files")
    }
}
