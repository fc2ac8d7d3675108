//! Reconciles `MemcachedBackup`: applies a Deployment of the desired size, and reports its Pods in
//! the status.

mod desired;
mod status;

use std::sync::Arc;

use hybrid_operator::native::{self, Action, Context, Key, NativeController};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::api::v1alpha1::{MemcachedBackup, MemcachedBackupStatus};

/// Selects the Pods of all backups.
const SELECTOR: &str = "app.kubernetes.io/name=memcachedbackup";
/// Label with the name of the backup that a Pod belongs to.
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<MemcachedBackup> {
    native::controller::<MemcachedBackup>("memcachedbackup")
        .owns::<Deployment>()
        // The controller of a Pod is a ReplicaSet, so a label names the backup.
        .watches_selected::<Pod, _>(SELECTOR, |pod| {
            let name = pod.labels().get(INSTANCE_LABEL)?;
            Some(Key::new(pod.namespace().as_deref(), name))
        })
        .reconcile(reconcile)
}

async fn reconcile(
    backup: Arc<MemcachedBackup>,
    context: Context<MemcachedBackup>,
) -> Result<Action, native::Error> {
    context.apply(&desired::deployment(&backup)).await?;
    let pods = context.cached::<Pod>()?.list();
    context
        .patch_status(&observe(&backup, &context, &pods))
        .await?;
    Ok(Action::done())
}

fn observe(
    backup: &MemcachedBackup,
    context: &Context<MemcachedBackup>,
    pods: &[Arc<Pod>],
) -> MemcachedBackupStatus {
    let name = backup.name_any();
    let own = pods
        .iter()
        .filter(|pod| pod.labels().get(INSTANCE_LABEL) == Some(&name));
    let (nodes, ready_nodes) = status::nodes(own.map(Arc::as_ref));
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
    let present = backup.status.as_ref();
    let conditions = context
        .conditions(present.map(|status| status.conditions.as_slice()))
        .set("Ready", complete, reason, message)
        .into_vec();
    MemcachedBackupStatus {
        nodes,
        ready_nodes,
        observed_generation: backup.metadata.generation,
        conditions,
    }
}
