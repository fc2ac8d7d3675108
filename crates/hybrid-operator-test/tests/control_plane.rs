//! Tests of the control plane: controllers run, users have different permissions, and no process
//! outlives the caller.
#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use hybrid_operator_test::control_plane::{ControlPlane, Options};
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{TestNamespace, shared_or_skip, wait};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const SOON: Duration = Duration::from_mins(1);

async fn create<K>(objects: &Api<K>, object: Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let object = serde_json::from_value(object).unwrap();
    objects.create(&PostParams::default(), &object).await
}

fn pod_spec(restart_policy: &str) -> Value {
    json!({"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "any"}]})
}

fn job(name: &str, annotations: &Value) -> Value {
    let template = json!({"metadata": {"annotations": annotations}, "spec": pod_spec("Never")});
    json!({"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}})
}

#[tokio::test]
async fn a_deployment_becomes_available_and_a_job_complete() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "workloads").await?;
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec("Always")},
        },
    });
    let deployments = namespace.api::<Deployment>();
    create(&deployments, deployment).await?;
    let jobs = namespace.api::<Job>();
    create(&jobs, job("once", &json!({}))).await?;

    wait::deployment_available(&deployments, "web", SOON).await?;
    wait::job_complete(&jobs, "once", SOON).await?;
    let pods = namespace.api::<Pod>();
    wait::objects(&pods, "app=web", "two Pods", SOON, |pods| pods.len() == 2).await?;

    let params = DeleteParams::background();
    deployments.delete("web", &params).await?;
    let check = |pods: &[&Pod]| match pods.len() {
        0 => Ok(()),
        count => Err(format!("{count} Pods")),
    };
    wait::objects(&pods, "app=web", "no Pods", SOON, check).await?;
    namespace.finish(SOON).await?;
    Ok(())
}

#[tokio::test]
async fn annotated_pods_are_pending_running_or_failed() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "pods").await?;
    let jobs = namespace.api::<Job>();
    for behaviour in ["pending", "running", "failed"] {
        let annotations = json!({"test.hybrid-operator/pod": behaviour});
        create(&jobs, job(behaviour, &annotations)).await?;
    }
    wait::object(&jobs, "failed", "the Job to fail", SOON, |job| {
        job.and_then(|job| job.status.clone()?.failed)
    })
    .await?;
    let pods = namespace.api::<Pod>();
    for (behaviour, expected) in [("running", "Running"), ("pending", "Pending")] {
        let phase = |pod: &Pod| pod.status.clone()?.phase;
        let is_expected = |pod: &&Pod| phase(pod).as_deref() == Some(expected);
        let check = |pods: &[&Pod]| pods.iter().any(is_expected);
        let labels = format!("job-name={behaviour}");
        wait::objects(&pods, &labels, expected, SOON, check).await?;
    }
    Ok(())
}

/// Returns the capacity of a bound claim.
fn capacity(claim: Option<&PersistentVolumeClaim>) -> Option<String> {
    let status = claim?.status.clone()?;
    let is_bound = status.phase.as_deref() == Some("Bound");
    let capacity = status.capacity?.remove("storage")?.0;
    is_bound.then_some(capacity)
}

#[tokio::test]
async fn a_claim_is_bound_grows_and_its_volume_goes_with_it() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "storage").await?;
    let claims = namespace.api::<PersistentVolumeClaim>();
    let spec = |size: &str| json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    let claim = json!({"metadata": {"name": "data"}, "spec": spec("1Gi")});
    create(&claims, claim).await?;
    let has = async |size: &str| {
        let what = format!("{size} of storage");
        wait::object(&claims, "data", what, SOON, |claim| {
            capacity(claim).as_deref() == Some(size)
        })
        .await
    };
    has("1Gi").await?;
    let more = Patch::Merge(json!({"spec": spec("3Gi")}));
    claims.patch("data", &PatchParams::default(), &more).await?;
    has("3Gi").await?;

    let volumes: Api<PersistentVolume> = Api::all(plane.client().await?);
    let bound = claims.get("data").await?.spec.unwrap().volume_name.unwrap();
    let volume = volumes.get(&bound).await?.spec.unwrap();
    assert_eq!(volume.capacity.unwrap()["storage"].0, "3Gi");
    claims.delete("data", &DeleteParams::default()).await?;
    wait::gone(&volumes, &bound, SOON).await?;
    Ok(())
}

/// As most classes of real clusters, this one waits for a Pod.
#[tokio::test]
async fn pods_of_a_stateful_set_get_their_claims_also_from_a_class_that_waits_for_them()
-> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "claims").await?;
    let classes: Api<StorageClass> = Api::all(plane.client().await?);
    let class = json!({
        "metadata": {"name": namespace.name()},
        "provisioner": "test.hybrid-operator/storage",
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    create(&classes, class).await?;
    let labels = json!({"app": "db"});
    let template = |name: &str, class: &Value| {
        json!({"metadata": {"name": name}, "spec": {
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }})
    };
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 2,
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec("Always")},
            "volumeClaimTemplates": [
                template("default", &Value::Null),
                template("waiting", &json!(namespace.name())),
            ],
        },
    });
    let sets = namespace.api::<StatefulSet>();
    create(&sets, set).await?;
    wait::object(&sets, "db", "two ready Pods", SOON, |set| {
        set.and_then(|set| set.status.clone()?.ready_replicas) == Some(2)
    })
    .await?;
    let claims = namespace.api::<PersistentVolumeClaim>();
    let bound = claims.list(&ListParams::default()).await?;
    let capacities: Vec<_> = bound.iter().map(|claim| capacity(Some(claim))).collect();
    assert_eq!(capacities, vec![Some("1Gi".to_owned()); 4]);

    // What its class retains stays.
    let waiting = claims.get("waiting-db-0").await?.spec.unwrap();
    let volume = waiting.volume_name.unwrap();
    sets.delete("db", &DeleteParams::background()).await?;
    let params = (&DeleteParams::default(), &ListParams::default());
    drop(claims.delete_collection(params.0, params.1).await?);
    let volumes: Api<PersistentVolume> = Api::all(plane.client().await?);
    let check = |volume: Option<&PersistentVolume>| {
        let phase = volume.and_then(|volume| volume.status.clone()?.phase);
        phase.as_deref() == Some("Released")
    };
    wait::object(&volumes, &volume, "a released volume", SOON, check).await?;
    volumes.delete(&volume, params.0).await?;
    classes.delete(namespace.name(), params.0).await?;
    Ok(())
}

#[tokio::test]
async fn a_dropped_namespace_is_deleted() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "dropped").await?;
    let (client, name) = (namespace.client(), namespace.name().to_owned());
    drop(namespace);
    wait::gone(&Api::<Namespace>::all(client), &name, SOON).await?;
    Ok(())
}

#[tokio::test]
async fn the_operator_user_has_only_rbac_permissions_and_is_audited() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let Some(log) = plane.audit_log() else {
        return Ok(());
    };
    let mark = log.mark()?;
    let config_maps: Api<ConfigMap> =
        Api::namespaced(plane.client_as("operator").await?, "default");
    let error = config_maps.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    let expected = BTreeMap::from([("list configmaps -> 403".to_owned(), 1)]);
    assert_eq!(log.count(mark, "operator")?, expected);
    Ok(())
}

#[tokio::test]
async fn a_lost_response_does_not_undo_the_write() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "faults").await?;
    let faults = Faults::new();
    let config_maps: Api<ConfigMap> =
        Api::namespaced(plane.client_with(&faults).await?, namespace.name());
    let config_map = |name: &str| json!({"metadata": {"name": name}});

    faults.at(1, Fault::AnswerLost, Recorded::is_write);
    let lost = create(&config_maps, config_map("lost")).await;
    assert!(lost.is_err());
    assert!(config_maps.get_opt("lost").await?.is_some());

    faults.stop_at(1, Fault::Unreachable, Recorded::is_write);
    let never = create(&config_maps, config_map("never")).await;
    assert!(never.is_err());
    assert!(config_maps.get_opt("lost").await.is_err());
    faults.clear_faults();
    assert!(config_maps.get_opt("never").await?.is_none());
    assert_eq!(faults.counts().get("create configmaps"), Some(&2));
    Ok(())
}

#[tokio::test]
async fn the_version_is_that_of_the_kubernetes_release() -> TestResult {
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let version = plane.client().await?.apiserver_version().await?;
    assert_eq!([version.major, version.minor], ["1", "36"]);
    let release = version.git_version;
    assert!(release.starts_with("v1.36."), "{release}");
    Ok(())
}

#[tokio::test]
async fn stopping_leaves_no_processes() -> TestResult {
    let Some(_) = shared_or_skip().await? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let users = vec![("dev".to_owned(), vec!["developers".to_owned()])];
    let options = Options {
        dir: Some(dir.path().to_owned()),
        users,
        ..Options::default()
    };
    let plane = ControlPlane::start(options.clone()).await?;
    assert!(plane.user_kubeconfig("dev").is_file());
    let pids = plane.pids();
    assert_eq!(pids.len(), 6, "{pids:?}");
    assert!(pids.values().all(|pid| runs(*pid)), "{pids:?}");

    // The directory is locked while this control plane runs.
    let error = ControlPlane::start(options).await.unwrap_err().to_string();
    assert!(error.contains("another control plane runs in"), "{error}");

    plane.stop();
    assert_eq!(running(&pids), Vec::<&str>::new());
    Ok(())
}

#[tokio::test]
async fn a_killed_caller_leaves_no_processes() -> TestResult {
    let Some(_) = shared_or_skip().await? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let mut caller = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .args(["up", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(caller.stdout.take().unwrap()).read_line(&mut line)?;
    assert!(line.starts_with("export KUBECONFIG="), "{line}");
    let mut pids = children_of(caller.id());
    pids.extend(children_of(pids["up"]));
    assert_eq!(pids.len(), 6, "{pids:?}");

    caller.kill()?;
    caller.wait()?;
    wait::until(SOON, "all processes to exit", async || {
        let left = running(&pids);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await?;
    Ok(())
}

/// Returns the child processes of a process, by the name of their program.
fn children_of(parent: u32) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name();
        let pid = pid.to_str().and_then(|name| name.parse().ok());
        let stat = std::fs::read_to_string(entry.path().join("stat"));
        let arguments = std::fs::read_to_string(entry.path().join("cmdline"));
        let (Some(pid), Ok(stat), Ok(arguments)) = (pid, stat, arguments) else {
            continue;
        };
        // After the name in parentheses: state, parent.
        let mut fields = stat.rsplit(')').next().unwrap().split_whitespace();
        if fields.nth(1) == Some(&parent.to_string()) {
            let name = arguments.split('\0').nth(1).unwrap_or_default();
            found.insert(name.to_owned(), pid);
        }
    }
    found
}

fn running(pids: &BTreeMap<String, u32>) -> Vec<&str> {
    let running = pids.iter().filter(|(_, pid)| runs(**pid));
    running.map(|(name, _)| name.as_str()).collect()
}

/// Returns whether a process is running, and not a zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('Z')
    })
}
