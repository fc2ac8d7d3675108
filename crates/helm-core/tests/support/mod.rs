//! Shared by the conformance runner and the conformance test: cases, comparison, table.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a folder of cases that cannot be read ends the run"
)]

pub(crate) mod cases;
pub(crate) mod vectors;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Result of one case.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The chart or the family of functions.
    pub(crate) group: String,
    /// The case.
    pub(crate) id: String,
    /// The difference, or `None` if it passed.
    pub(crate) failure: Option<String>,
}

/// Returns the folder with Helm's output: `CONFORMANCE`, or `../shared/conformance` beside the
/// workspace.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("CONFORMANCE") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
    };
    folder.is_dir().then_some(folder)
}

/// Runs `check` on every item, on all processors; a panic counts as a failure.
pub(crate) fn run_all<T: Sync>(items: &[T], check: impl Fn(&T) -> Outcome + Sync) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = check(item);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by(|a, b| (&a.group, &a.id).cmp(&(&b.group, &b.id)));
    outcomes
}

/// Runs `check` and turns a panic into a failure.
pub(crate) fn guarded(check: impl FnOnce() -> Result<(), String>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(result) => result.err(),
        Err(panic) => Some(format!("panicked: {}", panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default()
}

/// Returns the report (a line per group, the failures, the total) and the number of failures.
pub(crate) fn report(outcomes: &[Outcome]) -> (String, usize) {
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for outcome in outcomes {
        let (passed, failed) = groups.entry(&outcome.group).or_default();
        *if outcome.failure.is_none() {
            passed
        } else {
            failed
        } += 1;
    }
    let width = groups
        .keys()
        .map(|group| group.len())
        .max()
        .unwrap_or(0)
        .max(5);
    let mut text = String::new();
    for outcome in outcomes {
        if let Some(failure) = &outcome.failure {
            let _ = writeln!(
                text,
                "FAILED {}/{}\n{}\n",
                outcome.group,
                outcome.id,
                indented(failure)
            );
        }
    }
    let _ = writeln!(text, "{:width$}  passed  failed", "group");
    for (group, (passed, failed)) in &groups {
        let _ = writeln!(text, "{group:width$}  {passed:6}  {failed:6}");
    }
    let failed = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_some())
        .count();
    let _ = write!(text, "{} passed, {failed} failed", outcomes.len() - failed);
    (text, failed)
}

fn indented(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .take(12)
        .map(|line| format!("    {line}"))
        .collect();
    lines.join("\n")
}

/// A line that matches any line.
pub(crate) const MASK: &str = "@@nondeterministic@@";

/// Compares texts byte for byte, except lines of `expected` that match any line.
pub(crate) fn compare(what: &str, expected: &str, found: &str) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let (mut wanted, mut got) = (expected.split('\n'), found.split('\n'));
    let mut number = 0;
    loop {
        number += 1;
        match (wanted.next(), got.next()) {
            (None, None) => return Ok(()),
            (Some(wanted), Some(got)) if wanted == got || wanted == MASK => {}
            (wanted, got) => {
                let end = "(end)";
                let before = found
                    .split('\n')
                    .take(number - 1)
                    .filter(|l| l.starts_with("# Source"));
                return Err(format!(
                    "{what}, line {number} {}\nexpected {:?}\nfound    {:?}",
                    before.last().unwrap_or_default(),
                    wanted.unwrap_or(end),
                    got.unwrap_or(end)
                ));
            }
        }
    }
}

/// Returns whether a case is selected by `ONLY`, a part of its group or id.
pub(crate) fn wanted(group: &str, id: &str) -> bool {
    std::env::var("ONLY").map_or(true, |only| format!("{group}/{id}").contains(&only))
}
