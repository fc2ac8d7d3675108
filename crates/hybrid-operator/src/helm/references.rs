//! Reads the objects that `valuesFrom` refers to, and checks whether those of `dependsOn` are
//! ready.

use std::borrow::Cow;
use std::collections::BTreeMap;

use helm_core::manifest::ObjectKey;
use kube::core::{ApiResource, GroupVersionKind};
use kube_objects::{DiscoveryError, Scope, read};
use serde_json::Value;

use helm_release::engine::{Access, DesiredError, LastValues, Read, ResourceRef, Target};
use helm_release::event::{EventReason, Notices, corrupt_record_event};
use helm_release::release::StoreError;

use super::environment::environment;
use crate::values::{self, Contents, Inputs, Reference, ValuesError};
use crate::watches::{ReferenceKind, ValuesFrom, Watch};

/// Reads each referenced object once. Missing objects are omitted.
pub(super) async fn referenced(
    watch: &Watch,
    target: &Target,
    object: &Value,
) -> Result<(Contents, Read), DesiredError> {
    let mut contents = Contents::new();
    let mut read = Vec::new();
    for (_, reference) in references_of(watch, object)? {
        if contents.contains_key(&reference) {
            continue;
        }
        let referenced = ResourceRef {
            resource: resource_of(reference.kind),
            namespace: Some(reference.namespace.clone()),
            name: Some(reference.name.clone()),
        };
        let key = key_of(&reference);
        let seen = target.interests.add(&referenced, &target.key());
        let found =
            read::get(&target.cluster, &key)
                .await
                .map_err(|source| DesiredError::Reference {
                    key: key.to_string(),
                    source,
                })?;
        read.push((referenced, seen.read(found.as_ref())));
        if let Some(found) = found {
            contents.insert(reference.clone(), data_of(reference.kind, &found));
        }
    }
    Ok((contents, read))
}

/// Adds the last known values of optional references that no longer exist. Returns the current
/// values of all optional references, to be stored in the record.
pub(super) async fn add_last_values(
    watch: &Watch,
    access: &Access,
    target: &Target,
    object: &Value,
    contents: &mut Contents,
    notices: &Notices,
) -> Result<Option<LastValues>, DesiredError> {
    let sources = references_of(watch, object)?.into_iter();
    let optional: Vec<_> = sources.filter(|(from, _)| from.optional).collect();
    if optional.is_empty() {
        return Ok(None);
    }
    let mut last = None;
    let mut kept = LastValues::new();
    for (from, reference) in optional {
        let name = reference.to_string();
        let data = contents.entry(reference).or_default();
        if !data.contains_key(&from.key) {
            let last = match &mut last {
                Some(last) => last,
                None => last.insert(last_values(access, target, notices).await?),
            };
            let Some(text) = last.get(&name).and_then(|data| data.get(&from.key)) else {
                continue;
            };
            data.insert(from.key.clone(), text.clone());
            let note = format!(
                "{name} no longer has key {}, which valuesFrom refers to; using its last value",
                from.key
            );
            notices.tell(EventReason::LastValueUsed, "Values", note);
        }
        if let Some(text) = data.get(&from.key) {
            let kept = kept.entry(name).or_default();
            kept.insert(from.key.clone(), text.clone());
        }
    }
    Ok(Some(kept))
}

/// Returns the values of optional references from the newest record that has them. The Helm CLI
/// drops them from records that it writes.
async fn last_values(
    access: &Access,
    target: &Target,
    notices: &Notices,
) -> Result<LastValues, StoreError> {
    let identity = target.primary.identity();
    let history = target.history(access);
    for meta in history.iter().rev() {
        if meta.cr.as_ref() != Some(&identity) {
            continue;
        }
        match access.store.load_with_proof(meta).await {
            // Nobody else may set values.
            Ok(content) if !content.proven => {}
            Ok(content) => {
                if let Some(last) = content.release.values_from {
                    return Ok(last);
                }
            }
            Err(error) if error.is_corrupt() => notices.add(corrupt_record_event(&error)),
            Err(error) => return Err(error),
        }
    }
    Ok(LastValues::new())
}

/// Returns what an entry refers to for a custom resource, in order.
pub(super) fn references_of<'w>(
    watch: &'w Watch,
    object: &Value,
) -> Result<Vec<(Cow<'w, ValuesFrom>, Reference)>, ValuesError> {
    let inputs = Inputs {
        object,
        env: environment(),
        references: &Contents::new(),
    };
    values::sources(watch, &inputs)
}

/// Returns the first custom resource of `dependsOn` that is not `Ready`.
pub(super) async fn missing_dependency(
    watch: &Watch,
    target: &Target,
    object: &Value,
) -> Result<Option<String>, DesiredError> {
    for dependency in &watch.depends_on {
        let name = values::render_text(&dependency.name, object, environment(), "dependsOn.name")?;
        let (group, version) = dependency
            .api_version
            .split_once('/')
            .unwrap_or(("", &dependency.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &dependency.kind);
        let text = format!("{} {name}", dependency.kind);
        let kind = match target.cluster.resolve(&gvk).await {
            Ok(kind) => kind,
            Err(DiscoveryError::UnknownKind { .. }) => {
                return Ok(Some(format!("{text} (its kind is not served yet)")));
            }
            Err(error) => return Err(error.into()),
        };
        let namespace = dependency
            .namespace
            .clone()
            .unwrap_or_else(|| target.namespace.clone());
        let other = ResourceRef {
            resource: kind.resource.clone(),
            namespace: (kind.scope == Scope::Namespaced).then_some(namespace),
            name: Some(name),
        };
        if !target.interests.is_ready(&other, &target.key()).await {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Returns the identity of a referenced object.
pub(super) fn key_of(reference: &Reference) -> ObjectKey {
    ObjectKey {
        group: String::new(),
        version: "v1".to_owned(),
        kind: reference.kind.to_string(),
        namespace: Some(reference.namespace.clone()),
        name: reference.name.clone(),
    }
}

fn resource_of(kind: ReferenceKind) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", &kind.to_string()))
}

/// Returns the data of a Secret or `ConfigMap`, without values that are not UTF-8.
pub(super) fn data_of(kind: ReferenceKind, object: &Value) -> BTreeMap<String, String> {
    let data = object.get("data").and_then(Value::as_object);
    data.into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let value = value.as_str()?;
            let text = match kind {
                ReferenceKind::ConfigMap => value.to_owned(),
                ReferenceKind::Secret => {
                    let bytes = data_encoding::BASE64.decode(value.as_bytes()).ok()?;
                    String::from_utf8(bytes).ok()?
                }
            };
            Some((key.clone(), text))
        })
        .collect()
}
