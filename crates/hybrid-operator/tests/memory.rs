//! Counts the memory that an operator holds for each release at rest.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it counted"
)]

use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Parser;
use hybrid_operator::helm::Charts;
use hybrid_operator::manager::Manager;
use hybrid_operator::options::RunArgs;
use hybrid_operator_test::api_server::{ApiServer, Options};
use kube::Client;
use serde_json::{Value, json};
use tikv_jemallocator::Jemalloc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Namespace of the custom resources.
const WIDGETS: &str = "/apis/bench.example.com/v1/namespaces/default/widgets";

/// A host whose clock is that of the runtime.
struct Clock(Instant);

impl host::Host for Clock {
    fn now(&self) -> SystemTime {
        SystemTime::from(Options::default().epoch) + self.0.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn key(&self) -> u64 {
        7
    }
}

/// Returns the number of bytes that are allocated and not freed.
fn allocated() -> usize {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap()
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = http::Request::post(path).body(serde_json::to_vec(object).unwrap());
    client.request::<Value>(request.unwrap()).await.unwrap();
}

async fn define(client: &Client) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(client, path, &definition).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// Returns the number of custom resources that are ready.
async fn ready(client: &Client) -> usize {
    let request = http::Request::get(WIDGETS).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    let is_ready = |widget: &&Value| {
        let conditions = widget.pointer("/status/conditions");
        let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_ready)
        .count()
}

/// Returns the number of bytes that an operator with this many releases at rest frees when it ends.
async fn held(releases: usize) -> usize {
    let server = ApiServer::new(&Options::default());
    let people = Client::new(server.service(), "default");
    define(&people).await;
    for number in 0..releases {
        let widget = json!({
            "apiVersion": "bench.example.com/v1", "kind": "Widget",
            "metadata": {"name": format!("widget-{number}")}, "spec": {"replicas": 0},
        });
        create(&people, WIDGETS, &widget).await;
    }
    let arguments = [
        "run",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ];
    let options = RunArgs::try_parse_from(arguments).unwrap();
    let options = options.options(|name| (name == "POD_NAMESPACE").then(|| "default".to_owned()));
    let manager = Manager::new(options).network(server.client("default"));
    let watches =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/start/rest/watches.yaml");
    let charts = Charts::load(&watches, |chart| chart).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(
        charts
            .watch_files(false)
            .add_to(manager)
            .run_until(stop.clone()),
    );
    while ready(&people).await < releases {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Until nothing is in progress, and each release was resynced.
    tokio::time::sleep(Duration::from_mins(3)).await;
    let at_rest = allocated();
    stop.cancel();
    running.await.unwrap().unwrap();
    at_rest.saturating_sub(allocated())
}

#[tokio::test(start_paused = true)]
async fn a_release_of_five_objects_at_rest_takes_a_bounded_number_of_bytes() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let (few, many) = (held(50).await, held(150).await);
    let each = (many - few) / 100;
    println!("{few} bytes with 50 releases, {many} with 150: {each} each");
    assert!(
        (1_000..24_000).contains(&each),
        "{each} bytes for each release"
    );
}
