//! Patches: JSON merge patches and JSON patches.

use ::json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::{Value, json};

use super::status::Failure;

pub(super) fn merge(object: &mut Value, patch: &[u8]) -> Result<(), Failure> {
    let decoding = |why: &str| Failure::bad_request(format!("error decoding patch: {why}"));
    let patch: Value =
        serde_json::from_slice(patch).map_err(|error| decoding(&error.to_string()))?;
    if patch.is_array() {
        return Err(decoding(
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ));
    }
    if !patch.is_object() {
        return Err(decoding("json: cannot unmarshal into Go value"));
    }
    ::json_patch::merge(object, &patch);
    Ok(())
}

pub(super) fn json_patch(object: &mut Value, patch: &[u8]) -> Result<(), Failure> {
    let decoding = |why: &str| Failure::bad_request(format!("error decoding patch: {why}"));
    let patch: Value =
        serde_json::from_slice(patch).map_err(|error| decoding(&error.to_string()))?;
    if patch.is_object() {
        return Err(decoding(
            "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    }
    let rejected = || {
        let message = "the server rejected our request due to an error in our request";
        Failure::new(422, "Invalid", message).with_details(json!({}))
    };
    let operations: ::json_patch::Patch = serde_json::from_value(patch).map_err(|_| rejected())?;
    for operation in operations.0 {
        let operation = replacing(object, operation);
        ::json_patch::patch(object, &[operation]).map_err(|_| rejected())?;
    }
    Ok(())
}

/// Returns an operation as the server understands it: it replaces also fields that are missing from an
/// object that is there.
fn replacing(object: &Value, operation: PatchOperation) -> PatchOperation {
    let PatchOperation::Replace(ReplaceOperation { path, value }) = operation else {
        return operation;
    };
    let parent = path
        .parent()
        .and_then(|parent| object.pointer(parent.as_str()));
    if parent.is_some_and(Value::is_object) {
        PatchOperation::Add(AddOperation { path, value })
    } else {
        PatchOperation::Replace(ReplaceOperation { path, value })
    }
}
