//! Times the chart engine beside Helm's over the folder of chart cases: everything in one process,
//! the times of Helm's engine read from what `benches/go` printed. `benches/run` calls it.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for people, ended by the first surprise"
)]

mod measure;
mod plot;
mod report;

use std::path::PathBuf;

use measure::Timings;
use mimalloc::MiMalloc;

/// The allocator of the `hybrid-operator` command.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Where everything is, from the environment that `benches/run` sets.
struct Setting {
    /// The folder with `archives/` and `cases/`.
    charts: PathBuf,
    /// What `benches/go` printed.
    go: PathBuf,
    /// The two programs whose processes are compared.
    helm: PathBuf,
    hybrid: PathBuf,
    /// Where the report and the plot go.
    docs: PathBuf,
    rounds: usize,
}

impl Setting {
    fn from_environment() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Some(Self {
            charts: path("BENCH_CHARTS")?,
            go: path("BENCH_GO")?,
            helm: path("BENCH_HELM")?,
            hybrid: path("BENCH_HYBRID")?,
            docs: path("BENCH_DOCS")?,
            rounds: std::env::var("BENCH_ROUNDS").ok()?.parse().ok()?,
        })
    }
}

fn main() {
    // `cargo test --benches` and the like start every benchmark, without a setting.
    let Some(setting) = Setting::from_environment() else {
        eprintln!("SKIPPED benchmark: start it with benches/run");
        return;
    };
    let text = std::fs::read_to_string(&setting.go).expect("the times of Helm's engine");
    let go = Timings::from_json(&text);
    let ours = measure::engine(&setting.charts, setting.rounds);
    let processes = measure::processes(&setting.charts, &setting.helm, &setting.hybrid);
    let comparison = report::Comparison::new(&go, &ours, processes);
    std::fs::write(setting.docs.join("benchmarks.svg"), plot::svg(&comparison)).unwrap();
    std::fs::write(setting.docs.join("benchmarks.md"), comparison.text()).unwrap();
    eprintln!("{}", comparison.summary());
}
