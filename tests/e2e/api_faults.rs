//! A faulty API server: rejections, overload, lost responses, interrupted watches and half-open
//! connections, while custom resources change. Everything must converge, with nothing lost or
//! duplicated and without hot loops.
//!
//! `SOAK=600` runs it for that many seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hybrid_operator::options::Deadlines;
use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::fault::{Fault, Faults};
use kube::Client;
use kube::api::ListParams;
use serde_json::json;

use crate::world::{
    InProcessOperator, MAP, Project, api, apply, deploy, eventually, is_ready, new_namespace, until,
};

/// Number of custom resources that change.
const MANY: usize = 8;

/// Request rate per second that not even a faulty API server justifies.
const MAX_REQUEST_RATE: usize = 150;

/// Starts an operator with these deadlines.
fn start_with_deadlines(
    project: &Project,
    client: Client,
    namespace: &TestNamespace,
    deadlines: Deadlines,
) -> InProcessOperator {
    InProcessOperator::with(
        project,
        client,
        namespace.name(),
        |chart| chart,
        |options| options.deadlines = deadlines,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_converges_when_the_faults_end() {
    let (plane, namespace) = or_skip!(new_namespace("faults").await);
    let seconds = std::env::var("SOAK").ok().and_then(|s| s.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(20));
    let project = Project::new("reconcilePeriod: 1s", &[("map.yaml", MAP)]);
    let faults = Faults::new();
    let client = plane.client_with(&faults).await.unwrap();
    // The deadlines are short enough to expire many times during this test.
    let deadlines = Deadlines {
        answer: Duration::from_secs(1),
        silence: Duration::from_secs(3),
    };
    let _operator = start_with_deadlines(&project, client, &namespace, deadlines);
    let widgets = api(&namespace, "Widget");

    // A fixed seed makes every run the same.
    let mut numbers = fastrand::Rng::with_seed(1);
    faults.inject_with(move |request| {
        let is_watch = request.verb == "watch";
        let one_in = if is_watch { 3 } else { 5 };
        if numbers.u32(..one_in) > 0 {
            // There are few watches, and each is long-lived.
            return (is_watch && numbers.bool()).then_some(Fault::Silence);
        }
        let faults = [
            // As with an expired token.
            Fault::Status(401),
            Fault::Status(409),
            Fault::Status(410),
            Fault::Status(429),
            Fault::Status(500),
            Fault::Status(503),
            Fault::Unreachable,
            Fault::AnswerLost,
            Fault::Hang,
            Fault::Silence,
        ];
        // Only a watch can return 410 Gone.
        let fault = faults[numbers.usize(..faults.len())];
        (fault != Fault::Status(410) || is_watch).then_some(fault)
    });
    let began = Instant::now();
    let mut numbers = fastrand::Rng::with_seed(2);
    let mut wanted = BTreeMap::new();
    let mut round = 0;
    while began.elapsed() < duration {
        let name = format!("w{}", numbers.usize(..MANY));
        let object = json!({"spec": {"value": round.to_string()}});
        apply(&widgets, &name, &object).await;
        wanted.insert(name, round.to_string());
        round += 1;
        // The next change is made after the operator has sent a few requests.
        let before = faults.requests().len();
        let busy = async || faults.requests().len() >= before + 5;
        drop(hybrid_operator_test::wait::until(Duration::from_secs(2), "requests", busy).await);
    }
    let sent = faults.requests().len();
    let rate = sent / usize::try_from(duration.as_secs()).unwrap();
    assert!(rate < MAX_REQUEST_RATE, "{rate} requests a second");
    faults.clear_faults();

    let maps = api(&namespace, "ConfigMap");
    let secrets = api(&namespace, "Secret");
    for (name, value) in &wanted {
        until(&widgets, name, "Ready", is_ready).await;
        let map = maps.get(&format!("{name}-map")).await.unwrap();
        assert_eq!(map.data["data"]["value"], json!(value), "{name}");
        let labels = format!("owner=helm,name={name},status=deployed");
        let one = async || {
            let list = ListParams::default().labels(&labels);
            secrets.list(&list).await.unwrap().items.len() == 1
        };
        eventually("one deployed record", one).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_watch_is_detected() {
    let (plane, namespace) = or_skip!(new_namespace("silent").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let faults = Faults::new();
    faults.inject_with(|request| (request.verb == "watch").then_some(Fault::Silence));
    let client = plane.client_with(&faults).await.unwrap();
    let deadlines = Deadlines {
        silence: Duration::from_secs(1),
        ..Deadlines::default()
    };
    let _operator = start_with_deadlines(&project, client, &namespace, deadlines);
    let widgets = api(&namespace, "Widget");
    // A watch delivers one change before it falls silent; there are more.
    for value in ["1", "2", "3"] {
        deploy(&widgets, "one", json!({"value": value})).await;
        let map = api(&namespace, "ConfigMap").get("one-map").await.unwrap();
        assert_eq!(map.data["data"]["value"], json!(value));
    }
}
