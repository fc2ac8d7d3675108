//! Reconciles `MemcachedBackup`: applies a Deployment of the desired size, and reports its Pods in
//! the status.

mod desired;
mod status;

use std::sync::Arc;

use hybrid_operator::controller::{Key, Outcome};
use hybrid_operator::native::status::set_condition;
use hybrid_operator::native::{self, Context, NativeController};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::api::v1alpha1::{MemcachedBackup, MemcachedBackupStatus};

/// Selects the objects of all backups.
const SELECTOR: &str = "app.kubernetes.io/name=memcachedbackup";
/// Label with the name of the backup that a Pod belongs to.
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// Creates the controller.
pub fn controller() -> NativeController<MemcachedBackup> {
    native::controller::<MemcachedBackup>("memcachedbackup")
        .owns::<Deployment>(SELECTOR)
        // The owner of a Pod is a ReplicaSet, so a label names the backup.
        .watches::<Pod>(SELECTOR, |pod| {
            let name = pod.labels().get(INSTANCE_LABEL)?;
            Some(Key::new(pod.namespace().as_deref(), name))
        })
        .reconcile(reconcile)
}

async fn reconcile(
    backup: Arc<MemcachedBackup>,
    context: Context<MemcachedBackup>,
) -> Result<Outcome, native::Error> {
    context.apply(&desired::deployment(&backup)).await?;
    context.patch_status(&observe(&backup, &context)).await?;
    Ok(Outcome::Done)
}

fn observe(backup: &MemcachedBackup, context: &Context<MemcachedBackup>) -> MemcachedBackupStatus {
    let pods = context.cached::<Pod>();
    let name = backup.name_any();
    let own = pods
        .iter()
        .filter(|pod| pod.labels().get(INSTANCE_LABEL) == Some(&name));
    let (nodes, ready_nodes) = status::nodes(own.map(Arc::as_ref));
    let generation = backup.metadata.generation;
    let mut conditions = backup
        .status
        .as_ref()
        .map(|s| s.conditions.clone())
        .unwrap_or_default();
    let wanted = backup.spec.size;
    let complete = ready_nodes == wanted && nodes.len() == usize::try_from(wanted).unwrap_or(0);
    let (reason, message) = if complete {
        ("AllNodesReady", format!("{wanted} nodes are ready"))
    } else {
        (
            "NodesNotReady",
            format!("{ready_nodes} of {wanted} nodes are ready"),
        )
    };
    set_condition(
        &mut conditions,
        "Ready",
        complete,
        reason,
        &message,
        generation,
    );
    MemcachedBackupStatus {
        nodes,
        ready_nodes,
        observed_generation: generation,
        conditions,
    }
}
