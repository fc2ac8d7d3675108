//! Kinds that come, go and change their versions under a release, and objects whose manifest says
//! something else about them than the cluster does.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::world::{
    ANYTHING, MAP, Project, World, api_in, api_of, apply, cluster_api, create_empty, define,
    define_kind, definition_of, delete, gone, is_true, merge, says, undefine,
};

/// A group of custom resources that no other test has.
fn group(prefix: &str) -> String {
    format!("{prefix}{}.example.com", std::process::id())
}

/// A `ClusterRole` and a `Namespace`, whose kinds are cluster-scoped, with a namespace that means nothing.
const WIDE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Namespace }}-wide, namespace: {{ .Values.text }}}
rules: []
---
apiVersion: v1
kind: Namespace
metadata: {name: {{ .Release.Namespace }}-wide, namespace: {{ .Values.text }}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: {{ .Release.Namespace }}-wide}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
{{- if .Values.broken }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: broken}
data: {value: {is: {not: text}}}
{{- end }}
";

#[tokio::test]
async fn an_object_is_not_pruned_because_its_meaningless_namespace_changes() {
    let world = or_skip!(World::of("wide", "", &[("wide.yaml", WIDE)]).await);
    let name = format!("{}-wide", world.namespace.name());
    let roles = cluster_api(&world.namespace, "ClusterRole");
    let namespaces = cluster_api(&world.namespace, "Namespace");
    let claims = api_in(&world.namespace, &name, "PersistentVolumeClaim");
    world.widget("one", json!({"text": "a"})).await;
    world.has_history("one", &["deployed"]).await;
    let uids = async || {
        let live = [
            roles.get(&name).await.unwrap(),
            namespaces.get(&name).await.unwrap(),
            claims.get("data").await.unwrap(),
        ];
        assert!(
            live.iter()
                .all(|live| live.metadata.deletion_timestamp.is_none())
        );
        live.map(|live| live.uid())
    };
    let before = uids().await;
    world.widget("one", json!({"text": "b"})).await;
    world.has_history("one", &["superseded", "deployed"]).await;
    assert_eq!(uids().await, before);
    // An upgrade that fails is rolled back, and what it has applied is pruned.
    world
        .widget("one", json!({"text": "c", "broken": true}))
        .await;
    world
        .has_history("one", &["superseded", "superseded", "failed", "deployed"])
        .await;
    assert_eq!(uids().await, before);
    world.remove("Widget", "one").await;
    gone(&roles, &name).await;
    gone(&namespaces, &name).await;
}

#[tokio::test]
async fn a_definition_in_the_templates_outlives_its_release_with_objects_of_others() {
    let group = group("templated");
    let definition = definition_of(&group, "Thing", "Namespaced", ANYTHING);
    let own = format!(
        "{{{{- if .Values.own }}}}\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: own}}\n{{{{- end }}}}\n"
    );
    let project = Project::new("", &[("crd.yaml", &definition), ("own.yaml", &own)]);
    let world = or_skip!(project.start("templated").await);
    let definitions = cluster_api(&world.namespace, "CustomResourceDefinition");
    let (name, things) = (
        format!("things.{group}"),
        api_of(&world.namespace, &group, "Thing"),
    );
    world.deploy("one", json!({})).await;
    create_empty(&things, &group, "Thing", "theirs").await;
    world.remove("Widget", "one").await;
    let live = definitions.get(&name).await.unwrap();
    assert!(live.metadata.deletion_timestamp.is_none());
    assert!(things.get_opt("theirs").await.unwrap().is_some());
    // Without them it goes with its release, and with the release's own objects of the kind.
    delete(&things, "theirs").await;
    world.deploy("one", json!({"own": true})).await;
    assert!(things.get_opt("own").await.unwrap().is_some());
    world.remove("Widget", "one").await;
    gone(&definitions, &name).await;
}

const NAMESPACE: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: {{ .Release.Namespace }}-made}
";

#[tokio::test]
async fn a_namespace_with_an_object_of_a_younger_kind_outlives_its_release() {
    let project = Project::new("", &[("namespace.yaml", NAMESPACE), ("map.yaml", MAP)]);
    let world = or_skip!(project.start("younger").await);
    world.deploy("one", json!({})).await;
    let (group, made) = (group("younger"), format!("{}-made", world.namespace.name()));
    define_kind(world.plane, &group, "Thing").await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Thing"));
    let things: Api<DynamicObject> =
        Api::namespaced_with(world.namespace.client(), &made, &resource);
    create_empty(&things, &group, "Thing", "theirs").await;
    world.remove("Widget", "one").await;
    let namespaces = cluster_api(&world.namespace, "Namespace");
    let live = namespaces.get(&made).await.unwrap();
    assert!(live.metadata.deletion_timestamp.is_none());
    assert!(things.get_opt("theirs").await.unwrap().is_some());
    let definitions = cluster_api(&world.namespace, "CustomResourceDefinition");
    let name = format!("things.{group}");
    delete(&definitions, &name).await;
    delete(&namespaces, &made).await;
}

#[tokio::test]
async fn a_definition_that_goes_does_not_block_the_deletion_of_a_namespace() {
    let group = group("leaving");
    let world = or_skip!(World::of("leaving", "", &[("namespace.yaml", NAMESPACE)]).await);
    define_kind(world.plane, &group, "Thing").await;
    world.deploy("one", json!({})).await;
    undefine(&world.namespace, &format!("things.{group}")).await;
    world.remove("Widget", "one").await;
    let made = format!("{}-made", world.namespace.name());
    let namespaces = cluster_api(&world.namespace, "Namespace");
    gone(&namespaces, &made).await;
}

#[tokio::test]
async fn a_kind_whose_definition_is_not_accepted_in_time_fails_the_install() {
    let group = group("clash");
    let other = definition_of(&group, "Thing", "Namespaced", ANYTHING);
    // Its singular name is taken.
    let definition = definition_of(&group, "Item", "Namespaced", ANYTHING);
    let clashing = definition.replace("singular: item", "singular: thing");
    assert_ne!(clashing, definition);
    let item = format!("apiVersion: {group}/v1\nkind: Item\nmetadata: {{name: item}}\n");
    let project = Project::new(
        "install: {timeout: 2s}",
        &[("crd.yaml", &clashing), ("item.yaml", &item)],
    );
    let world = or_skip!(project.start("clash").await);
    define(world.plane, &other).await;
    world.widget("one", json!({})).await;
    let missing = format!("Item.{group} to be served");
    let failed = |cr: &Value| is_true(cr, "ReleaseFailed") && says(cr, "ReleaseFailed", &missing);
    world.until("Widget", "one", "failed", failed).await;
    world.remove("Widget", "one").await;
    undefine(&world.namespace, &format!("things.{group}")).await;
}

/// A definition with two versions, of which the first may no longer be served.
fn two_versions(group: &str, serves_first: bool) -> String {
    let version = |name: &str, served: bool, storage: bool| {
        format!(
            "  - {{name: {name}, served: {served}, storage: {storage}, schema: {{openAPIV3Schema: {ANYTHING}}}}}\n"
        )
    };
    let one = definition_of(group, "Thing", "Namespaced", ANYTHING);
    let (head, _) = one.split_once("  versions:\n").unwrap();
    let versions = version("v1alpha1", serves_first, false) + &version("v1", true, true);
    format!("{head}  versions:\n{versions}")
}

#[tokio::test]
async fn an_object_whose_version_is_no_longer_served_is_pruned_and_uninstalled() {
    let group = group("versions");
    let thing = format!(
        "{{{{- if .Values.thing }}}}\napiVersion: {group}/v1alpha1\nkind: Thing\nmetadata: {{name: thing}}\n{{{{- end }}}}\n"
    );
    let project = Project::new("", &[("thing.yaml", &thing), ("map.yaml", MAP)]);
    let world = or_skip!(project.start("versions").await);
    define(world.plane, &two_versions(&group, true)).await;
    let things = api_of(&world.namespace, &group, "Thing");
    world.widget("one", json!({"thing": true})).await;
    world.revision("one", 1).await;
    define(world.plane, &two_versions(&group, false)).await;
    world.widget("one", json!({"thing": false})).await;
    gone(&things, "thing").await;
    world.revision("one", 2).await;

    // The same at the uninstall.
    define(world.plane, &two_versions(&group, true)).await;
    world.widget("one", json!({"thing": true})).await;
    world.revision("one", 3).await;
    assert!(things.get_opt("thing").await.unwrap().is_some());
    define(world.plane, &two_versions(&group, false)).await;
    world.remove("Widget", "one").await;
    gone(&things, "thing").await;
    let definitions = cluster_api(&world.namespace, "CustomResourceDefinition");
    let name = format!("things.{group}");
    delete(&definitions, &name).await;
}

#[tokio::test]
async fn an_object_with_a_generated_name_blocks_nothing_once_its_kind_is_gone() {
    let group = group("generated");
    let generated = format!(
        "{{{{- if .Values.made }}}}\napiVersion: {group}/v1\nkind: Thing\nmetadata: {{generateName: made-}}\n{{{{- end }}}}\n"
    );
    let project = Project::new("", &[("made.yaml", &generated), ("map.yaml", MAP)]);
    let world = or_skip!(project.start("generated").await);
    let name = format!("things.{group}");
    for (custom_resource, upgrades) in [("one", true), ("two", false)] {
        define_kind(world.plane, &group, "Thing").await;
        world.deploy(custom_resource, json!({"made": true})).await;
        undefine(&world.namespace, &name).await;
        if upgrades {
            world.widget(custom_resource, json!({"made": false})).await;
            let map = format!("{custom_resource}-map");
            world.there("ConfigMap", &map).await;
            world
                .has_history(custom_resource, &["superseded", "deployed"])
                .await;
        }
        world.remove("Widget", custom_resource).await;
    }
}

#[tokio::test]
async fn of_an_object_that_is_rendered_twice_the_last_one_is_applied() {
    let map = |value: &str| MAP.replace("{{ .Values.value | default \"none\" | quote }}", value);
    let (first, last) = (map("first"), map("'last {{ .Values.n }}'"));
    let world = or_skip!(World::of("twice", "", &[("a.yaml", &first), ("b.yaml", &last)]).await);
    for n in 1..=2 {
        world.widget("one", json!({"n": n})).await;
        let value = format!("last {n}");
        let map = world.data("one-map", json!({"value": value})).await;
        world.ready("Widget", "one").await;
        let told = world.is("one", "NotAsRendered").await;
        assert_eq!(told["reason"], "RenderedTwice");
        let message = told["message"].as_str().unwrap();
        assert_contains!(message, "a.yaml", "b.yaml");
        let after = world.api("ConfigMap").get("one-map").await.unwrap();
        let version = &map["metadata"]["resourceVersion"];
        assert_eq!(*version, json!(after.resource_version()));
    }
    assert_eq!(world.history("one").await, ["superseded", "deployed"]);
    // Drift is repaired to the last one, too.
    let theirs = json!({"data": {"value": "theirs"}});
    apply(&world.api("ConfigMap"), "one-map", &theirs).await;
    world.data("one-map", json!({"value": "last 2"})).await;
    world.remove("Widget", "one").await;
    world.gone("ConfigMap", "one-map").await;
}

/// Objects to be kept: one with a generated name, the item of a list, and one that only a user
/// annotates; and a hook, before which garbage collection deletes what has an owner.
const KEPT: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  generateName: generated-
  annotations: {helm.sh/resource-policy: keep}
data: {value: generated}
---
apiVersion: v1
kind: List
metadata: {annotations: {helm.sh/resource-policy: keep}}
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: annotated}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: hook, annotations: {helm.sh/hook: pre-delete}}
";

#[tokio::test]
async fn an_object_to_be_kept_outlives_its_release_also_if_that_is_deleted_in_the_foreground() {
    let world = or_skip!(World::of("kept", "", &[("kept.yaml", KEPT)]).await);
    world.deploy("one", json!({})).await;
    let maps = world.api("ConfigMap");
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    merge(&maps, "annotated", &keep).await;
    let released = |map: &Value| map["metadata"]["ownerReferences"].is_null();
    world
        .until("ConfigMap", "annotated", "released", released)
        .await;
    let foreground = DeleteParams::foreground();
    let deleted = world.api("Widget").delete("one", &foreground).await;
    drop(deleted.unwrap());
    gone(&world.api("Widget"), "one").await;
    let all = maps.list(&ListParams::default()).await.unwrap();
    let left = all
        .iter()
        .filter(|map| map.metadata.deletion_timestamp.is_none());
    let mut left: Vec<String> = left
        .map(ResourceExt::name_any)
        .filter(|name| name != "kube-root-ca.crt")
        .collect();
    left.sort();
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!((&*left[0], &*left[2]), ("annotated", "listed"));
    assert!(left[1].starts_with("generated-"), "{left:?}");
}

/// Objects that only a user annotates to be kept, and a hook before which garbage collection comes.
const UNANNOTATED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {generateName: generated-}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: annotated}
data: {value: chart}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: not-annotated}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: hook, annotations: {helm.sh/hook: pre-delete}}
";

#[tokio::test]
async fn what_a_user_annotates_is_kept_also_with_a_generated_name_and_without_repairs() {
    for (prefix, mode) in [
        ("kept-repair", "repair"),
        ("kept-warn", "warn"),
        ("kept-off", "\"off\""),
    ] {
        let options = format!("driftDetection: {{mode: {mode}}}");
        let world = or_skip!(World::of(prefix, &options, &[("kept.yaml", UNANNOTATED)]).await);
        world.deploy("one", json!({})).await;
        let maps = world.api("ConfigMap");
        let generated = async || {
            let all = maps.list(&ListParams::default()).await.unwrap();
            let mut names = all.iter().map(ResourceExt::name_any);
            names.find(|name| name.starts_with("generated-"))
        };
        let generated = generated().await.unwrap();
        let change = json!({"data": {"value": "theirs"},
            "metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
        for name in ["annotated", &generated] {
            merge(&maps, name, &change).await;
            let is_released = |map: &Value| map["metadata"]["ownerReferences"].is_null();
            let what = "released";
            world.until("ConfigMap", name, what, is_released).await;
        }
        // What is not repaired stays as it is, and is reported as before.
        match mode {
            "repair" => drop(world.data("annotated", json!({"value": "chart"})).await),
            "warn" => {
                let message = world.message("one", "Drifted").await;
                assert!(message.ends_with("/annotated"), "{message}");
            }
            _ => {}
        }
        let foreground = DeleteParams::foreground();
        let deleted = world.api("Widget").delete("one", &foreground).await;
        drop(deleted.unwrap());
        gone(&world.api("Widget"), "one").await;
        world.gone("ConfigMap", "not-annotated").await;
        for (name, value) in [
            (
                "annotated",
                if mode == "repair" { "chart" } else { "theirs" },
            ),
            (&*generated, "theirs"),
        ] {
            let map = maps.get(name).await.unwrap();
            assert_eq!(map.metadata.deletion_timestamp, None, "{name}");
            assert_eq!(map.data["data"]["value"], value, "{name}");
        }
    }
}

/// A hook of any name in any namespace.
const HOOK: &str = "\
{{- if .Values.hook }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.hook }}
  namespace: {{ .Values.place | default .Release.Namespace }}
  annotations: {helm.sh/hook: 'pre-install,pre-upgrade'}
{{- end }}
";

#[tokio::test]
async fn an_uninstall_removes_what_hooks_of_all_revisions_have_made() {
    let project = Project::new("", &[("hook.yaml", HOOK), ("map.yaml", MAP)]);
    let world = or_skip!(project.start("all-hooks").await);
    let elsewhere = world.namespace.name().to_owned();
    let outside = api_in(&world.namespace, "default", "ConfigMap");
    for (revision, spec) in [
        json!({"hook": elsewhere, "place": "default"}),
        json!({"hook": "first"}),
        json!({"hook": "second"}),
        json!({"value": "without"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut spec = spec;
        spec["value"] = json!(revision);
        world.widget("one", spec).await;
        world
            .revision("one", u32::try_from(revision).unwrap() + 1)
            .await;
    }
    let maps = world.api("ConfigMap");
    for name in ["first", "second"] {
        assert!(maps.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    assert!(outside.get_opt(&elsewhere).await.unwrap().is_some());
    world.remove("Widget", "one").await;
    gone(&outside, &elsewhere).await;
    for name in ["first", "second"] {
        gone(&maps, name).await;
    }
}

#[tokio::test]
async fn a_chart_without_a_declared_dependency_is_deployed_and_says_so() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    project.write(
        "chart/Chart.yaml",
        "apiVersion: v2\nname: chart\nversion: 1.0.0\ndependencies:\n- {name: absent, version: 1.0.0, repository: ''}\n",
    );
    let world = or_skip!(project.start("absent").await);
    world.widget("one", json!({"value": "there"})).await;
    world.data("one-map", json!({"value": "there"})).await;
    world.ready("Widget", "one").await;
    let told = world.is("one", "NotAsRendered").await;
    assert_eq!(told["reason"], "DependencyMissing");
    assert!(told["message"].as_str().unwrap().contains("absent"));
}
