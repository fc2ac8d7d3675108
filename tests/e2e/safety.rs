//! Data safety: foreign objects are never taken over or deleted, nor are objects that hold data.

use hybrid_operator::options::Options;
use kube::api::{PostParams, ResourceExt};
use serde_json::{Value, json};

use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace};

use crate::world::{
    ANYTHING, InProcessOperator, LIMIT, Project, World, api, api_in, api_of, apply, cluster_api,
    condition, control_plane, create_empty, define, definition_of, delete, eventually, gone,
    has_condition, holds, is_true, merge, namespace_of, new_namespace, records, remove, says,
    until,
};

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Values.map | default \"map\" }}}
data: {value: {{ .Release.Name }}}
";

const NAMESPACE: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: {{ .Release.Namespace }}-made}
";

const CLAIM: &str = "\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}-data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

#[tokio::test]
async fn foreign_object_with_the_same_name_is_not_changed() {
    let world = or_skip!(World::of("foreign", "", &[("map.yaml", MAP)]).await);
    let foreign = json!({"data": {"value": "theirs", "more": "x"}});
    apply(&world.api("ConfigMap"), "map", &foreign).await;
    world.widget("one", json!({})).await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "ConfigMap", "map");
    world
        .data("map", json!({"value": "theirs", "more": "x"}))
        .await;
    // It is not deleted with the custom resource either.
    world.remove("Widget", "one").await;
    world
        .data("map", json!({"value": "theirs", "more": "x"}))
        .await;
}

#[tokio::test]
async fn custom_resources_do_not_take_an_object_from_each_other() {
    let world = or_skip!(World::of("race", "", &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({})).await;
    world.widget("two", json!({})).await;
    world.is("two", "ReleaseFailed").await;
    world.data("map", json!({"value": "one"})).await;
    world.remove("Widget", "two").await;
    world.data("map", json!({"value": "one"})).await;
}

#[tokio::test]
async fn custom_resource_that_is_no_longer_watched_is_not_uninstalled() {
    let project = Project::new("selector: {matchLabels: {team: a}}", &[("map.yaml", MAP)]);
    let mut world = or_skip!(project.start("shrink").await);
    let cr = json!({"metadata": {"labels": {"team": "a"}}, "spec": {}});
    apply(&world.api("Widget"), "one", &cr).await;
    let before = world.ready("Widget", "one").await;
    // The label is removed, the operator restarts, and another custom resource shows that it works.
    let label = json!({"metadata": {"labels": {"team": null}}});
    merge(&world.api("Widget"), "one", &label).await;
    world.operator.stop(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    let other = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"map": "other"}});
    apply(&world.api("Widget"), "two", &other).await;
    world.ready("Widget", "two").await;
    world.data("map", json!({"value": "one"})).await;
    assert_eq!(world.history("one").await, ["deployed"]);
    let after = world.api("Widget").get("one").await.unwrap();
    assert_eq!(after.uid(), before.uid());
}

#[tokio::test]
async fn claim_annotated_with_keep_survives_the_release() {
    let world = or_skip!(World::of("keep", "", &[("claim.yaml", CLAIM)]).await);
    world.widget("one", json!({})).await;
    let claims = world.api("PersistentVolumeClaim");
    world.there("PersistentVolumeClaim", "one-data").await;
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    merge(&claims, "one-data", &keep).await;
    let uid = claims.get("one-data").await.unwrap().uid();
    world.remove("Widget", "one").await;
    let claim = claims.get("one-data").await.unwrap();
    assert_eq!(claim.uid(), uid);
    assert!(claim.metadata.deletion_timestamp.is_none());
    assert!(
        claim.owner_references().is_empty(),
        "or garbage collection would take it"
    );
}

#[tokio::test]
async fn removed_labels_are_restored_without_losing_objects() {
    let world = or_skip!(World::of("strip", "", &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({})).await;
    let maps = world.api("ConfigMap");
    let before = maps.get("map").await.unwrap();
    let bare = json!({"metadata": {"labels": null, "annotations": null}});
    merge(&maps, "map", &bare).await;
    let operator = "helm.sdk.operatorframework.io/operator";
    let labelled = |map: &Value| map["metadata"]["labels"].get(operator).is_some();
    world
        .until("ConfigMap", "map", "its labels", labelled)
        .await;
    assert_eq!(maps.get("map").await.unwrap().uid(), before.uid());
}

#[tokio::test]
async fn corrupt_record_is_reported_and_uninstall_uses_an_earlier_one() {
    let world = or_skip!(World::of("corrupt", "", &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({"x": 1})).await;
    world.widget("one", json!({"x": 2})).await;
    world.revision("one", 2).await;
    let secrets = world.api("Secret");
    let broken = json!({"data": {"release": "AAAA"}});
    merge(&secrets, "sh.helm.release.v1.one.v2", &broken).await;
    world.remove("Widget", "one").await;
    world.gone("ConfigMap", "map").await;
}

#[tokio::test]
async fn recreated_custom_resource_gets_a_new_release() {
    let world = or_skip!(World::of("anew", "", &[("map.yaml", MAP)]).await);
    let first = world.deploy("one", json!({})).await;
    let widgets = world.api("Widget");
    delete(&widgets, "one").await;
    // The name is reused as soon as it is free.
    world.gone("Widget", "one").await;
    create_empty(&widgets, "test.example.com", "Widget", "one").await;
    let second = world.ready("Widget", "one").await;
    assert_ne!(first.uid(), second.uid());
    assert_eq!(world.history("one").await, ["deployed"]);
    let map = world.api("ConfigMap").get("map").await.unwrap();
    assert_eq!(map.owner_references()[0].uid, second.uid().unwrap());
}

#[tokio::test]
async fn namespace_in_use_by_others_outlives_its_release() {
    let world = or_skip!(World::of("inner", "", &[("namespace.yaml", NAMESPACE)]).await);
    world.deploy("one", json!({})).await;
    let name = format!("{}-made", world.namespace.name());
    let theirs = api_in(&world.namespace, &name, "ConfigMap");
    apply(&theirs, "theirs", &json!({})).await;
    world.remove("Widget", "one").await;
    assert!(theirs.get_opt("theirs").await.unwrap().is_some());
    let namespaces = cluster_api(&world.namespace, "Namespace");
    let namespace = namespaces.get(&name).await.unwrap();
    assert!(namespace.metadata.deletion_timestamp.is_none());
    delete(&namespaces, &name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_lookup_does_not_prune_objects() {
    let template = format!(
        "{{{{- if lookup \"v1\" \"Secret\" .Release.Namespace \"switch\" }}}}\n{MAP}{{{{- end }}}}\n"
    );
    let project = Project::new("", &[("map.yaml", template.as_str())]);
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("lookup", &faults).await);
    apply(&api(&namespace, "Secret"), "switch", &json!({"data": {}})).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"n": 1}})).await;
    let is = async |type_: &'static str| {
        let holds = |cr: &Value| has_condition(cr, type_, "True", "");
        until(&widgets, "one", type_, holds).await
    };
    drop(is("Ready").await);
    for code in [403, 500] {
        faults.inject_with(move |request| {
            let asked = request.verb == "get" && request.name.as_deref() == Some("switch");
            asked.then_some(Fault::Status(code))
        });
        apply(&widgets, "one", &json!({"spec": {"n": code}})).await;
        let refused = is("Irreconcilable").await;
        let message = condition(&refused, "Irreconcilable").unwrap()["message"].to_string();
        assert_contains!(message, "switch");
        let map = api(&namespace, "ConfigMap").get_opt("map").await.unwrap();
        assert!(map.is_some(), "it is still there");
        faults.clear_faults();
        apply(&widgets, "one", &json!({"spec": {"n": code + 1}})).await;
        drop(is("Ready").await);
    }
}

#[tokio::test]
async fn immutable_stateful_set_is_not_recreated_even_by_force() {
    let set = "apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}-db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: i}]}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: {{ .Values.size }}}}}
";
    let project = Project::new("install: {wait: false}", &[("set.yaml", set)]);
    let world = or_skip!(project.start("stateful").await);
    let annotations = json!({"helm.sdk.operatorframework.io/upgrade-force": "true"});
    let custom =
        |size: &str| json!({"metadata": {"annotations": annotations}, "spec": {"size": size}});
    apply(&world.api("Widget"), "one", &custom("1Gi")).await;
    let before = world.there("StatefulSet", "one-db").await;
    let deployed = |cr: &Value| cr["status"]["release"]["status"] == "deployed";
    world.until("Widget", "one", "deployed", deployed).await;
    apply(&world.api("Widget"), "one", &custom("2Gi")).await;
    // A conflict with the StatefulSet controller's writes leads to a retry.
    let refused = |cr: &Value| {
        is_true(cr, "ReleaseFailed") && says(cr, "ReleaseFailed", "one-db: spec cannot be changed")
    };
    world.until("Widget", "one", "refused", refused).await;
    let after = world.there("StatefulSet", "one-db").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test]
async fn helm_and_operator_racing_for_a_release_name_do_not_share_it() {
    let program = or_skip!(crate::helm_cli::helm());
    let project = Project::new("", &[("map.yaml", MAP)]);
    let world = or_skip!(project.start("race").await);
    for n in 0..4 {
        let name = format!("one{n}");
        let map = format!("map{n}");
        let mut helm = std::process::Command::new(&program)
            .args(["install", &name, "--set", &format!("map={map}")])
            .arg(project.watches_file().with_file_name("chart"))
            .args(["--namespace", world.namespace.name()])
            .env("KUBECONFIG", world.plane.kubeconfig_path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        world.widget(&name, json!({"map": map})).await;
        let decided = |cr: &Value| {
            let is = |type_| is_true(cr, type_);
            is("Ready") || is("Irreconcilable") || is("Stalled")
        };
        world.until("Widget", &name, "decided", decided).await;
        let theirs = helm.wait().unwrap().success();
        let cr = world.until("Widget", &name, "decided", decided).await;
        let ours = is_true(&cr, "Ready");
        assert!(theirs != ours, "{cr:#}");
        assert_eq!(world.history(&name).await.last().unwrap(), "deployed");
        world.data(&map, json!({"value": name})).await;
    }
}

#[tokio::test]
async fn recreated_crd_is_watched_again() {
    let (plane, namespace) = or_skip!(new_namespace("definition").await);
    let group = format!("{}.example.com", namespace.name());
    let definition = definition_of(&group, "Brittle", "Namespaced", ANYTHING);
    let project = Project::new("", &[("map.yaml", MAP)]);
    project.watch(&group, "Brittle", "");
    // The operator starts first and waits for the kind.
    let _operator = project.run(plane, &namespace).await;
    let brittles = api_of(&namespace, &group, "Brittle");
    let definitions = cluster_api(&namespace, "CustomResourceDefinition");
    let maps = api(&namespace, "ConfigMap");
    for _ in 0..2 {
        define(plane, &definition).await;
        create_empty(&brittles, &group, "Brittle", "one").await;
        until(&brittles, "one", "Ready", holds("Ready")).await;
        assert!(maps.get_opt("map").await.unwrap().is_some());
        let name = format!("brittles.{group}");
        delete(&definitions, &name).await;
        // Deleting it deletes its custom resources and their releases.
        gone(&definitions, &name).await;
        assert!(maps.get_opt("map").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn denial_by_an_admission_policy_is_reported_and_ends_with_the_policy() {
    let world = or_skip!(World::of("denied", "", &[("map.yaml", MAP)]).await);
    let name = format!("{}-no-maps", world.namespace.name());
    let policies = cluster_api(&world.namespace, "ValidatingAdmissionPolicy");
    let bindings = cluster_api(&world.namespace, "ValidatingAdmissionPolicyBinding");
    let policy = json!({"spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace.name()}},
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "false", "message": "maps are not allowed"}],
    }});
    apply(&policies, &name, &policy).await;
    let binding = json!({"spec": {"policyName": name, "validationActions": ["Deny"]}});
    apply(&bindings, &name, &binding).await;
    // The API server needs a moment to enforce the policy.
    let probe = json!({"data": {}});
    let maps = world.api("ConfigMap");
    let enforced = async || {
        let map = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, "data": probe["data"],
        }));
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        maps.create(&dry, &map.unwrap()).await.is_err()
    };
    eventually("the policy to be enforced", enforced).await;
    world.widget("one", json!({})).await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "maps are not allowed");
    delete(&bindings, &name).await;
    delete(&policies, &name).await;
    let removed = async || !enforced().await;
    eventually("the policy to be gone", removed).await;
    world.annotate("one", "reset-at", json!("now")).await;
    world.ready("Widget", "one").await;
}

#[tokio::test]
async fn repeated_conflict_over_a_field_ends_and_names_the_other_manager() {
    let world = or_skip!(World::of("fight", "", &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({})).await;
    let maps = world.api("ConfigMap");
    for _ in 0..5 {
        merge(&maps, "map", &json!({"data": {"value": "theirs"}})).await;
        world.data("map", json!({"value": "one"})).await;
    }
    merge(&maps, "map", &json!({"data": {"value": "theirs"}})).await;
    let message = world.message("one", "Drifted").await;
    assert_contains!(message, "an-editor keeps changing", "/map");
    world.data("map", json!({"value": "theirs"})).await;
}

/// An operator with a name, whose objects carry that name, and the requests it sent.
struct Named {
    id: String,
    faults: Faults,
    _operator: InProcessOperator,
    _project: Project,
}

impl Named {
    async fn start(
        plane: &ControlPlane,
        namespace: &TestNamespace,
        kind: &str,
        name: &str,
    ) -> Self {
        Self::with_chart_of(plane, namespace, kind, name, name).await
    }

    /// Starts an operator with the chart of the operator with another name.
    async fn with_chart_of(
        plane: &ControlPlane,
        namespace: &TestNamespace,
        kind: &str,
        name: &str,
        maker: &str,
    ) -> Self {
        let map = format!(
            "apiVersion: v1
kind: ConfigMap
metadata: {{name: {{{{ .Values.map }}}}}}
data: {{by: {maker}, count: {{{{ .Values.count | default 1 | quote }}}}}}
"
        );
        let project = Project::new("", &[("map.yaml", map.as_str())]);
        project.watch("test.example.com", kind, "reconcilePeriod: 100ms");
        let id = format!("{}-{name}", namespace.name());
        let faults = Faults::new();
        let client = plane.client_with(&faults).await.unwrap();
        let change = |options: &mut Options| {
            options.operator_name.clone_from(&id);
            options.instance.clone_from(&id);
        };
        let operator =
            InProcessOperator::with(&project, client, namespace.name(), |chart| chart, change);
        Self {
            id,
            faults,
            _operator: operator,
            _project: project,
        }
    }

    /// Returns its writes to objects of this name and to the records of a release of this name.
    fn writes(&self, name: &str) -> Vec<String> {
        let requests = self.faults.requests();
        let about = |r: &&Recorded| r.name.as_deref().is_some_and(|n| n.contains(name));
        let writes = requests.iter().filter(|r| r.is_write()).filter(about);
        writes.map(Recorded::kind).collect()
    }
}

/// Returns whether a write is only a status or an event.
fn is_status_or_event(kind: &String) -> bool {
    kind == "patch widgets/status" || kind.ends_with(" events")
}

/// Returns whether a custom resource is ready and reports that this operator manages it and that
/// another one tries to.
fn is_contested(cr: &Value, owner: &str) -> bool {
    let manages = format!("operator {owner} manages this release");
    has_condition(cr, "Ready", "True", "") && has_condition(cr, "Contested", "True", &manages)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_do_not_overwrite_each_others_changes() {
    let (plane, namespace) = or_skip!(new_namespace("twice").await);
    let widgets = api(&namespace, "Widget");
    let maps = api(&namespace, "ConfigMap");
    let first = Named::start(plane, &namespace, "Widget", "first").await;
    apply(&widgets, "one", &json!({"spec": {"map": "one"}})).await;
    let by_first = |map: &Value| map["data"]["by"] == "first";
    until(&maps, "one", "there", by_first).await;
    let second = Named::start(plane, &namespace, "Widget", "second").await;
    let contested = |cr: &Value| is_contested(cr, &first.id);
    for n in 2..5 {
        until(&widgets, "one", "contested", contested).await;
        let object = json!({"spec": {"map": "one", "count": n}});
        apply(&widgets, "one", &object).await;
        let anew = |map: &Value| map["data"] == json!({"by": "first", "count": n.to_string()});
        until(&maps, "one", "anew", anew).await;
    }
    until(&widgets, "one", "contested", contested).await;
    // It reported this once per generation, and retried after status conflicts with the first
    // operator.
    let writes = second.writes("one");
    assert!(
        writes.iter().all(is_status_or_event) && writes.len() <= 4 * 5,
        "{writes:#?}"
    );
    let revisions = records(&namespace, "one").await;
    assert_eq!(revisions.len(), 4, "one for each generation");

    // Both reconcile ten times a second, and both see new custom resources.
    first.faults.forget();
    second.faults.forget();
    for name in ["new1", "new2", "new3"] {
        apply(&widgets, name, &json!({"spec": {"map": name}})).await;
        let decided = |cr: &Value| is_contested(cr, &first.id) || is_contested(cr, &second.id);
        until(&widgets, name, "contested", decided).await;
        assert_eq!(records(&namespace, name).await.len(), 1, "{name}");
    }
    for operator in [&first, &second] {
        let writes = operator.writes("one");
        assert!(writes.is_empty(), "{}: {writes:#?}", operator.id);
    }
    remove(&widgets, "one").await;
    assert!(maps.get_opt("one").await.unwrap().is_none());
    let writes = second.writes("one");
    assert!(writes.iter().all(is_status_or_event), "{writes:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_named_in_adopt_release_takes_over() {
    let plane = or_skip!(control_plane().await);
    // Both operators run with different charts, and a renamed operator replaces the old one.
    for (renamed, maker) in [(false, "second"), (true, "first")] {
        let namespace = namespace_of(plane, "renamed").await;
        let widgets = api(&namespace, "Widget");
        let maps = api(&namespace, "ConfigMap");
        let first = Named::start(plane, &namespace, "Widget", "first").await;
        apply(&widgets, "one", &json!({"spec": {"map": "one"}})).await;
        let by = |name: &'static str| move |map: &Value| map["data"]["by"] == name;
        let before = until(&maps, "one", "there", by("first")).await;
        let ready = |cr: &Value| is_true(cr, "Ready");
        until(&widgets, "one", "Ready", ready).await;
        let first_id = first.id.clone();
        let remaining = (!renamed).then_some(first);
        let second = Named::with_chart_of(plane, &namespace, "Widget", "second", maker).await;
        let contested = |cr: &Value| is_contested(cr, &first_id);
        until(&widgets, "one", "contested", contested).await;

        // Permission to adopt in general is not enough to take a release from an operator.
        let annotate = async |value: &str| {
            let annotation = "helm.sdk.operatorframework.io/adopt-release";
            let patch = json!({"metadata": {"annotations": {annotation: value}}});
            merge(&widgets, "one", &patch).await;
        };
        annotate("true").await;
        apply(&widgets, "probe", &json!({"spec": {"map": "probe"}})).await;
        until(&widgets, "probe", "Ready", ready).await;
        assert!(second.writes("one").iter().all(is_status_or_event));
        annotate(&second.id).await;
        let by_maker = by(maker);
        let operator = "helm.sdk.operatorframework.io/operator";
        let taken = |map: &Value| {
            by_maker(map) && map["metadata"]["labels"][operator] == second.id.as_str()
        };
        let after = until(&maps, "one", "taken over", taken).await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
        let settled = |cr: &Value| {
            if renamed {
                ready(cr) && condition(cr, "Contested").is_none()
            } else {
                is_contested(cr, &second.id)
            }
        };
        until(&widgets, "one", "settled", settled).await;
        // The same chart and values make no new revision.
        let revisions = records(&namespace, "one").await;
        assert_eq!(revisions.len(), if renamed { 1 } else { 2 });
        drop(remaining);
        remove(&widgets, "one").await;
        assert!(maps.get_opt("one").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_named_releases_of_two_operators_are_kept_apart() {
    let (plane, namespace) = or_skip!(new_namespace("namesake").await);
    let _first = Named::start(plane, &namespace, "Widget", "first").await;
    let _second = Named::start(plane, &namespace, "Gadget", "second").await;
    let maps = api(&namespace, "ConfigMap");
    let names = ["one0", "one1", "one2", "one3"];
    for name in names {
        for kind in ["Widget", "Gadget"] {
            let map = format!("{name}-{}", kind.to_lowercase());
            apply(&api(&namespace, kind), name, &json!({"spec": {"map": map}})).await;
        }
    }
    for name in names {
        for kind in ["Widget", "Gadget"] {
            until(&api(&namespace, kind), name, "Ready", holds("Ready")).await;
        }
    }
    let gadgets = api(&namespace, "Gadget");
    for name in names {
        remove(&gadgets, name).await;
        let map = async |kind: &str| maps.get_opt(&format!("{name}-{kind}")).await.unwrap();
        assert!(map("gadget").await.is_none());
        let kept = map("widget").await.unwrap();
        assert_eq!(kept.data["data"]["by"], "first");
    }
}
