//! Turns the times into medians, a table and the text of `docs/benchmarks.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::measure::{Processes, Timing, Timings};

/// One chart with both engines' times, in nanoseconds, summed over its cases.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) chart: String,
    cases: usize,
    go: Timing,
    ours: Timing,
}

impl Row {
    /// How many times faster our engine renders when the chart is already compiled.
    pub(crate) fn compiled(&self) -> f64 {
        self.go.render / self.ours.render
    }

    /// How many times faster our engine loads, compiles and renders.
    pub(crate) fn whole(&self) -> f64 {
        self.go.whole / self.ours.whole
    }
}

/// Times of both engines.
pub(crate) struct Comparison {
    /// Ordered by the speed-up with the chart compiled.
    pub(crate) rows: Vec<Row>,
    cases: usize,
    memory: (u64, u64),
    processes: Processes,
}

impl Comparison {
    pub(crate) fn new(go: &Timings, ours: &Timings, processes: Processes) -> Self {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for (key @ (chart, _), ours) in &ours.cases {
            let go = go.cases[key];
            let row = rows.entry(chart).or_default();
            row.chart.clone_from(chart);
            row.cases += 1;
            row.go.whole += go.whole;
            row.go.render += go.render;
            row.ours.whole += ours.whole;
            row.ours.render += ours.render;
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by(|a, b| a.compiled().total_cmp(&b.compiled()));
        Self {
            rows,
            cases: ours.cases.len(),
            memory: (go.peak_memory, ours.peak_memory),
            processes,
        }
    }

    pub(crate) fn median_compiled(&self) -> f64 {
        median(self.rows.iter().map(Row::compiled))
    }

    pub(crate) fn median_whole(&self) -> f64 {
        median(self.rows.iter().map(Row::whole))
    }

    fn median_process(&self) -> f64 {
        median(self.processes.values().map(|(go, ours)| go / ours))
    }

    /// Returns the result in a few lines.
    pub(crate) fn summary(&self) -> String {
        let least =
            |factor: fn(&Row) -> f64| self.rows.iter().map(factor).fold(f64::INFINITY, f64::min);
        let process = self.processes.values().map(|(go, ours)| go / ours);
        let (go, ours) = self.memory;
        format!(
            "| what | Helm 4.3.1 | here | factor (median over charts) | least |\n\
             |---|---|---|---|---|\n\
             | render, chart compiled | {:.2} ms | {:.3} ms | **{:.1}** | {:.1} |\n\
             | load, compile and render | {:.2} ms | {:.3} ms | **{:.1}** | {:.1} |\n\
             | `template` as a process | {:.1} ms | {:.2} ms | **{:.1}** | {:.1} |\n\
             | peak memory of the whole corpus | {:.0} MiB | {:.0} MiB | {:.1} | |\n",
            median(self.rows.iter().map(|row| row.per_case(row.go.render))),
            median(self.rows.iter().map(|row| row.per_case(row.ours.render))),
            self.median_compiled(),
            least(Row::compiled),
            median(self.rows.iter().map(|row| row.per_case(row.go.whole))),
            median(self.rows.iter().map(|row| row.per_case(row.ours.whole))),
            self.median_whole(),
            least(Row::whole),
            median(self.processes.values().map(|(go, _)| go * 1e3)),
            median(self.processes.values().map(|(_, ours)| ours * 1e3)),
            self.median_process(),
            process.fold(f64::INFINITY, f64::min),
            mebibytes(go),
            mebibytes(ours),
            mebibytes(go) / mebibytes(ours),
        )
    }

    /// Returns the whole of `docs/benchmarks.md`.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "# Speed\n\n\
             Written by `make bench`, which renders the {} cases of {} public charts that Helm renders, \
             with Helm's own engine (`benches/go`) and with `helm-core` (`benches/corpus`), each in one \
             process that times itself. Do not edit.\n\n\
             Machine: {}.\n\n{}\n\
             Times are per case. A render starts at the user's values and ends at the sorted manifests: \
             dependencies, coalescing, schemas, templates, parsing the YAML. \
             Helm's engine parses the templates in every render; here the chart stays compiled, which is what \
             an operator does, and memory comes from mimalloc, as in the `hybrid-operator` command. *Load, \
             compile and render* starts at the bytes of the archive, with nothing kept of earlier rounds: \
             schemas are read when they are first needed, and the templates of a large chart are parsed on \
             all processors. Of a case the median round of at least half a second counts, so that what a garbage collector \
             costs in a usual round is in it, and giving memory back is in ours; of a chart the sum over its \
             cases, of a process the median of five starts, with the chart's own values and output thrown \
             away. Peak memory is that of the process after all rounds.\n\n\
             ![How many times faster than Helm's engine, by chart](benchmarks.svg)\n\n\
             | chart | cases | Helm render, ms | render, ms | factor | Helm load + render, ms | load + compile + render, ms | factor | `helm template`, ms | `template`, ms | factor |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            self.cases,
            self.rows.len(),
            machine(),
            self.summary(),
        );
        for row in &self.rows {
            let _ = write!(
                text,
                "| {} | {} | {:.2} | {:.3} | {:.1} | {:.2} | {:.3} | {:.1} ",
                row.chart,
                row.cases,
                row.per_case(row.go.render),
                row.per_case(row.ours.render),
                row.compiled(),
                row.per_case(row.go.whole),
                row.per_case(row.ours.whole),
                row.whole(),
            );
            let _ = match self.processes.get(&row.chart) {
                Some((go, ours)) => {
                    writeln!(
                        text,
                        "| {:.1} | {:.2} | {:.1} |",
                        go * 1e3,
                        ours * 1e3,
                        go / ours
                    )
                }
                None => writeln!(text, "| | | |"),
            };
        }
        text
    }
}

impl Row {
    /// Converts the nanoseconds of all cases of a chart to the milliseconds of one case.
    #[allow(clippy::cast_precision_loss, reason = "a chart has few cases")]
    fn per_case(&self, nanoseconds: f64) -> f64 {
        nanoseconds / self.cases as f64 / 1e6
    }
}

fn median(factors: impl Iterator<Item = f64>) -> f64 {
    let mut factors: Vec<f64> = factors.collect();
    factors.sort_by(f64::total_cmp);
    factors.get(factors.len() / 2).copied().unwrap_or(f64::NAN)
}

#[allow(clippy::cast_precision_loss, reason = "printed without decimals")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Returns a description of the machine without identifying it.
fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))
        .and_then(|kilobytes| kilobytes.parse::<u64>().ok());
    format!(
        "{} {}, {processors} processors, {:.0} GiB of memory",
        std::env::consts::OS,
        std::env::consts::ARCH,
        mebibytes(kilobytes.unwrap_or(0) << 10) / 1024.0
    )
}
