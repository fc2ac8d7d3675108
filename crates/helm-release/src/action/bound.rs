//! Objects that are to outlive the custom resource, and that still have an owner reference to it. Garbage
//! collection would delete them with it, before an uninstall could leave them.

use helm_core::manifest::ObjectKey;
use kube_objects::delete::{Released, release_kept};
use kube_objects::drift::ours_hash;
use kube_objects::read::ReadError;
use kube_objects::{Cluster, Primary};

use super::live::Live;

impl Live {
    /// Returns the objects that are annotated to be kept, and that the owner with this uid
    /// still controls.
    pub(crate) fn bound(&self, primary: &str) -> Vec<ObjectKey> {
        let is_bound = |key: &ObjectKey| {
            let object = self.objects.get(key);
            object.and_then(|object| object.holder(key)).as_deref() == Some(primary)
        };
        self.keys().filter(|key| is_bound(key)).cloned().collect()
    }
}

/// Removes the owner references to an owner from these objects. What
/// somebody has changed in them stays changed.
///
/// # Errors
/// Returns the first failure. Those of the other objects have been removed nevertheless.
pub(crate) async fn unbind(
    cluster: &Cluster,
    live: &mut Live,
    primary: &Primary,
    keys: Vec<ObjectKey>,
) -> Result<(), ReadError> {
    let mut failed = None;
    for key in keys {
        let Some(object) = live.objects.get_mut(&key) else {
            continue;
        };
        match release_kept(cluster, &key, &object.uid, primary).await {
            Ok(Some(Released { before, after })) => {
                if ours_hash(&before) == object.ours {
                    object.ours = ours_hash(&after);
                }
                let version = after.resource_version.as_deref();
                let version = version.and_then(|version| version.parse().ok());
                object.version = version.unwrap_or(object.version);
                object.reading = None;
            }
            // Its watch will show that it is gone.
            Ok(None) => {}
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}
