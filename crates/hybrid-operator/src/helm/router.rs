//! Finds the custom resource of a changed dependent or release record.

use kube::core::GroupVersionKind;
use kube_objects::ownership::OperatorId;
use kube_objects::watch::{Change, Owners, Route};
use operator_runtime::controller::{Key, Priority, QueueHandle};

use super::source::Source;
use helm_release::release::RecordMeta;

/// Enqueues the custom resource of a changed dependent or release record.
pub(super) struct ChangeRouter {
    pub(super) gvk: GroupVersionKind,
    pub(super) operator: OperatorId,
    /// Whether a change of a dependent is repaired at once: `watchDependentResources`.
    pub(super) repairs: bool,
    pub(super) queue: QueueHandle,
    pub(super) source: Source,
}

impl ChangeRouter {
    /// Handles a release record changed by another client, usually `helm` or `kubectl`.
    pub(super) fn record_changed(&self, record: &RecordMeta) {
        if record
            .operator
            .as_ref()
            .is_some_and(|id| *id != self.operator)
        {
            return;
        }
        let key = match &record.cr {
            Some(identity) => self.source.key_of(identity),
            // A release without an owner may block the custom resource of the same name.
            None => Some(Key::new(Some(&record.namespace), record.name.as_str()))
                .filter(|key| self.source.contains(key)),
        };
        if let Some(key) = key {
            self.queue.add(key, Priority::Event);
        }
    }
}

impl Route for ChangeRouter {
    /// Handles a changed dependent. Drift of dependents that are not watched is repaired by the next
    /// resync, but the condition `Ready` follows their readiness.
    fn changed(&self, owners: &Owners, change: Change) {
        if !self.repairs && change == Change::Object {
            return;
        }
        let by_label = owners
            .label
            .as_ref()
            .and_then(|identity| self.source.key_of(identity));
        let by_owner = || {
            let owner = owners.hint.as_ref()?;
            let ours = owner.kind == self.gvk.kind && owner.group == self.gvk.group;
            ours.then(|| Key::new(owner.namespace.as_deref(), &owner.name))
        };
        if let Some(key) = by_label.or_else(by_owner) {
            self.queue.add(key, Priority::Event);
        }
    }
}
