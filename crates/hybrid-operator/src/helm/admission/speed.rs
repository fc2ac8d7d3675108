//! Measures checks: `benches/run admissions`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream;
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
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let check = async |number: u16| {
        let entry = Arc::clone(&entry);
        // With a Secret of its own the chart would look it up.
        let spec =
            json!({"auth": {"existingSecret": "x"}, "replica": {"replicaCount": number % 7}});
        let started = Instant::now();
        let outcome = pool.run(move |_| outcome_of(&entry, &spec)).await.unwrap();
        assert!(matches!(outcome, Outcome::Allowed(_)), "{outcome:?}");
        started.elapsed()
    };
    for number in 0..AHEAD {
        check(number).await;
    }
    for at_once in [1, host::cpus()] {
        let (begin, before) = (Instant::now(), processor_time());
        let checks = stream::iter(0..CHECKS).map(&check);
        let mut times: Vec<Duration> = checks.buffer_unordered(at_once).collect().await;
        let (all, used) = (begin.elapsed(), processor_time().saturating_sub(before));
        times.sort_unstable();
        println!(
            "{name}: {:.0} checks per second, {at_once} at a time; median {:?}, p99 {:?}; {:?} of processor time each",
            f64::from(CHECKS) / all.as_secs_f64(),
            times[usize::from(CHECKS) / 2],
            times[usize::from(CHECKS) * 99 / 100],
            used / u32::from(CHECKS),
        );
    }
}

/// Returns the processor time of this process, in steps of 10 ms; other programs do not count.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
