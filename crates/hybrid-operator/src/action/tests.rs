//! Tests actions against a scripted API server: the requests, their order, and the effect of
//! failures.
//!
//! A request is a line: `create configmaps/c`, `apply configmaps/c` (of a known object),
//! `force configmaps/c`, `read …`, `delete …`, `record 1 deployed`, `forget 1`. A line that ends in
//! a colon and a status code is answered with that failure, any other with success;
//! `read … @1-test-1` is answered with an object of a hook of that run.

use std::time::Duration;

use helm_core::manifest::hook::{DeletePolicy, Hook, HookEvent, HookPhase};
use helm_core::release::{Release, ReleaseName, Revision, Status};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::scripted::{Script, failure};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::deploy::{Deployment, StoredRelease, deploy};
use super::live::Live;
use super::uninstall::uninstall;
use super::{ActionContext, ActionError, ActionProgress, run_hooks};
use crate::cluster::apply::ApplyPolicy;
use crate::cluster::ownership::{CR_LABEL, RUN_LABEL};
use crate::cluster::{Cluster, InstanceId, OperatorId, Primary};
use crate::controller::Registry;
use crate::release::{RecordMeta, RecordStore, ReleaseIndex};

mod drift;
mod hooks;

/// The inputs of an action, with a scripted API server.
struct Fixture {
    script: Script,
    cluster: Cluster,
    store: RecordStore,
    registry: Registry,
    primary: Primary,
    operator: OperatorId,
    instance: InstanceId,
    name: ReleaseName,
    recreate: Vec<String>,
    now: Timestamp,
}

impl Fixture {
    fn new() -> Self {
        // Watches are never answered.
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        Self::watching(Client::new(silent, "default"))
    }

    /// Creates a fixture with a client for the watches.
    fn watching(watches: Client) -> Self {
        let script = Script::default();
        Self {
            cluster: Cluster::scripted(&script),
            store: RecordStore::new(
                script.client(),
                ReleaseIndex::new(),
                crate::release::ProofKeys::of_process(),
            ),
            registry: Registry::new(watches),
            script,
            primary: Primary {
                gvk: GroupVersionKind::gvk("test.example.com", "v1", "Widget"),
                namespace: Some("prod".to_owned()),
                name: "one".to_owned(),
                uid: "cr-uid-of-the-widget".to_owned(),
                component: None,
            },
            operator: OperatorId::new("op"),
            instance: InstanceId::new("pod"),
            name: "one".parse().unwrap(),
            recreate: Vec::new(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn context(&self) -> ActionContext<'_> {
        ActionContext {
            cluster: &self.cluster,
            store: &self.store,
            registry: &self.registry,
            namespaces: &[],
            primary: &self.primary,
            operator: &self.operator,
            instance: &self.instance,
            chart: "chart",
            name: &self.name,
            namespace: "prod",
            policy: ApplyPolicy::default(),
            timeout: Duration::from_mins(5),
            recreate: &self.recreate,
            disable_hooks: false,
            now: self.now,
        }
    }

    /// Expects these requests from now on.
    fn expect(&self, lines: &[&str]) {
        for line in lines {
            let (request, status, answer) = self.exchange(line);
            self.script.expect(&request, status, answer);
        }
    }

    /// Asserts that these requests, and no others, were sent last.
    fn assert_sent(&self, lines: &[&str]) {
        let seen = self.script.finish();
        let last = seen.get(seen.len() - lines.len()..).unwrap();
        let line_of: Vec<String> = last.iter().map(line_of).collect();
        let wanted: Vec<&str> = lines.iter().map(|line| split(line).0).collect();
        assert_eq!(line_of, wanted);
    }

    /// A request and its answer.
    fn exchange(&self, request: &str) -> (String, u16, Value) {
        let (words, code) = split(request);
        let run = request.split_once(" @").map(|(_, run)| run_label(run));
        let (verb, rest) = words.split_once(' ').unwrap();
        let number = rest.split(' ').next().unwrap();
        let (method, path) = match verb {
            "create" | "apply" | "force" => ("PATCH", path(rest)),
            "read" => ("GET", path(rest)),
            "delete" => ("DELETE", path(rest)),
            "record" => ("PUT", path(&format!("secrets/{}", secret(number)))),
            "forget" => ("DELETE", path(&format!("secrets/{}", secret(number)))),
            other => panic!("invalid request {other:?}"),
        };
        let answer = match (code, verb) {
            (Some(code), _) => failure_status(code),
            (None, "record") => record(number.parse().unwrap()),
            (None, _) => {
                let mut live = self.live(rest.rsplit('/').next().unwrap());
                if let Some(run) = run {
                    live["metadata"]["labels"][RUN_LABEL] = json!(run);
                }
                live
            }
        };
        let status = code.unwrap_or(if verb == "create" { 201 } else { 200 });
        (format!("{method} {path}"), status, answer)
    }

    /// Returns an object with the label of the custom resource.
    fn live(&self, name: &str) -> Value {
        json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "7",
            "labels": {CR_LABEL: self.primary.identity().as_str()}}})
    }

    /// Deploys the first revision.
    async fn install(&self, live: &mut Live, objects: &[&str]) -> StoredRelease {
        let mut stored = stored(1, Status::PendingInstall, objects, Vec::new());
        let mut lines: Vec<String> = objects.iter().map(|o| format!("create {o}")).collect();
        lines.push("record 1 deployed".to_owned());
        self.expect(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let done = deploy(&self.context(), live, deployment(&mut stored)).await;
        assert_eq!(done.unwrap(), ActionProgress::Done);
        stored
    }
}

/// Returns the label of a run in the first record.
fn run_label(run: &str) -> String {
    format!("record-{}-{run}", run.split('-').next().unwrap())
}

/// Splits a line into the request and the status code of its answer.
fn split(line: &str) -> (&str, Option<u16>) {
    let line = line.split(" @").next().unwrap();
    match line.split_once(": ") {
        Some((words, code)) => (words, Some(code.parse().unwrap())),
        None => (line, None),
    }
}

fn path(resource: &str) -> String {
    let (plural, name) = resource.split_once('/').unwrap();
    match plural {
        "deployments" => format!("/apis/apps/v1/namespaces/prod/deployments/{name}"),
        "jobs" => format!("/apis/batch/v1/namespaces/prod/jobs/{name}"),
        "clusterroles" => format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}"),
        "namespaces" => format!("/api/v1/namespaces/{name}"),
        _ => format!("/api/v1/namespaces/prod/{plural}/{name}"),
    }
}

fn secret(revision: &str) -> String {
    format!("sh.helm.release.v1.one.v{revision}")
}

/// The metadata of a record.
fn record(revision: u32) -> Value {
    json!({"metadata": {"name": secret(&revision.to_string()), "namespace": "prod",
        "uid": format!("record-{revision}"), "resourceVersion": "5", "labels": {"owner": "helm"}}})
}

fn failure_status(code: u16) -> Value {
    let cause = json!({"reason": "FieldValueInvalid", "message": "field is immutable",
        "field": "spec.selector"});
    let (reason, details) = match code {
        403 => ("Forbidden", json!({"kind": "things"})),
        404 => ("NotFound", json!({"kind": "things"})),
        409 => ("Conflict", json!({"kind": "things"})),
        422 => ("Invalid", json!({"causes": [cause]})),
        _ => ("InternalError", json!({})),
    };
    failure(code, reason, "no", &details)
}

/// Returns the line of a request.
fn line_of(seen: &Recorded) -> String {
    let parts: Vec<&str> = seen.path.rsplit('/').take(2).collect();
    let [name, plural] = parts[..] else {
        panic!("{seen:?}")
    };
    let metadata = &seen.json()["metadata"];
    let record = name.strip_prefix("sh.helm.release.v1.one.v");
    match (seen.method.as_str(), record) {
        ("PUT", Some(revision)) => {
            let status = metadata["labels"]["status"].as_str().unwrap();
            format!("record {revision} {status}")
        }
        ("DELETE", Some(revision)) => format!("forget {revision}"),
        ("PATCH", None) if metadata["resourceVersion"] == "1" => format!("create {plural}/{name}"),
        ("PATCH", None) if seen.query.get("force").is_some_and(|force| force == "true") => {
            format!("force {plural}/{name}")
        }
        ("PATCH", None) => format!("apply {plural}/{name}"),
        ("GET", None) => format!("read {plural}/{name}"),
        ("DELETE", None) => format!("delete {plural}/{name}"),
        _ => panic!("{seen:?}"),
    }
}

/// Returns the document of an object `plural/name`, with an annotation that differs between
/// revisions.
fn document(object: &str, mark: &str) -> String {
    let (plural, name) = object.split_once('/').unwrap();
    let (version, kind) = match plural {
        "deployments" => ("apps/v1", "Deployment"),
        "services" => ("v1", "Service"),
        "namespaces" => ("v1", "Namespace"),
        "configmaps" => ("v1", "ConfigMap"),
        "clusterroles" => ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        "jobs" => ("batch/v1", "Job"),
        other => panic!("unknown kind {other:?}"),
    };
    let keep = if name == "kept" { "keep" } else { "" };
    let spec = if name == "expiring" {
        "spec: {ttlSecondsAfterFinished: 0}\n"
    } else {
        ""
    };
    format!(
        "---\napiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}\n  annotations: {{mark: {mark:?}, helm.sh/resource-policy: {keep:?}}}\n{spec}"
    )
}

fn stored(revision: u32, status: Status, objects: &[&str], hooks: Vec<Hook>) -> StoredRelease {
    let mut release = Release::new("one".parse().unwrap(), "prod", Revision(revision));
    let mark = revision.to_string();
    release.manifest = objects
        .iter()
        .map(|object| document(object, &mark))
        .collect();
    release.hooks = hooks;
    release.set_status(status, "");
    let metadata = serde_json::from_value(record(revision)["metadata"].clone()).unwrap();
    let meta = RecordMeta::of(&metadata, crate::release::Format::Helm).unwrap();
    StoredRelease {
        meta,
        release,
        proven: true,
    }
}

fn deployment(stored: &mut StoredRelease) -> Deployment<'_> {
    let (pre, post) = match stored.release.info.status {
        Status::PendingUpgrade => (HookEvent::PreUpgrade, HookEvent::PostUpgrade),
        Status::PendingRollback => (HookEvent::PreRollback, HookEvent::PostRollback),
        _ => (HookEvent::PreInstall, HookEvent::PostInstall),
    };
    Deployment {
        stored,
        previous: None,
        leftovers: Vec::new(),
        pre,
        post,
        wait: false,
        wait_for_jobs: false,
        description: String::new(),
    }
}

/// A hook that succeeds as soon as it exists.
fn hook(name: &str, event: HookEvent, weight: i64, policy: DeletePolicy) -> Hook {
    Hook {
        name: name.to_owned(),
        kind: "ConfigMap".to_owned(),
        manifest: document(&format!("configmaps/{name}"), ""),
        events: vec![event],
        weight,
        delete_policies: vec![policy],
        ..Hook::default()
    }
}

/// Two hooks of the event `before`, with different weights, and one of the event `after`.
fn hooks(before: &HookEvent, after: &HookEvent) -> Vec<Hook> {
    let once = DeletePolicy::BeforeHookCreation;
    vec![
        hook("late", before.clone(), 5, once.clone()),
        hook("early", before.clone(), -5, once),
        hook("after", after.clone(), 0, DeletePolicy::HookSucceeded),
    ]
}

#[tokio::test]
async fn an_install_runs_hooks_by_weight_and_applies_objects_in_order() {
    let fixture = Fixture::new();
    let lines = [
        "record 1 pending-install",
        "read configmaps/early: 404",
        "create configmaps/early",
        "record 1 pending-install",
        "record 1 pending-install",
        "read configmaps/late: 404",
        "create configmaps/late",
        "record 1 pending-install",
        "create configmaps/c",
        "create services/s",
        "create deployments/d",
        "record 1 pending-install",
        "read configmaps/after: 404",
        "create configmaps/after",
        "record 1 pending-install",
        "read configmaps/after @1-post-install-1",
        "delete configmaps/after",
        "record 1 deployed",
    ];
    fixture.expect(&lines);
    let objects = ["configmaps/c", "services/s", "deployments/d"];
    let hooks = hooks(&HookEvent::PreInstall, &HookEvent::PostInstall);
    let mut stored = stored(1, Status::PendingInstall, &objects, hooks);
    let mut live = Live::default();
    let done = deploy(&fixture.context(), &mut live, deployment(&mut stored)).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
    fixture.assert_sent(&lines);
}

#[tokio::test]
async fn an_upgrade_prunes_removed_objects_and_then_supersedes() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let before = [
        "configmaps/c",
        "configmaps/gone",
        "configmaps/kept",
        "deployments/d",
    ];
    let previous = fixture.install(&mut live, &before).await;
    let lines = [
        "apply configmaps/c",
        "create services/s",
        "apply deployments/d",
        "read configmaps/gone",
        "delete configmaps/gone",
        // To be kept: its owner reference is checked.
        "read configmaps/kept",
        "read configmaps/kept",
        "record 2 deployed",
        "record 1 superseded",
    ];
    fixture.expect(&lines);
    let after = ["configmaps/c", "services/s", "deployments/d"];
    let mut stored = stored(2, Status::PendingUpgrade, &after, Vec::new());
    let upgrade = Deployment {
        previous: Some(previous),
        ..deployment(&mut stored)
    };
    let done = deploy(&fixture.context(), &mut live, upgrade).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
    fixture.assert_sent(&lines);
}

#[tokio::test]
async fn a_rollback_removes_objects_of_the_failed_revision() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let good = ["configmaps/c", "deployments/d"];
    let previous = fixture.install(&mut live, &good).await;
    let lines = [
        "record 3 pending-rollback",
        "read configmaps/early: 404",
        "create configmaps/early",
        "record 3 pending-rollback",
        "record 3 pending-rollback",
        "read configmaps/late: 404",
        "create configmaps/late",
        "record 3 pending-rollback",
        "apply configmaps/c",
        "apply deployments/d",
        "read services/s",
        "delete services/s",
        "record 3 pending-rollback",
        "read configmaps/after: 404",
        "create configmaps/after",
        "record 3 pending-rollback",
        "read configmaps/after @3-post-rollback-1",
        "delete configmaps/after",
        "record 3 deployed",
        "record 1 superseded",
    ];
    fixture.expect(&lines);
    let failed = stored(2, Status::Failed, &["services/s"], Vec::new());
    let hooks = hooks(&HookEvent::PreRollback, &HookEvent::PostRollback);
    let mut stored = stored(3, Status::PendingRollback, &good, hooks);
    let rollback = Deployment {
        previous: Some(previous),
        leftovers: vec![failed],
        ..deployment(&mut stored)
    };
    let done = deploy(&fixture.context(), &mut live, rollback).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
    fixture.assert_sent(&lines);
}

#[tokio::test]
async fn an_uninstall_keeps_annotated_objects_and_deletes_the_record_last() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let objects = [
        "configmaps/c",
        "configmaps/kept",
        "services/s",
        "deployments/d",
    ];
    let mut stored = fixture.install(&mut live, &objects).await;
    stored.release.hooks = hooks(&HookEvent::PreDelete, &HookEvent::PostDelete);
    let lines = [
        "record 1 deployed",
        "read configmaps/early: 404",
        "create configmaps/early",
        "record 1 deployed",
        "record 1 deployed",
        "read configmaps/late: 404",
        "create configmaps/late",
        "record 1 deployed",
        "record 1 uninstalling",
        "read services/s",
        "delete services/s",
        "read deployments/d",
        "delete deployments/d",
        "read configmaps/c",
        "delete configmaps/c",
        "read configmaps/kept",
        "read configmaps/kept",
        "record 1 uninstalling",
        "read configmaps/after: 404",
        "create configmaps/after",
        "record 1 uninstalling",
        "read configmaps/after @1-post-delete-1",
        "delete configmaps/after",
        // Hooks that their delete policies have kept.
        "read configmaps/late",
        "delete configmaps/late",
        "read configmaps/early",
        "delete configmaps/early",
        "read configmaps/after: 404",
        "forget 1",
    ];
    fixture.expect(&lines);
    let ended = uninstall(&fixture.context(), &mut live, &mut stored, &[], false, "").await;
    assert_eq!(ended.unwrap(), ActionProgress::Done);
    fixture.assert_sent(&lines);
}

#[tokio::test]
async fn test_hooks_run_by_weight_and_touch_nothing_else() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let mut stored = fixture.install(&mut live, &["configmaps/c"]).await;
    stored.release.hooks = hooks(&HookEvent::Test, &HookEvent::PostInstall);
    let lines = [
        "record 1 deployed",
        "read configmaps/early: 404",
        "create configmaps/early",
        "record 1 deployed",
        "record 1 deployed",
        // Created by an earlier run: deleted, and checked again later.
        "read configmaps/late",
        "delete configmaps/late",
    ];
    fixture.expect(&lines);
    let waiting = run_hooks(&fixture.context(), &mut live, &mut stored, &HookEvent::Test).await;
    let why = "test hook late".to_owned();
    assert_eq!(waiting.unwrap(), ActionProgress::Waiting { why });
    fixture.assert_sent(&lines);

    let lines = [
        "read configmaps/late: 404",
        "create configmaps/late",
        "record 1 deployed",
    ];
    fixture.expect(&lines);
    let done = run_hooks(&fixture.context(), &mut live, &mut stored, &HookEvent::Test).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
    fixture.assert_sent(&lines);
}

#[tokio::test]
async fn a_test_hook_that_the_api_server_refuses_has_failed() {
    let table = [
        ("create configmaps/h: 422", HookEvent::Test, true),
        ("create configmaps/h: 403", HookEvent::Test, true),
        ("create configmaps/h: 500", HookEvent::Test, false),
        // The release cannot go on without any other hook; it is tried again.
        ("create configmaps/h: 422", HookEvent::PostInstall, false),
    ];
    for (line, event, failed) in table {
        let fixture = Fixture::new();
        let once = DeletePolicy::BeforeHookCreation;
        let hooks = vec![hook("h", event.clone(), 0, once)];
        let mut stored = stored(1, Status::Deployed, &[], hooks);
        let mut lines = vec!["record 1 deployed", "read configmaps/h: 404", line];
        if failed {
            lines.push("record 1 deployed");
        }
        fixture.expect(&lines);
        let mut live = Live::default();
        let ended = run_hooks(&fixture.context(), &mut live, &mut stored, &event).await;
        let error = ended.unwrap_err();
        assert_eq!(error.reason() == "HookFailed", failed, "{line}: {error}");
        let phase = &stored.release.hooks[0].last_run.phase;
        assert_eq!(*phase == HookPhase::Failed, failed, "{line}: {phase:?}");
        if failed {
            let message = error.to_string();
            assert!(message.starts_with("test hook h failed: "), "{message}");
            assert!(message.contains("prod/h"), "{message}");
        }
        fixture.assert_sent(&lines);
    }
}

/// A live object with these labels.
fn labelled(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": "uid", "resourceVersion": "7", "labels": labels}})
}

#[tokio::test]
async fn a_hook_deletes_nothing_that_belongs_to_others() {
    let others = json!({CR_LABEL: "another custom resource's"});
    // An object without an owner may come from the `helm` command.
    for (labels, deleted) in [(&others, false), (&json!({}), true)] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let once = DeletePolicy::BeforeHookCreation;
        let hooks = vec![hook("h", HookEvent::Test, 0, once)];
        let mut stored = stored(1, Status::Deployed, &[], hooks);
        fixture.expect(&["record 1 deployed"]);
        let path = path("configmaps/h");
        let answer = labelled("h", labels);
        drop(
            fixture
                .script
                .clone()
                .on(&format!("GET {path}"), 200, answer),
        );
        fixture.expect(&[if deleted {
            "delete configmaps/h"
        } else {
            "record 1 deployed"
        }]);
        let ended = run_hooks(&fixture.context(), &mut live, &mut stored, &HookEvent::Test).await;
        match ended {
            Ok(progress) => assert!(deleted && progress != ActionProgress::Done),
            Err(error) => {
                let message = error.to_string();
                assert!(
                    !deleted && message.contains("another custom resource"),
                    "{message}"
                );
            }
        }
        fixture.script.finish();
    }
}

#[tokio::test]
async fn an_uninstall_leaves_hooks_that_are_kept_or_not_ours() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let mut stored = fixture.install(&mut live, &[]).await;
    let once = DeletePolicy::BeforeHookCreation;
    let ran = |name| {
        let mut hook = hook(name, HookEvent::PreInstall, 0, once.clone());
        hook.last_run.phase = HookPhase::Succeeded;
        hook
    };
    stored.release.hooks = vec![ran("theirs"), ran("kept"), ran("ours")];
    fixture.expect(&["record 1 uninstalling"]);
    let get = format!("GET {}", path("configmaps/theirs"));
    let theirs = labelled("theirs", &json!({}));
    fixture.script.expect(&get, 200, theirs);
    let lines = [
        "read configmaps/kept",
        "read configmaps/ours",
        "delete configmaps/ours",
        "forget 1",
    ];
    fixture.expect(&lines);
    let ended = uninstall(&fixture.context(), &mut live, &mut stored, &[], false, "").await;
    assert_eq!(ended.unwrap(), ActionProgress::Done);
    fixture.assert_sent(&lines);
}

/// The result of an action: the reason of its error, and whether it is transient.
type ActionResult = Result<(), (&'static str, bool)>;

fn action_result(progress: Result<ActionProgress, ActionError>) -> ActionResult {
    progress
        .map(|progress| assert_eq!(progress, ActionProgress::Done))
        .map_err(|error| (error.reason(), error.is_transient()))
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table of all failures")]
async fn an_upgrade_stops_where_it_fails() {
    let rest = &[
        "read configmaps/gone",
        "delete configmaps/gone",
        "record 2 deployed",
    ][..];
    for (lines, rest, recreate, expected) in [
        // A missing permission: later kinds are not applied, and nothing is pruned.
        (
            &["apply configmaps/c: 403"][..],
            &[][..],
            "",
            Err(("Forbidden", false)),
        ),
        // Kinds are applied one after the other.
        (
            &["apply configmaps/c", "create services/s: 403"],
            &[],
            "",
            Err(("Forbidden", false)),
        ),
        (
            &["apply configmaps/c: 500"],
            &[],
            "",
            Err(("Unavailable", true)),
        ),
        // An immutable field: the object is deleted and created again only if its kind is
        // configured so.
        (
            &["apply configmaps/c: 422"],
            &[],
            "Service",
            Err(("ImmutableField", false)),
        ),
        (
            &[
                "apply configmaps/c: 422",
                "read configmaps/c",
                "delete configmaps/c",
                "create configmaps/c",
                "create services/s",
            ],
            rest,
            "ConfigMap",
            Ok(()),
        ),
        // Changed by somebody else at the same time: only read.
        (
            &["apply configmaps/c: 409", "read configmaps/c"],
            &[],
            "",
            Err(("Contended", true)),
        ),
        // Gone: created again.
        (
            &[
                "apply configmaps/c: 409",
                "read configmaps/c: 404",
                "create configmaps/c",
                "create services/s",
            ],
            rest,
            "",
            Ok(()),
        ),
        // Already the release's, as after a crash: applied.
        (
            &[
                "apply configmaps/c",
                "create services/s: 409",
                "read services/s",
                "force services/s",
            ],
            rest,
            "",
            Ok(()),
        ),
        // A failure to prune is reported.
        (
            &[
                "apply configmaps/c",
                "create services/s",
                "read configmaps/gone",
                "delete configmaps/gone: 403",
            ],
            &[],
            "",
            Err(("Forbidden", false)),
        ),
        // Somebody else has changed the record.
        (
            &[
                "apply configmaps/c",
                "create services/s",
                "read configmaps/gone",
                "delete configmaps/gone",
                "record 2 deployed: 409",
            ],
            &[],
            "",
            Err(("RecordChanged", true)),
        ),
    ] {
        let mut fixture = Fixture::new();
        fixture.recreate = vec![recreate.to_owned()];
        let mut live = Live::default();
        let before = ["configmaps/c", "configmaps/gone"];
        drop(fixture.install(&mut live, &before).await);
        let superseded = stored(1, Status::Superseded, &before, Vec::new());
        let lines = [lines, rest].concat();
        fixture.expect(&lines);
        let after = ["configmaps/c", "services/s"];
        let mut stored = stored(2, Status::PendingUpgrade, &after, Vec::new());
        let upgrade = Deployment {
            previous: Some(superseded),
            ..deployment(&mut stored)
        };
        let ended = deploy(&fixture.context(), &mut live, upgrade).await;
        assert_eq!(action_result(ended), expected, "{lines:?}");
        fixture.assert_sent(&lines);
    }
}

#[tokio::test]
async fn kinds_that_hold_other_objects_are_never_recreated() {
    let mut fixture = Fixture::new();
    fixture.recreate = vec!["Namespace".to_owned()];
    let mut live = Live::default();
    let objects = ["namespaces/made"];
    let previous = fixture.install(&mut live, &objects).await;
    let lines = ["apply namespaces/made: 422"];
    fixture.expect(&lines);
    let mut stored = stored(2, Status::PendingUpgrade, &objects, Vec::new());
    let upgrade = Deployment {
        previous: Some(previous),
        ..deployment(&mut stored)
    };
    let ended = deploy(&fixture.context(), &mut live, upgrade).await;
    assert_eq!(action_result(ended), Err(("ImmutableField", false)));
    fixture.assert_sent(&lines);
}

#[tokio::test]
async fn a_failed_uninstall_keeps_the_records() {
    for (lines, expected) in [
        (&["record 1 uninstalling: 409"][..], ("RecordChanged", true)),
        (
            &[
                "record 1 uninstalling",
                "read deployments/d",
                "delete deployments/d: 403",
            ],
            ("Forbidden", false),
        ),
        (
            &["record 1 uninstalling", "read deployments/d: 500"],
            ("Unavailable", true),
        ),
        // An object that is already gone counts as deleted.
        (
            &[
                "record 1 uninstalling",
                "read deployments/d",
                "delete deployments/d: 409",
                "read deployments/d: 404",
                "read configmaps/c: 403",
            ],
            ("Forbidden", false),
        ),
    ] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let objects = ["configmaps/c", "deployments/d"];
        let mut stored = fixture.install(&mut live, &objects).await;
        fixture.expect(lines);
        let ended = uninstall(&fixture.context(), &mut live, &mut stored, &[], false, "").await;
        assert_eq!(action_result(ended), Err(expected), "{lines:?}");
        fixture.assert_sent(lines);
    }
}
