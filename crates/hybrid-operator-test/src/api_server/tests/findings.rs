//! Findings of the comparison with kube-apiserver that differ from what one expects.

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn define(client: &Client, definition: Value) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    post(&definitions, definition).await.unwrap();
    sleep(SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_has_its_warnings() {
    let client = ApiServer::new(&Options::default()).client("default");
    let map = json!({"metadata": {"name": "x", "bogus": 1}});
    let (code, _, warnings) = send(&client, "PUT", &format!("{MAPS}/x"), map).await;
    assert_eq!(code, 404);
    assert!(warnings.contains("metadata.bogus"), "{warnings}");
}

#[tokio::test(start_paused = true)]
async fn an_update_that_creates_may_have_a_version_but_no_uid() {
    let client = ApiServer::new(&Options::default()).client("default");
    let uri = format!("{ROLES}/x");
    for (metadata, expected) in [
        (json!({"name": "x", "uid": "1"}), 409),
        (json!({"name": "x", "resourceVersion": "x"}), 500),
        (json!({"name": "x", "resourceVersion": "1"}), 201),
    ] {
        let role = json!({"metadata": metadata, "rules": []});
        let (code, body, _) = send(&client, "PUT", &uri, role).await;
        assert_eq!(code, expected, "{body}");
        assert!(code != 201 || body["rules"].is_null(), "{body}");
    }
    let map = json!({"metadata": {"name": "x", "resourceVersion": "1"}});
    assert_eq!(send(&client, "POST", MAPS, map).await.0, 500);
}

#[tokio::test(start_paused = true)]
async fn the_options_of_a_deletion_are_checked_before_its_object() {
    let client = ApiServer::new(&Options::default()).client("default");
    let options = json!({"propagationPolicy": "Nothing", "orphanDependents": true});
    let (code, body, _) = send(&client, "DELETE", &format!("{MAPS}/none"), options).await;
    assert_eq!(code, 422);
    assert_eq!(body["details"]["causes"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn some_kinds_answer_a_deletion_with_the_object_in_a_new_version() {
    let client = ApiServer::new(&Options::default()).client("default");
    let account = json!({"metadata": {"name": "x"}});
    let (_, created, _) = send(&client, "POST", ACCOUNTS, account).await;
    let uri = format!("{ACCOUNTS}/x");
    let (_, deleted, _) = send(&client, "DELETE", &uri, Value::Null).await;
    assert_eq!(deleted["metadata"]["uid"], created["metadata"]["uid"]);
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_ne!(version(&deleted), version(&created));
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_leases_need_no_domain_and_prefixes_of_names_lose_two_characters() {
    let client = ApiServer::new(&Options::default()).client("default");
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["f"]}});
    assert_eq!(send(&client, "POST", LEASES, held("x")).await.0, 201);
    assert_eq!(send(&client, "POST", MAPS, held("x")).await.0, 422);
    // Only the generated name is invalid: of the prefix, the last two characters are not looked at.
    let map = json!({"metadata": {"generateName": "G-"}});
    let (code, body, _) = send(&client, "POST", MAPS, map).await;
    assert_eq!(code, 422);
    let causes = body["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 1);
    assert_eq!(causes[0]["field"], "metadata.name");
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_replaces_missing_fields_of_objects_that_are_there() {
    let client = ApiServer::new(&Options::default()).client("default");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map = json!({"metadata": {"name": "x"}, "data": {"a": "b"}});
    post(&maps, map).await.unwrap();
    for (path, is_there) in [("/data/none", true), ("/none/a", false)] {
        let replace = parsed(json!([{"op": "replace", "path": path, "value": "c"}]));
        let (params, replace) = (PatchParams::default(), Patch::<()>::Json(replace));
        let patched = maps.patch("x", &params, &replace).await;
        assert_eq!(patched.is_ok(), is_there, "{path}");
    }
}

/// The garbage collector and the controller of namespaces use the preferred version of a kind.
#[tokio::test(start_paused = true)]
async fn controllers_drop_fields_that_the_preferred_version_does_not_have() {
    let client = ApiServer::new(&Options::default()).client("default");
    let mut definition = definition("Namespaced");
    let newer = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.push(newer);
    define(&client, definition).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none",
        "uid": "11111111-0000-0000-0000-000000000000"});
    let metadata =
        json!({"name": "x", "finalizers": ["example.com/f"], "ownerReferences": [owner]});
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": {"size": 3},
    });
    let things = things(client);
    let created = post(&things, thing).await.unwrap();
    assert_eq!(created.data["spec"]["size"], 3);
    sleep(SOON).await;
    let left = things.get("x").await.unwrap();
    assert!(left.metadata.deletion_timestamp.is_some());
    assert_eq!(left.data.get("spec"), None);
}

#[tokio::test(start_paused = true)]
async fn requests_to_custom_resources_fail_in_their_own_way() {
    let client = ApiServer::new(&Options::default()).client("default");
    let mut definition = definition("Namespaced");
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["schema"]["openAPIV3Schema"]["properties"] = json!({
        "spec": {"type": "object", "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    });
    define(&client, definition).await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = |spec: Value, finalizers: Value| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "spec": spec,
            "metadata": {"name": "x", "finalizers": finalizers},
        })
    };
    let held = thing(json!({}), json!(["f"]));
    let (code, _, warnings) = send(&client, "POST", things, held).await;
    assert_eq!(code, 201);
    let warning = "prefer a domain-qualified finalizer name";
    assert!(warnings.contains(warning), "{warnings}");
    // A text reports only the first rule that it breaks.
    let unnamed = thing(json!({"name": ""}), Value::Null);
    let (code, body, _) = send(&client, "POST", things, unnamed).await;
    let causes = body["details"]["causes"].as_array().unwrap();
    assert_eq!((code, causes.len()), (422, 1));
    // The words about a status do not name it.
    let status = json!({"status": {"phase": 1}});
    let uri = format!("{things}/x/status");
    let (_, body, _) = send(&client, "PATCH", &uri, status).await;
    let cause = &body["details"]["causes"][0];
    assert_eq!(cause["field"], "status.phase");
    let words = "Invalid value: \"integer\": phase in body must be of type string: \"integer\"";
    assert_eq!(cause["message"], words);
    let (none, empty) = (Value::Null, json!({}));
    for (method, uri, body, expected, words) in [
        ("PUT", "", &empty, 400, "name must be provided"),
        ("POST", "/x", &empty, 400, "the object provided is"),
        ("GET", "/x/none", &none, 404, "things.example.com \"x\""),
        ("GET", "?fieldSelector=a=b", &none, 400, "field label not"),
    ] {
        let uri = format!("{things}{uri}");
        let (code, answer, _) = send(&client, method, &uri, body.clone()).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(code, expected, "{uri}: {answer}");
        assert!(message.starts_with(words), "{uri}: {answer}");
    }
}
