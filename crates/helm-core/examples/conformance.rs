//! Compares with what Helm renders: `CASES=DIR` chart cases, `VECTORS=DIR` function vectors (both
//! of `CONFORMANCE`, or `../shared/conformance`, when neither is given), or `CHARTS=DIR HELM=PATH`
//! any folder of charts beside a helm binary. `ONLY=TEXT` takes the cases whose name has the text.
//! Prints a table and the total; the exit code is 1 on any miss.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
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
            eprintln!(
                "no answers to compare with: set CASES, VECTORS, CONFORMANCE, or CHARTS and HELM"
            );
            return ExitCode::FAILURE;
        };
        cases = Some(folder.join("charts"));
        vectors = Some(folder.join("functions"));
    }
    // What panics is reported with its case.
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
