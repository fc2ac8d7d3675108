//! Events about custom resources. They are sent at best effort: a reconcile never fails because of
//! one.
//!
//! RBAC: `create` and `patch` on `events` of `events.k8s.io`.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::cluster::Primary;

/// How many different notes are remembered, so that their repetition is counted and not sent anew.
const NOTES: usize = 256;
/// Characters of a note; the API server takes 1 KiB.
const NOTE: usize = 1000;

/// Something that is worth an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) action: &'static str,
    pub(super) note: String,
}

impl Notice {
    pub(super) fn normal(
        reason: impl Into<String>,
        action: &'static str,
        note: impl Into<String>,
    ) -> Self {
        Self {
            warning: false,
            reason: reason.into(),
            action,
            note: note.into(),
        }
    }

    pub(super) fn warning(
        reason: impl Into<String>,
        action: &'static str,
        note: impl Into<String>,
    ) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, action, note)
        }
    }
}

/// What a reconcile has noticed so far; the report publishes it.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Vec<Notice>>);

impl Notices {
    pub(super) fn add(&self, notice: Notice) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(notice);
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends events.
///
/// A [`Recorder`] counts events that differ in their note alone as one, and keeps the first note.
/// A second failure has another note, and must be seen: each note has a recorder of its own.
pub(super) struct EventSink {
    client: Client,
    reporter: Reporter,
    recorders: Mutex<VecDeque<(u64, Recorder)>>,
}

impl EventSink {
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            client,
            reporter,
            recorders: Mutex::default(),
        }
    }

    /// Sends an event about a custom resource.
    pub(super) async fn publish(&self, primary: &Primary, notice: Notice) {
        let reference = ObjectReference {
            api_version: Some(primary.gvk.api_version()),
            kind: Some(primary.gvk.kind.clone()),
            namespace: primary.namespace.clone(),
            name: Some(primary.name.clone()),
            uid: Some(primary.uid.clone()),
            ..ObjectReference::default()
        };
        let recorder = self.recorder(&primary.uid, &notice.note);
        let event = Event {
            type_: if notice.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: notice.reason,
            note: Some(notice.note.chars().take(NOTE).collect()),
            action: notice.action.to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &reference).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "an event could not be sent"
            );
        }
    }

    fn recorder(&self, uid: &str, note: &str) -> Recorder {
        let mut hasher = DefaultHasher::new();
        (uid, note).hash(&mut hasher);
        let hash = hasher.finish();
        let mut recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = recorders.iter().find(|(known, _)| *known == hash) {
            return known.clone();
        }
        if recorders.len() == NOTES {
            recorders.pop_front();
        }
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        recorders.push_back((hash, recorder.clone()));
        recorder
    }
}
