//! Has a release that is not ready examined, in the background: see [`kube_objects::diagnosis`].

use std::sync::Arc;

use kube_objects::diagnosis::{Cause, Patient, Rounds};

use super::access::Who;
use super::target::Target;
use crate::action::live::Live;

/// The examination of a release.
#[derive(Clone, Default)]
pub struct Diagnosis {
    /// Revision that is not ready.
    revision: Option<u32>,
    /// `None` if nothing is awaited.
    patient: Option<Arc<Patient>>,
}

impl Diagnosis {
    /// Has the objects examined that the release waits for. `logs` tells whether the logs of crashed
    /// containers may be shown, `earlier` is what a process before has found, and `wake` is called when there is
    /// news. Returns why they are not ready, if that is known.
    pub fn update(
        &mut self,
        rounds: &Rounds,
        target: &Target,
        live: &Live,
        logs: bool,
        earlier: Option<Cause>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Option<Cause> {
        let awaited = live.awaited();
        if awaited.is_empty() {
            *self = Self::default();
            return None;
        }
        let revision = live.revision;
        let patient = match &self.patient {
            Some(patient) if self.revision == revision => Arc::clone(patient),
            other => Patient::new(wake, earlier.filter(|_| other.is_none())),
        };
        let account = match &target.who {
            Who::Operator => None,
            Who::Account(name) => Some(name.to_string()),
            // It may read nothing.
            Who::Nobody => Some(String::new()),
        };
        let (account, cluster) = (account.as_deref(), &target.cluster);
        rounds.join(&patient, account, cluster, &awaited, logs);
        let cause = patient.cause();
        *self = Self {
            revision,
            patient: Some(patient),
        };
        cause
    }
}
