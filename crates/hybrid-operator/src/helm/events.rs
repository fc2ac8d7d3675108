//! Publishes events about custom resources. Best effort: a failed event never fails a reconcile.
//! See [`kube_objects::events`] for the permissions.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use kube_objects::Primary;
use kube_objects::events::{EventRecorder, EventSender};
use operator_runtime::manager::ControllerContext;
use parking_lot::Mutex;

use super::view::recent::RecentEvents;
use helm_release::event::Notice;

/// Number of notes that have a recorder, so that repetitions are aggregated.
const MAX_RECORDERS: usize = 256;
/// Maximum length of a note in characters; the API server accepts up to 1 KiB.
const MAX_NOTE_LENGTH: usize = 1000;

/// Returns the event of a notice.
pub(super) fn event(notice: &Notice) -> Event {
    Event {
        type_: if notice.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: notice.reason.to_owned(),
        note: Some(notice.note.chars().take(MAX_NOTE_LENGTH).collect()),
        action: notice.action.to_owned(),
        secondary: None,
    }
}

/// Sends events about the operator itself.
pub(super) struct OperatorEvents {
    recorder: EventRecorder,
    /// `None` if the operator does not know its Pod.
    pod: Option<ObjectReference>,
}

impl OperatorEvents {
    pub(super) fn new(context: &ControllerContext) -> Self {
        let (connection, identity) = (&context.connection, &context.identity);
        let pod = identity.pod.clone().zip(identity.namespace.clone());
        let reference =
            |((name, uid), namespace): ((String, Option<String>), String)| ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace),
                name: Some(name),
                uid,
                ..ObjectReference::default()
            };
        Self {
            recorder: connection.events.recorder(),
            pod: pod.map(reference),
        }
    }

    /// Sends an event about the Pod of the operator, if it is known.
    pub(super) async fn publish(&self, event: Event) {
        let Some(pod) = &self.pod else {
            return;
        };
        self.recorder.publish(&event, pod).await;
    }
}

/// Sends events.
///
/// An [`EventRecorder`] aggregates events that differ only in their note and keeps the first note. Each
/// note has its own recorder so that a second failure with another message is visible.
pub(super) struct EventSink {
    sender: EventSender,
    recorders: Mutex<VecDeque<(u64, EventRecorder)>>,
    /// Keeps the events for the status page, if it is served.
    recent: Option<RecentEvents>,
}

impl EventSink {
    pub(super) fn new(sender: EventSender, recent: Option<RecentEvents>) -> Self {
        Self {
            sender,
            recorders: Mutex::default(),
            recent,
        }
    }

    /// Sends an event about a custom resource.
    pub(super) async fn publish(&self, primary: &Primary, event: Event) {
        if let Some(recent) = &self.recent {
            recent.add(&primary.uid, &event, host::timestamp());
        }
        let reference = ObjectReference {
            api_version: Some(primary.gvk.api_version()),
            kind: Some(primary.gvk.kind.clone()),
            namespace: primary.namespace.clone(),
            name: Some(primary.name.clone()),
            uid: Some(primary.uid.clone()),
            ..ObjectReference::default()
        };
        self.send(&primary.uid, event, &reference).await;
    }

    /// Sends an event about a namespace.
    pub(super) async fn publish_about_namespace(&self, name: &str, event: Event) {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.send(name, event, &reference).await;
    }

    async fn send(&self, subject: &str, event: Event, reference: &ObjectReference) {
        let note = event.note.as_deref().unwrap_or_default();
        let recorder = self.recorder(subject, note);
        recorder.publish(&event, reference).await;
    }

    fn recorder(&self, subject: &str, note: &str) -> EventRecorder {
        let mut hasher = DefaultHasher::new();
        (subject, note).hash(&mut hasher);
        let hash = hasher.finish();
        let mut recorders = self.recorders.lock();
        if let Some((_, known)) = recorders.iter().find(|(known, _)| *known == hash) {
            return known.clone();
        }
        if recorders.len() == MAX_RECORDERS {
            recorders.pop_front();
        }
        let recorder = self.sender.recorder();
        recorders.push_back((hash, recorder.clone()));
        recorder
    }
}
