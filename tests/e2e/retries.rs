//! Remediation: failed attempts are retried in place with a backoff and stop only where another one
//! would do harm. Records and objects of failed revisions are bounded, and a release recovers by
//! itself when the obstacle is gone.

use std::time::Duration;

use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::fault::{Fault, Faults};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use crate::world::{
    InProcessOperator, Project, World, api, apply, cluster_api, condition, control_plane,
    define_kind, delete, deploy, events, eventually, gone, has_condition, is_ready, records,
    refuse, says, try_until, until,
};

/// A separate object for each number, a value, and an object that the API server rejects on
/// request.
const OBJECTS: &str = "\
{{- if .Values.number }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-{{ .Values.number }}}
---
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | default \"none\" | quote }}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
";

/// A release `one` of an operator whose requests can be rejected. There are no periodic resyncs.
struct Release {
    namespace: TestNamespace,
    project: Project,
    faults: Faults,
    operator: Option<InProcessOperator>,
}

impl Release {
    async fn start(options: &str, templates: &[(&str, &str)]) -> Option<Self> {
        let more = if options.is_empty() { "" } else { ", " };
        let options = format!("reconcilePeriod: 1h{more}{options}");
        let project = Project::new(&options, templates);
        let faults = Faults::new();
        let (namespace, operator) = project.in_process("retries", &faults).await?;
        Some(Self {
            namespace,
            project,
            faults,
            operator: Some(operator),
        })
    }

    async fn restart(&mut self) {
        let plane = control_plane().await.unwrap();
        drop(self.operator.take());
        let (project, namespace) = (&self.project, &self.namespace);
        let operator = InProcessOperator::faulty(project, plane, namespace, &self.faults).await;
        self.operator = Some(operator);
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.namespace, kind)
    }

    async fn spec(&self, spec: Value) {
        apply(&self.api("Widget"), "one", &json!({"spec": spec})).await;
    }

    /// Applies the custom resource and waits until it is ready.
    async fn deploy(&self, spec: Value) {
        self.spec(spec).await;
        self.is("Ready", is_ready).await;
    }

    /// Waits until a condition holds for the custom resource.
    async fn is(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let found = try_until(&self.api("Widget"), "one", what, holds).await;
        found.unwrap_or_else(|error| panic!("{error}\n{:#?}", self.faults.counts()))
    }

    /// Waits until no further attempt is made, for this reason.
    async fn stalls(&self, because: &str) -> Value {
        let stalled = |cr: &Value| has_condition(cr, "Stalled", "True", because);
        self.is("Stalled", stalled).await
    }

    /// Waits until `Ready` says this while attempts are retried.
    async fn retries(&self, text: &str) -> Value {
        let retries = |cr: &Value| {
            condition(cr, "Ready").is_some_and(|ready| {
                let is_retrying = ready["status"] == "False" && ready["reason"] == "Retrying";
                is_retrying && says(cr, "Ready", text)
            })
        };
        self.is(text, retries).await
    }

    /// Returns revision, status and failure count of each record, oldest first.
    async fn history(&self) -> Vec<(u32, String, u32)> {
        let mut history: Vec<_> = records(&self.namespace, "one")
            .await
            .into_iter()
            .map(|secret| {
                let labels = secret.metadata.labels.unwrap();
                let failures = labels.get("helm.sdk.operatorframework.io/failures");
                let failures = failures.and_then(|label| label.split('-').nth(1)?.parse().ok());
                let revision = labels["version"].parse().unwrap();
                (revision, labels["status"].clone(), failures.unwrap_or(0))
            })
            .collect();
        history.sort();
        history
    }

    async fn statuses(&self) -> Vec<String> {
        let history = self.history().await.into_iter();
        history.map(|(_, status, _)| status).collect()
    }

    /// Waits until the newest record has this failure count.
    async fn failed(&self, times: u32) {
        let often = async || {
            let history = self.history().await;
            match history.last() {
                Some((_, _, failures)) if *failures >= times => Ok(()),
                _ => Err(format!("{history:?}")),
            }
        };
        eventually("failures", often).await;
    }

    async fn value(&self) -> Value {
        let map = self.api("ConfigMap").get("one-map").await.unwrap();
        map.data["data"]["value"].clone()
    }

    /// Installs another release and waits until it is ready; by then, work due for the first one is
    /// done.
    async fn another_release_is_handled(&self, name: &str) {
        let widgets = self.api("Widget");
        deploy(&widgets, name, json!({})).await;
    }

    /// Lets another release fail; by then, work due for the first one is done.
    async fn another_release_fails(&self) {
        let widgets = self.api("Widget");
        apply(&widgets, "two", &json!({"spec": {}})).await;
        until(&widgets, "two", "failed", announces_attempt).await;
    }
}

/// Waits until the first revision has failed three times and its fourth attempt is planned, eight
/// seconds after the third.
async fn has_failed_three_times(world: &World) {
    let failed_thrice = |record: &Value| {
        record["metadata"]["labels"]["helm.sdk.operatorframework.io/failures"] == "1-3"
    };
    let secret = "sh.helm.release.v1.one.v1";
    world
        .until("Secret", secret, "three failures", failed_thrice)
        .await;
    world
        .until("Widget", "one", "the next attempt", announces_attempt)
        .await;
}

/// Returns whether the failure is reported with the time of the next attempt.
fn announces_attempt(cr: &Value) -> bool {
    has_condition(cr, "Irreconcilable", "True", "the next attempt is at 2")
}

const ROLLED_BACK: &str = "another attempt would replace the running revision with the failed one";

#[tokio::test(flavor = "multi_thread")]
async fn rejected_rollback_is_retried_in_place_and_not_followed_by_an_upgrade() {
    let mut release = or_skip!(Release::start("", &[("objects.yaml", OBJECTS)]).await);
    release.deploy(json!({"value": "1"})).await;
    refuse(&release.faults, "one-map");
    release.spec(json!({"value": "2"})).await;
    let rollback_failed =
        |cr: &Value| announces_attempt(cr) && cr["status"]["release"]["revision"] == 3;
    release.is("a failed rollback", rollback_failed).await;
    release.failed(2).await;
    release.restart().await;
    release.failed(3).await;
    assert_eq!(release.statuses().await, ["deployed", "failed", "failed"]);

    release.faults.clear_faults();
    release.stalls(ROLLED_BACK).await;
    let after = ["superseded", "failed", "deployed"];
    assert_eq!(release.statuses().await, after);
    assert_eq!(release.value().await, "1");
    // Neither waiting nor a restart starts the upgrade again.
    release.restart().await;
    release.another_release_is_handled("two").await;
    assert_eq!(release.statuses().await, after);
    assert_eq!(release.value().await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn reverting_the_spec_during_a_rejected_rollback_starts_no_further_rollback() {
    let release = or_skip!(Release::start("", &[("objects.yaml", OBJECTS)]).await);
    release.deploy(json!({"value": "1"})).await;
    refuse(&release.faults, "one-map");
    release.spec(json!({"value": "2"})).await;
    let rollback_failed =
        |cr: &Value| announces_attempt(cr) && cr["status"]["release"]["revision"] == 3;
    release.is("a failed rollback", rollback_failed).await;
    release.spec(json!({"value": "1"})).await;
    release.failed(3).await;
    let statuses = release.statuses().await;
    assert!(statuses.len() <= 4, "{statuses:?}");
    release.faults.clear_faults();
    release.is("Ready", is_ready).await;
    assert_eq!(release.value().await, "1");
    assert_eq!(release.statuses().await.last().unwrap(), "deployed");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_remembered_when_the_history_is_short() {
    let options = "maxHistory: 1, upgrade: {remediation: {retries: 1}}";
    let mut release = or_skip!(Release::start(options, &[("objects.yaml", OBJECTS)]).await);
    for value in ["0", "1"] {
        release.deploy(json!({"value": value})).await;
    }
    release.spec(json!({"value": "2", "bad": true})).await;
    release.stalls(ROLLED_BACK).await;
    let history = release.history().await;
    assert!(history.len() <= 3, "{history:?}");
    let failed: Vec<_> = history.iter().filter(|(_, s, _)| s == "failed").collect();
    assert!(matches!(failed[..], [(_, _, 2)]), "{history:?}");
    release.restart().await;
    release.another_release_is_handled("two").await;
    assert_eq!(release.history().await, history);
    assert_eq!(release.value().await, "1");
}

/// Number of consecutive specs that fail.
const BAD: u32 = 10;

/// Applies ten invalid specs, each after the previous one failed, and then a valid one.
async fn many_bad_specs(options: &str, good_first: bool) {
    let release = or_skip!(Release::start(options, &[("objects.yaml", OBJECTS)]).await);
    if good_first {
        release.deploy(json!({"value": "good"})).await;
    }
    for number in 1..=BAD {
        release.spec(json!({"number": number, "bad": true})).await;
        let failed = |cr: &Value| {
            let mut ends = ["Stalled", "ReleaseFailed"].iter();
            ends.any(|type_| has_condition(cr, type_, "True", ""))
        };
        release.is("failed", failed).await;
    }
    release.deploy(json!({"value": "better"})).await;
    let history = release.history().await;
    let failed = history.iter().filter(|(_, status, _)| status == "failed");
    assert!(failed.count() <= 5 && history.len() <= 10, "{history:?}");
    let maps = release.api("ConfigMap");
    let maps = maps.list(&ListParams::default()).await.unwrap().items;
    let mut names: Vec<String> = maps
        .into_iter()
        .filter_map(|map| map.metadata.name)
        .filter(|name| name.starts_with("one-"))
        .collect();
    names.sort();
    assert_eq!(names, ["one-map"], "{history:?}");
    assert_eq!(release.value().await, "better");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_failed_installs_leave_few_records_and_no_objects() {
    many_bad_specs("", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rolled_back_upgrades_leave_few_records_and_no_objects() {
    many_bad_specs("", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_failed_upgrades_without_rollback_leave_few_records_and_no_objects() {
    many_bad_specs("upgrade: {remediation: {strategy: none}}", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn install_waits_for_a_kind_that_is_defined_later() {
    let plane = or_skip!(control_plane().await);
    let group = format!("later{}.example.com", fastrand::u32(..));
    let template = format!(
        "apiVersion: {group}/v1\nkind: Late\nmetadata: {{name: {{{{ .Release.Name }}}}}}\nspec: {{}}\n"
    );
    let templates = [("objects.yaml", OBJECTS), ("late.yaml", template.as_str())];
    let release = or_skip!(Release::start("", &templates).await);
    release.spec(json!({"value": "1"})).await;
    let failed = release.is("the next attempt", announces_attempt).await;
    assert!(condition(&failed, "Stalled").is_none(), "{failed:#}");
    // The number of retries is not limited.
    release.failed(3).await;
    define_kind(plane, &group, "Late").await;
    release.is("Ready", is_ready).await;
    assert_eq!(release.statuses().await, ["deployed"]);
    let widgets = release.api("Widget");
    drop(widgets.delete("one", &DeleteParams::default()).await);
    gone(&widgets, "one").await;
    let definitions = cluster_api(&release.namespace, "CustomResourceDefinition");
    let name = format!("lates.{group}");
    drop(definitions.delete(&name, &DeleteParams::default()).await);
}

/// Starts an operator without periodic resyncs.
async fn without_resyncs(prefix: &str) -> Option<World> {
    World::of(prefix, "reconcilePeriod: 1h", &[("objects.yaml", OBJECTS)]).await
}

#[tokio::test]
async fn freed_object_name_triggers_an_immediate_retry() {
    let world = or_skip!(without_resyncs("clash").await);
    let maps = world.api("ConfigMap");
    apply(&maps, "one-map", &json!({"data": {"value": "theirs"}})).await;
    world.widget("one", json!({"value": "1"})).await;
    has_failed_three_times(&world).await;
    let freed = std::time::Instant::now();
    drop(maps.delete("one-map", &DeleteParams::default()).await);
    world.ready("Widget", "one").await;
    assert!(freed.elapsed() < Duration::from_secs(5));
    assert_eq!(world.history("one").await, ["deployed"]);
    world.data("one-map", json!({"value": "1"})).await;
}

#[tokio::test]
async fn raised_quota_triggers_an_immediate_retry() {
    let world = or_skip!(without_resyncs("quota").await);
    world.limit_maps(0).await;
    world.widget("one", json!({"value": "1"})).await;
    has_failed_three_times(&world).await;
    world.limit_maps(5).await;
    world.ready("Widget", "one").await;
    assert_eq!(world.history("one").await, ["deployed"]);
}

/// A hook whose Job fails at its deadline.
const BAD_HOOK: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-install}
spec:
  activeDeadlineSeconds: 1
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {no-node: has-this}
      containers: [{name: main, image: i}]
";

#[tokio::test(flavor = "multi_thread")]
async fn hook_failing_three_times_stalls_the_release_until_a_reset() {
    let templates = [("objects.yaml", OBJECTS), ("hook.yaml", BAD_HOOK)];
    let release = or_skip!(Release::start("", &templates).await);
    release.spec(json!({"value": "1"})).await;
    let waits = |cr: &Value| {
        assert!(condition(cr, "Stalled").is_none(), "{cr:#}");
        announces_attempt(cr)
    };
    release.is("the next attempt", waits).await;
    release.stalls("a hook failed several times").await;
    let history = release.history().await;
    assert_eq!(history, [(1, "failed".to_owned(), 3)]);
    release.another_release_fails().await;
    assert_eq!(release.history().await, history);

    let annotation = "helm.sdk.operatorframework.io/reset-at";
    let reset = json!({"metadata": {"annotations": {annotation: "now"}}});
    crate::world::merge(&release.api("Widget"), "one", &reset).await;
    release.is("the next attempt", announces_attempt).await;
    release.stalls("a hook failed several times").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_retries_stall_the_release_and_are_reported() {
    let options = "install: {remediation: {retries: 1}}";
    let release = or_skip!(Release::start(options, &[("objects.yaml", OBJECTS)]).await);
    release.spec(json!({"bad": true})).await;
    release
        .stalls("the retries set by remediation.retries")
        .await;
    assert_eq!(release.history().await, [(1, "failed".to_owned(), 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn install_without_failing_hooks_never_stalls() {
    let release = or_skip!(Release::start("", &[("objects.yaml", OBJECTS)]).await);
    release.spec(json!({"bad": true})).await;
    release.failed(4).await;
    let cr = release.is("the next attempt", announces_attempt).await;
    assert!(condition(&cr, "Stalled").is_none(), "{cr:#}");
    assert_eq!(release.statuses().await, ["failed"]);
}

/// A value, and after it an object that the API server rejects on request.
const REFUSED_LATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .Release.Name }}
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
rules: []
";

#[tokio::test(flavor = "multi_thread")]
async fn rollback_replaces_objects_unless_the_annotation_disables_it() {
    for (force, verb) in [(None, "update"), (Some("false"), "apply")] {
        let release = or_skip!(Release::start("", &[("objects.yaml", REFUSED_LATE)]).await);
        let mut custom = json!({"spec": {"value": "1"}});
        if let Some(force) = force {
            let annotation = "helm.sdk.operatorframework.io/rollback-force";
            custom["metadata"]["annotations"][annotation] = json!(force);
        }
        let widgets = release.api("Widget");
        apply(&widgets, "one", &custom).await;
        release.is("Ready", is_ready).await;
        custom["spec"] = json!({"value": "2", "bad": true});
        release.faults.forget();
        apply(&widgets, "one", &custom).await;
        release.stalls(ROLLED_BACK).await;
        assert_eq!(release.value().await, "1");
        let requests = release.faults.requests();
        let verbs: Vec<&str> = requests
            .iter()
            .filter(|r| r.resource == "configmaps" && r.name.as_deref() == Some("one-map"))
            .filter(|r| r.is_write())
            .map(|r| r.verb.as_str())
            .collect();
        // The upgrade uses apply; all later writes belong to the rollback.
        assert_eq!(verbs.first(), Some(&"apply"), "{verbs:?}");
        let rollback = verbs.get(1..).unwrap_or_default();
        assert!(rollback.contains(&verb), "{verbs:?}");
        assert_eq!(rollback.contains(&"update"), force.is_none(), "{verbs:?}");
    }
}

#[tokio::test]
async fn rejection_without_a_reason_is_reported_after_a_few_attempts() {
    // Of several such values, the API server names any.
    const SECRETS: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: one}
data: {a: 'not base64!', b: 'bm90IGJhc2U2NA!', c: '!'}
---
apiVersion: v1
kind: Secret
metadata: {name: two}
data: {a: '!', b: 'bm90!'}
";
    let world = or_skip!(World::of("undecodable", "", &[("secrets.yaml", SECRETS)]).await);
    world.widget("one", json!({})).await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "illegal base64 data");
}

/// Checks that the retries are over: the release is ready, and nothing else was ever reported.
async fn ends_without_a_trace(release: &Release) {
    let cr = release.is("Ready", is_ready).await;
    assert_eq!(condition(&cr, "Ready").unwrap()["message"], "");
    assert_eq!(condition(&cr, "ReleaseFailed").unwrap()["status"], "False");
    assert_eq!(condition(&cr, "Stalled"), None);
    assert_eq!(release.statuses().await, ["deployed"]);
    let warnings: Vec<_> = events(&release.namespace)
        .await
        .into_iter()
        .filter(|event| event.data["type"] == "Warning")
        .collect();
    assert_eq!(warnings, []);
    // A write for each length of the pause that was told, and some of the install.
    let counts = release.faults.counts();
    assert!(counts["patch widgets/status"] <= 5, "{counts:?}");
}

/// Has the API server call a webhook, which nobody serves, about operations on `ConfigMap`s. Returns when
/// `refused` says that it does.
async fn add_webhook(release: &Release, operations: &[&str], refused: impl AsyncFn() -> bool) {
    let name = release.namespace.name();
    let configuration = json!({"webhooks": [{
        "name": "not-yet.test.example.com",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "clientConfig": {"service": {"name": "not-yet", "namespace": name}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    apply(&webhooks(release), name, &configuration).await;
    // The API server learns of it late.
    eventually("the webhook", refused).await;
}

async fn remove_webhook(release: &Release) {
    let name = release.namespace.name();
    let (webhooks, params) = (webhooks(release), DeleteParams::default());
    drop(webhooks.delete(name, &params).await.unwrap());
}

fn webhooks(release: &Release) -> Api<DynamicObject> {
    cluster_api(&release.namespace, "ValidatingWebhookConfiguration")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_webhook_that_cannot_be_called_is_in_ready_with_the_next_attempt() {
    let release = or_skip!(Release::start("", &[("objects.yaml", OBJECTS)]).await);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "probe-"}});
    let map: DynamicObject = serde_json::from_value(map).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let maps = release.api("ConfigMap");
    let refused = async || maps.create(&params, &map).await.is_err();
    add_webhook(&release, &["CREATE"], refused).await;

    release.spec(json!({"value": "1"})).await;
    let cr = release.retries("within 4 s").await;
    let message = condition(&cr, "Ready").unwrap()["message"].to_string();
    assert_contains!(message, "one-map", "not-yet.test.example.com");
    assert_contains!(message, "the next attempt is");
    let irreconcilable = condition(&cr, "Irreconcilable").map(|it| it["status"].clone());
    assert_ne!(irreconcilable, Some(json!("True")));
    release.retries("within 8 s").await;
    remove_webhook(&release).await;
    ends_without_a_trace(&release).await;
    assert_eq!(release.value().await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_an_uninstall_that_a_webhook_holds_up_say_so_until_it_is_gone() {
    let release = or_skip!(Release::start("", &[("objects.yaml", OBJECTS)]).await);
    release.deploy(json!({"value": "1"})).await;
    let (maps, params) = (release.api("ConfigMap"), DeleteParams::default().dry_run());
    let refused = async || maps.delete("one-map", &params).await.is_err();
    add_webhook(&release, &["UPDATE", "DELETE"], refused).await;
    release.spec(json!({"value": "2"})).await;
    release.retries("not-yet.test.example.com").await;
    remove_webhook(&release).await;
    release.is("Ready", is_ready).await;
    assert_eq!(release.value().await, "2");
    assert_eq!(release.statuses().await, ["superseded", "deployed"]);

    add_webhook(&release, &["UPDATE", "DELETE"], refused).await;
    let widgets = release.api("Widget");
    delete(&widgets, "one").await;
    release.retries("not-yet.test.example.com").await;
    remove_webhook(&release).await;
    gone(&widgets, "one").await;
    assert_eq!(maps.get_opt("one-map").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_retried_is_in_ready_until_it_succeeds() {
    for (fault, cause) in [
        (Fault::Status(429), "patch configmaps"),
        (Fault::Status(503), "patch configmaps"),
        (Fault::Status(500), "one-map"),
    ] {
        let release = or_skip!(Release::start("", &[("objects.yaml", OBJECTS)]).await);
        release.faults.inject_with(move |request| {
            let writes = request.resource == "configmaps" && request.method == http::Method::PATCH;
            writes.then_some(fault)
        });
        release.spec(json!({"value": "1"})).await;
        release.retries(cause).await;
        release.retries("the next attempt is within").await;
        release.faults.clear_faults();
        ends_without_a_trace(&release).await;
    }
}
