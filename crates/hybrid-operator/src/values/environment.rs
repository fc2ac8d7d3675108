//! Environment variables, as templates and `overrideValues` see them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use go_template::{Str, Tree, TreeMap, Type, Value};

use crate::watches::Watch;
use crate::watches::expand::expand;

/// The name by which templates read the variables.
const IN_TEMPLATES: &str = "Env";

/// Environment variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    /// The same variables, shared by all templates.
    tree: Tree,
}

impl Environment {
    pub(crate) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        let tree = |(name, value): (&String, &String)| {
            let value = Tree::Str(Str::from(value.as_bytes()));
            (name.as_str().into(), value)
        };
        let tree = Tree::from(TreeMap::new(Type::MAP, variables.iter().map(tree)));
        Self { variables, tree }
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// Returns all variables as a map of a template.
    pub(super) fn to_value(&self) -> Value {
        Value::from(&self.tree)
    }

    /// Returns whether a template reads variables.
    pub(crate) fn is_read_in(template: &str) -> bool {
        let mut names = Names::default();
        names.add(template);
        names.all || !names.some.is_empty()
    }

    /// Returns the contents of the variables that the values of an entry are made of.
    pub(crate) fn read_by(&self, watch: &Watch) -> Vec<&str> {
        let mut names = Names::default();
        for text in watch.override_values.values() {
            let read = RefCell::new(BTreeSet::new());
            let template = expand(text, &|name| {
                read.borrow_mut().insert(name.to_owned());
                self.get(name)
            });
            names.some.extend(read.into_inner());
            names.add(&template);
        }
        if let Some(values) = &watch.values {
            names.add_all(values);
        }
        let variables = self.variables.iter();
        let read = variables.filter(|(name, _)| names.all || names.some.contains(*name));
        read.map(|(_, content)| content.as_str()).collect()
    }
}

/// Names of variables that texts read.
#[derive(Default)]
struct Names {
    some: BTreeSet<String>,
    /// Whether the names are computed, so that they can be any.
    all: bool,
}

impl Names {
    /// Adds those that all texts of a tree read.
    fn add_all(&mut self, tree: &serde_json::Value) {
        match tree {
            serde_json::Value::String(text) => self.add(text),
            serde_json::Value::Array(items) => items.iter().for_each(|item| self.add_all(item)),
            serde_json::Value::Object(fields) => {
                fields.values().for_each(|field| self.add_all(field));
            }
            _ => {}
        }
    }

    /// Adds those that a template reads: `.Env.NAME`, or any if `Env` stands alone.
    fn add(&mut self, template: &str) {
        if !template.contains("{{") {
            return;
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        for (at, _) in template.match_indices(IN_TEMPLATES) {
            let before = template.get(..at).unwrap_or_default();
            let after = template.get(at + IN_TEMPLATES.len()..).unwrap_or_default();
            if before.ends_with(is_part) || after.starts_with(is_part) {
                continue;
            }
            let name: String = after
                .strip_prefix('.')
                .unwrap_or_default()
                .chars()
                .take_while(|c| is_part(*c))
                .collect();
            if name.is_empty() {
                self.all = true;
            }
            self.some.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_found_that_the_values_of_an_entry_read() {
        let names = ["A", "B", "C"];
        let env = Environment::new(names.map(|name| (name.to_owned(), format!("{name}!"))));
        for (text, read) in [
            ("A", &[][..]),
            ("$A", &["A!"]),
            ("${A}$B", &["A!", "B!"]),
            ("{{ add $A 1 }}", &["A!"]),
            ("{{ .Env.A }}", &["A!"]),
            (
                "{{ $.Env.A | upper }}{{ .Spec.Environment }}{{ .Env.D }}",
                &["A!"],
            ),
            ("{{ index .Env .Spec.name }}", &["A!", "B!", "C!"]),
            ("{{ index . \"Env\" \"A\" }}", &["A!", "B!", "C!"]),
            ("{{ range .Env }}{{ . }}{{ end }}", &["A!", "B!", "C!"]),
        ] {
            let mut watch = Watch::new(GroupVersionKind::gvk("g", "v1", "K"), "chart");
            watch.override_values = [("a".to_owned(), text.to_owned())].into();
            assert_eq!(env.read_by(&watch), read, "{text}");
            if !text.contains('$') || text.contains("$.") {
                watch.values = Some(json!({"a": [text]}));
                watch.override_values.clear();
                assert_eq!(env.read_by(&watch), read, "{text}");
            }
        }
    }
}
