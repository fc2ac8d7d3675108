//! Inserts lines into files that people edit. Everything else in a file stays as it is. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use go_yaml::tree::{self, Node};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::subject::{Overrides, PREFIX};
use crate::olm::items;
use crate::olm::kustomize::containers;

/// The manifest of a project with the operator's container.
pub(crate) const MANAGER: &str = "config/manager/manager.yaml";

/// Returns the watches file with further lines of `overrideValues` in the entry of a kind.
///
/// # Errors
/// If the entry is not in YAML's block style. The error has the lines.
pub(crate) fn add_overrides(
    text: &str,
    gvk: &GroupVersionKind,
    new: &Overrides,
) -> anyhow::Result<String> {
    let lines: Vec<String> = new
        .iter()
        .map(|(path, text)| format!("{}: {}", scalar(path), scalar(text)))
        .collect();
    let edited = try_add(text, gvk, &lines);
    let meant = |text: &str| -> Option<Value> { go_yaml::from_str(text).ok() };
    let wanted = || {
        let mut wanted = meant(text)?;
        let entries = wanted.as_array_mut()?;
        let entry = entries.iter_mut().find(|entry| is_of(entry, gvk))?;
        let overrides = entry.as_object_mut()?.entry("overrideValues");
        let overrides = overrides.or_insert_with(|| Value::Object(serde_json::Map::new()));
        if overrides.is_null() {
            *overrides = Value::Object(serde_json::Map::new());
        }
        for (path, text) in new {
            let text = text.as_str().into();
            overrides.as_object_mut()?.insert(path.clone(), text);
        }
        Some(wanted)
    };
    match edited {
        Some(edited) if meant(&edited) == wanted() => Ok(edited),
        _ => bail!(
            "cannot add lines to the entry of {}, which is not in YAML's block style; add them to its overrideValues:\n{}",
            gvk.kind,
            lines.join("\n")
        ),
    }
}

fn is_of(entry: &Value, gvk: &GroupVersionKind) -> bool {
    let is = |name: &str, text: &str| {
        entry.get(name).and_then(Value::as_str).unwrap_or_default() == text
    };
    is("group", &gvk.group) && is("version", &gvk.version) && is("kind", &gvk.kind)
}

fn try_add(text: &str, gvk: &GroupVersionKind, new: &[String]) -> Option<String> {
    let root = tree::parse(text.as_bytes()).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let entries = root.as_list()?;
    let at = entries.iter().position(|entry| {
        let is = |name: &str, wanted: &str| {
            field(entry, name).and_then(|(_, value)| value.text()) == Some(wanted)
        };
        is("group", &gvk.group) && is("version", &gvk.version) && is("kind", &gvk.kind)
    })?;
    let entry = entries.get(at)?;
    let after = entries
        .get(at + 1)
        .map_or(lines.len(), |next| next.line() - 1);
    let Some((key, value)) = field(entry, "overrideValues") else {
        let (first, _) = entry.as_map()?.first()?;
        let indent = " ".repeat(first.column() - 1);
        let mut block = vec![format!("{indent}overrideValues:")];
        block.extend(new.iter().map(|line| format!("{indent}  {line}")));
        return Some(inserted(&lines, used(&lines, after), &block));
    };
    let mut fields = entry.as_map()?.iter();
    let next = fields.find(|(other, _)| other.line() > key.line());
    let next = next.map_or(after, |(next, _)| next.line() - 1);
    let indent = match value.as_map().and_then(|map| map.first()) {
        Some((first, _)) if first.line() > key.line() => first.column() - 1,
        None if value.is_null() => key.column() + 1,
        _ => return None,
    };
    let indent = " ".repeat(indent);
    let block: Vec<String> = new.iter().map(|line| format!("{indent}{line}")).collect();
    Some(inserted(&lines, used(&lines, next), &block))
}

/// Returns the manifests with variables in a container: the one named `manager`, or the only one. `None` if there is
/// none, or it is not in YAML's block style.
pub(crate) fn set_variables(text: &str, variables: &BTreeMap<String, String>) -> Option<String> {
    let mut result = text.to_owned();
    for (name, value) in variables {
        result = set_variable(&result, name, value)?;
    }
    Some(result)
}

fn set_variable(text: &str, name: &str, value: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut start = 0;
    for end in 0..=lines.len() {
        let is_end = lines.get(end).is_none_or(|line| line.trim_end() == "---");
        if !is_end {
            continue;
        }
        let document = lines.get(start..end).unwrap_or_default();
        if let Some(edited) = in_document(document, name, value) {
            let before = lines.get(..start).unwrap_or_default();
            let after = lines.get(end..).unwrap_or_default();
            let before = before.iter().map(|line| (*line).to_owned());
            let after = after.iter().map(|line| (*line).to_owned());
            let all: Vec<String> = before.chain(edited).chain(after).collect();
            return Some(all.join("\n") + "\n");
        }
        start = end + 1;
    }
    None
}

fn in_document(lines: &[&str], name: &str, value: &str) -> Option<Vec<String>> {
    let root = tree::parse(lines.join("\n").as_bytes()).ok()?;
    if field(&root, "kind")?.1.text() != Some("Deployment") {
        return None;
    }
    let mut node = &root;
    for step in ["spec", "template", "spec", "containers"] {
        node = field(node, step)?.1;
    }
    let containers = node.as_list()?;
    let is_manager =
        |one: &&Node| field(one, "name").and_then(|(_, name)| name.text()) == Some("manager");
    let container = match containers {
        [only] => only,
        several => several.iter().find(is_manager)?,
    };
    let line = format!("value: {}", scalar(value));
    let owned = || {
        lines
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<Vec<_>>()
    };
    let Some((key, env)) = field(container, "env") else {
        let (first, _) = container.as_map()?.first()?;
        let indent = " ".repeat(first.column() - 1);
        let block = [
            format!("{indent}env:"),
            format!("{indent}- name: {name}"),
            format!("{indent}  {line}"),
        ];
        // The first field, so that no other one is torn apart.
        let mut all = owned();
        let at = container
            .as_map()?
            .get(1)
            .map_or(first.line(), |(next, _)| next.line() - 1);
        all.splice(at..at, block);
        return Some(all);
    };
    let items = env.as_list()?;
    let present = items
        .iter()
        .find(|item| field(item, "name").and_then(|(_, value)| value.text()) == Some(name));
    if let Some(present) = present {
        let (key, old) = field(present, "value")?;
        if old.text() == Some(value) {
            return Some(owned());
        }
        let at = key.line() - 1;
        let mut all = owned();
        let target = all.get_mut(at)?;
        let column = key.column() - 1;
        let rest = target.get(column..)?;
        let comment = rest
            .find(" #")
            .and_then(|at| rest.get(at..))
            .unwrap_or_default();
        *target = format!("{}{line}{comment}", target.get(..column)?);
        return Some(all);
    }
    let last = items.last()?;
    let item = lines.get(last.line() - 1)?;
    let indent = item.get(..item.len() - item.trim_start().len())?;
    if !item.trim_start().starts_with("- ") || last.line() == key.line() {
        return None;
    }
    // The item ends before the first line that is less indented than its fields.
    let end = lines.iter().skip(last.line()).position(|line| {
        let space = line.len() - line.trim_start().len();
        !line.trim().is_empty() && space <= indent.len()
    });
    let end = used(lines, end.map_or(lines.len(), |count| last.line() + count));
    let mut all = owned();
    all.splice(
        end..end,
        [
            format!("{indent}- name: {name}"),
            format!("{indent}  {line}"),
        ],
    );
    Some(all)
}

/// Returns the variables with images of the container that [`set_variables`] writes into.
pub(crate) fn variables(text: &str) -> BTreeMap<String, String> {
    let mut documents: Vec<Value> = go_yaml::documents(text.as_bytes()).unwrap_or_default();
    let containers = documents.iter_mut().flat_map(containers);
    let variables = containers.flat_map(|container| items(container, "/env"));
    let named = variables.filter_map(|variable| {
        let name = variable.get("name")?.as_str()?;
        let value = variable.get("value")?.as_str()?;
        name.starts_with(PREFIX)
            .then(|| (name.to_owned(), value.to_owned()))
    });
    named.collect()
}

/// Returns a field of a map.
fn field<'n>(map: &'n Node, name: &str) -> Option<(&'n Node, &'n Node)> {
    let mut fields = map.as_map()?.iter();
    let (key, value) = fields.find(|(key, _)| key.text() == Some(name))?;
    Some((key, value))
}

/// Returns where the lines before `end` end, without blank lines and comments, which belong to what follows.
fn used(lines: &[&str], end: usize) -> usize {
    let before = lines.get(..end).unwrap_or_default();
    let is_used = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    before
        .iter()
        .rposition(is_used)
        .map_or(end, |last| last + 1)
}

fn inserted(lines: &[&str], at: usize, new: &[String]) -> String {
    let mut all: Vec<&str> = lines.to_vec();
    all.splice(at..at, new.iter().map(String::as_str));
    all.join("\n") + "\n"
}

/// Returns a text as a scalar of YAML on one line.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/$".contains(c);
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '$')
        && text.chars().all(plain)
        && go_yaml::from_str::<Value>(text).is_ok_and(|value| value.is_string());
    if is_plain {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Says which variables to write where this program cannot.
pub(crate) fn variables_by_hand(variables: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let lines: Vec<Value> = variables
        .iter()
        .map(|(name, value)| serde_json::json!({"name": name, "value": value}))
        .collect();
    go_yaml::to_string(&lines).context("cannot write the variables as YAML")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str) -> anyhow::Result<String> {
        let new = [("a.b", "$X"), ("c", "{{ upper \"$X\" }}")];
        let new = new.map(|(path, text)| (path.to_owned(), text.to_owned()));
        add_overrides(text, &GroupVersionKind::gvk("g", "v1", "K"), &new.into())
    }

    #[test]
    fn lines_are_added_to_the_entry_and_everything_else_stays() {
        let lines = "    a.b: $X\n    c: '{{ upper \"$X\" }}'\n";
        for (before, after) in [
            (
                "# x\n- group: g\n  version: v1\n  kind: K # k\n  chart: c\n",
                "# end\n",
            ),
            ("- kind: A\n- {group: g, version: v1, kind: K}\n", ""),
            (
                "- version: v1\n  group: g\n  kind: K\n",
                "\n# of B\n- kind: B\n",
            ),
        ] {
            let text = format!("{before}{after}");
            if text.contains('{') {
                let error = added(&text).unwrap_err().to_string();
                assert!(
                    error.ends_with("a.b: $X\nc: '{{ upper \"$X\" }}'"),
                    "{error}"
                );
                continue;
            }
            let expected = format!("{before}  overrideValues:\n{lines}{after}");
            assert_eq!(added(&text).unwrap(), expected);
        }
        let before = "- group: g\n  version: v1\n  kind: K\n  overrideValues:\n    # why\n    z: |\n      long\n";
        let after = "  chart: c\n";
        let expected = format!("{before}{lines}{after}");
        assert_eq!(added(&format!("{before}{after}")).unwrap(), expected);
        assert!(added("- {group: g, version: v1, kind: K, overrideValues: {z: '1'}}\n").is_err());
        assert!(added("- kind: Other\n").is_err());
    }

    #[test]
    fn variables_are_added_and_changed_in_the_operators_container() {
        let manifests = |env: &str| {
            format!(
                "kind: Namespace\n---\nkind: Deployment\nspec:\n  template:\n    spec:\n      # why\n      containers:\n      - name: proxy\n        image: p\n      - name: manager\n{env}        image: m\n---\nkind: Service\n"
            )
        };
        let set = |env: &str, value: &str| {
            let variables = BTreeMap::from([("RELATED_IMAGE_A".to_owned(), value.to_owned())]);
            set_variables(&manifests(env), &variables)
        };
        let one = "        env:\n        - name: RELATED_IMAGE_A\n          value: a/b\n";
        assert_eq!(set("", "a/b"), Some(manifests(one)));
        assert_eq!(set(one, "a/b"), Some(manifests(one)));
        let commented = one.replace("a/b", "x # old");
        assert_eq!(
            set(&commented, "a/b"),
            Some(manifests(&commented.replace('x', "a/b")))
        );
        let other = "        env:\n        # first\n        - name: O\n          valueFrom:\n            fieldRef: {fieldPath: a}\n";
        let both = format!("{other}        - name: RELATED_IMAGE_A\n          value: a/b\n");
        assert_eq!(set(other, "a/b"), Some(manifests(&both)));
        assert_eq!(variables(&manifests(&both))["RELATED_IMAGE_A"], "a/b");
        assert_eq!(set("        env: []\n", "a/b"), None);
        assert_eq!(
            set_variables("kind: Pod\n", &variables(&manifests(one))),
            None
        );
    }
}
