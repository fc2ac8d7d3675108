//! Hooks that are Jobs, hooks of several events, and hooks without a namespace.

use kube::core::ApiResource;

use super::*;
use crate::cluster::ownership::operator_selector;
use crate::controller::{WatchGuard, WatchKey, WatchState};

const ONCE: DeletePolicy = DeletePolicy::BeforeHookCreation;

/// A hook at these events.
fn at(object: &str, events: &[HookEvent], policies: &[DeletePolicy]) -> Hook {
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
        kind: "of no account".to_owned(),
        manifest,
        events: events.to_vec(),
        delete_policies: policies.to_vec(),
        ..Hook::default()
    }
}

fn waiting(why: &str) -> Progress {
    Progress::Waiting {
        why: why.to_owned(),
    }
}

impl Stage {
    /// Expects that a Job is read, which belongs to a run and is `Complete`, `Failed` or neither.
    fn expect_job(&self, name: &str, run: &str, condition: &str) {
        let mut job = self.live(name);
        job["metadata"]["labels"][RUN_LABEL] = json!(run_label(run));
        job["status"]["conditions"] =
            json!([{"type": condition, "status": "True", "message": "because"}]);
        let get = format!("GET {}", path(&format!("jobs/{name}")));
        drop(self.script.clone().on(&get, 200, job));
    }

    /// Runs the hooks of an event after these requests are expected, and nothing else.
    async fn hooks(
        &self,
        live: &mut Live,
        stored: &mut Stored,
        event: &HookEvent,
        lines: &[&str],
    ) -> Result<Progress, ActionError> {
        self.expect(lines);
        let ended = run_hooks(&self.context(), live, stored, event).await;
        self.script.finish();
        ended
    }

    /// The watch of Jobs.
    fn watch_of_jobs(&self) -> WatchGuard {
        self.registry.acquire(WatchKey {
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job")),
            namespace: None,
            selector: operator_selector(&self.operator),
        })
    }
}

/// A client whose first request is answered so, and no other ever.
fn answering(status: u16, answer: String) -> Client {
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

/// A watch of Jobs that tells of this one through these states, and then that it is gone.
fn told_of(run: Option<&str>, states: &[Value]) -> Client {
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
    answering(200, lines.join("\n") + "\n")
}

fn ended_with(condition: &str) -> Value {
    json!({"conditions": [{"type": condition, "status": "True", "message": "because"}]})
}

/// A first revision with these hooks, and no objects.
fn with_hooks(hooks: Vec<Hook>) -> Stored {
    stored(1, Status::PendingInstall, &[], hooks)
}

#[tokio::test]
async fn a_hook_of_two_events_runs_at_both() {
    let stage = Stage::new();
    let mut live = Live::default();
    let events = [HookEvent::PreInstall, HookEvent::PostInstall];
    let mut stored = with_hooks(vec![at("configmaps/h", &events, &[ONCE])]);
    let lines = [
        "record 1 pending-install",
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 pending-install",
        "record 1 pending-install",
        // It is that of the first event.
        "read configmaps/h @1-pre-install-1",
        "delete configmaps/h",
    ];
    stage.expect(&lines);
    let done = deploy(&stage.context(), &mut live, deployment(&mut stored)).await;
    assert_eq!(done.unwrap(), waiting("post-install hook h"));
    stage.sent(&lines);
    let lines = [
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 pending-install",
        "record 1 deployed",
    ];
    stage.expect(&lines);
    let done = deploy(&stage.context(), &mut live, deployment(&mut stored)).await;
    assert_eq!(done.unwrap(), Progress::Done);
    stage.sent(&lines);
}

#[tokio::test]
async fn a_restart_during_the_second_event_leaves_its_objects_alone() {
    let stage = Stage::new();
    let events = [HookEvent::PreInstall, HookEvent::PostInstall];
    let policies = [ONCE, DeletePolicy::HookSucceeded];
    let mut stored = with_hooks(vec![
        at("configmaps/h", &events, &policies),
        at("jobs/j", &[HookEvent::PostInstall], &policies),
    ]);
    let lines = [
        "record 1 pending-install",
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 pending-install",
        "read configmaps/h @1-pre-install-1",
        "delete configmaps/h",
        "record 1 pending-install",
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 pending-install",
        "record 1 pending-install",
        "read jobs/j: 404",
        "create jobs/j",
    ];
    stage.expect(&lines);
    let mut live = Live::default();
    let done = deploy(&stage.context(), &mut live, deployment(&mut stored)).await;
    assert_eq!(done.unwrap(), waiting("post-install hook j"));
    stage.sent(&lines);
    // A process that remembers nothing: what it would delete after the first event is the object
    // of the second one.
    stage.expect(&["read configmaps/h @1-post-install-1"]);
    stage.expect_job("j", "1-post-install-1", "Complete");
    stage.expect(&[
        "record 1 pending-install",
        "read jobs/j @1-post-install-1",
        "delete jobs/j",
        "read configmaps/h @1-post-install-1",
        "delete configmaps/h",
        "record 1 deployed",
    ]);
    let mut live = Live::default();
    let done = deploy(&stage.context(), &mut live, deployment(&mut stored)).await;
    assert_eq!(done.unwrap(), Progress::Done);
    stage.script.finish();
}

#[tokio::test]
async fn a_hook_that_ran_after_the_install_runs_again_before_the_deletion() {
    let stage = Stage::new();
    let mut live = Live::default();
    let events = [HookEvent::PostInstall, HookEvent::PreDelete];
    let mut stored = with_hooks(vec![at("configmaps/h", &events, &[ONCE])]);
    let install = [
        "record 1 pending-install",
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 pending-install",
        "record 1 deployed",
    ];
    stage.expect(&install);
    let done = deploy(&stage.context(), &mut live, deployment(&mut stored)).await;
    assert_eq!(done.unwrap(), Progress::Done);
    stage.expect(&[
        "record 1 deployed",
        "read configmaps/h @1-post-install-1",
        "delete configmaps/h",
    ]);
    let ended = uninstall(&stage.context(), &mut live, &mut stored, &[], false, "").await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook h"));
    stage.expect(&[
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 deployed",
        "record 1 uninstalling",
        "read configmaps/h @1-pre-delete-1",
        "delete configmaps/h",
        "forget 1",
    ]);
    let ended = uninstall(&stage.context(), &mut live, &mut stored, &[], false, "").await;
    assert_eq!(ended.unwrap(), Progress::Done);
    stage.script.finish();
}

#[tokio::test]
async fn a_deletion_hook_that_failed_runs_again_when_the_deletion_is_tried_again() {
    let stage = Stage::new();
    let mut live = Live::default();
    let event = HookEvent::PreDelete;
    let mut stored = stored(
        1,
        Status::Deployed,
        &[],
        vec![
            at(
                "configmaps/h",
                std::slice::from_ref(&event),
                &[DeletePolicy::HookSucceeded],
            ),
            at("jobs/j", std::slice::from_ref(&event), &[ONCE]),
        ],
    );
    let lines = [
        "record 1 deployed",
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 deployed",
        "record 1 deployed",
        "read jobs/j: 404",
        "create jobs/j",
    ];
    let ended = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook j"));
    stage.expect_job("j", "1-pre-delete-1", "Failed");
    let lines = [
        "record 1 deployed",
        // The chart's ttlSecondsAfterFinished.
        "apply jobs/j",
        "read configmaps/h @1-pre-delete-1",
        "delete configmaps/h",
    ];
    let ended = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    let message = ended.unwrap_err().to_string();
    assert!(message.contains("because"), "{message}");

    // The second attempt: all hooks of the event, as what the second one needs was deleted.
    stage.expect(&[
        "record 1 deployed",
        "read configmaps/h: 404",
        "create configmaps/h",
        "record 1 deployed",
        "record 1 deployed",
    ]);
    stage.expect_job("j", "1-pre-delete-1", "Failed");
    let ended = stage
        .hooks(&mut live, &mut stored, &event, &["delete jobs/j"])
        .await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook j"));
    let lines = ["read jobs/j: 404", "create jobs/j"];
    let ended = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-delete hook j"));
    stage.expect_job("j", "1-pre-delete-2", "Complete");
    let lines = [
        "record 1 deployed",
        "apply jobs/j",
        "read configmaps/h @1-pre-delete-2",
        "delete configmaps/h",
    ];
    let ended = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(ended.unwrap(), Progress::Done);
}

#[tokio::test]
async fn hooks_without_a_namespace_are_deleted_after_the_event_and_with_the_release() {
    let stage = Stage::new();
    let mut live = Live::default();
    let event = HookEvent::PreInstall;
    let mut stored = with_hooks(vec![
        at(
            "clusterroles/gone",
            std::slice::from_ref(&event),
            &[DeletePolicy::HookSucceeded],
        ),
        at("clusterroles/stays", std::slice::from_ref(&event), &[ONCE]),
    ]);
    let lines = [
        "record 1 pending-install",
        "read clusterroles/gone: 404",
        "create clusterroles/gone",
        "record 1 pending-install",
        "record 1 pending-install",
        "read clusterroles/stays: 404",
        "create clusterroles/stays",
        "record 1 pending-install",
        "read clusterroles/gone @1-pre-install-1",
        "delete clusterroles/gone",
    ];
    let done = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(done.unwrap(), Progress::Done);
    stage.expect(&[
        "record 1 uninstalling",
        "read clusterroles/gone: 404",
        "read clusterroles/stays",
        "delete clusterroles/stays",
        "forget 1",
    ]);
    let ended = uninstall(&stage.context(), &mut live, &mut stored, &[], false, "").await;
    assert_eq!(ended.unwrap(), Progress::Done);
    stage.script.finish();
}

/// The body of the last request to a Job.
fn last_job(stage: &Stage, method: &str) -> Value {
    let seen = stage.script.finish();
    let of_job = |seen: &&Seen| seen.method == method && seen.path.ends_with("/jobs/j");
    seen.iter().rev().find(of_job).unwrap().body.clone()
}

#[tokio::test]
async fn a_job_goes_by_its_ttl_only_when_its_end_is_recorded() {
    let event = HookEvent::PreInstall;
    for policy in [ONCE, DeletePolicy::HookSucceeded] {
        let stage = Stage::new();
        let mut live = Live::default();
        let hook = at(
            "jobs/j",
            std::slice::from_ref(&event),
            std::slice::from_ref(&policy),
        );
        let mut stored = with_hooks(vec![hook]);
        let lines = [
            "record 1 pending-install",
            "read jobs/j: 404",
            "create jobs/j",
        ];
        let begun = stage.hooks(&mut live, &mut stored, &event, &lines).await;
        assert_eq!(begun.unwrap(), waiting("pre-install hook j"));
        let made = last_job(&stage, "PATCH");
        assert_eq!(made["spec"]["ttlSecondsAfterFinished"], 86_400);
        stage.expect_job("j", "1-pre-install-1", "Complete");
        let lines: &[&str] = if policy == ONCE {
            &["record 1 pending-install", "apply jobs/j"]
        } else {
            // It is deleted anyway.
            &[
                "record 1 pending-install",
                "read jobs/j @1-pre-install-1",
                "delete jobs/j",
            ]
        };
        let done = stage.hooks(&mut live, &mut stored, &event, lines).await;
        assert_eq!(done.unwrap(), Progress::Done);
        stage.sent(lines);
        if policy == ONCE {
            let patch = json!({"metadata": {"uid": "uid-of-j"},
                "spec": {"ttlSecondsAfterFinished": 0}});
            assert_eq!(last_job(&stage, "PATCH"), patch);
        }
    }
}

#[tokio::test]
async fn a_job_that_is_gone_has_ended_as_the_watch_saw_it() {
    let event = HookEvent::PreInstall;
    for (condition, expected) in [("Complete", Ok(())), ("Failed", Err("because"))] {
        let run = "1-pre-install-1";
        let states = [json!({"active": 1}), ended_with(condition)];
        let stage = Stage::watching(told_of(Some(run), &states));
        let watch = stage.watch_of_jobs();
        let seen = async {
            while watch.outcome("uid-of-j").is_none() || watch.version() < 100 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), seen)
            .await
            .unwrap();
        let mut live = Live::default();
        let hook = at("jobs/j", std::slice::from_ref(&event), &[ONCE]);
        let mut stored = with_hooks(vec![hook]);
        let lines = ["record 1 pending-install", "create jobs/j"];
        let begun = stage.hooks(&mut live, &mut stored, &event, &lines).await;
        assert_eq!(begun.unwrap(), waiting("pre-install hook j"));
        // It is not made again, and there is nothing whose ttlSecondsAfterFinished could be set.
        let patch = format!("PATCH {}", path("jobs/j"));
        stage.expect(&["read jobs/j: 404", "record 1 pending-install"]);
        drop(stage.script.clone().on(&patch, 404, refusal(404)));
        let ended = stage.hooks(&mut live, &mut stored, &event, &[]).await;
        match (ended, expected) {
            (Ok(progress), Ok(())) => assert_eq!(progress, Progress::Done),
            (Err(error), Err(message)) => assert!(error.to_string().contains(message), "{error}"),
            (ended, _) => panic!("{condition}: {ended:?}"),
        }
    }
}

#[tokio::test]
async fn a_job_that_was_deleted_before_its_end_fails_the_hook_and_is_not_made_again() {
    let forbidden = failure(403, "Forbidden", "no", &json!({"kind": "jobs"}));
    let stage = Stage::watching(answering(403, forbidden.to_string()));
    let watch = stage.watch_of_jobs();
    assert!(matches!(watch.settled().await, WatchState::Forbidden(_)));
    let event = HookEvent::PreInstall;
    let mut live = Live::default();
    let hook = at("jobs/j", std::slice::from_ref(&event), &[ONCE]);
    let mut stored = with_hooks(vec![hook]);
    let lines = [
        "record 1 pending-install",
        "read jobs/j: 404",
        "create jobs/j",
    ];
    let begun = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(begun.unwrap(), waiting("pre-install hook j"));
    let lines = [
        "read jobs/j: 404",
        "record 1 pending-install",
        "apply jobs/j: 404",
    ];
    let ended = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    let message = ended.unwrap_err().to_string();
    let expected = "pre-install hook j failed: Job.batch prod/j was deleted before it had ended";
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_job_that_a_new_process_does_not_find_is_created_with_a_deadline_of_its_own() {
    let mut stage = Stage::new();
    let event = HookEvent::PreInstall;
    let hook = at("jobs/j", std::slice::from_ref(&event), &[ONCE]);
    let mut stored = with_hooks(vec![hook]);
    let lines = [
        "record 1 pending-install",
        "read jobs/j: 404",
        "create jobs/j: 500",
    ];
    let died = stage
        .hooks(&mut Live::default(), &mut stored, &event, &lines)
        .await;
    assert_eq!(end(died), Err(("Unavailable", true)));
    stage.now = Timestamp::from_second(3_600).unwrap();
    let mut live = Live::default();
    let lines = [
        "read jobs/j: 404",
        "create jobs/j",
        "record 1 pending-install",
    ];
    let begun = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(begun.unwrap(), waiting("pre-install hook j"));
    stage.expect_job("j", "1-pre-install-1", "Suspended");
    let still = stage.hooks(&mut live, &mut stored, &event, &[]).await;
    assert_eq!(still.unwrap(), waiting("pre-install hook j"));
    stage.now = Timestamp::from_second(3_901).unwrap();
    stage.expect_job("j", "1-pre-install-1", "Suspended");
    let lines = ["record 1 pending-install", "apply jobs/j"];
    let late = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    let message = late.unwrap_err().to_string();
    assert!(message.contains("did not end within"), "{message}");
}

#[tokio::test]
async fn the_deadline_of_a_hook_counts_from_its_run_at_this_event() {
    let mut stage = Stage::new();
    let mut live = Live::default();
    let events = [HookEvent::PreInstall, HookEvent::PostInstall];
    let mut stored = with_hooks(vec![at("jobs/j", &events, &[ONCE])]);
    let lines = [
        "record 1 pending-install",
        "read jobs/j: 404",
        "create jobs/j",
    ];
    let begun = stage
        .hooks(&mut live, &mut stored, &events[0], &lines)
        .await;
    assert_eq!(begun.unwrap(), waiting("pre-install hook j"));
    stage.expect_job("j", "1-pre-install-1", "Complete");
    let lines = ["record 1 pending-install", "apply jobs/j"];
    let ended = stage
        .hooks(&mut live, &mut stored, &events[0], &lines)
        .await;
    assert_eq!(ended.unwrap(), Progress::Done);
    // An hour of waiting for the objects.
    stage.now = Timestamp::from_second(3_600).unwrap();
    let lines = [
        "record 1 pending-install",
        "read jobs/j: 404",
        "create jobs/j",
    ];
    let begun = stage
        .hooks(&mut live, &mut stored, &events[1], &lines)
        .await;
    assert_eq!(begun.unwrap(), waiting("post-install hook j"));
    stage.expect_job("j", "1-post-install-1", "Suspended");
    let still = stage.hooks(&mut live, &mut stored, &events[1], &[]).await;
    assert_eq!(still.unwrap(), waiting("post-install hook j"));
}

#[tokio::test]
async fn what_helms_command_line_has_left_is_found_though_no_watch_shows_it() {
    let stage = Stage::watching(told_of(None, &[]));
    let watch = stage.watch_of_jobs();
    assert_eq!(watch.settled().await, WatchState::Synced);
    let event = HookEvent::PreUpgrade;
    let hook = at("jobs/j", std::slice::from_ref(&event), &[ONCE]);
    let mut stored = stored(1, Status::PendingUpgrade, &[], vec![hook]);
    stage.expect(&["record 1 pending-upgrade", "create jobs/j: 409"]);
    let get = format!("GET {}", path("jobs/j"));
    drop(
        stage
            .script
            .clone()
            .on(&get, 200, labelled("j", &json!({}))),
    );
    let mut live = Live::default();
    let lines = ["delete jobs/j"];
    let ended = stage.hooks(&mut live, &mut stored, &event, &lines).await;
    assert_eq!(ended.unwrap(), waiting("pre-upgrade hook j"));
}

#[tokio::test]
async fn an_object_on_its_way_out_is_waited_for_whatever_the_policies_are() {
    let stage = Stage::new();
    let event = HookEvent::PreUpgrade;
    let hook = at(
        "jobs/j",
        std::slice::from_ref(&event),
        &[DeletePolicy::HookSucceeded],
    );
    let mut stored = stored(1, Status::PendingUpgrade, &[], vec![hook]);
    let mut live = Live::default();
    for (deleting, expected) in [(true, Ok(())), (false, Err("before-hook-creation"))] {
        if deleting {
            stage.expect(&["record 1 pending-upgrade"]);
        }
        let mut old = stage.live("j");
        if deleting {
            old["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        let get = format!("GET {}", path("jobs/j"));
        drop(stage.script.clone().on(&get, 200, old));
        if !deleting {
            stage.expect(&["record 1 pending-upgrade"]);
        }
        let ended = stage.hooks(&mut live, &mut stored, &event, &[]).await;
        match (ended, expected) {
            (Ok(progress), Ok(())) => assert_eq!(progress, waiting("pre-upgrade hook j")),
            (Err(error), Err(message)) => assert!(error.to_string().contains(message), "{error}"),
            (ended, _) => panic!("{ended:?}"),
        }
    }
}
