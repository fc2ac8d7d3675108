//! Traces of releases, as a collector gets them.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::http_server::{HttpServer, Received, Reply};
use hybrid_operator_test::process::RunningOperator;
use kube::api::{Api, DynamicObject};
use kube::config::Kubeconfig;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message as _;
use serde_json::json;

use crate::world::{
    LIMIT, MAP, Project, api, apply, control_plane, delete, eventually, namespace_of,
    new_namespace, sum_of,
};

/// A hook that takes a moment, and a value that can make the render fail.
const TRACED: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-check
  annotations: {helm.sh/hook: \"pre-install\"}
spec:
  backoffLimit: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: image}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
---
{{- if .Values.broken }}
{{ fail (printf \"%s is wrong\" .Values.value) }}
{{- end }}
";

/// Spans that a collector got.
fn spans(collector: &HttpServer) -> Vec<Span> {
    let requests = collector.received();
    let posted = requests.iter().filter(|one| one.target == "/v1/traces");
    let decoded = posted.map(|one| ExportTraceServiceRequest::decode(one.body.as_slice()).unwrap());
    let resources = decoded.flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// Spans of one generation: the uid and the generation of a custom resource determine their trace.
async fn trace(collector: &HttpServer, widgets: &Api<DynamicObject>, name: &str) -> Vec<Span> {
    let metadata = widgets.get(name).await.unwrap().metadata;
    let generation = metadata.generation.unwrap();
    let uid = metadata.uid.unwrap();
    let mut all = spans(collector);
    let of_generation = |span: &&Span| {
        number(span, "k8s.object.generation") == Some(generation)
            && text(span, "k8s.object.uid").as_deref() == Some(&uid)
    };
    let ids: BTreeSet<Vec<u8>> = all
        .iter()
        .filter(of_generation)
        .map(|span| span.trace_id.clone())
        .collect();
    assert!(ids.len() < 2, "one generation has {} traces", ids.len());
    all.retain(|span| ids.contains(&span.trace_id));
    all
}

fn attribute(span: &Span, key: &str) -> Option<Attribute> {
    let mut attributes = span.attributes.iter();
    attributes.find(|one| one.key == key)?.value.clone()?.value
}

fn text(span: &Span, key: &str) -> Option<String> {
    match attribute(span, key)? {
        Attribute::StringValue(text) => Some(text),
        _ => None,
    }
}

fn number(span: &Span, key: &str) -> Option<i64> {
    match attribute(span, key)? {
        Attribute::IntValue(number) => Some(number),
        _ => None,
    }
}

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// Returns the reason of a span that failed.
fn reason(span: &Span) -> Option<String> {
    let failed = span.status.as_ref()?.code == StatusCode::Error as i32;
    failed.then(|| text(span, "error.type")).flatten()
}

/// Waits until the present generation has spans with all of these names, and returns all of them.
async fn until_traced(
    collector: &HttpServer,
    widgets: &Api<DynamicObject>,
    wanted: &[&str],
) -> Vec<Span> {
    let complete = async || {
        let found = trace(collector, widgets, "one").await;
        let names: BTreeSet<_> = found.iter().map(|span| span.name.clone()).collect();
        let is_complete = wanted.iter().all(|name| names.contains(*name));
        if is_complete {
            Ok(found)
        } else {
            Err(format!("{names:?}"))
        }
    };
    eventually(format!("{wanted:?}"), complete).await
}

async fn start(project: &Project, namespace: &TestNamespace, endpoint: &str) -> RunningOperator {
    let plane = control_plane().await.unwrap();
    project
        .operator(plane, namespace.name())
        .args(["--otlp-endpoint", endpoint])
        .start()
        .await
        .unwrap()
}

fn accept() -> HttpServer {
    HttpServer::start(|_: &Received| Reply::body(Vec::new())).unwrap()
}

#[tokio::test]
async fn each_generation_is_a_trace_with_its_render_its_objects_and_its_wait() {
    let project = Project::new("", &[("all.yaml", TRACED)]);
    let (_, namespace) = or_skip!(new_namespace("traces").await);
    let collector = accept();
    let operator = start(&project, &namespace, &collector.url("")).await;
    let widgets = api(&namespace, "Widget");
    let spec = |value: &str| json!({"spec": {"value": value, "broken": value.ends_with("broken")}});

    apply(&widgets, "one", &spec("hush-first")).await;
    let wanted = ["reconcile", "render", "install", "hook", "wait", "apply"];
    let installed = until_traced(&collector, &widgets, &wanted).await;
    let root = named(&installed, "reconcile")[0];
    let release = [
        ("k8s.object.kind", "Widget"),
        ("k8s.object.namespace", namespace.name()),
        ("k8s.object.name", "one"),
        ("helm.release.name", "one"),
        ("hybrid_operator.step", "install"),
    ];
    for (key, value) in release {
        assert_eq!(text(root, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(number(root, "helm.release.revision"), Some(1));
    assert!(root.parent_span_id.is_empty(), "{root:?}");
    let install = named(&installed, "install")[0];
    assert_eq!(install.parent_span_id, root.span_id);
    assert_eq!(named(&installed, "render")[0].parent_span_id, root.span_id);
    let hook = named(&installed, "hook")[0];
    assert_eq!(hook.parent_span_id, install.span_id);
    assert_eq!(text(hook, "helm.hook.name").as_deref(), Some("one-check"));
    let wait_span = named(&installed, "wait")[0];
    assert_eq!(wait_span.parent_span_id, root.span_id);
    let hook_name = text(wait_span, "hybrid_operator.waits_for.name");
    assert_eq!(hook_name.as_deref(), Some("one-check"));
    assert!(wait_span.end_time_unix_nano > wait_span.start_time_unix_nano);
    assert_eq!(named(&installed, "apply").len(), 1, "{installed:#?}");
    assert!(installed.iter().all(|span| reason(span).is_none()));

    apply(&widgets, "one", &spec("hush-second")).await;
    let upgraded = until_traced(&collector, &widgets, &["reconcile", "apply"]).await;
    assert_ne!(upgraded[0].trace_id, installed[0].trace_id);
    let upgrade = named(&upgraded, "reconcile")[0];
    assert_eq!(number(upgrade, "helm.release.revision"), Some(2));
    assert_eq!(named(&upgraded, "wait").len(), 0, "an upgrade has no hook");

    apply(&widgets, "one", &spec("hush-broken")).await;
    let broken = until_traced(&collector, &widgets, &["reconcile", "render"]).await;
    let attempt = named(&broken, "reconcile")[0];
    assert_eq!(reason(attempt).as_deref(), Some("ReconcileError"));
    let render = named(&broken, "render")[0];
    assert_eq!(reason(render).as_deref(), Some("RenderError"));

    delete(&widgets, "one").await;
    let uninstalled = async || !named(&spans(&collector), "uninstall").is_empty();
    eventually("an uninstall", uninstalled).await;
    for request in collector.received() {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("hush"), "values are in the traces");
    }
    assert!(!operator.log().contains("cannot send traces"));
}

#[tokio::test]
async fn a_reconcile_that_changes_nothing_has_no_span_and_what_is_queued_is_sent_at_the_exit() {
    let project = Project::new("reconcilePeriod: 200ms", &[("map.yaml", MAP)]);
    let (_, namespace) = or_skip!(new_namespace("idle").await);
    let collector = accept();
    let operator = start(&project, &namespace, &collector.url("")).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {}})).await;
    until_traced(&collector, &widgets, &["reconcile", "apply"]).await;
    // Ten reconciles later.
    let reconciles = async || {
        let metrics = operator.metrics().await.unwrap();
        sum_of(&metrics, "controller_runtime_reconcile_total{")
    };
    let before = reconciles().await;
    let later = async || reconciles().await >= before + 10;
    eventually("ten reconciles", later).await;
    apply(&widgets, "two", &json!({"spec": {}})).await;
    let is_installed = async || operator.log().matches("installed the release").count() == 2;
    eventually("another release", is_installed).await;
    // Spans are collected for a second before they are sent, so that the exit must send the last.
    let ended = operator.stop(LIMIT).await.unwrap();
    assert!(ended.success());
    let of = |name: &str| {
        let all = spans(&collector);
        let roots = named(&all, "reconcile").into_iter();
        let of_name = roots.filter(|span| text(span, "k8s.object.name").as_deref() == Some(name));
        of_name.count()
    };
    assert_eq!((of("one"), of("two")), (1, 1));
}

#[tokio::test]
async fn an_endpoint_that_is_down_is_logged_once_and_its_spans_are_counted() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let (_, namespace) = or_skip!(new_namespace("notraces").await);
    // Port 1 is reserved, and nothing listens there.
    let operator = start(&project, &namespace, "http://127.0.0.1:1").await;
    let widgets = api(&namespace, "Widget");
    let failed = async || {
        let metrics = operator.metrics().await.unwrap();
        let begin = "hybrid_operator_trace_spans_total{result=\"failed\"} ";
        sum_of(&metrics, begin)
    };
    let mut seen = 0;
    for name in ["one", "two", "three"] {
        apply(&widgets, name, &json!({"spec": {}})).await;
        let more = async || failed().await > seen;
        eventually("failed spans", more).await;
        seen = failed().await;
    }
    let log = operator.log();
    assert_eq!(log.matches("cannot send traces").count(), 1, "{log}");
    assert_contains!(log, "Connection refused");
    assert_eq!(log.matches("installed the release").count(), 3, "{log}");
    let ended = operator.stop(LIMIT).await.unwrap();
    assert!(ended.success(), "{}", operator.log());
}

#[tokio::test]
async fn an_https_endpoint_is_verified_with_the_certificates_of_the_system() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let plane = or_skip!(control_plane().await);
    // The API server is an endpoint with a certificate of its own authority, which takes no traces.
    let config = Kubeconfig::read_from(plane.kubeconfig_path()).unwrap();
    let server = config.clusters[0].cluster.clone().unwrap();
    let authority = server.certificate_authority_data.unwrap();
    let authority = BASE64.decode(authority.as_bytes()).unwrap();
    project.write("ca.crt", &String::from_utf8(authority).unwrap());
    let file = project.watches_file().with_file_name("ca.crt");
    for (trusted, told) in [
        (true, "HTTP export failed with status code: 40"),
        (false, "invalid peer certificate"),
    ] {
        let namespace = namespace_of(plane, "tlstraces").await;
        let mut operator = project
            .operator(plane, namespace.name())
            .args(["--otlp-endpoint", server.server.as_deref().unwrap()]);
        if trusted {
            operator = operator.env("SSL_CERT_FILE", file.to_str().unwrap());
        }
        let operator = operator.start().await.unwrap();
        let widgets = api(&namespace, "Widget");
        apply(&widgets, "one", &json!({"spec": {}})).await;
        let is_told = async || operator.log().contains("cannot send traces");
        eventually("a warning", is_told).await;
        assert_contains!(operator.log(), told);
    }
}

#[tokio::test]
async fn a_wrong_endpoint_ends_the_start_with_the_name_of_its_variable() {
    let started = hybrid_operator_test::process::Operator::new(crate::world::program())
        .args(["run", "--kubeconfig", "/dev/null/none"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector")
        .spawn()
        .unwrap();
    let ended = started.exited(LIMIT).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    let log = started.log();
    let told = "$OTEL_EXPORTER_OTLP_ENDPOINT: \"ftp://collector\" is not an http or https URL";
    assert_contains!(log, told);
}
