//! Profiles of the heap, as `go tool pprof` gets them.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use hybrid_operator_test::process::{Operator, RunningOperator};
use prost::Message as _;

use crate::world::{LIMIT, eventually, program};

/// Fields of a profile that the tests read, with the numbers of `profile.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn of(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut bytes = Vec::new();
        GzDecoder::new(answer.body.as_slice())
            .read_to_end(&mut bytes)
            .unwrap();
        Self::decode(bytes.as_slice()).unwrap()
    }

    fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).unwrap()]
    }

    fn types(&self) -> Vec<(&str, &str)> {
        let types = self.sample_type.iter();
        types
            .map(|one| (self.text(one.r#type), self.text(one.unit)))
            .collect()
    }

    fn total(&self) -> i64 {
        self.sample.iter().flat_map(|sample| &sample.value).sum()
    }

    /// Returns the functions of all stacks.
    fn functions(&self) -> BTreeSet<&str> {
        let used = self.sample.iter().flat_map(|sample| &sample.location_id);
        let locations = used.filter_map(|id| self.location.iter().find(|one| one.id == *id));
        let lines = locations.flat_map(|location| &location.line);
        let functions = lines.filter_map(|line| {
            let mut functions = self.function.iter();
            functions.find(|one| one.id == line.function_id)
        });
        functions.map(|one| self.text(one.name)).collect()
    }
}

struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

async fn get(operator: &RunningOperator, path: &str) -> Answer {
    let url = format!("http://127.0.0.1:{}{path}", operator.metrics_port());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(url).send().await;
    let answer = answer.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    Answer {
        status: answer.status().as_u16(),
        body: answer.bytes().await.unwrap().to_vec(),
    }
}

/// Returns the program of the example that allocates with jemalloc.
fn visitors() -> PathBuf {
    program().with_file_name("visitors")
}

/// Starts a program without a cluster: profiles are served before the API server answers.
async fn start(program: PathBuf, env: &[(&str, &str)]) -> RunningOperator {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    // Port 1 is reserved, and nothing listens there.
    let config = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "none",
        "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        "users": [{"name": "none", "user": {}}]}"#;
    std::fs::write(&kubeconfig, config).unwrap();
    let mut operator = Operator::new(program)
        .args(["run", "--metrics-bind-address=0"])
        .args(["--health-probe-bind-address", "127.0.0.1:{probe_port}"])
        .args(["--profiling-bind-address", "127.0.0.1:{metrics_port}"])
        .kubeconfig(&kubeconfig)
        .dir(crate::world::root());
    for (name, value) in env {
        operator = operator.env(*name, *value);
    }
    let operator = operator.spawn().unwrap();
    let waits = async || operator.log().contains("cannot reach the API server");
    eventually("the start", waits).await;
    operator
}

#[tokio::test]
async fn a_program_shows_where_its_memory_goes() {
    // Each allocation of 4 KiB is a sample, so that a small program has some.
    let samples = [("_RJEM_MALLOC_CONF", "prof:true,lg_prof_sample:12")];
    let operator = start(visitors(), &samples).await;
    let index = get(&operator, "/debug/pprof/").await.text();
    assert_contains!(index, "/debug/pprof/heap");
    assert!(!index.contains("not available"), "{index}");

    let heap = Profile::of(&get(&operator, "/debug/pprof/heap").await);
    assert_eq!(heap.types(), [("inuse_space", "bytes")]);
    assert!(heap.total() > 100_000, "{} bytes", heap.total());
    let names = heap.functions();
    let is_own = names.iter().any(|name| name.contains("hybrid_operator::"));
    assert!(is_own, "{names:#?}");
}

#[tokio::test]
async fn a_profile_that_cannot_be_taken_is_refused_with_the_way_to_get_it() {
    let other = start(program(), &[]).await;
    let off = start(visitors(), &[]).await;
    for (operator, path, status, told) in [
        (
            &other,
            "/debug/pprof/heap",
            501,
            "hybrid_operator::telemetry::Jemalloc",
        ),
        (
            &off,
            "/debug/pprof/heap",
            501,
            "_RJEM_MALLOC_CONF=prof:true",
        ),
        (
            &off,
            "/debug/pprof/heap?seconds=5",
            400,
            "go tool pprof -base",
        ),
        (&off, "/debug/pprof/profile", 404, ""),
        (&off, "/debug/pprof/trace", 404, ""),
    ] {
        let answer = get(operator, path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().contains(told), "{path}: {}", answer.text());
    }
    let index = get(&off, "/debug/pprof/").await.text();
    assert_contains!(index, "not available: jemalloc takes no samples");
}

#[tokio::test]
async fn samples_need_a_directory_for_temporary_files_and_say_so() {
    let env = [
        ("TMPDIR", "/dev/null/none"),
        ("_RJEM_MALLOC_CONF", "prof:true"),
    ];
    let operator = start(visitors(), &env).await;
    let answer = get(&operator, "/debug/pprof/heap").await;
    assert_eq!(answer.status, 500);
    let told = "a directory for temporary files that can be written, /dev/null/none";
    assert_contains!(answer.text(), told);
}

#[tokio::test]
async fn profiles_are_refused_on_addresses_that_other_machines_reach() {
    for address in [":6060", "0.0.0.0:6060", "10.0.0.1:6060"] {
        let started = Operator::new(program())
            .args(["run", "--profiling-bind-address", address])
            .spawn()
            .unwrap();
        let ended = started.exited(LIMIT).await.unwrap();
        assert_eq!(ended.code(), Some(2));
        let told = "not an address of the loopback interface, such as 127.0.0.1:6060";
        let log = started.log();
        assert_contains!(log, told, "no authentication");
    }
}
