//! Reconciles `MemcachedBackup`: finds the release that the chart made of a Memcached, applies a
//! Deployment of the desired size with Pods like those of the chart, and reports them in the status.

mod desired;
mod source;
mod status;

use std::sync::Arc;

use hybrid_operator::native::{self, Action, Context, Key, NativeController};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::api::v1alpha1::{Memcached, MemcachedBackup, MemcachedBackupStatus};
use source::Missing;

/// Selects the Pods of all backups.
const SELECTOR: &str = "app.kubernetes.io/name=memcachedbackup";
/// Label with the name of the backup that a Pod belongs to.
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<MemcachedBackup> {
    native::controller::<MemcachedBackup>("memcachedbackup")
        .defines_crd()
        .owns::<Deployment>()
        // The status of a Memcached changes with its release.
        .watches_for::<Memcached>(|memcached, backup| {
            let reference = backup.spec.memcached_ref.as_ref();
            memcached.namespace() == backup.namespace()
                && reference.is_some_and(|reference| reference.name == memcached.name_any())
        })
        // The controller of a Pod is a ReplicaSet, so a label names the backup.
        .watches_selected::<Pod, _>(SELECTOR, |pod| {
            let name = pod.labels().get(INSTANCE_LABEL)?;
            Some(Key::new(pod.namespace().as_deref(), name))
        })
        // The record of the release that is copied.
        .needs("", &["secrets"], &["get", "list", "watch"])
        .reconcile(reconcile)
}

async fn reconcile(
    backup: Arc<MemcachedBackup>,
    context: Context<MemcachedBackup>,
) -> Result<Action, native::Error> {
    let source = match &backup.spec.memcached_ref {
        None => None,
        Some(reference) => match source::find(&context, &reference.name).await? {
            Ok(source) => Some(source),
            Err(missing) => {
                // What was copied before stays as it is.
                let status = waiting(&backup, &context, &missing);
                context.patch_status(&status).await?;
                return Ok(Action::done());
            }
        },
    };
    let deployment = desired::deployment(&backup, source.as_ref());
    context.apply(&deployment).await?;
    let pods = context.cached::<Pod>()?.list();
    let mut status = observe(&backup, &context, &pods);
    status.source = source.map(|source| source.release);
    context.patch_status(&status).await?;
    Ok(Action::done())
}

/// Returns the status of a backup that has nothing to copy.
fn waiting(
    backup: &MemcachedBackup,
    context: &Context<MemcachedBackup>,
    missing: &Missing,
) -> MemcachedBackupStatus {
    let present = backup.status.clone().unwrap_or_default();
    let conditions = context
        .conditions(Some(&present.conditions))
        .set("Ready", false, missing.reason, &missing.message)
        .into_vec();
    MemcachedBackupStatus {
        observed_generation: backup.metadata.generation,
        conditions,
        ..present
    }
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
        source: None,
        observed_generation: backup.metadata.generation,
        conditions,
    }
}
