//! Tests of hooks that are Jobs, hooks of several events, and cluster-scoped hooks.

use kube::core::ApiResource;
use kube_objects::ownership::operator_selector;
use kube_objects::shards::By;
use kube_objects::watch::{WatchGuard, WatchKey, WatchState};

use super::*;

const ONCE: DeletePolicy = DeletePolicy::BeforeHookCreation;
const SUCCEEDED: DeletePolicy = DeletePolicy::HookSucceeded;

fn at(object: &str, events: &[&HookEvent], policies: &[DeletePolicy]) -> Hook {
    let (plural, name) = object.split_once('/').unwrap();
    let manifest = if plural == "jobs" {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{ttlSecondsAfterFinished: 0}}\n"
        )
    } else {
        document(object, "")
    };
    Hook {
        name: name.to_owned(),
        kind: "unused".to_owned(),
        manifest,
        events: events.iter().copied().cloned().collect(),
        delete_policies: policies.to_vec(),
        ..Hook::default()
    }
}

fn waiting(why: &str) -> ActionProgress {
    ActionProgress::Waiting {
        why: why.to_owned(),
    }
}

/// Asserts the progress, or a part of the message of the error.
fn assert_ended(
    ended: Result<ActionProgress, ActionError>,
    expected: Result<ActionProgress, &str>,
) {
    match (ended, expected) {
        (Ok(progress), Ok(wanted)) => assert_eq!(progress, wanted),
        (Err(error), Err(message)) => assert!(error.to_string().contains(message), "{error}"),
        (ended, expected) => panic!("{ended:?}, not {expected:?}"),
    }
}

impl Fixture {
    /// Expects a read of a Job of this run, and answers with this condition.
    fn expect_job(&self, name: &str, run: &str, condition: &str) {
        let mut job = self.live(name);
        job["metadata"]["labels"][RUN_LABEL] = json!(run_label(run));
        job["status"] = condition_status(condition);
        self.expect_read(&format!("jobs/{name}"), job);
    }

    /// Expects that Pods and events are listed, of which there are none.
    fn expect_nothing_known(&self) {
        for resource in ["pods", "events"] {
            let get = format!("GET /api/v1/namespaces/prod/{resource}");
            let list = json!({"metadata": {}, "items": []});
            self.script.expect(&get, 200, list);
        }
    }

    /// Starts the only hook of an install, the Job `j`.
    async fn starts(&self, live: &mut Live, stored: &mut StoredRelease, event: &HookEvent) {
        let lines = "record 1 pending-install, read jobs/j: 404, create jobs/j";
        let started = self.hooks(live, stored, event, lines).await;
        assert_eq!(started.unwrap(), waiting("pre-install hook j"));
    }

    fn watch_of_jobs(&self) -> WatchGuard {
        self.registry.acquire(WatchKey {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job")),
            namespace: None,
            selector: operator_selector(&self.operator),
            fields: None,
            by: By::Namespace,
        })
    }
}

/// A client that answers the first request, and no later one.
fn answering_once(status: u16, answer: String) -> Client {
    let mut answer = Some(answer);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = answer.take();
        async move {
            match answer {
                Some(answer) => Ok::<_, std::convert::Infallible>(
                    http::Response::builder()
                        .status(status)
                        .body(Body::from(answer.into_bytes()))
                        .unwrap(),
                ),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

/// A watch of Jobs that shows a Job in these states, and then its deletion.
fn job_watch(run: Option<&str>, states: &[Value]) -> Client {
    let metadata = |version: u32| {
        let mut metadata = json!({"name": "j", "namespace": "prod", "uid": "uid-of-j",
            "resourceVersion": version.to_string(), "labels": {}});
        if let Some(run) = run {
            metadata["labels"][RUN_LABEL] = json!(run_label(run));
        }
        metadata
    };
    let event = |type_: &str, metadata: Value, status: &Value| {
        json!({"type": type_, "object": {"apiVersion": "batch/v1", "kind": "Job",
            "metadata": metadata, "status": status}})
    };
    let done = json!({"resourceVersion": "1",
        "annotations": {"k8s.io/initial-events-end": "true"}});
    let mut events = vec![event("BOOKMARK", done, &json!({}))];
    for (version, state) in (10..).zip(states) {
        events.push(event("MODIFIED", metadata(version), state));
    }
    if let Some(last) = states.last() {
        events.push(event("DELETED", metadata(100), last));
    }
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    answering_once(200, lines.join("\n") + "\n")
}

fn condition_status(condition: &str) -> Value {
    json!({"conditions": [{"type": condition, "status": "True", "message": "because"}]})
}

/// A first revision with these hooks, and no objects.
fn with_hooks(hooks: Vec<Hook>) -> StoredRelease {
    stored(1, Status::PendingInstall, &[], hooks)
}

#[tokio::test]
async fn a_hook_of_two_events_runs_at_both() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let events = [&HookEvent::PreInstall, &HookEvent::PostInstall];
    let mut stored = with_hooks(vec![at("configmaps/h", &events, &[ONCE])]);
    let lines = "record 1 pending-install, read configmaps/h: 404, create configmaps/h,
        record 1 pending-install, record 1 pending-install,
        // The object of the first event.
        read configmaps/h @1-pre-install-1, delete configmaps/h";
    let install = deployment(&mut stored);
    let ended = fixture.deploy(&mut live, install, lines).await;
    assert_eq!(ended.unwrap(), waiting("post-install hook h"));
    let lines = "read configmaps/h: 404, create configmaps/h, record 1 pending-install,
        record 1 deployed";
    let install = deployment(&mut stored);
    fixture.deploys(&mut live, install, lines).await;
}

#[tokio::test]
async fn a_restart_during_the_second_event_leaves_its_objects_alone() {
    let fixture = Fixture::new();
    let events = [&HookEvent::PreInstall, &HookEvent::PostInstall];
    let policies = [ONCE, SUCCEEDED];
    let mut stored = with_hooks(vec![
        at("configmaps/h", &events, &policies),
        at("jobs/j", &[&HookEvent::PostInstall], &policies),
    ]);
    let lines = "record 1 pending-install, read configmaps/h: 404, create configmaps/h,
        record 1 pending-install, read configmaps/h @1-pre-install-1, delete configmaps/h,
        record 1 pending-install, read configmaps/h: 404, create configmaps/h,
        record 1 pending-install, record 1 pending-install, read jobs/j: 404, create jobs/j";
    let mut live = Live::default();
    let install = deployment(&mut stored);
    let ended = fixture.deploy(&mut live, install, lines).await;
    assert_eq!(ended.unwrap(), waiting("post-install hook j"));
    // A new process must not delete the object of the second event as that of the first.
    fixture.expect("read configmaps/h @1-post-install-1");
    fixture.expect_job("j", "1-post-install-1", "Complete");
    let lines = "record 1 pending-install, read jobs/j @1-post-install-1,
        delete jobs/j, read configmaps/h @1-post-install-1, delete configmaps/h, record 1 deployed";
    let mut live = Live::default();
    let install = deployment(&mut stored);
    fixture.deploys(&mut live, install, lines).await;
}

#[tokio::test]
async fn a_hook_that_ran_after_the_install_runs_again_before_the_deletion() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let events = [&HookEvent::PostInstall, &HookEvent::PreDelete];
    let mut stored = with_hooks(vec![at("configmaps/h", &events, &[ONCE])]);
    let lines = "record 1 pending-install, read configmaps/h: 404, create configmaps/h,
        record 1 pending-install, record 1 deployed";
    let install = deployment(&mut stored);
    fixture.deploys(&mut live, install, lines).await;
    let lines = "record 1 deployed, read configmaps/h @1-post-install-1,
        delete configmaps/h";
    let ended = fixture.uninstall(&mut live, &mut stored, lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook h"));
    let lines = "read configmaps/h: 404, create configmaps/h, record 1 deployed,
        record 1 uninstalling, read configmaps/h @1-pre-delete-1, delete configmaps/h, forget 1";
    fixture.uninstalls(&mut live, &mut stored, lines).await;
}

#[tokio::test]
async fn a_failed_deletion_hook_runs_again_when_the_deletion_is_retried() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let event = HookEvent::PreDelete;
    let hooks = vec![
        at("configmaps/h", &[&event], &[SUCCEEDED]),
        at("jobs/j", &[&event], &[ONCE]),
    ];
    let mut stored = stored(1, Status::Deployed, &[], hooks);
    let lines = "record 1 deployed, read configmaps/h: 404, create configmaps/h,
        record 1 deployed, record 1 deployed, read jobs/j: 404, create jobs/j";
    let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook j"));
    fixture.expect_job("j", "1-pre-delete-1", "Failed");
    fixture.expect_nothing_known();
    let lines = "record 1 deployed,
        // The chart's ttlSecondsAfterFinished.
        apply jobs/j, read configmaps/h @1-pre-delete-1, delete configmaps/h";
    let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_ended(ended, Err("because"));

    // The second attempt runs all hooks of the event, because an object that the second hook needs
    // was deleted.
    fixture.expect(
        "record 1 deployed, read configmaps/h: 404, create configmaps/h,
        record 1 deployed, record 1 deployed",
    );
    fixture.expect_job("j", "1-pre-delete-1", "Failed");
    let ended = fixture
        .hooks(&mut live, &mut stored, &event, "delete jobs/j")
        .await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook j"));
    let lines = "read jobs/j: 404, create jobs/j";
    let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook j"));
    fixture.expect_job("j", "1-pre-delete-2", "Complete");
    let lines = "record 1 deployed, apply jobs/j, read configmaps/h @1-pre-delete-2,
        delete configmaps/h";
    let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(ended.unwrap(), ActionProgress::Done);
}

#[tokio::test]
async fn cluster_scoped_hooks_are_deleted_after_the_event_and_with_the_release() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let event = HookEvent::PreInstall;
    let mut stored = with_hooks(vec![
        at("clusterroles/gone", &[&event], &[SUCCEEDED]),
        at("clusterroles/stays", &[&event], &[ONCE]),
    ]);
    let lines = "record 1 pending-install, read clusterroles/gone: 404,
        create clusterroles/gone, record 1 pending-install, record 1 pending-install,
        read clusterroles/stays: 404, create clusterroles/stays, record 1 pending-install,
        read clusterroles/gone @1-pre-install-1, delete clusterroles/gone";
    let done = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
    let lines = "record 1 uninstalling, read clusterroles/gone: 404,
        read clusterroles/stays, delete clusterroles/stays, forget 1";
    fixture.uninstalls(&mut live, &mut stored, lines).await;
}

/// The body of the last request to a Job.
fn last_job(fixture: &Fixture, method: &str) -> Value {
    let seen = fixture.script.finish();
    let of_job = |seen: &&Recorded| seen.method == method && seen.path.ends_with("/jobs/j");
    seen.iter().rev().find(of_job).unwrap().json().clone()
}

#[tokio::test]
async fn the_ttl_of_a_job_applies_once_its_result_is_recorded() {
    let event = HookEvent::PreInstall;
    for policies in [[ONCE], [SUCCEEDED]] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let mut stored = with_hooks(vec![at("jobs/j", &[&event], &policies)]);
        fixture.starts(&mut live, &mut stored, &event).await;
        let made = last_job(&fixture, "PATCH");
        assert_eq!(made["spec"]["ttlSecondsAfterFinished"], 86_400);
        fixture.expect_job("j", "1-pre-install-1", "Complete");
        let lines = if policies == [ONCE] {
            "record 1 pending-install, apply jobs/j"
        } else {
            // Its delete policy removes the Job anyway.
            "record 1 pending-install, read jobs/j @1-pre-install-1, delete jobs/j"
        };
        let done = fixture.hooks(&mut live, &mut stored, &event, lines).await;
        assert_eq!(done.unwrap(), ActionProgress::Done);
        if policies == [ONCE] {
            let patch = json!({"metadata": {"uid": "uid-of-j"},
                "spec": {"ttlSecondsAfterFinished": 0}});
            assert_eq!(last_job(&fixture, "PATCH"), patch);
        }
    }
}

#[tokio::test]
async fn a_missing_job_has_the_outcome_that_the_watch_saw() {
    let event = HookEvent::PreInstall;
    let done = Ok(ActionProgress::Done);
    for (condition, expected) in [("Complete", done), ("Failed", Err("because"))] {
        let run = "1-pre-install-1";
        let states = [json!({"active": 1}), condition_status(condition)];
        let fixture = Fixture::watching(job_watch(Some(run), &states));
        let watch = fixture.watch_of_jobs();
        let seen = async {
            while watch.outcome("uid-of-j").is_none() || watch.version() < 100 {
                tokio::task::yield_now().await;
            }
        };
        let limit = Duration::from_secs(10);
        tokio::time::timeout(limit, seen).await.unwrap();
        let mut live = Live::default();
        let mut stored = with_hooks(vec![at("jobs/j", &[&event], &[ONCE])]);
        let lines = "record 1 pending-install, create jobs/j";
        let started = fixture.hooks(&mut live, &mut stored, &event, lines).await;
        assert_eq!(started.unwrap(), waiting("pre-install hook j"));
        // The Job is not created again, and its ttlSecondsAfterFinished cannot be restored.
        let lines = "read jobs/j: 404, record 1 pending-install, apply jobs/j: 404";
        let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
        assert_ended(ended, expected);
    }
}

#[tokio::test]
async fn a_job_deleted_before_completion_fails_the_hook_and_is_not_recreated() {
    let forbidden = failure(403, "Forbidden", "no", &json!({"kind": "jobs"}));
    let fixture = Fixture::watching(answering_once(403, forbidden.to_string()));
    let watch = fixture.watch_of_jobs();
    assert!(matches!(watch.settled().await, WatchState::Forbidden(_)));
    let event = HookEvent::PreInstall;
    let mut live = Live::default();
    let mut stored = with_hooks(vec![at("jobs/j", &[&event], &[ONCE])]);
    fixture.starts(&mut live, &mut stored, &event).await;
    let lines = "read jobs/j: 404, record 1 pending-install, apply jobs/j: 404";
    let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    let message = ended.unwrap_err().to_string();
    let expected = "pre-install hook j failed: Job.batch prod/j was deleted before it completed";
    assert_eq!(message, expected);
}

#[tokio::test]
async fn the_failure_of_a_hook_says_how_its_pod_ended_and_shows_the_log_unless_that_is_forbidden() {
    for (crash_logs, end) in [(true, "; its log ends with:\nno database"), (false, "")] {
        let fixture = Fixture::new();
        let event = HookEvent::PreInstall;
        let mut live = Live::default();
        let mut stored = with_hooks(vec![at("jobs/j", &[&event], &[ONCE])]);
        fixture.starts(&mut live, &mut stored, &event).await;

        fixture.expect_job("j", "1-pre-install-1", "Failed");
        let container = json!({"name": "main", "image": "x", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 3}}});
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
        let pod = json!({"metadata": {"name": "j-a", "namespace": "prod", "ownerReferences": [owner]},
            "status": {"phase": "Failed", "containerStatuses": [container]}});
        let pods = "GET /api/v1/namespaces/prod/pods";
        let list = json!({"metadata": {}, "items": [pod]});
        fixture.script.expect(pods, 200, list);
        if crash_logs {
            let log = format!("{pods}/j-a/log");
            drop(fixture.script.clone().on_text(&log, 200, "no database\n"));
        }
        fixture.expect("record 1 pending-install, apply jobs/j");
        let mut context = fixture.context();
        context.crash_logs = crash_logs;
        let fresh = Interrupted::default();
        let ended = run_hooks(&context, &mut live, &mut stored, &event, &fresh).await;
        fixture.script.finish();
        let message = ended.unwrap_err().to_string();
        let expected = format!(": Job/j: Pod j-a: container main exited with code 3{end}");
        let begin = "pre-install hook j failed: Job failed";
        assert!(message.starts_with(begin), "{message}");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[tokio::test]
async fn a_job_missing_after_a_restart_is_created_with_a_new_deadline() {
    let mut fixture = Fixture::new();
    let event = HookEvent::PreInstall;
    let mut stored = with_hooks(vec![at("jobs/j", &[&event], &[ONCE])]);
    let lines = "record 1 pending-install, read jobs/j: 404, create jobs/j: 500";
    let died = fixture
        .hooks(&mut Live::default(), &mut stored, &event, lines)
        .await;
    assert_eq!(action_result(died), Err(("Unavailable", true)));
    fixture.now = Timestamp::from_second(3_600).unwrap();
    let mut live = Live::default();
    let lines = "read jobs/j: 404, create jobs/j, record 1 pending-install";
    let started = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(started.unwrap(), waiting("pre-install hook j"));
    fixture.expect_job("j", "1-pre-install-1", "Suspended");
    let still = fixture.hooks(&mut live, &mut stored, &event, "").await;
    assert_eq!(still.unwrap(), waiting("pre-install hook j"));
    fixture.now = Timestamp::from_second(3_901).unwrap();
    fixture.expect_job("j", "1-pre-install-1", "Suspended");
    fixture.expect_nothing_known();
    let lines = "record 1 pending-install, apply jobs/j";
    let late = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_ended(late, Err("did not complete within"));
}

#[tokio::test]
async fn an_object_left_before_a_restart_is_replaced_with_a_new_deadline() {
    let mut fixture = Fixture::new();
    let event = HookEvent::PreInstall;
    let mut stored = with_hooks(vec![at("jobs/j", &[&event], &[ONCE])]);
    fixture.now = Timestamp::from_second(1_000).unwrap();
    let lines = "record 1 pending-install, read jobs/j: 500";
    let died = fixture
        .hooks(&mut Live::default(), &mut stored, &event, lines)
        .await;
    assert_eq!(action_result(died), Err(("Unavailable", true)));
    fixture.now = Timestamp::from_second(3_600).unwrap();
    let mut live = Live::default();
    let waits = waiting("pre-install hook j");
    // Somebody else keeps creating it.
    for (made, ended) in [(999, Ok(waits)), (3_601, Err("did not complete within"))] {
        let mut old = fixture.live("j");
        old["metadata"]["creationTimestamp"] = json!(Timestamp::from_second(made).unwrap());
        fixture.expect_read("jobs/j", old);
        fixture.expect("delete jobs/j, record 1 pending-install");
        let result = fixture.hooks(&mut live, &mut stored, &event, "").await;
        assert_ended(result, ended);
        fixture.now = Timestamp::from_second(3_901).unwrap();
    }
}

#[tokio::test]
async fn the_deadline_of_a_hook_starts_with_its_run_at_the_event() {
    let mut fixture = Fixture::new();
    let mut live = Live::default();
    let (before, after) = (&HookEvent::PreInstall, &HookEvent::PostInstall);
    let mut stored = with_hooks(vec![at("jobs/j", &[before, after], &[ONCE])]);
    fixture.starts(&mut live, &mut stored, before).await;
    fixture.expect_job("j", "1-pre-install-1", "Complete");
    let lines = "record 1 pending-install, apply jobs/j";
    let ended = fixture.hooks(&mut live, &mut stored, before, lines).await;
    assert_eq!(ended.unwrap(), ActionProgress::Done);
    // After an hour of waiting for the objects.
    fixture.now = Timestamp::from_second(3_600).unwrap();
    let lines = "record 1 pending-install, read jobs/j: 404, create jobs/j";
    let started = fixture.hooks(&mut live, &mut stored, after, lines).await;
    assert_eq!(started.unwrap(), waiting("post-install hook j"));
    fixture.expect_job("j", "1-post-install-1", "Suspended");
    let still = fixture.hooks(&mut live, &mut stored, after, "").await;
    assert_eq!(still.unwrap(), waiting("post-install hook j"));
}

#[tokio::test]
async fn an_object_left_by_the_helm_command_is_found_without_a_watch() {
    let fixture = Fixture::watching(job_watch(None, &[]));
    let watch = fixture.watch_of_jobs();
    assert_eq!(watch.settled().await, WatchState::Synced);
    let event = HookEvent::PreUpgrade;
    let hook = at("jobs/j", &[&event], &[ONCE]);
    let mut stored = stored(1, Status::PendingUpgrade, &[], vec![hook]);
    fixture.expect("record 1 pending-upgrade, create jobs/j: 409");
    fixture.expect_read("jobs/j", labelled("j", &json!({})));
    let mut live = Live::default();
    let lines = "delete jobs/j";
    let ended = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-upgrade hook j"));
}

#[tokio::test]
async fn a_terminating_object_is_waited_for_whatever_the_policies_are() {
    let fixture = Fixture::new();
    let event = HookEvent::PreUpgrade;
    let hook = at("jobs/j", &[&event], &[SUCCEEDED]);
    let mut stored = stored(1, Status::PendingUpgrade, &[], vec![hook]);
    let mut live = Live::default();
    let waits = Ok(waiting("pre-upgrade hook j"));
    for (deleting, expected) in [(true, waits), (false, Err("before-hook-creation"))] {
        if deleting {
            fixture.expect("record 1 pending-upgrade");
        }
        let mut old = fixture.live("j");
        if deleting {
            old["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        fixture.expect_read("jobs/j", old);
        if !deleting {
            fixture.expect("record 1 pending-upgrade");
        }
        let ended = fixture.hooks(&mut live, &mut stored, &event, "").await;
        assert_ended(ended, expected);
    }
}

#[tokio::test]
async fn what_an_interrupted_hook_has_left_goes_with_the_record_of_its_revision() {
    let mut live = Live::default();
    for (phase, requests) in [
        (
            HookPhase::Running,
            "read jobs/j @2-pre-upgrade-1, delete jobs/j",
        ),
        // A later run has created it.
        (HookPhase::Running, "read jobs/j @3-pre-upgrade-1"),
        (HookPhase::Failed, ""),
    ] {
        let fixture = Fixture::new();
        let mut hook = at("jobs/j", &[&HookEvent::PreUpgrade], &[SUCCEEDED]);
        hook.last_run.phase = phase;
        let stored = stored(2, Status::Failed, &[], vec![hook]);
        fixture.expect(requests);
        let removed = prune_leftover(&fixture.context(), &mut live, &stored, &[]).await;
        removed.unwrap();
        fixture.script.finish();
    }
}
