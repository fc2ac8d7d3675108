//! Tests of the server through kube's client, under paused time. `tests/api_server` compares it with kube-apiserver.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    WatchParams,
};
use kube::core::GroupVersionKind;
use kube::discovery::Discovery;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;
use crate::fault::Fault;
use crate::request::Recorded;

const SOON: Duration = Duration::from_secs(10);

fn parsed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn config_map(name: &str, metadata: &Value) -> Value {
    let mut object = json!({"metadata": {"name": name}});
    ::json_patch::merge(&mut object, &json!({"metadata": metadata}));
    object
}

async fn post<K>(objects: &Api<K>, object: Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + fmt::Debug,
{
    let object = parsed(object);
    objects.create(&PostParams::default(), &object).await
}

fn names<K: kube::Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}

fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client("default"), "default")
}

async fn create(maps: &Api<ConfigMap>, name: &str, metadata: Value) -> ConfigMap {
    post(maps, config_map(name, &metadata)).await.unwrap()
}

fn owned_by(owner: &ConfigMap, blocks: bool) -> Value {
    json!({"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
        "blockOwnerDeletion": blocks,
    }]})
}

async fn patch<K>(objects: &Api<K>, name: &str, change: Value)
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    let params = PatchParams::default();
    let patched = objects.patch(name, &params, &Patch::Merge(change)).await;
    patched.unwrap();
}

/// Takes all finalizers of an object away.
async fn free<K>(objects: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    patch(objects, name, json!({"metadata": {"finalizers": null}})).await;
}

async fn delete<K>(objects: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    let deleted = objects.delete(name, &DeleteParams::default()).await;
    deleted.unwrap();
}

async fn exists<K>(objects: &Api<K>, name: &str) -> bool
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    objects.get_opt(name).await.unwrap().is_some()
}

/// Returns the next event of a watch as text.
async fn next(
    events: &mut (impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Unpin),
) -> String {
    match timeout(SOON, events.next()).await {
        Err(_) => "nothing".to_owned(),
        Ok(None) => "the end".to_owned(),
        Ok(Some(Err(error))) => format!("{error:?}").chars().take(16).collect(),
        Ok(Some(Ok(event))) => match event {
            Event::Init => "init".to_owned(),
            Event::InitApply(map) => format!("init {}", map.name_any()),
            Event::InitDone => "done".to_owned(),
            Event::Apply(map) => format!("apply {}", map.name_any()),
            Event::Delete(map) => format!("delete {}", map.name_any()),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_enters_and_leaves_its_selection() {
    for streaming in [false, true] {
        let server = ApiServer::new(&Options::default());
        let maps = maps(&server);
        create(&maps, "a", json!({"labels": {"l": "1"}})).await;
        create(&maps, "other", json!({})).await;
        let mut config = watcher::Config::default().labels("l=1");
        if streaming {
            config = config.streaming_lists();
        }
        let mut events = pin!(watcher(maps.clone(), config));
        for expected in ["init", "init a", "done"] {
            assert_eq!(next(&mut events).await, expected);
        }
        let label = |value: &str| json!({"metadata": {"labels": {"l": value}}});
        patch(&maps, "other", label("1")).await;
        assert_eq!(next(&mut events).await, "apply other");
        patch(&maps, "a", label("2")).await;
        assert_eq!(next(&mut events).await, "delete a");
        delete(&maps, "other").await;
        assert_eq!(next(&mut events).await, "delete other");
        assert_eq!(next(&mut events).await, "nothing");
        assert!(server.unmodelled().is_empty(), "{:?}", server.unmodelled());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_for_hours_and_across_cuts() {
    let server = ApiServer::new(&Options::default());
    let maps = maps(&server);
    let config = watcher::Config::default().any_semantic();
    let mut events = pin!(watcher(maps.clone(), config));
    while next(&mut events).await != "done" {}
    // The server ends watches after at most an hour; bookmarks are no events.
    let event = timeout(Duration::from_hours(3), events.next()).await;
    assert!(event.is_err());
    server.cut_watches();
    create(&maps, "a", json!({})).await;
    let mut seen = next(&mut events).await;
    while seen != "apply a" {
        assert!(seen.starts_with("WatchFailed"), "{seen}");
        seen = next(&mut events).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_a_compaction_lists_anew() {
    let server = ApiServer::new(&Options::default());
    let maps = maps(&server);
    let mut events = pin!(watcher(maps.clone(), watcher::Config::default()));
    while next(&mut events).await != "done" {}
    let unreachable = |request: &Recorded| (request.verb == "watch").then_some(Fault::Unreachable);
    server.faults().inject_with(unreachable);
    server.cut_watches();
    for _ in 0..3 {
        assert!(next(&mut events).await.starts_with("Watch"));
    }
    create(&maps, "a", json!({})).await;
    server.compact();
    server.faults().clear_faults();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "done") {
        seen.push(next(&mut events).await);
    }
    assert!(seen.contains(&"init a".to_owned()), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_may_show_changes_late_and_in_order() {
    let server = ApiServer::new(&Options {
        lag: Duration::from_secs(2)..=Duration::from_secs(3),
        ..Options::default()
    });
    let maps = maps(&server);
    sleep(SOON).await;
    let mut events = pin!(watcher(maps.clone(), watcher::Config::default()));
    while next(&mut events).await != "done" {}
    create(&maps, "a", json!({})).await;
    create(&maps, "b", json!({})).await;
    let event = timeout(Duration::from_secs(1), events.next()).await;
    assert!(event.is_err());
    assert_eq!(next(&mut events).await, "apply a");
    assert_eq!(next(&mut events).await, "apply b");
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_shows_one_state_until_it_is_forgotten() {
    let server = ApiServer::new(&Options::default());
    let maps = maps(&server);
    for name in ["a", "b", "c"] {
        create(&maps, name, json!({"labels": {"l": "1"}})).await;
    }
    let page = ListParams::default().labels("l=1").limit(2);
    let first = maps.list(&page).await.unwrap();
    create(&maps, "bb", json!({"labels": {"l": "1"}})).await;
    let token = first.metadata.continue_.unwrap();
    let next = page.continue_token(&token);
    let second = maps.list(&next).await.unwrap();
    assert_eq!(names(&first.items), ["a", "b"]);
    assert_eq!(names(&second.items), ["c"]);
    server.compact();
    create(&maps, "d", json!({})).await;
    server.compact();
    let error = maps.list(&next).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 410));
}

fn definition(scope: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 1}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": scope, "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn things(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Thing");
    Api::namespaced_with(client, "default", &ApiResource::from_gvk(&kind))
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_later_and_goes_after_its_objects() {
    let server = ApiServer::new(&Options {
        delays: Duration::from_secs(1)..=Duration::from_secs(2),
        ..Options::default()
    });
    let client = server.client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let things = things(client.clone());
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "t", "finalizers": ["example.com/f"]}, "spec": {"unknown": 1},
    });
    post(&definitions, definition("Namespaced")).await.unwrap();
    assert!(post(&things, thing.clone()).await.is_err());
    sleep(SOON).await;
    let discovery = Discovery::new(client.clone()).run_aggregated().await;
    let discovery = discovery.unwrap();
    assert!(discovery.has_group("example.com") && discovery.has_group("apps"));
    let created = post(&things, thing).await.unwrap();
    assert_eq!(created.data["spec"], json!({"size": 1}));
    let events = things.watch(&WatchParams::default(), "0").await;
    let mut events = pin!(events.unwrap());
    assert!(events.next().await.is_some());

    let name = "things.example.com";
    delete(&definitions, name).await;
    sleep(SOON).await;
    let waiting = things.get("t").await.unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some());
    assert!(exists(&definitions, name).await);
    free(&things, "t").await;
    sleep(SOON).await;
    assert!(!exists(&definitions, name).await);
    assert!(things.list(&ListParams::default()).await.is_err());
    let discovery = Discovery::new(client).run().await.unwrap();
    assert!(!discovery.has_group("example.com") && discovery.has_group("apps"));
    while events.next().await.is_some() {}
    // The same name may come back with another scope.
    post(&definitions, definition("Cluster")).await.unwrap();
    sleep(SOON).await;
    assert!(things.get("t").await.is_err());
    assert!(server.unmodelled().is_empty(), "{:?}", server.unmodelled());
}

#[tokio::test(start_paused = true)]
async fn workloads_become_ready_and_finished_jobs_expire() {
    let server = ApiServer::new(&Options::default());
    let client = server.client("default");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
    let deployment = json!({
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    post(&deployments, deployment).await.unwrap();
    let jobs: Api<Job> = Api::namespaced(client, "default");
    for (name, behaviour) in [("good", ""), ("bad", "failed"), ("slow", "running")] {
        let job = json!({
            "metadata": {"name": name},
            "spec": {"ttlSecondsAfterFinished": 60, "template": {
                "metadata": {"annotations": {"test.hybrid-operator/pod": behaviour}},
                "spec": {"containers": [], "restartPolicy": "Never"}}},
        });
        post(&jobs, job).await.unwrap();
    }
    sleep(SOON).await;
    let ready = async || {
        let status = deployments.get("d").await.unwrap().status.unwrap();
        (status.observed_generation, status.available_replicas)
    };
    assert_eq!(ready().await, (Some(1), Some(2)));
    let (params, scale) = (PatchParams::default(), json!({"spec": {"replicas": 3}}));
    let scale = Patch::Merge(scale);
    let scaled = deployments.patch_scale("d", &params, &scale);
    scaled.await.unwrap();
    sleep(SOON).await;
    assert_eq!(ready().await, (Some(2), Some(3)));
    let status = async |name: &str| jobs.get(name).await.unwrap().status.unwrap();
    assert_eq!(status("good").await.succeeded, Some(1));
    assert_eq!(status("bad").await.failed, Some(1));
    sleep(Duration::from_mins(1)).await;
    let left = jobs.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&left.items), ["slow"]);
    assert_eq!(status("slow").await.active, Some(1));
    assert!(server.unmodelled().is_empty(), "{:?}", server.unmodelled());
}

#[tokio::test(start_paused = true)]
async fn requests_may_be_late_and_answers_cut_off() {
    let server = ApiServer::new(&Options::default());
    let maps = maps(&server);
    server.faults().at(1, Fault::Late(SOON), |_| true);
    let (late, ()) = tokio::join!(create(&maps, "a", json!({})), async {
        sleep(SOON / 2).await;
        create(&maps, "b", json!({})).await;
    });
    let first = maps.get("b").await.unwrap().resource_version().unwrap();
    let second = late.resource_version().unwrap();
    assert!(first.parse::<u64>().unwrap() < second.parse().unwrap());
    let is_watch = |request: &Recorded| request.verb == "watch";
    server.faults().at(1, Fault::Cut, is_watch);
    let events = maps.watch(&WatchParams::default(), "0").await;
    let mut events = pin!(events.unwrap());
    assert!(events.next().await.unwrap().is_ok());
    assert!(events.next().await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_modelled_is_refused_and_recorded() {
    let server = ApiServer::new(&Options::default());
    let patch = Patch::Strategic(json!({"data": {"a": "b"}}));
    let (maps, params) = (maps(&server), PatchParams::default());
    let error = maps.patch("a", &params, &patch).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 501));
    let refused = server.unmodelled();
    assert_eq!(refused.len(), 1);
    let request = "PATCH /api/v1/namespaces/default/configmaps/a: ";
    assert!(refused[0].starts_with(request), "{refused:?}");
}

/// Returns everything that clients and the store show of a history.
async fn history(seed: u64) -> String {
    let server = ApiServer::new(&Options {
        seed,
        lag: Duration::ZERO..=Duration::from_secs(2),
        ..Options::default()
    });
    let maps = maps(&server);
    let mut events = Box::pin(watcher(maps.clone(), watcher::Config::default()));
    let mut shown = Vec::new();
    let owner = create(&maps, "owner", json!({})).await;
    for index in 0..5 {
        let mut metadata = owned_by(&owner, true);
        metadata["name"] = Value::Null;
        metadata["generateName"] = json!(format!("g{index}-"));
        create(&maps, "", metadata).await;
        if let Ok(event) = timeout(Duration::from_millis(700), events.next()).await {
            shown.push(format!("{event:?}"));
        }
    }
    let deleted = maps.delete("owner", &DeleteParams::foreground()).await;
    deleted.unwrap();
    while let Ok(event) = timeout(SOON, events.next()).await {
        shown.push(format!("{event:?}"));
    }
    let (objects, requests) = (server.objects(), server.faults().requests());
    format!("{shown:#?} {objects:#?} {requests:#?}")
}

#[tokio::test(start_paused = true)]
async fn a_history_follows_from_its_seed() {
    let first = history(1).await;
    assert_eq!(first, history(1).await);
    assert_ne!(first, history(2).await);
}
