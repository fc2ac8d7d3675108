//! Reads and writes records, for the steps.

use helm_core::release::{Release, Revision, Status};

use super::super::finalizer;
use super::super::kind::Kind;
use super::{ActContext, ActError};
use crate::action::deploy::StoredRelease;
use crate::release::{Failures, InputsDigest, RecordMeta, RecordTags};

impl ActContext<'_> {
    /// The labels of ours on a record.
    pub(super) fn tags(
        &self,
        digest: Option<InputsDigest>,
        failures: Option<Failures>,
    ) -> RecordTags {
        RecordTags {
            cr: self.subject.primary.identity(),
            operator: self.setup.operator.clone(),
            writer: self.setup.instance.clone(),
            digest,
            failures,
        }
    }

    /// Reads a record of the history. The history is what the plan has looked at, so that the
    /// record is there, unless somebody has deleted it since.
    pub(super) async fn load(&self, revision: Revision) -> Result<StoredRelease, ActError> {
        let history = &self.observation.history;
        let meta = history.iter().find(|meta| meta.revision == revision);
        let meta = meta.ok_or(ActError::Lacks("of a record", "its record"))?;
        let release = self.access.store.load(meta).await?;
        Ok(StoredRelease {
            meta: meta.clone(),
            release,
        })
    }

    /// Reads a record; one that cannot be understood is noticed and left out.
    pub(super) async fn load_if_readable(
        &self,
        meta: &RecordMeta,
    ) -> Result<Option<StoredRelease>, ActError> {
        match self.access.store.load(meta).await {
            Ok(release) => Ok(Some(StoredRelease {
                meta: meta.clone(),
                release,
            })),
            Err(error) if error.is_corrupt() => {
                self.notices.add(crate::helm::desired::corrupt(&error));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The number of the next revision.
    pub(super) fn next_revision(&self) -> Revision {
        let latest = self.observation.history.last();
        latest.map_or(Revision::FIRST, |latest| latest.revision.next())
    }

    /// What a record was on its way to before it failed.
    pub(super) fn kind_of(&self, stored: &StoredRelease) -> Kind {
        let good = |meta: &&RecordMeta| {
            meta.revision < stored.release.revision
                && matches!(meta.status, Status::Deployed | Status::Superseded)
        };
        if stored.release.info.rollback_revision.0 > 0 {
            Kind::Rollback
        } else if self.observation.history.iter().any(|meta| good(&meta)) {
            Kind::Upgrade
        } else {
            Kind::Install
        }
    }

    /// Adds the finalizer where it is missing. Answers whether the custom resource is still there.
    pub(super) async fn add_finalizer(&self) -> Result<bool, ActError> {
        if self.subject.finalizer {
            return Ok(true);
        }
        Ok(finalizer::add(self.access, self.subject).await?)
    }

    /// Writes a new revision.
    pub(super) async fn create(
        &self,
        release: Release,
        digest: Option<InputsDigest>,
    ) -> Result<StoredRelease, ActError> {
        let tags = self.tags(digest, None);
        let meta = self.access.store.create(&release, &tags).await?;
        Ok(StoredRelease { meta, release })
    }

    /// Writes what a record says now.
    pub(super) async fn save(
        &self,
        stored: &mut StoredRelease,
        failures: Option<Failures>,
    ) -> Result<(), ActError> {
        let tags = self.tags(stored.meta.digest.clone(), failures);
        let store = &self.access.store;
        stored.meta = store.update(&stored.meta, &stored.release, &tags).await?;
        Ok(())
    }

    /// Pending records of other inputs are given up before the next revision begins.
    pub(super) async fn give_up_pending(&self) -> Result<(), ActError> {
        let history = &self.observation.history;
        for meta in history.iter().filter(|meta| meta.status.is_pending()) {
            if let Some(mut stored) = self.load_if_readable(meta).await? {
                stored.release.set_status(
                    Status::Failed,
                    "given up: the inputs changed before it was done",
                );
                self.save(&mut stored, Some(Failures::NONE)).await?;
            }
        }
        Ok(())
    }

    /// Ends what a crash has cut off: only the newest deployed record is the deployed one.
    pub(super) async fn supersede(&self) -> Result<(), ActError> {
        let history = &self.observation.history;
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

    /// Deletes records beyond the limit of the history.
    pub(super) async fn prune_history(&self) {
        let limit = self.setup.watch.max_history.map_or(10, usize::from).max(2);
        let subject = self.subject;
        let history = self.access.store.history(&subject.namespace, &subject.name);
        for meta in crate::release::removable(&history, limit) {
            if let Err(error) = self.access.store.delete(meta).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an old record could not be deleted"
                );
            }
        }
    }
}
