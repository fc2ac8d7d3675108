//! Reads patches.

use go_yaml::tree::Node;
use helm_release::policy::{Patch, PatchBody};
use serde_json::Value;

use super::fields::{Fields, decode};
use super::target::target;

/// Reads a patch and its target.
pub(super) fn patch(fields: &mut Fields<'_>) -> Option<Patch> {
    let target = fields.section("target", target).unwrap_or_default();
    let patch = fields.required("patch", patch_body)?;
    Some(Patch { target, patch })
}

/// Reads a patch, which is a string (as in kustomize) or YAML: a list is a JSON Patch, a map a
/// strategic merge patch.
fn patch_body(node: &Node) -> Result<PatchBody, String> {
    let tree = match node.as_str() {
        Some(text) => {
            go_yaml::from_str(text).map_err(|e| format!("the patch is not valid YAML: {e}"))?
        }
        None => decode(node)?,
    };
    match tree {
        Value::Array(_) => serde_json::from_value(tree)
            .map(PatchBody::Json)
            .map_err(|e| format!("not a JSON Patch: {e}")),
        Value::Object(_) => Ok(PatchBody::StrategicMerge(tree)),
        _ => Err("expected a list of JSON Patch operations, or an object to merge".to_owned()),
    }
}
