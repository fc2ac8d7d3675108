//! Compares rendered output with Helm's: `CASES=DIR` selects chart cases, `VECTORS=DIR` function
//! vectors (both from `CONFORMANCE`, or `../shared/conformance`, if neither is given), and
//! `CHARTS=DIR HELM=PATH` any folder of charts and a helm binary. `ONLY=TEXT` selects the cases
//! whose name contains the text. Prints a table and the total; the exit code is 1 on any mismatch.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a development tool"
)]

#[path = "../tests/support/helm.rs"]
mod helm;
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let (mut cases, mut vectors) = (variable("CASES"), variable("VECTORS"));
    let charts = variable("CHARTS");
    if cases.is_none() && vectors.is_none() && charts.is_none() {
        let Some(folder) = support::folder() else {
            eprintln!("no expected output: set CASES, VECTORS, CONFORMANCE, or CHARTS and HELM");
            return ExitCode::FAILURE;
        };
        cases = Some(folder.join("charts"));
        vectors = Some(folder.join("functions"));
    }
    // Panics are reported with their case.
    std::panic::set_hook(Box::new(|_| {}));
    let mut outcomes = Vec::new();
    if let Some(folder) = cases {
        outcomes.extend(support::cases::run(&folder));
    }
    if let Some(folder) = vectors {
        outcomes.extend(support::vectors::run(&folder));
    }
    if let Some(folder) = charts {
        let helm = variable("HELM").unwrap_or_else(|| Path::new("helm").to_owned());
        outcomes.extend(helm::run(&folder, &helm));
    }
    let (text, failed) = support::report(&outcomes);
    println!("{text}");
    if failed == 0 && !outcomes.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
