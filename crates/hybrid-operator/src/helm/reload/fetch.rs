//! Fetches the charts that are missing, each on its own, until all are there.

use std::time::Duration;

use host::watch;
use kube_objects::Cluster;
use kube_objects::with_causes;
use operator_runtime::manager::{ControllerContext, ControllerError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::super::credentials;
use super::super::remote::ChartReader;
use crate::watches::{RemoteChart, Watch};

/// Time before the second attempt, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Maximum number of charts that are fetched at the same time.
const AT_ONCE: usize = 4;

/// The entries that do not run because their charts are missing, for `/readyz` and for the conditions of
/// their custom resources.
#[derive(Clone, Default)]
pub(crate) struct MissingCharts(watch::Sender<Vec<Missing>>);

/// An entry that does not run because its chart is missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Missing {
    pub(super) watch: Watch,
    /// Failure of the last attempt; `None` before it has ended.
    pub(super) failure: Option<Failure>,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) why: String,
    /// Time until the next attempt.
    pub(super) pause: Duration,
}

impl MissingCharts {
    /// Fails while an entry does not run, and says why.
    pub(crate) fn check(&self) -> Result<(), ControllerError> {
        let missing = self.0.borrow();
        let texts = missing.iter().filter_map(|missing| {
            let kind = &missing.watch.gvk.kind;
            let chart = missing.watch.chart.remote()?;
            Some(match &missing.failure {
                Some(failure) => format!("{kind} does not run: {}", failure.why),
                None => format!("{kind} does not run: the chart {chart} is being fetched"),
            })
        });
        let texts: Vec<String> = texts.collect();
        if texts.is_empty() {
            return Ok(());
        }
        Err(texts.join("; ").into())
    }

    /// Follows the entries.
    pub(super) fn subscribe(&self) -> watch::Receiver<Vec<Missing>> {
        self.0.subscribe()
    }

    /// Replaces the entries; `failure` returns what is known about a chart.
    fn set(&self, entries: &[Watch], failure: impl Fn(&RemoteChart) -> Option<Failure>) {
        let missing = entries.iter().map(|watch| Missing {
            failure: watch.chart.remote().and_then(&failure),
            watch: watch.clone(),
        });
        self.0.send_replace(missing.collect());
    }
}

/// A chart that is missing.
struct Wanted {
    chart: RemoteChart,
    /// Number of failed attempts.
    failures: u32,
    /// Time when the chart is fetched, unless it is being fetched.
    due: Option<Instant>,
    /// Failure of the last attempt.
    failure: Option<Failure>,
}

/// Outcome of an attempt.
pub(super) enum Fetched {
    /// The chart is there.
    Arrived,
    /// The chart cannot be fetched or used, for this reason.
    Failed(String),
}

/// The charts that are missing.
pub(super) struct Fetches {
    reader: ChartReader,
    wanted: Vec<Wanted>,
    running: JoinSet<(RemoteChart, Result<(), String>)>,
    missing: MissingCharts,
    /// The entries that do not run.
    stopped: Vec<Watch>,
}

impl Fetches {
    pub(super) fn new(reader: ChartReader, missing: MissingCharts) -> Self {
        Self {
            reader,
            wanted: Vec::new(),
            running: JoinSet::new(),
            missing,
            stopped: Vec::new(),
        }
    }

    /// Sets the entries whose charts are missing. `runs` says whether an entry runs with a former chart.
    pub(super) fn want(&mut self, entries: Vec<Watch>, runs: impl Fn(&Watch) -> bool) {
        let mut known = std::mem::take(&mut self.wanted);
        for chart in entries.iter().filter_map(|watch| watch.chart.remote()) {
            if self.wanted.iter().any(|wanted| wanted.chart == *chart) {
                continue;
            }
            let at = known.iter().position(|wanted| wanted.chart == *chart);
            self.wanted.push(match at {
                Some(at) => known.swap_remove(at),
                None => Wanted {
                    chart: chart.clone(),
                    failures: 0,
                    due: Some(Instant::now()),
                    failure: None,
                },
            });
        }
        self.stopped = entries;
        self.stopped.retain(|watch| !runs(watch));
        self.report();
    }

    /// Returns whether a chart is missing.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Returns the number of entries that do not run.
    pub(super) fn stopped(&self) -> usize {
        self.stopped.len()
    }

    fn report(&self) {
        self.missing.set(&self.stopped, |chart| {
            let wanted = self.wanted.iter().find(|wanted| wanted.chart == *chart)?;
            wanted.failure.clone()
        });
    }

    /// Starts what is due, and waits until an attempt has ended.
    pub(super) async fn next(&mut self, context: &ControllerContext) -> Fetched {
        loop {
            self.start_due(context);
            let due = self.wanted.iter().filter_map(|wanted| wanted.due).min();
            let due = due.filter(|_| self.running.len() < AT_ONCE);
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            // Without a running attempt, `join_next` returns at once.
            if self.running.is_empty() {
                pause.await;
                continue;
            }
            tokio::select! {
                biased;
                () = pause => {}
                ended = self.running.join_next() => {
                    let fetched = match ended {
                        Some(Ok((chart, result))) => self.ended(&chart, result),
                        _ => self.try_all_later(),
                    };
                    if let Some(fetched) = fetched {
                        return fetched;
                    }
                }
            }
        }
    }

    fn start_due(&mut self, context: &ControllerContext) {
        let now = Instant::now();
        for wanted in &mut self.wanted {
            let is_due = wanted.due.is_some_and(|due| due <= now);
            if !is_due || self.running.len() >= AT_ONCE {
                continue;
            }
            wanted.due = None;
            let (reader, chart) = (self.reader.clone(), wanted.chart.clone());
            let cluster = context.connection.cluster.clone();
            let own = context.identity.namespace.clone();
            self.running.spawn(async move {
                let result = fetch(reader, &chart, &cluster, own.as_deref()).await;
                (chart, result)
            });
        }
    }

    /// Makes sure that no chart is forgotten after an attempt that panicked.
    fn try_all_later(&mut self) -> Option<Fetched> {
        let later = Instant::now() + LONGEST_PAUSE;
        for wanted in &mut self.wanted {
            wanted.due = wanted.due.or(Some(later));
        }
        None
    }

    /// Notes the end of an attempt; `None` if the chart is not wanted any longer.
    fn ended(&mut self, chart: &RemoteChart, result: Result<(), String>) -> Option<Fetched> {
        let at = self
            .wanted
            .iter()
            .position(|wanted| wanted.chart == *chart)?;
        let wanted = self.wanted.get_mut(at)?;
        let error = match result {
            Ok(()) => {
                info!(chart = %chart, "fetched the chart");
                self.wanted.swap_remove(at);
                return Some(Fetched::Arrived);
            }
            Err(error) => error,
        };
        let pause = pause_after(wanted.failures);
        wanted.failures = wanted.failures.saturating_add(1);
        wanted.due = Some(Instant::now() + pause);
        warn!(
            chart = %chart,
            error,
            retry_in = ?pause,
            "the chart is missing; the releases of its entry stay as they are"
        );
        wanted.failure = Some(Failure {
            why: error.clone(),
            pause,
        });
        self.report();
        Some(Fetched::Failed(error))
    }
}

/// Fetches a chart. What takes processor time, or blocks, is on a thread for that.
async fn fetch(
    reader: ChartReader,
    chart: &RemoteChart,
    cluster: &Cluster,
    own: Option<&str>,
) -> Result<(), String> {
    let credentials = credentials::read(cluster, own, chart).await;
    let credentials = credentials.map_err(|error| with_causes(&error))?;
    let chart = chart.clone();
    let fetched = move || reader.fetch(&chart, &credentials).map(drop);
    match host::blocking(fetched).await {
        Ok(fetched) => fetched.map_err(|error| with_causes(&error)),
        Err(panic) => Err(panic.to_string()),
    }
}

/// Returns the time before the next attempt after a number of failures.
fn pause_after(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use chart_source::ChartReference;
    use kube::core::GroupVersionKind;

    use super::*;
    use crate::watches::ChartSource;

    fn entry(kind: &str, chart: &str) -> Watch {
        let gvk = GroupVersionKind::gvk("example.com", "v1", kind);
        let mut watch = Watch::new(gvk, "");
        let reference = ChartReference::parse(chart, None, None).unwrap();
        watch.chart = ChartSource::Remote(Box::new(RemoteChart::new(reference)));
        watch
    }

    #[test]
    fn attempts_become_rarer_up_to_one_a_minute() {
        let seconds: Vec<u64> = [0, 1, 2, 5, 6, 31, 32, u32::MAX]
            .map(|failures| pause_after(failures).as_secs())
            .into();
        assert_eq!(seconds, [1, 2, 4, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn entries_without_a_chart_are_not_ready_unless_they_run_with_a_former_one() {
        let missing = MissingCharts::default();
        let mut fetches = Fetches::new(ChartReader::default(), missing.clone());
        assert!(missing.check().is_ok());
        let entries = vec![
            entry("Web", "oci://h/web:1.0.0"),
            entry("Db", "oci://h/db:1.0.0"),
        ];
        fetches.want(entries.clone(), |watch| watch.gvk.kind == "Db");
        assert!(fetches.is_incomplete());
        let text = missing.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "Web does not run: the chart oci://h/web:1.0.0 is being fetched"
        );
        fetches.wanted[0].failure = Some(Failure {
            why: "no route".to_owned(),
            pause: Duration::from_secs(1),
        });
        fetches.want(entries, |watch| watch.gvk.kind == "Db");
        let text = missing.check().unwrap_err().to_string();
        assert_eq!(text, "Web does not run: no route", "it is remembered");
        fetches.want(Vec::new(), |_| false);
        assert!(missing.check().is_ok() && !fetches.is_incomplete());
    }
}
