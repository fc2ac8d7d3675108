//! Uninstalls the release of a custom resource that is being deleted.

use helm_core::release::Status as ReleaseStatus;
use kube::ResourceExt;

use super::execute::{Done, LOOK_AGAIN};
use super::kind::Kind;
use super::observe::Facts;
use super::status::{Status, chain};
use super::{HelmReconciler, Release};
use crate::action::Progress;
use crate::action::deploy::Stored;
use crate::action::uninstall::uninstall;
use crate::controller::ReconcileError;
use crate::release::RecordMeta;

impl HelmReconciler {
    /// Removes the release and then the finalizer.
    pub(super) async fn execute_uninstall(
        &self,
        facts: &Facts,
        release: &mut Release,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        if !facts.finalizer {
            return Ok(Done::Gone);
        }
        // A cache is no proof: only a fresh read starts an uninstall.
        let Some(fresh) = self.fresh(facts).await? else {
            return Ok(Done::Gone);
        };
        let same = fresh.uid().as_deref() == Some(facts.primary.uid.as_str());
        if !same
            || fresh.metadata.deletion_timestamp.is_none()
            || !super::finalizer::is_present(&fresh)
        {
            return Ok(Done::Gone);
        }
        let mut history = self.store.history(&facts.namespace, &facts.name);
        if history.is_empty() && self.bring_over(facts).await?.is_some() {
            history = self.store.history(&facts.namespace, &facts.name);
        }
        let identity = facts.primary.identity();
        let own: Vec<RecordMeta> = history
            .into_iter()
            .filter(|meta| {
                meta.cr.as_ref() == Some(&identity) || meta.owners.contains(&facts.primary.uid)
            })
            .collect();
        if let Some((mut stored, earlier)) = self.readable(facts, &own).await? {
            let context = self.context(facts, Kind::Uninstall, &[]);
            let wait = facts.annotations.uninstall_wait || self.watch.uninstall.wait;
            let description = facts.annotations.uninstall_description.as_deref();
            let description = description.unwrap_or("Deletion in progress (or silently failed)");
            let ended = uninstall(
                &context,
                &mut release.live,
                &mut stored,
                &earlier,
                wait,
                description,
            )
            .await;
            match ended {
                Ok(Progress::Done) => {}
                Ok(Progress::Waiting { why }) => {
                    status.progressing(&why);
                    return Ok(Done::Again(LOOK_AGAIN));
                }
                Err(error) => {
                    status.failed("UninstallError", &chain(&error));
                    status.irreconcilable("UninstallError", &error);
                    return Err(error.into());
                }
            }
        } else {
            self.remove_orphans(facts, release).await?;
            self.store.delete_leftover_parts(&identity).await?;
        }
        self.event(
            facts,
            false,
            "UninstallSuccessful",
            "Uninstall",
            "the release was uninstalled".to_owned(),
        )
        .await;
        self.remove_finalizer(facts, &fresh).await?;
        Ok(Done::Gone)
    }

    /// The newest record that can be read, and those before it whose objects may be there: the
    /// deployed one and all later ones. `None` without records.
    async fn readable(
        &self,
        facts: &Facts,
        own: &[RecordMeta],
    ) -> Result<Option<(Stored, Vec<Stored>)>, ReconcileError> {
        let mut records = Vec::new();
        let mut unreadable = None;
        for meta in own.iter().rev() {
            match self.store.load(meta).await {
                Ok(release) => records.push(Stored {
                    meta: meta.clone(),
                    release,
                }),
                Err(error) if error.is_corrupt() => {
                    self.corrupt(facts, &error).await;
                    unreadable = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
            let good = matches!(
                meta.status,
                ReleaseStatus::Deployed | ReleaseStatus::Superseded
            );
            if good && !records.is_empty() {
                break;
            }
        }
        // Without any manifest it is not known what to delete, and nothing is.
        match (records.is_empty(), unreadable) {
            (true, Some(error)) => Err(error.into()),
            (true, None) => Ok(None),
            _ => {
                let newest = records.remove(0);
                Ok(Some((newest, records)))
            }
        }
    }
}
