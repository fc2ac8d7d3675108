//! Every answer of Helm's in the conformance folder, where there is one; see
//! `examples/conformance.rs` for other folders and for charts beside a helm binary.

#![allow(
    clippy::print_stdout,
    reason = "the table is for people who run the test"
)]

mod support;

use std::io::Write as _;

#[test]
fn charts_and_functions_answer_as_helm_does() {
    let Some(folder) = support::folder() else {
        // Past libtest, which hides what a passing test prints.
        let reason = "SKIPPED (1): helm-core's comparison with Helm: no conformance folder";
        let _ = writeln!(std::io::stderr(), "{reason}");
        return;
    };
    let mut outcomes = support::cases::run(&folder.join("charts"));
    outcomes.extend(support::vectors::run(&folder.join("functions")));
    let (table, failed) = support::report(&outcomes);
    println!("{table}");
    assert!(failed == 0 && !outcomes.is_empty(), "{table}");
}
