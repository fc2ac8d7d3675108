//! Needs of those who run an operator: its log, its metrics over TLS, events with a narrow role,
//! and messages about what it lacks.

use hybrid_operator_test::process::RunningOperator;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::pod;
use crate::world::{
    LIMIT, Project, World, api, apply, cluster_api, condition, control_plane, create, delete,
    events, eventually, grant, holds, new_namespace, operator, subject, until,
};

const HOOKED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-before
  annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-check
  annotations: {helm.sh/hook: test}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-secret}
stringData: {value: {{ .Values.value | quote }}}
";

/// Returns the lines of a log that have this message.
fn lines(operator: &RunningOperator, message: &str) -> Vec<Value> {
    let log = operator.log();
    let parsed = log.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error} in {line}"))
    });
    parsed.filter(|line| line["msg"] == message).collect()
}

#[tokio::test]
async fn the_log_tells_in_one_line_what_was_done_to_a_release() {
    let project = Project::new("test: {}", &[("all.yaml", HOOKED)]);
    let (plane, namespace) = or_skip!(new_namespace("log").await);
    let program = crate::world::program();
    let world = hybrid_operator_test::process::Operator::new(program)
        .args(["run", "--zap-log-level=10", "--watches-file"])
        .arg(project.watches_file().to_str().unwrap())
        .args(["--health-probe-bind-address", "127.0.0.1:{probe_port}"])
        .args(["--metrics-bind-address", "127.0.0.1:{metrics_port}"])
        .env("WATCH_NAMESPACE", namespace.name())
        .env("OPERATOR_NAME", namespace.name())
        .kubeconfig(plane.kubeconfig_path())
        .start()
        .await
        .unwrap();
    let told = async |message: &str, revision: u32| {
        let is_told = async || {
            let found = lines(&world, message);
            found.iter().any(|line| line["revision"] == revision)
        };
        let what = format!("{message} {revision}");
        eventually(&what, is_told).await;
    };
    let widgets = api(&namespace, "Widget");
    let spec = |value: &str| json!({"spec": {"value": value}});
    apply(&widgets, "one", &spec("hush-first")).await;
    told("installed the release", 1).await;
    told("tested the release", 1).await;
    apply(&widgets, "one", &spec("hush-second")).await;
    told("upgraded the release", 2).await;
    told("tested the release", 2).await;
    let maps = api(&namespace, "ConfigMap");
    delete(&maps, "one-map").await;
    told("repaired drift", 2).await;
    delete(&widgets, "one").await;
    told("uninstalled the release", 2).await;

    for (message, count) in [
        ("installed the release", 1),
        ("upgraded the release", 1),
        ("repaired drift", 1),
        ("uninstalled the release", 1),
        ("tested the release", 2),
        // Before the install and the upgrade, and the two tests.
        ("ran a hook", 4),
    ] {
        let found = lines(&world, message);
        assert_eq!(found.len(), count, "{message}: {found:#?}");
        for line in found {
            for (key, value) in [
                ("kind", "Widget"),
                ("namespace", namespace.name()),
                ("name", "one"),
                ("release", "one"),
                ("level", "info"),
            ] {
                assert_eq!(line[key], value, "{line}");
            }
            assert!(line["duration"].as_str().unwrap().ends_with('s'), "{line}");
            assert!(line["ts"].as_str().unwrap().ends_with('Z'), "{line}");
        }
    }
    let hook = &lines(&world, "ran a hook")[0];
    assert_eq!(hook["hook"], "one-before");
    assert_eq!(hook["event"], "pre-install");
    let repaired = lines(&world, "repaired drift")[0]["objects"].to_string();
    assert_contains!(repaired, "one-map");
    assert!(!world.log().contains("hush"), "values are in the log");
}

/// A client of `/metrics` with a token.
fn scraper(port: u16, token: Option<String>) -> Client {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(Into::into);
    Client::try_from(config).unwrap()
}

/// Returns the text of the metrics, or the status code of a refusal.
pub(crate) async fn scrape(port: u16, token: Option<&str>) -> Result<String, u16> {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let client = scraper(port, token.map(ToOwned::to_owned));
    client
        .request_text(request)
        .await
        .map_err(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other:?}"),
        })
}

#[tokio::test]
async fn metrics_over_tls_are_for_those_who_may_get_them() {
    let (plane, namespace) = or_skip!(new_namespace("metrics").await);
    let flags = ["--metrics-secure", "--metrics-require-rbac"];
    let running = operator(plane, namespace.name(), &flags)
        .start()
        .await
        .unwrap();
    let port = running.metrics_port();

    let client = plane.client().await.unwrap();
    let token = async |name: &str| {
        let account = json!({"metadata": {"name": name}});
        create(&api(&namespace, "ServiceAccount"), account).await;
        pod::token(&client, namespace.name(), name).await
    };
    let (prometheus, other) = (token("prometheus").await, token("other").await);
    let name = format!("{}-metrics-reader", namespace.name());
    let [roles, bindings] =
        ["ClusterRole", "ClusterRoleBinding"].map(|kind| cluster_api(&namespace, kind));
    let reading = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    apply(&roles, &name, &json!({"rules": reading})).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace.name()}],
    });
    apply(&bindings, &name, &binding).await;

    assert_eq!(scrape(port, None).await, Err(401));
    assert_eq!(scrape(port, Some("nobody")).await, Err(401));
    assert_eq!(scrape(port, Some(&other)).await, Err(403));
    // The API server may need a moment to see the role, and a refusal is remembered for 30 s.
    let allowed = async || scrape(port, Some(&prometheus)).await.is_ok();
    eventually("the metrics", allowed).await;
    let text = scrape(port, Some(&prometheus)).await.unwrap();
    assert_contains!(text, "helm_operator_build_info{commit=");
    // Nothing is served over plain HTTP.
    assert!(running.metrics().await.is_err());
    assert!(
        !running.log().contains(&prometheus),
        "a token is in the log"
    );
    delete(&bindings, &name).await;
    delete(&roles, &name).await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_for_metrics_ends_the_start_with_the_flag_to_check() {
    let plane = or_skip!(control_plane().await);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    for (written, cause) in [
        (false, format!("cannot read {path}/tls.crt")),
        (true, "certificate".to_owned()),
    ] {
        if written {
            std::fs::write(folder.path().join("tls.crt"), "no certificate").unwrap();
            std::fs::write(folder.path().join("tls.key"), "no key").unwrap();
        }
        let flags = ["--metrics-secure", "--metrics-cert-path", &path];
        let Err(error) = operator(plane, "default", &flags).start().await else {
            panic!("the operator started");
        };
        let error = error.to_string();
        assert!(
            error.contains("cannot serve metrics over TLS; check --metrics-cert-path")
                && error.contains(&cause),
            "{error}"
        );
    }
}

#[tokio::test]
async fn metrics_describe_queues_workers_and_custom_resources() {
    let project = Project::new("maxConcurrentReconciles: 3", &[("all.yaml", HOOKED)]);
    let world = or_skip!(project.start("series").await);
    world.widget("one", json!({"value": "a"})).await;
    drop(world.is("one", "Ready").await);
    let cr = world.api("Widget").get("one").await.unwrap();
    let created = cr.metadata.creation_timestamp.unwrap().0.as_second();
    let namespace = world.namespace.name();
    let text = world.operator.metrics().await.unwrap();
    for line in [
        format!(
            "resource_created_at_seconds{{group=\"test.example.com\",kind=\"Widget\",name=\"one\",namespace=\"{namespace}\",version=\"v1\"}} {created}"
        ),
        "controller_runtime_max_concurrent_reconciles{controller=\"widget\"} 3".to_owned(),
        "controller_runtime_reconcile_panics_total{controller=\"widget\"} 0".to_owned(),
        "workqueue_depth{name=\"widget\",controller=\"widget\"} 0".to_owned(),
        "workqueue_unfinished_work_seconds{name=\"widget\",controller=\"widget\"} ".to_owned(),
        "workqueue_work_duration_seconds_bucket{".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn leader_election_without_a_namespace_is_refused_with_the_ways_out() {
    let (plane, namespace) = or_skip!(new_namespace("nowhere").await);
    let running = operator(plane, namespace.name(), &["--leader-elect"])
        .spawn()
        .unwrap();
    let ended = running.exited(LIMIT).await.unwrap();
    assert_eq!(ended.code(), Some(1));
    let log = running.log();
    assert_contains!(log, "--leader-election-namespace", "$POD_NAMESPACE");
}

#[tokio::test]
async fn a_missing_definition_is_named_with_the_way_to_install_it() {
    let (plane, namespace) = or_skip!(new_namespace("absent").await);
    let project = Project::new("", &[]);
    project.watch("test.example.com", "NeverInstalled", "");
    let running = project.run(plane, &namespace).await;
    let told = async || {
        let log = running.log();
        let lines = log.lines().filter(|line| line.contains("NeverInstalled"));
        let hint = "install their CustomResourceDefinition";
        lines.filter(|line| line.contains(hint)).count() == 1
    };
    eventually("the warning", told).await;
}

#[tokio::test]
async fn core_events_are_sent_where_the_role_allows_only_those() {
    let (plane, namespace) = or_skip!(new_namespace("core-events").await);
    let project = Project::new("", &[("all.yaml", HOOKED)]);
    let rules = json!([
        {"apiGroups": ["test.example.com"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]},
        // As in the roles of operator-sdk.
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]);
    grant(&namespace, "operator", subject("User", "operator"), rules).await;
    let running = project
        .operator(plane, namespace.name())
        .kubeconfig(plane.operator_kubeconfig())
        .start()
        .await
        .unwrap();
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "a"}})).await;
    until(&widgets, "one", "Deployed", holds("Deployed")).await;
    let sent = async || {
        events(&namespace).await.iter().any(|event| {
            event.data["reason"] == "InstallSuccessful"
                && event.data["source"]["component"].is_string()
                && event.data["involvedObject"]["name"] == "one"
        })
    };
    eventually("an event", sent).await;
    let log = running.log();
    let told = log.matches("sending core events instead").count();
    assert_eq!(told, 1, "{log}");
}

/// A Deployment with two entries of the same name, and an object that stays.
const KEPT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-web}
spec:
  replicas: 0
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - name: main
        image: i
        env: [{{ if not .Values.tidy }}{name: LEVEL, value: a}, {{ end }}{name: LEVEL, value: b}]
{{- if not .Values.dropped }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-kept
  annotations: {helm.sh/resource-policy: keep}
{{- end }}
";

#[tokio::test]
async fn merged_list_entries_and_objects_that_stay_are_named_in_one_event_each_and_a_condition() {
    let world = or_skip!(World::of("left", "", &[("all.yaml", KEPT)]).await);
    let notes = async |reason: &str| {
        let events = events(&world.namespace).await.into_iter();
        let of_reason = events.filter(|e| e.data["reason"] == reason);
        let notes: Vec<String> = of_reason.map(|e| e.data["message"].to_string()).collect();
        notes
    };
    let told = async |reason: &str, text: &str| {
        let about = async || {
            let notes = notes(reason).await.into_iter();
            notes.filter(|note| note.contains(text)).collect::<Vec<_>>()
        };
        eventually(reason, async || !about().await.is_empty()).await;
        let all = about().await;
        assert_eq!(all.len(), 1, "{all:#?}");
    };
    world.widget("one", json!({})).await;
    told("ListEntriesMerged", "name=LEVEL").await;
    let merged = world.is("one", "NotAsRendered").await;
    assert_eq!(merged["reason"], "ListEntriesMerged");
    assert!(merged["message"].as_str().unwrap().contains("name=LEVEL"));
    // The upgrade renders the list without duplicates, and does not render the object that stays.
    world
        .widget("one", json!({"tidy": true, "dropped": true}))
        .await;
    let kept = "is not deleted: it is annotated with helm.sh/resource-policy: keep";
    told("ObjectLeft", &format!("one-kept {kept}")).await;
    let left =
        |cr: &Value| condition(cr, "NotAsRendered").is_some_and(|c| c["reason"] == "ObjectLeft");
    world.until("Widget", "one", "what stays", left).await;
    world
        .widget("one", json!({"tidy": true, "dropped": true, "next": 1}))
        .await;
    let none = |cr: &Value| {
        cr["status"]["release"]["revision"] == 3
            && cr["status"]["release"]["status"] == "deployed"
            && condition(cr, "NotAsRendered").is_none()
    };
    world.until("Widget", "one", "no remark", none).await;
    drop(world.api("ConfigMap").get("one-kept").await.unwrap());

    world.deploy("two", json!({"tidy": true})).await;
    world.remove("Widget", "two").await;
    told("ObjectLeft", &format!("two-kept {kept}")).await;
    drop(world.api("ConfigMap").get("two-kept").await.unwrap());
}
