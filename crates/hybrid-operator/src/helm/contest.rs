//! Two operators and one custom resource: somebody has installed the operator twice, under two
//! names, or has renamed it.
//!
//! Whoever wrote the newest record of the release looks after it, to the end: when the records go
//! there may be more to remove. The other one says so in a
//! condition and does nothing else, until the annotation `adopt-release` names it. That a name is
//! needed, and `true` is not enough, is what keeps two operators that read the same annotation
//! from taking the release from each other for ever.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;

use super::annotations::{self, Annotations};
use super::status::{Status, Told};
use super::{HelmReconciler, Release};
use crate::cluster::OperatorId;
use crate::controller::{Outcome, ReconcileError};

impl HelmReconciler {
    /// The operator that looks after a custom resource, where it is another one and is to remain
    /// it.
    pub(super) fn other_operator(
        &self,
        resource: &DynamicObject,
        release: &Release,
    ) -> Option<OperatorId> {
        let records = self.store.records_of(&self.primary(resource).identity());
        let newest = records.into_iter().max_by_key(|meta| meta.revision);
        let keeper = newest.map_or_else(|| release.keeper.clone(), |meta| meta.operator);
        let other = keeper?;
        let own = &self.manager.operator;
        let stays = other != *own && !self.annotations(resource).adopts_from_operators(own);
        stays.then_some(other)
    }

    pub(super) fn annotations(&self, resource: &DynamicObject) -> Annotations {
        let pause = self.watch.pause_annotation.as_deref();
        annotations::read(resource.annotations(), pause)
    }

    /// Leaves a custom resource to the operator that looks after it, and says so.
    pub(super) async fn leave_to(
        &self,
        other: &OperatorId,
        resource: &Arc<DynamicObject>,
        release: &mut Release,
    ) -> Result<Outcome, ReconcileError> {
        // What is not ours need not be watched.
        *release = Release {
            told: std::mem::take(&mut release.told),
            keeper: Some(other.clone()),
            ..Release::default()
        };
        let own = &self.manager.operator;
        let before = resource.data.get("status");
        let mut status = Status::read(before, Timestamp::now(), resource.metadata.generation);
        status.contested(&format!(
            "the operator {other} looks after this release, and the operator {own} watches this custom resource, too; to have {own} take it over, annotate the custom resource with {}adopt-release={own}",
            annotations::PREFIX,
        ));
        if let Some(patch) = status.patch(&release.told) {
            // Only over what was read: the other operator writes the same status.
            let version = resource.metadata.resource_version.as_deref();
            let primary = self.primary(resource);
            let answer = self.patch_status(&primary, version, &patch).await?;
            release.told = Told::new(&patch, answer.as_ref());
            self.tell_transitions(&primary, &status).await;
        }
        Ok(self.next_look(self.annotations(resource).reconcile_period))
    }
}
