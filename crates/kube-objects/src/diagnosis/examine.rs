//! Examines the unready objects of one namespace, all of them with the same few requests.
//!
//! ```text
//! list of Pods  -> the worst symptom per object
//! list of events, if a symptom or the lack of Pods needs one
//! list of claims, if a Pod waits for one; then the events about binding
//! logs of at most MAX_LOGS containers that have crashed since
//! ```

use host::HashMap;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use object_key::ObjectKey;

use super::event::{Told, count_of, last_seen, told};
use super::pod::{self, Clue, Symptom};
use super::reading::{Reader, Selection};
use super::{Finding, Repeats, Severity, creation, shortened};
use crate::diagnosis::Reason;

/// Maximum number of logs that are read at once.
const MAX_LOGS: usize = 5;

/// Kind and name of an object that has, or is, Pods or a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    kind: &'static str,
    name: String,
}

impl Place {
    /// Returns the place of an object; `None` if nothing is known of its kind.
    pub(super) fn of(key: &ObjectKey) -> Option<Self> {
        let kinds: &[&str] = match key.group.as_str() {
            "" => &["Pod", "PersistentVolumeClaim"],
            "apps" => &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"],
            "batch" => &["Job"],
            _ => &[],
        };
        let kind = kinds.iter().find(|kind| **kind == key.kind)?;
        Some(Self::new(kind, &key.name))
    }

    fn new(kind: &'static str, name: &str) -> Self {
        let name = name.to_owned();
        Self { kind, name }
    }

    /// Returns what a controller of Pods belongs to: itself, and its Deployment. A `ReplicaSet` is named
    /// after its Deployment and the hash of the template of its Pods, which has no `-`.
    fn around(kind: &str, name: &str) -> Vec<Self> {
        match kind {
            "ReplicaSet" => {
                let deployment = name
                    .rsplit_once('-')
                    .map(|(name, _)| Self::new("Deployment", name));
                let own = Self::new("ReplicaSet", name);
                std::iter::once(own).chain(deployment).collect()
            }
            "StatefulSet" => vec![Self::new("StatefulSet", name)],
            "DaemonSet" => vec![Self::new("DaemonSet", name)],
            "Job" => vec![Self::new("Job", name)],
            "Pod" => vec![Self::new("Pod", name)],
            _ => Vec::new(),
        }
    }

    /// Returns what a Pod belongs to.
    fn of_pod(pod: &Pod) -> Vec<Self> {
        let mut places = Self::around("Pod", &pod.name_any());
        let owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true));
        if let Some(owner) = owner {
            places.extend(Self::around(&owner.kind, &owner.name));
        }
        places
    }
}

/// The log of a crash, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Log {
    /// The Pod's uid, the container and the number of its restarts.
    of: (String, String, i32),
    text: Option<String>,
}

/// One object that is examined.
#[derive(Debug, Clone, Default)]
pub(super) struct Case {
    /// Whether logs may be shown.
    pub(super) logs: bool,
    /// The log that was read last.
    pub(super) log: Option<Log>,
    pub(super) finding: Option<Finding>,
}

/// Events of a namespace: the newest one about each object and matter.
#[derive(Default)]
struct Events {
    by_uid: HashMap<(String, Told), Event>,
    by_controller: HashMap<Place, Event>,
}

impl Events {
    fn add(&mut self, event: &Event, uids: &BTreeSet<String>, cases: &BTreeMap<Place, Case>) {
        let Some(told) = told(event) else { return };
        let about = &event.involved_object;
        if told == Told::Create {
            let kind = about.kind.as_deref().unwrap_or_default();
            let name = about.name.as_deref().unwrap_or_default();
            for place in Place::around(kind, name) {
                if cases.contains_key(&place) {
                    keep_newest(&mut self.by_controller, place, event);
                }
            }
        } else if let Some(uid) = about.uid.as_ref().filter(|uid| uids.contains(*uid)) {
            keep_newest(&mut self.by_uid, (uid.clone(), told), event);
        }
    }

    fn about(&self, uid: &str, told: Told) -> Option<&Event> {
        self.by_uid.get(&(uid.to_owned(), told))
    }
}

fn keep_newest<K: Eq + std::hash::Hash>(known: &mut HashMap<K, Event>, key: K, event: &Event) {
    let newer = |known: &Event| last_seen(known) < last_seen(event);
    if known.get(&key).is_none_or(newer) {
        known.insert(key, event.clone());
    }
}

/// A Pod without its spec, and what is wrong with it.
type Sick = (Pod, Symptom);

/// Examines these objects; their findings are replaced. `pods` limits which Pods are read.
///
/// # Errors
/// When something cannot be read; the findings are then unchanged. What may not be read is left out.
pub(super) async fn examine(
    reader: &Reader<'_>,
    pods: &Selection,
    cases: &mut BTreeMap<Place, Case>,
) -> Result<(), kube::Error> {
    let of_pods = |place: &&Place| place.kind != "PersistentVolumeClaim";
    let mut worst = BTreeMap::new();
    let mut readable = true;
    if cases.keys().any(|place| of_pods(&place)) {
        let read = reader.pods(pods, |pod| keep_worst(&mut worst, cases, pod));
        readable = allowed(read.await)?;
    }
    let claims = claims(reader, cases, &worst).await?;
    let pending = pending(&claims);
    let uids = uids(&worst, pending.iter().copied());
    let without_pods = readable
        && cases
            .keys()
            .any(|place| of_pods(&place) && !worst.contains_key(place));
    let mut events = Events::default();
    if without_pods || !uids.is_empty() {
        let selection = Selection::fields("type=Warning");
        let read = reader.events(&selection, |event| events.add(&event, &uids, cases));
        allowed(read.await)?;
    }
    if pending
        .iter()
        .any(|uid| events.about(uid, Told::Claim).is_none())
    {
        // No warning: the controller tells it at each of its rounds.
        let selection = Selection::fields("reason=FailedBinding");
        let read = reader.events(&selection, |event| events.add(&event, &uids, cases));
        allowed(read.await)?;
    }
    let mut logs = MAX_LOGS;
    for (place, case) in cases {
        case.finding = match worst.remove(place) {
            Some((pod, symptom)) => {
                let finding = explain(reader, case, &pod, symptom, &events, &claims, &mut logs);
                let finding = finding.await;
                Some(match place.kind {
                    "Pod" => finding,
                    _ => finding.within(&format!("Pod {}", pod.name_any())),
                })
            }
            None if place.kind == "PersistentVolumeClaim" => unbound(&place.name, &claims, &events),
            None if !readable => Some(unreadable()),
            None => events.by_controller.get(place).map(creation::finding),
        };
    }
    Ok(())
}

/// Returns whether a list was allowed.
fn allowed(answer: Result<(), kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Keeps a Pod if it is the worst one of an object so far.
fn keep_worst(worst: &mut BTreeMap<Place, Sick>, cases: &BTreeMap<Place, Case>, mut pod: Pod) {
    let mut places = Place::of_pod(&pod);
    places.retain(|place| cases.contains_key(place));
    if places.is_empty() {
        return;
    }
    let Some(symptom) = pod::symptom(&pod) else {
        return;
    };
    pod.spec = None;
    pod.metadata.managed_fields = None;
    for place in places {
        let known = worst.get(&place);
        // The first of equally severe symptoms is kept.
        if known.is_none_or(|(_, known)| known.finding.severity < symptom.finding.severity) {
            worst.insert(place, (pod.clone(), symptom.clone()));
        }
    }
}

/// The claims that something waits for, by name: the uid of one that is not bound, or `None`. Not known
/// if they may not be read.
struct Claims(Option<BTreeMap<String, ClaimState>>);

enum ClaimState {
    Missing,
    Bound,
    Pending { uid: String },
}

/// Reads the claims that are examined, or that a Pod waits for.
async fn claims(
    reader: &Reader<'_>,
    cases: &BTreeMap<Place, Case>,
    worst: &BTreeMap<Place, Sick>,
) -> Result<Claims, kube::Error> {
    let own = cases
        .keys()
        .filter(|place| place.kind == "PersistentVolumeClaim");
    let mut states: BTreeMap<String, ClaimState> = own
        .map(|place| (place.name.clone(), ClaimState::Missing))
        .collect();
    for (_, symptom) in worst.values() {
        if let Clue::Claims(names) = &symptom.clue {
            let names = names.iter().cloned();
            states.extend(names.map(|name| (name, ClaimState::Missing)));
        }
    }
    if states.is_empty() {
        return Ok(Claims(Some(states)));
    }
    let read = reader.claims(|claim: PersistentVolumeClaim| {
        let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
        if let Some(state) = states.get_mut(&claim.name_any()) {
            *state = match (phase, claim.uid()) {
                (Some("Bound"), _) | (_, None) => ClaimState::Bound,
                (_, Some(uid)) => ClaimState::Pending { uid },
            };
        }
    });
    let readable = allowed(read.await)?;
    Ok(Claims(readable.then_some(states)))
}

/// Returns the uids of claims that are not bound.
fn pending(claims: &Claims) -> Vec<&str> {
    let states = claims.0.iter().flat_map(BTreeMap::values);
    let pending = states.filter_map(|state| match state {
        ClaimState::Pending { uid } => Some(uid.as_str()),
        ClaimState::Missing | ClaimState::Bound => None,
    });
    pending.collect()
}

/// Returns the uids of the objects whose events explain something.
fn uids<'a>(
    worst: &BTreeMap<Place, Sick>,
    pending: impl Iterator<Item = &'a str>,
) -> BTreeSet<String> {
    let pods = worst
        .values()
        .filter_map(|(pod, symptom)| match symptom.clue {
            Clue::Events(_) => pod.uid(),
            _ => None,
        });
    pods.chain(pending.map(ToOwned::to_owned)).collect()
}

/// Returns why a claim is not bound; `None` if it is, waits for its Pod to be scheduled, or is not known.
fn unbound(name: &str, claims: &Claims, events: &Events) -> Option<Finding> {
    let uid = match claims.0.as_ref()?.get(name)? {
        ClaimState::Bound => return None,
        ClaimState::Missing => {
            let message = "it does not exist".to_owned();
            let reason = Reason::VolumePending;
            return Some(Finding::new(Severity::CannotRun, reason, message));
        }
        ClaimState::Pending { uid } => uid,
    };
    let event = events.about(uid, Told::Claim)?;
    let text = shortened(event.message.as_deref().unwrap_or_default());
    Some(Finding {
        repeats: Repeats::Times(count_of(event)),
        ..Finding::new(Severity::CannotRun, Reason::VolumePending, text)
    })
}

/// Adds what the clue of a symptom leads to. Reads at most `left` logs.
async fn explain(
    reader: &Reader<'_>,
    case: &mut Case,
    pod: &Pod,
    symptom: Symptom,
    events: &Events,
    claims: &Claims,
    left: &mut usize,
) -> Finding {
    let Symptom { finding, clue } = symptom;
    match clue {
        Clue::None => finding,
        Clue::Events(expected) => {
            let event = events.about(&pod.uid().unwrap_or_default(), Told::Of(expected));
            match event {
                Some(event) => pod::explained(finding, expected, pod, event),
                None => finding,
            }
        }
        Clue::Claims(names) => {
            let unbound = |name: &String| {
                let found = unbound(name, claims, events)?;
                Some(found.within(&format!("PersistentVolumeClaim {name}")))
            };
            names.iter().find_map(unbound).unwrap_or(finding)
        }
        Clue::Log { .. } if !case.logs => finding,
        Clue::Log {
            container,
            previous,
            restarts,
        } => {
            let of = (pod.uid().unwrap_or_default(), container, restarts);
            // The turn of those beyond the limit comes in a later round.
            if *left > 0 && case.log.as_ref().is_none_or(|log| log.of != of) {
                *left -= 1;
                let text = reader.log(&pod.name_any(), &of.1, previous).await;
                case.log = Some(Log { of, text });
            }
            let log = case.log.as_ref().and_then(|log| log.text.clone());
            Finding { log, ..finding }
        }
    }
}

/// Returns the finding about a workload whose Pods may not be read.
fn unreadable() -> Finding {
    Finding::new(
        Severity::Starting,
        Reason::ObjectsNotReady,
        "not ready; the cause is in its Pods, which this operator may not list".to_owned(),
    )
}

#[cfg(test)]
mod tests;
