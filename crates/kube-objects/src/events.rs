//! Sends events through `events.k8s.io`, or as core events where only those are allowed, as the roles
//! of the Go operators say.
//!
//! RBAC: `create` and `patch` on `events` of `events.k8s.io`, or `create` on `events` of the core
//! group. With `patch` a repeated event is counted in the first one.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;
use serde_json::json;
use tracing::{debug, info, warn};

/// Number of core events whose repetitions are counted.
const MAX_COUNTED: usize = 256;
/// Time for which a repetition is counted in the first event, as in client-go.
const COUNTED_FOR: Duration = Duration::from_mins(6);
/// Maximum length of the object's name in the name of an event, in characters.
const MAX_NAME: usize = 200;

/// Sends the events of a process. Clones share what is known about permissions.
#[derive(Clone)]
pub struct EventSender {
    client: Client,
    reporter: Reporter,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether only core events are allowed.
    core_only: AtomicBool,
    /// Whether it was logged that no events are allowed.
    refused: AtomicBool,
    counted: Mutex<VecDeque<Counted>>,
}

/// A core event that was sent.
#[derive(Clone)]
struct Counted {
    /// Hash of what makes two events equal.
    hash: u64,
    name: String,
    count: i32,
    last: Timestamp,
}

/// Sends events that are aggregated with each other.
#[derive(Clone)]
pub struct EventRecorder {
    recorder: Recorder,
    sender: EventSender,
}

impl EventSender {
    /// Creates a sender of events that name `reporter` as their source.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            client,
            reporter,
            state: Arc::default(),
        }
    }

    /// Returns a sender with another client.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// Creates a recorder, which aggregates events that differ only in their note.
    pub fn recorder(&self) -> EventRecorder {
        EventRecorder {
            recorder: Recorder::new(self.client.clone(), self.reporter.clone()),
            sender: self.clone(),
        }
    }

    /// Sends a core event, or counts it in an equal one.
    async fn send_core(
        &self,
        event: &Event,
        reference: &ObjectReference,
    ) -> Result<(), kube::Error> {
        let namespace = reference.namespace.as_deref().unwrap_or("default");
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
        let (hash, now) = (hash(event, reference), host::timestamp());
        let is_recent =
            |known: &Counted| now.duration_since(known.last).unsigned_abs() < COUNTED_FOR;
        let known = {
            let mut counted = self.state.counted.lock();
            counted.retain(is_recent);
            counted.iter().find(|known| known.hash == hash).cloned()
        };
        if let Some(mut known) = known {
            known.count = known.count.saturating_add(1);
            known.last = now;
            let patch = json!({"count": known.count, "lastTimestamp": Time(now)});
            let params = PatchParams::default();
            let patched = api
                .patch_metadata(&known.name, &params, &Patch::Merge(&patch))
                .await;
            if patched.is_ok() {
                self.count(known);
                return Ok(());
            }
            // The event has expired, or only `create` is allowed.
        }
        let core = self.core_event(event, reference, namespace, now);
        let name = core.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &core).await?;
        self.count(Counted {
            hash,
            name,
            count: 1,
            last: now,
        });
        Ok(())
    }

    fn count(&self, counted: Counted) {
        let mut all = self.state.counted.lock();
        all.retain(|known| known.hash != counted.hash);
        if all.len() == MAX_COUNTED {
            all.pop_front();
        }
        all.push_back(counted);
    }

    fn core_event(
        &self,
        event: &Event,
        reference: &ObjectReference,
        namespace: &str,
        now: Timestamp,
    ) -> CoreEvent {
        let name = reference.name.as_deref().unwrap_or_default();
        let name: String = name.chars().take(MAX_NAME).collect();
        let Reporter {
            controller,
            instance,
        } = &self.reporter;
        CoreEvent {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: reference.clone(),
            type_: Some(type_name(event).to_owned()),
            reason: Some(event.reason.clone()),
            message: event.note.clone(),
            action: Some(event.action.clone()),
            related: event.secondary.clone(),
            source: Some(EventSource {
                component: Some(controller.clone()),
                host: None,
            }),
            reporting_component: Some(controller.clone()),
            reporting_instance: Some(instance.clone().unwrap_or_else(|| controller.clone())),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..CoreEvent::default()
        }
    }
}

impl EventRecorder {
    /// Sends an event. Best effort: an event that cannot be sent is logged.
    pub async fn publish(&self, event: &Event, reference: &ObjectReference) {
        let state = &self.sender.state;
        let mut refusal = None;
        if !state.core_only.load(Ordering::Relaxed) {
            match self.recorder.publish(event, reference).await {
                Ok(()) => return,
                Err(error) if is_forbidden(&error) => refusal = Some(error),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    debug!(error, "cannot send an event");
                    return;
                }
            }
        }
        match self.sender.send_core(event, reference).await {
            Ok(()) => {
                if refusal.is_some() && !state.core_only.swap(true, Ordering::Relaxed) {
                    info!("events of events.k8s.io are forbidden; sending core events instead");
                }
            }
            Err(error) if is_forbidden(&error) => {
                let error = &refusal.unwrap_or(error) as &dyn std::error::Error;
                if state.refused.swap(true, Ordering::Relaxed) {
                    debug!(error, "cannot send an event");
                } else {
                    warn!(
                        error,
                        "events are forbidden, so none are sent; grant the operator's service account create and patch on events of events.k8s.io"
                    );
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                debug!(error, "cannot send an event");
            }
        }
    }
}

/// Whether a permission is missing. A namespace that is being deleted accepts no events either.
fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 403 && !status.message.contains("being terminated"))
}

fn type_name(event: &Event) -> &'static str {
    match event.type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

fn hash(event: &Event, reference: &ObjectReference) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&reference.uid, &reference.namespace, &reference.name).hash(&mut hasher);
    (type_name(event), &event.reason, &event.action, &event.note).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::Script;
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::runtime::events::{Event, EventType, Reporter};
    use serde_json::{Value, json};

    use super::EventSender;

    const NEW: &str = "POST /apis/events.k8s.io/v1/namespaces/ns/events";
    const CORE: &str = "POST /api/v1/namespaces/ns/events";

    fn status(code: u16, message: &str) -> Value {
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": code, "message": message})
    }

    async fn publish(script: &Script, notes: &[&str]) {
        let reporter = Reporter {
            controller: "op".to_owned(),
            instance: None,
        };
        let sender = EventSender::new(script.client(), reporter);
        let reference = ObjectReference {
            namespace: Some("ns".to_owned()),
            name: Some("one".to_owned()),
            ..ObjectReference::default()
        };
        for note in notes {
            let event = Event {
                type_: EventType::Warning,
                reason: "InstallError".to_owned(),
                note: Some((*note).to_owned()),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            sender.recorder().publish(&event, &reference).await;
        }
    }

    #[tokio::test]
    async fn core_events_are_sent_where_only_those_are_allowed() {
        let script = Script::default()
            .on(NEW, 403, status(403, "no"))
            .on(CORE, 201, json!({"metadata": {}, "involvedObject": {}}))
            .on(CORE, 201, json!({"metadata": {}, "involvedObject": {}}));
        publish(&script, &["first", "second"]).await;
        // The refused API is not asked again.
        let seen = script.finish();
        assert_eq!(seen.len(), 3);
        let body = seen[1].body.as_ref().unwrap();
        assert_eq!(body["involvedObject"]["name"], "one");
        assert_eq!(body["type"], "Warning");
        assert_eq!(body["reason"], "InstallError");
        assert_eq!(body["message"], "first");
        assert_eq!(body["source"]["component"], "op");
    }

    #[tokio::test]
    async fn a_namespace_that_is_being_deleted_does_not_switch_to_core_events() {
        let gone = status(403, "namespace ns is being terminated");
        let script = Script::default().on(NEW, 403, gone).on(
            NEW,
            201,
            json!({"metadata": {}, "eventTime": null}),
        );
        publish(&script, &["first", "second"]).await;
        assert_eq!(script.finish().len(), 2);
    }
}
