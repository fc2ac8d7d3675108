use hybrid_operator_test::scripted::Script;
use serde_json::{Value, json};

use super::*;

const PODS: &str = "GET /api/v1/namespaces/prod/pods";
const EVENTS: &str = "GET /api/v1/namespaces/prod/events";
const CLAIMS: &str = "GET /api/v1/namespaces/prod/persistentvolumeclaims";

fn place(kind: &'static str, name: &str) -> Place {
    Place::new(kind, name)
}

fn stateful_sets(names: &[String]) -> Vec<Place> {
    let places = names.iter().map(|name| place("StatefulSet", name));
    places.collect()
}

/// A Pod of this controller whose container waits.
fn pod(name: &str, owner: (&str, &str), state: &Value) -> Value {
    let (kind, owner) = owner;
    let reference =
        json!({"apiVersion": "v1", "kind": kind, "name": owner, "uid": "o", "controller": true});
    json!({
        "metadata": {"name": name, "uid": name, "namespace": "prod", "ownerReferences": [reference]},
        "spec": {"containers": []},
        "status": {"phase": "Pending", "containerStatuses": [{
            "name": "db", "image": "x", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": state},
            "lastState": {"terminated": {"exitCode": 2}},
        }]},
    })
}

fn failing(name: &str, owner: (&str, &str)) -> Value {
    let state = json!({"reason": "ErrImagePull", "message": "x: not found"});
    pod(name, owner, &state)
}

fn crashing(name: &str, owner: (&str, &str)) -> Value {
    pod(name, owner, &json!({"reason": "CrashLoopBackOff"}))
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {}, "items": items})
}

fn event(about: &Value, reason: &str, message: &str, seen: &str) -> Value {
    json!({
        "metadata": {}, "involvedObject": about, "reason": reason, "message": message, "count": 12,
        "lastTimestamp": seen,
    })
}

async fn examine_all(
    script: &Script,
    cases: &mut BTreeMap<Place, Case>,
) -> Result<(), kube::Error> {
    let client = script.client();
    let reader = Reader {
        client: &client,
        namespace: "prod",
    };
    examine(&reader, &Selection::default(), cases).await
}

/// Examines these objects. Returns the reason and the text of what was found about each one.
async fn found(
    script: &Script,
    places: &[Place],
    cases: &mut BTreeMap<Place, Case>,
) -> Vec<(&'static str, String)> {
    for place in places {
        cases.entry(place.clone()).or_default().logs = true;
    }
    examine_all(script, cases).await.unwrap();
    let text = |case: &Case| match &case.finding {
        Some(finding) => (finding.reason.as_str(), finding.text()),
        None => ("", String::new()),
    };
    places.iter().map(|place| text(&cases[place])).collect()
}

/// Examines one object.
async fn finding(script: &Script, place: Place) -> (&'static str, String) {
    let found = found(script, &[place], &mut BTreeMap::new()).await;
    found.into_iter().next().unwrap()
}

#[tokio::test]
async fn cause_names_pod_and_image_and_the_newest_event_counts() {
    let owner = ("ReplicaSet", "db-5d4f");
    let starting = pod("db-a", owner, &json!({"reason": "ContainerCreating"}));
    let about = json!({"kind": "Pod", "name": "db-b", "uid": "db-b"});
    let pull = "Failed to pull image";
    let events = [
        event(
            &about,
            "Failed",
            &format!("{pull}: old"),
            "2025-01-01T00:00:00Z",
        ),
        event(&about, "Failed", pull, "2025-01-01T01:00:00Z"),
    ];
    let script = Script::default()
        .on(PODS, 200, list(&[starting, failing("db-b", owner)]))
        .on(EVENTS, 200, list(&events));
    let found = finding(&script, place("Deployment", "db")).await;
    let text = "Pod db-b: image x not found (12 times)".to_owned();
    assert_eq!(found, ("ImagePullFailed", text));
    let seen = script.finish();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].query["fieldSelector"], "type=Warning");
}

#[tokio::test]
async fn any_number_of_objects_takes_the_requests_of_one() {
    let requests = async |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("db{number}")).collect();
        let pod = |name: &String| failing(&format!("{name}-0"), ("StatefulSet", name));
        let pods: Vec<Value> = names.iter().map(pod).collect();
        let script = Script::default()
            .on(PODS, 200, list(&pods))
            .on(EVENTS, 200, list(&[]));
        let places = stateful_sets(&names);
        let found = found(&script, &places, &mut BTreeMap::new()).await;
        for (index, (reason, text)) in found.iter().enumerate() {
            assert_eq!(*reason, "ImagePullFailed");
            assert!(text.starts_with(&format!("Pod db{index}-0: ")), "{text}");
        }
        script.finish().len()
    };
    assert_eq!(requests(1).await, 2);
    assert_eq!(requests(200).await, 2);
}

#[tokio::test]
async fn pods_are_read_in_pages_and_those_of_others_are_not_kept() {
    let others = failing("other-0", ("StatefulSet", "other"));
    let ours = failing("db-0", ("StatefulSet", "db"));
    let first = json!({"metadata": {"continue": "more"}, "items": [others]});
    let script = Script::default()
        .on(PODS, 200, first)
        .on(PODS, 200, list(&[ours]))
        .on(EVENTS, 200, list(&[]));
    let (reason, _) = finding(&script, place("StatefulSet", "db")).await;
    assert_eq!(reason, "ImagePullFailed");
    let seen = script.finish();
    assert_eq!(seen[0].query["limit"], "250");
    assert_eq!(seen[1].query["continue"], "more");
}

#[tokio::test]
async fn what_cannot_be_read_leaves_what_is_known() {
    let unavailable = json!({"kind": "Status", "status": "Failure", "code": 503});
    let script = Script::default()
        .on(PODS, 200, list(&[failing("db-0", ("StatefulSet", "db"))]))
        .on(EVENTS, 503, unavailable);
    let known = Finding::new(Severity::CannotRun, Reason::ImagePullFailed, "m".to_owned());
    let case = Case {
        finding: Some(known.clone()),
        ..Case::default()
    };
    let mut cases = BTreeMap::from([(place("StatefulSet", "db"), case)]);
    assert!(examine_all(&script, &mut cases).await.is_err());
    assert_eq!(cases[&place("StatefulSet", "db")].finding, Some(known));
    script.finish();
}

#[tokio::test]
async fn controller_that_cannot_create_pods_is_explained_by_its_event() {
    let text = "pods \"db-1\" is forbidden: exceeded quota: small";
    for (kind, controller, name) in [
        ("Deployment", "ReplicaSet", "db-5d4f"),
        ("ReplicaSet", "ReplicaSet", "db"),
        ("StatefulSet", "StatefulSet", "db"),
        ("DaemonSet", "DaemonSet", "db"),
        ("Job", "Job", "db"),
    ] {
        let about = json!({"kind": controller, "name": name, "uid": "r"});
        let failed = event(&about, "FailedCreate", text, "2025-01-01T00:00:00Z");
        let script = Script::default()
            .on(PODS, 200, list(&[]))
            .on(EVENTS, 200, list(&[failed]));
        let (reason, message) = finding(&script, place(kind, "db")).await;
        assert_eq!(reason, "QuotaExceeded", "{kind}");
        assert!(message.ends_with("small (12 times)"), "{message}");
        script.finish();
    }
}

#[tokio::test]
async fn deployment_whose_name_begins_like_another_is_not_confused_with_it() {
    let pods = list(&[failing("db-web-5d4f-x", ("ReplicaSet", "db-web-5d4f"))]);
    let script = Script::default()
        .on(PODS, 200, pods.clone())
        .on(EVENTS, 200, list(&[]))
        .on(PODS, 200, pods)
        .on(EVENTS, 200, list(&[]));
    assert_eq!(finding(&script, place("Deployment", "db")).await.0, "");
    let found = finding(&script, place("Deployment", "db-web")).await;
    assert_eq!(found.0, "ImagePullFailed");
    script.finish();
}

#[tokio::test]
async fn log_of_a_crash_is_shown_without_control_characters_and_read_once_per_restart() {
    let pods = list(&[crashing("db-a", ("StatefulSet", "db"))]);
    let script = Script::default()
        .on(PODS, 200, pods.clone())
        .on_text(
            "GET /api/v1/namespaces/prod/pods/db-a/log",
            200,
            "\u{1b}[31mERROR\u{1b}[0m no\tdatabase\n\nbye\u{7}\n",
        )
        .on(PODS, 200, pods.clone())
        .on(PODS, 200, pods);
    let mut cases = BTreeMap::new();
    for _ in 0..3 {
        let found = found(&script, &[place("StatefulSet", "db")], &mut cases).await;
        let text = "Pod db-a: container db exited with code 2, 3 restarts; its log ends with:\nERROR no database\nbye";
        assert_eq!(found, [("CrashLoop", text.to_owned())]);
    }
    let seen = script.finish();
    let logs = seen.iter().filter(|request| request.path.ends_with("/log"));
    let logs: Vec<_> = logs.collect();
    assert_eq!(logs.len(), 1);
    let query = &logs[0].query;
    assert_eq!(query["container"], "db");
    assert_eq!(query["previous"], "true");
    assert_eq!(query["tailLines"], "5");
}

#[tokio::test]
async fn logs_of_many_crashes_are_read_in_several_rounds() {
    let names: Vec<String> = (0..12).map(|number| format!("db{number:02}")).collect();
    let pod = |name: &String| crashing(&format!("{name}-0"), ("StatefulSet", name));
    let pods: Vec<Value> = names.iter().map(pod).collect();
    let mut script = Script::default();
    for (index, name) in names.iter().enumerate() {
        if index % MAX_LOGS == 0 {
            script = script.on(PODS, 200, list(&pods));
        }
        let log = format!("GET /api/v1/namespaces/prod/pods/{name}-0/log");
        script = script.on_text(&log, 200, "bye\n");
    }
    script = script.on(PODS, 200, list(&pods));
    let places = stateful_sets(&names);
    let mut cases = BTreeMap::new();
    for shown in [5, 10, 12, 12] {
        let found = found(&script, &places, &mut cases).await;
        let with_log = found.iter().filter(|(_, text)| text.ends_with("bye"));
        assert_eq!(with_log.count(), shown);
    }
    let seen = script.finish();
    let logs = seen.iter().filter(|request| request.path.ends_with("/log"));
    assert_eq!(logs.count(), 12);
}

#[tokio::test]
async fn without_crash_logs_no_log_is_read() {
    let script = Script::default().on(PODS, 200, list(&[crashing("db", ("Other", "x"))]));
    let mut cases = BTreeMap::from([(place("Pod", "db"), Case::default())]);
    examine_all(&script, &mut cases).await.unwrap();
    let finding = cases[&place("Pod", "db")].finding.clone().unwrap();
    let expected = "container db exited with code 2, 3 restarts";
    assert_eq!(finding.text(), expected);
    script.finish();
}

#[tokio::test]
async fn without_permission_to_list_pods_the_message_says_so() {
    let forbidden = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
    let script = Script::default().on(PODS, 403, forbidden);
    let (reason, message) = finding(&script, place("Deployment", "db")).await;
    assert_eq!(reason, "ObjectsNotReady");
    assert!(message.contains("may not list"), "{message}");
    script.finish();
}

#[tokio::test]
async fn claim_that_is_not_bound_is_explained() {
    let claim =
        |phase: &str| json!({"metadata": {"name": "data", "uid": "c"}, "status": {"phase": phase}});
    let about = json!({"kind": "PersistentVolumeClaim", "name": "data", "uid": "c"});
    let why = "no storage class is set";
    let failed = event(&about, "FailedBinding", why, "2025-01-01T00:00:00Z");
    let script = Script::default()
        .on(CLAIMS, 200, list(&[claim("Pending")]))
        .on(EVENTS, 200, list(&[]))
        .on(EVENTS, 200, list(&[failed]));
    let own = || place("PersistentVolumeClaim", "data");
    let text = "no storage class is set (12 times)".to_owned();
    assert_eq!(finding(&script, own()).await, ("VolumePending", text));
    let seen = script.finish();
    assert_eq!(seen[2].query["fieldSelector"], "reason=FailedBinding");

    let script = Script::default().on(CLAIMS, 200, list(&[claim("Bound")]));
    assert_eq!(finding(&script, own()).await.0, "");
    script.finish();
    let script = Script::default().on(CLAIMS, 200, list(&[]));
    assert_eq!(finding(&script, own()).await.1, "it does not exist");
    script.finish();
}

#[test]
fn kinds_without_pods_have_no_place() {
    for (group, kind) in [
        ("", "Service"),
        ("example.com", "Deployment"),
        ("apps", "Job"),
    ] {
        let key = ObjectKey {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("prod".to_owned()),
            name: "db".to_owned(),
        };
        assert_eq!(Place::of(&key), None);
    }
}
