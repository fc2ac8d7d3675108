//! Replicas that share the namespaces of a cluster.

use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::sharder::Sharder;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube_objects::shards::range_of;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use crate::world::{
    LIMIT, MAP, Project, api, api_of, create, define, define_kind, eventually, has_condition,
    is_ready, merge, new_namespace, ready_at, until,
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
        (
            &[
                "--shards=2",
                "--shard-ring=plots",
                "--leader-election-namespace=default",
            ],
            "ranges assign whole namespaces, and a ring assigns object by object",
        ),
    ] {
        let operator = project
            .operator(plane, namespace.name())
            .args(flags.iter().copied());
        let running = operator.spawn().unwrap();
        assert_eq!(running.exited(LIMIT).await.unwrap().code(), Some(1));
        assert_contains!(running.log(), wanted);
    }
}

/// The definition of `ControllerRing`, as far as the sharder needs it.
const RINGS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: controllerrings.sharding.timebertt.dev}
spec:
  group: sharding.timebertt.dev
  scope: Cluster
  names: {kind: ControllerRing, listKind: ControllerRingList, plural: controllerrings, singular: controllerring}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A ring with its sharder, and an operator whose replicas are its members.
struct Ringed {
    plane: &'static ControlPlane,
    project: Project,
    namespace: TestNamespace,
    ring: String,
    plots: Api<DynamicObject>,
    _sharder: Sharder,
}

impl Ringed {
    async fn new() -> Option<Self> {
        let (plane, namespace) = new_namespace("ring").await?;
        let ring = namespace.name().to_owned();
        let group = format!("{ring}.example.com");
        define_kind(plane, &group, "Plot").await;
        define(plane, RINGS).await;
        let kubeconfig = plane.kubeconfig_path();
        let sharder = Sharder::start_or_skip(kubeconfig).unwrap()?;
        let project = Project::new("", &[]);
        project.watch(&group, "Plot", "");
        project.write("chart/templates/map.yaml", MAP);
        let plots = api_of(&namespace, &group, "Plot");
        let gvk = GroupVersionKind::gvk("sharding.timebertt.dev", "v1alpha1", "ControllerRing");
        let client = plane.client().await.unwrap();
        let rings: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&gvk));
        let wanted = json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ControllerRing",
            "metadata": {"name": ring},
            "spec": {
                "resources": [{"group": group, "resource": "plots"}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ring}},
            },
        });
        create(&rings, wanted).await;
        Some(Self {
            plane,
            project,
            namespace,
            ring,
            plots,
            _sharder: sharder,
        })
    }

    async fn replica(&self, pod: &str) -> RunningOperator {
        let operator = self
            .project
            .operator(self.plane, &self.ring)
            .args(["--shard-ring", &self.ring])
            .env("POD_NAMESPACE", &self.ring)
            .env("POD_NAME", pod);
        operator.start().await.unwrap()
    }

    async fn create(&self, names: impl Iterator<Item = usize>) {
        for name in names {
            let group = &self.ring;
            let plot = json!({
                "apiVersion": format!("{group}.example.com/v1"), "kind": "Plot",
                "metadata": {"name": format!("plot-{name}")}, "spec": {"value": "1"},
            });
            create(&self.plots, plot).await;
        }
    }

    /// Waits until all plots are assigned, each of these shards has some, and no other one has.
    async fn until_assigned_to(&self, shards: &[&str]) {
        let wanted: BTreeSet<String> = shards.iter().map(ToString::to_string).collect();
        let label = format!("shard.alpha.sharding.timebertt.dev/{}", self.ring);
        let drain = format!("drain.alpha.sharding.timebertt.dev/{}", self.ring);
        let is_assigned = async || {
            let plots = self.plots.list(&ListParams::default()).await.unwrap();
            let labels = |plot: &DynamicObject| plot.metadata.labels.clone().unwrap_or_default();
            let of = plots.iter().map(|plot| labels(plot).get(&label).cloned());
            let is_drained = plots.iter().any(|plot| labels(plot).contains_key(&drain));
            let assigned: Option<BTreeSet<String>> = of.collect();
            !is_drained && assigned.as_ref() == Some(&wanted)
        };
        eventually("the sharder to assign", is_assigned).await;
    }

    /// Changes all plots, and waits until each is deployed, by the replica that has it.
    async fn deploy(&self, plots: usize, value: &str) {
        let label = format!("shard.alpha.sharding.timebertt.dev/{}", self.ring);
        for number in 0..plots {
            let name = format!("plot-{number}");
            merge(&self.plots, &name, &json!({"spec": {"value": value}})).await;
            let deployed = |plot: &Value| is_ready(plot);
            let plot = until(&self.plots, &name, "Ready", deployed).await;
            let map = api(&self.namespace, "ConfigMap")
                .get(&format!("{name}-map"))
                .await;
            assert_eq!(map.unwrap().data["data"]["value"], value);
            let shard = plot["metadata"]["labels"][&label]
                .as_str()
                .unwrap()
                .to_owned();
            let revision = plot["status"]["release"]["revision"].as_u64().unwrap();
            let record = api(&self.namespace, "Secret")
                .get(&format!("sh.helm.release.v1.{name}.v{revision}"))
                .await
                .unwrap();
            let writer = &record.metadata.labels.unwrap()["helm.sdk.operatorframework.io/writer"];
            assert!(
                writer.ends_with(&shard),
                "{writer} has written {name} of {shard}"
            );
        }
    }
}

#[tokio::test]
async fn members_of_a_ring_serve_what_its_sharder_assigns_to_them() {
    const PLOTS: usize = 8;
    let ringed = or_skip!(Ringed::new().await);
    ringed.create(0..1).await;
    let first = ringed.replica("first").await;
    // What nobody has is told of, until the sharder knows the first member.
    ringed.until_assigned_to(&["first"]).await;
    ringed.create(1..PLOTS).await;
    ringed.until_assigned_to(&["first"]).await;
    ringed.deploy(PLOTS, "2").await;
    let lease = api(&ringed.namespace, "Lease").get("first").await.unwrap();
    assert_eq!(lease.data["spec"]["holderIdentity"], "first");
    assert_eq!(
        lease.metadata.labels.unwrap()["alpha.sharding.timebertt.dev/controllerring"],
        ringed.ring
    );
    // The sharder drains some, and the first gives them up.
    let second = ringed.replica("second").await;
    ringed.until_assigned_to(&["first", "second"]).await;
    ringed.deploy(PLOTS, "3").await;
    // The sharder takes over the Lease of a member that is gone.
    drop(first);
    ringed.until_assigned_to(&["second"]).await;
    ringed.deploy(PLOTS, "4").await;
    let metrics = second.metrics().await.unwrap();
    assert_contains!(
        metrics,
        "hybrid_operator_unassigned_custom_resources{kind=\"Plot\"} 0"
    );
    assert!(second.stop(LIMIT).await.unwrap().success());
    for number in 0..PLOTS {
        let statuses = crate::world::history(&ringed.namespace, &format!("plot-{number}")).await;
        let deployed = statuses
            .iter()
            .filter(|status| *status == "deployed")
            .count();
        assert_eq!(deployed, 1, "{statuses:?}");
        assert!(
            !statuses.iter().any(|status| status == "failed"),
            "{statuses:?}"
        );
    }
}

#[tokio::test]
async fn custom_resources_without_a_shard_are_named() {
    let ringed = or_skip!(Ringed::new().await);
    let member = ringed.replica("member").await;
    ringed.until_assigned_to(&[]).await;
    // Nobody assigns those of other namespaces.
    let ring = format!("{}-other", ringed.ring);
    let stranger = ringed
        .project
        .operator(ringed.plane, &ringed.ring)
        .args(["--shard-ring", &ring])
        .env("POD_NAMESPACE", &ringed.ring)
        .env("POD_NAME", "stranger");
    let stranger = stranger.start().await.unwrap();
    ringed.create(0..1).await;
    let is_told = async || {
        let metrics = stranger.metrics().await.unwrap();
        metrics.contains("hybrid_operator_unassigned_custom_resources{kind=\"Plot\"} 1")
    };
    eventually("the number of those without a shard", is_told).await;
    assert_contains!(stranger.log(), "a custom resource has no shard", &ring);
    let why = format!(
        "the ControllerRing {ring} must list plots.{}.example.com",
        ringed.ring
    );
    let is_unassigned = |plot: &Value| has_condition(plot, "Ready", "Unknown", &why);
    until(&ringed.plots, "plot-0", "Ready=Unknown", is_unassigned).await;
    // A replica of the other ring has it.
    ringed.deploy(1, "2").await;
    drop(member);
}
