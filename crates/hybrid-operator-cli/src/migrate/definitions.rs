//! The CRDs of the watched kinds.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::watches_file::WatchedKind;
use super::{Kind, Tree, is_yaml_in, line_with};
use crate::project;

pub(super) fn check(tree: &mut Tree, kinds: &[WatchedKind]) {
    let definitions = definitions(tree);
    for kind in kinds {
        if let Some((path, text, definition)) = of_kind(&definitions, kind) {
            check_one(tree, path, text, definition);
        } else {
            let text = format!(
                "there is no CRD of {}.{}; 'hybrid-operator generate crds' writes it",
                kind.kind, kind.group
            );
            tree.add(Kind::ByHand, Path::new("config/crd"), None, text);
        }
    }
}

/// Returns the plural name of a kind: that of its CRD, else the regular one.
pub(super) fn plural(tree: &Tree, kind: &WatchedKind) -> String {
    let definitions = definitions(tree);
    let Some((_, _, definition)) = of_kind(&definitions, kind) else {
        return project::plural(&kind.kind);
    };
    let plural = field(definition, "/spec/names/plural");
    plural.unwrap_or_default().to_owned()
}

/// Returns the CRDs of the project with their files.
fn definitions(tree: &Tree) -> Vec<(PathBuf, String, Value)> {
    let mut definitions = Vec::new();
    for (path, text) in tree.matching(|path| is_yaml_in(path, &["config/crd", "deploy"])) {
        let documents: Vec<Value> = go_yaml::documents(text.as_bytes()).unwrap_or_default();
        for document in documents {
            if field(&document, "/kind") == Some("CustomResourceDefinition") {
                definitions.push((path.clone(), text.clone(), document));
            }
        }
    }
    definitions
}

fn of_kind<'a>(
    definitions: &'a [(PathBuf, String, Value)],
    kind: &WatchedKind,
) -> Option<&'a (PathBuf, String, Value)> {
    definitions.iter().find(|(_, _, definition)| {
        field(definition, "/spec/group") == Some(&kind.group)
            && field(definition, "/spec/names/kind") == Some(&kind.kind)
    })
}

fn field<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

fn check_one(tree: &mut Tree, path: &Path, text: &str, definition: &Value) {
    if field(definition, "/apiVersion") != Some("apiextensions.k8s.io/v1") {
        let way_out = "apiextensions.k8s.io/v1beta1 is not served since Kubernetes 1.22; 'hybrid-operator generate crds' writes the CRD in v1";
        tree.add(Kind::ByHand, path, line_with(text, "apiVersion"), way_out);
        return;
    }
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    for version in versions.into_iter().flatten() {
        let name = field(version, "/name").unwrap_or_default();
        if version.pointer("/subresources/status").is_none() {
            let way_out = format!(
                "version {name} has no status subresource, so that the status cannot be written; add 'subresources: {{status: {{}}}}' to it"
            );
            tree.add(Kind::ByHand, path, line_with(text, "versions:"), way_out);
        }
        let status = version.pointer("/schema/openAPIV3Schema/properties/status");
        let open = |schema: &Value| {
            schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
        };
        let root_open = version.pointer("/schema/openAPIV3Schema").is_some_and(open);
        if !root_open && !status.is_some_and(open) {
            let note = format!(
                "version {name}: the schema of status is closed, so that the API server drops fields that the Go operator did not write (release, history, observedGeneration); add x-kubernetes-preserve-unknown-fields: true"
            );
            tree.add(Kind::Note, path, line_with(text, "status:"), note);
        }
    }
}
