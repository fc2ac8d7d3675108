//! Compares two versions of a CRD and names what breaks: custom resources that were accepted and
//! would be refused or lose fields, and clients that no longer find the kind.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Reads a file as it is in a revision of the git repository that it is in. Returns `None` if the
/// revision does not have it.
pub(crate) fn at_revision(
    root: &Path,
    revision: &str,
    path: &Path,
) -> anyhow::Result<Option<String>> {
    let git = |arguments: &[&str]| {
        Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output()
            .context("cannot run git, which --compat needs")
    };
    let commit = format!("{revision}^{{commit}}");
    let known = git(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &commit,
    ])?;
    if !known.status.success() {
        bail!(
            "git does not know the revision {revision:?} in {}; give a commit, tag or branch",
            root.display()
        );
    }
    let object = format!("{revision}:./{}", path.display());
    let file = git(&["show", "--end-of-options", &object])?;
    if !file.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8(file.stdout)
        .with_context(|| format!("{} at {revision} is not UTF-8", path.display()))?;
    Ok(Some(text))
}

/// Names what breaks between two CRDs, sorted by path.
pub(crate) fn breaking_changes(old: &Value, new: &Value) -> Vec<String> {
    let mut changes = Changes::default();
    for path in [
        "/spec/group",
        "/spec/scope",
        "/spec/names/kind",
        "/spec/names/plural",
    ] {
        let (before, after) = (old.pointer(path), new.pointer(path));
        if before != after {
            changes.add(
                &path.trim_start_matches('/').replace('/', "."),
                format!("changed from {} to {}", shown(before), shown(after)),
            );
        }
    }
    let lost = |name: &str| {
        let names = |crd: &Value| texts(crd.pointer(&format!("/spec/names/{name}")));
        let (before, after) = (names(old), names(new));
        before.difference(&after).cloned().collect::<Vec<_>>()
    };
    for short in lost("shortNames") {
        changes.add("spec.names.shortNames", format!("{short:?} removed"));
    }
    for (name, before) in versions(old) {
        let Some(after) = versions(new).find(|(other, _)| *other == name) else {
            changes.add(name, "version removed");
            continue;
        };
        let schema = "/schema/openAPIV3Schema";
        if let (Some(before), Some(after)) = (before.pointer(schema), after.1.pointer(schema)) {
            changes.compare(name, before, after);
        }
    }
    changes.0.into_iter().collect()
}

fn versions(crd: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.into_iter().flatten();
    versions
        .filter(|version| version.get("served") != Some(&Value::Bool(false)))
        .filter_map(|version| Some((version.get("name")?.as_str()?, version)))
}

#[derive(Default)]
struct Changes(BTreeSet<String>);

impl Changes {
    fn add(&mut self, path: &str, change: impl Display) {
        self.0.insert(format!("{path}: {change}"));
    }

    fn compare(&mut self, path: &str, old: &Value, new: &Value) {
        let (before, after) = (Accepted::of(old), Accepted::of(new));
        if !before.within(after) {
            self.add(path, format!("type changed from {before} to {after}"));
            return;
        }
        if is(old, "nullable") && !is(new, "nullable") && after != Accepted::Anything {
            self.add(path, "no longer nullable");
        }
        let closed = |schema: &Value| {
            schema.get("type") == Some(&Value::from("object"))
                && !is(schema, OPEN)
                && schema.get("additionalProperties").is_none()
        };
        if !closed(old) && closed(new) && before != Accepted::Anything {
            self.add(path, "no longer accepts unknown fields");
        }
        let required = |schema: &Value| texts(schema.get("required"));
        for name in required(new).difference(&required(old)) {
            self.add(&format!("{path}.{name}"), "now required");
        }
        self.compare_values(path, old, new);
        self.compare_bounds(path, old, new);
        self.compare_below(path, old, new);
    }

    fn compare_below(&mut self, path: &str, old: &Value, new: &Value) {
        let fields = |schema: &Value| {
            let fields = schema.get("properties").and_then(Value::as_object);
            fields.cloned().unwrap_or_default()
        };
        let now = fields(new);
        for (name, before) in fields(old) {
            let path = format!("{path}.{name}");
            match now.get(&name).or(new.get("additionalProperties")) {
                Some(after) => self.compare(&path, &before, after),
                None => self.add(&path, "removed"),
            }
        }
        if let Some(before) = old.get("additionalProperties") {
            let path = format!("{path}.*");
            match new.get("additionalProperties") {
                Some(after) => self.compare(&path, before, after),
                None if is(new, OPEN) => {}
                None => self.add(&path, "no longer accepts unknown fields"),
            }
        }
        if let (Some(before), Some(after)) = (old.get("items"), new.get("items")) {
            self.compare(&format!("{path}[]"), before, after);
        }
    }

    fn compare_values(&mut self, path: &str, old: &Value, new: &Value) {
        match (allowed(old), allowed(new)) {
            (Some(before), Some(after)) => {
                for value in before.difference(&after) {
                    self.add(path, format!("the value {value} is no longer allowed"));
                }
                return;
            }
            (None, Some(after)) => {
                let after: Vec<String> = after.into_iter().collect();
                self.add(path, format!("now only allows {}", after.join(", ")));
                return;
            }
            (Some(_) | None, None) => {}
        }
        let pattern = |schema: &Value| schema.get("pattern").cloned();
        match (pattern(old), pattern(new)) {
            (before, Some(after)) if before.as_ref() != Some(&after) => {
                let had_values = allowed(old).is_some();
                let before = match before.filter(|_| !had_values) {
                    Some(before) => format!(" instead of {before}"),
                    None => String::new(),
                };
                self.add(path, format!("must now match {after}{before}"));
            }
            _ => {}
        }
    }

    fn compare_bounds(&mut self, path: &str, old: &Value, new: &Value) {
        let number = |schema: &Value, name: &str| schema.get(name).and_then(Value::as_f64);
        for (name, lower) in [
            ("minimum", true),
            ("minLength", true),
            ("minItems", true),
            ("minProperties", true),
            ("maximum", false),
            ("maxLength", false),
            ("maxItems", false),
            ("maxProperties", false),
        ] {
            let (before, after) = (number(old, name), number(new, name));
            let Some(limit) = after else { continue };
            let tighter = match before {
                None => !(lower && limit <= 0.0 && name != "minimum"),
                Some(before) if lower => limit > before,
                Some(before) => limit < before,
            };
            if tighter {
                let before = before.map_or_else(|| "no limit".to_owned(), |b| b.to_string());
                self.add(path, format!("{name} tightened from {before} to {limit}"));
            }
        }
        for name in ["exclusiveMinimum", "exclusiveMaximum"] {
            if !is(old, name) && is(new, name) {
                self.add(path, format!("the limit itself is now excluded ({name})"));
            }
        }
        let (before, after) = (number(old, "multipleOf"), number(new, "multipleOf"));
        if let Some(after) = after
            && before.is_none_or(|before| (before / after).fract() != 0.0)
        {
            self.add(path, format!("must now be a multiple of {after}"));
        }
    }
}

/// Kinds of values that a schema accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepted<'a> {
    Anything,
    IntOrString,
    Kind(&'a str),
}

impl<'a> Accepted<'a> {
    fn of(schema: &'a Value) -> Self {
        match schema.get("type").and_then(Value::as_str) {
            Some(kind) => Self::Kind(kind),
            None if is(schema, INT_OR_STRING) => Self::IntOrString,
            None => Self::Anything,
        }
    }

    fn within(self, other: Self) -> bool {
        match (self, other) {
            (_, Self::Anything)
            | (Self::Kind("integer"), Self::Kind("number"))
            | (Self::Kind("integer" | "string"), Self::IntOrString) => true,
            (one, two) => one == two,
        }
    }
}

impl std::fmt::Display for Accepted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anything => "any",
            Self::IntOrString => "integer or string",
            Self::Kind(kind) => kind,
        })
    }
}

/// Returns the only values that a schema allows: its `enum`, or the pattern that stands for one.
fn allowed(schema: &Value) -> Option<BTreeSet<String>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values = values.iter().filter(|value| !value.is_null());
        return Some(values.map(ToString::to_string).collect());
    }
    let pattern = schema.get("pattern")?.as_str()?;
    let values = pattern.strip_prefix("^(")?.strip_suffix(")$")?;
    let mut all = BTreeSet::new();
    for value in values.split('|') {
        let mut text = String::new();
        let mut characters = value.chars();
        while let Some(character) = characters.next() {
            match character {
                '\\' => text.push(characters.next()?),
                special if ".+*?()[]{}^$".contains(special) => return None,
                other => text.push(other),
            }
        }
        all.insert(Value::from(text).to_string());
    }
    Some(all)
}

fn is(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn texts(list: Option<&Value>) -> BTreeSet<String> {
    let texts = list.and_then(Value::as_array).into_iter().flatten();
    texts
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect()
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(spec: &Value) -> Value {
        json!({"spec": {"group": "a.b", "scope": "Namespaced", "names": {"kind": "A", "plural": "as"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": spec}}}}]}})
    }

    #[test]
    fn each_breaking_change_is_named_and_others_are_not() {
        let open = |mut schema: Value| {
            schema[OPEN] = json!(true);
            schema
        };
        let object = |fields: Value| open(json!({"type": "object", "properties": fields}));
        let one = |field: Value| object(json!({"a": field}));
        // A name, or the schema of the field `a`.
        let schema = |text: &str| match text {
            "nothing" => object(json!({})),
            "closed" => json!({"type": "object"}),
            "any" => one(open(json!({}))),
            "string" => one(json!({"type": "string", "nullable": true})),
            field => one(serde_json::from_str(field).unwrap()),
        };
        let cases = r#"string -> nothing => v1.spec.a: removed
nothing -> string
string -> any
any -> string => v1.spec.a: type changed from any to string
{"type": "integer"} -> {"type": "number"}
{"type": "integer"} -> {"x-kubernetes-int-or-string": true}
{"type": "number"} -> {"type": "integer"} => v1.spec.a: type changed from number to integer
string -> {"type": "string"} => v1.spec.a: no longer nullable
nothing -> closed => v1.spec: no longer accepts unknown fields
{"type": "string", "pattern": "^(a|b\\.c)$"} -> {"type": "string", "pattern": "^(a|d)$"} => v1.spec.a: the value "b.c" is no longer allowed
{"type": "string", "enum": ["a"]} -> {"type": "string", "pattern": "^(a|d)$"}
{"type": "string"} -> {"type": "string", "pattern": "^[a-z]+$"} => v1.spec.a: must now match "^[a-z]+$"
{"type": "integer", "minimum": 1, "maximum": 9} -> {"type": "integer", "minimum": 2, "maximum": 10} => v1.spec.a: minimum tightened from 1 to 2
{"type": "array", "items": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": true}} -> {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "required": ["b"]}} => v1.spec.a[].b: now required
{"type": "integer", "multipleOf": 4} -> {"type": "integer", "multipleOf": 2}"#;
        for case in cases.lines() {
            let (change, wanted) = case.split_once(" => ").unwrap_or((case, ""));
            let (old, new) = change.split_once(" -> ").unwrap();
            let (old, new) = (schema(old), schema(new));
            let wanted: Vec<&str> = wanted.lines().collect();
            let found = breaking_changes(&crd(&old), &crd(&new));
            assert_eq!(found, wanted, "{old} {new}");
        }
    }

    #[test]
    fn changes_of_names_scope_and_versions_are_named() {
        let old = crd(&json!({}));
        let mut new = old.clone();
        new["spec"]["scope"] = json!("Cluster");
        new["spec"]["names"]["plural"] = json!("aes");
        new["spec"]["versions"][0]["name"] = json!("v2");
        assert_eq!(
            breaking_changes(&old, &new),
            [
                "spec.names.plural: changed from \"as\" to \"aes\"",
                "spec.scope: changed from \"Namespaced\" to \"Cluster\"",
                "v1: version removed",
            ]
        );
    }
}
