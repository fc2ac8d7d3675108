//! Measures checks: `benches/run admissions`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use helm_release::engine::RenderPool;
use serde_json::json;

use super::tests::{outcome_of, watch};
use super::{Entry, Outcome};
use crate::helm::chart::Chart;
use crate::watches::AdmissionMode;

const CHECKS: u16 = 5000;
const AHEAD: u16 = 500;

/// Returns the chart of Redis, where the benchmark of the chart engine has it.
fn redis() -> Option<PathBuf> {
    let given = std::env::var_os("CONFORMANCE").map(PathBuf::from);
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let folder = given.unwrap_or_else(beside).join("charts/archives");
    let files = std::fs::read_dir(folder).ok()?.flatten();
    let mut paths = files.map(|file| file.path());
    paths.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("redis-") && name.ends_with(".tgz")
    })
}

#[tokio::test]
#[ignore = "a benchmark, which benches/run starts"]
async fn admissions_per_second() {
    let Some(path) = redis() else {
        println!("skipped: the chart of Redis is not there; set CONFORMANCE");
        return;
    };
    let entry = Arc::new(Entry {
        mode: AdmissionMode::Render,
        watch: watch("admission: render"),
        chart: Chart::load(&path).unwrap(),
        storage: super::Storage::default(),
    });
    let pool = RenderPool::default();
    let mut times = Vec::new();
    let mut begin = Instant::now();
    for number in 0..AHEAD + CHECKS {
        if number == AHEAD {
            begin = Instant::now();
        }
        let entry = Arc::clone(&entry);
        // With a Secret of its own the chart would look it up.
        let spec =
            json!({"auth": {"existingSecret": "x"}, "replica": {"replicaCount": number % 7}});
        let started = Instant::now();
        let outcome = pool.run(move |_| outcome_of(&entry, &spec)).await.unwrap();
        times.push(started.elapsed());
        assert!(matches!(outcome, Outcome::Allowed(_)), "{outcome:?}");
    }
    let all = begin.elapsed();
    let mut times = times.split_off(usize::from(AHEAD));
    times.sort_unstable();
    println!(
        "{}: {:.0} checks per second, one at a time; median {:?}, p99 {:?}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        f64::from(CHECKS) / all.as_secs_f64(),
        times[usize::from(CHECKS) / 2],
        times[usize::from(CHECKS) * 99 / 100],
    );
}
