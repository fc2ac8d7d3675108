//! State that must not outlive what it is about: values of a former custom resource, writes whose
//! answers were lost, a finalizer, an API version, an autoscaler, an object that is being deleted.

use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::world::{
    ANYTHING, InProcessOperator, LIMIT, Project, World, api, api_of, apply, autoscale, cluster_api,
    condition, control_plane, create_empty, define, definition_of, delete, deploy, eventually,
    exists, is_ready, merge, new_namespace, says, undefine, until,
};

/// A value, and an object that the API server rejects on request.
const OBJECTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: map}
data: {value: {{ .Values.value | default \"none\" | quote }}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: last
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
spec: {defaultBackend: {service: {name: x, port: {number: 80}}}}
";

/// Replaces a custom resource as `kubectl replace --force` does: deletes it, waits until it is gone
/// and creates another one. Returns its uid.
async fn replace(widgets: &Api<DynamicObject>, name: &str, spec: Value) -> String {
    if widgets.get_opt(name).await.unwrap().is_some() {
        delete(widgets, name).await;
    }
    let widget = json!({
        "apiVersion": "test.example.com/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": spec,
    });
    let widget: DynamicObject = serde_json::from_value(widget).unwrap();
    // Created in the instant in which the name is free.
    let created = async || match widgets.create(&PostParams::default(), &widget).await {
        Ok(created) => Some(created.metadata.uid.unwrap()),
        Err(kube::Error::Api(status)) if status.code == 409 => None,
        Err(error) => panic!("{error}"),
    };
    let began = std::time::Instant::now();
    loop {
        if let Some(uid) = created().await {
            return uid;
        }
        assert!(began.elapsed() < LIMIT, "{name} is not deleted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_custom_resource_gets_its_own_values_and_not_those_of_the_former() {
    let project = Project::new("reconcilePeriod: 0s", &[("objects.yaml", OBJECTS)]);
    let world = or_skip!(project.start("replaced").await);
    let widgets = world.api("Widget");
    for count in 1..=30 {
        let uid = replace(&widgets, "one", json!({"value": count})).await;
        let ready = |cr: &Value| cr["metadata"]["uid"] == uid.as_str() && is_ready(cr);
        world.until("Widget", "one", "Ready", ready).await;
        let map = world.api("ConfigMap").get("map").await.unwrap();
        assert_eq!(map.data["data"]["value"], count.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn good_custom_resource_after_a_bad_one_of_its_name_is_deployed_at_once() {
    let world = or_skip!(World::of("good-after-bad", "", &[("objects.yaml", OBJECTS)]).await);
    let widgets = world.api("Widget");
    for _ in 0..3 {
        replace(&widgets, "one", json!({"bad": true})).await;
        world.is("one", "ReleaseFailed").await;
        let uid = replace(&widgets, "one", json!({"value": "good"})).await;
        let ready = |cr: &Value| cr["metadata"]["uid"] == uid.as_str() && is_ready(cr);
        world.until("Widget", "one", "Ready", ready).await;
        assert_eq!(world.history("one").await, ["deployed"]);
    }
}

fn patches_map(request: &Recorded) -> bool {
    request.verb == "apply" && request.resource == "configmaps"
}

/// Upgrades to the value `two`, of which the answer is lost after the API server has executed it, and
/// then reverts to `one` before the object is applied again. `restart` starts a successor in between.
async fn revert_after_a_lost_answer(name: &str, restart: bool) {
    let (plane, namespace) = or_skip!(new_namespace(name).await);
    let project = Project::new("reconcilePeriod: 0s", &[("objects.yaml", OBJECTS)]);
    let faults = Faults::new();
    let start = async || InProcessOperator::faulty(&project, plane, &namespace, &faults).await;
    let mut operator = Some(start().await);
    let (widgets, maps) = (api(&namespace, "Widget"), api(&namespace, "ConfigMap"));
    deploy(&widgets, "one", json!({"value": "one"})).await;

    let mut first = true;
    faults.inject_with(move |request| {
        if !patches_map(request) {
            return None;
        }
        let lost = std::mem::take(&mut first);
        Some(if lost {
            Fault::AnswerLost
        } else {
            Fault::Unreachable
        })
    });
    apply(&widgets, "one", &json!({"spec": {"value": "two"}})).await;
    let executed = |map: &Value| map["data"]["value"] == "two";
    until(&maps, "map", "the lost write", executed).await;
    if restart {
        drop(operator.take());
    }
    apply(&widgets, "one", &json!({"spec": {"value": "one"}})).await;
    faults.clear_faults();
    if restart {
        operator = Some(start().await);
    }
    until(&widgets, "one", "Ready", is_ready).await;
    let map = maps.get("map").await.unwrap();
    assert_eq!(map.data["data"]["value"], "one");
    drop(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_whose_answer_was_lost_is_undone_when_the_user_reverts() {
    revert_after_a_lost_answer("lost-answer", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_before_a_kill_is_undone_when_the_user_reverts() {
    revert_after_a_lost_answer("lost-kill", true).await;
}

#[tokio::test]
async fn value_of_somebody_elses_upgrade_does_not_stay() {
    let project = Project::new("reconcilePeriod: 0s", &[("objects.yaml", OBJECTS)]);
    let world = or_skip!(project.start("helm-upgrade").await);
    world.deploy("one", json!({"value": "one"})).await;
    // As `helm upgrade` does: the same field manager, and a record without this operator's digest.
    let secrets = world.api("Secret");
    let record = secrets.get("sh.helm.release.v1.one.v1").await.unwrap();
    let params = PatchParams::apply("helm").force();
    let maps = world.api("ConfigMap");
    let live = maps.get("map").await.unwrap();
    let mut theirs = serde_json::to_value(&live).unwrap();
    theirs["data"] = json!({"value": "theirs"});
    for field in "managedFields resourceVersion uid creationTimestamp".split(' ') {
        theirs["metadata"].as_object_mut().unwrap().remove(field);
    }
    let patched = maps.patch("map", &params, &Patch::Apply(&theirs)).await;
    drop(patched.unwrap());
    let mut next = record.clone();
    next.metadata.name = Some("sh.helm.release.v1.one.v2".to_owned());
    next.metadata.resource_version = None;
    next.metadata.uid = None;
    next.metadata.managed_fields = None;
    let labels = next.metadata.labels.as_mut().unwrap();
    labels.insert("version".to_owned(), "2".to_owned());
    labels.insert("status".to_owned(), "failed".to_owned());
    drop(secrets.create(&PostParams::default(), &next).await.unwrap());
    world
        .deploy("one", json!({"value": "one", "other": true}))
        .await;
    world.data("map", json!({"value": "one"})).await;
}

#[tokio::test]
async fn finalizer_that_a_replacement_drops_comes_back_and_nothing_leaks() {
    const ROLE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: \"{{ .Release.Namespace }}\"}
rules: []
";
    let world = or_skip!(World::of("unheld", "reconcilePeriod: 0s", &[("role.yaml", ROLE)]).await);
    world.widget("one", json!({})).await;
    let widgets = world.api("Widget");
    for paused in [Value::Null, json!("true")] {
        world.annotate("one", "paused", paused).await;
        drop(world.ready("Widget", "one").await);
        let replaced = async || {
            let mut widget = widgets.get("one").await.unwrap();
            assert!(widget.metadata.finalizers.take().is_some());
            widgets
                .replace("one", &PostParams::default(), &widget)
                .await
        };
        let replaced = eventually("a replacement", replaced).await;
        assert_eq!(replaced.metadata.finalizers, None);
        let held = |cr: &Value| cr["metadata"]["finalizers"].is_array();
        world.until("Widget", "one", "the finalizer", held).await;
    }
    world.remove("Widget", "one").await;
    let role = cluster_api(&world.namespace, "ClusterRole");
    assert!(!exists(&role, world.namespace.name()).await);
    assert!(world.history("one").await.is_empty());
}

/// Waits until the custom resource has been reconciled once more and is `Ready`, and asserts that it
/// has no condition about drift or watches.
async fn stays_undisturbed(namespace: &TestNamespace, value: &str) {
    let widgets = api(namespace, "Widget");
    until(&widgets, "one", "Ready", is_ready).await;
    // A new value makes another reconcile, after which everything is known.
    merge(&widgets, "one", &json!({"spec": {"value": value}})).await;
    let cr = until(&widgets, "one", "Ready", is_ready).await;
    for type_ in ["Drifted", "WatchRefused"] {
        assert_eq!(condition(&cr, type_), None, "{cr:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_in_another_api_version_is_no_drift() {
    const AUTOSCALER: &str = "\
apiVersion: autoscaling/{{ .Values.version }}
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  {{- if eq .Values.version \"v1\" }}
  targetCPUUtilizationPercentage: 50
  {{- else }}
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
  {{- end }}
";
    let templates = [("autoscaler.yaml", AUTOSCALER), ("objects.yaml", OBJECTS)];
    let project = Project::new(
        "reconcilePeriod: 0s, upgrade: {wait: true, timeout: 20s}",
        &templates,
    );
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("api-version", &faults).await);
    let widgets = api(&namespace, "Widget");
    for (version, patches) in [("v1", 1), ("v2", 2), ("v1", 3)] {
        let value = format!("{version}-{patches}");
        apply(&widgets, "one", &json!({"spec": {"version": version}})).await;
        stays_undisturbed(&namespace, &value).await;
        let sent = faults.requests();
        let sent = sent.iter().filter(|request| {
            request.verb == "apply" && request.resource == "horizontalpodautoscalers"
        });
        assert_eq!(sent.count(), patches, "{version}");
    }
    let history = crate::world::history(&namespace, "one").await;
    assert_eq!(history.last().map(String::as_str), Some("deployed"));
    assert!(!history.contains(&"failed".to_owned()), "{history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_that_is_served_no_more_is_watched_no_more() {
    const GIZMO: &str = "\
apiVersion: versions.example.com/{{ .Values.version }}
kind: Gizmo
metadata: {name: gizmo}
spec: {a: 1}
";
    let plane = or_skip!(control_plane().await);
    let definition = |served: bool| {
        let text = definition_of("versions.example.com", "Gizmo", "Namespaced", ANYTHING);
        format!(
            "{text}  - name: v1alpha1
    served: {served}
    storage: false
    schema: {{openAPIV3Schema: {ANYTHING}}}
"
        )
    };
    define(plane, &definition(true)).await;
    let templates = [("gizmo.yaml", GIZMO), ("objects.yaml", OBJECTS)];
    let project = Project::new("reconcilePeriod: 0s", &templates);
    let started = project.in_process("served-version", &Faults::new()).await;
    let (namespace, _operator) = or_skip!(started);
    let widgets = api(&namespace, "Widget");
    for version in ["v1alpha1", "v1"] {
        apply(&widgets, "one", &json!({"spec": {"version": version}})).await;
        stays_undisturbed(&namespace, version).await;
    }
    define(plane, &definition(false)).await;
    let gvk = GroupVersionKind::gvk("versions.example.com", "v1alpha1", "Gizmo");
    let resource = ApiResource::from_gvk(&gvk);
    let gizmos: Api<DynamicObject> = namespace.objects(&resource);
    let unserved = async || gizmos.list(&ListParams::default()).await.is_err();
    eventually("v1alpha1 to be unserved", unserved).await;
    for value in ["a", "b", "c"] {
        stays_undisturbed(&namespace, value).await;
    }
}

/// A Deployment with or without a number of replicas and an autoscaler.
const SCALED: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  {{- with .Values.replicas }}
  replicas: {{ . }}
  {{- end }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web:{{ .Values.image | default 1 }}}]}
---
{{- if .Values.autoscaled }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 9
{{- end }}
";

/// Starts a release with an autoscaler, which then scales the Deployment to 5. The autoscaler owns
/// the field only if the chart has set it before.
async fn autoscaled(name: &str, replicas: &Value) -> Option<World> {
    let templates = [("scaled.yaml", SCALED), ("objects.yaml", OBJECTS)];
    let world = World::of(name, "reconcilePeriod: 0s", &templates).await?;
    let spec = json!({"autoscaled": true, "replicas": replicas});
    world.widget("one", spec).await;
    world.has_history("one", &["deployed"]).await;
    autoscale(&world.api("Deployment"), "web").await;
    Some(world)
}

#[tokio::test]
async fn rollback_leaves_the_replicas_to_the_autoscaler() {
    for (name, replicas) in [
        ("rollback-without", Value::Null),
        ("rollback-with", json!(1)),
    ] {
        let world = or_skip!(autoscaled(name, &replicas).await);
        let spec = json!({"autoscaled": true, "replicas": replicas, "image": 2, "bad": true});
        world.widget("one", spec).await;
        world.is("one", "Stalled").await;
        let history = ["superseded", "failed", "deployed"];
        world.has_history("one", &history).await;
        let web = world.api("Deployment").get("web").await.unwrap();
        assert_eq!(web.data["spec"]["replicas"], 5, "{name}");
        let image = "/spec/template/spec/containers/0/image";
        assert_eq!(web.data.pointer(image), Some(&json!("web:1")));
    }
}

#[tokio::test]
async fn the_charts_replicas_count_once_the_autoscaler_is_gone_from_the_chart() {
    for (name, replicas) in [
        ("unscaled-without", Value::Null),
        ("unscaled-with", json!(1)),
    ] {
        let world = or_skip!(autoscaled(name, &replicas).await);
        let spec = json!({"autoscaled": false, "replicas": 2});
        world.widget("one", spec).await;
        world.has_history("one", &["superseded", "deployed"]).await;
        let web = world.api("Deployment").get("web").await.unwrap();
        assert_eq!(web.data["spec"]["replicas"], 2, "{name}");
    }
}

#[tokio::test]
async fn object_that_is_being_deleted_is_created_again_before_the_revision_is_deployed() {
    let project = Project::new("reconcilePeriod: 0s", &[("objects.yaml", OBJECTS)]);
    let world = or_skip!(project.start("terminating").await);
    world.deploy("one", json!({"value": "one"})).await;
    let maps = world.api("ConfigMap");
    let held = json!({"metadata": {"finalizers": ["test.example.com/held"]}});
    merge(&maps, "map", &held).await;
    let uid = maps.get("map").await.unwrap().metadata.uid;
    delete(&maps, "map").await;
    world.widget("one", json!({"value": "two"})).await;
    let waits = |cr: &Value| says(cr, "Ready", "/map to be gone");
    world.until("Widget", "one", "the wait", waits).await;
    assert_eq!(world.history("one").await, ["deployed", "pending-upgrade"]);
    merge(&maps, "map", &json!({"metadata": {"finalizers": null}})).await;
    world.has_history("one", &["superseded", "deployed"]).await;
    let map = maps.get("map").await.unwrap();
    assert_eq!(map.data["data"]["value"], "two");
    assert_ne!(map.metadata.uid, uid);
}

#[tokio::test]
async fn remark_about_a_failed_revision_goes_with_its_rollback() {
    const TWICE: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web
        env:
        - {name: A, value: one}
        {{- if .Values.twice }}
        - {name: A, value: two}
        {{- end }}
";
    let templates = [("twice.yaml", TWICE), ("objects.yaml", OBJECTS)];
    let world = or_skip!(World::of("remarks", "reconcilePeriod: 0s", &templates).await);
    world.widget("one", json!({})).await;
    world.has_history("one", &["deployed"]).await;
    world
        .widget("one", json!({"twice": true, "bad": true}))
        .await;
    world.is("one", "Stalled").await;
    world
        .has_history("one", &["superseded", "failed", "deployed"])
        .await;
    let without = |cr: &Value| condition(cr, "NotAsRendered").is_none();
    world.until("Widget", "one", "no remark", without).await;

    // What is skipped because it did not change is still not as rendered.
    world.widget("one", json!({"twice": true})).await;
    world.is("one", "NotAsRendered").await;
    world
        .widget("one", json!({"twice": true, "value": "other"}))
        .await;
    world.data("map", json!({"value": "other"})).await;
    let history = "superseded failed superseded superseded deployed";
    let history: Vec<&str> = history.split(' ').collect();
    world.has_history("one", &history).await;
    let stays = |cr: &Value| {
        cr["status"]["release"]["revision"] == 5 && condition(cr, "NotAsRendered").is_some()
    };
    world.until("Widget", "one", "the remark", stays).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kind_that_comes_back_with_another_scope_is_watched_there() {
    let plane = or_skip!(control_plane().await);
    let group = "scopes.example.com";
    let definition = |scope: &str| definition_of(group, "Sprocket", scope, ANYTHING);
    define(plane, &definition("Namespaced")).await;
    let project = Project::new("", &[("objects.yaml", OBJECTS)]);
    project.watch(group, "Sprocket", "");
    let world = or_skip!(project.start("scopes").await);
    let namespaced = api_of(&world.namespace, group, "Sprocket");
    create_empty(&namespaced, group, "Sprocket", "one").await;
    until(&namespaced, "one", "Ready", is_ready).await;

    undefine(&world.namespace, &format!("sprockets.{group}")).await;
    define(plane, &definition("Cluster")).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", "Sprocket"));
    let everywhere: Api<DynamicObject> = Api::all_with(world.namespace.client(), &resource);
    create_empty(&everywhere, group, "Sprocket", "one").await;
    let refused = |cr: &Value| condition(cr, "Irreconcilable").is_some();
    let cr = until(&everywhere, "one", "refused", refused).await;
    let message = condition(&cr, "Irreconcilable").unwrap()["message"].as_str();
    assert!(message.unwrap().contains("releaseNamespace"), "{cr:#}");
    let log = world.operator.log();
    assert_contains!(log, "defined again with another scope");
    delete(&everywhere, "one").await;
}
