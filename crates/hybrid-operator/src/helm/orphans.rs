//! What is left of a release whose records are gone: a namespace that ends loses its Secrets before
//! the operator has its turn, and what the release has outside of it would stay for ever.

use std::collections::HashSet;

use helm_core::manifest::{ManifestObject, ObjectKey, parse_objects};
use helm_core::release::Revision;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::kind::Kind;
use super::observe::Facts;
use super::{HelmReconciler, Release};
use crate::action::uninstall::remove_all;
use crate::cluster::ownership::cr_selector;
use crate::cluster::{Scope, read};
use crate::controller::ReconcileError;

impl HelmReconciler {
    /// Deletes the objects outside of the release's namespace that have the custom resource's
    /// label. Those inside have it as their owner, and go with it.
    pub(super) async fn remove_orphans(
        &self,
        facts: &Facts,
        release: &mut Release,
    ) -> Result<(), ReconcileError> {
        let mut found = Vec::new();
        for (gvk, namespace) in self.places_outside(facts, release).await {
            found.extend(self.labelled(facts, &gvk, namespace.as_deref()).await?);
        }
        let context = self.context(facts, Kind::Uninstall, &[]);
        remove_all(&context, &mut release.live, found).await?;
        Ok(())
    }

    /// The kinds and namespaces where the chart has objects beside the release's namespace: as this
    /// process remembers them, and as the chart renders now, if it does.
    async fn places_outside(
        &self,
        facts: &Facts,
        release: &mut Release,
    ) -> HashSet<(GroupVersionKind, Option<String>)> {
        let mut keys: Vec<ObjectKey> = release.live.keys().cloned().collect();
        if let Ok(desired) = self.desire(facts, release).await
            && let Ok(render) = self
                .render(facts, &desired.coalesced, Revision::FIRST, false)
                .await
            && let Ok(objects) = render.rendered.objects()
        {
            keys.extend(objects.iter().map(|object| object.key().clone()));
        }
        let mut places = HashSet::new();
        for key in keys {
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            // A kind that is not served has no objects.
            let Ok(kind) = facts.cluster.resolve(&gvk).await else {
                continue;
            };
            match (kind.scope, key.namespace) {
                (Scope::Cluster, _) => drop(places.insert((gvk, None))),
                (Scope::Namespaced, Some(namespace)) if namespace != facts.namespace => {
                    places.insert((gvk, Some(namespace)));
                }
                (Scope::Namespaced, _) => {}
            }
        }
        places
    }

    /// The objects of a kind that have the label.
    async fn labelled(
        &self,
        facts: &Facts,
        gvk: &GroupVersionKind,
        namespace: Option<&str>,
    ) -> Result<Vec<ManifestObject>, ReconcileError> {
        let selector = cr_selector(&self.manager.operator, &facts.primary.identity());
        let list = read::list(&facts.cluster, gvk, namespace, Some(&selector)).await?;
        let items = list.get("items").and_then(Value::as_array);
        let mut objects = Vec::new();
        for item in items.into_iter().flatten() {
            let mut item = item.clone();
            if let Some(fields) = item.as_object_mut() {
                // The items of a list do not always say what they are.
                fields.insert("apiVersion".to_owned(), gvk.api_version().into());
                fields.insert("kind".to_owned(), gvk.kind.clone().into());
            }
            // Every JSON text is a YAML document.
            objects.extend(parse_objects(&item.to_string())?);
        }
        Ok(objects)
    }
}
