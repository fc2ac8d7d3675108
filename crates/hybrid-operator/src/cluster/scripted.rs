//! A scripted API server for tests: it expects requests in order, answers them, and keeps them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::Cluster;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct State {
    expected: VecDeque<(String, u16, Value)>,
    seen: Vec<Seen>,
    surprises: Vec<String>,
    /// Expected requests from this one on may arrive in any order.
    unordered: bool,
}

/// The script, shared with the client that it answers.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

impl Script {
    /// Expects `METHOD /path` next (a query is not compared) and answers it.
    pub(crate) fn on(self, request: &str, status: u16, answer: Value) -> Self {
        self.0
            .lock()
            .unwrap()
            .expected
            .push_back((request.to_owned(), status, answer));
        self
    }

    /// Lets what is expected arrive in any order.
    pub(crate) fn in_any_order(self) -> Self {
        self.0.lock().unwrap().unordered = true;
        self
    }

    /// A cluster that this script answers. Discovery is answered beside the script.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::new(self.client(true))
    }

    /// A client that this script answers.
    pub(crate) fn client(&self, discovery: bool) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move { Ok::<_, std::convert::Infallible>(script.answer(request, discovery).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>, discovery: bool) -> Response<Body> {
        let method = request.method().to_string();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        if discovery && let Some(document) = discovery_document(&path) {
            return respond(200, &document);
        }
        let mut state = self.0.lock().unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        state.seen.push(Seen {
            method: method.clone(),
            path: path.clone(),
            query,
            body,
        });
        let request = format!("{method} {path}");
        let position = state
            .expected
            .iter()
            .position(|(expected, ..)| *expected == request);
        let next = if state.unordered {
            position.unwrap_or(0)
        } else {
            0
        };
        match state.expected.remove(next) {
            Some((expected, status, answer)) if expected == request => respond(status, &answer),
            other => {
                state
                    .surprises
                    .push(format!("{request}, expected {other:?}"));
                respond(599, &json!({}))
            }
        }
    }

    /// All requests; fails if they were not the expected ones.
    pub(crate) fn finish(&self) -> Vec<Seen> {
        let state = self.0.lock().unwrap();
        assert!(
            state.surprises.is_empty(),
            "unexpected: {:?}",
            state.surprises
        );
        assert!(
            state.expected.is_empty(),
            "not requested: {:?}",
            state.expected
        );
        state.seen.clone()
    }
}

/// A failure answer.
pub(crate) fn failure(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
           "reason": reason, "message": message, "details": details})
}

fn respond(status: u16, answer: &Value) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .body(Body::from(answer.to_string().into_bytes()))
        .unwrap()
}

fn discovery_document(path: &str) -> Option<Value> {
    let resource = |plural: &str, kind: &str, scope: &str, scale: bool| {
        let subresources = if scale {
            json!([{"subresource": "scale", "responseKind": {"kind": "Scale"}},
                   {"subresource": "status", "responseKind": {"kind": kind}}])
        } else {
            json!([])
        };
        json!({"resource": plural, "responseKind": {"group": "", "version": "v1", "kind": kind},
            "scope": scope, "subresources": subresources,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update",
                      "watch"]})
    };
    let group = |name: &str, resources: Vec<Value>| {
        json!({"metadata": {"name": name}, "versions": [
            {"version": "v1", "resources": resources, "freshness": "Current"}]})
    };
    let items = match path {
        "/api" => vec![group(
            "",
            vec![
                resource("configmaps", "ConfigMap", "Namespaced", false),
                resource("events", "Event", "Namespaced", false),
                resource("namespaces", "Namespace", "Cluster", false),
                resource("secrets", "Secret", "Namespaced", false),
                resource("services", "Service", "Namespaced", false),
            ],
        )],
        "/apis" => vec![
            group(
                "apps",
                vec![resource("deployments", "Deployment", "Namespaced", true)],
            ),
            group("batch", vec![resource("jobs", "Job", "Namespaced", false)]),
            group(
                "rbac.authorization.k8s.io",
                vec![resource("clusterroles", "ClusterRole", "Cluster", false)],
            ),
            group(
                "apiextensions.k8s.io",
                vec![resource(
                    "customresourcedefinitions",
                    "CustomResourceDefinition",
                    "Cluster",
                    false,
                )],
            ),
            group(
                "example.com",
                vec![resource("things", "Thing", "Namespaced", false)],
            ),
        ],
        _ => return None,
    };
    Some(
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "items": items}),
    )
}
