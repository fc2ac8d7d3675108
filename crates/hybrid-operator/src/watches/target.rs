//! Reads the targets of rules, and of the names of objects.

use kube_objects::target::Target;

use super::fields::{Fields, name, selector, string};

/// Reads a target.
pub(super) fn target(fields: &mut Fields<'_>) -> Target {
    Target {
        group: fields.optional("group", string),
        version: fields.optional("version", name),
        kind: fields.optional("kind", name),
        name: fields.optional("name", name),
        namespace: fields.optional("namespace", string),
        labels: fields.optional("labels", selector),
    }
}

/// Reads a target with a kind.
pub(super) fn target_of_kind(fields: &mut Fields<'_>) -> Option<Target> {
    let read = target(fields);
    if !fields.has("kind") {
        fields.wrong("`kind` is required".to_owned());
    }
    Some(read).filter(|target| target.kind.is_some())
}
