//! Requests of verbs to the operator, and the fields of the status that acknowledge them.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::Verb;
use crate::cluster::{Kind, condition};

/// Prefix of the annotations of operators.
const PREFIX: &str = "helm.sdk.operatorframework.io/";

/// A change of an annotation.
pub(super) struct Request {
    pub(super) annotation: String,
    /// New value; `None` removes the annotation.
    pub(super) value: Option<String>,
    handled: Handled,
}

/// Acknowledgement of a request in the status.
#[derive(Clone, Copy)]
enum Handled {
    /// A field of `status.handled` has the value.
    Field(&'static str),
    /// A field of `status.handled` has the value, or nothing has failed.
    FieldOrSound(&'static str),
    /// `Paused` is true.
    Paused,
    /// `Paused` is not true, and there is `Ready`, which a custom resource lacks that was paused from the start.
    Resumed,
    /// There is a release.
    Release,
}

impl Request {
    pub(super) fn of(verb: &Verb, kind: &Kind) -> Self {
        let now = || Some(Timestamp::now().strftime("%FT%TZ").to_string());
        let pause = kind
            .watch
            .as_ref()
            .and_then(|watch| watch.pause_annotation.clone());
        let (name, value, handled) = match verb {
            Verb::Retry(_) => ("reset-at", now(), Handled::FieldOrSound("resetAt")),
            Verb::Reconcile(_) => ("reconcile-at", now(), Handled::Field("reconcileAt")),
            Verb::Force(_) => ("force-at", now(), Handled::Field("forceAt")),
            Verb::Pause(_) => ("paused", Some("true".to_owned()), Handled::Paused),
            Verb::Resume(_) => ("paused", None, Handled::Resumed),
            Verb::Adopt(adopt) => {
                let by = adopt.by.clone().unwrap_or_else(|| "true".to_owned());
                ("adopt-release", Some(by), Handled::Release)
            }
        };
        let own = format!("{PREFIX}{name}");
        Self {
            annotation: if name == "paused" {
                pause.unwrap_or(own)
            } else {
                own
            },
            value,
            handled,
        }
    }

    /// Returns the arguments of `kubectl annotate` after the name.
    pub(super) fn kubectl(&self) -> String {
        match &self.value {
            Some(value) => format!("--overwrite {}={value}", self.annotation),
            None => format!("{}-", self.annotation),
        }
    }

    /// Returns whether the status of a custom resource says that the request was handled.
    pub(super) fn is_handled(&self, resource: &DynamicObject) -> bool {
        let has = |field: &str| {
            let handled = resource.data.pointer(&format!("/status/handled/{field}"));
            handled.and_then(Value::as_str) == self.value.as_deref()
        };
        let is_true = |type_: &str| {
            condition(resource, type_)
                .is_some_and(|found| found.get("status") == Some(&"True".into()))
        };
        match self.handled {
            Handled::Field(field) => has(field),
            Handled::FieldOrSound(field) => has(field) || is_true("Ready"),
            Handled::Paused => is_true("Paused"),
            Handled::Resumed => !is_true("Paused") && condition(resource, "Ready").is_some(),
            Handled::Release => resource.data.pointer("/status/release").is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_says_whether_a_request_was_handled() {
        let condition =
            |type_: &str, status: &str| json!({"conditions": [{"type": type_, "status": status}]});
        for (handled, status, expected) in [
            (
                Handled::Field("forceAt"),
                json!({"handled": {"forceAt": "now"}}),
                true,
            ),
            (
                Handled::Field("forceAt"),
                json!({"handled": {"forceAt": "then"}}),
                false,
            ),
            (Handled::Field("forceAt"), condition("Ready", "True"), false),
            (
                Handled::FieldOrSound("resetAt"),
                condition("Ready", "True"),
                true,
            ),
            (
                Handled::FieldOrSound("resetAt"),
                condition("Ready", "False"),
                false,
            ),
            (Handled::Paused, condition("Paused", "True"), true),
            (Handled::Paused, json!({}), false),
            (Handled::Resumed, condition("Ready", "False"), true),
            (Handled::Resumed, condition("Paused", "False"), false),
            (Handled::Resumed, condition("Paused", "True"), false),
            (Handled::Release, json!({"release": {"name": "main"}}), true),
            (Handled::Release, condition("Irreconcilable", "True"), false),
        ] {
            let request = Request {
                annotation: "a".to_owned(),
                value: Some("now".to_owned()),
                handled,
            };
            let resource = json!({"apiVersion": "g/v1", "kind": "Shop", "metadata": {"name": "main"}, "status": status});
            let resource = serde_json::from_value(resource).unwrap();
            assert_eq!(request.is_handled(&resource), expected, "{status}");
        }
    }
}
