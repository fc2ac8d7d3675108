//! Findings of the comparison with kube-apiserver that differ from what one expects.

use http::Method;
use http_body_util::BodyExt;

use super::*;

/// Sends a request, and returns the status code, the body and the warnings.
async fn send(client: &Client, method: Method, uri: &str, body: Value) -> (u16, Value, String) {
    let media_type = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", media_type)
        .body(Body::from(body))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings: Vec<&str> = warnings.map(|value| value.to_str().unwrap()).collect();
    let warnings = warnings.join("\n");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    (code, body, warnings)
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

#[tokio::test(start_paused = true)]
async fn a_failed_request_has_its_warnings() {
    let client = ApiServer::new(&Options::default()).client("default");
    let map = json!({"metadata": {"name": "x", "bogus": 1}});
    let (code, _, warnings) = send(&client, Method::PUT, &format!("{MAPS}/x"), map).await;
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
        let (code, body, _) = send(&client, Method::PUT, &uri, role).await;
        assert_eq!(code, expected, "{body}");
        assert!(code != 201 || body["rules"].is_null(), "{body}");
    }
    let map = json!({"metadata": {"name": "x", "resourceVersion": "1"}});
    assert_eq!(send(&client, Method::POST, MAPS, map).await.0, 500);
}

#[tokio::test(start_paused = true)]
async fn the_options_of_a_deletion_are_checked_before_its_object() {
    let client = ApiServer::new(&Options::default()).client("default");
    let options = json!({"propagationPolicy": "Nothing", "orphanDependents": true});
    let (code, body, _) = send(&client, Method::DELETE, &format!("{MAPS}/none"), options).await;
    assert_eq!(code, 422);
    assert_eq!(body["details"]["causes"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn some_kinds_answer_a_deletion_with_the_object_in_a_new_version() {
    let client = ApiServer::new(&Options::default()).client("default");
    let account = json!({"metadata": {"name": "x"}});
    let (_, created, _) = send(&client, Method::POST, ACCOUNTS, account).await;
    let (_, deleted, _) = send(
        &client,
        Method::DELETE,
        &format!("{ACCOUNTS}/x"),
        Value::Null,
    )
    .await;
    assert_eq!(deleted["metadata"]["uid"], created["metadata"]["uid"]);
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_ne!(version(&deleted), version(&created));
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_leases_need_no_domain_and_prefixes_of_names_lose_two_characters() {
    let client = ApiServer::new(&Options::default()).client("default");
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["f"]}});
    assert_eq!(send(&client, Method::POST, LEASES, held("x")).await.0, 201);
    assert_eq!(send(&client, Method::POST, MAPS, held("x")).await.0, 422);
    // Only the generated name is invalid: of the prefix, the last two characters are not looked at.
    let map = json!({"metadata": {"generateName": "G-"}});
    let (code, body, _) = send(&client, Method::POST, MAPS, map).await;
    assert_eq!(code, 422);
    let fields: Vec<&Value> = body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| &cause["field"])
        .collect();
    assert_eq!(fields, ["metadata.name"]);
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_replaces_missing_fields_of_objects_that_are_there() {
    let client = ApiServer::new(&Options::default()).client("default");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map = parsed(json!({"metadata": {"name": "x"}, "data": {"a": "b"}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let replace = |path: &str| -> Patch<()> {
        Patch::Json(parsed(
            json!([{"op": "replace", "path": path, "value": "c"}]),
        ))
    };
    let params = PatchParams::default();
    assert!(
        maps.patch("x", &params, &replace("/data/none"))
            .await
            .is_ok()
    );
    assert!(maps.patch("x", &params, &replace("/none/a")).await.is_err());
}

/// The garbage collector and the controller of namespaces use the preferred version of a kind.
#[tokio::test(start_paused = true)]
async fn controllers_drop_fields_that_the_preferred_version_does_not_have() {
    let server = ApiServer::new(&Options::default());
    let client = server.client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = serde_json::to_value(definition("Namespaced")).unwrap();
    let newer = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
    definition["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(newer);
    definitions
        .create(&PostParams::default(), &parsed(definition))
        .await
        .unwrap();
    sleep(SOON).await;
    let mut metadata = json!({"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "none",
        "uid": "11111111-0000-0000-0000-000000000000"}]});
    metadata["name"] = json!("x");
    metadata["finalizers"] = json!(["example.com/f"]);
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": {"size": 3},
    });
    let things = things(client);
    let created = things
        .create(&PostParams::default(), &parsed(thing))
        .await
        .unwrap();
    assert_eq!(created.data["spec"]["size"], 3);
    sleep(SOON).await;
    let left = things.get("x").await.unwrap();
    assert!(left.metadata.deletion_timestamp.is_some());
    assert_eq!(left.data.get("spec"), None);
}

#[tokio::test(start_paused = true)]
async fn requests_to_custom_resources_fail_in_their_own_way() {
    let server = ApiServer::new(&Options::default());
    let client = server.client("default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = serde_json::to_value(definition("Namespaced")).unwrap();
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["schema"]["openAPIV3Schema"]["properties"] = json!({
        "spec": {"type": "object", "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    });
    definitions
        .create(&PostParams::default(), &parsed(definition))
        .await
        .unwrap();
    sleep(SOON).await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = |spec: Value, finalizers: Value| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "spec": spec,
            "metadata": {"name": "x", "finalizers": finalizers},
        })
    };
    let (code, _, warnings) = send(
        &client,
        Method::POST,
        things,
        thing(json!({}), json!(["f"])),
    )
    .await;
    assert_eq!(code, 201);
    assert!(
        warnings.contains("prefer a domain-qualified finalizer name"),
        "{warnings}"
    );
    // A text reports only the first rule that it breaks.
    let (code, body, _) = send(
        &client,
        Method::POST,
        things,
        thing(json!({"name": ""}), Value::Null),
    )
    .await;
    assert_eq!(
        (code, body["details"]["causes"].as_array().unwrap().len()),
        (422, 1)
    );
    // The words about a status do not name it.
    let status = json!({"status": {"phase": 1}});
    let (_, body, _) = send(
        &client,
        Method::PATCH,
        &format!("{things}/x/status"),
        status,
    )
    .await;
    let cause = &body["details"]["causes"][0];
    assert_eq!(cause["field"], "status.phase");
    let words = "Invalid value: \"integer\": phase in body must be of type string: \"integer\"";
    assert_eq!(cause["message"], words);
    for (method, uri, body, expected) in [
        (
            Method::PUT,
            things.to_owned(),
            json!({}),
            (400, "name must be provided"),
        ),
        (
            Method::POST,
            format!("{things}/x"),
            json!({}),
            (400, "the object provided is"),
        ),
        (
            Method::GET,
            format!("{things}/x/none"),
            Value::Null,
            (404, "things.example.com \"x\""),
        ),
        (
            Method::GET,
            format!("{things}?fieldSelector=a=b"),
            Value::Null,
            (400, "field label not"),
        ),
    ] {
        let (code, answer, _) = send(&client, method, &uri, body).await;
        let message = answer["message"].as_str().unwrap();
        assert!(
            code == expected.0 && message.starts_with(expected.1),
            "{uri}: {answer}"
        );
    }
}
