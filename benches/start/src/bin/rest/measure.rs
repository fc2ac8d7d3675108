//! Runs an operator through install, rest and restart, and counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hybrid_operator_test::audit::{AuditLog, Mark};
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator, Options, wait};
use start_benchmark::cpu;

use crate::{Case, Unready, cluster};

/// The user as which the operator runs.
const USER: &str = "bench";
/// Longer than the pause between two rounds of a diagnosis: what they lead to belongs to the install.
const QUIET: Duration = Duration::from_secs(75);
/// Number of minutes that the rest is measured.
pub(crate) const REST: u32 = 2;
/// Time limit of every wait.
const LIMIT: Duration = Duration::from_mins(15);

/// Requests by kind and processor time.
pub(crate) struct Cost {
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) cpu: Duration,
    /// Time until everything was done.
    pub(crate) time: Duration,
}

impl Cost {
    /// Returns the number of requests.
    pub(crate) fn count(&self) -> usize {
        self.requests.values().sum()
    }
}

/// The figures of a case.
pub(crate) struct Measured {
    /// Cost until nothing is written any more.
    pub(crate) install: Cost,
    /// Cost of [`REST`] minutes at rest.
    pub(crate) rest: Cost,
    /// Cost until all releases have been checked.
    pub(crate) restart: Cost,
    /// Cost of the minutes after that, until nothing is written any more.
    pub(crate) after: Cost,
}

struct Bench {
    audit: AuditLog,
    operator: RunningOperator,
}

/// The state at the begin of a measurement.
struct Begin {
    mark: Mark,
    cpu: Duration,
    at: Instant,
}

/// Measures a case on a control plane of its own.
pub(crate) async fn measure(case: &Case, program: &Path, root: &Path) -> Measured {
    let options = Options {
        audit: true,
        users: vec![(USER.to_owned(), vec!["system:masters".to_owned()])],
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.expect("a control plane");
    let client = cluster::prepare(&plane, case).await;
    let operator = Operator::new(program)
        .args([
            "run",
            "--health-probe-bind-address=127.0.0.1:{probe_port}",
            "--metrics-bind-address=127.0.0.1:{metrics_port}",
            "--max-concurrent-reconciles=10",
            "--reconcile-period=60s",
        ])
        .env("OPERATOR_NAME", "bench")
        .env("POD_NAMESPACE", "default")
        .dir(root.join("benches/start/rest"))
        .kubeconfig(plane.user_kubeconfig(USER));
    let mut bench = Bench {
        audit: plane.audit_log().expect("an audit log"),
        operator: operator.start().await.expect("the operator"),
    };
    let installing = bench.begin();
    cluster::create(&client, case).await;
    let all = async || cluster::pods(&client).await >= case.releases;
    wait::until(LIMIT, "all Pods", all).await.unwrap();
    if matches!(case.unready, Unready::NoImage) {
        cluster::refuse_images(&client).await;
    }
    let install = bench.quiet(&installing).await;
    eprintln!("  install {:?}", install.requests);

    let resting = bench.begin();
    tokio::time::sleep(Duration::from_mins(1) * REST).await;
    let rest = bench.since(&resting);
    eprintln!("  rest {:?}", rest.requests);

    let stopped = bench.operator.stop(Duration::from_secs(30)).await;
    stopped.expect("the operator stops");
    let restarting = Begin {
        mark: bench.audit.mark().unwrap(),
        cpu: Duration::ZERO,
        at: Instant::now(),
    };
    bench.operator.restart().await.expect("the operator");
    let checked = async || reconciles(&bench.operator).await >= case.releases;
    wait::until(LIMIT, "all releases", checked).await.unwrap();
    let restart = bench.since(&restarting);
    eprintln!("  restart {:?}", restart.requests);
    let after = bench.quiet(&bench.begin()).await;
    eprintln!("  after it {:?}", after.requests);
    Measured {
        install,
        rest,
        restart,
        after,
    }
}

impl Bench {
    fn begin(&self) -> Begin {
        Begin {
            mark: self.audit.mark().unwrap(),
            cpu: cpu(self.operator.pid()),
            at: Instant::now(),
        }
    }

    fn since(&self, begin: &Begin) -> Cost {
        Cost {
            requests: self.audit.count(begin.mark, USER).unwrap(),
            cpu: cpu(self.operator.pid()).saturating_sub(begin.cpu),
            time: begin.at.elapsed(),
        }
    }

    /// Waits until nothing but lists of Pods and events has been requested for [`QUIET`].
    async fn quiet(&self, begin: &Begin) -> Cost {
        let mut known = BTreeMap::new();
        let mut cost = self.since(begin);
        loop {
            let mut counts = self.audit.count(begin.mark, USER).unwrap();
            counts.retain(|kind, _| !matches!(kind.as_str(), "list pods" | "list events"));
            if counts != known {
                known = counts;
                cost = self.since(begin);
            }
            if begin.at.elapsed() > cost.time + QUIET {
                return cost;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Returns the number of reconciles.
async fn reconciles(operator: &RunningOperator) -> usize {
    let text = operator.metrics().await.unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("controller_runtime_reconcile_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum()
}
