//! Values of the chart that expressions compute from the custom resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use go_yaml::tree::Node;
use object_cel::{Expression, Type, Variables};

use super::fields::{Fields, expected, problem};
use super::outputs::custom_resource;

/// A path in the values, name by name.
pub type ValuePath = Vec<String>;

/// Reads the field `map` of an entry. `spec` is the type of the spec.
pub(super) fn read(fields: &mut Fields<'_>, spec: &Type) -> BTreeMap<ValuePath, Arc<Expression>> {
    let variables = custom_resource(spec.clone());
    let read = fields.named("map", |node, path, problems| {
        let parsed = expression(node, &variables);
        let parsed = parsed.map_err(|message| problems.push(problem(node, path, message)));
        Some((node.clone(), parsed.ok()?))
    });
    let mut mapping: BTreeMap<ValuePath, Arc<Expression>> = BTreeMap::new();
    for (text, (node, expression)) in read {
        let path = names(&text);
        let begins = |one: &ValuePath, other: &ValuePath| other.starts_with(one);
        let clash = mapping
            .keys()
            .find(|known| begins(known, &path) || begins(&path, known));
        let message = if path.iter().any(String::is_empty) {
            format!(
                "`{text}` is not a path of names with dots between them, such as `auth.password`"
            )
        } else if let Some(clash) = clash {
            format!(
                "`{text}` and `{}` write the same value; remove one of them",
                clash.join(".")
            )
        } else {
            mapping.insert(path, expression);
            continue;
        };
        fields.wrong_at(&node, "map", &text, message);
    }
    mapping
}

fn expression(node: &Node, variables: &Variables) -> Result<Arc<Expression>, String> {
    let text = node
        .as_str()
        .ok_or_else(|| expected("an expression in CEL", node))?;
    let expression = Expression::parse(text, variables)
        .map_err(|error| format!("{error} (line and column of the expression)"))?;
    Ok(Arc::new(expression))
}

/// Splits a path at its dots, except those after a backslash.
fn names(path: &str) -> ValuePath {
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
