//! Measures an operator with many releases: the time of their install beside that of the same requests by a bare
//! client, memory, rest, a restart, and edits while all releases are being upgraded. Started by `benches/run scale`.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a development tool; panicking is its error report"
)]

mod cluster;
mod floor;
mod measure;
mod report;

use std::path::PathBuf;

/// Number of namespaces of the releases.
pub(crate) const NAMESPACES: usize = 100;

/// Returns the namespace of a release.
pub(crate) fn namespace(number: usize) -> String {
    format!("tenant-{}", number % NAMESPACES)
}

/// Returns the name of a release.
pub(crate) fn name(number: usize) -> String {
    format!("w{number}")
}

#[tokio::main]
async fn main() {
    let text = |name| std::env::var(name).expect("see benches/run");
    let (root, program) = (PathBuf::from(text("BENCH_ROOT")), text("BENCH_CHARTS"));
    let sizes = text("BENCH_SCALE");
    let mut rows = Vec::new();
    for size in sizes.split(',') {
        let releases = size.parse().expect("BENCH_SCALE is a list of numbers");
        eprintln!("{releases} releases");
        rows.push(measure::measure(releases, program.as_ref(), &root).await);
    }
    let section = report::section(&text("BENCH_COMMIT"), &rows);
    if std::env::var_os("BENCH_ONLY").is_none() {
        let report = root.join("docs/contributing/benchmarks.md");
        start_benchmark::write_section(&report, report::HEADING, &section);
    }
    eprintln!("{section}");
}
