//! Custom resources that move from a Helm operator in Go to this one, back, and here again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hybrid_operator_test::go_operator::GoOperator;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::wait::{self, Check};
use hybrid_operator_test::{ControlPlane, Operator, TestNamespace};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ResourceExt};
use serde_json::{Value, json};

use crate::transcript::programs;
use crate::world::{
    LIMIT, Project, api, api_of, create, define_kind, delete, exists, gone, history, holds, merge,
    new_namespace, output, ready_at, says,
};

/// Objects of a chart: a workload with Pods, a number that is large, nulls, and a hook.
const OBJECTS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}, annotations: {text: {{ .Values.text | quote }}}}
    spec: {containers: [{name: main, image: image}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data:
  large: {{ .Values.large | quote }}
  noise: {{ .Values.noise | quote }}
  kept: {{ .Values.kept | default \"none\" | quote }}
  list: {{ .Values.list | toJson | quote }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: \"post-install,post-upgrade\"}
data: {text: {{ .Values.text | quote }}}
";

const VALUES: &str =
    "replicas: 1\nlarge: 1048576\nkept: default\nlist: [1, 2.5]\ntext: first\nnoise: ''\n";

/// Number of custom resources; `make migrate-test` sets another one.
fn count() -> usize {
    let count = std::env::var("CUSTOM_RESOURCES").ok();
    count.map_or(6, |count| count.parse().unwrap())
}

/// Returns the time limit of a wait: the Go operators look at one custom resource after the other, again and again.
fn limit() -> Duration {
    LIMIT * u32::try_from(1 + count() / 60).unwrap()
}

async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    // A future has room for those that it awaits.
    let wait = Box::pin(wait::holds(api, name, what, limit(), wanted));
    wait.await.unwrap()
}

async fn eventually<T, L: Into<Check<T>>>(what: &str, check: impl AsyncFnMut() -> L) -> T {
    Box::pin(wait::until(limit(), what, check)).await.unwrap()
}

/// Annotation with which a custom resource stays until all objects of its release are gone.
const WAIT: &str = "helm.sdk.operatorframework.io/uninstall-wait";
/// Annotation with the time after which the Go operator looks whether they are gone.
const PERIOD: &str = "helm.sdk.operatorframework.io/reconcile-period";

/// Returns a text with which the record of a release does not fit into one Secret.
fn noise() -> String {
    let mut numbers = fastrand::Rng::with_seed(36);
    (0..600_000).map(|_| numbers.alphanumeric()).collect()
}

/// Parts of a release that stay when another operator takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    history: Vec<String>,
    /// The uid and the generation of the Deployment.
    deployment: (Option<String>, Option<i64>),
    /// Uids of the Pods.
    pods: Vec<String>,
    data: Value,
}

/// The custom resources, and the operators that take turns.
struct Moved {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    project: Project,
    shops: Api<DynamicObject>,
    go: Operator,
    names: Vec<String>,
}

impl Moved {
    /// Returns `None` if the machine lacks what the test needs.
    async fn new(go: GoOperator) -> Option<Self> {
        let project = Project::new("", &[("objects.yaml", OBJECTS)]);
        project.write("chart/values.yaml", VALUES);
        let directory = project.watches_file();
        let directory = directory.parent().unwrap_or(Path::new("."));
        let go = go.of_project_or_skip(directory).unwrap()?;
        let (plane, namespace) = new_namespace("back").await?;
        let group = format!("{}.example.com", namespace.name());
        define_kind(plane, &group, "Shop").await;
        project.watch(&group, "Shop", "");
        let go = go
            .env("WATCH_NAMESPACE", namespace.name())
            .env("OPERATOR_NAME", namespace.name())
            .kubeconfig(plane.kubeconfig_path());
        Some(Self {
            shops: api_of(&namespace, &group, "Shop"),
            plane,
            namespace,
            project,
            go,
            names: (0..count())
                .map(|number| format!("shop-{number}"))
                .collect(),
        })
    }

    async fn create(&self, name: &str, spec: Value) {
        let shop = json!({
            "apiVersion": format!("{}.example.com/v1", self.namespace.name()), "kind": "Shop",
            "metadata": {"name": name, "annotations": {WAIT: "true"}}, "spec": spec,
        });
        create(&self.shops, shop).await;
    }

    /// Runs the Go operator until it has reconciled all custom resources.
    async fn run_go(&self) -> RunningOperator {
        let operator = self.go.clone().start().await.unwrap();
        for name in &self.names {
            until(&self.shops, name, "Deployed", holds("Deployed")).await;
        }
        operator
    }

    /// Waits until the Go operator has looked at all custom resources.
    async fn until_seen(&self, operator: &RunningOperator) {
        let is_seen = |log: &str, name: &str| {
            let mut lines = log.lines().filter(|line| line.contains(name));
            lines.any(|line| {
                line.contains("Reconciled release") || line.contains("Release reconciled")
            })
        };
        let all = async || {
            let log = operator.log();
            self.names
                .iter()
                .all(|name| is_seen(&log, &format!("\"{name}\"")))
        };
        eventually("the Go operator to look at all custom resources", all).await;
    }

    /// Runs our operator until all custom resources are ready at these revisions.
    async fn run_ours(&self, revision: impl Fn(&str) -> u32) -> RunningOperator {
        let operator = self.project.run(self.plane, &self.namespace).await;
        for name in &self.names {
            until(&self.shops, name, "the revision", ready_at(revision(name))).await;
        }
        operator
    }

    async fn set(&self, name: &str, spec: Value) {
        merge(&self.shops, name, &json!({"spec": spec})).await;
    }

    async fn state(&self, name: &str) -> State {
        let deployment = api(&self.namespace, "Deployment").get(name).await.unwrap();
        let map = api(&self.namespace, "ConfigMap").get(name).await.unwrap();
        let of_shop = ListParams::default().labels(&format!("app={name}"));
        let pods = api(&self.namespace, "Pod").list(&of_shop).await.unwrap();
        State {
            history: history(&self.namespace, name).await,
            deployment: (deployment.uid(), deployment.metadata.generation),
            pods: pods.iter().filter_map(ResourceExt::uid).collect(),
            data: map.data["data"].clone(),
        }
    }

    async fn states(&self) -> BTreeMap<String, State> {
        let mut states = BTreeMap::new();
        for name in &self.names {
            states.insert(name.clone(), self.state(name).await);
        }
        states
    }

    /// Returns the number of the newest revision.
    async fn revision(&self, name: &str) -> u32 {
        let of_release = ListParams::default().labels(&format!("owner=helm,name={name}"));
        let records = api(&self.namespace, "Secret")
            .list(&of_release)
            .await
            .unwrap();
        let numbers = records
            .iter()
            .map(|record| record.labels()["version"].parse().unwrap());
        numbers.max().unwrap()
    }

    /// Waits until each Deployment has its Pods.
    async fn until_running(&self) {
        for name in &self.names {
            self.until_it_runs(name).await;
        }
    }

    async fn until_it_runs(&self, name: &str) {
        let has_pods = |deployment: &Value| {
            deployment["status"]["readyReplicas"] == deployment["spec"]["replicas"]
                && deployment["status"]["observedGeneration"]
                    == deployment["metadata"]["generation"]
                && deployment["status"]["replicas"] == deployment["spec"]["replicas"]
        };
        until(
            &api(&self.namespace, "Deployment"),
            name,
            "its Pods",
            has_pods,
        )
        .await;
    }

    /// Returns what `migrate --check` prints.
    fn check(&self) -> String {
        let mut command = Command::new(programs().join("hybrid-operator"));
        command.args(["migrate", "--check", "--kubeconfig"]);
        let command = command.arg(self.plane.kubeconfig_path());
        let project = self.project.watches_file();
        let done = command.arg(project.parent().unwrap()).output().unwrap();
        assert_eq!(done.status.code(), Some(3), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn command(&self, args: &[&str]) -> String {
        output(
            Command::new(programs().join("hybrid-operator"))
                .args(args)
                .args(["--namespace", self.namespace.name()])
                .env("KUBECONFIG", self.plane.kubeconfig_path()),
        )
    }

    /// Deletes a custom resource whose ConfigMap stays until something has been seen.
    async fn remove_slowly(&self, name: &str, seen: impl Future<Output = ()>) {
        let maps = api(&self.namespace, "ConfigMap");
        let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        merge(&maps, name, &hold(json!(["example.com/hold"]))).await;
        delete(&self.shops, name).await;
        seen.await;
        merge(&maps, name, &hold(Value::Null)).await;
        self.until_removed(name).await;
    }

    /// Deletes the last custom resource while a Go operator runs.
    async fn remove_last_by_go(&mut self, go: GoOperator, operator: &RunningOperator) {
        let last = self.names.pop().unwrap();
        let soon = json!({"metadata": {"annotations": {PERIOD: "1s"}}});
        merge(&self.shops, &last, &soon).await;
        let seen = async {
            if go == GoOperator::OperatorSdk {
                let waits = |line: &str| {
                    line.contains("Waiting until all resources are deleted") && line.contains(&last)
                };
                let waits = async || operator.log().lines().any(waits);
                eventually("the Go operator to wait", waits).await;
                assert!(exists(&self.shops, &last).await);
            } else {
                // It does not know the annotation.
                gone(&self.shops, &last).await;
            }
        };
        self.remove_slowly(&last, seen).await;
    }

    async fn remove(&self, name: &str) {
        delete(&self.shops, name).await;
        self.until_removed(name).await;
    }

    async fn until_removed(&self, name: &str) {
        gone(&self.shops, name).await;
        for kind in ["Deployment", "ConfigMap"] {
            gone(&api(&self.namespace, kind), name).await;
        }
        assert!(history(&self.namespace, name).await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn releases_of_operator_sdk_move_here_and_back_without_a_restart_of_a_pod() {
    move_there_and_back(GoOperator::OperatorSdk).await;
}

#[tokio::test]
async fn releases_of_helm_operator_plugins_move_here_and_back_without_a_restart_of_a_pod() {
    move_there_and_back(GoOperator::Plugins).await;
}

async fn move_there_and_back(go: GoOperator) {
    let mut moved = or_skip!(Moved::new(go).await);
    // Installed by the Go operator, some upgraded by it.
    for name in &moved.names {
        let spec = json!({"large": 3_000_000, "nested": {"a": null}});
        moved.create(name, spec).await;
    }
    let operator = moved.run_go().await;
    moved.until_running().await;
    moved.until_seen(&operator).await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let installed = moved.states().await;

    // Taken over: no revision more, as the check says, and no Pod restarted.
    let checked = moved.check();
    for name in &moved.names {
        assert_contains!(checked, &format!("/{name}): no new revision"));
    }
    let operator = moved.run_ours(|_| 1).await;
    assert_eq!(moved.states().await, installed);
    // Changed, and one of them rolled back.
    let (changed, kept) = moved.names.split_at(moved.names.len() / 2);
    for name in changed {
        moved
            .set(name, json!({"text": "second", "replicas": 2}))
            .await;
    }
    for name in changed {
        until(&moved.shops, name, "the upgrade", ready_at(2)).await;
    }
    let target = format!("Shop.{}.example.com/{}", moved.namespace.name(), changed[0]);
    moved.command(&["rollback", &target, "1", "--yes"]);
    until(&moved.shops, &changed[0], "the rollback", ready_at(3)).await;
    // The Go operators could not store this one.
    moved.create("oversized", json!({"noise": noise()})).await;
    until(&moved.shops, "oversized", "the install", ready_at(1)).await;
    moved.until_running().await;
    moved.until_it_runs("oversized").await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let before = moved.states().await;
    let oversized = moved.state("oversized").await;
    for name in kept {
        assert_eq!(before[name], installed[name]);
    }

    // Handed back: the Go operator changes no object by itself.
    let operator = moved.run_go().await;
    moved.until_seen(&operator).await;
    let mut expected = before;
    for (name, state) in &mut expected {
        match go {
            // It deletes the records of all other revisions.
            GoOperator::OperatorSdk => state.history = vec!["deployed".to_owned()],
            // It misses its owner references in the manifests of revisions that it has not made.
            GoOperator::Plugins if changed.contains(name) => {
                state.history.insert(0, "superseded".to_owned());
            }
            GoOperator::Plugins | GoOperator::Chunks => {}
        }
    }
    let is_back = async || moved.states().await == expected;
    eventually("the Go operator to change no object", is_back).await;
    for name in &moved.names {
        moved.set(name, json!({"text": "third"})).await;
    }
    for name in &moved.names {
        let has_text = |map: &Value| map["data"]["text"] == "third";
        let hook = format!("{name}-hook");
        until(
            &api(&moved.namespace, "ConfigMap"),
            &hook,
            "the hook",
            has_text,
        )
        .await;
    }
    // It cannot store the next revision of the large one, and changes no object.
    let is_refused = |shop: &Value| says(shop, "ReleaseFailed", "Too long");
    until(&moved.shops, "oversized", "the failure", is_refused).await;
    assert_eq!(moved.state("oversized").await, oversized);
    moved.remove_last_by_go(go, &operator).await;
    for name in &moved.names {
        let is_done = async || {
            history(&moved.namespace, name)
                .await
                .last()
                .is_some_and(|last| last == "deployed")
        };
        eventually("the upgrade", is_done).await;
    }
    moved.until_running().await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let third = moved.states().await;

    end_here(moved, &oversized, &third).await;
}

/// Takes the releases over as the first time, and deletes them.
async fn end_here(mut moved: Moved, oversized: &State, third: &BTreeMap<String, State>) {
    let mut revisions = BTreeMap::new();
    for name in &moved.names {
        revisions.insert(name.as_str(), moved.revision(name).await);
    }
    let operator = moved.run_ours(|name| revisions[name]).await;
    assert_eq!(moved.states().await, *third);
    until(&moved.shops, "oversized", "the release", ready_at(1)).await;
    assert_eq!(moved.state("oversized").await, *oversized);
    let first = moved.names.pop().unwrap();
    let waits = |shop: &Value| says(shop, "Ready", &format!("/{first} to be deleted"));
    let seen = async { drop(until(&moved.shops, &first, "the wait", waits).await) };
    moved.remove_slowly(&first, seen).await;
    moved.remove("oversized").await;
    for name in &moved.names {
        moved.remove(name).await;
    }
    assert!(operator.stop(LIMIT).await.unwrap().success());
}

#[tokio::test]
async fn releases_in_chunks_move_here_and_back_without_a_restart_of_a_pod() {
    let mut moved = or_skip!(Moved::new(GoOperator::Chunks).await);
    moved.names = ["large", "gone", "small"].map(str::to_owned).to_vec();
    let of = |owner: &str| ListParams::default().labels(&format!("owner={owner}"));
    let secrets = api(&moved.namespace, "Secret");
    for name in &moved.names {
        let noise = if name == "small" {
            String::new()
        } else {
            noise()
        };
        moved.create(name, json!({"noise": noise})).await;
    }
    let operator = moved.run_go().await;
    moved.until_running().await;
    moved.until_seen(&operator).await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    assert!(
        secrets
            .list(&of("helm-operator"))
            .await
            .unwrap()
            .items
            .len()
            > 6
    );
    let with_history = |mut states: BTreeMap<String, State>, history: &[&str]| {
        for state in states.values_mut() {
            state.history = history.iter().map(|status| (*status).to_owned()).collect();
        }
        states
    };
    let installed = moved.states().await;

    // Taken over as the next revision, as the check says, and no Pod restarted.
    let checked = moved.check();
    for name in &moved.names {
        let title = format!("a new revision of Shop {}/{name} ", moved.namespace.name());
        assert_contains!(checked, &title);
    }
    assert_contains!(checked, "has stored it in chunks", "no differences");
    let operator = moved.run_ours(|_| 2).await;
    assert_eq!(moved.states().await, with_history(installed, &["deployed"]));
    for name in &moved.names {
        moved.set(name, json!({"text": "second"})).await;
    }
    for name in &moved.names {
        until(&moved.shops, name, "the upgrade", ready_at(3)).await;
    }
    // Garbage collection removes the chunks.
    moved.names.retain(|name| name != "gone");
    moved.remove("gone").await;
    let index = "sh.helm.release.v1.gone.v1";
    gone(&secrets, index).await;
    let of_index = of("helm-operator").labels(&format!("owner=helm-operator,key={index}"));
    let no_chunks = async || secrets.list(&of_index).await.unwrap().items.is_empty();
    eventually("the chunks to be removed", no_chunks).await;
    moved.until_running().await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let second = moved.states().await;

    // The Go operator cannot write over our records, and goes on from its own once these are gone.
    let operator = moved.run_go().await;
    for name in &moved.names {
        let is_refused = |shop: &Value| says(shop, "ReleaseFailed", "release: already exists");
        until(&moved.shops, name, "the failure", is_refused).await;
    }
    assert_eq!(moved.states().await, second);
    let (all, ours) = (DeleteParams::default(), of("helm"));
    drop(secrets.delete_collection(&all, &ours).await.unwrap());
    moved.until_seen(&operator).await;
    assert_eq!(moved.states().await, with_history(second, &[]));
    for name in &moved.names {
        moved.set(name, json!({"text": "third"})).await;
    }
    for name in &moved.names {
        let has_text = |map: &Value| map["data"]["text"] == "third";
        let maps = api(&moved.namespace, "ConfigMap");
        until(&maps, &format!("{name}-hook"), "the hook", has_text).await;
        let index = format!("sh.helm.release.v1.{name}.v3");
        let is_done = |index: &Value| index["metadata"]["labels"]["status"] == "deployed";
        until(&secrets, &index, "the upgrade", is_done).await;
    }
    moved.until_running().await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let third = moved.states().await;

    // And here again, as the first time.
    let operator = moved.run_ours(|_| 4).await;
    assert_eq!(moved.states().await, with_history(third, &["deployed"]));
    for name in &moved.names {
        moved.remove(name).await;
    }
    assert!(operator.stop(LIMIT).await.unwrap().success());
}

/// With the id that the Go operator has for its Lease, old and new Pods of a rolling update exclude each other.
#[tokio::test]
async fn go_operator_and_this_one_wait_for_the_lease_of_each_other() {
    let mut moved = or_skip!(Moved::new(GoOperator::OperatorSdk).await);
    moved.names.truncate(1);
    let name = moved.names[0].clone();
    let elected = |operator: Operator| {
        let namespace = format!("--leader-election-namespace={}", moved.namespace.name());
        let operator = operator.args(["--leader-elect", "--leader-election-id=shops"]);
        operator.arg(namespace)
    };
    let ours = moved.project.operator(moved.plane, moved.namespace.name());
    let (go, ours) = (elected(moved.go.clone()), elected(ours));
    let holder = async || {
        let lease = api(&moved.namespace, "Lease").get("shops").await.unwrap();
        lease.data["spec"]["holderIdentity"].clone()
    };
    let maps = api(&moved.namespace, "ConfigMap");
    let hook = format!("{name}-hook");
    let changed = async |text: &str| {
        moved.set(&name, json!({"text": text})).await;
        let has_text = |map: &Value| map["data"]["text"] == text;
        until(&maps, &hook, "the hook", has_text).await;
    };

    moved.create(&name, json!({})).await;
    let go_runs = go.clone().start().await.unwrap();
    until(&moved.shops, &name, "Deployed", holds("Deployed")).await;
    let of_go = holder().await;
    let ours_runs = ours.start().await.unwrap();
    changed("second").await;
    assert_eq!(holder().await, of_go);
    let waits = "leader_election_master_status{name=\"shops\"} 0\n";
    assert_contains!(ours_runs.metrics().await.unwrap(), waits);

    assert!(go_runs.stop(LIMIT).await.unwrap().success());
    let is_ours = async || holder().await != of_go;
    eventually("the Lease to be taken over", is_ours).await;
    let of_ours = holder().await;
    let go_runs = go.start().await.unwrap();
    changed("third").await;
    until(&moved.shops, &name, "Ready", holds("Ready")).await;
    assert_eq!(holder().await, of_ours);
    assert_contains!(go_runs.log(), "attempting to acquire leader lease");
    assert!(!go_runs.log().contains("successfully acquired lease"));

    assert!(ours_runs.stop(LIMIT).await.unwrap().success());
    changed("fourth").await;
    assert_ne!(holder().await, of_ours);
    assert!(go_runs.stop(LIMIT).await.unwrap().success());
}
