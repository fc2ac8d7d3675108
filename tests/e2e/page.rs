//! The status page of an operator with a real API server: what it shows, and what it costs.

use hybrid_operator_test::Operator;
use serde_json::{Value, json};

use crate::world::{LIMIT, Project, World, delete, eventually, free_address, program};

/// Number of viewers of each kind.
const VIEWERS: usize = 8;

const TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-secret}
stringData: {value: {{ .Values.value | quote }}}
";

/// A stream of the page.
struct Stream {
    answer: reqwest::Response,
    read: String,
}

impl Stream {
    async fn open(url: &str) -> Self {
        let answer = reqwest::get(url).await.unwrap();
        assert_eq!(answer.status(), 200, "{url}");
        Self {
            answer,
            read: String::new(),
        }
    }

    /// Waits for an event of this name whose data `is` accepts.
    async fn until(&mut self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let read = async {
            loop {
                while let Some((event, rest)) = self.read.split_once("\n\n") {
                    let (event, rest) = (event.to_owned(), rest.to_owned());
                    self.read = rest;
                    let data = event.strip_prefix(&format!("event: {name}\ndata: "));
                    let data = data.map(|data| serde_json::from_str(data).unwrap());
                    if let Some(data) = data.filter(&is) {
                        return data;
                    }
                }
                let chunk = self.answer.chunk().await.unwrap().unwrap();
                self.read += std::str::from_utf8(&chunk).unwrap();
            }
        };
        tokio::time::timeout(LIMIT, read).await.unwrap()
    }
}

/// Returns the number of requests that the operator has sent, and of its reconciles.
async fn counts(world: &World) -> (u64, u64) {
    let metrics = world.operator.metrics().await.unwrap();
    let sum = |name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    };
    (
        sum("rest_client_requests_total"),
        sum("controller_runtime_reconcile_total"),
    )
}

/// Lets the operator reconcile the Widget again, though nothing that matters has changed.
async fn touch(world: &World, round: &str) {
    let (_, before) = counts(world).await;
    world.annotate("one", "round", json!(round)).await;
    let again = async || counts(world).await.1 > before;
    eventually("another reconcile", again).await;
}

#[tokio::test]
async fn page_follows_releases_without_requests_of_its_own() {
    let project = Project::new("", &[("all.yaml", TEMPLATE)]);
    let address = free_address();
    let flags = ["--reconcile-period=0", "--ui-bind-address", &address];
    let world = or_skip!(project.start_with("page", &flags).await);
    world.deploy("one", json!({"value": "first-hush"})).await;
    let namespace = world.namespace.name();
    let named = format!("group=test.example.com&kind=Widget&namespace={namespace}&name=one");
    let list = format!("http://{address}/api/list");
    let resource = format!("http://{address}/api/resource?{named}");
    // The last events of the install are sent after the status that says it is ready.
    let mut first = Stream::open(&resource).await;
    let is_told = |shown: &Value| {
        shown["events"][0]["reason"] == "InstallSuccessful" && shown["objects"].is_array()
    };
    let shown = first.until("resource", is_told).await;
    assert_eq!(shown["row"]["state"], "ready", "{shown}");
    assert_eq!(shown["objects"].as_array().unwrap().len(), 2, "{shown}");
    drop(first);
    // Of the reconciles after the install, the first ones may still write.
    let mut is_at_rest = false;
    for round in ["a", "b", "c", "d"] {
        let (before, _) = counts(&world).await;
        touch(&world, round).await;
        is_at_rest = counts(&world).await.0 == before;
        if is_at_rest {
            break;
        }
    }
    assert!(is_at_rest, "nobody looks");
    let (before, _) = counts(&world).await;

    let mut lists = Vec::new();
    for _ in 0..VIEWERS {
        let mut stream = Stream::open(&list).await;
        let rows = stream.until("rows", |_| true).await;
        assert_eq!(rows["rows"][0]["name"], "one", "{rows}");
        let mut kinds = rows["kinds"].as_array().unwrap().iter();
        assert!(kinds.any(|kind| kind["kind"] == "MemcachedBackup" && kind["native"] == true));
        lists.push(stream);
    }
    let mut resources = Vec::new();
    for _ in 0..VIEWERS {
        let mut stream = Stream::open(&resource).await;
        stream.until("resource", |shown| !shown.is_null()).await;
        resources.push(stream);
    }
    touch(&world, "2").await;
    for stream in &mut lists {
        let changes = stream.until("changes", |_| true).await;
        assert_eq!(changes["rows"][0]["name"], "one", "{changes}");
    }
    assert_eq!(counts(&world).await.0, before, "viewers only look");

    world.widget("one", json!({"value": "second-hush"})).await;
    for stream in &mut lists {
        let upgraded = |change: &Value| change["rows"][0]["release"]["revision"] == 2;
        stream.until("changes", upgraded).await;
    }
    for stream in &mut resources {
        let upgraded = |shown: &Value| {
            shown["history"]
                .as_array()
                .is_some_and(|all| all.len() == 2)
        };
        stream.until("resource", upgraded).await;
    }
    let read = async |path: &str| {
        let url = format!("http://{address}/api/{path}");
        reqwest::get(&url).await.unwrap().text().await.unwrap()
    };
    let reading = counts(&world).await.0;
    let difference = read(&format!("difference?{named}&from=1&to=2")).await;
    assert_contains!(
        difference,
        "'*** (before)'",
        "'*** (after)'",
        "ConfigMap one-map"
    );
    let manifest = read(&format!("manifest?{named}&revision=2")).await;
    assert_contains!(manifest, "value: '***'");
    let secret = |text: &str| text.matches("hush").count();
    // The ConfigMap has the value, too, and is shown.
    assert_eq!((secret(&difference), secret(&manifest)), (2, 1));
    let charts = read(&format!("charts?{named}")).await;
    assert_contains!(charts, "{\"revision\":1,\"chart\":\"chart-0.1.0\"");
    let read = counts(&world).await.0 - reading;
    assert!(read <= 2, "{read} requests for two records");

    delete(&world.api("Widget"), "one").await;
    for stream in &mut lists {
        let gone = |change: &Value| change["gone"][0]["name"] == "one";
        stream.until("changes", gone).await;
    }
    for stream in &mut resources {
        stream.until("resource", Value::is_null).await;
    }
}

#[tokio::test]
async fn page_is_refused_on_addresses_that_other_machines_reach() {
    for address in [":8082", "0.0.0.0:8082", "10.0.0.1:8082"] {
        let started = Operator::new(program())
            .args(["run", "--ui-bind-address", address])
            .spawn()
            .unwrap();
        let ended = started.exited(LIMIT).await.unwrap();
        assert_eq!(ended.code(), Some(2));
        let log = started.log();
        assert_contains!(
            log,
            "not an address of the loopback interface",
            "kubectl port-forward"
        );
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let started = Operator::new(program())
        .args(["run", "--ui-bind-address", &address])
        .spawn()
        .unwrap();
    let ended = started.exited(LIMIT).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    let told = format!(
        "cannot listen on {address} for the status page; choose another address with --ui-bind-address"
    );
    assert_contains!(started.log(), &told);
}
