//! Has a release that is not ready examined, in the background: see [`kube_objects::diagnosis`].

use std::sync::Arc;

use kube_objects::diagnosis::{Cause, Patient};
use operator_runtime::controller::Priority;

use super::access::{Access, Who};
use super::status::Status;
use super::target::Target;
use crate::action::live::Live;

/// The examination of a release.
#[derive(Clone, Default)]
pub(super) struct Diagnosis {
    /// Revision that is not ready.
    revision: Option<u32>,
    /// `None` if nothing is awaited.
    patient: Option<Arc<Patient>>,
}

/// Has the objects examined that the release waits for. `logs` tells whether the logs of crashed
/// containers may be shown. Returns why they are not ready, if that is known.
pub(super) fn update(
    access: &Access,
    target: &Target,
    diagnosis: &mut Diagnosis,
    live: &Live,
    status: &Status,
    logs: bool,
) -> Option<Cause> {
    let awaited = live.awaited();
    if awaited.is_empty() {
        *diagnosis = Diagnosis::default();
        return None;
    }
    let revision = live.revision;
    let patient = match &diagnosis.patient {
        Some(patient) if diagnosis.revision == revision => Arc::clone(patient),
        other => {
            // After a restart, the status has what the process before has found.
            let earlier = status.cause().filter(|_| other.is_none());
            let (key, queue) = (target.key(), access.queue.downgrade());
            let wake = move || {
                if let Some(queue) = queue.upgrade() {
                    queue.add(key.clone(), Priority::Background);
                }
            };
            Patient::new(wake, earlier)
        }
    };
    let account = match &target.who {
        Who::Operator => None,
        Who::Account(name) => Some(name.to_string()),
        // It may read nothing.
        Who::Nobody => Some(String::new()),
    };
    let (account, cluster) = (account.as_deref(), &target.cluster);
    access
        .rounds
        .join(&patient, account, cluster, &awaited, logs);
    let cause = patient.cause();
    *diagnosis = Diagnosis {
        revision,
        patient: Some(patient),
    };
    cause
}
