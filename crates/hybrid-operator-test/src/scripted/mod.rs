//! An API server inside the test process that responds according to a script, for tests without a
//! control plane: [`ScriptedApi`] by rules, [`Script`] to exactly the requests that it expects.
//!
//! ```
//! use hybrid_operator_test::fault::Fault;
//! use hybrid_operator_test::scripted::{Answer, When, ScriptedApi};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, PostParams};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let api = ScriptedApi::new();
//! api.on(When::get("/api/v1/namespaces/*/configmaps/settings"), Answer::not_found());
//! api.on(When::post("/api/v1/namespaces/*/configmaps"), Answer::echo(201));
//!
//! let config_maps: Api<ConfigMap> = Api::default_namespaced(api.client("shop"));
//! assert!(config_maps.get_opt("settings").await?.is_none());
//! let created = config_maps.create(&PostParams::default(), &ConfigMap::default()).await?;
//! assert!(created.metadata.uid.is_some());
//!
//! // The second create is executed, but its response is lost.
//! api.faults().at(1, Fault::AnswerLost, |request| request.verb == "create");
//! assert!(config_maps.create(&PostParams::default(), &ConfigMap::default()).await.is_err());
//!
//! assert_eq!(api.counts()["create configmaps"], 2);
//! assert!(api.unexpected().is_empty());
//! # Ok(())
//! # }
//! ```

mod answer;
mod discovery;
mod ordered;
mod when;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tower::{BoxError, ServiceBuilder, service_fn};

pub use answer::Answer;
pub use ordered::{Script, failure};
pub use when::When;

use crate::fault::{AnswerBody, Faults};
use crate::request::Recorded;

/// An API server that responds according to a script. Clones share it.
///
/// The first rule that matches a request and is not used up determines the response. A request
/// without a rule gets 501 and is recorded in [`ScriptedApi::unexpected`].
#[derive(Clone, Default)]
pub struct ScriptedApi {
    rules: Arc<Mutex<Rules>>,
    faults: Faults,
}

#[derive(Default)]
struct Rules {
    list: Vec<Rule>,
    unexpected: Vec<Recorded>,
    /// Number of requests so far, which is the resourceVersion of echoed objects.
    handled: u64,
}

struct Rule {
    when: When,
    answer: Answer,
    used: usize,
}

impl fmt::Debug for ScriptedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedApi")
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

impl ScriptedApi {
    /// Creates a server without rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule after the existing ones.
    pub fn on(&self, when: When, answer: Answer) -> &Self {
        self.rules.lock().list.push(Rule {
            when,
            answer,
            used: 0,
        });
        self
    }

    /// Returns a client of this server with the default namespace `namespace`. Like every client,
    /// it belongs to the runtime in which it is created.
    pub fn client(&self, namespace: &str) -> Client {
        let rules = Arc::clone(&self.rules);
        let answer = service_fn(move |request: Request<Body>| {
            let handled = rules.lock().answer(&Recorded::of(&request));
            std::future::ready(handled)
        });
        let service = ServiceBuilder::new().layer(self.faults.layer());
        Client::new(service.service(answer), namespace)
    }

    /// Returns the planned faults of all clients of this server.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the requests so far, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        self.faults.requests()
    }

    /// Counts the requests so far by `verb resource`.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.faults.counts()
    }

    /// Returns the requests that matched no rule.
    pub fn unexpected(&self) -> Vec<Recorded> {
        self.rules.lock().unexpected.clone()
    }
}

impl Rules {
    fn answer(&mut self, request: &Recorded) -> Result<Response<AnswerBody>, BoxError> {
        self.handled += 1;
        let mut rules = self.list.iter_mut();
        if let Some(rule) = rules.find(|rule| rule.when.matches(request, rule.used)) {
            rule.used += 1;
            return rule.answer.respond(request, self.handled);
        }
        self.unexpected.push(request.clone());
        let Recorded { method, path, .. } = request;
        let message = format!("the script has no rule for {method} {path}");
        Answer::status(501, "NotScripted", &message).respond(request, self.handled)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures::TryStreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
    use serde_json::json;

    use super::*;
    use crate::fault::Fault;

    const ANY: &str = "/api/v1/namespaces/a/configmaps/*";

    fn config_maps(api: &ScriptedApi) -> Api<ConfigMap> {
        Api::default_namespaced(api.client("a"))
    }

    async fn apply(api: &ScriptedApi, manager: &str) -> Result<ConfigMap, kube::Error> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}});
        let params = PatchParams::apply(manager).force();
        let config_maps = config_maps(api);
        config_maps.patch("b", &params, &Patch::Apply(object)).await
    }

    #[tokio::test]
    async fn rules_apply_in_order_until_they_are_used_up() {
        let api = ScriptedApi::new();
        api.on(When::get(ANY).times(1), Answer::not_found());
        let found = json!({"metadata": {"name": "b"}});
        api.on(When::get(ANY), Answer::json(200, found));
        let config_maps = config_maps(&api);
        assert!(config_maps.get_opt("b").await.unwrap().is_none());
        assert!(config_maps.get_opt("b").await.unwrap().is_some());
        let counts = BTreeMap::from([("get configmaps".to_owned(), 2)]);
        assert_eq!(api.counts(), counts);
    }

    #[tokio::test]
    async fn a_request_without_a_rule_is_rejected_and_recorded() {
        let api = ScriptedApi::new();
        let error = config_maps(&api).get("b").await.unwrap_err();
        let words = "no rule for GET /api/v1/namespaces/a/configmaps/b";
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(api.unexpected().len(), 1);
    }

    #[tokio::test]
    async fn rules_can_match_the_query_and_echo_applied_objects() {
        let api = ScriptedApi::new();
        let by = |manager| When::patch(ANY).query("fieldManager", manager);
        api.on(by("other"), Answer::conflict());
        api.on(by("helm"), Answer::echo(201));
        let applied = apply(&api, "helm").await.unwrap();
        assert_eq!(applied.metadata.name.as_deref(), Some("b"));
        assert_eq!(applied.metadata.namespace.as_deref(), Some("a"));
        assert!(applied.metadata.uid.is_some() && applied.metadata.resource_version.is_some());
        let error = apply(&api, "other").await;
        assert!(matches!(error.unwrap_err(), kube::Error::Api(status) if status.code == 409));
        assert_eq!(api.requests()[0].body.as_ref().unwrap()["data"]["k"], "v");
    }

    #[tokio::test]
    async fn after_a_stop_all_requests_fail_until_the_faults_are_removed() {
        let api = ScriptedApi::new();
        api.on(When::any(), Answer::echo(200));
        let write = || apply(&api, "helm");
        let faults = api.faults();
        faults.stop_at(2, Fault::Unreachable, Recorded::is_write);
        assert!(write().await.is_ok());
        assert!(!api.faults().was_injected());
        assert!(write().await.is_err());
        assert!(api.faults().was_injected());
        assert!(config_maps(&api).get("b").await.is_err());
        api.faults().clear_faults();
        assert!(write().await.is_ok());
        let faults: Vec<_> = api.requests().iter().map(|request| request.fault).collect();
        let fault = Some(Fault::Unreachable);
        assert_eq!(faults, [None, fault, fault, None]);
    }

    #[tokio::test]
    async fn a_status_fault_is_a_response_of_the_server() {
        let api = ScriptedApi::new();
        api.on(When::any(), Answer::not_found());
        api.faults().at(1, Fault::Status(503), |_| true);
        let error = config_maps(&api).get("b").await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 503));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_sends_its_events_and_stays_open() {
        let api = ScriptedApi::new();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "resourceVersion": "7"}});
        let watch = When::get("/api/v1/namespaces/a/configmaps").query("watch", "true");
        api.on(watch, Answer::watch([("ADDED", object)]));
        let config_maps = config_maps(&api);
        let events = config_maps.watch(&WatchParams::default(), "0").await;
        let mut events = pin!(events.unwrap());
        let event = events.try_next().await.unwrap();
        assert!(matches!(event, Some(WatchEvent::Added(_))));
        let next = tokio::time::timeout(Duration::from_mins(1), events.try_next());
        assert!(next.await.is_err());
    }

    #[tokio::test]
    async fn a_response_can_be_computed_from_the_request() {
        let api = ScriptedApi::new();
        let named = |request: &Recorded| json!({"metadata": {"name": request.name}});
        let answer = Answer::with(move |request| Answer::json(200, named(request)));
        api.on(When::get(ANY), answer);
        let found = config_maps(&api).get("x").await.unwrap();
        assert_eq!(found.metadata.name.as_deref(), Some("x"));
    }
}
