//! Measures times: of our engine in this process, and of both programs as processes.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use helm_core::capabilities::KubeVersion;
use helm_core::chart::Limits;
use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::release::Revision;
use helm_core::values::{self, Values};
use helm_core::{Capabilities, Chart, CompiledChart, Rendered};
use serde::Deserialize;

/// Times of one case in the median round, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// From the bytes of the archive to the first sorted manifests.
    pub(crate) whole: f64,
    /// From a chart and values to sorted manifests. For our engine the chart has rendered before.
    pub(crate) render: f64,
}

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Case {
    chart: String,
    name: String,
    namespace: String,
    is_upgrade: bool,
    kube_version: String,
    api_versions: Vec<String>,
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

/// Times every case that renders. Each round loads and compiles the chart from the bytes of its
/// archive, and also renders with a chart that stays compiled.
pub(crate) fn engine(folder: &Path, rounds: usize) -> Timings {
    let mut timings = Timings::default();
    let mut compiled = HashMap::new();
    for directory in cases(folder) {
        let text = std::fs::read_to_string(directory.join("case.yaml")).unwrap();
        let case: Case = go_yaml::from_str(&text).unwrap();
        let packed = std::fs::read(folder.join(&case.chart)).unwrap();
        let chart = compiled
            .entry(case.chart.clone())
            .or_insert_with(|| compile(&packed));
        let user = std::fs::read(directory.join("values.yaml")).unwrap_or_default();
        let user = values::read(&user).unwrap();
        let capabilities = capabilities(&case);
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let whole = median(rounds, || {
            let chart = compile(&packed);
            let rendered = render(&chart, &case, &capabilities, &user);
            (chart, rendered)
        });
        let render = median(rounds, || render(chart, &case, &capabilities, &user));
        timings.cases.insert(
            (name(directory.parent().unwrap()), name(&directory)),
            Timing { whole, render },
        );
    }
    timings.peak_memory = peak_memory();
    timings
}

fn compile(packed: &[u8]) -> CompiledChart {
    CompiledChart::compile(&Chart::from_archive(packed, &Limits::default()).unwrap()).unwrap()
}

fn render(
    chart: &CompiledChart,
    case: &Case,
    capabilities: &Capabilities,
    user: &Values,
) -> Rendered {
    let values = chart.coalesce(user.clone()).unwrap();
    let mut release = ReleaseInfo::new(&case.name, &case.namespace);
    if case.is_upgrade {
        release = release.upgrade_to(Revision::FIRST);
    }
    let input = RenderInput::new(release, &values).capabilities(capabilities);
    chart.render(&input).unwrap()
}

fn capabilities(case: &Case) -> Capabilities {
    let mut capabilities = Capabilities {
        kube_version: KubeVersion::parse(&case.kube_version).unwrap(),
        ..Capabilities::default()
    };
    capabilities.api_versions = capabilities.api_versions.with(&case.api_versions);
    capabilities
}

/// Minimum time spent on one case: fast cases need more rounds until they are as fast as in a
/// process that does nothing else.
const MIN_TIME: Duration = Duration::from_millis(500);
/// Maximum time spent on one case; slow cases get fewer rounds.
const MAX_TIME: Duration = Duration::from_secs(4);

/// Returns the time of the median round of `work`, in nanoseconds. Dropping the result is included,
/// as garbage collection is in Helm's times.
fn median<T>(rounds: usize, mut work: impl FnMut() -> T) -> f64 {
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < rounds || began.elapsed() < MIN_TIME {
        let start = Instant::now();
        drop(std::hint::black_box(work()));
        times.push(start.elapsed());
        if began.elapsed() > MAX_TIME {
            break;
        }
    }
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9
}

/// Returns the directories of the cases that Helm renders.
fn cases(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| {
        let entries = std::fs::read_dir(path).expect("a folder of cases");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.is_dir());
        paths.sort();
        paths
    };
    let mut cases: Vec<PathBuf> = below(folder.join("cases"))
        .into_iter()
        .flat_map(below)
        .collect();
    let only = std::env::var("ONLY").unwrap_or_default();
    cases.retain(|case| !case.join("error.txt").exists());
    cases.retain(|case| case.to_string_lossy().contains(&only));
    cases
}

/// How often each process is started.
const STARTS: usize = 5;

/// Times `template` of both programs on every chart that renders without values.
pub(crate) fn processes(folder: &Path, helm: &Path, hybrid: &Path) -> Processes {
    let mut processes = Processes::new();
    for case in cases(folder) {
        if !case.ends_with("default") {
            continue;
        }
        let chart = case.parent().unwrap().file_name().unwrap();
        let text = std::fs::read_to_string(case.join("case.yaml")).unwrap();
        let about: Case = go_yaml::from_str(&text).unwrap();
        let archive = folder.join(about.chart);
        let time = |program: &Path| {
            let mut starts = [0; STARTS].map(|_| start(program, &archive));
            starts.sort_by(f64::total_cmp);
            starts[STARTS / 2]
        };
        let times = (time(helm), time(hybrid));
        processes.insert(chart.to_string_lossy().into_owned(), times);
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
