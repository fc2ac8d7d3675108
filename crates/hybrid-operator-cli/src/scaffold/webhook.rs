//! `create webhook`: webhooks of a native kind.

use serde_json::{Value, json};

use super::kind::{add_to_main, list, native_resource};
use super::template::render;
use super::{Draft, Kind, ScaffoldError, add_project_file, edit, names};
use crate::project::{ProjectFile, Resource};

/// Which webhooks are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Webhook {
    /// Whether objects are completed before they are stored.
    pub(crate) defaulting: bool,
    /// Whether objects are checked before they are stored.
    pub(crate) validation: bool,
}

/// Adds webhooks of a native kind.
pub(crate) fn create_webhook(
    draft: &mut Draft,
    file: &mut ProjectFile,
    kind: &Kind,
    webhook: Webhook,
) -> Result<(), ScaffoldError> {
    kind.check()?;
    let resource = Resource {
        domain: Some(file.domain.clone()),
        group: Some(kind.group.clone()),
        ..Resource::default()
    };
    let group = resource.full_group();
    native_resource(file, kind, &group)?.webhooks = Some(entry(webhook));
    let mut data = kind.data(&group, &file.project_name);
    if let Some(fields) = data.as_object_mut() {
        fields.insert("defaulting".to_owned(), webhook.defaulting.into());
        fields.insert("validation".to_owned(), webhook.validation.into());
    }
    let module = names::module(&kind.kind);
    let code = render("webhook/kind.rs", &data)?;
    draft.add(format!("src/webhooks/{module}.rs"), code)?;
    draft.add_shared("src/webhooks/mod.rs", render("webhook/mod.rs", &data)?)?;
    add_to_list_of_webhooks(draft, &module)?;
    draft.edit("src/lib.rs", "pub mod webhooks;", |text| {
        Some(edit::insert_sorted(text, "pub mod ", "pub mod webhooks;"))
    })?;
    add_to_main(
        draft,
        file,
        "webhooks",
        ".with_webhooks(webhooks::webhooks())",
    )?;
    for (path, template) in [
        (
            "config/webhook/kustomization.yaml",
            "webhook/kustomization.yaml",
        ),
        ("config/webhook/role.yaml", "webhook/role.yaml"),
        (
            "config/webhook/role_binding.yaml",
            "webhook/role_binding.yaml",
        ),
        ("config/webhook/service.yaml", "webhook/service.yaml"),
    ] {
        draft.add(path, render(template, &data)?)?;
    }
    list(draft, "default", "../webhook")?;
    add_project_file(draft, file)
}

/// Returns the field `webhooks` of `PROJECT`, which has only what is true.
fn entry(webhook: Webhook) -> Value {
    let mut entry = json!({"webhookVersion": "v1"});
    if let Some(fields) = entry.as_object_mut() {
        for (name, wanted) in [
            ("defaulting", webhook.defaulting),
            ("validation", webhook.validation),
        ] {
            if wanted {
                fields.insert(name.to_owned(), true.into());
            }
        }
    }
    entry
}

fn add_to_list_of_webhooks(draft: &mut Draft, module: &str) -> Result<(), ScaffoldError> {
    let declaration = format!("mod {module};");
    let call = format!("webhooks = {module}::add(webhooks);");
    let lines = format!("{declaration}\n{call}");
    draft.edit("src/webhooks/mod.rs", &lines, |text| {
        let text = insert_module(text, &declaration)?;
        edit::insert_before(&text, "webhooks", &call)
    })
}

/// Inserts `mod a;` among the others, or above the first `use`.
fn insert_module(text: &str, declaration: &str) -> Option<String> {
    if text.lines().any(|line| line.starts_with("mod ")) {
        return Some(edit::insert_sorted(text, "mod ", declaration));
    }
    let (before, after) = text.split_once("\nuse ")?;
    Some(format!("{before}\n{declaration}\n\nuse {after}"))
}
