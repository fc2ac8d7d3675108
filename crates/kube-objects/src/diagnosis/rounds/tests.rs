use std::sync::atomic::{AtomicUsize, Ordering};

use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
use serde_json::{Value, json};

use super::*;

const PODS: &str = "/api/v1/namespaces/prod/pods";
const EVENTS: &str = "/api/v1/namespaces/prod/events";

fn stateful_set(name: &str) -> ObjectKey {
    ObjectKey {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "StatefulSet".to_owned(),
        namespace: Some("prod".to_owned()),
        name: name.to_owned(),
    }
}

/// The Pods of these `StatefulSet`s, whose containers have crashed so often.
fn pods(names: &[String], restarts: i32) -> Value {
    let pod = |name: &String| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "o", "controller": true});
        json!({
            "metadata": {"name": format!("{name}-0"), "uid": name, "ownerReferences": [owner]},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "db", "image": "x", "imageID": "", "ready": false, "restartCount": restarts,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 2}},
            }]},
        })
    };
    let items: Vec<Value> = names.iter().map(pod).collect();
    json!({"metadata": {}, "items": items})
}

struct Clinic {
    api: ScriptedApi,
    rounds: Rounds,
    woken: Arc<AtomicUsize>,
    names: Vec<String>,
    patients: Vec<Arc<Patient>>,
    opened: Instant,
}

impl Clinic {
    fn new(count: usize) -> Self {
        Self {
            api: ScriptedApi::new(),
            rounds: Rounds::new(CancellationToken::new()),
            woken: Arc::default(),
            names: (0..count).map(|number| format!("db{number}")).collect(),
            patients: Vec::new(),
            opened: Instant::now(),
        }
    }

    fn crash(&self, restarts: i32) {
        self.api.on(
            When::get(PODS),
            Answer::json(200, pods(&self.names, restarts)),
        );
        let none = json!({"metadata": {}, "items": []});
        self.api.on(When::get(EVENTS), Answer::json(200, none));
    }

    fn join(&mut self, earlier: Option<&Cause>) {
        let cluster = Cluster::new(self.api.client("prod"));
        for name in &self.names {
            let woken = Arc::clone(&self.woken);
            let wake = move || {
                woken.fetch_add(1, Ordering::SeqCst);
            };
            let patient = Patient::new(wake, earlier.cloned());
            let objects = [stateful_set(name)];
            self.rounds.join(&patient, None, &cluster, &objects, false);
            // Reconciles in between change nothing.
            self.rounds.join(&patient, None, &cluster, &objects, false);
            self.patients.push(patient);
        }
    }

    /// Returns the requests and the number of woken custom resources at this time.
    async fn until(&self, time: Duration) -> (usize, usize) {
        let left = (self.opened + time) - Instant::now();
        self.after(left).await
    }

    /// Returns the requests and the number of woken custom resources after this time.
    async fn after(&self, time: Duration) -> (usize, usize) {
        tokio::time::sleep(time).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        (
            self.api.requests().len(),
            self.woken.swap(0, Ordering::SeqCst),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn namespace_is_read_once_for_all_its_releases_and_wakes_them_if_something_is_new() {
    let seconds = Duration::from_secs;
    for count in [1, 50] {
        let mut clinic = Clinic::new(count);
        clinic.crash(3);
        clinic.join(None);
        assert_eq!(clinic.after(seconds(9)).await, (0, 0));
        let (requests, woken) = clinic.after(seconds(2)).await;
        assert_eq!((requests, woken), (1, count));
        let cause = clinic.patients[count - 1].cause().unwrap();
        let text = format!(
            "StatefulSet/db{0}: Pod db{0}-0: container db exited with code 2, 3 restarts",
            count - 1
        );
        assert_eq!((cause.reason.as_str(), cause.message), ("CrashLoop", text));

        // Nothing is new, so the rounds become rarer and nobody is woken.
        for (at, requests) in [
            (69, 1),
            (71, 2),
            (129, 2),
            (131, 3),
            (249, 3),
            (251, 4),
            (489, 4),
            (491, 5),
            (789, 5),
            (791, 6),
            (3600, 15),
        ] {
            let seen = clinic.until(seconds(at)).await;
            assert_eq!(seen, (requests, 0), "after {at} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_wake_only_when_they_have_doubled() {
    let mut clinic = Clinic::new(1);
    let mut woken = 0;
    for restarts in 1..=64 {
        let script = When::get(PODS).times(1);
        clinic
            .api
            .on(script, Answer::json(200, pods(&clinic.names, restarts)));
    }
    clinic.crash(64);
    clinic.join(None);
    for _ in 0..300 {
        woken += clinic.after(Duration::from_mins(1)).await.1;
    }
    // 1, 2, 4, 8, 16, 32, 64
    assert_eq!(woken, 7);
    let cause = clinic.patients[0].cause().unwrap();
    assert!(cause.message.ends_with("64 restarts"), "{}", cause.message);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_what_the_status_says_wakes_nobody() {
    let mut clinic = Clinic::new(1);
    clinic.crash(5);
    let message = "StatefulSet/db0: Pod db0-0: container db exited with code 2, 4 restarts";
    let earlier = Cause::of_condition("CrashLoop", message);
    clinic.join(earlier.as_ref());
    assert_eq!(clinic.patients[0].cause(), earlier);
    assert_eq!(clinic.after(Duration::from_secs(30)).await, (1, 0));
    assert_eq!(clinic.patients[0].cause(), earlier);

    let mut clinic = Clinic::new(1);
    clinic.crash(5);
    let earlier = Cause::of_condition("ImagePullFailed", "another");
    clinic.join(earlier.as_ref());
    assert_eq!(clinic.after(Duration::from_secs(30)).await, (1, 1));
    assert_ne!(clinic.patients[0].cause(), earlier);
    assert_eq!(Cause::of_condition("ObjectsNotReady", "m"), None);
}

#[tokio::test(start_paused = true)]
async fn newcomer_waits_for_the_next_minute_of_its_namespace() {
    let mut clinic = Clinic::new(1);
    clinic.crash(1);
    clinic.join(None);
    assert_eq!(clinic.after(Duration::from_secs(11)).await.0, 1);
    clinic.names = vec!["late".to_owned()];
    clinic.join(None);
    assert_eq!(clinic.after(Duration::from_secs(58)).await.0, 1);
    // Events are read, too, because the Pods do not explain the newcomer.
    assert_eq!(clinic.after(Duration::from_secs(2)).await.0, 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_once_nobody_is_unready() {
    let mut clinic = Clinic::new(3);
    clinic.crash(1);
    clinic.join(None);
    let (requests, _) = clinic.after(Duration::from_secs(11)).await;
    clinic.patients.clear();
    let (after, _) = clinic.after(Duration::from_hours(1)).await;
    assert_eq!(after, requests);
    assert!(clinic.rounds.groups.lock().is_empty());
}
