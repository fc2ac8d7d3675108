//! Measures times: of our engine in this process, and of both programs as processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use helm_core::CompiledChart;
use serde::Deserialize;

use crate::cases::{Case, cases, compile, name};

/// Times of one case, in nanoseconds: the median of the passes, each with the time of its median round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// From the bytes of the archive to the first sorted manifests.
    pub(crate) whole: f64,
    /// From a chart and values to sorted manifests. For our engine the chart has rendered before.
    pub(crate) render: f64,
}

/// Memory of one chart, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Memory {
    /// The packed chart.
    pub(crate) archive: u64,
    /// Memory that the compiled chart keeps after a render.
    pub(crate) compiled: u64,
    /// Peak memory of a render, with its result.
    pub(crate) render: u64,
}

/// Memory by chart, as `memory.rs` prints it.
pub(crate) type Memories = BTreeMap<String, Memory>;

/// Times of one engine.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// Keyed by chart and case.
    pub(crate) cases: BTreeMap<(String, String), Timing>,
    /// Peak memory of the process, in bytes.
    pub(crate) peak_memory: u64,
}

/// Time of one process per chart, in seconds: Helm's and ours.
pub(crate) type Processes = BTreeMap<String, (f64, f64)>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    cases: Vec<PrintedCase>,
    peak_memory: u64,
}

#[derive(Deserialize)]
struct PrintedCase {
    chart: String,
    case: String,
    whole: u64,
    render: u64,
}

impl Timings {
    /// Parses the output of `benches/go`.
    pub(crate) fn from_json(text: &str) -> Self {
        let printed: Printed = serde_json::from_str(text).unwrap();
        let case = |case: PrintedCase| {
            let timing = Timing {
                whole: float(case.whole),
                render: float(case.render),
            };
            ((case.chart, case.case), timing)
        };
        Self {
            cases: printed.cases.into_iter().map(case).collect(),
            peak_memory: printed.peak_memory,
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "times are not read to 16 digits"
)]
fn float(nanoseconds: u64) -> f64 {
    nanoseconds as f64
}

/// The times of the median round of each pass, in nanoseconds. Those of all rounds would add to the peak memory.
#[derive(Default)]
struct Passes {
    whole: Vec<f64>,
    render: Vec<f64>,
}

/// Times every case that renders. Each round loads and compiles the chart from the bytes of its
/// archive, and also renders with a chart that stays compiled, until the next chart.
pub(crate) fn engine(folder: &Path, rounds: usize) -> Timings {
    let mut times: BTreeMap<(String, String), Passes> = BTreeMap::new();
    let mut kept: Option<(String, CompiledChart)> = None;
    for _ in 0..PASSES {
        for directory in cases(folder) {
            let (case, user) = Case::read(&directory);
            let packed = std::fs::read(folder.join(&case.chart)).unwrap();
            // The chart before is dropped first.
            kept = kept.filter(|(chart, _)| *chart == case.chart);
            let (_, chart) = kept.get_or_insert_with(|| (case.chart.clone(), compile(&packed)));
            let capabilities = case.capabilities();
            let key = (name(directory.parent().unwrap()), name(&directory));
            let times = times.entry(key).or_default();
            times.whole.push(time(rounds, || {
                let compiled = compile(&packed);
                let rendered = case.render(&compiled, &capabilities, &user);
                (compiled, rendered)
            }));
            times
                .render
                .push(time(rounds, || case.render(chart, &capabilities, &user)));
        }
    }
    let timing = |passes: Passes| Timing {
        whole: median(passes.whole),
        render: median(passes.render),
    };
    let cases = times.into_iter();
    Timings {
        cases: cases.map(|(case, rounds)| (case, timing(rounds))).collect(),
        peak_memory: peak_memory(),
    }
}

/// How often all cases are measured one after the other, so that a machine that is slow for a few seconds
/// does not slow down all rounds of a case.
const PASSES: usize = 3;
/// Minimum time spent on one case in a pass: fast cases need more rounds until they are as fast as in a
/// process that does nothing else.
const MIN_TIME: Duration = Duration::from_millis(200);
/// Maximum time spent on one case in a pass; slow cases get fewer rounds.
const MAX_TIME: Duration = Duration::from_millis(1500);

/// Returns the time of the median round of a pass over `work`, in nanoseconds. Dropping the result is included,
/// as garbage collection is in Helm's times.
fn time<T>(rounds: usize, mut work: impl FnMut() -> T) -> f64 {
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < rounds.div_ceil(PASSES) || began.elapsed() < MIN_TIME {
        let start = Instant::now();
        drop(std::hint::black_box(work()));
        times.push(start.elapsed().as_secs_f64() * 1e9);
        if began.elapsed() > MAX_TIME {
            break;
        }
    }
    median(times)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Number of starts of each process.
const STARTS: usize = 5;

/// Times `template` of both programs on every chart that renders without values.
pub(crate) fn processes(folder: &Path, helm: &Path, hybrid: &Path) -> Processes {
    let mut processes = Processes::new();
    for case in cases(folder) {
        if !case.ends_with("default") {
            continue;
        }
        let archive = folder.join(Case::read(&case).0.chart);
        let time = |program: &Path| {
            let mut starts = [0; STARTS].map(|_| start(program, &archive));
            starts.sort_by(f64::total_cmp);
            starts[STARTS / 2]
        };
        let times = (time(helm), time(hybrid));
        processes.insert(name(case.parent().unwrap()), times);
    }
    processes
}

/// Returns the time of `PROGRAM template demo ARCHIVE` from start to exit, in seconds.
fn start(program: &Path, archive: &Path) -> f64 {
    let start = Instant::now();
    let status = Command::new(program)
        .args(["template", "demo"])
        .arg(archive)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let time = start.elapsed();
    assert!(
        status.success(),
        "{} {}",
        program.display(),
        archive.display()
    );
    time.as_secs_f64()
}

/// Returns the peak memory of this process, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}
