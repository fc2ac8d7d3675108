use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::{Answer, Unreadable, mutation, validation};
use crate::webhook::{Denied, Operation, Request};

const DEADLINE: Duration = Duration::from_secs(8);

fn review(operation: &str, object: &Value, old: &Value) -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": operation, "name": "map", "namespace": "ns", "dryRun": true,
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "userInfo": {"username": "anna"}, "object": object, "oldObject": old,
        },
    });
    review.to_string().into_bytes()
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": data})
}

async fn response(answer: &Answer, body: Vec<u8>) -> Value {
    let answer = answer(body).await.unwrap();
    let review: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(review["response"]["uid"], "u");
    review["response"].clone()
}

#[tokio::test]
async fn function_sees_the_request_and_its_warnings_are_returned() {
    let answer = validation::<ConfigMap, _, _>(
        |request: Request<ConfigMap>| async move {
            assert_eq!(request.operation(), &Operation::Update);
            assert_eq!((request.namespace(), request.name()), (Some("ns"), "map"));
            assert_eq!(request.user().username.as_deref(), Some("anna"));
            assert!(request.is_dry_run() && request.review().object.is_none());
            request.warn("old-fashioned");
            if request.object().data == request.old().unwrap().data {
                return Err(Denied::invalid("data", "nothing changes"));
            }
            Ok(())
        },
        DEADLINE,
    );
    let (one, two) = (map(&json!({"a": "1"})), map(&json!({"a": "2"})));
    let allowed = response(&answer, review("UPDATE", &one, &two)).await;
    assert_eq!(allowed["allowed"], true);
    assert_eq!(allowed["warnings"], json!(["old-fashioned"]));
    assert_eq!(allowed["patch"], Value::Null);
    let denied = response(&answer, review("UPDATE", &one, &one)).await;
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["status"]["message"], "data: nothing changes");
    assert_eq!(denied["status"]["code"], 422);
    assert_eq!(denied["status"]["reason"], "Invalid");
    assert_eq!(denied["warnings"], json!(["old-fashioned"]));
}

#[tokio::test]
async fn objects_of_another_shape_are_denied_with_the_field() {
    let answer = validation::<ConfigMap, _, _>(
        |request: Request<ConfigMap>| async move {
            assert!(request.old().is_none());
            Ok(())
        },
        DEADLINE,
    );
    let (good, bad) = (map(&json!({"a": "1"})), map(&json!({"a": 1})));
    let denied = response(&answer, review("CREATE", &bad, &Value::Null)).await;
    let message = denied["status"]["message"].as_str().unwrap();
    let begin = "ConfigMap ns/map does not have the fields";
    assert!(message.starts_with(begin), "{message}");
    let field = "data.a: invalid type: integer";
    assert!(message.contains(field), "{message}");
    // A stored object of another shape can be repaired, but is not deleted unseen.
    let repaired = response(&answer, review("UPDATE", &good, &bad)).await;
    assert_eq!(repaired["allowed"], true);
    let kept = response(&answer, review("DELETE", &Value::Null, &bad)).await;
    assert_eq!(kept["allowed"], false);
    let gone = response(&answer, review("DELETE", &Value::Null, &good)).await;
    assert_eq!(gone["allowed"], true);
}

#[tokio::test]
async fn mutation_returns_a_patch_of_what_it_changed() {
    let answer = mutation::<ConfigMap, _, _>(
        |mut map: ConfigMap, _| async move {
            if map.immutable == Some(true) {
                return Ok(map);
            }
            map.data
                .get_or_insert_default()
                .insert("new".to_owned(), "1".to_owned());
            Ok(map)
        },
        DEADLINE,
    );
    let mut object = map(&json!({"a": "1"}));
    object["unknown"] = json!("kept");
    let answered = response(&answer, review("CREATE", &object, &Value::Null)).await;
    assert_eq!(answered["allowed"], true);
    assert_eq!(answered["patchType"], "JSONPatch");
    // kube writes the bytes of the patch as numbers, which the API server reads like base64.
    let patch: Vec<u8> = serde_json::from_value(answered["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let expected = json!([{"op": "add", "path": "/data/new", "value": "1"}]);
    assert_eq!(patch, expected);
    object["immutable"] = json!(true);
    let answered = response(&answer, review("CREATE", &object, &Value::Null)).await;
    assert_eq!(answered["allowed"], true);
    assert_eq!(answered["patch"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn function_that_panics_or_takes_too_long_is_a_denial() {
    let answer = validation::<ConfigMap, _, _>(
        |request: Request<ConfigMap>| {
            // Not only what the future does may panic.
            assert!(
                !request.is_dry_run() || request.object().immutable.is_none(),
                "on purpose"
            );
            std::future::pending()
        },
        DEADLINE,
    );
    let mut object = map(&json!({}));
    let late = response(&answer, review("CREATE", &object, &Value::Null)).await;
    let message = &late["status"]["message"];
    assert_eq!(message, "the function of the webhook took longer than 8s");
    object["immutable"] = json!(true);
    let panicked = response(&answer, review("CREATE", &object, &Value::Null)).await;
    assert_eq!(panicked["allowed"], false);
    assert_eq!(panicked["status"]["code"], 500);
}

#[tokio::test]
async fn errors_of_other_libraries_deny_with_their_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot look up the class")]
    struct Outer(#[source] std::fmt::Error);
    let answer =
        validation::<ConfigMap, _, _>(|_| async { Err(Outer(std::fmt::Error))? }, DEADLINE);
    let denied = response(&answer, review("CREATE", &map(&json!({})), &Value::Null)).await;
    let message = denied["status"]["message"].as_str().unwrap();
    let expected = "cannot look up the class: an error occurred";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(denied["status"]["code"], 500);
}

#[tokio::test]
async fn bodies_that_are_no_reviews_are_errors() {
    let answer = validation::<ConfigMap, _, _>(|_| async { Ok(()) }, DEADLINE);
    let no_request = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#;
    for (body, is_json) in [("{", false), ("[]", false), (no_request, true)] {
        let error = answer(body.as_bytes().to_vec()).await.unwrap_err();
        assert_eq!(matches!(error, Unreadable::NoRequest), is_json, "{error:?}");
    }
}
