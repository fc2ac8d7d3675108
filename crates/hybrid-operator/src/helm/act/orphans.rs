//! Removes the remaining objects of a release whose records, or the last of them, are gone: a terminating
//! namespace may lose its Secrets before the operator runs, and the release's objects outside of the namespace
//! would never be deleted.

use host::HashSet;
use kube_objects::locate::locate;
use kube_objects::ownership::cr_selector;
use kube_objects::read;

use helm_core::manifest::{ManifestObject, ObjectKey, parse_objects};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::super::desired::{inputs, objects_of};
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::{ActContext, ActError};
use crate::action::uninstall::remove_all;

/// Finds the objects outside of the release namespace that have the custom resource's label.
/// Garbage collection deletes those inside, which have it as their owner.
pub(super) async fn find(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Vec<ManifestObject>, ActError> {
    let mut found = Vec::new();
    for (gvk, namespace) in places_outside(context, memory).await? {
        found.extend(labelled(context, &gvk, namespace.as_deref()).await?);
    }
    Ok(found)
}

/// Deletes these objects with the permissions of the custom resource's account.
pub(super) async fn remove(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    found: Vec<ManifestObject>,
) -> Result<(), ActError> {
    let action = context.action(ActionKind::Uninstall, &[]);
    remove_all(&action, &mut memory.live, found).await?;
    Ok(())
}

/// Returns the kinds and namespaces of the chart's objects outside of the release namespace: those
/// that this process remembers, those of the manifest in the status, and those that the chart renders now,
/// if it renders.
async fn places_outside(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<HashSet<(GroupVersionKind, Option<String>)>, ActError> {
    let (setup, access, subject) = (context.setup, context.access, context.subject);
    let known = memory.live.keys().chain(&memory.leftovers);
    let mut keys: Vec<ObjectKey> = known.cloned().collect();
    let deployed = parse_objects(subject.status.deployed_manifest());
    let deployed = deployed.unwrap_or_default();
    keys.extend(deployed.iter().map(|object| object.key().clone()));
    let computed = inputs(setup, access, subject, memory, context.notices).await;
    if let Ok((inputs, objects)) = computed {
        let objects = match objects {
            Some(objects) => Some(objects),
            None => objects_of(setup, access, subject, &inputs).await,
        };
        let objects = objects.unwrap_or_default();
        keys.extend(objects.iter().map(|object| object.key().clone()));
    }
    let mut places = HashSet::default();
    for key in keys {
        let Some(key) = locate(&access.cluster, &key, &context.target.namespace).await? else {
            continue;
        };
        if key.namespace.as_ref() != Some(&context.target.namespace) {
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            places.insert((gvk, key.namespace));
        }
    }
    Ok(places)
}

/// Lists the objects of a kind that have the custom resource's label.
async fn labelled(
    context: &ActContext<'_>,
    gvk: &GroupVersionKind,
    namespace: Option<&str>,
) -> Result<Vec<ManifestObject>, ActError> {
    let selector = cr_selector(&context.setup.operator, &context.target.primary.identity());
    // As the operator, which watches these objects: the account may be gone.
    let list = read::list(&context.access.cluster, gvk, namespace, Some(&selector)).await?;
    let items = list.get("items").and_then(Value::as_array);
    let mut objects = Vec::new();
    for item in items.into_iter().flatten() {
        let mut item = item.clone();
        if let Some(fields) = item.as_object_mut() {
            // List items may lack apiVersion and kind.
            fields.insert("apiVersion".to_owned(), gvk.api_version().into());
            fields.insert("kind".to_owned(), gvk.kind.clone().into());
        }
        // JSON is valid YAML.
        objects.extend(parse_objects(&item.to_string())?);
    }
    Ok(objects)
}
