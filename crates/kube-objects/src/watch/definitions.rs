//! Watches the definitions of kinds, so that new kinds are noticed at once and not only when the
//! discovery cache expires.
//!
//! Two metadata-only watches, of `CustomResourceDefinitions` and `APIServices`, are opened when
//! somebody subscribes to changes. Their objects are not stored.
//!
//! RBAC: `list` and `watch` on `customresourcedefinitions` and `apiservices`. Without it, discovery
//! is refreshed every ten minutes.

use std::time::Duration;

use futures::future::join_all;
use host::watch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use tracing::{debug, info};

use super::Restarts;
use super::follow::{Follower, Lists, WatchState, WatchTarget, follow, metadata};
use crate::Cluster;

/// Delays before the refreshes of discovery after a definition has changed: soon, and again once
/// every API server has noticed, because a definition is served some time after it is accepted.
const REFRESH_DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(6)];

/// Interval of discovery refreshes if definitions cannot be watched.
const REFRESH_INTERVAL: Duration = Duration::from_mins(10);

/// The combined state of the two watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WatchSummary {
    /// Number of changes so far.
    changes: u64,
    /// Number of watches that are forbidden or not served.
    unavailable: usize,
}

struct DefinitionFollower {
    cluster: Cluster,
    target: WatchTarget,
    summary: watch::Sender<WatchSummary>,
    is_unavailable: bool,
}

impl Follower for DefinitionFollower {
    type Object = ObjectMeta;

    fn event(&mut self, event: watcher::Event<ObjectMeta>) {
        match event {
            watcher::Event::Init | watcher::Event::InitApply(_) => return,
            // No event reports changes from before the watch restarted.
            watcher::Event::InitDone => {}
            watcher::Event::Apply(definition) | watcher::Event::Delete(definition) => {
                let name = definition.name.unwrap_or_default();
                self.cluster.group_changed(group_of(&name));
            }
        }
        self.summary.send_modify(|summary| summary.changes += 1);
    }

    fn state(&mut self, state: &WatchState) {
        let is_unavailable = match state {
            WatchState::Forbidden(_) | WatchState::Missing => true,
            WatchState::Synced => false,
            _ => return,
        };
        if std::mem::replace(&mut self.is_unavailable, is_unavailable) == is_unavailable {
            return;
        }
        if !is_unavailable {
            self.summary.send_modify(|summary| summary.unavailable -= 1);
            return;
        }
        let mut is_first = false;
        self.summary.send_modify(|summary| {
            is_first = summary.unavailable == 0;
            summary.unavailable += 1;
        });
        if is_first {
            let problem = self.target.problem(state);
            info!(problem, every = ?REFRESH_INTERVAL, "cannot watch the definitions of kinds; refreshing discovery periodically");
        }
    }
}

/// Returns the group in the name of a definition, such as `things.example.com` or `v1.example.com`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

/// Watches the definitions until the future is dropped, starting when somebody subscribes to
/// changes.
pub async fn follow_definitions(cluster: Cluster, restarts: Restarts) {
    cluster.discovery().subscribed().await;
    let summary = watch::Sender::new(WatchSummary::default());
    let kinds = [
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
    ];
    let watches = kinds.map(|(group, kind)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let target = WatchTarget {
            optional: true,
            ..WatchTarget::new(resource, None)
        };
        let follower = DefinitionFollower {
            cluster: cluster.clone(),
            target: target.clone(),
            summary: summary.clone(),
            is_unavailable: false,
        };
        let (client, of) = (cluster.client().clone(), target.clone());
        let open = move |lists| metadata(&client, &of, lists, None);
        follow(target, restarts.clone(), Lists::Streaming, open, follower)
    });
    tokio::join!(
        join_all(watches),
        refresh_on_changes(&cluster, summary.subscribe())
    );
}

/// Refreshes discovery whenever the served kinds may have changed.
async fn refresh_on_changes(cluster: &Cluster, mut summary: watch::Receiver<WatchSummary>) {
    loop {
        let unavailable = summary.borrow().unavailable > 0;
        tokio::select! {
            biased;
            changed = summary.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(REFRESH_INTERVAL), if unavailable => {}
        }
        for pause in REFRESH_DELAYS {
            tokio::time::sleep(pause).await;
            if let Err(error) = cluster.discovery().refresh().await {
                // Whoever needs a kind sends the request again.
                debug!(
                    error = &error as &dyn std::error::Error,
                    "cannot refresh discovery"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// A cluster that serves kinds, and watches of their definitions unless they are forbidden.
    #[derive(Clone)]
    struct TestServer {
        kinds: Arc<Mutex<Vec<&'static str>>>,
        /// Events of the watch of custom resource definitions; `None` if it is forbidden.
        events: Option<watch::Sender<Option<Value>>>,
    }

    impl TestServer {
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
                "/apis" => (discovery(&self.kinds.lock()), None),
                _ if self.events.is_none() => {
                    status = 403;
                    let unavailable = json!({"kind": "Status", "apiVersion": "v1", "code": 403,
                        "status": "Failure", "reason": "Forbidden", "message": "no"});
                    (unavailable, None)
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
                Some(Some(events)) => first
                    .chain(event_stream(events).map(move |v| text(&v)))
                    .boxed(),
            };
            let response = Response::builder().status(status);
            response.body(StreamBody::new(pieces)).unwrap()
        }
    }

    type Pieces = stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

    fn event_stream(
        mut events: watch::Receiver<Option<Value>>,
    ) -> impl futures::Stream<Item = Value> {
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

    /// Lets a cluster serve a kind some time after its definition is created. Returns how long it
    /// takes to notice.
    async fn notice(permitted: bool) -> Duration {
        let events = watch::Sender::new(None);
        let server = TestServer {
            kinds: Arc::new(Mutex::new(vec!["Gadget"])),
            events: permitted.then(|| events.clone()),
        };
        let cluster = server.cluster();
        cluster.discovery().refresh().await.unwrap();
        let mut changes = cluster.changes();
        let following = follow_definitions(cluster.clone(), Restarts::default());
        let following = tokio::spawn(following);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(cluster.capabilities_epoch(), 0, "nothing has changed yet");
        let began = Instant::now();
        events.send_replace(Some(json!({"type": "ADDED", "object": {
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "widgets.example.com", "resourceVersion": "2"}}})));
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.kinds.lock().push("Widget");
        let noticed = timeout(Duration::from_hours(1), changes.changed()).await;
        noticed.expect("the change is noticed").unwrap();
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
    async fn without_permission_to_watch_definitions_a_new_kind_is_noticed_later() {
        let took = notice(false).await;
        assert!(
            took > Duration::from_mins(1) && took <= REFRESH_INTERVAL,
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn definitions_are_not_watched_before_somebody_subscribes() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let cluster = Cluster::new(Client::new(service, "default"));
        let following = follow_definitions(cluster.clone(), Restarts::default());
        tokio::spawn(following);
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        let _changes = cluster.changes();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn the_group_follows_the_first_dot_of_a_definitions_name() {
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
