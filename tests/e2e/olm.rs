//! OLM installs bundles that `hybrid-operator` makes, from its catalog. The operator runs as the Pod
//! that OLM's Deployment makes says, with the token of its account.

mod lifecycle_manager;

use std::fs;
use std::path::Path;
use std::process::Command;

use hybrid_operator_test::go_operator::GoOperator;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{Operator, wait};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::transcript::programs;
use crate::world::{LIMIT, delete, holds, is_true, merge, output, root, until};
pub(crate) use lifecycle_manager::bundle;
use lifecycle_manager::{Olm, api_of, copy, create, csv_name, namespace};

/// The namespace of an operator for all namespaces.
const OPERATORS: &str = "operators";

/// Waits until an object is ready at its current generation.
async fn ready(api: &Api<DynamicObject>, name: &str) {
    let ready = |object: &Value| {
        is_true(object, "Ready")
            && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    };
    until(api, name, "Ready", ready).await;
}

/// Fails if the operator was refused anything.
#[track_caller]
fn was_allowed_everything(operator: &RunningOperator) {
    let log = operator.log();
    let refused = log
        .lines()
        .find(|line| line.contains("forbidden") || line.contains("no permission"));
    assert_eq!(refused, None, "{log}");
}

/// Returns the statuses of the records of all releases in `default`, by name.
async fn records(olm: &Olm) -> Vec<(String, String)> {
    let secrets = olm.api("v1", "Secret", "default");
    let list = ListParams::default().labels("owner=helm");
    let list = secrets.list(&list).await.unwrap();
    let record = |secret: &DynamicObject| (secret.name_any(), secret.labels()["status"].clone());
    list.iter().map(record).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn olm_installs_upgrades_and_removes_the_operator_of_a_bundle() {
    let mut olm = or_skip!(Olm::start().await);
    olm.publish("0.1.0", &[]).await;
    olm.subscribe(OPERATORS, &[]).await;
    olm.unpack("0.1.0").await;
    let csv = olm.installed(OPERATORS, "0.1.0").await;
    let (first, _) = olm.run(OPERATORS, "0.1.0").await;
    let examples = csv["metadata"]["annotations"]["alm-examples"].as_str();
    let examples: Vec<Value> = serde_json::from_str(examples.unwrap()).unwrap();
    let [memcached, backup] = examples.as_slice() else {
        panic!("{examples:?}");
    };
    for example in [memcached, backup] {
        create(&olm.client, "default", example.clone()).await;
    }
    for example in [memcached, backup] {
        let name = example["metadata"]["name"].as_str().unwrap();
        ready(&api_of(&olm.client, example, "default"), name).await;
    }
    let record = |revision: u32, status: &str| {
        let name = format!("sh.helm.release.v1.memcached-sample.v{revision}");
        (name, status.to_owned())
    };
    assert_eq!(records(&olm).await, [record(1, "deployed")]);

    let replaces = csv_name("0.1.0");
    olm.publish("0.2.0", &["--replaces", &replaces]).await;
    olm.unpack("0.2.0").await;
    olm.installed(OPERATORS, "0.2.0").await;
    olm.removed(OPERATORS, "0.1.0").await;
    first.stop(LIMIT).await.unwrap();
    was_allowed_everything(&first);
    // The releases are those of before: the next revision is the second.
    let (second, _) = olm.run(OPERATORS, "0.2.0").await;
    let memcacheds = api_of(&olm.client, memcached, "default");
    let patch = json!({"spec": {"replicaCount": 3}});
    merge(&memcacheds, "memcached-sample", &patch).await;
    ready(&memcacheds, "memcached-sample").await;
    let after = [record(1, "superseded"), record(2, "deployed")];
    assert_eq!(records(&olm).await, after);
    was_allowed_everything(&second);

    // OLM keeps definitions, and with them custom resources, and the roles for users.
    let version = "operators.coreos.com/v1alpha1";
    for (kind, name) in [
        ("Subscription", "memcached-operator"),
        ("ClusterServiceVersion", &csv_name("0.2.0")),
    ] {
        let api = olm.api(version, kind, OPERATORS);
        delete(&api, name).await;
    }
    olm.removed(OPERATORS, "0.2.0").await;
    let name = "memcached-operator-controller-manager";
    for (version, kind) in [("apps/v1", "Deployment"), ("v1", "ServiceAccount")] {
        let api = olm.api(version, kind, OPERATORS);
        // The garbage collector looks for new kinds, such as those of OLM, twice a minute.
        let within = LIMIT.saturating_mul(3);
        wait::gone(&api, name, within).await.unwrap();
    }
    memcacheds.get("memcached-sample").await.unwrap();
    let roles = olm.api("rbac.authorization.k8s.io/v1", "ClusterRole", "");
    roles
        .get("memcached-operator-memcached-editor-role")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_watches_the_namespaces_of_its_operator_group() {
    /// The namespaces of operators, and of their groups.
    const GROUPS: [(&str, &[&str]); 3] = [
        ("own", &["own"]),
        ("single", &["shop"]),
        ("multi", &["cellar", "attic"]),
    ];
    let mut olm = or_skip!(Olm::start().await);
    olm.support_all_modes();
    olm.publish("0.1.0", &[]).await;
    for name in ["shop", "cellar", "attic", "elsewhere"] {
        create(&olm.client, "", namespace(name)).await;
    }
    for (operators, targets) in GROUPS {
        olm.subscribe(operators, targets).await;
    }
    olm.unpack("0.1.0").await;
    let memcached = json!({
        "apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached",
        "metadata": {"name": "cache"}, "spec": {"replicaCount": 1},
    });
    let mut running = Vec::new();
    for (operators, targets) in GROUPS {
        olm.installed(operators, "0.1.0").await;
        let (operator, pod) = olm.run(operators, "0.1.0").await;
        let watched = &pod.annotations()["olm.targetNamespaces"];
        let mut watched: Vec<&str> = watched.split(',').collect();
        watched.sort_unstable_by_key(|name| targets.iter().position(|target| target == name));
        assert_eq!(watched, targets);
        running.push((operator, targets));
    }
    for name in ["single", "elsewhere"] {
        create(&olm.client, name, memcached.clone()).await;
    }
    for (operator, targets) in &running {
        for target in *targets {
            create(&olm.client, target, memcached.clone()).await;
            let api = api_of(&olm.client, &memcached, target);
            ready(&api, "cache").await;
        }
        was_allowed_everything(operator);
    }
    for name in ["single", "elsewhere"] {
        let found = api_of(&olm.client, &memcached, name).get("cache").await;
        assert_eq!(found.unwrap().data["status"], Value::Null, "{name}");
    }
}

/// Lays a project out as operator-sdk does, under the name of this repository's.
pub(crate) fn lay_out_as_operator_sdk(directory: &Path) {
    let project = "crates/hybrid-operator-cli/tests/operator_sdk/project";
    copy(&root().join(project).join("."), directory);
    for (file, text) in [
        (
            "PROJECT",
            "layout: [helm.sdk.operatorframework.io/v1]\nprojectName: memcached-operator\nversion: '3'\n",
        ),
        (
            "config/default/kustomization.yaml",
            "namespace: memcached-operator-system\nnamePrefix: memcached-operator-\n\
             resources: [../crd, ../rbac, ../manager]\n",
        ),
        (
            "config/crd/kustomization.yaml",
            "resources: [bases/shop.example.org_stores.yaml]\n",
        ),
        (
            "config/samples/kustomization.yaml",
            "resources: [shop_v1alpha1_store.yaml]\n",
        ),
        (
            "config/manager/kustomization.yaml",
            "resources: [manager.yaml]\n",
        ),
        (
            "config/rbac/kustomization.yaml",
            "resources: [service_account.yaml, role.yaml, role_binding.yaml, leader_election_role.yaml, \
             leader_election_role_binding.yaml]\n",
        ),
    ] {
        fs::write(directory.join(file), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn olm_replaces_the_bundle_of_a_go_operator() {
    let mut olm = or_skip!(Olm::of(lay_out_as_operator_sdk).await);
    let go = GoOperator::OperatorSdk.of_project_or_skip(olm.project());
    // The kubelet would tell the namespace to a Pod.
    let elect = format!("--leader-election-namespace={OPERATORS}");
    let go = or_skip!(go.unwrap()).arg(&elect);
    olm.publish("0.1.0", &[]).await;
    olm.subscribe(OPERATORS, &[]).await;
    olm.unpack("0.1.0").await;
    olm.installed(OPERATORS, "0.1.0").await;
    let (former, _) = olm.run_program(go, OPERATORS, "0.1.0").await;
    let sample = olm
        .project()
        .join("config/samples/shop_v1alpha1_store.yaml");
    let sample: Value = go_yaml::from_str(&fs::read_to_string(sample).unwrap()).unwrap();
    create(&olm.client, "default", sample.clone()).await;
    let (stores, name) = (api_of(&olm.client, &sample, "default"), "store-sample");
    until(&stores, name, "Deployed", holds("Deployed")).await;
    let sets = olm.api("apps/v1", "StatefulSet", "default");
    let workload = async || {
        let set = sets.get(name).await.unwrap();
        (set.uid(), set.metadata.generation)
    };
    let (set, history) = (workload().await, records(&olm).await);
    assert_eq!(history.len(), 1);

    let mut migrate = Command::new(programs().join("hybrid-operator"));
    output(migrate.args(["migrate", "."]).current_dir(olm.project()));
    let replaces = csv_name("0.1.0");
    olm.publish("0.2.0", &["--replaces", &replaces]).await;
    olm.unpack("0.2.0").await;
    olm.installed(OPERATORS, "0.2.0").await;
    olm.removed(OPERATORS, "0.1.0").await;
    former.stop(LIMIT).await.unwrap();
    let operator = Operator::new(programs().join("chart-operator"))
        .args(["run", "--watches-file=./watches.yaml", &elect])
        .dir(olm.project());
    let (operator, _) = olm.run_program(operator, OPERATORS, "0.2.0").await;
    ready(&stores, name).await;
    assert_eq!((workload().await, records(&olm).await), (set, history));
    was_allowed_everything(&operator);
}
