//! Patches that custom resources hold themselves, within bounds that the entry sets.

use std::marker::PhantomData;

use go_template::{Budget, Limits};
use go_yaml::tree::{self, Node};
use helm_core::Values;
use helm_release::engine::{KindField, MAX_NESTING, OwnPatchError, OwnPatches, depth, is_reserved};
use serde_json::{Value, json};

use super::api::Api;
use super::fields::{Fields, expected, name};
use super::mapping::names;
use super::patch::patch;

/// Number of patches of a custom resource.
const MAX_PATCHES: usize = 32;
/// Size of the patches of a custom resource as JSON, in bytes.
const MAX_SIZE: usize = 64 * 1024;
/// Memory for reading a patch that is written as a text, in bytes.
const MAX_MEMORY: usize = 4 * 1024 * 1024;

/// Patches that custom resources hold themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchesFrom {
    /// Names of the fields that lead to the list of patches, without `spec`.
    pub path: Vec<String>,
    /// Fields that the patches may change, with all below them.
    pub allow: Vec<KindField>,
}

impl PatchesFrom {
    /// Reads the field `patchesFrom` of an entry, whose spec may have fields of its own.
    pub(super) fn read(fields: &mut Fields<'_>, api: Option<&Api>) -> Option<Self> {
        fields.section("patchesFrom", |from| {
            let path = from.required("path", |node| {
                let path = path_in_spec(node)?;
                let clash = api.and_then(|api| clash(&api.schema, &path));
                clash.map_or(Ok(path), Err)
            });
            let is_list = from.required("allow", |node| match node.as_list() {
                Some([]) => Err(format!("no patch can do anything; list a field, {FIELD}")),
                Some(_) => Ok(()),
                None => Err(expected("a list of fields", node)),
            });
            let allow = is_list.map(|()| from.items("allow", kind_field));
            Some(Self {
                path: path?,
                allow: allow?,
            })
        })?
    }

    /// Returns the place of the list in a custom resource, for messages.
    pub fn place(&self) -> String {
        format!("spec.{}", self.path.join("."))
    }

    /// Reads the patches of a custom resource.
    pub(crate) fn patches_of(&self, object: &Value) -> Result<OwnPatches, OwnPatchError> {
        let mut value = object.get("spec");
        for name in &self.path {
            value = value.and_then(|value| value.get(name));
        }
        let value = value.filter(|value| !value.is_null());
        let place = self.place();
        let patches = value.map(|value| read(value, &place));
        let patches = patches.transpose().map_err(OwnPatchError::Malformed)?;
        Ok(OwnPatches {
            place,
            patches: patches.unwrap_or_default(),
            allowed: self.allow.clone(),
        })
    }

    /// Checks that no value of a chart is at the path.
    pub(super) fn check_values(&self, values: &Values) -> Result<(), String> {
        let mut values = Some(values);
        for (at, name) in self.path.iter().enumerate() {
            let value = values.and_then(|values| values.get(name));
            let below = value.and_then(Value::as_object);
            if value.is_some() && (below.is_none() || at + 1 == self.path.len()) {
                return Err(format!(
                    "`{}` is in the way of a value of the chart, which no custom resource could set; choose another path",
                    self.place()
                ));
            }
            values = below;
        }
        Ok(())
    }

    /// Removes the list from a spec, and the maps that become empty by it.
    pub(crate) fn remove_from(&self, spec: &mut Values) {
        remove(spec, &self.path);
    }

    /// Returns the schema of the list.
    pub fn schema(&self) -> Value {
        let text = json!({"type": "string"});
        let texts = json!({"type": "array", "items": text});
        let selector = json!({
            "type": "object",
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": text},
                "matchExpressions": {"type": "array", "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {"key": text, "operator": text, "values": texts},
                }},
            },
        });
        let allowed: Vec<String> = self.allow.iter().map(KindField::to_string).collect();
        json!({
            "description": format!(
                "Patches of rendered objects. They may change {}.",
                allowed.join(", ")
            ),
            "type": "array",
            "maxItems": MAX_PATCHES,
            "items": {
                "type": "object",
                "required": ["patch"],
                "properties": {
                    "target": {
                        "description": "The object; exactly one must match.",
                        "type": "object",
                        "properties": {
                            "group": text,
                            "version": text,
                            "kind": text,
                            "name": text,
                            "namespace": text,
                            "labels": selector,
                        },
                    },
                    "patch": {
                        "description": "A list of JSON Patch operations, or an object for a strategic merge.",
                        "x-kubernetes-preserve-unknown-fields": true,
                    },
                },
            },
        })
    }
}

/// Example of a field, for messages.
const FIELD: &str = "such as `Deployment.spec.template.spec.tolerations`";

/// Reads the path of a field below `spec`.
fn path_in_spec(node: &Node) -> Result<Vec<String>, String> {
    let text = name(node)?;
    let is_name = |name: &&str| {
        let mut letters = name.chars();
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        letters.next().is_some_and(|c| c.is_ascii_alphabetic()) && letters.all(is_letter)
    };
    let mut names = text.split('.');
    let path = match names.next() {
        Some("spec") => names.map(|name| Some(name).filter(is_name).map(ToOwned::to_owned)),
        _ => return Err(no_path(&text)),
    };
    let path: Option<Vec<String>> = path.collect();
    path.filter(|path| !path.is_empty())
        .ok_or_else(|| no_path(&text))
}

fn no_path(text: &str) -> String {
    format!("`{text}` is not a path below `spec`, such as `spec.patches`")
}

/// Returns why a schema has no room for a field at a path.
fn clash(schema: &Value, path: &[String]) -> Option<String> {
    let mut fields = schema.get("properties")?;
    let (last, above) = path.split_last()?;
    for name in above {
        let field = fields.get(name)?;
        let Some(below) = field.get("properties") else {
            return Some(format!(
                "`{name}` in `api.fields` is no map of fields, so that nothing can be below it"
            ));
        };
        fields = below;
    }
    let taken = fields.get(last)?;
    taken.is_object().then(|| {
        format!("`{last}` is a field in `api.fields`, too; remove it there, or choose another path")
    })
}

/// Reads a field of a kind.
fn kind_field(node: &Node) -> Result<KindField, String> {
    let text = name(node)?;
    let mut path = names(&text);
    let hook = path.len() > 1 && path.first().is_some_and(|first| first == "hook");
    if hook {
        path.remove(0);
    }
    let kind = path.remove(0);
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.chars().all(|c| c.is_ascii_alphanumeric());
    let is_name = |name: &String| !name.is_empty() && !name.contains(['[', ']', '*', ' ']);
    if !is_kind || path.is_empty() || !path.iter().all(is_name) {
        return Err(format!(
            "`{text}` is not a field of a kind, {FIELD}; elements of lists have no name, a dot within a name is written as `\\.`, and a field of hooks as `hook.Job.spec`"
        ));
    }
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    if is_reserved(&names) {
        return Err(format!(
            "`{text}`: patches of custom resources may change no metadata but labels and annotations, none of Helm or the operator among them, and neither kind nor apiVersion"
        ));
    }
    Ok(KindField { hook, kind, path })
}

/// Reads a list of patches.
fn read(value: &Value, place: &str) -> Result<Vec<helm_release::policy::Patch>, String> {
    check_size(value, place)?;
    let mut value = value.clone();
    let items = value.as_array_mut().into_iter().flatten();
    for (index, item) in items.enumerate() {
        if let Some(body) = item.get_mut("patch")
            && let Value::String(text) = body
        {
            let read = body_of_text(text);
            *body = read.map_err(|error| format!("{place}[{index}].patch: {error}"))?;
        }
    }
    check_size(&value, place)?;
    let node = tree::parse(value.to_string().as_bytes())
        .map_err(|error| format!("{place}: {}", error.message()))?;
    let items = node
        .as_list()
        .ok_or_else(|| format!("{place}: {}", expected("a list of patches", &node)))?;
    let (mut patches, mut problems) = (Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        let read = Fields::read(item, &format!("{place}[{index}]"), &mut problems, patch);
        patches.extend(read.flatten());
    }
    if problems.is_empty() {
        return Ok(patches);
    }
    let problems = problems.iter();
    let messages: Vec<String> = problems
        .map(|problem| format!("{}: {}", problem.field, problem.message))
        .collect();
    Err(messages.join("; "))
}

/// Reads a patch that is written as a text, within a limit: aliases in a text can be a large tree.
fn body_of_text(text: &str) -> Result<Value, String> {
    let limits = Limits {
        memory: MAX_MEMORY,
        nesting: MAX_NESTING,
        ..Limits::NESTING_ONLY
    };
    let budget = Budget::new(limits);
    go_yaml::from_slice_within(text.as_bytes(), PhantomData::<Value>, &budget)
        .map_err(|error| format!("the patch is not valid YAML: {error}"))
}

/// Checks the number, the nesting and the size of patches.
fn check_size(value: &Value, place: &str) -> Result<(), String> {
    let count = value.as_array().map_or(0, Vec::len);
    if count > MAX_PATCHES {
        return Err(format!(
            "{place} has {count} patches; at most {MAX_PATCHES} are allowed"
        ));
    }
    if depth(value) > MAX_NESTING {
        return Err(format!(
            "{place} is nested more than {MAX_NESTING} levels deep"
        ));
    }
    if value.to_string().len() > MAX_SIZE {
        return Err(format!("{place} is larger than {} KiB", MAX_SIZE / 1024));
    }
    Ok(())
}

fn remove(spec: &mut Values, path: &[String]) {
    match path {
        [] => {}
        [last] => {
            spec.remove(last);
        }
        [first, rest @ ..] => {
            let Some(Value::Object(below)) = spec.get_mut(first) else {
                return;
            };
            let was_empty = below.is_empty();
            remove(below, rest);
            if below.is_empty() && !was_empty {
                spec.remove(first);
            }
        }
    }
}

#[cfg(test)]
mod tests;
