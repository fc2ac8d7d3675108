//! A restarted operator settles in whatever state it finds a release: it sends no requests for a
//! release whose state does not change, and no reconcile requeues itself immediately. A restart
//! does not repair drift that is only reported.

use std::time::{Duration, Instant};

use hybrid_operator::options::Options;
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

use crate::native::try_get;
use crate::world::{
    InProcessOperator, Project, api, apply, condition, control_plane, eventually, free_address,
    gone, has_condition, is_false, is_ready, is_true, is_write_to, merge, namespace_of, records,
    refuse, says, sum_of, until,
};

/// A value, a second object, and one that the API server rejects on request.
const OBJECTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | default \"none\" | quote }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-other}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
";

/// A namespace and a project whose operator is restarted; the release is `one`.
struct Fixture {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    project: Project,
}

/// A running operator, its requests and its reconcile count.
pub(crate) struct Running {
    pub(crate) faults: Faults,
    metrics: String,
    _operator: InProcessOperator,
}

impl Running {
    /// Starts an operator of a project, with this name, which watches a namespace.
    pub(crate) async fn start(
        project: &Project,
        plane: &ControlPlane,
        namespace: &str,
        faults: Faults,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let client = plane.client_with(&faults).await.unwrap();
        let metrics = free_address();
        let change = |options: &mut Options| {
            options.metrics_bind_address.clone_from(&metrics);
            change(options);
        };
        let operator = InProcessOperator::with(project, client, namespace, |chart| chart, change);
        Self {
            faults,
            metrics,
            _operator: operator,
        }
    }

    /// Returns how many reconciles have completed; none before the metrics are served.
    pub(crate) async fn reconciles(&self) -> u64 {
        let text = try_get(&self.metrics, "/metrics").await;
        text.map_or(0, |text| {
            sum_of(&text, "controller_runtime_reconcile_total{")
        })
    }

    /// Waits for this many more reconciles.
    pub(crate) async fn more_reconciles(&self, count: u64) {
        let end = self.reconciles().await + count;
        let enough = async || self.reconciles().await >= end;
        eventually("further reconciles", enough).await;
    }
}

impl Fixture {
    async fn new(options: &str) -> Option<Self> {
        Self::with_templates(options, &[("objects.yaml", OBJECTS)]).await
    }

    async fn with_templates(options: &str, templates: &[(&str, &str)]) -> Option<Self> {
        let plane = control_plane().await?;
        let namespace = namespace_of(plane, "restart").await;
        let more = if options.is_empty() { "" } else { ", " };
        let options = format!("reconcilePeriod: 300ms{more}{options}");
        let project = Project::new(&options, templates);
        Some(Self {
            plane,
            namespace,
            project,
        })
    }

    async fn start(&self, faults: Faults) -> Running {
        self.start_as(self.namespace.name(), faults).await
    }

    /// Starts an operator with this name.
    async fn start_as(&self, name: &str, faults: Faults) -> Running {
        let watched = self.namespace.name();
        Running::start(&self.project, self.plane, watched, faults, |options| {
            name.clone_into(&mut options.operator_name);
        })
        .await
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.namespace, kind)
    }

    async fn spec(&self, name: &str, spec: Value) {
        apply(&self.api("Widget"), name, &json!({"spec": spec})).await;
    }

    async fn annotate(&self, name: &str, value: Value) {
        let name = format!("helm.sdk.operatorframework.io/{name}");
        let patch = json!({"metadata": {"annotations": {name: value}}});
        merge(&self.api("Widget"), "one", &patch).await;
    }

    /// Waits until a condition holds for the custom resource.
    async fn is(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(&self.api("Widget"), "one", what, holds).await
    }

    /// Installs the release with an operator that is then stopped.
    async fn installed(&self, spec: Value) {
        let operator = self.start(Faults::new()).await;
        self.spec("one", spec).await;
        drop(self.is("Ready", is_ready).await);
        drop(operator);
    }

    /// Runs an operator that crashes before it writes the `ConfigMap`.
    async fn crashes(&self, spec: Value) {
        let crash = (1, Fault::Unreachable);
        let (change, end) = (self.spec("one", spec), std::future::pending());
        let (plane, namespace) = (self.plane, &self.namespace);
        let is_map = |request: &Recorded| is_write_to(request, "one-map");
        let crashed = self
            .project
            .crash_at(plane, namespace, crash, is_map, change, end);
        assert!(Box::pin(crashed).await);
    }

    async fn edit(&self, value: &str) {
        let data = json!({"data": {"value": value}});
        merge(&self.api("ConfigMap"), "one-map", &data).await;
    }

    async fn value(&self) -> Value {
        let map = self.api("ConfigMap").get("one-map").await.unwrap();
        map.data["data"]["value"].clone()
    }

    async fn records(&self) -> Vec<DynamicObject> {
        records(&self.namespace, "one").await
    }

    /// Restarts the operator, waits until the custom resource is settled, and counts the requests
    /// while it and another one are reconciled several times.
    async fn settles(&self, settled: impl Fn(&Value) -> bool) -> Running {
        let operator = self.start(Faults::new()).await;
        self.settles_within(&operator, settled, 0).await;
        operator
    }

    async fn settles_within(
        &self,
        operator: &Running,
        settled: impl Fn(&Value) -> bool,
        allowed: usize,
    ) {
        drop(self.is("settled", settled).await);
        // The other resource shows that time passes even if the first one is not reconciled at all.
        self.spec("two", json!({})).await;
        let widgets = self.api("Widget");
        until(&widgets, "two", "Ready", is_ready).await;
        operator.more_reconciles(4).await;
        operator.faults.forget();
        let began = Instant::now();
        operator.more_reconciles(8).await;
        let requests = operator.faults.requests();
        let took = began.elapsed();
        let sent: Vec<String> = requests
            .iter()
            .map(|r| format!("{} {:?}", r.kind(), r.name))
            .collect();
        // Attempts are at least two seconds apart: on a busy machine several fit into eight looks.
        let attempts = 1 + usize::try_from(took.as_secs() / 2).unwrap();
        assert!(sent.len() <= allowed * attempts, "{took:?}: {sent:#?}");
        assert!(
            took > Duration::from_millis(500),
            "eight reconciles of two custom resources in {took:?}, with a period of 300 ms"
        );
    }
}

fn is(type_: &'static str) -> impl Fn(&Value) -> bool {
    move |cr| has_condition(cr, type_, "True", "")
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resource_without_a_record_is_installed_and_settles() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.spec("one", json!({"value": "1"})).await;
    fixture.settles(is_ready).await;
    assert_eq!(fixture.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployed_release_settles_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    fixture.settles(is_ready).await;
    assert_eq!(fixture.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_stay_in_the_status_over_a_restart_and_the_release_settles() {
    let options = "objects: {map: {kind: ConfigMap, name: one-map}}, \
        status: {value: objects.map.data.value}, readyWhen: [\"!has(spec.value) || spec.value != '2'\"]";
    let fixture = or_skip!(Fixture::new(options).await);
    fixture.installed(json!({"value": "1"})).await;
    let shown = async || {
        let cr = fixture.api("Widget").get("one").await.unwrap();
        let cr = serde_json::to_value(cr).unwrap();
        let complete = condition(&cr, "OutputsComplete").unwrap().clone();
        (
            cr["status"]["value"].clone(),
            complete["lastTransitionTime"].clone(),
        )
    };
    let before = shown().await;
    assert_eq!(before.0, "1");
    let operator = fixture.settles(is_ready).await;
    assert_eq!(shown().await, before);
    // A condition that does not hold costs no requests either.
    drop(operator);
    fixture.spec("one", json!({"value": "2"})).await;
    fixture.settles(|cr| says(cr, "Ready", "readyWhen")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_while_no_operator_ran_is_repaired_and_the_release_settles() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    fixture.edit("theirs").await;
    let operator = fixture.start(Faults::new()).await;
    let maps = fixture.api("ConfigMap");
    let repaired = |map: &Value| map["data"]["value"] == "1";
    until(&maps, "one-map", "repaired", repaired).await;
    fixture.settles_within(&operator, is_ready, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_install_is_finished_and_settles() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.crashes(json!({"value": "1"})).await;
    fixture.settles(is_ready).await;
    assert_eq!(fixture.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn running_helm_upgrade_is_left_alone_and_the_operator_settles() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    // The record looks as Helm begins a revision: with the labels of the operator's previous
    // revision.
    let mut record = fixture.records().await.remove(0);
    let name = "sh.helm.release.v1.one.v2";
    let mut labels = record.metadata.labels.take().unwrap();
    labels.insert("version".to_owned(), "2".to_owned());
    labels.insert("status".to_owned(), "pending-upgrade".to_owned());
    let content = json!({
        "type": record.data["type"], "data": record.data["data"], "metadata": {"labels": labels},
    });
    apply(&fixture.api("Secret"), name, &content).await;
    let waits = |cr: &Value| is_false(cr, "Ready") && says(cr, "Ready", "another Helm operation");
    fixture.settles(waits).await;
    let after = fixture.api("Secret").get(name).await.unwrap();
    assert_eq!(after.metadata.labels.unwrap()["status"], "pending-upgrade");
    assert_eq!(fixture.records().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_install_keeps_its_backoff_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    let faults = Faults::new();
    refuse(&faults, "one-map");
    let operator = fixture.start(faults.clone()).await;
    fixture.spec("one", json!({"value": "1"})).await;
    drop(fixture.is("the next attempt", announces_attempt).await);
    drop(operator);
    let operator = fixture.start(faults).await;
    // One attempt may fall into this time: pending record, objects, failed record, status before
    // and after, a quota lookup, and one event per message.
    fixture
        .settles_within(&operator, announces_attempt, 14)
        .await;
    assert_eq!(fixture.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_keeps_its_backoff_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    let faults = Faults::new();
    refuse(&faults, "one-map");
    let operator = fixture.start(faults.clone()).await;
    fixture.spec("one", json!({"value": "2"})).await;
    let rolls_back = |cr: &Value| announces_attempt(cr) && cr["status"]["release"]["revision"] == 3;
    drop(fixture.is("a failed rollback", rolls_back).await);
    drop(operator);
    let operator = fixture.start(faults).await;
    // As above; the first attempt after a start also reads two records and three objects.
    fixture.settles_within(&operator, rolls_back, 14 + 5).await;
    assert_eq!(fixture.records().await.len(), 3);
}

fn announces_attempt(cr: &Value) -> bool {
    is_true(cr, "Irreconcilable") && says(cr, "Irreconcilable", "the next attempt is at")
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_uninstall_polls_rarely_after_a_restart() {
    let fixture = or_skip!(Fixture::new("uninstall: {wait: true}").await);
    fixture.installed(json!({"value": "1"})).await;
    let maps = fixture.api("ConfigMap");
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    merge(&maps, "one-map", &hold).await;
    let widgets = fixture.api("Widget");
    let waits = |cr: &Value| cr["status"]["release"]["status"] == "uninstalling";
    let operator = fixture.start(Faults::new()).await;
    drop(widgets.delete("one", &DeleteParams::default()).await);
    drop(fixture.is("uninstalling", waits).await);
    drop(operator);
    let operator = fixture.start(Faults::new()).await;
    // It checks every two seconds for what is left.
    fixture.settles_within(&operator, waits, 12).await;
    merge(&maps, "one-map", &json!({"metadata": {"finalizers": null}})).await;
    gone(&widgets, "one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_release_with_an_edited_object_settles_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    fixture.annotate("paused", json!("true")).await;
    fixture.edit("theirs").await;
    fixture.settles(is("Paused")).await;
    assert_eq!(fixture.value().await, "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_another_operator_costs_no_requests_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    let name = format!("{}-second", fixture.namespace.name());
    let operator = fixture.start_as(&name, Faults::new()).await;
    fixture.settles_within(&operator, is("Contested"), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_made_by_helm_costs_no_requests_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    let record = fixture.records().await.remove(0).metadata;
    let labels: serde_json::Map<String, Value> = record
        .labels
        .unwrap()
        .into_keys()
        .filter(|label| label.contains('/'))
        .map(|label| (label, Value::Null))
        .collect();
    let patch = json!({"metadata": {"labels": labels, "annotations": null}});
    merge(&fixture.api("Secret"), &record.name.unwrap(), &patch).await;
    fixture.settles(is("Irreconcilable")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spec_reverted_during_a_pending_revision_settles() {
    for options in ["dryRunOption: server", ""] {
        let fixture = or_skip!(Fixture::new(options).await);
        fixture.installed(json!({"value": "1"})).await;
        fixture.crashes(json!({"value": "2"})).await;
        fixture.spec("one", json!({"value": "1"})).await;
        fixture
            .settles(|cr| is_ready(cr) && cr["status"]["release"]["status"] == "deployed")
            .await;
        assert_eq!(fixture.value().await, "1");
        assert!(fixture.records().await.len() <= 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_release_settles_after_a_restart() {
    let fixture = or_skip!(Fixture::new("").await);
    fixture.installed(json!({"value": "1"})).await;
    let operator = fixture.start(Faults::new()).await;
    fixture
        .spec("one", json!({"value": "2", "bad": true}))
        .await;
    drop(fixture.is("Stalled", is("Stalled")).await);
    drop(operator);
    fixture.settles(is("Stalled")).await;
    assert_eq!(fixture.records().await.len(), 3);
    assert_eq!(fixture.value().await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_drift_is_not_repaired_by_a_restart() {
    let fixture = or_skip!(Fixture::new("driftDetection: {mode: warn}").await);
    fixture.installed(json!({"value": "1"})).await;
    fixture.edit("theirs").await;
    let operator = fixture.start(Faults::new()).await;
    let drifted = |cr: &Value| {
        let names = |map: &str| says(cr, "Drifted", map);
        is_true(cr, "Drifted") && names("one-map") && !names("one-other")
    };
    fixture
        .settles_within(&operator, |cr| drifted(cr) && is_ready(cr), 0)
        .await;
    assert_eq!(fixture.value().await, "theirs");
    let cr = fixture.is("Drifted", drifted).await;
    assert!(is_ready(&cr), "{cr:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_neither_repaired_nor_reported_after_a_restart_when_detection_is_off() {
    let fixture = or_skip!(Fixture::new("driftDetection: {mode: \"off\"}").await);
    fixture.installed(json!({"value": "1"})).await;
    fixture.edit("theirs").await;
    fixture.settles(is_ready).await;
    assert_eq!(fixture.value().await, "theirs");
    let cr = fixture.is("Ready", is_ready).await;
    assert!(condition(&cr, "Drifted").is_none(), "{cr:#}");
}
