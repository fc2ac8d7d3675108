//! Follows the definitions of kinds, so that new ones are noticed at once and not only when what is
//! known of the cluster has aged.
//!
//! Two watches, of `CustomResourceDefinitions` and `APIServices`, by metadata alone, opened when
//! somebody wants to know of changes. Nothing is kept of the objects.
//!
//! RBAC: `list` and `watch` on `customresourcedefinitions` and `apiservices`. Without it everything
//! is asked for again every ten minutes.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use tokio::sync::watch;
use tracing::{debug, info};

use super::follow::{Follower, Lists, Subject, WatchState, follow, metadata};
use crate::cluster::Cluster;
use crate::telemetry::metrics::WatchMetrics;

/// How long after a definition has changed what is served is asked for: soon, and once more when
/// every API server has noticed, for a definition is served a while after it is accepted.
const LOOKS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(6)];

/// How often what is served is asked for where definitions cannot be watched.
const AGE: Duration = Duration::from_mins(10);

/// What the two watches have shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shown {
    /// Counts changes.
    changes: u64,
    /// Whether one of the watches is not permitted.
    refused: bool,
}

/// Takes in what one of the watches shows.
struct Reader {
    cluster: Cluster,
    subject: Subject,
    shown: watch::Sender<Shown>,
}

impl Follower for Reader {
    type Object = ObjectMeta;

    fn event(&mut self, event: watcher::Event<ObjectMeta>) {
        match event {
            watcher::Event::Init | watcher::Event::InitApply(_) => return,
            // What has changed before the watch began anew is told of by no event.
            watcher::Event::InitDone => {}
            watcher::Event::Apply(definition) | watcher::Event::Delete(definition) => {
                let name = definition.name.unwrap_or_default();
                self.cluster.group_changed(group_of(&name));
            }
        }
        self.shown.send_modify(|shown| shown.changes += 1);
    }

    fn state(&mut self, state: &WatchState) {
        if !matches!(state, WatchState::Forbidden(_) | WatchState::Missing) {
            return;
        }
        let first = self.shown.send_if_modified(|shown| {
            let first = !shown.refused;
            shown.refused = true;
            first
        });
        if first {
            let problem = self.subject.problem(state);
            info!(problem, every = ?AGE, "the kinds that the cluster serves are asked for from time to time: their definitions cannot be watched");
        }
    }
}

/// The group in the name of a definition, `things.example.com` or `v1.example.com`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

/// Follows the definitions until the future is dropped, once somebody wants to know of changes.
pub(crate) async fn follow_definitions(cluster: Cluster, metrics: WatchMetrics) {
    cluster.discovery().wanted().await;
    let shown = watch::Sender::new(Shown::default());
    let kinds = [
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
    ];
    let watches = kinds.map(|(group, kind)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let subject = Subject {
            optional: true,
            ..Subject::new(resource, None)
        };
        let reader = Reader {
            cluster: cluster.clone(),
            subject: subject.clone(),
            shown: shown.clone(),
        };
        let (client, of) = (cluster.client().clone(), subject.clone());
        let open = move |lists| metadata(&client, &of, lists, None);
        follow(subject, metrics.clone(), Lists::Streaming, open, reader)
    });
    tokio::join!(join_all(watches), look(&cluster, shown.subscribe()));
}

/// Asks for what is served whenever it may have changed.
async fn look(cluster: &Cluster, mut shown: watch::Receiver<Shown>) {
    loop {
        let refused = shown.borrow().refused;
        tokio::select! {
            changed = shown.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(AGE), if refused => {}
        }
        for pause in LOOKS {
            tokio::time::sleep(pause).await;
            if let Err(error) = cluster.discovery().refresh().await {
                // The next question is asked anyway by whoever needs an answer.
                debug!(
                    error = &error as &dyn std::error::Error,
                    "cannot ask what is served"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// A cluster that serves kinds, and tells of its definitions or refuses to.
    #[derive(Clone)]
    struct Server {
        kinds: Arc<Mutex<Vec<&'static str>>>,
        /// Events of the watch of custom resource definitions; `None` where it is not permitted.
        events: Option<watch::Sender<Option<Value>>>,
    }

    impl Server {
        fn cluster(&self) -> Cluster {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let answer = server.answer(request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            Cluster::new(Client::new(service, "default"))
        }

        fn answer(&self, path: &str) -> Response<StreamBody<Pieces>> {
            let mut status = 200;
            let (first, rest) = match path {
                "/api" => (discovery(&[]), None),
                "/apis" => (discovery(&self.kinds.lock().unwrap()), None),
                _ if self.events.is_none() => {
                    status = 403;
                    let refused = json!({"kind": "Status", "apiVersion": "v1", "code": 403,
                        "status": "Failure", "reason": "Forbidden", "message": "no"});
                    (refused, None)
                }
                path => {
                    let end = json!({"type": "BOOKMARK", "object": {
                        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                        "metadata": {"resourceVersion": "1", "annotations":
                            {"k8s.io/initial-events-end": "true"}}}});
                    let definitions = path.ends_with("/customresourcedefinitions");
                    let events = self.events.as_ref().filter(|_| definitions);
                    (end, Some(events.map(watch::Sender::subscribe)))
                }
            };
            let text = move |value: &Value| Ok(Frame::data(Bytes::from(format!("{value}\n"))));
            let first = stream::iter([text(&first)]);
            let pieces = match rest {
                None => first.boxed(),
                Some(None) => first.chain(stream::pending()).boxed(),
                Some(Some(events)) => first.chain(told(events).map(move |v| text(&v))).boxed(),
            };
            let response = Response::builder().status(status);
            response.body(StreamBody::new(pieces)).unwrap()
        }
    }

    type Pieces = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

    fn told(mut events: watch::Receiver<Option<Value>>) -> impl futures::Stream<Item = Value> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while events.changed().await.is_ok() {
                let event = events.borrow_and_update().clone();
                let _ = sender.send(event);
            }
        });
        stream::poll_fn(move |cx| receiver.poll_recv(cx)).filter_map(async |event| event)
    }

    fn discovery(kinds: &[&str]) -> Value {
        let resources: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"resource": kind, "responseKind": {"kind": kind}}))
            .collect();
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "example.com"},
            "versions": [{"version": "v1", "resources": resources}]}]})
    }

    /// Lets a cluster begin to serve a kind a while after its definition is made; how long it takes
    /// to notice.
    async fn notice(permitted: bool) -> Duration {
        let events = watch::Sender::new(None);
        let server = Server {
            kinds: Arc::new(Mutex::new(vec!["Gadget"])),
            events: permitted.then(|| events.clone()),
        };
        let cluster = server.cluster();
        cluster.discovery().refresh().await.unwrap();
        let mut changes = cluster.changes();
        let following = follow_definitions(cluster.clone(), WatchMetrics::default());
        let following = tokio::spawn(following);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(cluster.capabilities_epoch(), 0, "nothing has changed yet");
        let began = Instant::now();
        events.send_replace(Some(json!({"type": "ADDED", "object": {
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "widgets.example.com", "resourceVersion": "2"}}})));
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.kinds.lock().unwrap().push("Widget");
        let noticed = timeout(Duration::from_hours(1), changes.changed()).await;
        noticed.expect("it is noticed").unwrap();
        following.abort();
        assert_eq!(cluster.capabilities_epoch(), 1);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_kind_is_noticed_soon_after_its_definition() {
        let took = notice(true).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_permission_to_watch_definitions_a_new_kind_is_noticed_in_time() {
        let took = notice(false).await;
        assert!(took > Duration::from_mins(1) && took <= AGE, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn definitions_are_not_watched_before_somebody_wants_to_know() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let cluster = Cluster::new(Client::new(service, "default"));
        let following = follow_definitions(cluster.clone(), WatchMetrics::default());
        tokio::spawn(following);
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let _changes = cluster.changes();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn the_group_stands_behind_the_first_dot_of_a_definitions_name() {
        for (name, group) in [
            ("things.example.com", "example.com"),
            ("v1.apps", "apps"),
            ("v1beta1.metrics.k8s.io", "metrics.k8s.io"),
            ("v1.", ""),
            ("", ""),
        ] {
            assert_eq!(group_of(name), group, "{name}");
        }
    }
}
