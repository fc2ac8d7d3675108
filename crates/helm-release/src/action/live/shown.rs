//! Views of the objects of a release.

use helm_core::manifest::ObjectKey;
use kube_objects::readiness::depends_on_status;

use super::{Live, LiveObject, ObjectState, gvk_of};
use crate::health::ObjectHealth;

impl Live {
    /// Returns the objects with their health. Beside the words of [`ObjectHealth`] the state is `Changed` if somebody
    /// changed what was applied, `Missing`, or `Expired` of a Job that has run and was removed.
    pub fn shown(&self) -> Vec<(ObjectKey, ObjectHealth)> {
        let shown = |(key, object): (&ObjectKey, &LiveObject)| (key.clone(), object.shown(key));
        self.objects.iter().map(shown).collect()
    }
}

impl LiveObject {
    fn shown(&self, key: &ObjectKey) -> ObjectHealth {
        let (ready, state, message) = match self.state(key) {
            ObjectState::Same(readiness) => return ObjectHealth::of(&readiness),
            ObjectState::Unknown => (
                !depends_on_status(&gvk_of(key)),
                "Unknown",
                self.unwatched(),
            ),
            ObjectState::Changed { .. } => {
                let why = "somebody changed what the operator applied";
                (false, "Changed", Some(why.to_owned()))
            }
            ObjectState::Missing => (false, "Missing", None),
            ObjectState::Expired => (true, "Expired", None),
        };
        ObjectHealth {
            ready,
            state,
            message,
        }
    }
}
