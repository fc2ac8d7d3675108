//! Reads and writes release records for the steps.

use helm_core::release::{Release, Revision, Status, name};

use super::super::desired_error::DesiredError;
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::context::ActContext;
use super::error::ActError;
use crate::action::StoredRelease;
use crate::event::EventReason;
use crate::event::{Notice, corrupt_record_event};
use crate::release::{Failures, InputsDigest, RecordMeta, RecordTags, StoreError};

impl ActContext<'_> {
    /// Returns this operator's labels of a record.
    pub(super) fn tags(
        &self,
        digest: Option<InputsDigest>,
        failures: Option<Failures>,
        proven: bool,
    ) -> RecordTags {
        RecordTags {
            cr: self.target.primary.identity(),
            operator: self.setup.identity.operator.clone(),
            writer: self.setup.identity.instance.clone(),
            digest,
            account: self.target.who.impersonated().cloned(),
            failures,
            baseline: None,
            unowned: false,
            proven,
        }
    }

    /// Returns whether the objects of a record have no owner references once its next write is done, if those that
    /// were there before it have none.
    fn keeps_unowned(&self, before: bool) -> bool {
        before && self.subject.is_unowned(&self.setup.policy)
    }

    /// Returns whether the desired inputs are known, and those of a record.
    pub(super) fn wants(&self, record: &RecordMeta) -> bool {
        let desired = self.desired().map(|desired| &desired.inputs.digest);
        desired.is_some() && record.digest.as_ref() == desired
    }

    /// Returns the record of a revision of the observed history.
    pub(super) fn record(&self, revision: Revision) -> Result<&RecordMeta, StoreError> {
        let mut history = self.observation.history.iter();
        let record = history.find(|meta| meta.revision == revision);
        record.ok_or_else(|| self.gone(revision))
    }

    /// Returns the error for a revision without a record.
    pub(super) fn gone(&self, revision: Revision) -> StoreError {
        StoreError::Gone {
            secret: name::secret_name(&self.target.name, revision),
        }
    }

    /// Reads the record of a revision of the observed history.
    pub(super) async fn load(&self, revision: Revision) -> Result<StoredRelease, ActError> {
        self.load_record(self.record(revision)?).await
    }

    /// Reads the record of a revision from which objects are applied. Returns `None` and adds an
    /// event if its proof is wrong; the next plan knows that.
    pub(super) async fn load_proven(
        &self,
        revision: Revision,
    ) -> Result<Option<StoredRelease>, ActError> {
        let stored = self.load(revision).await?;
        if stored.proven {
            return Ok(Some(stored));
        }
        self.notices.add(unproven_record_event(&stored.meta));
        Ok(None)
    }

    /// Reads a record and verifies its proof.
    pub(super) async fn load_record(&self, meta: &RecordMeta) -> Result<StoredRelease, ActError> {
        let content = self.access.store.load_with_proof(meta).await?;
        let counted = self.target.share.read(parsed_bytes(&content.release)).await;
        counted.map_err(DesiredError::from)?;
        let own = meta.cr.as_ref() == Some(&self.target.primary.identity());
        Ok(StoredRelease {
            meta: meta.clone(),
            release: content.release,
            proven: content.proven && own,
        })
    }

    /// Reads a record. Returns `None` and adds an event if it is corrupt.
    pub(super) async fn load_if_readable(
        &self,
        meta: &RecordMeta,
    ) -> Result<Option<StoredRelease>, ActError> {
        match self.load_record(meta).await {
            Ok(stored) => Ok(Some(stored)),
            Err(ActError::Store(error)) if error.is_corrupt() => {
                self.notices.add(corrupt_record_event(&error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the number of the next revision.
    pub(super) fn next_revision(&self) -> Revision {
        let latest = self.observation.history.last();
        latest.map_or(Revision::FIRST, |latest| latest.revision.next())
    }

    /// Returns the action that a failed record belongs to.
    pub(super) fn kind_of(&self, stored: &StoredRelease) -> ActionKind {
        let good = |meta: &&RecordMeta| {
            meta.revision < stored.release.revision
                && matches!(meta.status, Status::Deployed | Status::Superseded)
        };
        if stored.release.info.rollback_revision.0 > 0 {
            ActionKind::Rollback
        } else if self.observation.history.iter().any(|meta| good(&meta)) {
            ActionKind::Upgrade
        } else {
            ActionKind::Install
        }
    }

    /// Makes the owner stay until its release lets it go. Returns whether it still exists. Without records, the
    /// cache may be older than an uninstall that has let it go, so the API server is asked.
    pub(super) async fn hold(&self) -> Result<bool, ActError> {
        let owner = &self.subject.owner;
        if !self.subject.held {
            return Ok(owner.hold().await?);
        }
        if !self.observation.history.is_empty() {
            return Ok(true);
        }
        let present = owner.read().await?;
        Ok(present.is_some_and(|present| present.deleted.is_none() && present.is_held))
    }

    /// Writes a new revision. `proven` tells whether its content was rendered, or is that of a proven
    /// record.
    pub(super) async fn create(
        &self,
        release: Release,
        digest: Option<InputsDigest>,
        proven: bool,
    ) -> Result<StoredRelease, ActError> {
        let latest = self.observation.history.last();
        let tags = RecordTags {
            unowned: self.keeps_unowned(latest.is_none_or(|latest| latest.unowned)),
            ..self.tags(digest, None, proven)
        };
        let meta = self.access.store.create(&release, &tags).await?;
        Ok(StoredRelease {
            meta,
            release,
            proven,
        })
    }

    /// Updates a record.
    pub(super) async fn save(
        &self,
        stored: &mut StoredRelease,
        failures: Option<Failures>,
    ) -> Result<(), ActError> {
        let tags = RecordTags {
            account: stored.meta.account.clone(),
            unowned: self.keeps_unowned(stored.meta.unowned),
            ..self.tags(stored.meta.digest.clone(), failures, stored.proven)
        };
        let store = &self.access.store;
        stored.meta = store.update(&stored.meta, &stored.release, &tags).await?;
        Ok(())
    }

    /// Marks pending records as failed before the next revision begins.
    pub(super) async fn abandon_pending(&self, memory: &mut KnownRelease) -> Result<(), ActError> {
        let history = &self.observation.history;
        for meta in history.iter().filter(|meta| meta.status.is_pending()) {
            if let Some(mut stored) = self.load_if_readable(meta).await? {
                stored
                    .release
                    .set_status(Status::Failed, "abandoned before it completed");
                memory.add_leftovers(&stored.release);
                self.save(&mut stored, Some(Failures::NONE)).await?;
            }
        }
        Ok(())
    }

    /// Completes an interrupted upgrade: marks all deployed records but the newest as superseded.
    pub(super) async fn supersede(&self) -> Result<(), ActError> {
        let history = self.target.history(self.access);
        let deployed = history
            .iter()
            .filter(|meta| meta.status == Status::Deployed);
        for meta in deployed.rev().skip(1) {
            if let Some(mut stored) = self.load_if_readable(meta).await? {
                let text = stored.release.info.description.clone();
                stored.release.set_status(Status::Superseded, text);
                self.save(&mut stored, None).await?;
            }
        }
        Ok(())
    }

    /// Deletes records beyond the history limit.
    pub(super) async fn prune_history(&self) {
        let limit = self.setup.policy.max_history.map_or(10, usize::from).max(2);
        let history = self.target.history(self.access);
        for meta in crate::release::removable(&history, limit) {
            if let Err(error) = self.access.store.delete(meta).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot delete an old release record"
                );
            }
        }
    }
}

/// Returns the event for a record from which nothing is applied.
pub(super) fn unproven_record_event(meta: &RecordMeta) -> Notice {
    let note = format!(
        "release record {} has no valid proof that this operator wrote it; nothing is applied from it",
        meta.secret
    );
    Notice::new(EventReason::UnprovenRecord, "Load", note)
}

/// Returns the bytes of a record that steps parse into objects: the manifest, and the hooks, which are read when
/// they run, and when what they have left is removed.
fn parsed_bytes(release: &Release) -> usize {
    let hooks = release.hooks.iter().map(|hook| hook.manifest.len());
    release.manifest.len().saturating_add(hooks.sum())
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::Hook;
    use helm_core::release::ReleaseName;

    use super::*;

    #[test]
    fn hooks_count_like_the_manifest() {
        let hook = |text: &str| Hook {
            manifest: text.to_owned(),
            ..Hook::default()
        };
        let name = ReleaseName::new("a").unwrap();
        let mut release = Release::new(name, "b", Revision::FIRST);
        release.manifest = "12345".to_owned();
        assert_eq!(parsed_bytes(&release), 5);
        release.hooks = vec![hook("123"), hook("12")];
        assert_eq!(parsed_bytes(&release), 10);
    }
}
