//! The objects that tell the API server which requests to send where: two webhook configurations,
//! and the conversions in definitions of kinds. Pure.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use super::builder::Verb;
use super::{FailurePolicy, Hook, objects};

/// Label of configurations, with the name of the operator that applies them.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Annotation that makes cert-manager fill in the bundle.
const INJECT_CA_FROM: &str = "cert-manager.io/inject-ca-from";
/// Seconds that the API server waits for an answer.
const TIMEOUT: u8 = 10;

/// Address of the webhooks for the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// Through a Service, on port 443.
    Service { namespace: String, name: String },
    /// Under a URL without a path.
    Url(String),
}

impl Address {
    fn client(&self, path: &str, trust: &Trust) -> Value {
        let mut client = match self {
            Self::Service { namespace, name } => {
                let service =
                    json!({"namespace": namespace, "name": name, "path": path, "port": 443});
                json!({"service": service})
            }
            Self::Url(url) => json!({"url": format!("{url}{path}")}),
        };
        if let (Trust::Bundle(pem), Some(client)) = (trust, client.as_object_mut()) {
            client.insert("caBundle".to_owned(), BASE64.encode(pem.as_bytes()).into());
        }
        client
    }
}

/// Authorities that make the API server trust the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// These authorities, in PEM.
    Bundle(String),
    /// Somebody else fills in the authorities: cert-manager, from the certificate with this name.
    Injected(Option<String>),
}

impl Trust {
    fn annotations(&self) -> Option<Value> {
        match self {
            Self::Injected(Some(from)) => Some(json!({INJECT_CA_FROM: from})),
            _ => None,
        }
    }
}

/// Settings that the configurations are made of.
pub(super) struct Setup<'a> {
    pub(super) operator: &'a str,
    /// Namespaces whose objects are sent; all when empty.
    pub(super) namespaces: &'a [String],
    pub(super) address: &'a Address,
    pub(super) trust: &'a Trust,
    pub(super) failure_policy: FailurePolicy,
}

impl Setup<'_> {
    /// Name of both webhook configurations.
    pub(super) fn name(&self) -> String {
        format!("{}-webhooks", self.operator)
    }

    /// Returns a `ValidatingWebhookConfiguration` or a `MutatingWebhookConfiguration`.
    pub(super) fn configuration(&self, kind: &str, hooks: &[&Hook]) -> Value {
        let webhooks: Vec<Value> = hooks.iter().map(|hook| self.webhook(hook)).collect();
        let mut metadata = json!({"name": self.name(), "labels": {MANAGED_BY: self.operator}});
        set(&mut metadata, "annotations", self.trust.annotations());
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": metadata, "webhooks": webhooks,
        })
    }

    fn webhook(&self, hook: &Hook) -> Value {
        let kind = &hook.kind;
        let rule = json!({
            "apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural],
            "operations": hook.operations(), "scope": if hook.namespaced { "Namespaced" } else { "Cluster" },
        });
        let mut webhook = json!({
            "name": hook.name(),
            "clientConfig": self.address.client(&hook.path(), self.trust),
            "rules": [rule],
            "admissionReviewVersions": ["v1"],
            "failurePolicy": hook.failure_policy.unwrap_or(self.failure_policy).as_str(),
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT,
        });
        if hook.verb == Verb::Admit {
            let conditions = objects::match_conditions();
            set(&mut webhook, "matchConditions", Some(conditions));
            set(
                &mut webhook,
                "timeoutSeconds",
                Some(objects::TIMEOUT.into()),
            );
        }
        let selected = (hook.namespaced && !self.namespaces.is_empty()).then(|| {
            let names = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": self.namespaces});
            json!({"matchExpressions": [names]})
        });
        // An empty selector is the default; applied, it removes the namespaces of an earlier start.
        set(
            &mut webhook,
            "namespaceSelector",
            Some(selected.unwrap_or_else(|| json!({}))),
        );
        webhook
    }

    /// Returns the conversion of a `CustomResourceDefinition`.
    pub(super) fn conversion(&self, definition: &str, path: &str) -> Value {
        let mut metadata = json!({"name": definition});
        set(&mut metadata, "annotations", self.trust.annotations());
        let webhook = json!({
            "clientConfig": self.address.client(path, self.trust), "conversionReviewVersions": ["v1"],
        });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
        })
    }
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let (Some(value), Some(fields)) = (value, object.as_object_mut()) {
        fields.insert(field.to_owned(), value);
    }
}

/// Whether an object has everything that is wanted, and no webhook of `manager` beside it.
pub(super) fn is_current(live: &Value, wanted: &Value, manager: &str) -> bool {
    contains(live, wanted) && applied_webhooks(live, manager).is_subset(&names(wanted))
}

/// Whether `live` has everything that is in `wanted`. Webhooks are compared by name.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        // A selector that selects everything is not one that selects something.
        (Value::Object(live), Value::Object(wanted)) if wanted.is_empty() => live.is_empty(),
        (Value::Object(live), Value::Object(wanted)) => {
            let has = |(name, wanted): (&String, &Value)| match live.get(name) {
                Some(live) => contains(live, wanted),
                None => is_empty(wanted),
            };
            // A client has either a URL or a service.
            let instead = |ours, other| wanted.contains_key(ours) && live.contains_key(other);
            wanted.iter().all(has) && !instead("url", "service") && !instead("service", "url")
        }
        (Value::Array(live), Value::Array(wanted)) if is_keyed(wanted) => {
            let named = |name: Option<&Value>| live.iter().find(|item| item.get("name") == name);
            wanted
                .iter()
                .all(|item| named(item.get("name")).is_some_and(|live| contains(live, item)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| contains(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn is_keyed(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| item.get("name").is_some())
}

fn names(configuration: &Value) -> BTreeSet<String> {
    let webhooks = configuration.get("webhooks").and_then(Value::as_array);
    let named = webhooks
        .into_iter()
        .flatten()
        .filter_map(|webhook| webhook.get("name")?.as_str());
    named.map(ToOwned::to_owned).collect()
}

/// Names of the webhooks that `manager` has applied, from the managed fields.
fn applied_webhooks(live: &Value, manager: &str) -> BTreeSet<String> {
    let entries = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let ours = entries.into_iter().flatten().filter(|entry| {
        entry.get("manager").and_then(Value::as_str) == Some(manager)
            && entry.get("operation").and_then(Value::as_str) == Some("Apply")
    });
    let fields = ours.filter_map(|entry| entry.pointer("/fieldsV1/f:webhooks")?.as_object());
    let keys = fields
        .flat_map(Map::keys)
        .filter_map(|key| key.strip_prefix("k:"))
        .filter_map(|key| serde_json::from_str::<Value>(key).ok());
    keys.filter_map(|key| Some(key.get("name")?.as_str()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests;
