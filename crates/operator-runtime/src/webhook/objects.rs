//! Validation of objects whose kinds are known only while the process runs, as those of charts are.
//!
//! All requests go to one path, and the function gets the objects as JSON. It is called for objects that are
//! created, and for those whose `spec` is changed: never for one that is being deleted, nor because of its
//! metadata or its status. Whoever mends such an object is therefore never in the way of its finalizers. The
//! API server itself leaves out the other requests (`matchConditions`), so that they also pass while no replica
//! answers.

use std::time::Duration;

use futures::stream;
use host::watch;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::admission::{self, Answer};
use super::builder::{FailurePolicy, Hook, Verb};
use super::changes::Changes;
use super::request::{Denied, Request};

/// Path of all these validations.
pub(super) const PATH: &str = "/admit";

/// Seconds that the API server waits for an answer.
pub(super) const TIMEOUT: u8 = 5;

/// Time limit of the function.
const DEADLINE: Duration = Duration::from_secs(4);

/// A kind whose objects are validated.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectWebhook {
    /// The kind.
    pub kind: ApiResource,
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// Policy while no replica answers.
    pub failure_policy: FailurePolicy,
}

/// Validates objects of kinds that may change while the process runs. Clones share the kinds.
#[derive(Clone)]
pub struct ObjectWebhooks {
    /// `None` until kinds are set for the first time.
    kinds: watch::Sender<Option<Vec<ObjectWebhook>>>,
    answer: Answer,
}

impl ObjectWebhooks {
    /// Calls a function for every object of the kinds that is created, or whose spec is changed. An error
    /// denies the request.
    pub fn new<F, Fut>(function: F) -> Self
    where
        F: Fn(Request<Value>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        let only_specs = move |request: Request<Value>| {
            let called = changes_spec(request.object(), request.old()).then(|| function(request));
            async move {
                match called {
                    Some(answer) => answer.await,
                    None => Ok(()),
                }
            }
        };
        Self {
            kinds: watch::Sender::new(None),
            answer: admission::validation(only_specs, DEADLINE),
        }
    }

    /// Sets the kinds. From the first call on the webhooks are served, even if no kind is left later.
    pub fn set(&self, kinds: Vec<ObjectWebhook>) {
        self.kinds.send_replace(Some(kinds));
    }

    /// Serves the webhooks even if no kind is known yet.
    pub fn expect_kinds(&self) {
        if !self.are_expected() {
            self.set(Vec::new());
        }
    }

    /// Returns whether the webhooks are to be served.
    pub(crate) fn are_expected(&self) -> bool {
        self.kinds.subscribe().borrow().is_some()
    }

    /// Waits until the webhooks are to be served.
    pub(crate) async fn expected(&self) {
        let mut kinds = self.kinds.subscribe();
        // There is a sender.
        let _ = kinds.wait_for(Option::is_some).await;
    }

    /// Yields whenever the kinds change.
    pub(super) fn changes(&self) -> Changes {
        let kinds = self.kinds.subscribe();
        let changed = async |mut kinds: watch::Receiver<_>| {
            kinds.changed().await.ok()?;
            Some(((), kinds))
        };
        Box::pin(stream::unfold(kinds, changed))
    }

    pub(super) fn answer(&self) -> Answer {
        Answer::clone(&self.answer)
    }

    pub(super) fn hooks(&self) -> Vec<Hook> {
        let kinds = self.kinds.subscribe();
        let kinds = kinds.borrow();
        let kinds = kinds.iter().flatten();
        let hook = |webhook: &ObjectWebhook| Hook {
            verb: Verb::Admit,
            kind: webhook.kind.clone(),
            namespaced: webhook.namespaced,
            failure_policy: Some(webhook.failure_policy),
            answer: self.answer(),
        };
        kinds.map(hook).collect()
    }
}

/// Returns whether the spec of an object is new, unless it is being deleted.
fn changes_spec(object: &Value, old: Option<&Value>) -> bool {
    let deletes = object.pointer("/metadata/deletionTimestamp").is_some();
    !deletes && old.is_none_or(|old| old.get("spec") != object.get("spec"))
}

/// The requests that the API server sends: those for which [`changes_spec`] is true.
pub(super) fn match_conditions() -> Value {
    let deletes = "has(object.metadata.deletionTimestamp)";
    let changed = "oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec";
    json!([
        {"name": "is-not-deleted", "expression": format!("!{deletes}")},
        {"name": "changes-spec", "expression": changed},
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::changes_spec;

    #[test]
    fn only_a_new_spec_of_an_object_that_stays_is_judged() {
        let object = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
        let (one, two) = (object(json!({"size": 1})), object(json!({"size": 2})));
        let mut labelled = one.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        labelled["status"] = json!({"ready": true});
        let mut deleted = two.clone();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(changes_spec(&one, None));
        assert!(changes_spec(&two, Some(&one)));
        assert!(changes_spec(&json!({"metadata": {}}), Some(&one)));
        assert!(!changes_spec(&one, Some(&one)));
        assert!(!changes_spec(&labelled, Some(&one)));
        assert!(!changes_spec(&deleted, Some(&one)));
    }
}
