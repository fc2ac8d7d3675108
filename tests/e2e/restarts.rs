//! An operator that starts comes to rest, whatever state it finds a release in: nothing is written
//! and nothing is read for a release whose state does not change, and no reconcile asks for itself
//! at once. Drift that is only to be reported is not repaired by a restart.

use std::time::{Duration, Instant};

use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace, wait};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{LIMIT, Mortal, Project, api, apply, condition, control_plane, merge, until};

/// A value, a second object, and one that the API server refuses on request.
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

/// A release `one` whose operator is restarted.
struct Place {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    project: Project,
}

/// An operator with what it sends and how often it looks.
struct Running {
    faults: Faults,
    metrics: String,
    _operator: Mortal,
}

impl Running {
    /// How many reconciles of the kind have ended.
    async fn looks(&self) -> u64 {
        let mut connection = tokio::net::TcpStream::connect(&self.metrics).await.unwrap();
        let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        connection.write_all(request).await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        text.lines()
            .filter(|line| line.starts_with("controller_runtime_reconcile_total{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// Waits for this many more reconciles.
    async fn more_looks(&self, count: u64) {
        let end = self.looks().await + count;
        let enough = async || self.looks().await >= end;
        wait::until(LIMIT, "further looks", enough).await.unwrap();
    }
}

impl Place {
    async fn new(options: &str) -> Option<Self> {
        Self::with_templates(options, &[("objects.yaml", OBJECTS)]).await
    }

    async fn with_templates(options: &str, templates: &[(&str, &str)]) -> Option<Self> {
        let plane = control_plane().await?;
        let namespace = TestNamespace::create(plane, "restart").await.unwrap();
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

    /// Starts an operator of this name.
    async fn start_as(&self, name: &str, faults: Faults) -> Running {
        let client = self.plane.client_with(&faults).await.unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = free.local_addr().unwrap().to_string();
        drop(free);
        let operator = Mortal::with(
            &self.project,
            client,
            self.namespace.name(),
            |chart| chart,
            |options| {
                options.metrics_bind_address.clone_from(&metrics);
                name.clone_into(&mut options.operator_name);
            },
        );
        Running {
            faults,
            metrics,
            _operator: operator,
        }
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

    /// Waits until something is true of the custom resource.
    async fn is(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(&self.api("Widget"), "one", what, holds)
            .await
            .unwrap()
    }

    /// Installs the release with an operator that dies then.
    async fn installed(&self, spec: Value) {
        let operator = self.start(Faults::new()).await;
        self.spec("one", spec).await;
        drop(self.is("Ready", is_ready).await);
        drop(operator);
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
        let list = ListParams::default().labels("owner=helm,name=one");
        self.api("Secret").list(&list).await.unwrap().items
    }

    /// Starts the operator anew, waits until the custom resource is as it should be, and counts the
    /// requests while it and another one are looked at several times: `allowed` for each attempt
    /// that there is time for.
    async fn rests(&self, settled: impl Fn(&Value) -> bool) -> Running {
        let operator = self.start(Faults::new()).await;
        self.comes_to_rest(&operator, settled, 0).await;
        operator
    }

    async fn comes_to_rest(
        &self,
        operator: &Running,
        settled: impl Fn(&Value) -> bool,
        allowed: usize,
    ) {
        drop(self.is("settled", settled).await);
        // The other one shows that time goes on where the first one is not looked at at all.
        self.spec("two", json!({})).await;
        let widgets = self.api("Widget");
        drop(until(&widgets, "two", "Ready", is_ready).await.unwrap());
        operator.more_looks(4).await;
        operator.faults.forget();
        let began = Instant::now();
        operator.more_looks(8).await;
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
            "eight looks of two custom resources in {took:?}, with a period of 300 ms"
        );
    }
}

fn is_ready(cr: &Value) -> bool {
    condition(cr, "Ready").is_some_and(|c| {
        c["status"] == "True" && c["observedGeneration"] == cr["metadata"]["generation"]
    })
}

fn is(type_: &'static str) -> impl Fn(&Value) -> bool {
    move |cr| {
        condition(cr, type_).is_some_and(|c| {
            c["status"] == "True" && c["observedGeneration"] == cr["metadata"]["generation"]
        })
    }
}

/// Whether a request changes the first object of the release.
fn is_map(request: &Recorded) -> bool {
    let named = request.name.as_deref() == Some("one-map");
    let body = request.body.as_ref();
    let made = body.is_some_and(|body| body["metadata"]["name"] == "one-map");
    request.resource == "configmaps" && request.method != http::Method::GET && (named || made)
}

fn refuse_map(faults: &Faults) {
    faults.inject_with(|request| is_map(request).then_some(Fault::Status(403)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_without_a_record_is_installed_and_rests() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.spec("one", json!({"value": "1"})).await;
    place.rests(is_ready).await;
    assert_eq!(place.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployed_release_rests_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    place.rests(is_ready).await;
    assert_eq!(place.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_of_the_time_without_an_operator_is_repaired_and_the_release_rests() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    place.edit("theirs").await;
    let operator = place.start(Faults::new()).await;
    let maps = place.api("ConfigMap");
    let repaired = |map: &Value| map["data"]["value"] == "1";
    drop(until(&maps, "one-map", "repaired", repaired).await.unwrap());
    place.comes_to_rest(&operator, is_ready, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_that_was_cut_off_is_finished_and_rests() {
    let Some(place) = Place::new("").await else {
        return;
    };
    let faults = Faults::new();
    faults.stop_at(1, Fault::Unreachable, is_map);
    let operator = place.start(faults).await;
    place.spec("one", json!({"value": "1"})).await;
    let injected = async || operator.faults.was_injected();
    wait::until(LIMIT, "the fault", injected).await.unwrap();
    drop(operator);
    place.rests(is_ready).await;
    assert_eq!(place.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_running_upgrade_is_left_alone_and_the_operator_rests() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    // As Helm begins a revision: with our labels of the one before.
    let mut record = place.records().await.remove(0);
    let name = "sh.helm.release.v1.one.v2";
    let mut labels = record.metadata.labels.take().unwrap();
    labels.insert("version".to_owned(), "2".to_owned());
    labels.insert("status".to_owned(), "pending-upgrade".to_owned());
    let content = json!({
        "type": record.data["type"], "data": record.data["data"], "metadata": {"labels": labels},
    });
    apply(&place.api("Secret"), name, &content).await;
    place
        .rests(|cr| {
            condition(cr, "Ready").is_some_and(|c| {
                let message = c["message"].as_str().unwrap_or_default();
                c["status"] == "False" && message.contains("another Helm operation")
            })
        })
        .await;
    let after = place.api("Secret").get(name).await.unwrap();
    assert_eq!(after.metadata.labels.unwrap()["status"], "pending-upgrade");
    assert_eq!(place.records().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_install_is_tried_again_at_its_own_pace_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    let faults = Faults::new();
    refuse_map(&faults);
    let operator = place.start(faults.clone()).await;
    place.spec("one", json!({"value": "1"})).await;
    drop(place.is("the next attempt", announces_attempt).await);
    drop(operator);
    let operator = place.start(faults).await;
    // One attempt may fall into the time: its pending record, its objects, its failed record, the
    // status before and after, the look for a quota, and an event for each word.
    place.comes_to_rest(&operator, announces_attempt, 14).await;
    assert_eq!(place.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_rollback_is_tried_again_at_its_own_pace_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    let faults = Faults::new();
    refuse_map(&faults);
    let operator = place.start(faults.clone()).await;
    place.spec("one", json!({"value": "2"})).await;
    let rolls_back = |cr: &Value| announces_attempt(cr) && cr["status"]["release"]["revision"] == 3;
    drop(place.is("a failed rollback", rolls_back).await);
    drop(operator);
    let operator = place.start(faults).await;
    // As above; the first attempt after a start also reads two records and three objects.
    place.comes_to_rest(&operator, rolls_back, 14 + 5).await;
    assert_eq!(place.records().await.len(), 3);
}

fn announces_attempt(cr: &Value) -> bool {
    condition(cr, "Irreconcilable").is_some_and(|c| {
        let message = c["message"].as_str().unwrap_or_default();
        c["status"] == "True" && message.contains("the next attempt is at")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstall_that_waits_for_an_object_looks_rarely_after_a_restart() {
    let Some(place) = Place::new("uninstall: {wait: true}").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    let maps = place.api("ConfigMap");
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    merge(&maps, "one-map", &hold).await;
    let widgets = place.api("Widget");
    let waits = |cr: &Value| cr["status"]["release"]["status"] == "uninstalling";
    let operator = place.start(Faults::new()).await;
    drop(widgets.delete("one", &DeleteParams::default()).await);
    drop(place.is("uninstalling", waits).await);
    drop(operator);
    let operator = place.start(Faults::new()).await;
    // Every two seconds it looks at what is left.
    place.comes_to_rest(&operator, waits, 12).await;
    merge(&maps, "one-map", &json!({"metadata": {"finalizers": null}})).await;
    wait::gone(&widgets, "one", LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_release_with_an_edited_object_rests_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    place.annotate("paused", json!("true")).await;
    place.edit("theirs").await;
    place.rests(is("Paused")).await;
    assert_eq!(place.value().await, "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_another_operator_costs_nothing_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    let name = format!("{}-second", place.namespace.name());
    let operator = place.start_as(&name, Faults::new()).await;
    place.comes_to_rest(&operator, is("Contested"), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_somebody_else_costs_nothing_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    let record = place.records().await.remove(0).metadata;
    let labels: serde_json::Map<String, Value> = record
        .labels
        .unwrap()
        .into_keys()
        .filter(|label| label.contains('/'))
        .map(|label| (label, Value::Null))
        .collect();
    let patch = json!({"metadata": {"labels": labels, "annotations": null}});
    merge(&place.api("Secret"), &record.name.unwrap(), &patch).await;
    place.rests(is("Irreconcilable")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_goes_back_while_a_revision_is_pending_comes_to_rest() {
    for options in ["dryRunOption: server", ""] {
        let Some(place) = Place::new(options).await else {
            return;
        };
        place.installed(json!({"value": "1"})).await;
        let faults = Faults::new();
        faults.stop_at(1, Fault::Unreachable, is_map);
        let operator = place.start(faults).await;
        place.spec("one", json!({"value": "2"})).await;
        let injected = async || operator.faults.was_injected();
        wait::until(LIMIT, "the fault", injected).await.unwrap();
        drop(operator);
        place.spec("one", json!({"value": "1"})).await;
        place
            .rests(|cr| is_ready(cr) && cr["status"]["release"]["status"] == "deployed")
            .await;
        assert_eq!(place.value().await, "1");
        assert!(place.records().await.len() <= 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_release_rests_after_a_restart() {
    let Some(place) = Place::new("").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    let operator = place.start(Faults::new()).await;
    place.spec("one", json!({"value": "2", "bad": true})).await;
    drop(place.is("Stalled", is("Stalled")).await);
    drop(operator);
    place.rests(is("Stalled")).await;
    assert_eq!(place.records().await.len(), 3);
    assert_eq!(place.value().await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_that_is_only_reported_is_not_repaired_by_a_restart() {
    let Some(place) = Place::new("driftDetection: {mode: warn}").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    place.edit("theirs").await;
    let operator = place.start(Faults::new()).await;
    let drifted = |cr: &Value| {
        condition(cr, "Drifted").is_some_and(|c| {
            let message = c["message"].as_str().unwrap_or_default();
            c["status"] == "True" && message.contains("one-map") && !message.contains("one-other")
        })
    };
    place
        .comes_to_rest(&operator, |cr| drifted(cr) && is_ready(cr), 0)
        .await;
    assert_eq!(place.value().await, "theirs");
    let cr = place.is("Drifted", drifted).await;
    assert!(is_ready(&cr), "{cr:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_that_does_not_matter_is_neither_repaired_nor_reported_after_a_restart() {
    let Some(place) = Place::new("driftDetection: {mode: \"off\"}").await else {
        return;
    };
    place.installed(json!({"value": "1"})).await;
    place.edit("theirs").await;
    place.rests(is_ready).await;
    assert_eq!(place.value().await, "theirs");
    let cr = place.is("Ready", is_ready).await;
    assert!(condition(&cr, "Drifted").is_none(), "{cr:#}");
}
