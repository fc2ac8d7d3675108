//! The chart's tests, and what is left of an install that failed.

use std::time::Duration;

use helm_core::manifest::HookEvent;
use helm_core::release::{Revision, Status as ReleaseStatus};

use super::execute::{Done, LOOK_AGAIN};
use super::kind::Kind;
use super::observe::Facts;
use super::status::{Status, chain};
use super::{HelmReconciler, Release};
use crate::action::uninstall::remove_objects;
use crate::action::{ActionError, Progress, run_hooks};
use crate::controller::ReconcileError;

impl HelmReconciler {
    /// Runs the hooks of the event `test` on the deployed revision; their outcome is a condition,
    /// and no reason to change anything.
    pub(super) async fn test(
        &self,
        facts: &Facts,
        release: &mut Release,
        status: &mut Status,
        revision: Revision,
    ) -> Result<Done, ReconcileError> {
        Self::report(release, status);
        let history = self.store.history(&facts.namespace, &facts.name);
        let Some(mut stored) = self.load(&history, revision).await? else {
            return Ok(Done::Again(Duration::ZERO));
        };
        let failure = {
            let context = self.context(facts, Kind::Test, &[]);
            match run_hooks(&context, &mut release.live, &mut stored, &HookEvent::Test).await {
                Ok(Progress::Done) => None,
                Ok(Progress::Waiting { .. }) => return Ok(Done::Again(LOOK_AGAIN)),
                Err(error @ (ActionError::Hook { .. } | ActionError::Timeout { .. })) => {
                    Some(chain(&error))
                }
                Err(error) => return Err(error.into()),
            }
        };
        status.tested(failure.as_deref());
        status.mark_tested(revision.0);
        Ok(Done::Settled)
    }

    /// Removes what a failed install made. The record stays, so that attempts can be counted.
    pub(super) async fn clean_up(
        &self,
        facts: &Facts,
        release: &mut Release,
        status: &mut Status,
        revision: Revision,
    ) -> Result<Done, ReconcileError> {
        let history = self.store.history(&facts.namespace, &facts.name);
        let Some(mut stored) = self.load(&history, revision).await? else {
            return Ok(Done::Again(Duration::ZERO));
        };
        let context = self.context(facts, Kind::Uninstall, &[]);
        if let Err(error) = remove_objects(&context, &mut release.live, &stored, &[]).await {
            status.irreconcilable("UninstallError", &error);
            return Err(error.into());
        }
        stored.release.set_status(
            ReleaseStatus::Uninstalled,
            "the install failed, and what it made was removed",
        );
        let tags = self.tags(facts, stored.meta.digest.clone());
        self.store
            .update(&stored.meta, &stored.release, &tags)
            .await?;
        Ok(Done::Again(Duration::ZERO))
    }
}
