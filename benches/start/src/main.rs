//! Compares how fast operators start, and the memory that they need when idle, with bare programs that only
//! connect. All programs start in turn on the same control plane. Started by `benches/run`.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a development tool; panicking is its error report"
)]

mod program;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hybrid_operator_test::{ControlPlane, Options};

use program::{Program, Start};

/// The kind that every program watches.
const GROUP: &str = "cache.example.com";
const VERSION: &str = "v1alpha1";
const KIND: &str = "Memcached";

/// Where its definition, its chart and `watches.yaml` are.
const DEFINITION: &str = "config/crd/bases/cache.example.com_memcacheds.yaml";

/// Time that a program is idle before its memory is read.
const IDLE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    let rounds: usize =
        std::env::var("BENCH_STARTS").map_or(20, |text| text.parse().expect("BENCH_STARTS"));
    let root = path_of("BENCH_ROOT").expect("BENCH_ROOT; see benches/run");
    let programs = programs();

    let plane = ControlPlane::start(Options::default())
        .await
        .expect("a control plane");
    define(&plane, &root.join(DEFINITION)).await;
    let mut starts: Vec<Vec<Start>> = programs.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for (program, starts) in programs.iter().zip(&mut starts) {
            // The first round reads the files from the disk, and the last one waits until the memory settles.
            let idle = if round == rounds {
                IDLE
            } else {
                Duration::ZERO
            };
            let start = program.start(plane.kubeconfig_path(), &root, idle).await;
            if round > 0 {
                starts.push(start);
            }
        }
    }
    plane.stop();
    let section = report::section(&programs, &starts);
    let path = root.join("docs/contributing/benchmarks.md");
    start_benchmark::write_section(&path, report::HEADING, &section);
    eprintln!("{section}");
}

/// Returns the programs, the bare ones first. An operator whose path is not set is left out.
fn programs() -> Vec<Program> {
    let flags = [
        "--health-probe-bind-address={probes}",
        "--metrics-bind-address={metrics}",
    ];
    let (group, version, kind) = (
        format!("--group={GROUP}"),
        format!("--version={VERSION}"),
        format!("--kind={KIND}"),
    );
    let manager = [flags[0], flags[1], &group, &version, &kind];
    let run = ["run", flags[0], flags[1]];
    let all: [(_, _, &[&str]); 4] = [
        (
            "bare client, Rust with kube",
            "BENCH_BARE",
            &["{probes}", GROUP, VERSION, KIND],
        ),
        (
            "bare manager, Go with controller-runtime",
            "BENCH_MANAGER",
            &manager,
        ),
        (
            "the base image's `helm-operator run`, one chart",
            "BENCH_CHARTS",
            &run,
        ),
        (
            "`memcached-operator run`, one chart and one native controller",
            "BENCH_OPERATOR",
            &run,
        ),
    ];
    let programs = all.into_iter().filter_map(|(name, path, args)| {
        Some(Program {
            name,
            path: path_of(path)?,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        })
    });
    programs.collect()
}

fn path_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// Creates the definition of the kind, and waits until it is served.
async fn define(plane: &ControlPlane, path: &Path) {
    let text = std::fs::read_to_string(path).expect("the definition");
    let definition = go_yaml::from_str(&text).expect("a definition");
    start_benchmark::define(plane.client().await.expect("a client"), &definition).await;
}
