//! Metrics with the names that controller-runtime uses, so that existing dashboards keep working.

use std::sync::Arc;
use std::time::Duration;

use kube_objects::client::Counts;
use kube_objects::watch::Restarts;
use tokio::time::Instant;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::process::ProcessMetrics;
use super::queues::{QueueMetrics, QueueState};
use super::reloads::ReloadMetrics;
use super::resources::{ResourceAges, ResourceOutputs};
use super::webhooks::WebhookMetrics;

/// The commit of the build, which the builder sets with `HYBRID_OPERATOR_COMMIT`.
const COMMIT: &str = match option_env!("HYBRID_OPERATOR_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    commit: &'static str,
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: ReconcileResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestartLabels {
    kind: String,
    cause: &'static str,
}

/// Counters of watch restarts with a fresh list.
#[derive(Debug, Clone, Default)]
struct WatchMetrics(Family<RestartLabels, Counter>);

impl WatchMetrics {
    fn restarts(&self) -> Restarts {
        let counters = self.0.clone();
        Restarts::counted_by(move |kind, cause| {
            let labels = RestartLabels {
                kind: kind.to_owned(),
                cause,
            };
            counters.get_or_create(&labels).inc();
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum ReconcileResult {
    #[expect(non_camel_case_types, reason = "the label's text")]
    success,
    #[expect(non_camel_case_types, reason = "the label's text")]
    error,
    #[expect(non_camel_case_types, reason = "the label's text")]
    requeue_after,
}

#[expect(non_upper_case_globals, reason = "conventional names of the variants")]
impl ReconcileResult {
    pub(crate) const Success: Self = Self::success;
    pub(crate) const Error: Self = Self::error;
    pub(crate) const RequeueAfter: Self = Self::requeue_after;
}

/// Adds the metrics of an operator.
pub(crate) type RegisterMetrics = Box<dyn FnOnce(&mut Registry) + Send>;

/// The metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncodeError {
    #[error("cannot format the metrics")]
    Format(#[from] std::fmt::Error),
    #[error("the metric {0} is registered twice; choose another name")]
    Duplicate(String),
}

/// Returns the name of a metric that appears twice.
fn first_duplicate(text: &str) -> Option<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut names: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    let mut pairs = names.iter().zip(names.iter().skip(1));
    pairs.find(|(one, next)| one == next).map(|(name, _)| *name)
}

/// The metrics of a process.
#[derive(Clone)]
pub struct Metrics(Arc<MetricsInner>);

struct MetricsInner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    leader: Family<NameLabel, Gauge>,
    unassigned: Family<KindLabel, Gauge>,
    counts: Counts,
    controllers: Families,
    webhooks: WebhookMetrics,
    reloads: ReloadMetrics,
}

#[derive(Clone)]
struct Families {
    total: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    seconds: Family<ControllerLabel, Histogram>,
    active: Family<ControllerLabel, Gauge>,
    max: Family<ControllerLabel, Gauge>,
    terminal: Family<ControllerLabel, Counter>,
    panics: Family<ControllerLabel, Counter>,
    timeouts: Family<ControllerLabel, Counter>,
    queues: QueueMetrics,
    ages: ResourceAges,
    outputs: ResourceOutputs,
    blocked: Family<ControllerLabel, Counter>,
    watches: WatchMetrics,
}

impl Default for Families {
    fn default() -> Self {
        let buckets = || {
            Histogram::new([
                0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
                0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0,
                8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
            ])
        };
        Self {
            total: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            active: Family::default(),
            max: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            queues: QueueMetrics::default(),
            ages: ResourceAges::new(
                "resource_created_at_seconds",
                "Time at which a custom resource was created",
            ),
            outputs: ResourceOutputs::new(
                "hybrid_operator_output",
                "Number in the status of a custom resource that its entry computes",
            ),
            blocked: Family::default(),
            watches: WatchMetrics::default(),
        }
    }
}

impl Metrics {
    /// Creates the metrics, with those that `own` registers. The counters of requests are read from
    /// `counts`.
    pub(crate) fn new(counts: Counts, own: impl IntoIterator<Item = RegisterMetrics>) -> Self {
        let mut registry = Registry::default();
        let controllers = Families::default();
        let requests = Family::<RequestLabels, Counter>::default();
        let leader = Family::<NameLabel, Gauge>::default();
        let unassigned = Family::<KindLabel, Gauge>::default();
        let info = Family::<BuildLabels, Gauge>::default();
        info.get_or_create(&BuildLabels {
            commit: COMMIT,
            version: env!("CARGO_PKG_VERSION"),
        })
        .set(1);
        let c = &controllers;
        // The encoder appends `_total` to the names of counters.
        registry.register(
            "controller_runtime_reconcile",
            "Number of reconciles by result: success, error or requeue_after",
            c.total.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Number of failed reconciles",
            c.errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles in seconds",
            c.seconds.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Number of reconciles in progress",
            c.active.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "Number of reconciles that may be in progress at a time",
            c.max.clone(),
        );
        registry.register(
            "controller_runtime_terminal_reconcile_errors",
            "Number of reconciles with an error that is not retried",
            c.terminal.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Number of reconciles that panicked",
            c.panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_timeouts",
            "Number of reconciles that exceeded their time limit",
            c.timeouts.clone(),
        );
        c.queues.register(&mut registry);
        registry.register_collector(Box::new(c.ages.clone()));
        registry.register_collector(Box::new(c.outputs.clone()));
        registry.register(
            "hybrid_operator_blocked_reconciles",
            "Reconciles of native controllers that blocked their thread for more than 5 s",
            c.blocked.clone(),
        );
        registry.register(
            "hybrid_operator_watch_restarts",
            "Number of watches restarted with a fresh list",
            c.watches.0.clone(),
        );
        registry.register(
            "rest_client_requests",
            "Number of requests to the API server",
            requests.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 if this process is the leader, else 0",
            leader.clone(),
        );
        registry.register(
            "hybrid_operator_unassigned_custom_resources",
            "Number of custom resources that no replica of the ring has",
            unassigned.clone(),
        );
        registry.register("helm_operator_build_info", "Version of the operator", info);
        registry.register_collector(Box::new(ProcessMetrics));
        let webhooks = WebhookMetrics::register(&mut registry);
        let reloads = ReloadMetrics::register(&mut registry);
        for register in own {
            register(&mut registry);
        }
        Self(Arc::new(MetricsInner {
            registry,
            requests,
            leader,
            unassigned,
            counts,
            controllers,
            webhooks,
            reloads,
        }))
    }

    pub(crate) fn controller(&self, name: &str) -> ControllerMetrics {
        ControllerMetrics {
            name: name.into(),
            families: self.0.controllers.clone(),
        }
    }

    /// Counts a function of a native controller that blocks its thread.
    pub(crate) fn blocked(&self, controller: &str) {
        let controller = ControllerLabel {
            controller: controller.to_owned(),
        };
        self.0.controllers.blocked.get_or_create(&controller).inc();
    }

    /// Counts the restarts of watches.
    pub fn restarts(&self) -> Restarts {
        self.0.controllers.watches.restarts()
    }

    /// Returns the metrics of reloads.
    pub fn reloads(&self) -> ReloadMetrics {
        self.0.reloads.clone()
    }

    pub(crate) fn webhooks(&self) -> WebhookMetrics {
        self.0.webhooks.clone()
    }

    /// Records whether this process is the leader.
    pub(crate) fn set_leader(&self, lease: &str, set_leader: bool) {
        self.0
            .leader
            .get_or_create(&NameLabel {
                name: lease.to_owned(),
            })
            .set(i64::from(set_leader));
    }

    /// Sets the number of custom resources of a kind that no replica has.
    pub(crate) fn unassigned(&self, kind: &str, count: usize) {
        let label = KindLabel {
            kind: kind.to_owned(),
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.unassigned.get_or_create(&label).set(count);
    }

    /// Encodes all metrics in the `OpenMetrics` text format.
    ///
    /// # Errors
    /// When a metric cannot be formatted, or two have the same name: scrapers would refuse the whole
    /// answer.
    pub(crate) fn encode(&self) -> Result<String, EncodeError> {
        let mut sums: std::collections::BTreeMap<(String, &str), u64> =
            std::collections::BTreeMap::new();
        for (kind, count) in self.0.counts.snapshot() {
            let method = match kind.verb {
                "get" | "list" | "watch" => "GET",
                "create" => "POST",
                "update" => "PUT",
                "patch" => "PATCH",
                _ => "DELETE",
            };
            let code = if kind.status == 0 {
                "<error>".to_owned()
            } else {
                kind.status.to_string()
            };
            *sums.entry((code, method)).or_default() += count;
        }
        for ((code, method), count) in sums {
            let labels = RequestLabels {
                code,
                method: method.to_owned(),
            };
            let counter = self.0.requests.get_or_create(&labels);
            let known = counter.get();
            counter.inc_by(count.saturating_sub(known));
        }
        self.0.controllers.queues.refresh();
        let mut text = String::new();
        encode(&mut text, &self.0.registry)?;
        match first_duplicate(&text) {
            Some(name) => Err(EncodeError::Duplicate(name.to_owned())),
            None => Ok(text),
        }
    }
}

/// Metrics of one controller.
#[derive(Clone)]
pub struct ControllerMetrics {
    name: Arc<str>,
    families: Families,
}

impl ControllerMetrics {
    /// Creates metrics that are not exported, for tests.
    pub(crate) fn detached(name: &str) -> Self {
        Self {
            name: name.into(),
            families: Families::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Counts the restarts of watches.
    pub(crate) fn restarts(&self) -> Restarts {
        self.families.watches.restarts()
    }

    fn controller(&self) -> ControllerLabel {
        ControllerLabel {
            controller: self.name.to_string(),
        }
    }

    /// Reports the number of workers, and that nothing has happened yet.
    pub(crate) fn started(&self, workers: usize) {
        let (families, label) = (&self.families, self.controller());
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        families.max.get_or_create(&label).set(workers);
        drop(families.active.get_or_create(&label));
        drop(families.seconds.get_or_create(&label));
        for counter in [
            &families.errors,
            &families.terminal,
            &families.panics,
            &families.timeouts,
        ] {
            drop(counter.get_or_create(&label));
        }
        for result in [
            ReconcileResult::Success,
            ReconcileResult::Error,
            ReconcileResult::RequeueAfter,
        ] {
            let controller = label.controller.clone();
            drop(
                families
                    .total
                    .get_or_create(&ResultLabels { controller, result }),
            );
        }
    }

    /// Counts a reconcile with an error that is not retried.
    pub(crate) fn terminal_error(&self) {
        self.families
            .terminal
            .get_or_create(&self.controller())
            .inc();
    }

    pub(crate) fn panicked(&self) {
        self.families.panics.get_or_create(&self.controller()).inc();
    }

    pub(crate) fn timed_out(&self) {
        self.families
            .timeouts
            .get_or_create(&self.controller())
            .inc();
    }

    /// Reports the state of the controller's queue at each scrape.
    pub(crate) fn watch_queue(
        &self,
        state: impl Fn() -> Option<QueueState> + Send + Sync + 'static,
    ) {
        self.families.queues.watch(&self.name, state);
    }

    /// Counts keys that were added to the queue.
    pub(crate) fn added(&self, keys: u64) {
        self.families.queues.added(&self.name, keys);
    }

    /// Records how long a key has waited.
    pub(crate) fn taken(&self, waited: Duration) {
        self.families.queues.taken(&self.name, waited);
    }

    /// Counts a key that is added to the queue later.
    pub(crate) fn retried(&self) {
        self.families.queues.retried(&self.name);
    }

    /// Returns the ages of custom resources.
    pub(crate) fn ages(&self) -> ResourceAges {
        self.families.ages.clone()
    }

    /// Returns the numbers in the outputs of releases.
    pub(crate) fn outputs(&self) -> ResourceOutputs {
        self.families.outputs.clone()
    }

    pub(crate) fn begin(&self) -> ReconcileTimer {
        self.families.active.get_or_create(&self.controller()).inc();
        ReconcileTimer {
            metrics: self.clone(),
            start: Instant::now(),
        }
    }
}

/// Measures a reconcile in progress.
pub(crate) struct ReconcileTimer {
    metrics: ControllerMetrics,
    start: Instant,
}

impl ReconcileTimer {
    pub(crate) fn end(self, result: ReconcileResult) {
        let (families, label) = (&self.metrics.families, self.metrics.controller());
        families.active.get_or_create(&label).dec();
        let elapsed = self.start.elapsed();
        families
            .seconds
            .get_or_create(&label)
            .observe(elapsed.as_secs_f64());
        families.queues.worked(&self.metrics.name, elapsed);
        if result == ReconcileResult::Error {
            families.errors.get_or_create(&label).inc();
        }
        let labels = ResultLabels {
            controller: label.controller,
            result,
        };
        families.total.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Metrics, ReconcileResult};
    use crate::telemetry::queues::QueueState;
    use crate::telemetry::resources::{OutputLabels, ResourceLabels};
    use kube_objects::client::Counts;

    fn resource(name: &str) -> ResourceLabels {
        ResourceLabels {
            group: "g".to_owned(),
            kind: "K".to_owned(),
            name: name.to_owned(),
            namespace: "ns".to_owned(),
            version: "v1".to_owned(),
        }
    }

    fn output(name: &str) -> OutputLabels {
        OutputLabels {
            output: name.to_owned(),
            resource: resource("a"),
        }
    }

    #[test]
    fn custom_resources_are_reported_once_and_with_the_labels_of_operator_lib() {
        let metrics = Metrics::new(Counts::default(), []);
        let ages = metrics.controller("k").ages();
        ages.watch(|| Some(vec![(resource("a"), 7), (resource("b"), 8)]));
        ages.watch(|| Some(vec![(resource("a"), 7)]));
        ages.watch(|| None);
        let text = metrics.encode().unwrap();
        let line = "resource_created_at_seconds{group=\"g\",kind=\"K\",name=\"a\",namespace=\"ns\",version=\"v1\"} 7\n";
        assert_eq!(text.matches(line).count(), 1, "{text}");
        assert_eq!(text.matches("resource_created_at_seconds{").count(), 2);
    }

    #[test]
    fn outputs_are_labelled_with_their_names_and_custom_resources() {
        let metrics = Metrics::new(Counts::default(), []);
        let labels = output("replicas");
        let outputs = metrics.controller("k").outputs();
        outputs.watch(move || Some(vec![(labels.clone(), 2.5)]));
        let text = metrics.encode().unwrap();
        let line = "hybrid_operator_output{output=\"replicas\",group=\"g\",kind=\"K\",name=\"a\",namespace=\"ns\",version=\"v1\"} 2.5\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn metrics_have_the_names_of_controller_runtime() {
        let metrics = Metrics::new(Counts::default(), []);
        let controller = metrics.controller("memcached");
        let state = QueueState {
            depth: 3,
            unfinished: Duration::from_secs(5),
            longest: Duration::from_secs(4),
        };
        controller.watch_queue(move || Some(state));
        controller.started(8);
        controller.added(2);
        controller.taken(Duration::from_secs(1));
        controller.retried();
        controller.terminal_error();
        controller.panicked();
        controller.begin().end(ReconcileResult::Success);
        metrics.set_leader("lease", true);
        metrics.unassigned("Memcached", 1);
        metrics.restarts().restarted("Pod", "panic");
        let text = metrics.encode().unwrap();
        for line in [
            "controller_runtime_reconcile_total{controller=\"memcached\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"memcached\",result=\"error\"} 0",
            "controller_runtime_max_concurrent_reconciles{controller=\"memcached\"} 8",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"memcached\"} 1",
            "controller_runtime_reconcile_panics_total{controller=\"memcached\"} 1",
            "controller_runtime_reconcile_timeouts_total{controller=\"memcached\"} 0",
            "workqueue_adds_total{name=\"memcached\",controller=\"memcached\"} 2",
            "workqueue_depth{name=\"memcached\",controller=\"memcached\"} 3",
            "workqueue_unfinished_work_seconds{name=\"memcached\",controller=\"memcached\"} 5",
            "workqueue_longest_running_processor_seconds{name=\"memcached\",controller=\"memcached\"} 4",
            "workqueue_retries_total{name=\"memcached\",controller=\"memcached\"} 1",
            "workqueue_queue_duration_seconds_sum{name=\"memcached\",controller=\"memcached\"} 1",
            "workqueue_work_duration_seconds_count{name=\"memcached\",controller=\"memcached\"} 1",
            concat!(
                "helm_operator_build_info{commit=\"unknown\",version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
            "controller_runtime_active_workers{controller=\"memcached\"} 0",
            "leader_election_master_status{name=\"lease\"} 1",
            "hybrid_operator_watch_restarts_total{kind=\"Pod\",cause=\"panic\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_list_of_metrics_is_complete() {
        let metrics = Metrics::new(Counts::default(), []);
        let controller = metrics.controller("memcached");
        controller.watch_queue(|| Some(QueueState::default()));
        controller.started(1);
        controller.ages().watch(|| Some(vec![(resource("one"), 1)]));
        let outputs = controller.outputs();
        outputs.watch(|| Some(vec![(output("replicas"), 1.0)]));
        controller.begin().end(ReconcileResult::Error);
        metrics.blocked("memcached");
        metrics.set_leader("lease", true);
        metrics.restarts().restarted("Pod", "panic");
        metrics.webhooks().begin("validate").end(200);
        metrics.unassigned("Memcached", 1);
        metrics.reloads().refused();
        metrics.reloads().waiting("memcached", 1);
        let _ = metrics.0.requests.get_or_create(&super::RequestLabels {
            code: "200".to_owned(),
            method: "GET".to_owned(),
        });
        let text = metrics.encode().unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let names = samples.filter_map(|line| line.split(['{', ' ']).next());
        let whole = |name: &str| {
            let parts = ["_bucket", "_count", "_sum"];
            let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
            histogram.unwrap_or(name).to_owned()
        };
        let found: std::collections::BTreeSet<String> = names.map(whole).collect();
        let listed: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(listed, crate::telemetry::METRICS);
        let rows = found.iter().map(|name| documented(&text, name));
        let table = crate::tests::pages::table(&["metric", "type", "labels", "meaning"], rows);
        let page = format!(
            "`/metrics` has these metrics, and those that a program adds \
             ([the manager](../guides/native.md#the-manager)). A histogram has the suffixes `_bucket`, `_count` and \
             `_sum`. A program that sends [traces](#traces) also has \
             `hybrid_operator_trace_spans_total`, with the label `result`. [Serving metrics](#serving-metrics) says how they are served, and \
             `hybrid-operator generate dashboards` writes dashboards for them.\n\n{table}"
        );
        crate::tests::pages::assert_generated("run.md", "Metrics", &page);
    }

    /// Returns the row of a metric in the reference, from what scrapers see.
    fn documented(text: &str, name: &str) -> Vec<String> {
        let family = name.strip_suffix("_total").unwrap_or(name);
        let about = |what: &str| {
            let line = format!("# {what} {family} ");
            let mut lines = text.lines().filter_map(|found| found.strip_prefix(&line));
            lines.next().unwrap_or_default().to_owned()
        };
        let sample = text.lines().find(|line| line.starts_with(name)).unwrap();
        // A sample is NAME{LABEL="VALUE",...} NUMBER.
        let tail = sample.split_once('{').map_or("", |(_, tail)| tail);
        let pairs = tail.rsplit_once('}').map_or("", |(pairs, _)| pairs);
        let parts = pairs.split('"').step_by(2);
        let names = parts.map(|part| part.trim_matches([',', '=']));
        // Each bucket of a histogram has its limit as a label.
        let labels = names.filter(|label| !["", "le"].contains(label));
        let coded: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        vec![
            format!("`{name}`"),
            about("TYPE"),
            coded.join(", "),
            format!("{}.", about("HELP").trim_end_matches('.')),
        ]
    }

    #[test]
    fn a_metric_that_is_registered_twice_is_refused() {
        let own: super::RegisterMetrics = Box::new(|registry| {
            let counter = super::Counter::<u64>::default();
            registry.register("rest_client_requests", "Mine", counter);
        });
        let metrics = Metrics::new(Counts::default(), [own]);
        assert!(metrics.encode().is_ok());
        let _ = metrics.0.requests.get_or_create(&super::RequestLabels {
            code: "200".to_owned(),
            method: "GET".to_owned(),
        });
        let error = metrics.encode().unwrap_err().to_string();
        assert!(error.contains("rest_client_requests"), "{error}");
    }
}
