//! Replicas that share the namespaces of a cluster.

use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::api::{Api, DynamicObject, ListParams};
use kube_objects::shards::range_of;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

use crate::world::{
    LIMIT, MAP, Project, api, api_of, create, define_kind, eventually, merge, new_namespace,
    ready_at, until,
};

/// Replicas of an operator that watches all namespaces, and the namespaces of its custom resources.
struct Sharded {
    plane: &'static ControlPlane,
    project: Project,
    group: String,
    /// Namespace of the Leases.
    home: TestNamespace,
    /// Namespaces by their shard.
    namespaces: BTreeMap<u32, TestNamespace>,
}

impl Sharded {
    async fn new() -> Option<Self> {
        let (plane, home) = new_namespace("shards").await?;
        let group = format!("{}.example.com", home.name());
        define_kind(plane, &group, "Plot").await;
        let project = Project::new("", &[]);
        project.watch(&group, "Plot", "");
        project.write("chart/templates/map.yaml", MAP);
        let mut namespaces = BTreeMap::new();
        for prefix in 0.. {
            if namespaces.len() == 2 {
                break;
            }
            let namespace = TestNamespace::create(plane, &format!("{prefix}-plots"))
                .await
                .unwrap();
            let shard = range_of(2, Some(namespace.name()));
            namespaces.entry(shard).or_insert(namespace);
        }
        Some(Self {
            plane,
            project,
            group,
            home,
            namespaces,
        })
    }

    async fn replica(&self, pod: &str, flags: &[&str]) -> RunningOperator {
        let home = self.home.name();
        let operator = self
            .project
            .operator(self.plane, "")
            .args(["--shards=2", "--leader-election-id", home])
            .args(flags.iter().copied())
            .env("POD_NAMESPACE", home)
            .env("POD_NAME", pod);
        operator.start().await.unwrap()
    }

    /// Returns the Pod that has each shard.
    async fn holders(&self) -> BTreeMap<u32, String> {
        let leases = api(&self.home, "Lease").list(&ListParams::default()).await;
        let prefix = format!("{}-shard-", self.home.name());
        let of = |lease: &DynamicObject| {
            let shard = lease.metadata.name.as_deref()?.strip_prefix(&prefix)?;
            let holder = lease.data["spec"]["holderIdentity"].as_str()?;
            let pod = holder.split('_').next()?.to_owned();
            Some((shard.parse().ok()?, pod))
        };
        leases.unwrap().iter().filter_map(of).collect()
    }

    /// Waits until these Pods have the shards, each at least one.
    async fn until_held_by(&self, pods: &[&str]) {
        let wanted: BTreeSet<String> = pods.iter().map(ToString::to_string).collect();
        let is_held = async || {
            let holders = self.holders().await;
            holders.len() == 2 && holders.into_values().collect::<BTreeSet<_>>() == wanted
        };
        eventually("the shards to be held", is_held).await;
    }

    fn plots(&self, shard: u32) -> Api<DynamicObject> {
        api_of(&self.namespaces[&shard], &self.group, "Plot")
    }

    /// Changes the custom resource of each shard, and returns once the Pods that have the shards have deployed them.
    async fn deploy(&self, revision: u32) {
        for shard in [0, 1] {
            let (plots, spec) = (self.plots(shard), json!({"value": revision.to_string()}));
            if revision > 1 {
                merge(&plots, "one", &json!({"spec": spec})).await;
                continue;
            }
            let version = format!("{}/v1", self.group);
            let plot = json!({
                "apiVersion": version, "kind": "Plot", "metadata": {"name": "one"}, "spec": spec,
            });
            create(&plots, plot).await;
        }
        for (shard, pod) in self.holders().await {
            let ready = ready_at(revision);
            until(&self.plots(shard), "one", "Ready", ready).await;
            let records = api(&self.namespaces[&shard], "Secret");
            let name = format!("sh.helm.release.v1.one.v{revision}");
            let record = records.get(&name).await.unwrap();
            let writer = &record.metadata.labels.unwrap()["helm.sdk.operatorframework.io/writer"];
            assert!(
                writer.ends_with(&pod),
                "{writer} has written in shard {shard} of {pod}"
            );
        }
    }
}

/// Returns the namespaces whose custom resources a replica keeps.
async fn kept(operator: &RunningOperator) -> BTreeSet<String> {
    let metrics = operator.metrics().await.unwrap();
    let lines = metrics.lines();
    let of_plots = lines.filter(|line| line.starts_with("resource_created_at_seconds{"));
    let namespace = |line: &str| {
        let rest = line.split_once("namespace=\"")?.1;
        Some(rest.split_once('"')?.0.to_owned())
    };
    of_plots.filter_map(namespace).collect()
}

#[tokio::test]
async fn replicas_share_the_namespaces_and_take_over_from_one_that_dies_or_hangs() {
    let sharded = or_skip!(Sharded::new().await);
    let first = sharded.replica("first", &[]).await;
    // The first takes what nobody else has, and hands it over when another comes.
    sharded.until_held_by(&["first"]).await;
    sharded.deploy(1).await;
    let second = sharded.replica("second", &[]).await;
    sharded.until_held_by(&["first", "second"]).await;
    sharded.deploy(2).await;
    for (replica, pod) in [(&first, "first"), (&second, "second")] {
        let holders = sharded.holders().await;
        let of_pod = holders.iter().filter(|(_, holder)| *holder == pod);
        let wanted = of_pod.map(|(shard, _)| sharded.namespaces[shard].name().to_owned());
        let wanted: BTreeSet<String> = wanted.collect();
        let is_share = async || kept(replica).await == wanted;
        eventually("a replica to keep its share alone", is_share).await;
        // The API server sends no others.
        assert!(!replica.log().contains("does not select objects by shard"));
    }

    drop(first);
    sharded.until_held_by(&["second"]).await;
    sharded.deploy(3).await;

    let third = sharded.replica("third", &[]).await;
    sharded.until_held_by(&["second", "third"]).await;
    sharded.deploy(4).await;

    third.freeze().unwrap();
    sharded.until_held_by(&["second"]).await;
    sharded.deploy(5).await;
    third.wake().unwrap();
    let end = third.exited(LIMIT).await.unwrap();
    assert!(!end.success(), "{}", third.log());
    assert_contains!(third.log(), "lost the lease of a shard");
    // Nothing is done twice, and nothing is rolled back.
    for namespace in sharded.namespaces.values() {
        let statuses = crate::world::history(namespace, "one").await;
        let (last, former) = statuses.split_last().unwrap();
        assert_eq!(last, "deployed");
        assert!(former.iter().all(|status| status == "superseded"));
        let map = api(namespace, "ConfigMap").get("one-map").await.unwrap();
        assert_eq!(map.data["data"]["value"], "5");
    }
    assert!(second.stop(LIMIT).await.unwrap().success());
    let none: BTreeMap<u32, String> = [0, 1].map(|shard| (shard, String::new())).into();
    assert_eq!(sharded.holders().await, none);
}

#[tokio::test]
async fn replicas_that_ask_for_a_shard_of_their_own_get_it() {
    let sharded = or_skip!(Sharded::new().await);
    // While it is alone, a replica has the other shard, too.
    let last = sharded.replica("last", &["--shard-id=1"]).await;
    sharded.until_held_by(&["last"]).await;
    let _first = sharded.replica("first", &["--shard-id=0"]).await;
    sharded.until_held_by(&["first", "last"]).await;
    let holders = sharded.holders().await;
    assert_eq!([&holders[&0], &holders[&1]], ["first", "last"]);
    sharded.deploy(1).await;
    let metrics = last.metrics().await.unwrap();
    for (shard, leads) in [(0, 0), (1, 1)] {
        let name = format!("{}-shard-{shard}", sharded.home.name());
        let line = format!("leader_election_master_status{{name=\"{name}\"}} {leads}");
        assert_contains!(metrics, line.as_str());
    }
}

#[tokio::test]
async fn shards_that_contradict_other_flags_are_refused() {
    let (plane, namespace) = or_skip!(new_namespace("no-shards").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    for (flags, wanted) in [
        (
            &["--shards=2", "--shard-id=2"][..],
            "--shard-id 2 is none of the 2 shards, which are 0 to 1",
        ),
        (
            &[
                "--shards=2",
                "--leader-elect",
                "--leader-election-mode=for-life",
            ],
            "--shards cannot be combined with --leader-election-mode=for-life",
        ),
        (&["--shards=2"], "leader election needs a namespace"),
    ] {
        let operator = project
            .operator(plane, namespace.name())
            .args(flags.iter().copied());
        let running = operator.spawn().unwrap();
        assert_eq!(running.exited(LIMIT).await.unwrap().code(), Some(1));
        assert_contains!(running.log(), wanted);
    }
}
