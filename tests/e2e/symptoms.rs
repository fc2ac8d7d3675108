//! Problems that users report of the Go operators and that this one must not have. Tests of further
//! such problems are in the modules of their subjects.

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::world::{
    InProcessOperator, LIMIT, MAP, Project, World, api, api_of, apply, cluster_api, condition,
    create_empty, define, definition_of, delete, deploy, events, eventually, gone, has_condition,
    is_ready, is_true, merge, new_namespace, remove, says, until,
};

#[tokio::test]
async fn templates_see_looked_up_objects_and_follow_them_on_request() {
    let copy = "{{- $source := lookup \"v1\" \"ConfigMap\" .Release.Namespace \"source\" }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ $source.data.key }}}
";
    for (options, later) in [("", "first"), ("dryRunOption: server", "second")] {
        let world = or_skip!(World::of("lookup", options, &[("map.yaml", copy)]).await);
        let maps = world.api("ConfigMap");
        apply(&maps, "source", &json!({"data": {"key": "first"}})).await;
        world.widget("one", json!({})).await;
        world.data("one-map", json!({"value": "first"})).await;
        world.ready("Widget", "one").await;
        apply(&maps, "source", &json!({"data": {"key": "second"}})).await;
        // By the time another release is ready, all effects of the change to the source are
        // visible.
        if later == "first" {
            world.widget("two", json!({})).await;
            world.data("two-map", json!({"value": "second"})).await;
        }
        world.data("one-map", json!({"value": later})).await;
    }
}

#[tokio::test]
async fn looked_up_list_is_followed_and_only_a_changed_manifest_makes_a_revision() {
    let names = "{{- $names := list }}
{{- range (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"\").items }}
{{- if hasPrefix \"source\" .metadata.name }}{{ $names = append $names .metadata.name }}{{ end }}
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {names: {{ join \" \" $names | quote }}}
";
    let project = Project::new("dryRunOption: server", &[("map.yaml", names)]);
    let mut world = or_skip!(project.start("lists").await);
    let maps = world.api("ConfigMap");
    let source = json!({"data": {}});
    apply(&maps, "source-a", &source).await;
    for name in ["one", "two"] {
        world.widget(name, json!({"number": 1.5})).await;
        world
            .data(&format!("{name}-map"), json!({"names": "source-a"}))
            .await;
    }
    apply(&maps, "source-b", &source).await;
    for map in ["one-map", "two-map"] {
        let both = json!({"names": "source-a source-b"});
        world.data(map, both).await;
    }
    drop(maps.delete("source-a", &DeleteParams::default()).await);
    for map in ["one-map", "two-map"] {
        world.data(map, json!({"names": "source-b"})).await;
    }
    // A change without effect on the manifest causes no write, now or after a restart.
    apply(&maps, "other", &source).await;
    world.operator.restart().await.unwrap();
    apply(&maps, "source-c", &source).await;
    for name in ["one", "two"] {
        world
            .data(
                &format!("{name}-map"),
                json!({"names": "source-b source-c"}),
            )
            .await;
        world.ready("Widget", name).await;
        assert_eq!(world.history(name).await.len(), 4, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_objects_of_releases_are_listed_and_watched() {
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}-web}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: i}]}}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}-secret}\n";
    let project = Project::new("", &[("map.yaml", MAP), ("web.yaml", web)]);
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("foreign", &faults).await);
    let widgets = api(&namespace, "Widget");
    deploy(&widgets, "one", json!({})).await;
    let mut kinds = Vec::new();
    for request in faults.requests() {
        let many = request.verb == "watch" || request.verb == "list";
        if !many || request.resource == "widgets" {
            continue;
        }
        let selector = request.query.get("labelSelector").cloned();
        let selector = selector.unwrap_or_default();
        assert!(
            selector == "owner in (helm,hybrid-operator)"
                || selector.contains("helm.sdk.operatorframework.io/operator="),
            "{request:?}"
        );
        kinds.push(request.resource);
    }
    for kind in ["configmaps", "secrets", "deployments"] {
        let is_watched = kinds.iter().any(|seen| seen == kind);
        assert!(is_watched, "{kind} is not watched: {kinds:?}");
    }
}

#[tokio::test]
async fn deployed_does_not_mean_ready() {
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}-web}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {nodeSelector: {{ .Values.node | toJson }}, containers: [{name: main, image: i}]}}}\n";
    let world = or_skip!(World::of("unready", "", &[("web.yaml", web)]).await);
    world
        .widget("one", json!({"node": {"no-node": "has-this"}}))
        .await;
    let waiting = |cr: &Value| {
        is_true(cr, "Deployed")
            && has_condition(cr, "Ready", "False", "one-web")
            && condition(cr, "Ready").is_some_and(|c| c["reason"] == "ObjectsNotReady")
    };
    world
        .until("Widget", "one", "deployed and not ready", waiting)
        .await;
    world.deploy("one", json!({"node": {}})).await;
}

/// A schema whose status has conditions only.
const SLIM: &str = "{type: object, properties: {
  spec: {type: object, x-kubernetes-preserve-unknown-fields: true},
  status: {type: object, properties: {
    conditions: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}},
    observedGeneration: {type: integer}}}}}";

#[tokio::test]
async fn status_dropped_by_the_schema_is_reported_once_and_not_rewritten() {
    let (plane, namespace) = or_skip!(new_namespace("pruned").await);
    // A separate kind, so that other tests are not affected.
    let group = format!("{}.example.com", namespace.name());
    define(plane, &definition_of(&group, "Slim", "Namespaced", SLIM)).await;
    let project = Project::new("", &[("map.yaml", MAP)]);
    project.watch(&group, "Slim", "reconcilePeriod: 100ms");
    let faults = Faults::new();
    let client = plane.client_with(&faults).await.unwrap();
    let _operator = InProcessOperator::start(&project, client, namespace.name());
    let slims = api_of(&namespace, &group, "Slim");
    create_empty(&slims, &group, "Slim", "one").await;
    until(&slims, "one", "Ready", is_ready).await;
    let reported = async || {
        let of_one = events(&namespace).await.into_iter().filter(|e| {
            e.data["reason"] == "StatusPruned"
                && (e.data["regarding"]["name"] == "one"
                    || e.data["involvedObject"]["name"] == "one")
        });
        let note = |e: kube::api::DynamicObject| match &e.data["note"] {
            Value::Null => e.data["message"].to_string(),
            note => note.to_string(),
        };
        of_one.map(note).collect::<Vec<_>>()
    };
    // The last fields are written together with readiness. The condition is written afterwards.
    let told = |cr: &Value| {
        let fields = ["status.deployedRelease", "status.release"];
        fields.iter().all(|field| says(cr, "StatusPruned", field))
    };
    until(&slims, "one", "the condition", told).await;
    let all_reported = async || {
        let notes = reported().await.concat();
        notes.contains("status.deployedRelease") && notes.contains("status.release")
    };
    eventually("an event", all_reported).await;
    let before = reported().await;
    let about_one =
        |r: &&Recorded| r.resource == "slims/status" && r.name.as_deref() == Some("one");
    let written = faults.requests().iter().filter(about_one).count();
    // Meanwhile two more custom resources come and go, over many periods of the first one.
    for name in ["two", "three"] {
        create_empty(&slims, &group, "Slim", name).await;
        until(&slims, name, "Ready", is_ready).await;
    }
    assert_eq!(faults.requests().iter().filter(about_one).count(), written);
    assert_eq!(reported().await, before);
    for slim in slims.list(&ListParams::default()).await.unwrap().items {
        let name = slim.metadata.name.unwrap();
        remove(&slims, &name).await;
    }
    let definitions = cluster_api(&namespace, "CustomResourceDefinition");
    let name = format!("slims.{group}");
    delete(&definitions, &name).await;
}

#[tokio::test]
async fn cluster_scoped_objects_are_repaired_and_removed() {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: {{ .Release.Namespace }}-{{ .Release.Name }}}\nrules: []\n";
    let world = or_skip!(World::of("clusterwide", "", &[("role.yaml", role)]).await);
    world.deploy("one", json!({})).await;
    let roles = cluster_api(&world.namespace, "ClusterRole");
    let name = format!("{}-one", world.namespace.name());
    let uid = roles.get(&name).await.unwrap().metadata.uid;
    delete(&roles, &name).await;
    let anew = |role: &Value| role["metadata"]["uid"] != json!(uid);
    until(&roles, &name, "made anew", anew).await;
    let granted = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    merge(&roles, &name, &granted).await;
    let empty = |role: &Value| role["rules"].as_array().is_none_or(Vec::is_empty);
    until(&roles, &name, "as it was", empty).await;
    world.remove("Widget", "one").await;
    assert!(roles.get_opt(&name).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_resources_cause_no_requests_and_kinds_are_discovered_once() {
    let project = Project::new("reconcilePeriod: 100ms", &[("map.yaml", MAP)]);
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("after", &faults).await);
    let widgets = api(&namespace, "Widget");
    let install = async |name: &str| {
        deploy(&widgets, name, json!({})).await;
    };
    install("first").await;
    let discovery = |r: &&Recorded| {
        r.verb == "get"
            && (r.path == "/version"
                || r.path == "/api"
                || r.path.starts_with("/apis") && r.name.is_none())
    };
    let discovered = faults.requests().iter().filter(discovery).count();
    remove(&widgets, "first").await;
    faults.forget();
    for name in ["second", "third", "fourth"] {
        install(name).await;
    }
    let requests = faults.requests();
    let about_first = |r: &&Recorded| r.name.as_deref().is_some_and(|name| name.contains("first"));
    // The last event may be sent after the custom resource is gone.
    let asked: Vec<_> = requests.iter().filter(about_first).collect();
    assert!(asked.is_empty(), "{asked:#?}");
    assert!(discovered > 0);
    let again = requests.iter().filter(discovery).count();
    assert_eq!(again, 0, "{requests:#?}");
}

#[tokio::test]
async fn render_failure_starts_no_revision_and_does_not_block_uninstall() {
    let strict = "{{- if .Values.broken }}{{ fail \"no\" }}{{ end }}\n".to_owned() + MAP;
    let world = or_skip!(World::of("broken", "", &[("map.yaml", strict.as_str())]).await);
    world.deploy("one", json!({"value": "v"})).await;
    world.widget("one", json!({"broken": true})).await;
    world.is("one", "ReleaseFailed").await;
    // A render failure begins no revision and no rollback.
    assert_eq!(world.history("one").await, ["deployed"]);
    world.data("one-map", json!({"value": "v"})).await;
    world.remove("Widget", "one").await;
    world.gone("ConfigMap", "one-map").await;
    assert!(world.history("one").await.is_empty());
}

#[tokio::test]
async fn exceeded_quota_is_reported_and_release_continues_once_raised() {
    let world = or_skip!(World::of("quota", "", &[("map.yaml", MAP)]).await);
    world.limit_maps(0).await;
    world.widget("one", json!({"value": "v"})).await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "exceeded quota: few", "one-map");
    // Whether the `ConfigMap` with the cluster's certificates is counted is unknown.
    world.limit_maps(5).await;
    // The retry needs no user action.
    world.ready("Widget", "one").await;
    world.data("one-map", json!({"value": "v"})).await;
    assert_eq!(world.history("one").await, ["deployed"]);
}

#[tokio::test]
async fn terminating_namespace_is_not_held_up_by_hooks_that_cannot_be_created() {
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-bye\n  annotations: {helm.sh/hook: \"pre-delete,post-delete\"}\n";
    let project = Project::new("", &[("map.yaml", MAP), ("hook.yaml", hook)]);
    let world = or_skip!(project.start("ending-hooks").await);
    world.deploy("one", json!({})).await;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.namespace.client());
    let name = world.namespace.name();
    delete(&namespaces, name).await;
    hybrid_operator_test::wait::gone(&namespaces, name, LIMIT * 4)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", world.operator.log()));
}

#[tokio::test]
async fn terminating_namespace_removes_its_releases() {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: {{ .Release.Namespace }}-{{ .Release.Name }}}\nrules: []\n";
    let world = or_skip!(World::of("ending", "", &[("map.yaml", MAP), ("role.yaml", role)]).await);
    world.deploy("one", json!({})).await;
    let roles = cluster_api(&world.namespace, "ClusterRole");
    let role = format!("{}-one", world.namespace.name());
    assert!(roles.get_opt(&role).await.unwrap().is_some());
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.namespace.client());
    delete(&namespaces, world.namespace.name()).await;
    // The control plane removes the namespaces of all other tests meanwhile.
    hybrid_operator_test::wait::gone(&namespaces, world.namespace.name(), LIMIT * 4)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", world.operator.log()));
    gone(&roles, &role).await;
}
