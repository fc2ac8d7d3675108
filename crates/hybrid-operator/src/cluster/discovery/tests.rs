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
    assert_eq!(
        (&*pod.resource.plural, pod.scope),
        ("pods", Scope::Namespaced)
    );
    assert!(pod.has_status && !pod.scalable && pod.verbs.watch && !pod.verbs.patch);
    assert_eq!(
        discovery.resolve(&gvk("", "Node")).await.unwrap().scope,
        Scope::Cluster
    );
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
    let none = || failure(404, "NotFound", "", &json!({}));
    let script = first(Script::default(), groups("Current", &json!([]))).on(
        "GET /apis/new.io/v1",
        404,
        none(),
    );
    let discovery = discovery(&script);
    for _ in 0..3 {
        let error = discovery
            .resolve(&gvk("new.io", "Thing"))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the cluster does not serve Thing in new.io/v1"
        );
        assert!(!error.is_transient());
    }
    script.finish();
    tokio::time::advance(MIN_INTERVAL).await;
    let resources = json!([{"name": "things", "kind": "Thing", "namespaced": true},
                           {"name": "things/status", "kind": "Thing"}]);
    let script = script.on("GET /apis/new.io/v1", 200, resource_list(&resources));
    let thing = discovery.resolve(&gvk("new.io", "Thing")).await.unwrap();
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
    let legacy = json!({"kind": "APIVersions", "versions": ["v1"]});
    let groups = json!({"kind": "APIGroupList", "groups": [
        {"name": "x.io", "versions": [{"version": "v1"}]}]});
    let pods = resource_list(&json!([{"name": "pods", "kind": "Pod", "namespaced": true,
        "verbs": ["list"]}, {"name": "pods/eviction", "kind": "Eviction"}]));
    let script = Script::default()
        .on("GET /api", 200, legacy.clone())
        .on("GET /apis", 200, groups.clone())
        .on("GET /api/v1", 200, pods.clone());
    let discovery = discovery(&script);
    assert!(discovery.resolve(&gvk("", "Pod")).await.is_ok());
    script.finish();

    let script = script
        .in_any_order()
        .on("GET /version", 200, version())
        .on("GET /api", 200, legacy.clone())
        .on("GET /apis", 200, groups.clone())
        .on("GET /api", 200, legacy)
        .on("GET /apis", 200, groups)
        .on("GET /api/v1", 200, pods)
        .on(
            "GET /apis/x.io/v1",
            200,
            resource_list(&json!([{"name": "ys", "kind": "Y"}])),
        );
    let capabilities = discovery
        .capabilities(Duration::from_mins(1))
        .await
        .unwrap();
    let versions: Vec<&str> = capabilities.api_versions.iter().collect();
    assert_eq!(
        versions,
        ["v1", "v1/Eviction", "v1/Pod", "x.io/v1", "x.io/v1/Y"]
    );
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
    let capabilities = discovery.capabilities(age).await.unwrap();
    assert_eq!(capabilities.kube_version.version(), "v1.36.3");
    let versions: Vec<&str> = capabilities.api_versions.iter().collect();
    assert_eq!(
        versions,
        [
            "v1",
            "v1/Eviction",
            "v1/Node",
            "v1/Pod",
            "x.io/v1",
            "x.io/v1/Scale",
            "x.io/v1/Thing"
        ]
    );
    discovery.capabilities(age).await.unwrap();
    script.finish();

    // After a later failure, the cached ones stay in use.
    tokio::time::advance(age).await;
    let unavailable = || failure(503, "ServiceUnavailable", "", &json!({}));
    let script = script
        .on("GET /version", 503, unavailable())
        .on("GET /api", 503, unavailable())
        .on("GET /apis", 503, unavailable());
    assert!(
        discovery
            .capabilities(age)
            .await
            .unwrap()
            .api_versions
            .has("x.io/v1/Thing")
    );
    script.finish();
}

#[tokio::test]
async fn capabilities_fail_without_a_response() {
    let unavailable = || failure(503, "ServiceUnavailable", "", &json!({}));
    let script = Script::default()
        .on("GET /version", 200, version())
        .on("GET /api", 200, core())
        .on("GET /apis", 503, unavailable());
    let error = discovery(&script)
        .capabilities(Duration::ZERO)
        .await
        .unwrap_err();
    assert!(error.is_transient());
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
    discovery.capabilities(age).await.unwrap();
    tokio::time::advance(age).await;
    let script = first(
        script.on("GET /version", 200, version()),
        groups("Stale", &json!([])),
    );
    let capabilities = discovery.capabilities(age).await.unwrap();
    assert!(capabilities.api_versions.has("x.io/v1/Thing"));
    assert!(discovery.resolve(&gvk("x.io", "Thing")).await.is_ok());
    script.finish();
}

#[tokio::test]
async fn a_kind_of_a_group_that_is_down_is_not_unknown() {
    let unavailable = failure(503, "ServiceUnavailable", "", &json!({}));
    let script = first(Script::default(), groups("Stale", &json!([]))).on(
        "GET /apis/x.io/v1",
        503,
        unavailable,
    );
    let error = discovery(&script)
        .resolve(&gvk("x.io", "Thing"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.reason(), error.is_transient()),
        ("GroupUnavailable", true)
    );
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
    for (what, answer, changed) in [
        (
            "an unchanged response is no change",
            groups("Current", &things()),
            false,
        ),
        ("a kind is added", groups("Current", &larger), true),
        (
            "the server of the group is down",
            groups("Stale", &json!([])),
            false,
        ),
        ("a kind is removed", groups("Current", &things()), true),
        ("a kind is replaced", groups("Current", &other), true),
        ("the group is removed", other_group(), true),
    ] {
        script = first(script, answer);
        discovery.refresh().await.unwrap();
        epoch += u64::from(changed);
        assert_eq!(discovery.epoch(), epoch, "{what}");
        assert_eq!(
            changes.changed().now_or_never().is_some(),
            changed,
            "{what}"
        );
    }
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn a_kind_found_by_a_lookup_is_a_change() {
    let none = failure(404, "NotFound", "", &json!({}));
    let script = first(Script::default(), groups("Current", &json!([]))).on(
        "GET /apis/new.io/v1",
        404,
        none,
    );
    let discovery = discovery(&script);
    let new = gvk("new.io", "Thing");
    assert!(discovery.resolve(&new).await.is_err());
    assert_eq!((discovery.epoch(), discovery.cached(&new)), (0, None));
    tokio::time::advance(MIN_INTERVAL).await;
    let resources = json!([{"name": "things", "kind": "Thing", "namespaced": true}]);
    let script = script.on("GET /apis/new.io/v1", 200, resource_list(&resources));
    let found = discovery.resolve(&new).await.unwrap();
    assert_eq!(
        (discovery.epoch(), discovery.cached(&new)),
        (1, Some(found))
    );
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
    let refused = |code| failure(code, "X", "", &json!({}));
    // The second answer to `/api` and `/apis`, and what it proves.
    for (what, api, apis, expected) in [
        ("gone", (200, core()), (200, other_group()), Ok(None)),
        (
            "another version",
            (200, core()),
            (200, in_versions(&["v2"])),
            Ok(Some("x.io/v2")),
        ),
        (
            "its server is down",
            (200, core()),
            (200, groups("Stale", &json!([]))),
            Err("GroupUnavailable"),
        ),
        (
            "forbidden",
            (200, core()),
            (403, refused(403)),
            Err("Forbidden"),
        ),
        (
            "broken",
            (500, refused(500)),
            (200, other_group()),
            Err("Unavailable"),
        ),
        (
            "no JSON",
            (200, core()),
            (200, json!("<html>")),
            Err("UnreadableAnswer"),
        ),
        (
            "no list",
            (200, core()),
            (200, json!({})),
            Err("UnreadableAnswer"),
        ),
        (
            "another object",
            (200, json!({"kind": "Status"})),
            (200, json!({"kind": "Status"})),
            Err("UnreadableAnswer"),
        ),
        (
            "an empty list",
            (200, core()),
            (200, aggregated(&json!([]))),
            Err("UnreadableAnswer"),
        ),
        (
            "an empty list of the core",
            (200, aggregated(&json!(null))),
            (200, other_group()),
            Err("UnreadableAnswer"),
        ),
    ] {
        let missing = failure(404, "NotFound", "", &json!({}));
        let script = first(Script::default(), in_versions(&["v1beta1"]))
            .on("GET /apis/x.io/v1", 404, missing)
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
    let script = Script::default()
        .on(
            "GET /api",
            200,
            json!({"kind": "APIVersions", "versions": ["v1"]}),
        )
        .on(
            "GET /apis",
            200,
            json!({"kind": "APIGroupList", "groups": [
            {"name": "x.io", "versions": [{"version": "v1"}]}]}),
        )
        .on(
            "GET /api",
            200,
            json!({"kind": "APIVersions", "versions": ["v1"]}),
        )
        .on(
            "GET /apis",
            200,
            json!({"kind": "APIGroupList", "groups": [
            {"name": "x.io", "versions": [{"version": "v1"}]}]}),
        )
        .on("GET /api/v1", 200, resource_list(&json!([])))
        .on(
            "GET /apis/x.io/v1",
            503,
            failure(503, "ServiceUnavailable", "", &json!({})),
        );
    let kinds = discovery(&script).listable(|_| false).await;
    assert_eq!(kinds.unwrap_err().reason(), "GroupUnavailable");
    script.finish();
}

#[tokio::test]
async fn a_kind_that_moved_to_another_group_is_found_there() {
    let apps = aggregated(
        &json!([{"metadata": {"name": "apps"}, "versions": [{"version": "v1",
        "resources": [{"resource": "deployments", "responseKind": {"kind": "Deployment"},
            "scope": "Namespaced"}]}]}]),
    );
    let script = first(Script::default(), apps.clone()).on(
        "GET /apis/extensions/v1",
        404,
        failure(404, "NotFound", "", &json!({})),
    );
    let script = first(script, apps);
    let discovery = discovery(&script);
    let found = discovery
        .find(&gvk("extensions", "Deployment"))
        .await
        .unwrap();
    assert_eq!(found.unwrap().resource.api_version, "apps/v1");
    script.finish();
}
