//! Custom resources, their chart and their releases: every step of `make demo`.

use helm_core::chart::DocumentIndex;
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::Reply;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::world::{
    MAP, Project, World, condition, delete, events, eventually, has_event, holds, merge,
    revision_of, says, sum_of,
};

#[tokio::test]
async fn custom_resource_becomes_a_release_with_its_values() {
    let world = or_skip!(World::start("install").await);
    let spec = json!({"replicaCount": 2, "memcached": {"maxItemMemory": 128}});
    let ready = world.memcached("cache", spec).await;
    let status = &ready.data["status"];
    assert_eq!(status["release"]["name"], "cache");
    assert_eq!(status["release"]["revision"], 1);
    let deployed = condition(&ready.data, "Deployed").unwrap();
    assert_eq!(deployed["reason"], "InstallSuccessful");
    // The chart's notes.
    let notes = deployed["message"].as_str().unwrap();
    assert_contains!(notes, "Memcached answers");

    let name = "cache-memcached";
    let deployment = world.api("Deployment").get(name).await.unwrap();
    // The value of the custom resource, and the default of the chart.
    assert_eq!(deployment.data["spec"]["replicas"], 2);
    let image = &deployment.data["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "docker.io/library/memcached:1.6.39");
    let map = world.api("ConfigMap").get(name).await.unwrap();
    assert_eq!(map.data["data"]["MEMCACHED_MEMORY"], "128");
    let owner = &deployment.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.name), ("Memcached", "cache"));
    world.get("Secret", "sh.helm.release.v1.cache.v1").await;
}

#[tokio::test]
async fn spec_change_upgrades_the_release() {
    let world = or_skip!(World::start("upgrade").await);
    world.memcached("cache", json!({"replicaCount": 1})).await;
    let ready = world.memcached("cache", json!({"replicaCount": 3})).await;
    assert_eq!(ready.data["status"]["release"]["revision"], 2);
    let deployment = world.get("Deployment", "cache-memcached").await;
    assert_eq!(deployment.data["spec"]["replicas"], 3);
    let record = world.get("Secret", "sh.helm.release.v1.cache.v1").await;
    assert_eq!(record.metadata.labels.unwrap()["status"], "superseded");
}

#[tokio::test]
async fn object_removed_from_the_chart_is_pruned() {
    let world = or_skip!(World::start("prune").await);
    let account = json!({"serviceAccount": {"name": "own", "create": true}});
    world.memcached("cache", account).await;
    world.api("ServiceAccount").get("own").await.unwrap();
    let none = json!({"serviceAccount": {"create": false}});
    world.memcached("cache", none).await;
    world.gone("ServiceAccount", "own").await;
}

#[tokio::test]
async fn changed_and_deleted_objects_are_repaired() {
    let world = or_skip!(World::start("drift").await);
    world.memcached("cache", json!({"replicaCount": 2})).await;
    let name = "cache-memcached";

    let change = json!({"spec": {"replicas": 5}});
    merge(&world.api("Deployment"), name, &change).await;
    let again = |deployment: &Value| {
        let generation = deployment["metadata"]["generation"].as_i64();
        deployment["spec"]["replicas"] == 2 && generation > Some(2)
    };
    world.until("Deployment", name, "2 replicas", again).await;

    let change = json!({"data": {"MEMCACHED_MEMORY": "1"}});
    merge(&world.api("ConfigMap"), name, &change).await;
    let again = |map: &Value| map["data"]["MEMCACHED_MEMORY"] == "64";
    world.until("ConfigMap", name, "its data", again).await;

    let old = world.get("Service", name).await.metadata.uid.unwrap();
    delete(&world.api("Service"), name).await;
    let again = |service: &Value| {
        let uid = service["metadata"]["uid"].as_str();
        uid.is_some_and(|uid| uid != old)
    };
    world.until("Service", name, "a new Service", again).await;
    let release = world.ready("Memcached", "cache").await;
    assert_eq!(revision_of(&release), 1, "repairs are no revisions");
}

#[tokio::test]
async fn deletion_leaves_nothing_behind() {
    let world = or_skip!(World::start("delete").await);
    world.memcached("cache", json!({})).await;
    world.remove("Memcached", "cache").await;
    for kind in ["Deployment", "Service", "ServiceAccount", "ConfigMap"] {
        world.gone(kind, "cache-memcached").await;
    }
    let records = world
        .api("Secret")
        .list(&ListParams::default().labels("owner=helm"))
        .await
        .unwrap();
    assert!(records.items.is_empty());
}

#[tokio::test]
async fn paused_resource_is_left_alone_and_can_be_deleted() {
    let world = or_skip!(World::start("pause").await);
    world.memcached("cache", json!({"replicaCount": 1})).await;
    let memcacheds = world.api("Memcached");
    let annotations = json!({"helm.sdk.operatorframework.io/paused": "true"});
    let paused = json!({"metadata": {"annotations": annotations}});
    merge(&memcacheds, "cache", &paused).await;
    let paused = holds("Paused");
    world.until("Memcached", "cache", "Paused", paused).await;
    merge(&memcacheds, "cache", &json!({"spec": {"replicaCount": 4}})).await;
    let seen = |cr: &Value| cr["status"]["observedGeneration"] == cr["metadata"]["generation"];
    world.until("Memcached", "cache", "seen", seen).await;
    let deployment = world.get("Deployment", "cache-memcached").await;
    assert_eq!(deployment.data["spec"]["replicas"], 1);
    delete(&memcacheds, "cache").await;
    world.gone("Memcached", "cache").await;
}

#[tokio::test]
async fn idle_release_sends_only_watch_requests() {
    let world = or_skip!(World::start("quiet").await);
    world.memcached("cache", json!({})).await;
    let writes = async || {
        let text = world.operator.metrics().await.unwrap();
        let write = |line: &&str| {
            let mut methods = ["PATCH", "POST", "PUT", "DELETE"].iter();
            line.starts_with("rest_client_requests_total")
                && methods.any(|method| line.contains(&format!("method=\"{method}\"")))
        };
        let mut lines: Vec<String> = text.lines().filter(write).map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    // The last events of the install are sent after the status that says it is ready.
    let reported = async || has_event(&world.namespace, "InstallSuccessful").await;
    eventually("an event", reported).await;
    let before = writes().await;
    // Trigger two more reconciles of the same state with an annotation that has no meaning.
    for round in ["1", "2"] {
        let reconciled = reconciles(&world).await;
        let change = json!({"metadata": {"annotations": {"round": round}}});
        merge(&world.api("Memcached"), "cache", &change).await;
        let again = async || reconciles(&world).await > reconciled;
        eventually("another reconcile", again).await;
    }
    // An unchanged release is not written.
    assert_eq!(writes().await, before);
}

async fn reconciles(world: &World) -> u64 {
    let text = world.operator.metrics().await.unwrap();
    let begin = "controller_runtime_reconcile_total{controller=\"memcached\"";
    sum_of(&text, begin)
}

const SECRET: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-secret}
stringData: {token: {{ .Values.token }}}
";

#[tokio::test]
async fn secret_content_does_not_appear_in_status_events_or_logs() {
    let world = or_skip!(World::of("secret", "", &[("secret.yaml", SECRET)]).await);
    let ready = world.deploy("one", json!({"token": "hunter2"})).await;
    let status: &Value = &ready.data["status"];
    assert!(!status.to_string().contains("hunter2"), "{status}");
    let manifest = &status["deployedRelease"]["manifest"];
    assert!(manifest.as_str().unwrap().contains("Secret one-secret"));
    assert!(!world.operator.log().contains("hunter2"));
    let events = serde_json::to_string(&events(&world.namespace).await).unwrap();
    assert!(!events.contains("hunter2"), "{events}");
}

#[tokio::test]
async fn schema_refers_to_a_file_below_the_working_directory() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let schema = r#"{"properties": {"value": {"$ref": "file://./schemas/value.json"}}}"#;
    project.write("chart/values.schema.json", schema);
    let folder = project.watches_file();
    let started = World::with("schemas", |plane, name| {
        let operator = project.operator(plane, name);
        operator.dir(folder.parent().unwrap())
    });
    let world = or_skip!(started.await);
    world.widget("one", json!({"value": "v"})).await;
    let message = world.message("one", "Irreconcilable").await;
    let expected = "\"file://./schemas/value.json\" is not in /helm-charts, nor below";
    assert_contains!(message, expected);
    // It is looked for again, and what it says counts.
    project.write("schemas/value.json", r#"{"enum": ["v"]}"#);
    world
        .deploy("one", json!({"value": "v", "more": true}))
        .await;
    world.widget("one", json!({"value": "other"})).await;
    let expected = "'/value': violates enum (required by file://./schemas/value.json)";
    let is_told = |cr: &Value| says(cr, "Irreconcilable", expected);
    world.until("Widget", "one", expected, is_told).await;
}

#[tokio::test]
async fn schema_refers_to_a_document_of_the_web_that_only_the_chart_provides() {
    let text = r#"{"enum": ["v"]}"#;
    let server = HttpServer::start(move |_| Reply::body(text)).unwrap();
    let url = server.url("/value.json");
    let project = Project::new("", &[("map.yaml", MAP)]);
    let schema = format!(r#"{{"properties": {{"value": {{"$ref": "{url}"}}}}}}"#);
    project.write("chart/values.schema.json", &schema);
    let world = or_skip!(project.start_with("web-schema", &["--reload-pace=0"]).await);
    world.widget("one", json!({"value": "v"})).await;
    let told = async |expected: &str| {
        let is_told = |cr: &Value| says(cr, "Irreconcilable", expected);
        world.until("Widget", "one", expected, is_told).await;
    };
    let missing = "is not in the chart; run \"hybrid-operator charts vendor\"";
    told(&format!("\"{url}\" {missing}")).await;
    // The files that the command writes.
    let mut index = DocumentIndex::default();
    for file in [index.insert(&url, text.as_bytes().into()), index.file()] {
        let text = String::from_utf8_lossy(file.data());
        project.write(&format!("chart/{}", file.name()), &text);
    }
    world.ready("Widget", "one").await;
    world.widget("one", json!({"value": "other"})).await;
    told(&format!("'/value': value must be 'v' (required by {url})")).await;
    assert!(server.received().is_empty(), "{:?}", server.received());
}

/// Schemas of a chart and of its dependency that reject every value, or cannot be read.
#[tokio::test]
async fn schemas_are_skipped_by_the_entry() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    project.write(
        "chart/values.schema.json",
        r#"{"properties": {"value": {"$ref": "https://schemas.invalid/value.json"}}}"#,
    );
    project.write(
        "chart/charts/db/Chart.yaml",
        "apiVersion: v2\nname: db\nversion: 1.0.0\n",
    );
    project.write("chart/charts/db/values.schema.json", "false");
    let world = or_skip!(project.start_with("skips", &["--reload-pace=0"]).await);
    world.widget("one", json!({"value": "v", "db": {}})).await;
    let message = world.message("one", "Irreconcilable").await;
    assert_contains!(message, "https://schemas.invalid/value.json");
    project.watch("test.example.com", "Widget", "schema: skip");
    world.ready("Widget", "one").await;
    world.data("one-map", json!({"value": "v"})).await;
}
