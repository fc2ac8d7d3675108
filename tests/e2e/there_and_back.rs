//! Custom resources that move from a Helm operator in Go to this one, back, and here again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use hybrid_operator_test::go_operator::GoOperator;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator, TestNamespace};
use kube::api::{Api, DynamicObject, ListParams, ResourceExt};
use serde_json::{Value, json};

use crate::transcript::programs;
use crate::world::{
    LIMIT, Project, api, api_of, create, define_kind, delete, eventually, gone, history, holds,
    merge, new_namespace, output, ready_at, until,
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

const VALUES: &str = "replicas: 1\nlarge: 1048576\nkept: default\nlist: [1, 2.5]\ntext: first\n";

/// Number of custom resources; `make migrate-test` sets another one.
fn count() -> usize {
    let count = std::env::var("CUSTOM_RESOURCES").ok();
    count.map_or(6, |count| count.parse().unwrap())
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

    async fn states(&self) -> BTreeMap<String, State> {
        let mut states = BTreeMap::new();
        for name in &self.names {
            let deployment = api(&self.namespace, "Deployment").get(name).await.unwrap();
            let map = api(&self.namespace, "ConfigMap").get(name).await.unwrap();
            let of_shop = ListParams::default().labels(&format!("app={name}"));
            let pods = api(&self.namespace, "Pod").list(&of_shop).await.unwrap();
            let state = State {
                history: history(&self.namespace, name).await,
                deployment: (deployment.uid(), deployment.metadata.generation),
                pods: pods.iter().filter_map(ResourceExt::uid).collect(),
                data: map.data["data"].clone(),
            };
            states.insert(name.clone(), state);
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
    }

    fn command(&self, args: &[&str]) -> String {
        output(
            Command::new(programs().join("hybrid-operator"))
                .args(args)
                .args(["--namespace", self.namespace.name()])
                .env("KUBECONFIG", self.plane.kubeconfig_path()),
        )
    }

    async fn remove(&self, name: &str) {
        delete(&self.shops, name).await;
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
        let shop = json!({
            "apiVersion": format!("{}.example.com/v1", moved.namespace.name()), "kind": "Shop",
            "metadata": {"name": name}, "spec": {"large": 3_000_000, "nested": {"a": null}},
        });
        create(&moved.shops, shop).await;
    }
    let operator = moved.run_go().await;
    moved.until_running().await;
    moved.until_seen(&operator).await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let installed = moved.states().await;

    // Taken over: no revision more, no Pod restarted.
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
    moved.until_running().await;
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let before = moved.states().await;
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
            GoOperator::Plugins => {}
        }
    }
    let is_back = async || moved.states().await == expected;
    eventually("the Go operator to change no object", is_back).await;
    for name in &moved.names {
        moved.set(name, json!({"text": "third"})).await;
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
    let last = moved.names.pop().unwrap();
    moved.remove(&last).await;
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

    // And here again, as the first time.
    let mut revisions = BTreeMap::new();
    for name in &moved.names {
        revisions.insert(name.as_str(), moved.revision(name).await);
    }
    let operator = moved.run_ours(|name| revisions[name]).await;
    assert_eq!(moved.states().await, third);
    for name in &moved.names {
        moved.remove(name).await;
    }
    assert!(operator.stop(LIMIT).await.unwrap().success());
}
