//! Events about custom resources: one a transition, best effort.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use super::HelmReconciler;
use super::observe::Facts;
use super::status::Status;
use crate::cluster::Primary;

impl HelmReconciler {
    /// Tells people what happened.
    pub(super) async fn event(
        &self,
        facts: &Facts,
        warning: bool,
        reason: &str,
        action: &str,
        note: String,
    ) {
        let primary = &facts.primary;
        self.event_about(primary, warning, reason, action, note)
            .await;
    }

    /// Tells what has come to be true of a custom resource.
    pub(super) async fn tell_transitions(&self, primary: &Primary, status: &Status) {
        for (warning, reason, message) in &status.transitions {
            self.event_about(primary, *warning, reason, "Reconcile", message.clone())
                .await;
        }
    }

    async fn event_about(
        &self,
        primary: &Primary,
        warning: bool,
        reason: &str,
        action: &str,
        note: String,
    ) {
        let reference = ObjectReference {
            api_version: Some(primary.gvk.api_version()),
            kind: Some(primary.gvk.kind.clone()),
            namespace: primary.namespace.clone(),
            name: Some(primary.name.clone()),
            uid: Some(primary.uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: if warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.to_owned(),
            // The API server takes 1 KiB.
            note: Some(note.chars().take(1000).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.manager.recorder.publish(&event, &reference).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "an event could not be sent"
            );
        }
    }
}
