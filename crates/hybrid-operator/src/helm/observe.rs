//! What is: the custom resource, its records and its objects, all from caches.

use std::sync::Arc;

use helm_core::release::{ReleaseName, Revision, Status as ReleaseStatus};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::annotations::Annotations;
use super::desired::Desired;
use super::naming::{NamingError, Place};
use super::plan::{Drift, Observed, Record};
use super::status::Status;
use super::{HelmReconciler, Release, finalizer};
use crate::cluster::{Cluster, Primary};
use crate::release::RecordMeta;

/// The custom resource.
pub(super) struct Facts {
    pub(super) primary: Primary,
    pub(super) resource: Arc<DynamicObject>,
    /// The cluster as the custom resource's service account sees it.
    pub(super) cluster: Cluster,
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
        resource: &Arc<DynamicObject>,
        reconciler: &HelmReconciler,
    ) -> Result<Self, Box<(Status, NamingError)>> {
        let now = Timestamp::now();
        let primary = reconciler.primary(resource);
        let object = serde_json::to_value(resource).unwrap_or_default();
        let generation = resource.metadata.generation;
        let refused =
            |error| Box::new((Status::read(object.get("status"), now, generation), error));
        let Place { name, namespace } = reconciler.place(&primary, &object).map_err(refused)?;
        let cluster = reconciler.cluster_for(&primary, &object).map_err(refused)?;
        Ok(Self {
            primary,
            resource: Arc::clone(resource),
            cluster,
            generation,
            deleting: resource.metadata.deletion_timestamp.is_some(),
            finalizer: finalizer::is_present(resource),
            annotations: reconciler.annotations(resource),
            object,
            name,
            namespace,
            now,
        })
    }

    /// Whether `force-at` has a value that was not acted upon yet.
    pub(super) fn is_forced(&self) -> bool {
        self.is_new(
            self.annotations.force_at.as_deref(),
            "/status/handled/forceAt",
        )
    }

    /// The revision up to which failures no longer count, because of `reset-at`.
    pub(super) fn forgiven(&self, latest: Revision) -> Revision {
        if self.is_new(
            self.annotations.reset_at.as_deref(),
            "/status/handled/resetAt",
        ) {
            return latest;
        }
        Revision(self.number("/status/handled/forgiven").unwrap_or(0))
    }

    fn is_new(&self, asked: Option<&str>, handled: &str) -> bool {
        asked.is_some() && self.object.pointer(handled).and_then(Value::as_str) != asked
    }

    fn number(&self, pointer: &str) -> Option<u32> {
        let number = self.object.pointer(pointer)?.as_u64()?;
        u32::try_from(number).ok()
    }

    /// The status as it is.
    pub(super) fn status(&self) -> Status {
        Status::read(self.object.get("status"), self.now, self.generation)
    }
}

impl HelmReconciler {
    /// Which custom resource it is.
    pub(super) fn primary(&self, resource: &DynamicObject) -> Primary {
        Primary {
            gvk: self.watch.gvk.clone(),
            namespace: resource.namespace(),
            name: resource.name_any(),
            uid: resource.uid().unwrap_or_default(),
        }
    }

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
        // The Go operators made the custom resource the owner of its records.
        let ours = |meta: &RecordMeta| {
            meta.cr.as_ref() == Some(&identity) || meta.owners.contains(&facts.primary.uid)
        };
        let mine = history.iter().any(ours) || facts.annotations.adopts(&self.manager.operator);
        let foreign = !history.is_empty() && (!mine || !history.iter().all(belongs));
        let theirs = |meta: &&RecordMeta| {
            let other = meta.operator.as_ref();
            meta.cr.is_none() || other.is_some_and(|other| *other != self.manager.operator)
        };
        let adoptable = !foreign
            && history
                .last()
                .filter(theirs)
                .is_some_and(|meta| meta.status == ReleaseStatus::Deployed);
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
            forgiven: facts.forgiven(history.last().map_or(Revision(0), |meta| meta.revision)),
            forced: facts.is_forced(),
            tested: deployed.is_some() && facts.number("/status/release/tested") == deployed,
            adoptable,
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

    /// After a restart: if what the watches show has the hash that the status kept of this very
    /// revision, it is what was applied, and nothing need be read.
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
        // A record that was only begun is not yet what the objects are.
        if facts.number("/status/release/revision") != Some(revision) {
            return;
        }
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
