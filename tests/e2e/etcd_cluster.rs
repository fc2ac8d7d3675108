//! The example `etcd-cluster` with real etcd processes. The simulated nodes run no containers, so the
//! tests play the kubelet: they run the etcd of each Pod with its flags, on loopback.

mod kubelet;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use etcd_cluster::controller::controller_with;
use etcd_cluster::membership::Member;
use hybrid_operator_test::fault::Fault;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace, binary_or_skip, wait};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use crate::examples::{NativeOperator, example};
use crate::world::{
    LIMIT, api, api_of, condition, create, delete, eventually, injected, is_false, is_ready, merge,
    remove, says, try_until,
};
use kubelet::Kubelet;

const CHAOS: Duration = Duration::from_secs(10);

/// A namespace with a kubelet, for a cluster named `db`.
struct Etcd {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    kubelet: Kubelet,
    clusters: Api<DynamicObject>,
    pods: Api<DynamicObject>,
}

impl Etcd {
    async fn start() -> Option<Self> {
        let plane = example("etcd-cluster").await?;
        let binary = binary_or_skip().await.unwrap()?;
        let namespace = TestNamespace::create(plane, "etcd").await.unwrap();
        // The directory of the control plane is removed later if this process is killed.
        let own = plane.server().and(plane.kubeconfig_path().parent());
        let root = own.map_or_else(std::env::temp_dir, ToOwned::to_owned);
        Some(Self {
            plane,
            kubelet: Kubelet::start(binary, root, namespace.api()),
            clusters: api_of(&namespace, "etcd.example.com", "EtcdCluster"),
            pods: api(&namespace, "Pod"),
            namespace,
        })
    }

    async fn operator(&self) -> NativeOperator {
        let controller = controller_with(self.kubelet.loopback());
        NativeOperator::start(self.plane, &self.namespace, controller).await
    }

    async fn create(&self, size: i32) {
        create(&self.clusters, cluster(size, "3.6.8")).await;
    }

    async fn change(&self, spec: Value) {
        merge(&self.clusters, "db", &json!({"spec": spec})).await;
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = try_until(&self.clusters, "db", what, wanted).await;
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.kubelet.logs()))
    }

    /// Waits until the cluster is running with so many members, and returns their names.
    async fn ready(&self, size: usize) -> BTreeSet<String> {
        let what = format!("{size} members");
        let cluster = self
            .until(&what, |cluster| {
                let status = &cluster["status"];
                is_ready(cluster) && status["phase"] == "Running" && status["ready"] == size
            })
            .await;
        let names = cluster["status"]["members"]["ready"].as_array().unwrap();
        let names = names.iter().map(|name| name.as_str().unwrap().to_owned());
        names.collect()
    }

    /// Waits as [`Etcd::ready`]. etcd itself must say so, too.
    async fn running(&self, size: usize) -> BTreeSet<String> {
        let names = self.ready(size).await;
        let members = self.kubelet.members().await;
        assert!(members.iter().all(is_voter), "{members:#?}");
        assert_eq!(names_of(&members), names);
        assert_eq!(self.pod_names().await, names);
        names
    }

    async fn pod_names(&self) -> BTreeSet<String> {
        let pods = self.pods.list(&ListParams::default()).await.unwrap();
        pods.into_iter()
            .filter_map(|pod| pod.metadata.name)
            .collect()
    }

    async fn images(&self) -> BTreeSet<String> {
        let pods = self.pods.list(&ListParams::default()).await.unwrap();
        let image = |pod: DynamicObject| {
            let image = &pod.data["spec"]["containers"][0]["image"];
            image.as_str().unwrap().to_owned()
        };
        pods.into_iter().map(image).collect()
    }

    /// Checks that a member has the value that was stored.
    async fn is_blue(&self, member: &str) {
        let colour = self.kubelet.get(member, "colour").await;
        assert_eq!(colour.as_deref(), Some("blue"), "{member}");
    }

    /// Deletes a Pod and waits until its etcd is gone: before that, the cluster looks healthy.
    async fn delete_pod(&self, name: &str) {
        delete(&self.pods, name).await;
        let stopped = async || !self.kubelet.runs(name);
        eventually("the end of its etcd", stopped).await;
    }
}

fn cluster(size: i32, version: &str) -> Value {
    json!({
        "apiVersion": "etcd.example.com/v1", "kind": "EtcdCluster", "metadata": {"name": "db"},
        "spec": {"size": size, "version": version},
    })
}

fn is_voter(member: &Member) -> bool {
    member.started && !member.learner
}

fn names_of(members: &[Member]) -> BTreeSet<String> {
    let name = |member: &Member| etcd_cluster::pods::member_of(&member.peer_url).to_owned();
    members.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_cluster_forms_replaces_a_lost_member_and_survives_its_operator() {
    let etcd = or_skip!(Etcd::start().await);
    let operator = etcd.operator().await;
    etcd.create(3).await;
    let before = etcd.running(3).await;
    etcd.kubelet.put("colour", "blue").await;

    // A lost member is replaced under another name, and its successor has the data.
    let lost = before.first().unwrap();
    etcd.delete_pod(lost).await;
    let replaced = |cluster: &Value| {
        let ready = cluster["status"]["members"]["ready"].as_array();
        let is_listed = ready.is_some_and(|ready| ready.contains(&json!(lost)));
        is_ready(cluster) && !is_listed
    };
    etcd.until("the replacement", replaced).await;
    let after = etcd.running(3).await;
    let added: Vec<&String> = after.difference(&before).collect();
    assert_eq!(added.len(), 1, "{before:?} {after:?}");
    etcd.is_blue(added[0]).await;

    // A restart of the operator touches nothing; its first writes are those of a change.
    drop(operator);
    let operator = etcd.operator().await;
    etcd.change(json!({"version": "3.6.9"})).await;
    let version = |cluster: &Value| cluster["status"]["currentVersion"] == "3.6.9";
    etcd.until("the upgrade", version).await;
    assert_eq!(etcd.running(3).await, after);
    let writes = operator.writes();
    let others = [
        "apply pods",
        "apply services",
        "delete pods",
        "delete services",
    ];
    assert!(
        !writes.iter().any(|write| others.contains(&write.as_str())),
        "{writes:?}"
    );

    // Deleted and created again, it is another, empty cluster, also before the garbage collector has deleted the
    // Pods of the first one.
    remove(&etcd.clusters, "db").await;
    etcd.create(1).await;
    let new = etcd.ready(1).await;
    assert!(new.is_disjoint(&after));
    assert_eq!(etcd.kubelet.get(new.first().unwrap(), "colour").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_cluster_grows_shrinks_and_is_upgraded_member_by_member() {
    let etcd = or_skip!(Etcd::start().await);
    for (size, version, problem) in [
        (0, "3.6.8", "greater than or equal to 1"),
        (2, "3.6.8", "size must be odd"),
        (9, "3.6.8", "less than or equal to 7"),
        (3, "latest", "spec.version"),
        (3, "3.4.30", "spec.version"),
    ] {
        let refused = serde_json::from_value(cluster(size, version)).unwrap();
        let refused = etcd.clusters.create(&PostParams::default(), &refused).await;
        let message = refused.unwrap_err().to_string();
        assert_contains!(message, problem);
    }
    let operator = etcd.operator().await;
    etcd.create(3).await;
    etcd.running(3).await;
    etcd.kubelet.put("colour", "blue").await;
    etcd.change(json!({"size": 5})).await;
    etcd.running(5).await;
    etcd.change(json!({"size": 3})).await;
    let members = etcd.running(3).await;

    // The operator is killed in the middle of the upgrade.
    etcd.change(json!({"version": "3.6.9"})).await;
    eventually("the first upgrade", async || {
        !etcd.kubelet.upgrades().is_empty()
    })
    .await;
    drop(operator);
    let _operator = etcd.operator().await;
    assert_eq!(etcd.running(3).await, members);
    let image = "quay.io/coreos/etcd:v3.6.9".to_owned();
    assert_eq!(etcd.images().await, [image].into());
    let upgrades = etcd.kubelet.upgrades();
    assert_eq!(upgrades.len(), 3, "{upgrades:?}");
    assert!(
        upgrades.iter().all(|upgrade| upgrade.others_were_healthy),
        "{upgrades:?}"
    );
    for member in &members {
        etcd.is_blue(member).await;
    }

    // Two minor releases at once are refused, and the cluster stays as it is.
    etcd.change(json!({"version": "3.8.0"})).await;
    let refused = |cluster: &Value| {
        is_false(cluster, "VersionAccepted")
            && says(cluster, "VersionAccepted", "a release of 3.7 first")
    };
    let cluster = etcd.until("the refusal", refused).await;
    let status = &cluster["status"];
    assert_eq!(status["currentVersion"], "3.6.9");
    assert_eq!(status["ready"], 3);
    let ready = condition(&cluster, "Ready").unwrap();
    assert_eq!(ready["reason"], "VersionRefused");
    assert_eq!(etcd.pod_names().await, members);
    assert_eq!(etcd.kubelet.upgrades().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_pod_was_never_created_is_removed() {
    let etcd = or_skip!(Etcd::start().await);
    let operator = etcd.operator().await;
    // The second Pod is that of the first member that is added.
    let creates = |request: &Recorded| request.kind() == "apply pods";
    operator.faults.stop_at(2, Fault::Unreachable, creates);
    etcd.create(3).await;
    injected(&operator.faults).await;
    drop(operator);
    let members = etcd.kubelet.members().await;
    let unstarted: Vec<&Member> = members.iter().filter(|member| !member.started).collect();
    assert_eq!((members.len(), unstarted.len()), (2, 1), "{members:#?}");

    let _operator = etcd.operator().await;
    let names = etcd.running(3).await;
    let left_over = etcd_cluster::pods::member_of(&unstarted[0].peer_url);
    assert!(!names.contains(left_over));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_lost_all_members_is_not_replaced_by_an_empty_one() {
    let etcd = or_skip!(Etcd::start().await);
    let _operator = etcd.operator().await;
    etcd.create(1).await;
    let only = etcd.running(1).await;
    etcd.delete_pod(only.first().unwrap()).await;
    let failed = |cluster: &Value| cluster["status"]["phase"] == "Failed";
    let cluster = etcd.until("the failure", failed).await;
    let ready = condition(&cluster, "Ready").unwrap();
    let message = ready["message"].as_str().unwrap();
    assert_contains!(message, "delete this EtcdCluster");
    assert!(etcd.pod_names().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_cluster_converges_after_ten_seconds_of_chaos() {
    let etcd = or_skip!(Etcd::start().await);
    let mut operator = etcd.operator().await;
    etcd.create(3).await;
    etcd.running(3).await;
    etcd.kubelet.put("colour", "blue").await;
    let services = api(&etcd.namespace, "Service");
    let end = Instant::now() + CHAOS;
    let mut done = [0; 4];
    while Instant::now() < end {
        // Only one member at a time, so that there is always a majority.
        let whole = async || etcd.kubelet.is_whole(3).await;
        wait::until(LIMIT, "three healthy members", whole)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", etcd.kubelet.logs()));
        let members: Vec<String> = etcd.pod_names().await.into_iter().collect();
        let Some(victim) = fastrand::choice(&members) else {
            continue;
        };
        let action = fastrand::usize(..done.len());
        done[action] += 1;
        match action {
            0 => etcd.delete_pod(victim).await,
            1 => etcd.kubelet.kill(victim),
            2 => {
                let service = fastrand::choice(["db", "db-client"]).unwrap_or_default();
                drop(services.delete(service, &DeleteParams::default()).await);
            }
            _ => {
                etcd.delete_pod(victim).await;
                drop(operator);
                operator = etcd.operator().await;
            }
        }
    }
    assert!(done.iter().sum::<i32>() > 1, "{done:?}");
    // The status may be older than the last deed.
    let whole = async || etcd.kubelet.is_whole(3).await;
    eventually("three healthy members", whole).await;
    let members = etcd.running(3).await;
    for member in &members {
        etcd.is_blue(member).await;
    }
    for service in ["db", "db-client"] {
        wait::object(&services, service, "it", LIMIT, |found| found.is_some())
            .await
            .unwrap();
    }
    drop(operator);
}
