//! Comments of Bitnami's readme-generator, which name the path of the value.

use super::Comment;
use crate::generate::schema::{Kind, Node};

/// Reads `## @param path [modifiers] text`, or `@extra`, which documents a value without a default.
pub(super) fn read(line: &str) -> Option<(Vec<String>, Comment)> {
    let text = line
        .trim()
        .strip_prefix('#')?
        .trim_start_matches('#')
        .trim();
    let rest = text
        .strip_prefix("@param ")
        .or_else(|| text.strip_prefix("@extra "))?;
    let (name, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    // A field of a list's items.
    if name.contains('[') {
        return None;
    }
    let mut node = Node::default();
    let mut said = rest.trim();
    if let Some((modifiers, after)) = said.strip_prefix('[').and_then(|r| r.split_once(']')) {
        for modifier in modifiers.split(',').map(str::trim) {
            if let Some(default) = modifier.strip_prefix("default:") {
                node.default = Some(default.trim().to_owned());
            } else if modifier == "nullable" {
                node.kinds.insert(Kind::Null);
            } else if let Some(kind) = kind(modifier) {
                node.kinds.insert(kind);
            }
        }
        // Only that it may be null says nothing of other kinds.
        if node.kinds.len() == 1 && node.kinds.contains(&Kind::Null) {
            node.kinds.clear();
        }
        said = after.trim();
    }
    node.text = (!said.is_empty()).then(|| said.to_owned());
    Some((path(name), Comment { node }))
}

/// Returns the kind that a word of the dialects names.
pub(super) fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "int" => Kind::Integer,
        "float" => Kind::Number,
        "bool" => Kind::Boolean,
        "list" => Kind::Array,
        "dict" | "map" => Kind::Object,
        name => return Kind::of_name(name),
    })
}

/// Splits a path at dots that are not quoted and not escaped.
pub(super) fn path(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for character in text.chars() {
        match character {
            '"' if !escaped => quoted = !quoted,
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '.' if !quoted && !escaped => parts.push(String::new()),
            character => {
                if let Some(part) = parts.last_mut() {
                    part.push(character);
                }
            }
        }
        escaped = false;
    }
    parts
}
