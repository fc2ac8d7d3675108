//! Reads the fields of a map in a watches file, and the forms of their values.
//!
//! A field is known because it is read: after a map has been read, every field that was not asked for is
//! reported. So no field is accepted and then ignored.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use go_yaml::tree::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use operator_runtime::{duration, naming};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::Problem;
use super::suggest::nearest;

/// The fields of a map in the file, and the list of mistakes.
pub(super) struct Fields<'a> {
    node: &'a Node,
    /// Entries of the map, with those that it merges.
    entries: Vec<(&'a Node, &'a Node)>,
    path: String,
    problems: &'a mut Vec<Problem>,
    /// The fields that were asked for.
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Reads a map, and reports the fields that `read` did not ask for.
    pub(super) fn read<T>(
        node: &'a Node,
        path: &str,
        problems: &'a mut Vec<Problem>,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        let Some(entries) = node.merged() else {
            problems.push(problem(node, path, expected("a map", node)));
            return None;
        };
        let mut fields = Self {
            node,
            entries,
            path: path.to_owned(),
            problems,
            known: Vec::new(),
        };
        let value = read(&mut fields);
        fields.finish();
        Some(value)
    }

    /// Reports unknown and duplicate fields.
    fn finish(self) {
        let mut seen: Vec<String> = Vec::new();
        for (key, _) in self.entries {
            let found = key.as_str().unwrap_or("").to_owned();
            let field = join(&self.path, &found);
            if !self.known.contains(&found.as_str()) {
                let hint = nearest(&found, &self.known).map_or_else(
                    || format!("; known fields: {}", self.known.join(", ")),
                    |near| format!("; did you mean `{near}`?"),
                );
                self.problems
                    .push(problem(key, &field, format!("unknown field{hint}")));
            } else if seen.contains(&found) {
                self.problems.push(problem(
                    key,
                    &field,
                    "duplicate field; remove one of them".to_owned(),
                ));
            }
            seen.push(found);
        }
    }

    fn get(&mut self, field: &'static str) -> Option<&'a Node> {
        if !self.known.contains(&field) {
            self.known.push(field);
        }
        #[cfg(test)]
        record::asked(&join(&self.path, field));
        let mut entries = self.entries.iter();
        let found = entries.find(|(key, _)| key.as_str() == Some(field));
        found.map(|(_, value)| *value)
    }

    /// Returns whether a field is present, and not null.
    pub(super) fn has(&mut self, field: &'static str) -> bool {
        self.get(field).is_some_and(|node| !node.is_null())
    }

    /// Returns whether the value of a field is a map.
    pub(super) fn is_map(&mut self, field: &'static str) -> bool {
        self.get(field).is_some_and(|node| node.as_map().is_some())
    }

    /// Reports a mistake that concerns several fields.
    pub(super) fn wrong(&mut self, message: String) {
        let problem = problem(self.node, &self.path, message);
        self.problems.push(problem);
    }

    /// Reports a mistake in what a map with names of the user's choice has under a name.
    pub(super) fn wrong_at(&mut self, node: &Node, field: &str, name: &str, message: String) {
        let path = join(&join(&self.path, field), name);
        self.problems.push(problem(node, &path, message));
    }

    pub(super) fn position(&mut self, field: &'static str) -> (usize, usize) {
        let (line, column) = (self.node.line(), self.node.column());
        self.get(field)
            .map_or((line, column), |n| (n.line(), n.column()))
    }

    /// Returns the lines and columns of what these fields have: the fields of maps, and the items of lists.
    pub(super) fn positions(
        &mut self,
        fields: &[&'static str],
    ) -> BTreeMap<String, (usize, usize)> {
        let mut positions = BTreeMap::new();
        for field in fields {
            let Some(node) = self.get(field) else {
                continue;
            };
            for (name, value) in node.merged().unwrap_or_default() {
                let name = join(field, name.as_str().unwrap_or_default());
                positions.insert(name, (value.line(), value.column()));
            }
            for (index, item) in node.as_list().unwrap_or_default().iter().enumerate() {
                positions.insert(format!("{field}[{index}]"), (item.line(), item.column()));
            }
        }
        positions
    }

    /// Returns the field's value if it is present and valid. Null counts as absent.
    pub(super) fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&Node) -> Result<T, String>,
    ) -> Option<T> {
        let node = self.get(field).filter(|node| !node.is_null())?;
        read(node)
            .map_err(|message| {
                self.problems
                    .push(problem(node, &join(&self.path, field), message));
            })
            .ok()
    }

    /// Returns the field's value, or the default if it is absent or invalid.
    pub(super) fn or_default<T: Default>(
        &mut self,
        field: &'static str,
        read: impl Fn(&Node) -> Result<T, String>,
    ) -> T {
        self.optional(field, read).unwrap_or_default()
    }

    pub(super) fn flag(&mut self, field: &'static str) -> bool {
        self.or_default(field, boolean)
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        field: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.optional(field, |node| choice(node, choices))
    }

    /// Returns the field's value if it is valid. Reports an absent field.
    pub(super) fn required<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&Node) -> Result<T, String>,
    ) -> Option<T> {
        if self.get(field).is_none_or(Node::is_null) {
            let message = format!("`{field}` is required");
            self.problems.push(problem(self.node, &self.path, message));
            return None;
        }
        self.optional(field, read)
    }

    pub(super) fn section<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        let node = self.get(field).filter(|node| !node.is_null());
        let path = join(&self.path, field);
        #[cfg(test)]
        record::nested(&path, node.is_some());
        Fields::read(node?, &path, self.problems, read)
    }

    /// Reads a nested list of maps. Invalid items are reported and skipped.
    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&mut Fields<'_>) -> Option<T>,
    ) -> Vec<T> {
        let node = self.get(field).filter(|node| !node.is_null());
        let path = join(&self.path, field);
        #[cfg(test)]
        record::nested(&path, node.is_some());
        let Some(node) = node else {
            return Vec::new();
        };
        let Some(items) = node.as_list() else {
            self.problems
                .push(problem(node, &path, expected("a list", node)));
            return Vec::new();
        };
        let mut out = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let item = Fields::read(item, &format!("{path}[{i}]"), self.problems, &read);
            out.extend(item.flatten());
        }
        out
    }

    /// Reads a nested map whose names the user chooses. `read` gets a name and its value with its path, and reports what
    /// is wrong with them.
    pub(super) fn named<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&str, &Node, &str, &mut Vec<Problem>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let node = self.get(field).filter(|node| !node.is_null());
        let path = join(&self.path, field);
        #[cfg(test)]
        record::nested(&path, node.is_some());
        let Some(node) = node else {
            return BTreeMap::new();
        };
        let Some(entries) = node.merged() else {
            let problem = problem(node, &path, expected("a map", node));
            self.problems.push(problem);
            return BTreeMap::new();
        };
        named_entries(entries, &path, self.problems, read)
    }

    /// Reads a nested list of values. Invalid items are reported and skipped.
    pub(super) fn items<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&Node) -> Result<T, String>,
    ) -> Vec<T> {
        let list = |node: &Node| {
            node.as_list()
                .map(<[Node]>::to_vec)
                .ok_or_else(|| expected("a list", node))
        };
        let path = join(&self.path, field);
        let mut out = Vec::new();
        for (i, item) in self.or_default(field, list).iter().enumerate() {
            match read(item) {
                Ok(value) => out.push(value),
                Err(message) => self
                    .problems
                    .push(problem(item, &format!("{path}[{i}]"), message)),
            }
        }
        out
    }

    /// Reports the mistakes that `check` finds in the strings of a field. Its arguments are the text and
    /// the path within the field.
    pub(super) fn check_strings(
        &mut self,
        field: &'static str,
        check: impl Fn(&str, &str) -> Result<(), String>,
    ) {
        if let Some(node) = self.get(field) {
            let path = join(&self.path, field);
            check_node(node, &path, field, &check, self.problems);
        }
    }
}

/// Reads the entries of a map whose names the user chooses, and reports duplicates.
pub(super) fn named_entries<T>(
    entries: Vec<(&Node, &Node)>,
    path: &str,
    problems: &mut Vec<Problem>,
    read: impl Fn(&str, &Node, &str, &mut Vec<Problem>) -> Option<T>,
) -> BTreeMap<String, T> {
    let mut out = BTreeMap::new();
    for (key, value) in entries {
        let name = key.as_str().unwrap_or_default();
        let path = join(path, name);
        #[cfg(test)]
        record::asked(&path);
        if out.contains_key(name) {
            let message = "duplicate field; remove one of them".to_owned();
            problems.push(problem(key, &path, message));
        } else if let Some(read) = read(name, value, &path, problems) {
            out.insert(name.to_owned(), read);
        }
    }
    out
}

fn check_node(
    node: &Node,
    path: &str,
    inner: &str,
    check: &impl Fn(&str, &str) -> Result<(), String>,
    problems: &mut Vec<Problem>,
) {
    if let Some(text) = node.as_str() {
        if let Err(message) = check(text, inner) {
            problems.push(problem(node, path, message));
        }
    } else if let Some(entries) = node.merged() {
        for (key, value) in entries {
            let key = key.as_str().unwrap_or_default();
            let (path, inner) = (join(path, key), join(inner, key));
            check_node(value, &path, &inner, check, problems);
        }
    } else if let Some(items) = node.as_list() {
        for (i, item) in items.iter().enumerate() {
            let (path, inner) = (format!("{path}[{i}]"), format!("{inner}[{i}]"));
            check_node(item, &path, &inner, check, problems);
        }
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

pub(super) fn problem(node: &Node, field: &str, message: String) -> Problem {
    Problem {
        line: node.line(),
        column: node.column(),
        field: field.to_owned(),
        message,
    }
}

pub(super) fn expected(what: &str, node: &Node) -> String {
    format!("expected {what}, found {}", node.type_name())
}

pub(super) fn string(node: &Node) -> Result<String, String> {
    node.as_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| expected("a string", node))
}

/// Reads a string that is not empty.
pub(super) fn name(node: &Node) -> Result<String, String> {
    string(node).and_then(|text| {
        if text.trim().is_empty() {
            Err("must not be empty".to_owned())
        } else {
            Ok(text)
        }
    })
}

pub(super) fn namespace(node: &Node) -> Result<String, String> {
    let text = name(node)?;
    if naming::is_label(&text) {
        Ok(text)
    } else {
        Err(format!(
            "`{text}` is not the name of a namespace; templates are not evaluated here"
        ))
    }
}

pub(super) fn boolean(node: &Node) -> Result<bool, String> {
    node.as_bool()
        .ok_or_else(|| expected("true or false", node))
}

pub(super) fn positive(node: &Node) -> Result<NonZeroUsize, String> {
    node.as_i64()
        .and_then(|n| usize::try_from(n).ok())
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| expected("a whole number of at least 1", node))
}

pub(super) fn go_duration(node: &Node) -> Result<Duration, String> {
    let text = node
        .as_str()
        .ok_or_else(|| expected("a duration such as \"1m30s\"", node))?;
    duration::parse(text)
        .map_err(|e| format!("{e}; durations look like \"300ms\", \"1m30s\" or \"2h\""))
}

/// Reads a size in bytes: a text with a unit, or a number.
pub(super) fn byte_size(node: &Node) -> Result<usize, String> {
    let number = node.as_i64().map(|number| number.to_string());
    let text = node.as_str().or(number.as_deref());
    let text = text.ok_or_else(|| expected("a size such as \"512Mi\"", node))?;
    super::limits::parse_size(text)
}

pub(super) fn choice<T: Copy>(node: &Node, choices: &[(&str, T)]) -> Result<T, String> {
    let found = node.as_str();
    choices
        .iter()
        .find(|(text, _)| found == Some(text))
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let names: Vec<_> = choices
                .iter()
                .map(|(text, _)| format!("`{text}`"))
                .collect();
            let hint = found
                .and_then(|f| {
                    nearest(
                        f,
                        &choices.iter().map(|(text, _)| *text).collect::<Vec<_>>(),
                    )
                })
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            format!("must be one of {}{hint}", names.join(", "))
        })
}

pub(super) fn string_map(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let entries = node
        .merged()
        .ok_or_else(|| expected("a map of strings", node))?;
    entries
        .into_iter()
        .map(|(key, value)| {
            let key = string(key)?;
            let text = match decode(value)? {
                Value::String(text) => text,
                Value::Null => String::new(),
                scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
                _ => return Err(format!("`{key}`: {}", expected("a string", value))),
            };
            Ok((key, text))
        })
        .collect()
}

pub(super) fn string_list(node: &Node) -> Result<Vec<String>, String> {
    let items = node
        .as_list()
        .ok_or_else(|| expected("a list of strings", node))?;
    items.iter().map(name).collect()
}

pub(super) fn pointers(node: &Node) -> Result<Vec<String>, String> {
    let paths = string_list(node)?;
    match paths.iter().find(|path| !path.starts_with('/')) {
        Some(path) => Err(format!(
            "`{path}` is not a JSON pointer; it must start with `/`, as in `/spec/replicas`"
        )),
        None => Ok(paths),
    }
}

pub(super) fn selector(node: &Node) -> Result<Selector, String> {
    const FIELDS: &[&str] = &["matchLabels", "matchExpressions"];
    for (key, _) in node
        .merged()
        .ok_or_else(|| expected("a label selector", node))?
    {
        let found = string(key)?;
        if !FIELDS.contains(&found.as_str()) {
            return Err(format!(
                "unknown field `{found}`; known fields: {}",
                FIELDS.join(", ")
            ));
        }
    }
    let labels: LabelSelector = decode(node)?;
    Selector::try_from(labels).map_err(|e| e.to_string())
}

pub(super) fn decode<T: DeserializeOwned>(node: &Node) -> Result<T, String> {
    go_yaml::from_node(node).map_err(|e| e.message().to_owned())
}

/// The fields that the parser asks for, for the tests that compare them with the documentation.
#[cfg(test)]
pub(super) mod record {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// Content of a field, as far as it is known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Known {
        Value,
        /// Fields, which have been read.
        Nested,
        /// Fields, which the file did not have.
        NestedUnread,
    }

    thread_local! {
        static FIELDS: RefCell<BTreeMap<String, Known>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Returns the path within an entry: `install.timeout` for `[0].install.timeout`, and
    /// `valuesFrom[].name` for `[0].valuesFrom[2].name`.
    pub(crate) fn pattern(path: &str) -> String {
        let mut parts = path.split('.').skip(1).map(|part| {
            part.split_once('[')
                .map_or_else(|| part.to_owned(), |(name, _)| format!("{name}[]"))
        });
        let first = parts.next().unwrap_or_default();
        parts.fold(first, |path, part| format!("{path}.{part}"))
    }

    pub(super) fn asked(path: &str) {
        FIELDS.with_borrow_mut(|fields| {
            fields.entry(pattern(path)).or_insert(Known::Value);
        });
    }

    pub(super) fn nested(path: &str, read: bool) {
        FIELDS.with_borrow_mut(|fields| {
            let known = fields.entry(pattern(path)).or_insert(Known::Value);
            if read {
                *known = Known::Nested;
            } else if *known == Known::Value {
                *known = Known::NestedUnread;
            }
        });
    }

    /// Returns all fields that the parser has asked for in this thread.
    pub(crate) fn fields() -> BTreeMap<String, Known> {
        FIELDS.with_borrow(BTreeMap::clone)
    }
}
