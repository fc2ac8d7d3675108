//! `create webhook`: webhooks of a native kind, and conversions between its versions.

use serde_json::{Value, json};

use super::extra;
use super::kind::{add_to_main, list, native_resource};
use super::template::render;
use super::{Draft, Kind, ScaffoldError, add_project_file, edit, names, version};
use crate::project::{ProjectFile, Resource};

/// Webhooks that are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    /// Whether objects are completed before they are stored.
    pub(crate) defaulting: bool,
    /// Whether objects are checked before they are stored.
    pub(crate) validation: bool,
    /// Whether objects are converted between versions.
    pub(crate) conversion: bool,
    /// The versions that are converted to the kind's version and back; all others if empty.
    pub(crate) spokes: Vec<String>,
}

/// Adds webhooks of a native kind.
pub(crate) fn create_webhook(
    draft: &mut Draft,
    file: &mut ProjectFile,
    kind: &Kind,
    webhook: &Webhook,
) -> Result<(), ScaffoldError> {
    kind.check()?;
    let wanted = Resource {
        domain: Some(file.domain.clone()),
        group: Some(kind.group.clone()),
        ..Resource::default()
    };
    let group = wanted.full_group();
    native_resource(file, kind, &group)?;
    let spokes = if webhook.conversion {
        spokes(file, kind, &group, webhook)?
    } else {
        Vec::new()
    };
    let resource = native_resource(file, kind, &group)?;
    resource.webhooks = Some(entry(webhook, &spokes, resource.webhooks.as_ref()));
    let mut data = kind.data(&group, &file.project_name);
    if let Some(fields) = data.as_object_mut() {
        fields.insert("defaulting".to_owned(), webhook.defaulting.into());
        fields.insert("validation".to_owned(), webhook.validation.into());
    }
    let module = names::module(&kind.kind);
    draft.add_shared("src/webhooks/mod.rs", render("webhook/mod.rs", &data)?)?;
    if webhook.defaulting || webhook.validation {
        let code = render("webhook/kind.rs", &data)?;
        draft.add(format!("src/webhooks/{module}.rs"), code)?;
        add_to_list_of_webhooks(draft, &module)?;
    }
    for spoke in &spokes {
        add_conversion(draft, kind, spoke, data.clone())?;
    }
    draft.edit("src/lib.rs", "pub mod webhooks;", |text| {
        Some(edit::insert_sorted(text, "pub mod ", "pub mod webhooks;"))
    })?;
    add_to_main(
        draft,
        file,
        "webhooks",
        ".with_webhooks(webhooks::webhooks())",
    )?;
    let kustomization = render("webhook/kustomization.yaml", &data)?;
    draft.add_shared("config/webhook/kustomization.yaml", kustomization)?;
    if !spokes.is_empty() {
        for (path, template) in [
            ("conversion_role.yaml", "webhook/conversion_role.yaml"),
            (
                "conversion_role_binding.yaml",
                "webhook/conversion_role_binding.yaml",
            ),
        ] {
            draft.add(format!("config/webhook/{path}"), render(template, &data)?)?;
            list(draft, "webhook", path)?;
        }
    }
    for (path, template) in [
        ("config/webhook/role.yaml", "webhook/role.yaml"),
        (
            "config/webhook/role_binding.yaml",
            "webhook/role_binding.yaml",
        ),
        ("config/webhook/service.yaml", "webhook/service.yaml"),
        (
            "config/network-policy/allow-webhook-traffic.yaml",
            "webhook/network_policy.yaml",
        ),
    ] {
        draft.add(path, render(template, &data)?)?;
    }
    list(draft, "default", "../webhook")?;
    extra::add_network_policy(draft, "allow-webhook-traffic.yaml", &data)?;
    extra::offer(draft, "../network-policy")?;
    add_project_file(draft, file)
}

/// Returns the versions that are converted to that of the kind.
fn spokes(
    file: &ProjectFile,
    kind: &Kind,
    group: &str,
    webhook: &Webhook,
) -> Result<Vec<String>, ScaffoldError> {
    let others: Vec<&Resource> = version::entries(file, group, &kind.kind)
        .filter(|other| other.version != kind.version)
        .collect();
    let is_hub = |other: &&&Resource| {
        let webhooks = other.webhooks.as_ref();
        webhooks.is_some_and(|webhooks| webhooks.get("conversion") == Some(&Value::Bool(true)))
    };
    if let Some(hub) = others.iter().find(is_hub) {
        return Err(ScaffoldError::OtherHub {
            kind: kind.kind.clone(),
            hub: hub.version.clone(),
        });
    }
    let is_there = |spoke: &&String| others.iter().any(|other| other.version == **spoke);
    if let Some(missing) = webhook.spokes.iter().find(|spoke| !is_there(spoke)) {
        return Err(ScaffoldError::NoSuchKind {
            kind: kind.kind.clone(),
            group: group.to_owned(),
            version: missing.clone(),
        });
    }
    if others.is_empty() {
        return Err(ScaffoldError::OneVersion {
            kind: kind.kind.clone(),
            group: group.to_owned(),
            hub: kind.version.clone(),
        });
    }
    if webhook.spokes.is_empty() {
        return Ok(others.iter().map(|other| other.version.clone()).collect());
    }
    Ok(webhook.spokes.clone())
}

/// Adds the conversion between the kind's version and another, in a module of its own.
fn add_conversion(
    draft: &mut Draft,
    kind: &Kind,
    spoke: &str,
    mut data: Value,
) -> Result<(), ScaffoldError> {
    let mut imports = [kind.version.as_str(), spoke];
    imports.sort_unstable();
    if let Some(fields) = data.as_object_mut() {
        fields.insert("spoke".to_owned(), spoke.into());
        fields.insert("imports".to_owned(), imports.join(", ").into());
    }
    let module = format!("{}_conversion_{spoke}", names::module(&kind.kind));
    let code = render("webhook/conversion.rs", &data)?;
    draft.add(format!("src/webhooks/{module}.rs"), code)?;
    add_to_list_of_webhooks(draft, &module)
}

/// Returns the field `webhooks` of `PROJECT`, which has only what is true. Functions and conversions
/// may be added one after the other.
fn entry(webhook: &Webhook, spokes: &[String], present: Option<&Value>) -> Value {
    let was = |name: &str| present.and_then(|present| present.get(name)).cloned();
    let mut entry = json!({"webhookVersion": "v1"});
    let has_functions = webhook.defaulting || webhook.validation;
    if let Some(fields) = entry.as_object_mut() {
        for (name, wanted) in [
            ("defaulting", webhook.defaulting),
            ("validation", webhook.validation),
        ] {
            if wanted || (!has_functions && was(name).is_some()) {
                fields.insert(name.to_owned(), true.into());
            }
        }
        let before = was("spoke").and_then(|list| serde_json::from_value(list).ok());
        let mut all: Vec<String> = before.unwrap_or_default();
        for spoke in spokes {
            if !all.contains(spoke) {
                all.push(spoke.clone());
            }
        }
        if !all.is_empty() {
            fields.insert("conversion".to_owned(), true.into());
            fields.insert("spoke".to_owned(), all.into());
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
