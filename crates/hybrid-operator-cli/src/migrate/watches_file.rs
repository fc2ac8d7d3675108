//! The watches file: its entries keep their meaning.

use std::path::Path;

use hybrid_operator::helm;
use hybrid_operator::watches::WatchesError;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Kind, Origin, Tree};
use crate::project::WATCHES;

/// Kind of custom resources with a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// Path of its chart, relative to the project.
    pub(super) chart: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
    chart: Option<String>,
    override_values: Option<Map<String, Value>>,
    override_values_type: Option<String>,
}

/// Returns whether the watches file is that of an Ansible operator.
pub(super) fn is_ansible(text: Option<&String>) -> bool {
    let entries: Vec<Map<String, Value>> = text
        .and_then(|text| go_yaml::from_str(text).ok())
        .unwrap_or_default();
    let ansible = |entry: &Map<String, Value>| {
        !entry.contains_key("chart")
            && (entry.contains_key("playbook") || entry.contains_key("role"))
    };
    entries.iter().any(ansible)
}

/// Returns the kinds of the watches file.
pub(super) fn check(tree: &mut Tree) -> Vec<WatchedKind> {
    let path = Path::new(WATCHES);
    let Some(text) = tree.files.get(path).cloned() else {
        return Vec::new();
    };
    let entries: Vec<Entry> = go_yaml::from_str(&text).unwrap_or_default();
    if tree.origin == Origin::Sdk {
        keep_strings(tree, path, &text, &entries);
    }
    if let Err(error) = helm::load(&tree.root.join(WATCHES)) {
        match error {
            WatchesError::Invalid { problems, .. } => {
                for problem in problems {
                    let finding = if problem.field.is_empty() {
                        problem.message
                    } else {
                        format!("{}: {}", problem.field, problem.message)
                    };
                    tree.add(Kind::ByHand, path, Some(problem.line), finding);
                }
            }
            error @ (WatchesError::Read { .. } | WatchesError::Lock(_)) => {
                tree.add(Kind::ByHand, path, None, error.to_string());
            }
        }
    }
    let kinds = entries.into_iter().map(|entry| WatchedKind {
        group: entry.group,
        version: entry.version,
        kind: entry.kind,
        chart: entry.chart,
    });
    kinds.collect()
}

/// operator-sdk sets every overridden value as a string. Here that is a choice, which is made
/// explicit where it matters.
fn keep_strings(tree: &mut Tree, path: &Path, text: &str, entries: &[Entry]) {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(ToOwned::to_owned).collect();
    let mut places = text
        .lines()
        .enumerate()
        .filter(|(_, line)| key_of(line) == Some("overrideValues"))
        .map(|(index, _)| index);
    for entry in entries {
        let Some(overridden) = &entry.override_values else {
            continue;
        };
        let Some(index) = places.next() else {
            let advice = "overrideValues: set overrideValuesType: string in this entry, so that values such as true stay strings";
            tree.add(Kind::ByHand, path, None, advice);
            continue;
        };
        if entry.override_values_type.is_some() || overridden.values().all(is_plain) {
            continue;
        }
        let Some(line) = lines.get_mut(index) else {
            continue;
        };
        // The new key takes the place of the old one, which may be the first of its entry.
        let column = line.find("overrideValues").unwrap_or(0);
        let (before, key) = line.split_at(column);
        *line = format!(
            "{before}overrideValuesType: string\n{}{key}",
            " ".repeat(column)
        );
        let why = format!(
            "{}: overrideValuesType: string is added, because operator-sdk sets overridden values as strings",
            entry.kind
        );
        tree.add(Kind::Change, path, Some(index + 1), why);
    }
    let changed = lines.concat();
    if tree.files.get(path) != Some(&changed) {
        tree.change(path, changed);
    }
}

/// Returns the key of a line of a block map.
fn key_of(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("- ").trim_start();
    Some(line.split_once(':')?.0.trim_matches(['"', '\'']))
}

/// Returns whether a value is a string with either type.
fn is_plain(value: &Value) -> bool {
    let Value::String(text) = value else {
        return false;
    };
    let typed = matches!(text.as_str(), "true" | "false" | "null") || text.parse::<i64>().is_ok();
    !typed && !text.contains('$') && !text.contains("{{")
}
