//! Legal Rust names for the keys of values.

use std::collections::BTreeSet;

/// Keywords that can be written `r#name`.
const RAW: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield",
];
/// Keywords that cannot.
const RESERVED: &[&str] = &["self", "super", "crate"];

/// The names of the fields of a struct.
#[derive(Default)]
pub(super) struct Fields(BTreeSet<String>);

impl Fields {
    /// Returns a name in snake case that no other field has.
    pub(super) fn name(&mut self, key: &str) -> String {
        let base = snake(key);
        let mut name = base.clone();
        let mut number = 2;
        while !self.0.insert(name.clone()) {
            name = format!("{base}_{number}");
            number += 1;
        }
        if RAW.contains(&name.as_str()) {
            format!("r#{name}")
        } else {
            name
        }
    }
}

/// Splits a key into words: at characters that are not letters or digits, and where the case
/// changes.
fn words(key: &str) -> Vec<String> {
    let characters: Vec<char> = key.chars().collect();
    let mut words = vec![String::new()];
    for (index, character) in characters.iter().copied().enumerate() {
        if !character.is_ascii_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = index.checked_sub(1).and_then(|i| characters.get(i));
        let next = characters.get(index + 1);
        let after_lower = before.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        // The P of `HTTPPort`.
        let ends_capitals = before.is_some_and(char::is_ascii_uppercase)
            && next.is_some_and(char::is_ascii_lowercase);
        if character.is_ascii_uppercase() && (after_lower || ends_capitals) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(character.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn snake(key: &str) -> String {
    let name = words(key).join("_");
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("value_{name}").trim_end_matches('_').to_owned()
    } else if RESERVED.contains(&name.as_str()) {
        format!("{name}_")
    } else {
        name
    }
}

/// Returns a name in upper camel case.
pub(super) fn type_name(key: &str) -> String {
    let mut name = String::new();
    for word in words(key) {
        let mut characters = word.chars();
        name.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(characters.as_str());
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("Value{name}")
    } else if name == "Self" {
        "SelfValue".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_legal_names() {
        let mut fields = Fields::default();
        for (key, wanted) in [
            ("replicaCount", "replica_count"),
            ("replica-count", "replica_count_2"),
            ("HTTPPort", "http_port"),
            (
                "targetCPUUtilizationPercentage",
                "target_cpu_utilization_percentage",
            ),
            ("type", "r#type"),
            ("self", "self_"),
            ("app.kubernetes.io/name", "app_kubernetes_io_name"),
            ("2fa", "value_2fa"),
            ("é", "value"),
        ] {
            assert_eq!(fields.name(key), wanted, "{key}");
        }
        for (key, wanted) in [
            ("serviceAccount", "ServiceAccount"),
            ("self", "SelfValue"),
            ("2fa", "Value2fa"),
            ("--", "Value"),
        ] {
            assert_eq!(type_name(key), wanted, "{key}");
        }
    }
}
