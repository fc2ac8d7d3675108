//! Removes the remaining objects of a release whose records, or the last of them, are gone: a terminating
//! namespace may lose its Secrets before the operator runs, and the release's objects outside of the namespace
//! would never be deleted.

use host::HashSet;
use kube_objects::ApiKind;
use kube_objects::locate::locate;
use kube_objects::ownership::cr_selector;
use kube_objects::read::{self, ReadError};

use helm_core::manifest::{ManifestObject, ObjectKey, parse_objects};
use kube::core::GroupVersionKind;
use serde_json::json;

use super::super::desired::{inputs, objects_of};
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::context::ActContext;
use super::error::ActError;
use crate::action::uninstall::remove_all;

/// Finds the objects outside of the release namespace that have the owner's label.
/// Garbage collection deletes those inside, which have it as their owner.
pub(super) async fn find(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Vec<ManifestObject>, ActError> {
    let cluster = &context.access.cluster;
    let mut found = Vec::new();
    for (gvk, namespace) in places_outside(context, memory).await? {
        let kind = cluster.resolve(&gvk).await?;
        found.extend(labelled(context, &kind, namespace.as_deref()).await?);
    }
    if !context.subject.reported.was_ready {
        // A revision that was interrupted may have applied objects of other kinds.
        let kinds = cluster.discovery().listable().await;
        for kind in kinds.map_err(ReadError::Unproven)? {
            match labelled(context, &kind, None).await {
                Ok(objects) => found.extend(objects),
                // Without the permission to list all, known places are all that can be looked at.
                Err(ActError::Read(error)) if !error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
    }
    let inside = Some(context.target.namespace.as_str());
    found.retain(|object| object.key().namespace.as_deref() != inside);
    let mut seen = HashSet::default();
    found.retain(|object| seen.insert(object.key().clone()));
    Ok(found)
}

/// Deletes these objects with the permissions of the owner's account.
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
    let deployed = parse_objects(&subject.owner.reported_manifest());
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

/// Lists the objects of a kind that have the owner's label.
async fn labelled(
    context: &ActContext<'_>,
    kind: &ApiKind,
    namespace: Option<&str>,
) -> Result<Vec<ManifestObject>, ActError> {
    let selector = cr_selector(
        &context.setup.identity.operator,
        &context.target.primary.identity(),
    );
    // As the operator, which watches these objects: the account may be gone.
    let cluster = &context.access.cluster;
    let listed = read::list_metadata(cluster, kind, namespace, Some(&selector), None).await;
    let listed = listed.map_err(ReadError::from)?;
    let resource = &kind.resource;
    let mut objects = Vec::new();
    for metadata in listed {
        let object = json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata,
        });
        // JSON is valid YAML.
        objects.extend(parse_objects(&object.to_string())?);
    }
    Ok(objects)
}
