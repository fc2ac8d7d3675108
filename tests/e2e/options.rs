//! Observable effects of the options of `watches.yaml`.

use serde_json::json;

use crate::accounts::allow_maps;
use crate::world::{
    LIMIT, MAP, Project, World, apply, cluster_api, condition, define, definition_of, delete,
    entry, merge, new_namespace, set_ready, until,
};

#[tokio::test]
async fn values_follow_a_secret_and_its_deletion_changes_nothing() {
    let options = "valuesFrom: [{kind: Secret, name: '{{ .Object.metadata.name }}-values', key: value, targetPath: value}]";
    let world = or_skip!(World::of("from", options, &[("map.yaml", MAP)]).await);
    world.widget("one", json!({})).await;
    let missing = world.is("one", "Irreconcilable").await;
    assert_eq!(missing["reason"], "ErrorGettingValues");
    assert!(
        missing["message"].as_str().unwrap().contains("one-values"),
        "{missing}"
    );

    let secret = |value: &str| json!({"stringData": {"value": value}});
    apply(&world.api("Secret"), "one-values", &secret("first")).await;
    world.data("one-map", json!({"value": "first"})).await;
    apply(&world.api("Secret"), "one-values", &secret("second")).await;
    world.data("one-map", json!({"value": "second"})).await;

    let secrets = world.api("Secret");
    delete(&secrets, "one-values").await;
    world.is("one", "Irreconcilable").await;
    world.data("one-map", json!({"value": "second"})).await;
    assert_eq!(world.history("one").await, ["superseded", "deployed"]);
}

#[tokio::test]
async fn deleted_optional_reference_keeps_its_last_value() {
    let options =
        "valuesFrom: [{kind: Secret, name: source, key: value, targetPath: value, optional: true}]";
    let map = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | default \"none\" }}, other: {{ .Values.other }}}
";
    let mut world = or_skip!(World::of("optional", options, &[("map.yaml", map)]).await);
    let secrets = world.api("Secret");
    let secret = |value: &str| json!({"stringData": {"value": value}});
    let expect = |value: &str, other: &str| json!({"value": value, "other": other});
    world.widget("one", json!({"other": "a"})).await;
    world.data("one-map", expect("none", "a")).await;
    apply(&secrets, "source", &secret("first")).await;
    world.data("one-map", expect("first", "a")).await;

    delete(&secrets, "source").await;
    world.widget("one", json!({"other": "b"})).await;
    world.data("one-map", expect("first", "b")).await;
    // After the restart only the release's record holds it.
    world.operator.restart().await.unwrap();
    world.widget("one", json!({"other": "c"})).await;
    world.data("one-map", expect("first", "c")).await;

    apply(&secrets, "source", &secret("second")).await;
    world.data("one-map", expect("second", "c")).await;
    world.ready("Widget", "one").await;
    assert_eq!(world.history("one").await.len(), 5);
}

#[tokio::test]
async fn patches_change_rendered_objects_and_are_recorded() {
    let options = "patches: [{target: {kind: ConfigMap}, patch: '[{\"op\": \"add\", \"path\": \"/data/more\", \"value\": \"x\"}]'}, {target: {kind: ConfigMap}, patch: '{\"metadata\": {\"labels\": {\"team\": \"a\"}}}'}]";
    let world = or_skip!(World::of("patch", options, &[("map.yaml", MAP)]).await);
    world.widget("one", json!({"value": "v"})).await;
    let map = world
        .data("one-map", json!({"value": "v", "more": "x"}))
        .await;
    assert_eq!(map["metadata"]["labels"]["team"], "a");
    let cr = world.ready("Widget", "one").await;
    let manifest = cr.data["status"]["deployedRelease"]["manifest"].to_string();
    assert_contains!(manifest, "more: x");
}

#[tokio::test]
async fn custom_resource_waits_for_its_dependencies() {
    let options = "dependsOn: [{apiVersion: test.example.com/v1, kind: Gadget, name: base}]";
    let world = or_skip!(World::of("depends", options, &[("map.yaml", MAP)]).await);
    world.widget("one", json!({})).await;
    world
        .until("Widget", "one", "waiting", |cr| {
            condition(cr, "Ready").is_some_and(|c| {
                c["message"] == "waiting for Gadget base" && c["reason"] == "Progressing"
            })
        })
        .await;
    assert!(world.history("one").await.is_empty());
    apply(&world.api("Gadget"), "base", &json!({"spec": {}})).await;
    set_ready(&world.api("Gadget"), "base", "True").await;
    world.data("one-map", json!({"value": "none"})).await;
    // The dependency is ready already.
    world.deploy("two", json!({})).await;
}

#[tokio::test]
async fn release_name_comes_from_its_template_and_does_not_change() {
    let options = "releaseName: 'app-{{ .Spec.suffix }}'";
    let world = or_skip!(World::of("name", options, &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({"suffix": "x"})).await;
    assert_eq!(world.history("app-x").await, ["deployed"]);
    world.widget("one", json!({"suffix": "y"})).await;
    assert_contains!(world.message("one", "Irreconcilable").await, "app-x");
    assert!(world.history("app-y").await.is_empty());
    world.remove("Widget", "one").await;
    world.gone("ConfigMap", "app-x-map").await;
}

#[tokio::test]
async fn custom_resources_of_two_kinds_with_one_name_have_separate_releases() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let both = ["Widget", "Gadget"].map(|kind| entry("test.example.com", kind, ""));
    project.write("watches.yaml", &both.concat());
    let world = or_skip!(project.start("twins").await);
    world.deploy("one", json!({"value": "widget"})).await;
    let object = json!({"spec": {"value": "gadget"}});
    apply(&world.api("Gadget"), "one", &object).await;
    world.ready("Gadget", "one").await;
    world.data("one-map", json!({"value": "widget"})).await;
    world
        .data("one-gadget-map", json!({"value": "gadget"}))
        .await;
    let gadgets = world.api("Gadget");
    delete(&gadgets, "one").await;
    world.gone("ConfigMap", "one-gadget-map").await;
    world.data("one-map", json!({"value": "widget"})).await;
}

#[tokio::test]
async fn crds_are_applied_before_their_objects_and_upgraded() {
    let object = "apiVersion: {{ .Release.Namespace }}.example.com/v1\nkind: Thing\nmetadata: {name: {{ .Release.Name }}}\n";
    let project = Project::new("crds: createReplace", &[("thing.yaml", object)]);
    let (plane, namespace) = or_skip!(new_namespace("crds").await);
    let group = format!("{}.example.com", namespace.name());
    let definition = definition_of(&group, "Thing", "Namespaced", "{type: object}");
    project.write("chart/crds/things.yaml", &definition);
    let operator = project.operator(plane, namespace.name());
    let mut world = World::run(plane, operator, namespace).await;
    world.deploy("one", json!({})).await;

    let newer = definition.replace(
        "openAPIV3Schema: {type: object}",
        "openAPIV3Schema: {type: object, description: newer}",
    );
    assert_ne!(newer, definition);
    project.write("chart/crds/things.yaml", &newer);
    world.operator.stop(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    let definitions = cluster_api(&world.namespace, "CustomResourceDefinition");
    let name = format!("things.{group}");
    world.widget("one", json!({"news": true})).await;
    let described = |definition: &serde_json::Value| {
        definition.pointer("/spec/versions/0/schema/openAPIV3Schema/description")
            == Some(&json!("newer"))
    };
    until(&definitions, &name, "upgraded", described).await;
    world.ready("Widget", "one").await;
    world.remove("Widget", "one").await;
    assert!(
        definitions.get_opt(&name).await.unwrap().is_some(),
        "a definition outlives the release"
    );
    delete(&definitions, &name).await;
}

/// Two definitions of one kind: one exists, and the chart has another one with the same names,
/// which the API server does not serve while the first one exists.
#[tokio::test]
async fn unserved_crd_is_reported_and_watched() {
    let (plane, namespace) = or_skip!(new_namespace("taken").await);
    let group = format!("{}.example.com", namespace.name());
    let definition = definition_of(&group, "Thing", "Namespaced", "{type: object}");
    let first = definition.replace("things", "otherthings");
    assert_ne!(first, definition);
    define(plane, &first).await;
    // With one worker, a waiting custom resource must not block another one.
    let project = Project::new(
        "crds: create, maxConcurrentReconciles: 1, install: {timeout: 2s}",
        &[("map.yaml", MAP)],
    );
    project.write("chart/crds/things.yaml", &definition);
    let operator = project.operator(plane, namespace.name());
    let mut world = World::run(plane, operator, namespace).await;
    world.widget("one", json!({"value": "v"})).await;
    let reports_crd_in_use = |reason: &'static str| {
        let name = format!("things.{group}");
        move |cr: &serde_json::Value| {
            condition(cr, "Ready").is_some_and(|c| {
                let message = c["message"].as_str().unwrap_or_default();
                c["reason"] == reason && message.contains(&name) && message.contains("in use")
            })
        }
    };
    world
        .until(
            "Widget",
            "one",
            "waiting",
            reports_crd_in_use("Progressing"),
        )
        .await;
    world
        .until(
            "Widget",
            "one",
            "given up",
            reports_crd_in_use("ReconcileError"),
        )
        .await;
    world.widget("two", json!({"value": "v"})).await;
    world
        .until(
            "Widget",
            "two",
            "waiting",
            reports_crd_in_use("Progressing"),
        )
        .await;
    // No record is written before the kind is served, and a crash in between changes nothing.
    assert!(world.history("one").await.is_empty());
    world.operator.restart().await.unwrap();
    let definitions = cluster_api(&world.namespace, "CustomResourceDefinition");
    let delete = async |plural: &str| {
        let name = format!("{plural}.{group}");
        delete(&definitions, &name).await;
    };
    delete("otherthings").await;
    for name in ["one", "two"] {
        world.ready("Widget", name).await;
        assert_eq!(world.history(name).await, ["deployed"]);
    }
    delete("things").await;
}

#[tokio::test]
async fn drift_of_ignored_fields_is_left_and_can_be_reported_instead_of_repaired() {
    let options = "driftDetection: {mode: repair, ignore: [{target: {kind: ConfigMap}, paths: [/data/value]}]}";
    let project = Project::new(options, &[("map.yaml", MAP)]);
    let world = or_skip!(project.start("ignore").await);
    world.deploy("one", json!({"value": "ours"})).await;
    let maps = world.api("ConfigMap");
    merge(&maps, "one-map", &json!({"data": {"value": "theirs"}})).await;
    // An upgrade with other changes leaves it alone as well.
    world.annotate("one", "force-at", json!("now")).await;
    world.revision("one", 2).await;
    world.data("one-map", json!({"value": "theirs"})).await;

    let project = Project::new("driftDetection: {mode: warn}", &[("map.yaml", MAP)]);
    let world = project.start("warn").await.unwrap();
    world.deploy("one", json!({"value": "ours"})).await;
    let maps = world.api("ConfigMap");
    merge(&maps, "one-map", &json!({"data": {"value": "theirs"}})).await;
    assert_contains!(world.message("one", "Drifted").await, "one-map");
    world.data("one-map", json!({"value": "theirs"})).await;
}

#[tokio::test]
async fn empty_render_removes_nothing_unless_allowed() {
    let template = format!("{{{{ if .Values.on }}}}\n{MAP}{{{{ end }}}}\n");
    let world = or_skip!(World::of("empty", "", &[("map.yaml", template.as_str())]).await);
    world.deploy("one", json!({"on": true, "value": "v"})).await;
    world
        .widget("one", json!({"on": false, "value": "v"}))
        .await;
    assert_contains!(world.message("one", "Irreconcilable").await, "allowEmpty");
    world.data("one-map", json!({"value": "v"})).await;
}

#[tokio::test]
async fn service_account_limits_what_a_release_may_do() {
    let options = "serviceAccountName: 'deployer'";
    let world = or_skip!(World::of("account", options, &[("map.yaml", MAP)]).await);
    world.widget("one", json!({"value": "v"})).await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "patch", "configmaps", "one-map");
    allow_maps(&world, "deployer").await;
    world.data("one-map", json!({"value": "v"})).await;
    world.ready("Widget", "one").await;
}

#[tokio::test]
async fn text_of_a_custom_resource_in_override_values_reaches_the_object_as_it_is() {
    let options = "overrideValues: {fixed: theirs, note: '{{ .Spec.note }}', list: '{a,{{ .Spec.note }}}', both: 'x\\,{{ .Spec.note }}'}";
    let map = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data:
  fixed: {{ .Values.fixed | quote }}
  note: {{ .Values.note | toJson }}
  list: {{ .Values.list | toJson | quote }}
  both: {{ .Values.both | toJson }}
  paths: {{ omit .Values \"note\" \"list\" \"both\" \"global\" | keys | sortAlpha | toJson | quote }}
";
    let world = or_skip!(World::of("hostile-text", options, &[("map.yaml", map)]).await);
    for (at, note) in [
        "a,b",
        "x,fixed=ours",
        "x,evil.path=1",
        "a=b",
        "{a,b}",
        "{",
        "}",
        "back\\slash\\,\\",
        "null",
        "{{ .Spec }}",
        "$HOME ${HOME}",
        "line\nfixed: ours\n- item",
        "say \"x\" and `y` and 'z'",
        " spaces ",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("text-{at}");
        world.widget(&name, json!({"note": note})).await;
        let both = format!("x,{note}");
        let list = json!(["a", note]).to_string();
        world
            .data(
                &format!("{name}-map"),
                json!({"fixed": "theirs", "note": note, "list": list, "both": both, "paths": "[\"fixed\"]"}),
            )
            .await;
        world.ready("Widget", &name).await;
    }
}
