//! Tests discovery against a scripted API server.

use futures::FutureExt;
use hybrid_operator_test::scripted::{Script, failure};
use serde_json::{Value, json};

use super::*;

fn gvk(group: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", kind)
}

fn aggregated(groups: &Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "items": groups})
}

fn core() -> Value {
    aggregated(
        &json!([{"metadata": {}, "versions": [{"version": "v1", "resources": [
        {"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced",
         "verbs": ["list", "watch"], "subresources": [
            {"subresource": "eviction", "responseKind": {"group": "policy", "kind": "Eviction"}},
            {"subresource": "status", "responseKind": {"kind": "Pod"}}]},
        {"resource": "nodes", "responseKind": {"kind": "Node"}, "scope": "Cluster"}]}]}]),
    )
}

fn groups(freshness: &str, resources: &Value) -> Value {
    aggregated(&json!([{"metadata": {"name": "x.io"}, "versions": [
        {"version": "v1", "freshness": freshness, "resources": resources}]}]))
}

fn things() -> Value {
    json!([{"resource": "things", "responseKind": {"kind": "Thing"}, "scope": "Namespaced",
            "verbs": ["patch", "delete", "list"],
            "subresources": [{"subresource": "scale", "responseKind": {"kind": "Scale"}}]}])
}

/// Only a group without kinds.
fn other_group() -> Value {
    aggregated(&json!([{"metadata": {"name": "y.io"}, "versions": [{"version": "v1"}]}]))
}

/// The answers without aggregated discovery.
fn legacy(script: Script) -> Script {
    let core = json!({"kind": "APIVersions", "versions": ["v1"]});
    let groups = json!({"kind": "APIGroupList", "groups": [
        {"name": "x.io", "versions": [{"version": "v1"}]}]});
    script
        .on("GET /api", 200, core)
        .on("GET /apis", 200, groups)
}

fn not_found() -> Value {
    failure(404, "NotFound", "", &json!({}))
}

fn unavailable() -> Value {
    failure(503, "ServiceUnavailable", "", &json!({}))
}

fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
}

fn resource_list(resources: &Value) -> Value {
    json!({"kind": "APIResourceList", "resources": resources})
}

fn discovery(script: &Script) -> Discovery {
    Discovery::new(script.client())
}

fn first(script: Script, x: Value) -> Script {
    script.on("GET /api", 200, core()).on("GET /apis", 200, x)
}

#[tokio::test]
async fn two_requests_discover_all_kinds() {
    let script = first(Script::default(), groups("Current", &things()));
    let discovery = discovery(&script);
    let pod = discovery.resolve(&gvk("", "Pod")).await.unwrap();
    let (plural, scope) = (&*pod.resource.plural, pod.scope);
    assert_eq!((plural, scope), ("pods", Scope::Namespaced));
    assert!(pod.has_status && !pod.scalable && pod.verbs.watch && !pod.verbs.patch);
    let node = discovery.resolve(&gvk("", "Node")).await.unwrap();
    assert_eq!(node.scope, Scope::Cluster);
    let thing = discovery.resolve(&gvk("x.io", "Thing")).await.unwrap();
    assert!(thing.scalable && thing.verbs.patch && !thing.verbs.watch);
    assert_eq!(thing.resource.api_version, "x.io/v1");
    script.finish();
}

#[tokio::test]
async fn concurrent_lookups_share_requests() {
    let script = first(Script::default(), groups("Current", &things()));
    let discovery = discovery(&script);
    let (pod, thing) = (gvk("", "Pod"), gvk("x.io", "Thing"));
    let (a, b, c) = futures::join!(
        discovery.resolve(&pod),
        discovery.resolve(&thing),
        discovery.resolve(&pod)
    );
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn requests_for_an_unknown_kind_are_limited() {
    let script = first(Script::default(), groups("Current", &json!([])));
    script.expect("GET /apis/new.io/v1", 404, not_found());
    let discovery = discovery(&script);
    let thing = gvk("new.io", "Thing");
    for _ in 0..3 {
        let error = discovery.resolve(&thing).await.unwrap_err();
        let message = "the cluster does not serve Thing in new.io/v1";
        assert_eq!(error.to_string(), message);
        assert!(!error.is_transient());
    }
    script.finish();
    tokio::time::advance(MIN_INTERVAL).await;
    let resources = json!([{"name": "things", "kind": "Thing", "namespaced": true},
                           {"name": "things/status", "kind": "Thing"}]);
    let script = script.on("GET /apis/new.io/v1", 200, resource_list(&resources));
    let thing = discovery.resolve(&thing).await.unwrap();
    assert!(thing.has_status && thing.scope == Scope::Namespaced);
    script.finish();
}

#[tokio::test]
async fn a_changed_group_is_fetched_again() {
    let script = first(Script::default(), groups("Current", &things()));
    let discovery = discovery(&script);
    discovery.resolve(&gvk("x.io", "Thing")).await.unwrap();
    script.finish();
    discovery.group_changed("x.io");
    let other = json!([{"resource": "others", "responseKind": {"kind": "Other"}}]);
    let script = first(script, groups("Current", &other));
    assert!(discovery.resolve(&gvk("x.io", "Other")).await.is_ok());
    assert!(discovery.resolve(&gvk("x.io", "Thing")).await.is_err());
    script.finish();
}

#[tokio::test]
async fn groups_are_fetched_individually_without_aggregated_discovery() {
    let pods = resource_list(&json!([{"name": "pods", "kind": "Pod", "namespaced": true,
        "verbs": ["list"]}, {"name": "pods/eviction", "kind": "Eviction"}]));
    let script = legacy(Script::default()).on("GET /api/v1", 200, pods.clone());
    let discovery = discovery(&script);
    assert!(discovery.resolve(&gvk("", "Pod")).await.is_ok());
    script.finish();

    let script = script.in_any_order().on("GET /version", 200, version());
    let others = resource_list(&json!([{"name": "ys", "kind": "Y"}]));
    let script =
        legacy(legacy(script))
            .on("GET /api/v1", 200, pods)
            .on("GET /apis/x.io/v1", 200, others);
    let age = Duration::from_mins(1);
    let served = discovery.served(age).await.unwrap();
    let versions: Vec<&str> = served.api_versions.iter().map(String::as_str).collect();
    let expected = ["v1", "v1/Eviction", "v1/Pod", "x.io/v1", "x.io/v1/Y"];
    assert_eq!(versions, expected);
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn capabilities_are_those_of_helm_and_cached() {
    let script = first(
        Script::default().on("GET /version", 200, version()),
        groups("Current", &things()),
    );
    let discovery = discovery(&script);
    let age = Duration::from_mins(1);
    let served = discovery.served(age).await.unwrap();
    assert_eq!(served.version.git_version, "v1.36.3");
    let versions: Vec<&str> = served.api_versions.iter().map(String::as_str).collect();
    let expected = "v1 v1/Eviction v1/Node v1/Pod x.io/v1 x.io/v1/Scale x.io/v1/Thing";
    assert_eq!(versions.join(" "), expected);
    discovery.served(age).await.unwrap();
    script.finish();

    // After a later failure, the cached ones stay in use.
    tokio::time::advance(age).await;
    let script = script
        .on("GET /version", 503, unavailable())
        .on("GET /api", 503, unavailable())
        .on("GET /apis", 503, unavailable());
    let served = discovery.served(age).await.unwrap();
    assert!(served.api_versions.contains("x.io/v1/Thing"));
    script.finish();
}

#[tokio::test]
async fn capabilities_fail_without_a_response() {
    let script = Script::default()
        .on("GET /version", 200, version())
        .on("GET /api", 200, core())
        .on("GET /apis", 503, unavailable());
    let failed = discovery(&script).served(Duration::ZERO).await;
    assert!(failed.unwrap_err().is_transient());
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_server_is_down_keeps_its_kinds() {
    let script = first(
        Script::default().on("GET /version", 200, version()),
        groups("Current", &things()),
    );
    let discovery = discovery(&script);
    let age = Duration::from_mins(1);
    discovery.served(age).await.unwrap();
    tokio::time::advance(age).await;
    let script = first(
        script.on("GET /version", 200, version()),
        groups("Stale", &json!([])),
    );
    let served = discovery.served(age).await.unwrap();
    assert!(served.api_versions.contains("x.io/v1/Thing"));
    assert!(discovery.resolve(&gvk("x.io", "Thing")).await.is_ok());
    script.finish();
}

#[tokio::test]
async fn a_kind_of_a_group_that_is_down_is_not_unknown() {
    let script = first(Script::default(), groups("Stale", &json!([])));
    script.expect("GET /apis/x.io/v1", 503, unavailable());
    let found = discovery(&script).resolve(&gvk("x.io", "Thing")).await;
    let error = found.unwrap_err();
    let (reason, transient) = (error.reason(), error.is_transient());
    assert_eq!((reason, transient), ("GroupUnavailable", true));
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn only_added_and_removed_kinds_are_changes() {
    let other = json!([{"resource": "others", "responseKind": {"kind": "Other"}}]);
    let mut larger = things();
    larger.as_array_mut().unwrap().push(other[0].clone());
    let script = first(Script::default(), groups("Current", &things()));
    let discovery = discovery(&script);
    let mut changes = discovery.changes();
    discovery.refresh().await.unwrap();
    let mut script = script;
    let mut epoch = 0;
    let (unchanged, down) = (groups("Current", &things()), groups("Stale", &json!([])));
    for (what, answer, changed) in [
        ("an unchanged response is no change", unchanged, false),
        ("a kind is added", groups("Current", &larger), true),
        ("the server of the group is down", down, false),
        ("a kind is removed", groups("Current", &things()), true),
        ("a kind is replaced", groups("Current", &other), true),
        ("the group is removed", other_group(), true),
    ] {
        script = first(script, answer);
        discovery.refresh().await.unwrap();
        epoch += u64::from(changed);
        assert_eq!(discovery.epoch(), epoch, "{what}");
        let told = changes.changed().now_or_never().is_some();
        assert_eq!(told, changed, "{what}");
    }
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn a_kind_found_by_a_lookup_is_a_change() {
    let script = first(Script::default(), groups("Current", &json!([])));
    script.expect("GET /apis/new.io/v1", 404, not_found());
    let discovery = discovery(&script);
    let new = gvk("new.io", "Thing");
    assert!(discovery.resolve(&new).await.is_err());
    assert_eq!((discovery.epoch(), discovery.cached(&new)), (0, None));
    tokio::time::advance(MIN_INTERVAL).await;
    let resources = json!([{"name": "things", "kind": "Thing", "namespaced": true}]);
    let script = script.on("GET /apis/new.io/v1", 200, resource_list(&resources));
    let found = discovery.resolve(&new).await.unwrap();
    assert_eq!(discovery.epoch(), 1);
    assert_eq!(discovery.cached(&new), Some(found));
    script.finish();
}

/// Lists a kind in these versions of `x.io`.
fn in_versions(versions: &[&str]) -> Value {
    let version = |version: &&str| json!({"version": version, "resources": things()});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    aggregated(&json!([{"metadata": {"name": "x.io"}, "versions": versions}]))
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_gone_only_if_a_complete_answer_says_so() {
    let refused = |code| (code, failure(code, "X", "", &json!({})));
    let (core, other) = (|| (200, core()), || (200, other_group()));
    let status = || (200, json!({"kind": "Status"}));
    let moved = (200, in_versions(&["v2"]));
    let down = (200, groups("Stale", &json!([])));
    let empty = |list: Value| (200, aggregated(&list));
    let unreadable = Err("UnreadableAnswer");
    // The second answer to `/api` and `/apis`, and what it proves.
    for (what, api, apis, expected) in [
        ("gone", core(), other(), Ok(None)),
        ("another version", core(), moved, Ok(Some("x.io/v2"))),
        ("its server is down", core(), down, Err("GroupUnavailable")),
        ("forbidden", core(), refused(403), Err("Forbidden")),
        ("broken", refused(500), other(), Err("Unavailable")),
        ("no JSON", core(), (200, json!("<html>")), unreadable),
        ("no list", core(), (200, json!({})), unreadable),
        ("another object", status(), status(), unreadable),
        ("an empty list", core(), empty(json!([])), unreadable),
        ("no core", empty(json!(null)), other(), unreadable),
    ] {
        let script = first(Script::default(), in_versions(&["v1beta1"]))
            .on("GET /apis/x.io/v1", 404, not_found())
            .on("GET /api", api.0, api.1)
            .on("GET /apis", apis.0, apis.1);
        let discovery = discovery(&script);
        discovery.refresh().await.unwrap();
        let found = discovery
            .find(&gvk("x.io", "Thing"))
            .await
            .map(|kind| kind.map(|kind| kind.resource.api_version.clone()))
            .map_err(|error| error.reason());
        let expected = expected.map(|version: Option<&str>| version.map(ToOwned::to_owned));
        assert_eq!(found, expected, "{what}");
        script.finish();
    }
}

#[tokio::test]
async fn a_group_that_is_down_is_not_empty_without_aggregated_discovery() {
    let script = legacy(legacy(Script::default()))
        .on("GET /api/v1", 200, resource_list(&json!([])))
        .on("GET /apis/x.io/v1", 503, unavailable());
    let kinds = discovery(&script).listable().await;
    assert_eq!(kinds.unwrap_err().reason(), "GroupUnavailable");
    script.finish();
}

#[tokio::test]
async fn a_kind_that_moved_to_another_group_is_found_there() {
    let kind = json!({"resource": "deployments", "responseKind": {"kind": "Deployment"},
        "scope": "Namespaced"});
    let apps = aggregated(&json!([{"metadata": {"name": "apps"}, "versions": [
        {"version": "v1", "resources": [kind]}]}]));
    let script = first(Script::default(), apps.clone());
    script.expect("GET /apis/extensions/v1", 404, not_found());
    let script = first(script, apps);
    let former = gvk("extensions", "Deployment");
    let found = discovery(&script).find(&former).await.unwrap();
    assert_eq!(found.unwrap().resource.api_version, "apps/v1");
    script.finish();
}
