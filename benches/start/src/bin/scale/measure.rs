//! Runs an operator through install, rest, restart and upgrade.

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator, Options};
use kube::Client;
use kube::runtime::watcher::{self, watcher};

use start_benchmark::AT_ONCE;

use crate::{cluster, floor, name, namespace};

/// The user as which the operator runs.
const USER: &str = "bench";
/// Time for which the rest is measured.
pub(crate) const REST: Duration = Duration::from_mins(1);
/// Time limit of every wait.
const LIMIT: Duration = Duration::from_hours(1);
/// Time between two edits while all releases are being upgraded.
const EDITS: Duration = Duration::from_millis(500);

/// Work of an operator.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) time: Duration,
    pub(crate) requests: usize,
    pub(crate) cpu: Duration,
    /// Resident memory at the end, in KiB.
    pub(crate) memory: u64,
}

/// The figures of a number of releases.
pub(crate) struct Measured {
    pub(crate) releases: usize,
    /// Time of the same requests by a bare client.
    pub(crate) floor: Duration,
    pub(crate) install: Cost,
    pub(crate) rest: Cost,
    pub(crate) restart: Cost,
    pub(crate) upgrade: Cost,
    /// Time until the first release was upgraded: when all custom resources and records were listed.
    pub(crate) listed: Duration,
    /// Times until an edit was served while all releases were being upgraded, ascending.
    pub(crate) edits: Vec<Duration>,
    /// Most resident memory of the process that installed, and of the one that upgraded, in KiB.
    pub(crate) peaks: [u64; 2],
}

struct Bench {
    client: Client,
    operator: RunningOperator,
}

/// The state at the begin of a measurement.
struct Begin {
    requests: usize,
    cpu: Duration,
    at: Instant,
}

pub(crate) async fn measure(releases: usize, program: &Path, root: &Path) -> Measured {
    let floor = floor(releases).await;
    eprintln!("  floor {floor:.1?}");
    let plane = start().await;
    let client = cluster::prepare(&plane, releases).await;
    let project = tempfile::tempdir().unwrap();
    copy(&root.join("benches/start/rest"), project.path());
    let operator = Operator::new(program)
        .args([
            "run".to_owned(),
            "--health-probe-bind-address=127.0.0.1:{probe_port}".to_owned(),
            "--metrics-bind-address=127.0.0.1:{metrics_port}".to_owned(),
            format!("--max-concurrent-reconciles={AT_ONCE}"),
        ])
        .env("OPERATOR_NAME", "bench")
        .env("POD_NAMESPACE", "default")
        .dir(project.path())
        .kubeconfig(plane.user_kubeconfig(USER));
    let begin = Begin::of_process();
    let mut bench = Bench {
        client,
        operator: operator.start().await.expect("the operator"),
    };
    let install = bench.served(releases, &begin).await;
    eprintln!("  install {install}");
    let resting = bench.begin().await;
    tokio::time::sleep(REST).await;
    let rest = bench.since(&resting).await;
    eprintln!("  rest {rest}");
    let peak = bench.peak();

    let begin = bench.restart(|| {}).await;
    let restart = bench.served(releases, &begin).await;
    eprintln!("  restart {restart}");

    let template = project.path().join("chart/templates/objects.yaml");
    let text = fs::read_to_string(&template).unwrap();
    let changed = text.replace("key: value", "key: other");
    let change = || fs::write(&template, changed).unwrap();
    let begin = bench.restart(change).await;
    let (upgrade, listed, edits) = bench.upgrade(releases, &begin).await;
    eprintln!("  upgrade {upgrade}, {} edits", edits.len());
    Measured {
        releases,
        floor,
        install,
        rest,
        restart,
        upgrade,
        listed,
        edits,
        peaks: [peak, bench.peak()],
    }
}

async fn start() -> ControlPlane {
    let options = Options {
        users: vec![(USER.to_owned(), vec!["system:masters".to_owned()])],
        ..Options::default()
    };
    ControlPlane::start(options).await.expect("a control plane")
}

/// Measures the requests of an install alone, on a control plane of its own.
async fn floor(releases: usize) -> Duration {
    let plane = start().await;
    let client = cluster::prepare(&plane, releases).await;
    floor::send(&client, releases).await
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Begin {
    /// Returns the begin of a process that starts now.
    fn of_process() -> Self {
        Self {
            requests: 0,
            cpu: Duration::ZERO,
            at: Instant::now(),
        }
    }
}

impl Bench {
    async fn begin(&self) -> Begin {
        Begin {
            requests: self.count("rest_client_requests_total").await,
            cpu: self.cpu().await,
            at: Instant::now(),
        }
    }

    async fn since(&self, begin: &Begin) -> Cost {
        Cost {
            time: begin.at.elapsed(),
            requests: self.count("rest_client_requests_total").await - begin.requests,
            cpu: self.cpu().await.saturating_sub(begin.cpu),
            memory: self.memory("VmRSS:"),
        }
    }

    /// Stops the operator, makes a change, and starts it again.
    async fn restart(&mut self, change: impl FnOnce()) -> Begin {
        let stopped = self.operator.stop(Duration::from_secs(30)).await;
        stopped.expect("the operator stops");
        change();
        let begin = Begin::of_process();
        self.operator.restart().await.expect("the operator");
        begin
    }

    /// Waits until all releases have been checked and nothing is left to do; the time ends when that became so.
    async fn served(&self, releases: usize, begin: &Begin) -> Cost {
        let mut idle: Option<Cost> = None;
        let settled = async || {
            let done = self.count("controller_runtime_reconcile_total").await;
            done >= releases && self.waiting().await == 0
        };
        loop {
            assert!(begin.at.elapsed() < LIMIT, "the releases are not served");
            if settled().await {
                let cost = match idle {
                    Some(cost) => cost,
                    None => self.since(begin).await,
                };
                if begin.at.elapsed() > cost.time + Duration::from_secs(3) {
                    if cluster::ready(&self.client).await == releases {
                        let memory = self.memory("VmRSS:");
                        return Cost { memory, ..cost };
                    }
                    idle = None;
                } else {
                    idle = Some(cost);
                }
            } else {
                idle = None;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Edits one custom resource after another while all releases are being upgraded. Returns the cost of the upgrade,
    /// when it began, and how long each edit took.
    async fn upgrade(&self, releases: usize, begin: &Begin) -> (Cost, Duration, Vec<Duration>) {
        let reconciled = async || self.count("controller_runtime_reconcile_total").await;
        while reconciled().await == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let listed = begin.at.elapsed();
        let mut edits = Vec::new();
        let mut random = 1;
        while reconciled().await < releases {
            random = (random * 7919 + 17) % releases;
            edits.push(self.edit(random, edits.len()).await);
            tokio::time::sleep(EDITS).await;
        }
        let times: Vec<u128> = edits.iter().map(Duration::as_millis).collect();
        eprintln!("  edits in their order, ms: {times:?}");
        edits.sort_unstable();
        (self.served(releases, begin).await, listed, edits)
    }

    /// Changes a custom resource, and waits until that is deployed.
    async fn edit(&self, number: usize, value: usize) -> Duration {
        let widgets = start_benchmark::widgets(&self.client, &namespace(number));
        let only = watcher::Config::default().fields(&format!("metadata.name={}", name(number)));
        let mut events = std::pin::pin!(watcher(widgets, only));
        let begin = Instant::now();
        let edited = cluster::edit(&self.client, number, value).await;
        let generation = edited.metadata.generation;
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(widget) | watcher::Event::InitApply(widget)) = event
                && widget.metadata.generation >= generation
                && cluster::is_ready(&widget)
            {
                break;
            }
        }
        begin.elapsed()
    }

    /// Returns the number of keys that wait or are being worked on.
    async fn waiting(&self) -> usize {
        self.count("workqueue_depth").await + self.count("controller_runtime_active_workers").await
    }

    /// Returns the processor time that the process has taken.
    async fn cpu(&self) -> Duration {
        let seconds: f64 = self.metric("process_cpu_seconds_total").await.iter().sum();
        Duration::from_secs_f64(seconds)
    }

    /// Returns the sum of a metric over its labels.
    async fn count(&self, name: &str) -> usize {
        self.metric(name).await.iter().sum()
    }

    /// Returns the values of a metric.
    async fn metric<T: FromStr>(&self, name: &str) -> Vec<T> {
        let text = self.operator.metrics().await.unwrap_or_default();
        let of_name = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        };
        let values = text.lines().filter(of_name);
        values
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect()
    }

    fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.operator.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            time,
            requests,
            cpu,
            memory,
        } = self;
        write!(
            f,
            "{time:.1?}, {requests} requests, {cpu:.1?} of a processor, {} MiB",
            memory / 1024
        )
    }
}
