//! Compares the speed of the chart engine with Helm's over the folder of chart cases. Everything
//! runs in one process; the times of Helm's engine are read from the output of `benches/go`.
//! Started by `benches/run`.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a development tool; panicking is its error report"
)]

mod cases;
mod measure;
mod plot;
mod report;

use std::path::PathBuf;

use measure::{Memories, Timings};
use mimalloc::MiMalloc;

/// The allocator that the `hybrid-operator` command uses.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Paths and programs, from the environment that `benches/run` sets.
struct Setting {
    /// The folder with `archives/` and `cases/`.
    charts: PathBuf,
    /// The output of `benches/go`.
    go: PathBuf,
    /// The output of `memory.rs`.
    memory: PathBuf,
    /// The two programs whose process times are compared.
    helm: PathBuf,
    hybrid: PathBuf,
    /// Where the report and the plot are written.
    docs: PathBuf,
    rounds: usize,
}

impl Setting {
    fn from_environment() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Some(Self {
            charts: path("BENCH_CHARTS")?,
            go: path("BENCH_GO")?,
            memory: path("BENCH_MEMORY")?,
            helm: path("BENCH_HELM")?,
            hybrid: path("BENCH_HYBRID")?,
            docs: path("BENCH_DOCS")?,
            rounds: std::env::var("BENCH_ROUNDS").ok()?.parse().ok()?,
        })
    }
}

fn main() {
    let setting = Setting::from_environment().expect("the environment that benches/run sets");
    let text = std::fs::read_to_string(&setting.go).expect("the times of Helm's engine");
    let go = Timings::from_json(&text);
    let memories = std::fs::read_to_string(&setting.memory).expect("the memory of charts");
    let memories: Memories = serde_json::from_str(&memories).expect("the memory of charts");
    let ours = measure::engine(&setting.charts, setting.rounds);
    let processes = measure::processes(&setting.charts, &setting.helm, &setting.hybrid);
    let comparison = report::Comparison::new(&go, &ours, processes, memories);
    std::fs::write(setting.docs.join("benchmarks.svg"), plot::svg(&comparison)).unwrap();
    let report = setting.docs.join("benchmarks.md");
    std::fs::write(&report, comparison.text() + &other_sections(&report)).unwrap();
    eprintln!("{}", comparison.summary());
}

/// Returns the sections that other benchmarks have written into the report.
fn other_sections(report: &std::path::Path) -> String {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let start = text.find("\n## ").unwrap_or(text.len());
    text[start..].to_owned()
}
