use hybrid_operator_test::scripted::Script;
use serde_json::{Value, json};

use super::*;
use crate::diagnosis::{Cause, cause};

const DEPLOYMENT: &str = "GET /apis/apps/v1/namespaces/prod/deployments/db";
const PODS: &str = "GET /api/v1/namespaces/prod/pods";
const EVENTS: &str = "GET /api/v1/namespaces/prod/events";

fn key(group: &str, kind: &str, name: &str) -> ObjectKey {
    ObjectKey {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: Some("prod".to_owned()),
        name: name.to_owned(),
    }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "db", "uid": "d"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
    })
}

fn pod(name: &str, state: &Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "namespace": "prod"},
        "spec": {"containers": []},
        "status": {"phase": "Pending", "containerStatuses": [{
            "name": "db", "image": "x", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": state},
            "lastState": {"terminated": {"exitCode": 2}},
        }]},
    })
}

/// A script that serves discovery.
fn script() -> Script {
    let script = Script::default();
    script.serve_discovery();
    script
}

async fn examine(script: &Script, keys: &[ObjectKey]) -> Option<Cause> {
    cause(&Cluster::new(script.client()), keys, true).await
}

#[tokio::test]
async fn the_cause_names_object_pod_and_image() {
    let starting = pod("db-a", &json!({"reason": "ContainerCreating"}));
    let failing = pod(
        "db-b",
        &json!({"reason": "ErrImagePull", "message": "x: not found"}),
    );
    let event = json!({
        "metadata": {}, "involvedObject": {}, "reason": "Failed",
        "message": "Failed to pull image", "count": 12,
    });
    let script = script()
        .on(DEPLOYMENT, 200, deployment())
        .on(PODS, 200, json!({"items": [starting, failing]}))
        .on(EVENTS, 200, json!({"items": [event]}));
    let found = examine(&script, &[key("apps", "Deployment", "db")])
        .await
        .unwrap();
    assert_eq!(found.reason.as_str(), "ImagePullFailed");
    assert_eq!(
        found.message,
        "Deployment/db: Pod db-b: image x not found (12 times)"
    );
    let seen = script.finish();
    let pods = seen
        .iter()
        .find(|request| request.path.ends_with("/pods"))
        .unwrap();
    assert_eq!(pods.query["labelSelector"], "app=db");
    assert_eq!(pods.query["limit"], "100");
    let events = seen
        .iter()
        .find(|request| request.path.ends_with("/events"))
        .unwrap();
    assert_eq!(events.query["fieldSelector"], "involvedObject.uid=db-b");
}

#[tokio::test]
async fn the_log_of_a_crash_is_shown_without_control_characters() {
    let crashing = pod("db-a", &json!({"reason": "CrashLoopBackOff"}));
    let script = script()
        .on(DEPLOYMENT, 200, deployment())
        .on(PODS, 200, json!({"items": [crashing]}))
        .on_text(
            "GET /api/v1/namespaces/prod/pods/db-a/log",
            200,
            "\u{1b}[31mERROR\u{1b}[0m no\tdatabase\n\nbye\u{7}\n",
        );
    let found = examine(&script, &[key("apps", "Deployment", "db")])
        .await
        .unwrap();
    assert_eq!(found.reason.as_str(), "CrashLoop");
    assert_eq!(
        found.message,
        "Deployment/db: Pod db-a: container db exited with code 2, 3 restarts; its log ends with:\nERROR no database\nbye"
    );
    let seen = script.finish();
    let log = &seen.last().unwrap().query;
    assert_eq!(
        (log["container"].as_str(), log["previous"].as_str()),
        ("db", "true")
    );
    assert_eq!(log["tailLines"], "5");
}

#[tokio::test]
async fn without_crash_logs_no_log_is_read() {
    let crashing = pod("web", &json!({"reason": "CrashLoopBackOff"}));
    let script = script().on("GET /api/v1/namespaces/prod/pods/web", 200, crashing);
    let cluster = Cluster::new(script.client());
    let found = cause(&cluster, &[key("", "Pod", "web")], false)
        .await
        .unwrap();
    assert_eq!(found.reason.as_str(), "CrashLoop");
    assert!(!found.message.contains("log"), "{}", found.message);
    script.finish();
}

#[tokio::test]
async fn without_permission_to_list_pods_the_message_says_so() {
    let forbidden = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
    let script = script()
        .on(DEPLOYMENT, 200, deployment())
        .on(PODS, 403, forbidden);
    let found = examine(&script, &[key("apps", "Deployment", "db")])
        .await
        .unwrap();
    assert_eq!(found.reason.as_str(), "ObjectsNotReady");
    assert!(found.message.contains("may not list"), "{}", found.message);
}

#[tokio::test]
async fn what_cannot_run_is_the_cause_of_what_crashes() {
    let crashing = pod("web", &json!({"reason": "CrashLoopBackOff"}));
    let missing = pod(
        "db",
        &json!({"reason": "CreateContainerConfigError", "message": "secret \"auth\" not found"}),
    );
    let script = script()
        .on("GET /api/v1/namespaces/prod/pods/web", 200, crashing)
        .on_text("GET /api/v1/namespaces/prod/pods/web/log", 200, "")
        .on("GET /api/v1/namespaces/prod/pods/db", 200, missing);
    let found = examine(&script, &[key("", "Pod", "web"), key("", "Pod", "db")]).await;
    let found = found.unwrap();
    assert_eq!(
        (found.reason.as_str(), found.message.as_str()),
        ("SecretMissing", "Pod/db: Secret auth not found")
    );
    script.finish();
}

#[tokio::test]
async fn kinds_without_pods_are_not_read() {
    let script = Script::default();
    let keys = [
        key("", "Service", "db"),
        key("example.com", "Database", "db"),
    ];
    assert_eq!(examine(&script, &keys).await, None);
    assert!(script.finish().is_empty());
}
