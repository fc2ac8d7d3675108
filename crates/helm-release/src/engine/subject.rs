//! A release of a pass, and what is asked of it.

use std::sync::Arc;

use helm_core::release::Revision;

use super::bounded::remembered;
use super::instructions::Instructions;
use super::message::Message;
use super::owner::Owner;
use super::reported::Reported;
use super::target::Target;
use crate::policy::{DeletionPolicy, ReleasePolicy};
use crate::release::{Asked, RecordMeta};

/// A release at the start of a pass, and what is asked of it.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Subject {
    /// The release.
    pub target: Target,
    /// Owner of the release.
    pub owner: Arc<dyn Owner>,
    /// Increases with each change of what the owner asks for.
    pub generation: Option<i64>,
    /// Whether the owner is being deleted.
    pub deleting: bool,
    /// Finalizer of the release is present on the owner.
    pub held: bool,
    /// Whether garbage collection deletes the objects before the owner.
    pub foreground: bool,
    /// Whether a Go operator may have stored the release in chunks.
    pub legacy: bool,
    /// Requests of the owner beside the values.
    pub instructions: Instructions,
    /// State that was reported before.
    pub reported: Reported,
    /// Reason why there can be no release. Name and namespace are then placeholders that allow an
    /// uninstall.
    pub error: Option<Message>,
}

impl Subject {
    /// Returns whether the release stays when the owner is deleted.
    pub(super) fn orphans(&self, policy: &ReleasePolicy) -> bool {
        self.instructions.deletion.unwrap_or(policy.deletion) == DeletionPolicy::Orphan
    }

    /// Returns whether the release stays while the owner is being deleted.
    pub(super) fn is_protected(&self, policy: &ReleasePolicy) -> bool {
        self.instructions.protected.unwrap_or(policy.protected)
    }

    /// Returns whether the objects have no owner references, so that no garbage collection deletes them.
    pub(super) fn is_unowned(&self, policy: &ReleasePolicy) -> bool {
        self.orphans(policy) || self.is_protected(policy)
    }

    /// Returns the values of the one-time annotations, as records remember them.
    pub(super) fn asked(&self) -> Asked {
        let instructions = &self.instructions;
        Asked::of(
            instructions.force_at.as_deref(),
            instructions.reset_at.as_deref(),
        )
    }

    /// Returns whether `force-at` has a value that neither the status nor a record names.
    pub(super) fn is_forced(&self, history: &[RecordMeta]) -> bool {
        let handled = self.reported.handled.force_at.as_deref();
        is_new(self.instructions.force_at.as_deref(), handled)
            && !self.asked().is_forced_by(history)
    }

    /// Returns whether `reset-at` has a value that neither the status nor a record names.
    pub(super) fn is_reset(&self, history: &[RecordMeta]) -> bool {
        let handled = self.reported.handled.reset_at.as_deref();
        is_new(self.instructions.reset_at.as_deref(), handled)
            && self.asked().reset_by(history).is_none()
    }

    /// Returns the newest revision whose failures no longer count.
    pub(super) fn forgiven(&self, history: &[RecordMeta]) -> Revision {
        if self.is_reset(history) {
            return history.last().map_or(Revision(0), |meta| meta.revision);
        }
        // The records of these revisions may be gone, and others may have their numbers now.
        let newest = history.last().map_or(0, |meta| meta.revision.0);
        let by_status = self.reported.handled.forgiven;
        let by_status = by_status.filter(|number| *number < newest).unwrap_or(0);
        let asked = self.asked();
        let by_record = asked.reset_by(history).map_or(0, |meta| meta.revision.0);
        Revision(by_status.max(by_record.saturating_sub(1)))
    }
}

/// Returns whether a one-time annotation has another value than the one that was handled.
fn is_new(asked: Option<&str>, handled: Option<&str>) -> bool {
    asked.is_some() && handled != asked.map(remembered).as_deref()
}
