//! What is: the custom resource, its records and its objects, all from caches.

use helm_core::release::{NameError, ReleaseName};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::annotations::{self, Annotations};
use super::desired::Desired;
use super::plan::{Drift, Observed, Record};
use super::status::Status;
use super::{HelmReconciler, Release, finalizer};
use crate::cluster::Primary;
use crate::release::RecordMeta;

/// Why a custom resource cannot be worked on at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum FactsError {
    /// No release can have its name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A cluster-scoped custom resource whose release has no namespace.
    #[error(
        "a cluster-scoped custom resource needs releaseNamespace in watches.yaml, or $POD_NAMESPACE"
    )]
    NoNamespace,
}

/// The custom resource.
pub(super) struct Facts {
    pub(super) primary: Primary,
    pub(super) object: Value,
    pub(super) generation: Option<i64>,
    pub(super) deleting: bool,
    pub(super) finalizer: bool,
    pub(super) annotations: Annotations,
    pub(super) name: ReleaseName,
    pub(super) namespace: String,
    pub(super) now: Timestamp,
}

impl Facts {
    pub(super) fn of(
        resource: &DynamicObject,
        reconciler: &HelmReconciler,
    ) -> Result<Self, FactsError> {
        let watch = &reconciler.watch;
        let name = resource.name_any();
        let namespace = resource
            .namespace()
            .or_else(|| watch.release_namespace.clone())
            .or_else(|| reconciler.manager.operator_namespace.clone())
            .ok_or(FactsError::NoNamespace)?;
        Ok(Self {
            primary: Primary {
                gvk: watch.gvk.clone(),
                namespace: resource.namespace(),
                name: name.clone(),
                uid: resource.uid().unwrap_or_default(),
            },
            generation: resource.metadata.generation,
            deleting: resource.metadata.deletion_timestamp.is_some(),
            finalizer: finalizer::is_present(resource),
            annotations: annotations::read(
                resource.annotations(),
                watch.pause_annotation.as_deref(),
            ),
            object: serde_json::to_value(resource).unwrap_or_default(),
            name: ReleaseName::for_resource(&name)?,
            namespace,
            now: Timestamp::now(),
        })
    }

    /// The status as it is.
    pub(super) fn status(&self) -> Status {
        Status::read(self.object.get("status"), self.now, self.generation)
    }
}

impl HelmReconciler {
    /// Looks at records and objects. Sends no request unless nothing is known of the objects yet.
    pub(super) async fn observe(
        &self,
        facts: &Facts,
        release: &mut Release,
        desired: &Desired,
    ) -> Observed {
        let history = self.store.history(&facts.namespace, &facts.name);
        let identity = facts.primary.identity();
        let belongs = |meta: &RecordMeta| meta.cr.as_ref().is_none_or(|cr| *cr == identity);
        let mine = history
            .iter()
            .any(|meta| meta.cr.as_ref() == Some(&identity));
        let foreign = !history.is_empty()
            && (!history.iter().all(belongs) || !mine)
            && !facts.annotations.adopt_release;
        let deployed = history.last().map(|meta| meta.revision.0);
        if release.live.revision != deployed || !release.live.complete {
            self.recognise(facts, release, desired, deployed).await;
        }
        let drift = if release.live.revision != deployed || !release.live.complete {
            Drift::Unknown
        } else if release.live.drifted().is_empty() {
            Drift::None
        } else {
            Drift::Some
        };
        Observed {
            deleting: facts.deleting,
            finalizer: facts.finalizer,
            paused: facts.annotations.paused,
            foreign,
            history: history
                .iter()
                .map(|meta| self.record(meta, facts))
                .collect(),
            drift,
        }
    }

    fn record(&self, meta: &RecordMeta, facts: &Facts) -> Record {
        let age = meta
            .written_at()
            .map(|at| facts.now.duration_since(at).unsigned_abs())
            .unwrap_or_default();
        Record {
            revision: meta.revision,
            status: meta.status,
            digest: meta.digest.as_ref().map(ToString::to_string),
            // While a lease makes sure that we alone write, whatever this operator began and this
            // process does not know of was cut off; else only what this very instance began.
            ours: meta.writer.as_ref() == Some(&self.manager.instance)
                || (self.manager.elected && meta.cr.as_ref() == Some(&facts.primary.identity())),
            age,
        }
    }

    /// After a restart: if what the watches show has the hash that the status kept, it is what was
    /// applied, and nothing need be read.
    async fn recognise(
        &self,
        facts: &Facts,
        release: &mut Release,
        desired: &Desired,
        deployed: Option<u32>,
    ) {
        let stored = facts
            .object
            .pointer("/status/release/baseline")
            .and_then(Value::as_str);
        let (Some(stored), Some(revision)) = (stored, deployed) else {
            return;
        };
        let Some(live) = self.live_of(facts, desired).await else {
            return;
        };
        if live.aggregate() == stored {
            release.live = live;
            release.live.revision = Some(revision);
            release.live.complete = true;
        }
    }
}
