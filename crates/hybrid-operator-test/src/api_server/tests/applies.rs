//! Server-side apply, owners of fields, and definitions that change, as kube-apiserver has been seen to treat them.

use super::*;

const MAP: &str = "/api/v1/namespaces/default/configmaps/m";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/d";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const THING: &str = "/apis/example.com/v1/namespaces/default/things/t";

async fn send(client: &Client, method: &str, uri: &str, body: Value) -> (u16, Value) {
    let (code, body, _) = super::send(client, method, uri, body).await;
    (code, body)
}

async fn get(client: &Client, uri: &str) -> Value {
    send(client, "GET", uri, Value::Null).await.1
}

fn assert_conflict((code, status): (u16, Value), words: &str) {
    let message = status["message"].as_str().unwrap();
    assert!(code == 409 && message.contains(words), "{message}");
}

async fn apply(client: &Client, uri: &str, query: &str, object: Value) -> (u16, Value) {
    send(client, "APPLY", &format!("{uri}?{query}"), object).await
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

/// Returns the managers of an object, with their operations, subresources and fields.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten().map(|entry| {
        let texts = ["manager", "operation", "subresource"];
        let texts = texts.map(|field| entry[field].as_str().unwrap_or_default());
        let fields = entry["fieldsV1"].to_string().replace('"', "");
        format!("{}: {fields}", texts.join(" "))
    });
    entries.collect()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_apply_takes_fields_of_others_only_by_force() {
    let server = ApiServer::new(&Options::default());
    let client = server.client("default");
    let maps = MAP.replace("/m", "");
    let (code, _) = send(&client, "POST", &maps, map(&json!({"a": "1"}))).await;
    assert_eq!(code, 201);
    let wanted = map(&json!({"a": "2", "b": "2"}));
    let (code, status) = apply(&client, MAP, "fieldManager=helm", wanted.clone()).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(status["details"]["causes"][0]["field"], ".data.a");
    assert_eq!(
        status["message"],
        "Apply failed with 1 conflict: conflict with \"hand\" using v1: .data.a"
    );
    let (code, forced) = apply(&client, MAP, "fieldManager=helm&force=true", wanted.clone()).await;
    assert_eq!(code, 200);
    let helm = "helm Apply : {f:data:{f:a:{},f:b:{}}}";
    assert_eq!(managers(&forced), [helm, "hand Update : {f:data:{}}"]);
    // What is applied again changes nothing, also later, and what is no longer applied goes.
    sleep(SOON).await;
    let (_, again) = apply(&client, MAP, "fieldManager=helm&force=true", wanted).await;
    assert_eq!(again, forced);
    let (_, less) = apply(&client, MAP, "fieldManager=helm", map(&json!({"b": "2"}))).await;
    assert_eq!(less["data"], json!({"b": "2"}));
    assert_ne!(version(&less), version(&forced));
    // Without its entries an object has no managers until it is applied again.
    let reset = json!({"metadata": {"managedFields": [{}]}});
    let (_, reset) = send(&client, "PATCH", MAP, reset).await;
    assert_eq!(managers(&reset), [""; 0]);
    let refused = apply(&client, MAP, "fieldManager=m", map(&json!({"b": "3"}))).await;
    assert_conflict(refused, "before-first-apply");
    assert_eq!(server.unmodelled(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_apply_with_a_version_creates_and_never_replaces() {
    let client = ApiServer::new(&Options::default()).client("default");
    let mut new = map(&json!({"a": "1"}));
    new["metadata"]["resourceVersion"] = json!("1");
    let query = "fieldManager=helm&force=true";
    assert_eq!(apply(&client, MAP, query, new.clone()).await.0, 201);
    new["data"]["a"] = json!("2");
    assert_eq!(apply(&client, MAP, query, new.clone()).await.0, 409);
    assert_eq!(get(&client, MAP).await["data"]["a"], "1");
    // An object with a uid must be there.
    send(&client, "DELETE", MAP, json!({})).await;
    new["metadata"]["uid"] = json!("gone");
    assert_eq!(apply(&client, MAP, query, new).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_scale_takes_the_replicas_from_their_owner() {
    let client = ApiServer::new(&Options::default()).client("default");
    let labels = json!({"app": "d"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let (code, _) = apply(&client, DEPLOYMENT, "fieldManager=helm", deployment.clone()).await;
    assert_eq!(code, 201);
    let scale = json!({"spec": {"replicas": 3}});
    let (code, scaled) = send(&client, "PATCH", &format!("{DEPLOYMENT}/scale"), scale).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(3)));
    let object = get(&client, DEPLOYMENT).await;
    let owners = managers(&object);
    assert!(!owners[0].contains("f:replicas"), "{owners:?}");
    assert!(owners.contains(&"hand Update scale: {f:spec:{f:replicas:{}}}".to_owned()));
    let refused = apply(&client, DEPLOYMENT, "fieldManager=helm", deployment).await;
    assert_conflict(refused, "subresource \"scale\"");
}

fn definition(versions: &Value) -> Value {
    let mut definition = super::definition("Namespaced");
    definition["spec"]["versions"] = versions.clone();
    definition
}

/// Returns a version of a definition whose objects have these fields.
fn defined(name: &str, stored: bool, fields: &Value) -> Value {
    json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}})
}

async fn define(client: &Client, versions: &Value) {
    let collection = DEFINITION.rsplit_once('/').unwrap().0;
    let (code, status) = send(client, "POST", collection, definition(versions)).await;
    assert_eq!(code, 201, "{status}");
    sleep(SOON).await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_changed_definition_lose_fields_and_get_defaults() {
    let client = ApiServer::new(&Options::default()).client("default");
    let text = json!({"type": "string"});
    let versions = json!([defined("v1", true, &json!({"a": text, "b": text}))]);
    define(&client, &versions).await;
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "t"}, "spec": {"a": "1", "b": "2"}});
    assert_eq!(send(&client, "POST", THINGS, thing).await.0, 201);
    let list = get(&client, THINGS).await;
    let since = version(&list).to_owned();
    let open = format!("{THINGS}?watch=true&resourceVersion={since}");
    let watch = tokio::spawn({
        let (client, open) = (client.clone(), open.clone());
        async move { get(&client, &open).await }
    });
    sleep(SOON).await;
    assert!(!watch.is_finished());

    let second = json!({"b": text, "c": {"type": "string", "default": "3"}});
    let versions = json!([defined("v1", false, &second), defined("v2", true, &second)]);
    let change = json!({"spec": {"versions": versions}});
    assert_eq!(send(&client, "PATCH", DEFINITION, change).await.0, 200);
    watch.await.unwrap();
    let read = get(&client, THING).await;
    assert_eq!(read["spec"], json!({"b": "2", "c": "3"}));
    let event = get(&client, &open).await;
    assert_eq!(event["object"]["code"], 410);
    // The object is stored in the new version with the next write, also if that changes nothing.
    let (_, written) = send(&client, "PATCH", THING, json!({})).await;
    assert_ne!(version(&written), version(&read));
    let (_, again) = send(&client, "PATCH", THING, json!({})).await;
    assert_eq!(version(&again), version(&written));
    // A version in which objects may be stored stays.
    let change = json!({"spec": {"versions": [defined("v2", true, &second)]}});
    let (code, status) = send(&client, "PATCH", DEFINITION, change).await;
    assert_eq!(code, 422, "{status}");
}

#[tokio::test(start_paused = true)]
async fn fields_are_owned_in_the_version_in_which_they_were_written() {
    let client = ApiServer::new(&Options::default()).client("default");
    let text = json!({"type": "string"});
    let both = json!({"a": text, "b": text});
    let one = json!({"a": text});
    let versions = json!([defined("v1", true, &both), defined("v2", false, &one)]);
    define(&client, &versions).await;
    let query = "fieldManager=helm";
    let thing = |version: &str, spec: Value| {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing",
            "metadata": {"name": "t"}, "spec": spec})
    };
    let (code, _) = apply(&client, THING, query, thing("v1", json!({"a": "1"}))).await;
    assert_eq!(code, 201);
    let other = THING.replace("/v1/", "/v2/");
    let changed = thing("v2", json!({"a": "2"}));
    let refused = apply(&client, &other, "fieldManager=m", changed).await;
    assert_conflict(refused, "conflict with \"helm\": .spec.a");
    // An object whose fields the version of an owner does not have cannot be compared there: its owners are lost.
    let (_, owned) = apply(&client, &other, query, thing("v2", json!({"a": "1"}))).await;
    let entry = &owned["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], "example.com/v2");
    let (_, lost) = send(&client, "PATCH", THING, json!({"spec": {"b": "1"}})).await;
    assert_eq!(managers(&lost), [""; 0]);
}
