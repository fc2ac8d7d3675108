//! Reads what `valuesFrom` refers to, and tells whether what `dependsOn` names is ready.

use std::collections::BTreeMap;

use helm_core::manifest::ObjectKey;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::access::Access;
use super::desired::{DesiredError, corrupt};
use super::events::{Notice, Notices};
use super::interest::{Named, Seen};
use super::setup::Setup;
use super::subject::Subject;
use crate::cluster::{DiscoveryError, Scope, read};
use crate::release::StoreError;
use crate::values::{self, Inputs, Reference};
use crate::watches::ReferenceKind;

/// Content of referenced objects, by key of their data.
pub(super) type Contents = BTreeMap<Reference, BTreeMap<String, String>>;

/// Texts by reference and key, as a record keeps them.
pub(super) type LastValues = BTreeMap<String, BTreeMap<String, String>>;

/// What a computation has read, and as what.
pub(super) type Read = Vec<(Named, Seen)>;

/// Reads every referenced object once; one that is not there is left out.
pub(super) async fn referenced(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
) -> Result<(Contents, Read), DesiredError> {
    let mut contents = Contents::new();
    let mut read = Vec::new();
    if setup.watch.values_from.is_empty() {
        return Ok((contents, read));
    }
    for reference in references_of(setup, subject)? {
        if contents.contains_key(&reference) {
            continue;
        }
        let named = Named {
            resource: resource_of(reference.kind),
            namespace: Some(reference.namespace.clone()),
            name: Some(reference.name.clone()),
        };
        let key = ObjectKey {
            group: String::new(),
            version: named.resource.version.clone(),
            kind: named.resource.kind.clone(),
            namespace: named.namespace.clone(),
            name: reference.name.clone(),
        };
        let seen = access.interests.add(&named, &subject.key());
        let object =
            read::get(&access.cluster, &key)
                .await
                .map_err(|source| DesiredError::Reference {
                    key: key.to_string(),
                    source,
                })?;
        read.push((named, seen.read(object.as_ref())));
        if let Some(object) = object {
            contents.insert(reference.clone(), data_of(reference.kind, &object));
        }
    }
    Ok((contents, read))
}

/// Puts in what optional references held last, where they are gone since; answers what they
/// hold, for the record of a revision.
pub(super) async fn keep_last(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    contents: &mut Contents,
    notices: &Notices,
) -> Result<Option<LastValues>, DesiredError> {
    let entries = setup.watch.values_from.iter();
    let optional: Vec<_> = entries
        .zip(references_of(setup, subject)?)
        .filter(|(from, _)| from.optional)
        .collect();
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
                None => last.insert(last_values(access, subject, notices).await?),
            };
            let Some(text) = last.get(&name).and_then(|data| data.get(&from.key)) else {
                continue;
            };
            data.insert(from.key.clone(), text.clone());
            let note = format!(
                "{name} no longer has the key {}, which valuesFrom refers to; its last value is used",
                from.key
            );
            notices.add(Notice::warning("LastValueUsed", "Values", note));
        }
        if let Some(text) = data.get(&from.key) {
            let kept = kept.entry(name).or_default();
            kept.insert(from.key.clone(), text.clone());
        }
    }
    Ok(Some(kept))
}

/// What optional references held at the newest revision that tells. The Helm CLI drops it from
/// records that it writes.
async fn last_values(
    access: &Access,
    subject: &Subject,
    notices: &Notices,
) -> Result<LastValues, StoreError> {
    let identity = subject.primary.identity();
    let history = access.store.history(&subject.namespace, &subject.name);
    for meta in history.iter().rev() {
        if meta.cr.as_ref() != Some(&identity) {
            continue;
        }
        match access.store.load(meta).await {
            Ok(release) => {
                if let Some(last) = release.values_from {
                    return Ok(last);
                }
            }
            Err(error) if error.is_corrupt() => notices.add(corrupt(&error)),
            Err(error) => return Err(error),
        }
    }
    Ok(LastValues::new())
}

fn references_of(setup: &Setup, subject: &Subject) -> Result<Vec<Reference>, DesiredError> {
    let env = |name: &str| std::env::var(name).ok();
    let inputs = Inputs {
        object: &subject.object,
        env: &env,
        references: &Contents::new(),
    };
    let from = setup.watch.values_from.iter();
    Ok(from
        .map(|from| Reference::of(from, &inputs))
        .collect::<Result<_, _>>()?)
}

/// Whether nothing that was read has changed since.
pub(super) fn is_current(access: &Access, read: &Read) -> bool {
    read.iter()
        .all(|(named, seen)| access.interests.is_current(named, *seen))
}

/// The first custom resource of `dependsOn` that is not `Ready`.
pub(super) async fn missing_dependency(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
) -> Result<Option<String>, DesiredError> {
    for dependency in &setup.watch.depends_on {
        let name = values::render_text(&dependency.name, &subject.object, "dependsOn.name")?;
        let (group, version) = dependency
            .api_version
            .split_once('/')
            .unwrap_or(("", &dependency.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &dependency.kind);
        let text = format!("{} {name}", dependency.kind);
        let kind = match access.cluster.resolve(&gvk).await {
            Ok(kind) => kind,
            Err(DiscoveryError::UnknownKind { .. }) => {
                return Ok(Some(format!("{text} (its kind is not served yet)")));
            }
            Err(error) => return Err(error.into()),
        };
        let namespace = dependency
            .namespace
            .clone()
            .unwrap_or_else(|| subject.namespace.clone());
        let named = Named {
            resource: kind.resource.clone(),
            namespace: (kind.scope == Scope::Namespaced).then_some(namespace),
            name: Some(name),
        };
        if !access.interests.is_ready(&named, &subject.key()).await {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn resource_of(kind: ReferenceKind) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", &kind.to_string()))
}

/// The texts in the data of a Secret or `ConfigMap`; what is no text is left out.
fn data_of(kind: ReferenceKind, object: &Value) -> BTreeMap<String, String> {
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
