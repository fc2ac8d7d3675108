//! Packages for the Operator Lifecycle Manager (OLM): bundles and file-based catalogs. Pure, but for
//! reading the files of a project.
//!
//! A bundle is made in three steps: [`kustomize`] reads the objects that `config/default` deploys,
//! [`parts`] sorts them by what OLM does with them, and [`csv`] and [`bundle`] write the files.
//! [`validate`] checks a bundle as `operator-sdk bundle validate` does, and [`catalog`] lists bundles
//! as `opm render` does.

pub(crate) mod bundle;
pub(crate) mod catalog;
pub(crate) mod csv;
mod descriptors;
pub(crate) mod kustomize;
pub(crate) mod parts;
pub(crate) mod resources;
pub(crate) mod validate;

use serde_json::Value;

/// Kind of a bundle's main object.
pub(crate) const CSV: &str = "ClusterServiceVersion";
/// Kind of a definition.
pub(crate) const CRD: &str = "CustomResourceDefinition";

/// Returns the text at a JSON pointer, or an empty one.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// Returns the items of a list at a JSON pointer.
pub(crate) fn items<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.into_iter().flatten()
}

pub(crate) fn kind(object: &Value) -> &str {
    text(object, "/kind")
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Returns the API group and version of an object.
pub(crate) fn group_version(object: &Value) -> (&str, &str) {
    let api_version = text(object, "/apiVersion");
    api_version.split_once('/').unwrap_or(("", api_version))
}
