//! Tests actions against a scripted API server: the requests, their order, and the effect of
//! failures.
//!
//! Requests are texts between commas: `create configmaps/c`, `apply configmaps/c` (of a known
//! object), `force configmaps/c`, `read …`, `delete …`, `record 1 deployed`, `forget 1`. One that
//! ends in a colon and a status code is answered with that failure, any other with success;
//! `read … @1-test-1` is answered with an object of a hook of that run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helm_core::manifest::hook::{DeletePolicy, Hook, HookEvent, HookPhase};
use helm_core::release::{Release, ReleaseName, Revision, Status};
use hybrid_operator_test::fault::Fault;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::scripted::{Script, failure};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube_objects::apply::ApplyPolicy;
use kube_objects::ownership::{CR_LABEL, RUN_LABEL};
use kube_objects::watch::{Fields, Registry, Restarts};
use kube_objects::{Cluster, InstanceId, OperatorId, Primary};
use serde_json::{Value, json};

use super::context::StoredRelease;
use super::deploy::{Deployment, deploy};
use super::live::Live;
use super::uninstall::uninstall;
use super::{ActionContext, ActionError, ActionProgress, Interrupted, prune_leftover, run_hooks};
use crate::event::EventReason;
use crate::release::{RecordMeta, RecordStore, ReleaseIndex};
use crate::tests::fixtures::scripted_cluster;

mod drift;
mod hooks;
mod releases;

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
    kept_fields: BTreeMap<String, Arc<Fields>>,
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
            cluster: scripted_cluster(&script),
            store: RecordStore::new(
                script.client(),
                ReleaseIndex::new(),
                crate::release::ProofKeys::of_process(),
            ),
            registry: Registry::new(watches, Restarts::default()),
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
            kept_fields: BTreeMap::new(),
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
            expand_volumes: false,
            kept_fields: &self.kept_fields,
            disable_hooks: false,
            unowned: false,
            crash_logs: true,
            now: self.now,
        }
    }

    /// Expects these requests from now on.
    fn expect(&self, lines: &str) {
        for line in requests(lines) {
            let (request, status, answer) = self.exchange(line);
            self.script.expect(&request, status, answer);
        }
    }

    /// Expects a read of an object, which is like this.
    fn expect_read(&self, object: &str, answer: Value) {
        let get = format!("GET {}", path(object));
        self.script.expect(&get, 200, answer);
    }

    /// Asserts that these requests, and no others, were sent last.
    fn assert_sent(&self, lines: &str) {
        let seen = self.script.finish();
        let wanted: Vec<&str> = requests(lines).map(|line| split(line).0).collect();
        let last = seen.get(seen.len() - wanted.len()..).unwrap();
        let line_of: Vec<String> = last.iter().map(line_of).collect();
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
        let created: Vec<String> = objects.iter().map(|o| format!("create {o}")).collect();
        let lines = format!("{}, record 1 deployed", created.join(", "));
        self.deploys(live, deployment(&mut stored), &lines).await;
        stored
    }

    /// Deploys with exactly these requests.
    async fn deploy(
        &self,
        live: &mut Live,
        deployment: Deployment<'_>,
        lines: &str,
    ) -> Result<ActionProgress, ActionError> {
        self.expect(lines);
        let ended = Box::pin(deploy(&self.context(), live, deployment)).await;
        self.assert_sent(lines);
        ended
    }

    /// Deploys to the end with exactly these requests.
    async fn deploys(&self, live: &mut Live, deployment: Deployment<'_>, lines: &str) {
        let done = self.deploy(live, deployment, lines).await;
        assert_eq!(done.unwrap(), ActionProgress::Done);
    }

    /// Uninstalls with exactly these requests.
    async fn uninstall(
        &self,
        live: &mut Live,
        stored: &mut StoredRelease,
        lines: &str,
    ) -> Result<ActionProgress, ActionError> {
        self.expect(lines);
        let ended = Box::pin(uninstall(&self.context(), live, stored, &[], false, "")).await;
        self.assert_sent(lines);
        ended
    }

    /// Uninstalls to the end with exactly these requests.
    async fn uninstalls(&self, live: &mut Live, stored: &mut StoredRelease, lines: &str) {
        let done = self.uninstall(live, stored, lines).await;
        assert_eq!(done.unwrap(), ActionProgress::Done);
    }

    /// Runs the hooks of an event with exactly these requests.
    async fn hooks(
        &self,
        live: &mut Live,
        stored: &mut StoredRelease,
        event: &HookEvent,
        lines: &str,
    ) -> Result<ActionProgress, ActionError> {
        let (context, fresh) = (self.context(), Interrupted::default());
        self.expect(lines);
        let ended = run_hooks(&context, live, stored, event, &fresh).await;
        self.assert_sent(lines);
        ended
    }
}

/// Returns the label of a run in the first record.
fn run_label(run: &str) -> String {
    format!("record-{}-{run}", run.split('-').next().unwrap())
}

/// Returns the requests of a text, in which lines that begin with `//` are comments.
fn requests(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//"));
    let requests = lines.flat_map(|line| line.split(',')).map(str::trim);
    requests.filter(|request| !request.is_empty())
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

/// A deployment after this revision.
fn after(previous: StoredRelease, stored: &mut StoredRelease) -> Deployment<'_> {
    Deployment {
        previous: Some(previous),
        ..deployment(stored)
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

/// A live object with these labels.
fn labelled(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "uid": "uid", "resourceVersion": "7", "labels": labels}})
}

/// The result of an action: the reason of its error, and whether it is transient.
type ActionResult = Result<(), (&'static str, bool)>;

fn action_result(progress: Result<ActionProgress, ActionError>) -> ActionResult {
    progress
        .map(|progress| assert_eq!(progress, ActionProgress::Done))
        .map_err(|error| (error.reason(), error.is_transient()))
}
