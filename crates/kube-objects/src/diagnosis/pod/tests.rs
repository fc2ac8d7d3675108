use serde_json::{Value, json};

use super::*;
use crate::diagnosis::event::{Told, told};

/// Returns a Pod with this status. Conditions and container statuses are as the kubelet and the
/// scheduler write them.
fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "db-0", "uid": "1"},
        "spec": {
            "containers": [],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
                {"name": "auth", "secret": {"secretName": "auth"}},
            ],
        },
        "status": status,
    }))
    .unwrap()
}

fn container(state: &Value, more: &Value) -> Value {
    let mut container = json!({
        "name": "db", "image": "example.com/db:1", "imageID": "", "ready": false,
        "restartCount": 0, "state": state,
    });
    for (name, value) in more.as_object().unwrap() {
        container[name] = value.clone();
    }
    container
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn with_container(phase: &str, container: &Value) -> Pod {
    pod(&json!({"phase": phase, "containerStatuses": [container]}))
}

fn event(reason: &str, message: &str, count: i32) -> Event {
    serde_json::from_value(json!({
        "metadata": {}, "involvedObject": {}, "reason": reason, "message": message, "count": count,
    }))
    .unwrap()
}

#[test]
fn pods_that_are_ready_complete_or_deleted_have_no_symptom() {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for status in [
        json!({"phase": "Running", "conditions": ready}),
        json!({"phase": "Succeeded"}),
        json!({"phase": "Pending"}),
    ] {
        assert_eq!(symptom(&pod(&status)), None, "{status}");
    }
    let crashing = container(&waiting("CrashLoopBackOff", ""), &json!({}));
    let mut deleted = with_container("Running", &crashing);
    assert!(symptom(&deleted).is_some());
    deleted.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap());
    assert_eq!(symptom(&deleted), None);
}

#[test]
fn what_a_waiting_container_waits_for_is_named() {
    let pull = Clue::Events(Expected::Pull);
    for (reason, message, expected, text, clue) in [
        (
            "ErrImagePull",
            r#"failed to pull and unpack image "example.com/db:1": failed to resolve reference "example.com/db:1": example.com/db:1: not found"#,
            "ImagePullFailed",
            "image example.com/db:1 not found",
            pull.clone(),
        ),
        (
            "ImagePullBackOff",
            r#"Back-off pulling image "example.com/db:1""#,
            "ImagePullFailed",
            "image example.com/db:1 cannot be pulled",
            pull.clone(),
        ),
        (
            "ErrImagePull",
            "pull access denied, repository does not exist or may require authorization",
            "ImagePullFailed",
            "image example.com/db:1: access denied; is an imagePullSecret missing or wrong?",
            pull.clone(),
        ),
        (
            "ErrImagePull",
            "dial tcp: lookup example.com: no such host",
            "ImagePullFailed",
            "image example.com/db:1: dial tcp: lookup example.com: no such host",
            pull,
        ),
        (
            "InvalidImageName",
            "Failed to apply default image tag",
            "ImagePullFailed",
            "image example.com/db:1 is not a valid name",
            Clue::None,
        ),
        (
            "CreateContainerConfigError",
            r#"secret "db-auth" not found"#,
            "SecretMissing",
            "Secret db-auth not found",
            Clue::None,
        ),
        (
            "CreateContainerConfigError",
            r#"configmap "db" not found"#,
            "ConfigMapMissing",
            "ConfigMap db not found",
            Clue::None,
        ),
        (
            "CreateContainerConfigError",
            "couldn't find key password in Secret prod/db-auth",
            "ContainerNotStarted",
            "container db: couldn't find key password in Secret prod/db-auth",
            Clue::None,
        ),
        (
            "ContainerCreating",
            "",
            "ContainerCreating",
            "container db is being created",
            Clue::Events(Expected::Setup),
        ),
    ] {
        let pod = with_container("Pending", &container(&waiting(reason, message), &json!({})));
        let found = symptom(&pod).unwrap();
        assert_eq!(found.finding.reason.as_str(), expected, "{message}");
        assert_eq!(found.finding.text(), text);
        assert_eq!(found.clue, clue, "{message}");
    }
}

#[test]
fn a_crashed_container_is_shown_with_its_exit_code_restarts_and_log() {
    let ended =
        |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
    let log = |previous, restarts| Clue::Log {
        container: "db".to_owned(),
        previous,
        restarts,
    };
    for (state, more, reason, message, clue) in [
        (
            waiting(
                "CrashLoopBackOff",
                "back-off 5m0s restarting failed container",
            ),
            json!({"restartCount": 7, "lastState": ended(3, "Error")}),
            "CrashLoop",
            "container db exited with code 3, 7 restarts",
            log(true, 7),
        ),
        // Between two crashes it runs.
        (
            json!({"running": {}}),
            json!({"restartCount": 1, "lastState": ended(3, "Error")}),
            "CrashLoop",
            "container db exited with code 3, 1 restart",
            log(true, 1),
        ),
        (
            ended(1, "Error"),
            json!({}),
            "CrashLoop",
            "container db exited with code 1",
            log(false, 0),
        ),
        (
            waiting("CrashLoopBackOff", ""),
            json!({"restartCount": 2, "lastState": ended(137, "OOMKilled")}),
            "OOMKilled",
            "container db ran out of memory, 2 restarts",
            log(true, 2),
        ),
    ] {
        let found = symptom(&with_container("Running", &container(&state, &more))).unwrap();
        assert_eq!(found.finding.reason.as_str(), reason);
        assert_eq!(found.finding.text(), message);
        assert_eq!(found.clue, clue);
    }
}

#[test]
fn an_init_container_comes_before_the_containers_that_wait_for_it() {
    let crashed = container(
        &waiting("CrashLoopBackOff", ""),
        &json!({"name": "migrate", "restartCount": 2, "lastState": {"terminated": {"exitCode": 1}}}),
    );
    let waits = container(&waiting("PodInitializing", ""), &json!({}));
    let pod = pod(&json!({
        "phase": "Pending", "initContainerStatuses": [crashed], "containerStatuses": [waits],
    }));
    let found = symptom(&pod).unwrap();
    let expected = "container migrate exited with code 1, 2 restarts";
    assert_eq!(found.finding.text(), expected);
}

#[test]
fn the_schedulers_words_are_shown_and_unbound_claims_are_looked_at() {
    let words = "0/3 nodes are available: 3 Insufficient cpu.";
    let condition = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}]);
    let found = symptom(&pod(&json!({"phase": "Pending", "conditions": condition}))).unwrap();
    assert_eq!(found.finding.reason.as_str(), "Unschedulable");
    assert_eq!(found.finding.text(), words);
    assert_eq!(found.clue, Clue::Claims(vec!["data-db-0".to_owned()]));
}

#[test]
fn an_evicted_pod_is_shown_with_the_reason() {
    let status = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
    let found = symptom(&pod(&status)).unwrap();
    assert_eq!(found.finding.reason.as_str(), "PodFailed");
    let expected = "Evicted: The node was low on resource: memory.";
    assert_eq!(found.finding.text(), expected);
    let unknown = symptom(&pod(&json!({"phase": "Failed"}))).unwrap();
    assert_eq!(unknown.finding.text(), "it failed");
}

/// Explains the symptom of a container in this state with events: reason, message and number.
fn explain(state: &Value, events: &[(&str, &str, i32)]) -> Finding {
    let pod = with_container("Running", &container(state, &json!({})));
    let found = symptom(&pod).unwrap();
    let Clue::Events(expected) = found.clue else {
        panic!("{found:?}")
    };
    let mut events = events
        .iter()
        .map(|(reason, message, count)| event(reason, message, *count));
    match events.find(|event| told(event) == Some(Told::Of(expected))) {
        Some(event) => explained(found.finding, expected, &pod, &event),
        None => found.finding,
    }
}

#[test]
fn events_tell_what_the_status_does_not() {
    let pulling = r#"Back-off pulling image "example.com/db:1""#;
    let unknown = r#"Failed to pull image "example.com/db:1": manifest unknown"#;
    let mount = r#"MountVolume.SetUp failed for volume "auth" : secret "auth" not found"#;
    let attach = "Multi-Attach error for volume \"pvc-1\"";
    let probe = "Readiness probe failed: HTTP probe failed with statuscode: 503";
    let backoff = waiting("ImagePullBackOff", pulling);
    let creating = waiting("ContainerCreating", "");
    let running = json!({"running": {}});
    for (state, events, reason, message) in [
        (
            &backoff,
            &[("BackOff", pulling, 40), ("Failed", unknown, 12)][..],
            "ImagePullFailed",
            "image example.com/db:1 not found (12 times)",
        ),
        (
            &backoff,
            &[],
            "ImagePullFailed",
            "image example.com/db:1 cannot be pulled",
        ),
        (
            &creating,
            &[("FailedMount", mount, 5)],
            "SecretMissing",
            "Secret auth not found (5 times)",
        ),
        (
            &creating,
            &[("FailedAttachVolume", attach, 1)],
            "VolumePending",
            attach,
        ),
        (
            &creating,
            &[("FailedCreatePodSandBox", "failed to set up the network", 2)],
            "SandboxFailed",
            "failed to set up the network (2 times)",
        ),
        (
            &creating,
            &[("Pulling", "Pulling image", 1)],
            "ContainerCreating",
            "container db is being created",
        ),
        (
            &running,
            &[("Unhealthy", probe, 9)],
            "ProbeFailed",
            "Readiness probe failed: HTTP probe failed with statuscode: 503 (9 times)",
        ),
        (
            &running,
            &[],
            "ContainerNotReady",
            "container db is running but not ready",
        ),
    ] {
        let found = explain(state, events);
        assert_eq!(found.reason.as_str(), reason);
        assert_eq!(found.text(), message);
    }
}
