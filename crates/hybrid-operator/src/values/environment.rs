//! Environment variables, as templates and `overrideValues` see them.

use std::collections::BTreeMap;

use go_template::{Str, Tree, TreeMap, Type, Value};

/// Environment variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    /// The same variables, shared by all templates.
    tree: Tree,
}

impl Environment {
    /// Creates an environment.
    pub(crate) fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        let tree = |(name, value): (&String, &String)| {
            let value = Tree::Str(Str::from(value.as_bytes()));
            (name.as_str().into(), value)
        };
        let tree = Tree::from(TreeMap::new(Type::MAP, variables.iter().map(tree)));
        Self { variables, tree }
    }

    /// Returns a variable.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    /// Returns all variables as a map of a template.
    pub(super) fn to_value(&self) -> Value {
        Value::from(&self.tree)
    }
}
