//! Objects whose events are those of a release.

use std::collections::{BTreeSet, HashSet};

use anyhow::Context as _;
use helm_core::manifest::parse_objects;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;

use crate::cluster::{Cluster, Found, Selected, owned_by, pods_of};

/// Objects whose events are shown.
pub(super) struct About {
    pub(super) namespaces: BTreeSet<String>,
    pub(super) uids: HashSet<String>,
    /// `Kind namespace/name` of objects that do not exist, or no longer.
    pub(super) names: HashSet<String>,
}

impl About {
    pub(super) async fn read(cluster: &Cluster, selected: &Selected) -> anyhow::Result<Self> {
        let resource = &selected.resource;
        let mut about = Self {
            // Events of cluster-scoped objects are in the namespace default.
            namespaces: [resource.namespace().unwrap_or_else(|| "default".to_owned())].into(),
            uids: resource.uid().into_iter().collect(),
            names: HashSet::new(),
        };
        let (record, objects) = owned_by(cluster, selected).await?;
        let default = record
            .as_ref()
            .map_or("default", |record| &record.namespace);
        for object in objects {
            let namespace = object.key.namespace.clone();
            let place = namespace.unwrap_or_else(|| default.to_owned());
            about
                .names
                .insert(format!("{} {place}/{}", object.key.kind, object.key.name));
            about.namespaces.insert(place);
            if let Found::Present { uid, .. } = &object.found {
                about.uids.insert(uid.clone());
            }
            let pods = pods_of(cluster, &object).await?;
            about.uids.extend(pods.into_iter().map(|pod| pod.uid));
        }
        for hook in record.iter().flat_map(|record| &record.hooks) {
            for object in parse_objects(&hook.manifest).context("cannot read a hook")? {
                let key = object.key();
                let place = key.namespace.as_deref().unwrap_or(default);
                about
                    .names
                    .insert(format!("{} {place}/{}", key.kind, key.name));
            }
        }
        Ok(about)
    }

    pub(super) fn concerns(&self, event: &Event) -> bool {
        let object = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = format!(
            "{} {}/{}",
            text(&object.kind),
            text(&object.namespace),
            text(&object.name)
        );
        object
            .uid
            .as_ref()
            .is_some_and(|uid| self.uids.contains(uid))
            || self.names.contains(&name)
    }
}
