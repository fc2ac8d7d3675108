//! Reports of a custom resource's status about its release: the reason of a failure outlives the
//! process that reported it, each failure has its own event, and no condition refers to another
//! revision.

use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use serde_json::{Value, json};

use crate::world::{
    InProcessOperator, Project, api, apply, condition, control_plane, deploy, events, eventually,
    has_condition, is_true, namespace_of, until,
};

/// An object with a label that may be invalid.
const LABELLED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-map
  labels: {team: {{ .Values.team | default \"a\" | quote }}}
";

/// Returns whether a request writes a failed release to the status.
fn reports_failure(request: &Recorded) -> bool {
    request.resource == "widgets/status"
        && request
            .body
            .as_ref()
            .is_some_and(|body| is_true(body, "ReleaseFailed"))
}

#[tokio::test(flavor = "multi_thread")]
async fn next_process_reports_the_reason_of_a_failure() {
    let plane = or_skip!(control_plane().await);
    for options in ["", "install: {remediation: {retries: 0}}"] {
        let project = Project::new(options, &[("map.yaml", LABELLED)]);
        let namespace = namespace_of(plane, "reason").await;
        let widgets = api(&namespace, "Widget");
        let spec = json!({"spec": {"team": "not a label"}});
        let (change, end) = (apply(&widgets, "one", &spec), std::future::pending());
        let crash = (1, Fault::Unreachable);
        let crashed = project.crash_at(plane, &namespace, crash, reports_failure, change, end);
        assert!(Box::pin(crashed).await);
        let before = widgets.get("one").await.unwrap();
        let before = serde_json::to_value(before).unwrap();
        assert!(condition(&before, "ReleaseFailed").is_none(), "{before:#}");

        let client = plane.client().await.unwrap();
        let _operator = InProcessOperator::start(&project, client, namespace.name());
        let reported = |cr: &Value| {
            has_condition(cr, "ReleaseFailed", "True", "one-map")
                && has_condition(cr, "Deployed", "False", "one-map")
                && (options.is_empty() || has_condition(cr, "Stalled", "True", ""))
        };
        let cr = until(&widgets, "one", "the reason", reported).await;
        let deployed = condition(&cr, "Deployed").unwrap();
        assert_eq!(deployed["reason"], "InstallError");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_writes_carry_the_resource_version_and_are_retried_after_a_conflict() {
    let project = Project::new("reconcilePeriod: 1h", &[("map.yaml", LABELLED)]);
    let faults = Faults::new();
    let is_status = |request: &Recorded| request.resource == "widgets/status";
    faults.at(1, Fault::Status(409), is_status);
    let (namespace, _operator) = or_skip!(project.in_process("conflict", &faults).await);
    let widgets = api(&namespace, "Widget");
    deploy(&widgets, "one", json!({})).await;
    let requests = faults.requests();
    let written: Vec<_> = requests.iter().filter(|r| is_status(r)).collect();
    assert!(written.len() >= 2, "{written:#?}");
    for request in written {
        let body = request.body.as_ref().unwrap();
        let metadata = &body["metadata"];
        assert!(
            metadata["resourceVersion"].is_string() && metadata["uid"].is_string(),
            "{body:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_has_its_own_event_and_condition_message() {
    let template = format!("{LABELLED}data: {{{{ toJson .Values.data }}}}\n");
    let project = Project::new("", &[("map.yaml", &template)]);
    let started = project.in_process("events", &Faults::new()).await;
    let (namespace, _operator) = or_skip!(started);
    let widgets = api(&namespace, "Widget");
    for (spec, value, field) in [
        (
            json!({"team": "the first one"}),
            "the first one",
            "metadata.labels: ",
        ),
        (json!({"data": {"a key": "x"}}), "a key", "data[a key]: "),
    ] {
        apply(&widgets, "one", &json!({"spec": spec})).await;
        let reported = |cr: &Value| {
            has_condition(cr, "Deployed", "False", value)
                && has_condition(cr, "ReleaseFailed", "True", value)
        };
        let cr = until(&widgets, "one", "the failure", reported).await;
        let deployed = condition(&cr, "Deployed").unwrap();
        assert_eq!(deployed["reason"], "InstallError");
        // Readers of events see the field, and not its value.
        let noted = async || {
            events(&namespace).await.iter().any(|event| {
                let note = event.data["message"]
                    .as_str()
                    .or(event.data["note"].as_str());
                let note = note.unwrap_or_default();
                assert!(!note.contains("the first one"), "{note}");
                event.data["reason"] == "InstallError" && note.contains(field)
            })
        };
        eventually(field, noted).await;
    }
}

/// A hook that never ends.
const ENDLESS: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-install}
spec:
  template:
    spec: {restartPolicy: Never, nodeSelector: {no-node: has-this}, containers: [{name: main, image: i}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_release_name_while_it_is_pending() {
    let templates = [("map.yaml", LABELLED), ("hook.yaml", ENDLESS)];
    let project = Project::new("", &templates);
    let started = project.in_process("pending", &Faults::new()).await;
    let (namespace, _operator) = or_skip!(started);
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {}})).await;
    let pending = |cr: &Value| {
        let release = &cr["status"]["release"];
        release["name"] == "one" && release["status"] == "pending-install"
    };
    until(&widgets, "one", "pending", pending).await;
}

/// A test whose Job fails at its deadline on request.
const TEST: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-test
  annotations: {helm.sh/hook: test}
spec:
  {{- if .Values.fails }}
  activeDeadlineSeconds: 1
  {{- end }}
  template:
    spec:
      restartPolicy: Never
      {{- if .Values.fails }}
      nodeSelector: {no-node: has-this}
      {{- end }}
      containers: [{name: main, image: i}]
";

#[tokio::test(flavor = "multi_thread")]
async fn tests_run_right_after_an_upgrade_and_report_only_on_their_revision() {
    let templates = [("map.yaml", LABELLED), ("test.yaml", TEST)];
    let project = Project::new("reconcilePeriod: 1h, test: {}", &templates);
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("tests", &faults).await);
    let widgets = api(&namespace, "Widget");
    for (revision, fails, outcome) in [(1, false, "True"), (2, true, "False"), (3, false, "True")] {
        let spec = json!({"spec": {"fails": fails, "team": revision.to_string()}});
        apply(&widgets, "one", &spec).await;
        let reported = |cr: &Value| {
            cr["status"]["release"]["revision"] == revision
                && has_condition(cr, "TestSuccess", outcome, "")
        };
        until(&widgets, "one", outcome, reported).await;
    }
    // Every status of a revision has the outcome of its own tests or none.
    for request in faults.requests() {
        let Some(body) = request
            .body
            .filter(|_| request.resource == "widgets/status")
        else {
            continue;
        };
        let revision = body["status"]["release"]["revision"].as_u64();
        let outcome = condition(&body, "TestSuccess").map(|c| c["status"].clone());
        let own = if revision == Some(2) { "False" } else { "True" };
        assert!(outcome.is_none_or(|outcome| outcome == own), "{body:#}");
    }
}
