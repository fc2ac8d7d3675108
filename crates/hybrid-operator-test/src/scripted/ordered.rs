//! A scripted API server that expects requests in order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Answer, ScriptedApi, When, discovery};
use crate::fault::Faults;
use crate::request::Recorded;

/// A scripted API server that expects exactly these requests, in this order. Clones share it.
///
/// [`ScriptedApi`] answers by rules; this one also checks what is sent.
///
/// ```
/// use hybrid_operator_test::scripted::{Script, failure};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::{Api, PostParams};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let script = Script::new()
///     .on(
///         "GET /api/v1/namespaces/shop/configmaps/settings",
///         404,
///         failure(404, "NotFound", "not found", &json!({})),
///     )
///     .on(
///         "POST /api/v1/namespaces/shop/configmaps",
///         201,
///         json!({"metadata": {"name": "settings", "uid": "u1"}}),
///     );
///
/// let config_maps: Api<ConfigMap> = Api::namespaced(script.client(), "shop");
/// assert!(config_maps.get_opt("settings").await?.is_none());
/// config_maps.create(&PostParams::default(), &ConfigMap::default()).await?;
///
/// let requests = script.finish();
/// assert_eq!(requests[1].json()["metadata"], json!({}));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Script {
    api: ScriptedApi,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    expected: VecDeque<Expected>,
    seen: Vec<Recorded>,
    unexpected: Vec<String>,
    unordered: bool,
    discovery: bool,
}

#[derive(Debug)]
struct Expected {
    /// Method and path, such as `GET /version`.
    request: String,
    answer: Answer,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("api", &self.api)
            .finish_non_exhaustive()
    }
}

impl Default for Script {
    fn default() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let api = ScriptedApi::new();
        let answering = Arc::clone(&state);
        let answer = Answer::with(move |request| answering.lock().answer(request));
        api.on(When::any(), answer);
        Self { api, state }
    }
}

impl Script {
    /// Creates a script that expects no request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects `METHOD /path` next and responds with this HTTP status and JSON. The query is not
    /// compared.
    #[must_use]
    pub fn on(self, request: &str, status: u16, body: Value) -> Self {
        self.expect(request, status, body);
        self
    }

    /// Expects `METHOD /path` next and responds with this HTTP status and plain text, such as the log
    /// of a Pod.
    #[must_use]
    pub fn on_text(self, request: &str, status: u16, text: &str) -> Self {
        self.push(request, Answer::text(status, text));
        self
    }

    /// Does what [`Script::on`] does, for a script whose client is in use.
    pub fn expect(&self, request: &str, status: u16, body: Value) {
        self.push(request, Answer::json(status, body));
    }

    fn push(&self, request: &str, answer: Answer) {
        self.state.lock().expected.push_back(Expected {
            request: request.to_owned(),
            answer,
        });
    }

    /// Accepts the expected requests in any order. Expectations of the same request are used in
    /// the order in which they were added.
    #[must_use]
    pub fn in_any_order(self) -> Self {
        self.state.lock().unordered = true;
        self
    }

    /// Serves discovery documents without expecting requests for them: `ConfigMap`, `Event`,
    /// `Namespace`, `Secret` and `Service`, `apps/v1 Deployment`, `batch/v1 Job`, `ClusterRole`,
    /// `CustomResourceDefinition`, and `example.com/v1 Thing` as a custom resource.
    pub fn serve_discovery(&self) {
        self.state.lock().discovery = true;
    }

    /// Returns a client of this server with the default namespace `default`. Like every client, it
    /// belongs to the runtime in which it is created.
    pub fn client(&self) -> Client {
        self.api.client("default")
    }

    /// Returns the planned faults of all clients of this server. A request that a fault keeps from
    /// the server does not count as seen.
    pub fn faults(&self) -> &Faults {
        self.api.faults()
    }

    /// Returns all requests so far, oldest first, without those for discovery.
    ///
    /// # Panics
    ///
    /// If another request than the expected one was sent, or an expected one was not.
    #[track_caller]
    pub fn finish(&self) -> Vec<Recorded> {
        let state = self.state.lock();
        let unknown = &state.unexpected;
        assert!(unknown.is_empty(), "unexpected requests: {unknown:#?}");
        let missing = &state.expected;
        assert!(missing.is_empty(), "missing requests: {missing:#?}");
        state.seen.clone()
    }
}

impl State {
    fn answer(&mut self, request: &Recorded) -> Answer {
        if self.discovery
            && let Some(document) = discovery::document(&request.path)
        {
            return Answer::json(200, document);
        }
        self.seen.push(request.clone());
        let line = format!("{} {}", request.method, request.path);
        let candidates = if self.unordered { usize::MAX } else { 1 };
        let mut candidates = self.expected.iter().take(candidates);
        let position = candidates.position(|expected| expected.request == line);
        if let Some(expected) = position.and_then(|at| self.expected.remove(at)) {
            return expected.answer;
        }
        let next = self.expected.front();
        let next = next.map_or("no request", |expected| &expected.request);
        let message = format!("{line}; expected {next}");
        let answer = Answer::status(501, "NotScripted", &message);
        self.unexpected.push(message);
        answer
    }
}

/// Returns the `Status` object of a failure, with these `details`.
pub fn failure(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message, "details": details,
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::Api;
    use kube::discovery::Discovery;

    use super::*;
    use crate::fault::Fault;

    fn one(name: &str) -> String {
        format!("GET /api/v1/namespaces/default/configmaps/{name}")
    }

    fn named(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    async fn get(script: &Script, name: &str) -> bool {
        let api: Api<ConfigMap> = Api::default_namespaced(script.client());
        api.get(name).await.is_ok()
    }

    fn fails(script: &Script) -> String {
        let panicked = catch_unwind(std::panic::AssertUnwindSafe(|| script.finish())).unwrap_err();
        panicked.downcast_ref::<String>().unwrap().clone()
    }

    #[tokio::test]
    async fn expected_requests_are_answered_in_order_and_returned() {
        let script = Script::new().on(&one("a"), 200, named("a"));
        script.expect(&one("b"), 200, named("b"));
        assert!(get(&script, "a").await && get(&script, "b").await);
        let names: Vec<_> = script.finish().into_iter().map(|seen| seen.name).collect();
        assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned())]);
    }

    #[tokio::test]
    async fn a_request_before_its_turn_is_rejected_unless_any_order_is_accepted() {
        let script = || {
            let script = Script::new().on(&one("a"), 200, named("a"));
            script.on(&one("b"), 200, named("b"))
        };
        let ordered = script();
        assert!(!get(&ordered, "b").await);
        assert!(fails(&ordered).contains("configmaps/b; expected GET"));

        let unordered = script().in_any_order();
        assert!(get(&unordered, "b").await && get(&unordered, "a").await);
        assert_eq!(unordered.finish().len(), 2);
        assert!(!get(&unordered, "c").await);
        assert!(fails(&unordered).contains("configmaps/c; expected no request"));
    }

    #[tokio::test]
    async fn an_expected_request_that_is_not_sent_is_reported() {
        let script = Script::new().on(&one("a"), 200, named("a"));
        assert!(fails(&script).contains("missing requests"));
        // The fault keeps the request from the server.
        script.faults().at(1, Fault::Unreachable, |_| true);
        assert!(!get(&script, "a").await);
        assert!(fails(&script).contains("missing requests"));
        assert!(get(&script, "a").await);
        assert_eq!(script.finish().len(), 1);
    }

    #[tokio::test]
    async fn discovery_is_served_beside_the_expected_requests() {
        let script = Script::new();
        let ask = || Discovery::new(script.client()).run_aggregated().boxed();
        assert!(ask().await.is_err());

        let script = Script::new();
        script.serve_discovery();
        let found = Discovery::new(script.client()).run_aggregated().await;
        let found = found.unwrap();
        assert!(found.has_group("example.com") && found.has_group("apps"));
        assert!(script.finish().is_empty());
    }
}
