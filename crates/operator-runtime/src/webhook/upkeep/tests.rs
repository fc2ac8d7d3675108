//! Configurations that somebody else changes, on a clock that moves by itself.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use host::watch;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;

use jiff::Timestamp;

use super::*;
use crate::webhook::certificate::HostName;
use crate::webhook::changes::of_definitions;

const NAME: &str = "jars.example.com";

type Pieces = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// An API server with one definition.
#[derive(Clone)]
struct TestServer {
    /// The definition, which is watched.
    definition: watch::Sender<Value>,
    may_watch: bool,
    /// Times at which the operator wrote the definition.
    applied: Arc<Mutex<Vec<Instant>>>,
}

impl TestServer {
    fn new(may_watch: bool) -> Self {
        Self {
            definition: watch::Sender::new(definition(1)),
            may_watch,
            applied: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn answer(&self, request: &Request<Body>) -> Response<StreamBody<Pieces>> {
        let query = request.uri().query().unwrap_or_default();
        let is_of_list = query.contains("fieldSelector=metadata.name%3Djars.example.com");
        let mut status = 200;
        let answer = match (request.method(), is_of_list) {
            (&Method::PATCH, _) => {
                self.applied.lock().push(Instant::now());
                self.definition.send_modify(|definition| {
                    definition["spec"]["conversion"] = json!({"strategy": "Webhook"});
                });
                self.definition.borrow().clone()
            }
            (&Method::GET, false) => self.definition.borrow().clone(),
            (_, true) if !self.may_watch => {
                status = 403;
                json!({"kind": "Status", "apiVersion": "v1", "code": 403, "status": "Failure",
                    "reason": "Forbidden", "message": "no"})
            }
            (_, true) if query.contains("watch=") => {
                let changes = stream::unfold(self.definition.subscribe(), async |mut all| {
                    all.changed().await.ok()?;
                    let event = json!({"type": "MODIFIED", "object": *all.borrow_and_update()});
                    Some((event, all))
                });
                let pieces = changes.map(|event| Ok(piece(&event))).boxed();
                return Response::new(StreamBody::new(pieces));
            }
            _ => json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": "1"}, "items": [*self.definition.borrow()]}),
        };
        let pieces = stream::iter([Ok(piece(&answer))]).boxed();
        let response = Response::builder().status(status);
        response.body(StreamBody::new(pieces)).unwrap()
    }

    /// Keeps the conversion while somebody replaces the definition. Returns how long it was missing.
    async fn repair(&self) -> Duration {
        let files = tempfile::tempdir().unwrap();
        let policy = Policy {
            names: vec![HostName::Dns("hooks.ns.svc".to_owned())],
            lifetime: Duration::from_hours(24),
        };
        let first = policy.first(Timestamp::now()).unwrap();
        for (name, text) in [("tls.crt", first.certificate), ("tls.key", first.key)] {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        let client = self.client();
        let kind = "CustomResourceDefinition";
        let conversion = json!({"spec": {"conversion": {"strategy": "Webhook"}}});
        let upkeep = Upkeep {
            source: Source::Files {
                directory: files.path().to_owned(),
                trust: Trust::Injected(None),
            },
            wanted: vec![Wanted {
                object: Object::of(&client, "apiextensions.k8s.io", kind, NAME),
                what: NAME.to_owned(),
                is_own: false,
                body: Box::new(move |_| Some(conversion.clone())),
            }],
            operator: "op".to_owned(),
            served: Arc::default(),
            ready: watch::Sender::new(false),
            shown: None,
            configured: None,
        };
        let changes = of_definitions(&client, [NAME]);
        let stop = CancellationToken::new();
        let running = tokio::spawn(upkeep.run(changes, stop.clone()));
        // Between two comparisons.
        tokio::time::sleep(Duration::from_secs(605)).await;
        assert_eq!(self.applied.lock().len(), 1, "nothing else differs");
        let began = Instant::now();
        self.definition.send_replace(definition(2));
        tokio::time::sleep(Duration::from_mins(10)).await;
        stop.cancel();
        running.await.unwrap();
        let applied = self.applied.lock();
        assert_eq!(applied.len(), 2, "the conversion is added again, once");
        applied[1] - began
    }
}

fn piece(value: &Value) -> Frame<Bytes> {
    Frame::data(Bytes::from(format!("{value}\n")))
}

/// The definition as its author writes it.
fn definition(generation: u32) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "generation": generation, "resourceVersion": "1"}, "spec": {},
    })
}

#[tokio::test(start_paused = true)]
async fn a_definition_without_its_conversion_is_mended_as_soon_as_that_is_seen() {
    let took = TestServer::new(true).repair().await;
    assert!(took <= CALM, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_permission_to_watch_definitions_the_next_comparison_mends_them() {
    let took = TestServer::new(false).repair().await;
    assert!(took > CALM && took <= COMPARE + CALM, "{took:?}");
}
