//! Values of the chart that expressions compute from the custom resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use object_cel::{Expression, Type};

use super::expression::expression;
use super::fields::{Fields, problem};
use super::outputs::custom_resource;

/// A path in the values, name by name.
pub type ValuePath = Vec<String>;

/// Values that come from the custom resource.
#[derive(Default)]
pub(super) struct Mapping {
    /// Values that expressions compute.
    pub(super) expressions: BTreeMap<ValuePath, Arc<Expression>>,
    /// Values that are the content of a Secret, with the field of the spec that refers to it.
    pub(super) secrets: BTreeMap<ValuePath, Vec<String>>,
}

/// Reads the field `map` of an entry. `spec` is the type of the spec, and `secrets` are its fields that refer to one.
pub(super) fn read(
    fields: &mut Fields<'_>,
    spec: &Type,
    secrets: &BTreeSet<Vec<String>>,
) -> Mapping {
    let variables = custom_resource(spec.clone());
    let read = fields.named("map", |_, node, path, problems| {
        let parsed = expression(node, &variables);
        let parsed = parsed.map_err(|message| problems.push(problem(node, path, message)));
        Some((node.clone(), Arc::new(parsed.ok()?)))
    });
    let mut mapping = Mapping::default();
    let secret_of = |expression: &Expression| {
        let mut reads = expression.reads();
        let path = reads.next().filter(|_| reads.next().is_none())?;
        let (_, path) = path.split_first().filter(|(first, _)| *first == "spec")?;
        let is_whole = matches!(expression.result(), Type::Object(_));
        (is_whole && secrets.contains(path)).then(|| path.to_vec())
    };
    for (text, (node, expression)) in read {
        let path = names(&text);
        let begins = |one: &ValuePath, other: &ValuePath| other.starts_with(one);
        let mut known = mapping.expressions.keys().chain(mapping.secrets.keys());
        let clash = known.find(|known| begins(known, &path) || begins(&path, known));
        let message = if path.iter().any(String::is_empty) {
            format!(
                "`{text}` is not a path of names with dots between them, such as `auth.password`"
            )
        } else if let Some(clash) = clash {
            format!(
                "`{text}` and `{}` write the same value; remove one of them",
                clash.join(".")
            )
        } else if let Some(secret) = secret_of(&expression) {
            if !path.iter().any(|name| name.contains('.')) {
                mapping.secrets.insert(path, secret);
                continue;
            }
            format!("`{text}`: no name has a dot on the path of a value from a Secret")
        } else {
            mapping.expressions.insert(path, expression);
            continue;
        };
        fields.wrong_at(&node, "map", &text, message);
    }
    mapping
}

/// Splits a path at its dots, except those after a backslash.
pub(super) fn names(path: &str) -> ValuePath {
    let mut names = vec![String::new()];
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '.' => names.push(String::new()),
            letter => {
                let letter = if letter == '\\' {
                    letters.next()
                } else {
                    Some(letter)
                };
                if let Some(name) = names.last_mut() {
                    name.extend(letter);
                }
            }
        }
    }
    names
}
