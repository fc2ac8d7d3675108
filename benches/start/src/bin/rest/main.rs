//! Counts the requests and the processor time of an operator with many releases: for the install until it is
//! quiet, at rest, and for a restart. Started by `benches/run rest`.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a development tool; panicking is its error report"
)]

mod cluster;
mod measure;
mod report;

use std::path::PathBuf;

use measure::Measured;

/// Releases of one operator.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) releases: usize,
    pub(crate) namespaces: usize,
    pub(crate) unready: Unready,
}

/// The releases that are not ready.
pub(crate) enum Unready {
    /// The Pods of so many do not start, and nothing says why.
    Starting(usize),
    /// The images of none can be pulled.
    NoImage,
}

impl Case {
    /// Returns whether the Pods of a release do not start.
    pub(crate) fn is_unready(&self, number: usize) -> bool {
        match self.unready {
            Unready::Starting(count) => number < count,
            Unready::NoImage => true,
        }
    }

    /// Returns the namespace of a release.
    pub(crate) fn namespace(&self, number: usize) -> String {
        format!("tenant-{}", number % self.namespaces)
    }
}

const fn case(name: &'static str, releases: usize, namespaces: usize, unready: Unready) -> Case {
    Case {
        name,
        releases,
        namespaces,
        unready,
    }
}

const STARTING: &str = "1,000, of which 906 do not start";
const NO_IMAGE: &str = "1,000, no image can be pulled";
const CASES: [Case; 5] = [
    case("300, all become ready", 300, 1, Unready::Starting(0)),
    case(STARTING, 1000, 1, Unready::Starting(906)),
    case(STARTING, 1000, 100, Unready::Starting(906)),
    case(NO_IMAGE, 1000, 1, Unready::NoImage),
    case(NO_IMAGE, 1000, 100, Unready::NoImage),
];

#[tokio::main]
async fn main() {
    let path = |name| PathBuf::from(std::env::var_os(name).expect("see benches/run"));
    let (root, program) = (path("BENCH_ROOT"), path("BENCH_CHARTS"));
    let only = std::env::var("BENCH_REST").ok();
    let mut rows: Vec<(&Case, Measured)> = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let asked = |list: &String| list.split(',').any(|text| text == number.to_string());
        if only.as_ref().is_none_or(asked) {
            eprintln!("{} in {} namespaces", case.name, case.namespaces);
            rows.push((case, measure::measure(case, &program, &root).await));
        }
    }
    let commit = std::env::var("BENCH_COMMIT").expect("see benches/run");
    let section = report::section(&commit, &rows);
    if only.is_none() {
        let report = root.join("docs/contributing/benchmarks.md");
        start_benchmark::write_section(&report, report::HEADING, &section);
    }
    eprintln!("{section}");
}
