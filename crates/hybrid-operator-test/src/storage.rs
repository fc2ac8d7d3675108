//! Storage of a control plane: a default `StorageClass`, and its provisioner, which makes, grows and deletes
//! volumes. The volumes hold nothing, because Pods run nothing.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::control_plane::{ClientError, client_of};

/// Name of the `StorageClass`, as in `kind`.
const CLASS: &str = "standard";
/// Name of the provisioner. Classes of tests can name it, too.
const PROVISIONER: &str = "test.hybrid-operator/storage";
/// Annotation of claims for which Kubernetes waits for a provisioner. A claim whose class binds only for a Pod
/// gets it with the Pod.
const WANTED: &str = "volume.kubernetes.io/storage-provisioner";
/// Annotation of volumes that a provisioner made.
const MADE_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Time until a failed request is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Reason why a control plane has no storage.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The thread or its runtime cannot be started.
    #[error("cannot run the provisioner of volumes")]
    Run(#[from] std::io::Error),
    /// The API server rejects the `StorageClass`.
    #[error("cannot create the StorageClass {CLASS}")]
    Class(#[source] Box<kube::Error>),
    /// The thread has ended.
    #[error("the provisioner of volumes has ended")]
    Ended,
}

/// A running provisioner. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Storage {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Storage {
    /// Creates the `StorageClass` and starts its provisioner, with the account of a kubeconfig. The provisioner
    /// has a thread of its own, because a control plane outlives the runtimes of tests.
    pub(crate) fn start(kubeconfig: &Path) -> Result<Self, StorageError> {
        let kubeconfig = kubeconfig.to_owned();
        let (stop, stopped) = oneshot::channel();
        let (started, result) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || run(&kubeconfig, &started, stopped))?;
        let storage = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        result.recv().unwrap_or(Err(StorageError::Ended))?;
        Ok(storage)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn run(
    kubeconfig: &Path,
    started: &mpsc::Sender<Result<(), StorageError>>,
    stopped: oneshot::Receiver<()>,
) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error.into()))),
    };
    runtime.block_on(async {
        let client = match set_up(kubeconfig).await {
            Ok(client) => client,
            Err(error) => return drop(started.send(Err(error))),
        };
        drop(started.send(Ok(())));
        tokio::select! {
            ((), ()) = async { tokio::join!(
                follow::<PersistentVolumeClaim, _>(&client, claim),
                follow::<PersistentVolume, _>(&client, volume),
            ) } => {}
            // An error means that the value was dropped.
            _ = stopped => {}
        }
    });
}

/// Returns a client, once the `StorageClass` is there.
async fn set_up(kubeconfig: &Path) -> Result<Client, StorageError> {
    let client = client_of(kubeconfig, None).await?;
    let class = parsed(json!({
        "metadata": {
            "name": CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true,
    }));
    let classes = Api::<StorageClass>::all(client.clone());
    let created = match class {
        Ok(class) => classes.create(&PostParams::default(), &class).await,
        Err(error) => Err(error),
    };
    created.map_err(|source| StorageError::Class(Box::new(source)))?;
    Ok(client)
}

/// Calls a function for each object of a kind whenever it changes, and again if it fails.
async fn follow<K, F>(client: &Client, reconcile: fn(Arc<K>, Arc<Client>) -> F)
where
    K: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    F: Future<Output = Result<Action, kube::Error>> + Send + 'static,
{
    let again = |_: Arc<K>, _: &kube::Error, _: Arc<Client>| Action::requeue(RETRY);
    Controller::new(Api::<K>::all(client.clone()), watcher::Config::default())
        .run(reconcile, again, Arc::new(client.clone()))
        .for_each(|_| std::future::ready(()))
        .await;
}

/// The next step for a claim.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    /// Make a volume for it.
    Provision,
    /// Give the volume and the claim this capacity.
    Grow {
        volume: String,
        to: Quantity,
    },
}

/// Returns what a claim needs.
fn step(claim: &PersistentVolumeClaim) -> Step {
    let ours = claim.annotations().get(WANTED).map(String::as_str) == Some(PROVISIONER);
    let spec = claim.spec.clone().unwrap_or_default();
    if !ours || claim.meta().deletion_timestamp.is_some() {
        return Step::Nothing;
    }
    let Some(volume) = spec.volume_name else {
        return Step::Provision;
    };
    let status = claim.status.clone().unwrap_or_default();
    let present = status.capacity.and_then(|mut all| all.remove("storage"));
    // A volume that somebody else made can be larger than its claim. Until a claim is bound, Kubernetes writes its
    // capacity. The API server writes equal quantities alike, and refuses to shrink a claim.
    let bound = volume == volume_name(claim) && status.phase.as_deref() == Some("Bound");
    match requested(claim) {
        Some(to) if bound && present.as_ref() != Some(&to) => Step::Grow { volume, to },
        _ => Step::Nothing,
    }
}

/// Returns the name of the volume that is made for a claim.
fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    resources.requests.as_ref()?.get("storage").cloned()
}

async fn claim(
    claim: Arc<PersistentVolumeClaim>,
    client: Arc<Client>,
) -> Result<Action, kube::Error> {
    let volumes = Api::<PersistentVolume>::all(client.as_ref().clone());
    match step(&claim) {
        Step::Nothing => {}
        Step::Provision => {
            let volume = volume_for(&claim, &client).await?;
            match volumes.create(&PostParams::default(), &volume).await {
                // Made before; Kubernetes binds it.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                other => drop(other?),
            }
        }
        Step::Grow { volume, to } => {
            let capacity = json!({"capacity": {"storage": to}});
            let params = PatchParams::default();
            let patch = json!({"spec": capacity});
            volumes
                .patch(&volume, &params, &Patch::Merge(&patch))
                .await?;
            let namespace = claim.namespace().unwrap_or_default();
            let claims =
                Api::<PersistentVolumeClaim>::namespaced(client.as_ref().clone(), &namespace);
            let status = json!({"status": capacity});
            claims
                .patch_status(&claim.name_any(), &params, &Patch::Merge(&status))
                .await?;
        }
    }
    Ok(Action::await_change())
}

async fn volume_for(
    claim: &PersistentVolumeClaim,
    client: &Client,
) -> Result<PersistentVolume, kube::Error> {
    let spec = claim.spec.clone().unwrap_or_default();
    let name = volume_name(claim);
    let class = spec.storage_class_name.unwrap_or_default();
    let policy = Api::<StorageClass>::all(client.clone())
        .get_opt(&class)
        .await?
        .and_then(|class| class.reclaim_policy);
    parsed(json!({
        "metadata": {"name": name, "annotations": {MADE_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec.access_modes,
            "capacity": {"storage": requested(claim)},
            "claimRef": claim.object_ref(&()),
            "hostPath": {"path": format!("/volumes/{name}")},
            "persistentVolumeReclaimPolicy": policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class,
            "volumeMode": spec.volume_mode,
        },
    }))
}

/// Deletes a volume whose claim is gone, if its class says so.
async fn volume(volume: Arc<PersistentVolume>, client: Arc<Client>) -> Result<Action, kube::Error> {
    if is_left(&volume) {
        let volumes = Api::<PersistentVolume>::all(client.as_ref().clone());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: volume.uid(),
                resource_version: volume.resource_version(),
            }),
            ..DeleteParams::default()
        };
        match volumes.delete(&volume.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(Action::await_change())
}

fn is_left(volume: &PersistentVolume) -> bool {
    let made = volume.annotations().get(MADE_BY).map(String::as_str) == Some(PROVISIONER);
    let spec = volume.spec.clone().unwrap_or_default();
    let status = volume.status.clone().unwrap_or_default();
    made && volume.meta().deletion_timestamp.is_none()
        && status.phase.as_deref() == Some("Released")
        && spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete")
}

/// Returns an object from JSON.
fn parsed<K: DeserializeOwned + Serialize>(object: Value) -> Result<K, kube::Error> {
    serde_json::from_value(object).map_err(kube::Error::SerdeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(annotation: &str, spec: &Value, status: &Value) -> PersistentVolumeClaim {
        let mut spec = spec.clone();
        spec["resources"] = json!({"requests": {"storage": "2Gi"}});
        let metadata = json!({"name": "data", "uid": "1", "annotations": {WANTED: annotation}});
        parsed(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn claims_of_this_provisioner_are_provisioned_and_grow_once_they_are_bound() {
        let of = |spec: Value, status: Value| step(&claim(PROVISIONER, &spec, &status));
        let bound = |capacity: &str| json!({"phase": "Bound", "capacity": {"storage": capacity}});
        let named = || json!({"volumeName": "pvc-1"});
        assert_eq!(of(json!({}), json!({"phase": "Pending"})), Step::Provision);
        assert_eq!(of(named(), json!({"phase": "Pending"})), Step::Nothing);
        assert_eq!(of(named(), bound("2Gi")), Step::Nothing);
        let (volume, to) = ("pvc-1".to_owned(), Quantity("2Gi".to_owned()));
        assert_eq!(of(named(), bound("1Gi")), Step::Grow { volume, to });
        let larger = of(json!({"volumeName": "made-by-hand"}), bound("5Gi"));
        assert_eq!(larger, Step::Nothing);
        let foreign = claim("example.com/other", &json!({}), &json!({}));
        assert_eq!(step(&foreign), Step::Nothing);
    }

    #[test]
    fn volumes_are_deleted_only_if_they_are_released_and_not_retained() {
        let volume = |made_by: &str, policy: &str, phase: &str| {
            let volume = json!({
                "metadata": {"name": "v", "annotations": {MADE_BY: made_by}},
                "spec": {"persistentVolumeReclaimPolicy": policy},
                "status": {"phase": phase},
            });
            is_left(&parsed(volume).unwrap())
        };
        assert!(volume(PROVISIONER, "Delete", "Released"));
        assert!(!volume(PROVISIONER, "Retain", "Released"));
        assert!(!volume(PROVISIONER, "Delete", "Bound"));
        assert!(!volume("example.com/other", "Delete", "Released"));
    }
}
