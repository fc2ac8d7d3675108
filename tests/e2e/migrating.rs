//! Follows the runbook of `docs/guides/migrating.md` from operator-sdk's operator to this one and back, on a control plane of
//! its own.
//!
//! Different from a reader's machine are only: the kind is another one, `docker` builds and pushes nothing, `kustomize` is
//! that of kubectl, and the operators run on this machine, each as its Pod says, since simulated nodes run no containers.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use futures::TryStreamExt;
use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::go_operator::GoOperator;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};

use crate::deployment::can_run;
use crate::olm::lay_out_as_operator_sdk;
use crate::pod::{self, OperatorPod};
use crate::transcript::{Shell, is_current, programs};
use crate::tutorial::{page, path_with, program};
use crate::world::{LIMIT, eventually, root};

const SYSTEM: &str = "memcached-operator-system";
/// The image of the Go operator on the page.
const FORMER: &str = "registry.example.com/memcached-operator:v1";

const DOCKER: &str = "#!/bin/sh\n[ \"$1\" = build ] || [ \"$1\" = push ]\n";

/// Knows `edit set image controller=IMAGE` and `build FOLDER`.
const KUSTOMIZE: &str = r#"#!/bin/sh
[ "$1" = edit ] || exec kubectl kustomize "$2"
image=${4#controller=}
sed -i '/^images:/,$d' kustomization.yaml
printf 'images:\n- name: controller\n  newName: %s\n  newTag: %s\n' "${image%:*}" "${image##*:}" >>kustomization.yaml
"#;

/// Targets of a Makefile of operator-sdk.
const MAKEFILE: &str = "
IMG ?= controller:latest

docker-build:
	docker build -t ${IMG} .

docker-push:
	docker push ${IMG}

deploy:
	cd config/manager && kustomize edit set image controller=${IMG}
	kustomize build config/default | kubectl apply -f -

run: helm-operator
	./helm-operator run

helm-operator:
	curl -sSLo $@ https://example.com/helm-operator_$(OS)_$(ARCH)
";

/// Deploys the Go operator and three releases, of which one has a value that was removed from its spec.
const BEFORE: &str = "
```sh
kubectl config rename-context $(kubectl config current-context) production
cd memcached-operator
git init --quiet && git config user.name me && git config user.email me@example.com
git add . && git commit --quiet --message v1
make deploy IMG=registry.example.com/memcached-operator:v1
kubectl wait crd stores.shop.example.org --for condition=Established --timeout 3m
kubectl create namespace team-a
kubectl create namespace team-b
cat >$DIR/stores.yaml <<END
---
{apiVersion: shop.example.org/v1alpha1, kind: Store, metadata: {name: main, namespace: team-a}, spec: {replicaCount: 3}}
---
{apiVersion: shop.example.org/v1alpha1, kind: Store, metadata: {name: cache, namespace: team-a}, spec: {replicaCount: 3}}
---
{apiVersion: shop.example.org/v1alpha1, kind: Store, metadata: {name: other, namespace: team-b}, spec: {}}
END
kubectl create --filename $DIR/stores.yaml
kubectl wait stores --for condition=Deployed --all --all-namespaces --timeout 3m
kubectl patch store main --namespace team-a --type merge --patch '{\"spec\": {\"replicaCount\": null}}'
kubectl rollout status statefulset main-store --namespace team-a --timeout 3m
kubectl rollout status statefulset cache-store --namespace team-a --timeout 3m
kubectl rollout status statefulset other-store --namespace team-b --timeout 3m
cd ..
```
";

/// Waits until the Go operator has removed the record of a former revision, as it always does.
const AFTER: &str = "
```sh
kubectl wait secret sh.helm.release.v1.main.v1 --namespace team-a --for delete --timeout 3m
```
";
/// Has the Go operator upgrade a release.
const UPGRADE: &str = "
```sh
kubectl patch store cache --namespace team-a --type merge --patch '{\"spec\": {\"replicaCount\": 1}}'
kubectl wait statefulset cache-store --namespace team-a --for jsonpath={.spec.replicas}=1 --timeout 3m
```
";

/// The operators of a Deployment, which run as its Pods say.
struct Kubelet {
    plane: ControlPlane,
    client: Client,
    project: PathBuf,
    former: Operator,
    /// By the uid of the Pod.
    running: BTreeMap<String, RunningOperator>,
}

impl Kubelet {
    /// Does something while operators start and stop with their Pods.
    async fn meanwhile<T>(&mut self, task: impl Future<Output = T>) -> T {
        tokio::select! {
            done = task => done,
            never = self.run() => never,
        }
    }

    async fn run(&mut self) -> ! {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let of_operator = ListParams::default().labels(pod::LABEL);
        let watch = WatchParams::default().labels(pod::LABEL);
        loop {
            let list = pods.list(&of_operator).await.unwrap();
            let current: BTreeMap<String, &Pod> =
                list.iter().map(|pod| (pod.uid().unwrap(), pod)).collect();
            let gone = |uid: &&String| !current.contains_key(*uid);
            while let Some(uid) = self.running.keys().find(gone).cloned() {
                self.running[&uid].stop(LIMIT).await.unwrap();
                self.running.remove(&uid);
            }
            for (uid, pod) in current {
                if !self.running.contains_key(&uid) {
                    let operator = self.start(pod).await;
                    self.running.insert(uid, operator);
                }
            }
            let version = list.metadata.resource_version.unwrap();
            let events = pods.watch(&watch, &version).await.unwrap();
            let is_relevant = |event: &WatchEvent<Pod>| !matches!(event, WatchEvent::Modified(_));
            let events = events.try_filter(|event| std::future::ready(is_relevant(event)));
            drop(Box::pin(events).try_next().await.unwrap());
        }
    }

    async fn start(&self, pod: &Pod) -> RunningOperator {
        let given = OperatorPod::from_pod(pod);
        let operator = if given.image == FORMER {
            self.former.clone()
        } else {
            Operator::new(programs().join("chart-operator"))
                .args([
                    "run",
                    "--watches-file=./watches.yaml",
                    "--metrics-bind-address=0",
                ])
                .dir(&self.project)
        };
        let token = given.token(&self.client).await;
        let config = pod::kubeconfig(&self.plane, &token, self.project.parent().unwrap());
        // The kubelet would tell the namespace to a Pod.
        let operator = operator.arg(format!("--leader-election-namespace={SYSTEM}"));
        let operator = given.given_to(operator).kubeconfig(config);
        operator.spawn().unwrap()
    }

    /// Returns the uid and the generation of the workload of each release, and the uids of its Pods.
    async fn workloads(&self) -> BTreeMap<String, (Option<i64>, Vec<Option<String>>)> {
        let all = ListParams::default();
        let sets: Api<StatefulSet> = Api::all(self.client.clone());
        let pods: Api<Pod> = Api::all(self.client.clone());
        let (sets, pods) = (
            sets.list(&all).await.unwrap(),
            pods.list(&all).await.unwrap(),
        );
        let workload = |set: &StatefulSet| {
            let is_of = |pod: &&Pod| {
                let owners = pod.owner_references().iter();
                owners
                    .map(|owner| &owner.uid)
                    .any(|uid| set.uid().as_ref() == Some(uid))
            };
            let pods = pods.iter().filter(is_of).map(ResourceExt::uid);
            let uids = std::iter::once(set.uid()).chain(pods).collect();
            (set.name_any(), (set.metadata.generation, uids))
        };
        sets.iter().map(workload).collect()
    }

    /// Waits until these are the custom resources whose releases were taken over.
    async fn until_adopted(&self, names: &[&str]) {
        let events: Api<Event> = Api::all(self.client.clone());
        let adopted = async || {
            let events = events.list(&ListParams::default()).await.unwrap();
            let is_adopted = |event: &&Event| event.reason.as_deref() == Some("ReleaseAdopted");
            let adopted = events.iter().filter(is_adopted);
            let adopted: BTreeSet<&str> = adopted
                .filter_map(|event| event.involved_object.name.as_deref())
                .collect();
            adopted.iter().eq(names)
        };
        eventually("the events", adopted).await;
    }
}

/// Returns the page about the kind of the project, in parts: before the edit of the manager, the edit, after it, after it has
/// been taken back, and the way back.
fn parts() -> [String; 5] {
    let text = page("guides/migrating.md")
        .replace("memcached-operator", "\0")
        .replace("memcached", "store")
        .replace("Memcached", "Store")
        .replace('\0', "memcached-operator");
    let (prepare, rest) = text.split_once("```yaml\n").unwrap();
    let (edit, rest) = rest.split_once("```\n").unwrap();
    let (first, rest) = rest.split_once("## 5. The others\n").unwrap();
    let (others, back) = rest.split_once("## Back\n").unwrap();
    [prepare, edit, first, others, back].map(str::to_owned)
}

/// Adds fields to the container of the manager.
fn with(manager: &str, fields: &str) -> String {
    let image = "        image: controller:latest\n";
    assert_eq!(manager.matches(image).count(), 1);
    let fields = fields.lines().map(|line| format!("        {line}\n"));
    let fields = fields.collect::<Vec<_>>().concat();
    manager.replace(image, &format!("{fields}{image}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_moves_releases_of_operator_sdk_here_and_back_without_a_restart_of_a_pod() {
    if !can_run().await {
        return;
    }
    for name in ["chart-operator", "hybrid-operator"] {
        is_current(name).unwrap();
    }
    let machine = tempfile::tempdir().unwrap();
    let home = machine.path().join("home");
    let project = home.join("memcached-operator");
    fs::create_dir_all(&project).unwrap();
    lay_out_as_operator_sdk(&project);
    fs::write(project.join("Makefile"), MAKEFILE).unwrap();
    symlink(root(), home.join("hybrid-operator")).unwrap();
    let former = or_skip!(
        GoOperator::OperatorSdk
            .of_project_or_skip(&project)
            .unwrap()
    );
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let config = home.join("config");
    fs::copy(plane.kubeconfig_path(), &config).unwrap();
    let bin = machine.path().join("bin");
    fs::create_dir(&bin).unwrap();
    program(&bin.join("docker"), DOCKER);
    program(&bin.join("kustomize"), KUSTOMIZE);
    let path = path_with(bin);
    let environment: [(&str, &OsStr); 3] = [
        ("HOME", home.as_os_str()),
        ("PATH", &path),
        ("KUBECONFIG", config.as_os_str()),
    ];
    let mut shell = Shell::start(&home, "", &environment);
    let client = plane.client().await.unwrap();
    let running = BTreeMap::new();
    let mut kubelet = Kubelet {
        plane,
        client,
        project,
        former,
        running,
    };
    let mut follow = async |kubelet: &mut Kubelet, text: &str| {
        let followed = kubelet.meanwhile(shell.follow(text, LIMIT)).await;
        followed.unwrap_or_else(|error| {
            let logs = kubelet.running.values().map(RunningOperator::log);
            panic!("{error}\n{}", logs.collect::<String>())
        });
    };

    follow(&mut kubelet, BEFORE).await;
    let installed = kubelet.workloads().await;
    let [prepare, edit, first, others, back] = parts();
    follow(&mut kubelet, &prepare).await;
    let manager = kubelet.project.join("config/manager/manager.yaml");
    let without = fs::read_to_string(&manager).unwrap();
    fs::write(&manager, with(&without, &edit)).unwrap();
    follow(&mut kubelet, &first).await;
    assert_eq!(kubelet.workloads().await, installed);
    kubelet.until_adopted(&["cache"]).await;

    fs::write(&manager, without).unwrap();
    follow(&mut kubelet, &others).await;
    let mut expected = installed;
    // The value that was removed: one Pod less.
    let (generation, uids) = expected.get_mut("main-store").unwrap();
    *generation = generation.map(|generation| generation + 1);
    uids.pop();
    let is_moved = async || kubelet.workloads().await == expected;
    eventually("one Pod to go", is_moved).await;
    kubelet.until_adopted(&["cache", "main", "other"]).await;

    follow(&mut kubelet, &back).await;
    follow(&mut kubelet, AFTER).await;
    assert_eq!(kubelet.workloads().await, expected);
    follow(&mut kubelet, UPGRADE).await;
    shell.end().await;
}
