//! Reads what `valuesFrom` refers to, and tells whether what `dependsOn` names is ready.

use std::collections::BTreeMap;

use helm_core::manifest::ObjectKey;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::HelmReconciler;
use super::desired::DesiredError;
use super::interest::{Depth, Named};
use super::observe::Facts;
use crate::cluster::{DiscoveryError, Scope, read};
use crate::controller::Key;
use crate::values::{self, Inputs, Reference};
use crate::watches::ReferenceKind;

/// Content of referenced objects, by key of their data.
pub(super) type Contents = BTreeMap<Reference, BTreeMap<String, String>>;

/// Objects that a computation has read, and how often each had changed by then.
pub(super) type Read = Vec<(Named, u64)>;

impl HelmReconciler {
    /// Reads every referenced object once; one that is not there is left out.
    pub(super) async fn referenced(&self, facts: &Facts) -> Result<(Contents, Read), DesiredError> {
        let mut contents = Contents::new();
        let mut read = Vec::new();
        if self.watch.values_from.is_empty() {
            return Ok((contents, read));
        }
        for reference in self.references_of(facts)? {
            if contents.contains_key(&reference) {
                continue;
            }
            let named = Named {
                resource: resource_of(reference.kind),
                namespace: Some(reference.namespace.clone()),
                name: reference.name.clone(),
            };
            let object = self.read_named(facts, &named).await?;
            let changes = self.interests.changes(&named);
            read.push((named, changes));
            if let Some(object) = object {
                contents.insert(reference.clone(), data_of(reference.kind, &object));
            }
        }
        Ok((contents, read))
    }

    fn references_of(&self, facts: &Facts) -> Result<Vec<Reference>, DesiredError> {
        let env = |name: &str| std::env::var(name).ok();
        let inputs = Inputs {
            object: &facts.object,
            env: &env,
            references: &Contents::new(),
        };
        let from = self.watch.values_from.iter();
        Ok(from
            .map(|from| Reference::of(from, &inputs))
            .collect::<Result<_, _>>()?)
    }

    /// Reads an object and watches it from now on.
    pub(super) async fn read_named(
        &self,
        facts: &Facts,
        named: &Named,
    ) -> Result<Option<Value>, DesiredError> {
        self.interests.add(named, Depth::Metadata, &key_of(facts));
        let key = ObjectKey {
            group: named.resource.group.clone(),
            version: named.resource.version.clone(),
            kind: named.resource.kind.clone(),
            namespace: named.namespace.clone(),
            name: named.name.clone(),
        };
        let object = read::get(&self.manager.cluster, &key)
            .await
            .map_err(|source| DesiredError::Reference {
                key: key.to_string(),
                source,
            })?;
        let version = object
            .as_ref()
            .and_then(|object| object.pointer("/metadata/resourceVersion"))
            .and_then(Value::as_str);
        self.interests.read(named, version);
        Ok(object)
    }

    /// Whether nothing that was read has changed since.
    pub(super) fn is_current(&self, read: &Read) -> bool {
        read.iter()
            .all(|(named, changes)| self.interests.changes(named) == *changes)
    }

    /// The first custom resource of `dependsOn` that is not `Ready`.
    pub(super) async fn missing_dependency(
        &self,
        facts: &Facts,
    ) -> Result<Option<String>, DesiredError> {
        for dependency in &self.watch.depends_on {
            let name = values::render_text(&dependency.name, &facts.object, "dependsOn.name")?;
            let (group, version) = dependency
                .api_version
                .split_once('/')
                .unwrap_or(("", &dependency.api_version));
            let gvk = GroupVersionKind::gvk(group, version, &dependency.kind);
            let text = format!("{} {name}", dependency.kind);
            let kind = match self.manager.cluster.resolve(&gvk).await {
                Ok(kind) => kind,
                Err(DiscoveryError::UnknownKind { .. }) => {
                    return Ok(Some(format!("{text} (its kind is not served yet)")));
                }
                Err(error) => return Err(error.into()),
            };
            let namespace = dependency
                .namespace
                .clone()
                .unwrap_or_else(|| facts.namespace.clone());
            let named = Named {
                resource: kind.resource.clone(),
                namespace: (kind.scope == Scope::Namespaced).then_some(namespace),
                name,
            };
            if !self.interests.is_ready(&named, &key_of(facts)).await {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// The queue's key of a custom resource.
pub(super) fn key_of(facts: &Facts) -> Key {
    Key::new(facts.primary.namespace.as_deref(), &facts.primary.name)
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
