//! Hooks on a real API server: Jobs that vanish, hooks for several events, and what they leave
//! behind.

use hybrid_operator_test::TestNamespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::helm_cli::helm;
use crate::world::{
    InProcessOperator, Project, World, api, api_in, apply, cluster_api, condition, delete, events,
    eventually, gone, holds, merge, new_namespace, ready_at, says, until,
};

/// The hooks of public charts with an admission webhook: a Job that creates its certificate first,
/// one that patches the webhook with it afterwards, and the RBAC objects of both as hooks for all
/// these events.
const ADMISSION: &str = "\
{{- define \"meta\" }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
{{- $name := printf \"%s-%s-admission\" .Release.Namespace .Release.Name }}
{{- $all := dict \"on\" \"pre-install,pre-upgrade,post-install,post-upgrade\" }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
{{- template \"meta\" $all }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
{{- template \"meta\" $all }}
rules: [{apiGroups: [\"\"], resources: [secrets], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
{{- template \"meta\" $all }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ .Release.Namespace }}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
{{- template \"meta\" $all }}
rules: [{apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations], verbs: [get, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
{{- template \"meta\" $all }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ .Release.Namespace }}}]
{{- range $job, $on := dict \"create\" \"pre-install,pre-upgrade\" \"patch\" \"post-install,post-upgrade\" }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}-{{ $job }}
{{- template \"meta\" (dict \"on\" $on) }}
spec:
  ttlSecondsAfterFinished: 0
  template:
    spec:
      restartPolicy: OnFailure
      serviceAccountName: {{ $name }}
      containers: [{name: main, image: image}]
{{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: {{ $name }}}
webhooks:
- name: validate.admission.example.com
  matchPolicy: Equivalent
  rules: [{apiGroups: [admission.example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {value: {{ .Values.value | quote }}}
";

/// Returns a Job that is a hook; `pod` is the outcome of its Pod, where `running` runs until it is
/// ended.
fn job(name: &str, events: &str, policies: &str, spec: &str, pod: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata:
  name: {{{{ .Release.Name }}}}-{name}
  annotations: {{helm.sh/hook: \"{events}\", helm.sh/hook-delete-policy: \"{policies}\"}}
spec:
  backoffLimit: 0
  {spec}
  template:
    metadata: {{annotations: {{test.hybrid-operator/pod: \"{pod}\"}}}}
    spec: {{restartPolicy: Never, containers: [{{name: main, image: image}}]}}
"
    )
}

const ONCE: &str = "before-hook-creation";
const AT_ONCE: &str = "ttlSecondsAfterFinished: 0";

/// Returns how often a Job ran: the Job controller creates an event for every Pod.
pub(crate) async fn runs(namespace: &TestNamespace, job: &str) -> usize {
    let made = |event: &&DynamicObject| {
        event.data["reason"] == "SuccessfulCreate" && event.data["involvedObject"]["name"] == job
    };
    events(namespace).await.iter().filter(made).count()
}

/// Waits until a Job ran `times` times, and fails if it ran more often.
async fn has_run(namespace: &TestNamespace, job: &str, times: usize) {
    let enough = async || {
        let found = runs(namespace, job).await;
        if found == times {
            Ok(())
        } else {
            Err(format!("{found}"))
        }
    };
    let what = format!("{times} runs of {job}");
    eventually(&what, enough).await;
}

/// Waits until the Pod of a Job is in this phase and returns its name.
async fn pod_of(pods: &Api<DynamicObject>, job: &str, phase: &str) -> String {
    let list = ListParams::default().labels(&format!("job-name={job}"));
    let found = async || {
        let pods = pods.list(&list).await.unwrap().items;
        let found = pods.iter().find(|pod| pod.data["status"]["phase"] == phase);
        let name = found.and_then(|pod| pod.metadata.name.clone());
        name.ok_or_else(|| format!("{pods:?}"))
    };
    let what = format!("a Pod of {job} that is {phase}");
    eventually(&what, found).await
}

/// Ends a running Pod with the given outcome.
async fn end(pods: &Api<DynamicObject>, name: &str, how: Value) {
    let annotations = json!({"test.hybrid-operator/pod": how});
    let change = json!({"metadata": {"annotations": annotations}});
    merge(pods, name, &change).await;
}

async fn absent(world: &World, kind: &str, name: &str) {
    let clustered = matches!(kind, "ClusterRole" | "ClusterRoleBinding");
    let api = if clustered {
        cluster_api(&world.namespace, kind)
    } else {
        world.api(kind)
    };
    gone(&api, name).await;
}

#[tokio::test]
async fn admission_webhook_hooks_run_once_per_revision_and_leave_nothing_behind() {
    let world = or_skip!(World::of("admission", "", &[("admission.yaml", ADMISSION)]).await);
    let name = format!("{}-one-admission", world.namespace.name());
    for revision in 1..=2 {
        world
            .widget("one", json!({"value": revision.to_string()}))
            .await;
        world
            .data("one", json!({"value": revision.to_string()}))
            .await;
        world.revision("one", revision).await;
        let runs_of = async |job: &str| runs(&world.namespace, &format!("{name}-{job}")).await;
        let runs = (runs_of("create").await, runs_of("patch").await);
        let expected = usize::try_from(revision).unwrap();
        assert_eq!(runs, (expected, expected), "{}", world.operator.log());
        for kind in "ServiceAccount Role RoleBinding ClusterRole ClusterRoleBinding".split(' ') {
            absent(&world, kind, &name).await;
        }
        absent(&world, "Job", &format!("{name}-create")).await;
        absent(&world, "Job", &format!("{name}-patch")).await;
    }
    assert_eq!(world.history("one").await, ["superseded", "deployed"]);
}

#[tokio::test]
async fn hook_job_with_zero_ttl_runs_once() {
    let hook = job("migrate", "pre-install", ONCE, AT_ONCE, "");
    let world = or_skip!(World::of("ttl", "", &[("hook.yaml", &hook)]).await);
    world.widget("one", json!({})).await;
    world.revision("one", 1).await;
    // The chart has no delete policy that removes it; its TTL does.
    world.gone("Job", "one-migrate").await;
    assert_eq!(runs(&world.namespace, "one-migrate").await, 1);
    assert_eq!(world.history("one").await, ["deployed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_job_that_ends_while_no_operator_runs_is_not_run_again() {
    let (plane, namespace) = or_skip!(new_namespace("unattended").await);
    let hook = job("migrate", "pre-install", ONCE, AT_ONCE, "running");
    let project = Project::new("", &[("hook.yaml", &hook)]);
    let client = async || plane.client().await.unwrap();
    let operator = InProcessOperator::start(&project, client().await, namespace.name());
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {}})).await;
    let pods = api(&namespace, "Pod");
    let pod = pod_of(&pods, "one-migrate", "Running").await;
    drop(operator);
    end(&pods, &pod, Value::Null).await;
    let jobs = api(&namespace, "Job");
    until(&jobs, "one-migrate", "Complete", holds("Complete")).await;

    let _operator = InProcessOperator::start(&project, client().await, namespace.name());
    until(&widgets, "one", "deployed", ready_at(1)).await;
    gone(&jobs, "one-migrate").await;
    assert_eq!(runs(&namespace, "one-migrate").await, 1);
}

#[tokio::test]
async fn deleting_a_running_hook_job_fails_the_install_and_is_reported() {
    let hook = job("migrate", "pre-install", ONCE, "", "running");
    let options = "install: {remediation: {retries: 0}}";
    let world = or_skip!(World::of("deleted", options, &[("hook.yaml", &hook)]).await);
    world.widget("one", json!({})).await;
    drop(pod_of(&world.api("Pod"), "one-migrate", "Running").await);
    world.remove("Job", "one-migrate").await;
    let message = world.message("one", "ReleaseFailed").await;
    let expected = "one-migrate was deleted before it completed";
    assert_contains!(message, expected);
    assert_eq!(runs(&world.namespace, "one-migrate").await, 1);
    assert_eq!(world.history("one").await, ["failed"]);
}

/// A Job that is an ordinary object of the chart.
fn plain_job(name: &str) -> String {
    let annotations = "annotations: {helm.sh/hook: \"\", helm.sh/hook-delete-policy: \"\"}";
    let hook = job(name, "", "", "", "running");
    assert_contains!(hook, annotations);
    hook.replace(annotations, "annotations: {}")
}

#[tokio::test]
async fn only_a_revision_that_waits_for_jobs_is_pending_until_they_are_complete() {
    let options = "install: {wait: true, waitForJobs: true}, upgrade: {wait: true}";
    let template = plain_job("{{ .Values.job }}");
    let world = or_skip!(World::of("awaited", options, &[("job.yaml", &template)]).await);
    world.widget("one", json!({"job": "first"})).await;
    let pods = world.api("Pod");
    let pod = pod_of(&pods, "one-first", "Running").await;
    let waits = |cr: &Value| says(cr, "Ready", "one-first: not complete");
    world.until("Widget", "one", "waiting", waits).await;
    assert_eq!(world.history("one").await, ["pending-install"]);
    end(&pods, &pod, Value::Null).await;
    world.revision("one", 1).await;
    assert_eq!(runs(&world.namespace, "one-first").await, 1);

    // The upgrade does not wait for Jobs, and one that runs does not make the release unready.
    world.widget("one", json!({"job": "second"})).await;
    world.revision("one", 2).await;
    drop(pod_of(&pods, "one-second", "Running").await);
}

#[tokio::test]
async fn failed_job_fails_the_revision_that_waits_for_it() {
    let options = "install: {wait: true, waitForJobs: true, remediation: {retries: 0}}";
    let project = Project::new(options, &[("job.yaml", &plain_job("migrate"))]);
    let world = or_skip!(project.start("failedjob").await);
    world.widget("one", json!({})).await;
    let pods = world.api("Pod");
    let pod = pod_of(&pods, "one-migrate", "Running").await;
    end(&pods, &pod, json!("failed")).await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "one-migrate failed", "BackoffLimitExceeded");
    assert_eq!(world.history("one").await, ["failed"]);
}

#[tokio::test]
async fn hook_for_two_install_events_runs_twice() {
    let hook = job("check", "pre-install,post-install", ONCE, "", "");
    let world = or_skip!(World::of("twice", "", &[("hook.yaml", &hook)]).await);
    world.widget("one", json!({})).await;
    world.revision("one", 1).await;
    assert_eq!(runs(&world.namespace, "one-check").await, 2);
}

#[tokio::test]
async fn hook_for_post_install_and_pre_delete_runs_at_both_events() {
    let hook = job("register", "post-install,pre-delete", ONCE, "", "");
    let world = or_skip!(World::of("cleanup", "", &[("hook.yaml", &hook)]).await);
    world.widget("one", json!({})).await;
    world.revision("one", 1).await;
    assert_eq!(runs(&world.namespace, "one-register").await, 1);
    world.remove("Widget", "one").await;
    assert_eq!(runs(&world.namespace, "one-register").await, 2);
    world.gone("Job", "one-register").await;
}

#[tokio::test]
async fn failed_deletion_hook_is_retried_until_it_succeeds() {
    let hook = job("backup", "pre-delete", ONCE, "", "running");
    let world = or_skip!(World::of("again", "", &[("hook.yaml", &hook)]).await);
    world.widget("one", json!({})).await;
    world.revision("one", 1).await;
    let widgets = world.api("Widget");
    delete(&widgets, "one").await;
    let pods = world.api("Pod");
    let first = pod_of(&pods, "one-backup", "Running").await;
    end(&pods, &first, json!("failed")).await;
    let message = world.message("one", "ReleaseFailed").await;
    let why = format!("Job/one-backup: Pod {first}: container main exited with code 1");
    assert_contains!(message, "pre-delete hook one-backup failed: Job failed");
    assert_contains!(message, &why);

    has_run(&world.namespace, "one-backup", 2).await;
    let second = pod_of(&pods, "one-backup", "Running").await;
    assert_ne!(first, second);
    end(&pods, &second, Value::Null).await;
    world.gone("Widget", "one").await;
    assert_eq!(runs(&world.namespace, "one-backup").await, 2);
}

#[tokio::test]
async fn an_object_that_becomes_a_hook_stays_also_after_a_restart() {
    // The hooks are on while the value says so; a Job among them can be held up.
    let on = |event: &str| {
        format!(
            "{{{{- if .Values.hooks }}}}\n  annotations: {{helm.sh/hook: {event}}}\n  {{{{- end }}}}"
        )
    };
    let template = format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: {{{{ .Release.Name }}}}-map}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{{{ .Release.Name }}}}-account
  {pre}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{{{ .Release.Name }}}}-after
  {post}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{{{ .Release.Name }}}}-role
  {pre}
rules: []
",
        pre = on("pre-upgrade"),
        post = on("post-upgrade"),
    );
    let held = job("held", "pre-upgrade", ONCE, "", "{{ .Values.pod }}");
    let held = format!("{{{{- if .Values.hooks }}}}\n{held}{{{{- end }}}}");
    let templates = [("objects.yaml", &*template), ("held.yaml", &*held)];
    let project = Project::new("", &templates);
    for restart in [false, true] {
        let mut world = or_skip!(project.start("becomes").await);
        world.widget("one", json!({"hooks": false})).await;
        world.revision("one", 1).await;
        let pod = if restart { "running" } else { "" };
        world
            .widget("one", json!({"hooks": true, "pod": pod}))
            .await;
        if restart {
            let pods = world.api("Pod");
            let name = pod_of(&pods, "one-held", "Running").await;
            world.operator.sigkill().unwrap();
            world.operator.restart().await.unwrap();
            end(&pods, &name, Value::Null).await;
        }
        world.revision("one", 2).await;
        let objects = [
            ("ServiceAccount", "one-account"),
            ("Role", "one-role"),
            ("ConfigMap", "one-after"),
        ];
        for (kind, name) in objects {
            let live = world.api(kind).get_opt(name).await.unwrap();
            let live = live.unwrap_or_else(|| panic!("{kind}: {}", world.operator.log()));
            assert!(live.metadata.deletion_timestamp.is_none(), "{kind}");
        }
        let widget = world.api("Widget").get("one").await.unwrap();
        let widget = serde_json::to_value(widget).unwrap();
        assert!(condition(&widget, "NotAsRendered").is_none(), "{widget}");
        // And back.
        world.widget("one", json!({"hooks": false})).await;
        world.revision("one", 3).await;
        world.remove("Widget", "one").await;
        for (kind, name) in objects {
            absent(&world, kind, name).await;
        }
    }
}

#[tokio::test]
async fn the_leftover_of_an_interrupted_hook_is_recognised() {
    for (policies, edited) in [
        ("hook-succeeded", false),
        ("hook-succeeded", true),
        ("hook-failed", true),
    ] {
        let hook = job("migrate", "pre-upgrade", policies, "", "{{ .Values.pod }}");
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {value: {{ .Values.value | quote }}}\n";
        let project = Project::new("", &[("hook.yaml", &hook), ("map.yaml", map)]);
        let mut world = or_skip!(project.start("leftover").await);
        world.widget("one", json!({"value": "1", "pod": ""})).await;
        world.revision("one", 1).await;
        world
            .widget("one", json!({"value": "2", "pod": "running"}))
            .await;
        let pods = world.api("Pod");
        let name = pod_of(&pods, "one-migrate", "Running").await;
        world.operator.sigkill().unwrap();
        let revision = if edited {
            world.widget("one", json!({"value": "3", "pod": ""})).await;
            3
        } else {
            2
        };
        world.operator.restart().await.unwrap();
        if !edited {
            end(&pods, &name, Value::Null).await;
        }
        world.revision("one", revision).await;
        let value = revision.to_string();
        world.data("one", json!({"value": value})).await;
        let history = world.history("one").await;
        let expected: &[&str] = if edited {
            &["superseded", "failed", "deployed"]
        } else {
            &["superseded", "deployed"]
        };
        assert_eq!(history, expected, "{}", world.operator.log());
    }
}

#[tokio::test]
async fn a_namespace_that_is_a_hook_is_not_deleted_with_what_is_in_it() {
    let space = "\
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .Release.Namespace }}-shared
  annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}
";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {value: {{ .Values.value | quote }}}\n";
    let project = Project::new("", &[("space.yaml", space), ("map.yaml", map)]);
    let world = or_skip!(project.start("hook-space").await);
    world.widget("one", json!({"value": "1"})).await;
    world.revision("one", 1).await;
    let name = format!("{}-shared", world.namespace.name());
    let spaces = cluster_api(&world.namespace, "Namespace");
    let uid = async || spaces.get(&name).await.unwrap().metadata.uid;
    let before = uid().await;
    let theirs = api_in(&world.namespace, &name, "ConfigMap");
    apply(&theirs, "theirs", &json!({"data": {"count": "1"}})).await;
    world.widget("one", json!({"value": "2"})).await;
    world.revision("one", 2).await;
    assert_eq!(uid().await, before);
    assert!(theirs.get_opt("theirs").await.unwrap().is_some());
    drop(spaces.delete(&name, &DeleteParams::default()).await);
}

#[tokio::test]
async fn cluster_scoped_hooks_are_deleted_by_their_policy_and_with_the_release() {
    let role = |name: &str, policy: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{{{ .Release.Namespace }}}}-{name}
  annotations: {{helm.sh/hook: pre-install, helm.sh/hook-delete-policy: {policy}}}
rules: []
"
        )
    };
    let (short, long) = (role("short", "hook-succeeded"), role("long", ONCE));
    let project = Project::new("", &[("short.yaml", &short), ("long.yaml", &long)]);
    let world = or_skip!(project.start("roles").await);
    world.widget("one", json!({})).await;
    world.revision("one", 1).await;
    let roles = cluster_api(&world.namespace, "ClusterRole");
    let name = |role: &str| format!("{}-{role}", world.namespace.name());
    absent(&world, "ClusterRole", &name("short")).await;
    assert!(roles.get_opt(&name("long")).await.unwrap().is_some());
    world.remove("Widget", "one").await;
    absent(&world, "ClusterRole", &name("long")).await;
}

#[tokio::test]
async fn hooks_run_correctly_after_helm_rewrites_a_record() {
    let Some(program) = helm() else { return };
    let templates = [
        (
            "register.yaml",
            job("register", "post-install,pre-delete", ONCE, "", ""),
        ),
        ("check.yaml", job("check", "test", ONCE, "", "")),
    ];
    let templates: Vec<(&str, &str)> = templates.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let world = or_skip!(World::of("rewritten", "", &templates).await);
    world.widget("one", json!({})).await;
    world.revision("one", 1).await;
    let helm = |args: &[&str]| world.helm(&program, args);
    let hooks = helm(&["get", "hooks", "one"]);
    assert_contains!(hooks, "name: one-register");
    // Helm rewrites the record without the fields it does not know.
    let tested = helm(&["test", "one"]);
    assert_contains!(tested, "one-check");
    assert_eq!(runs(&world.namespace, "one-register").await, 1);
    world.remove("Widget", "one").await;
    assert_eq!(runs(&world.namespace, "one-register").await, 2);
}
