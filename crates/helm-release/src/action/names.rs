//! Matches objects of a manifest with objects of the cluster, in linear time.

use host::HashSet;
use kube_objects::apply::is_generated;

use helm_core::manifest::{ManifestObject, ObjectIdentity, ObjectKey};

use super::context::{ActionContext, generated_run};

/// The objects of a manifest, for looking up objects of the cluster.
pub(super) struct ManifestIndex<'a> {
    names: HashSet<ObjectIdentity<'a>>,
    runs: HashSet<String>,
}

impl<'a> ManifestIndex<'a> {
    pub(super) fn of(
        objects: &'a [ManifestObject],
        revision: u32,
        context: &'a ActionContext<'_>,
    ) -> ManifestIndex<'a> {
        let (mut names, mut runs) = (HashSet::default(), HashSet::default());
        for object in objects {
            if is_generated(object.object()) {
                runs.insert(generated_run(&context.primary.uid, revision, object));
            } else {
                names.extend(identities(object.key(), context.namespace));
            }
        }
        ManifestIndex { names, runs }
    }

    /// Returns whether the manifest has an object of the cluster. `run` is the run that created the
    /// object, if the API server generated its name.
    pub(super) fn has(&self, key: &ObjectKey, run: Option<&str>) -> bool {
        match run {
            Some(run) => self.runs.contains(run),
            None => self.names.contains(&ObjectIdentity::in_cluster(key)),
        }
    }
}

/// Returns the identity that an object of a manifest has if its kind is namespaced, and the one that it
/// has if its kind is cluster-scoped. An object of the cluster has at most one of the two.
pub(super) fn identities<'k>(
    key: &'k ObjectKey,
    release_namespace: &'k str,
) -> [ObjectIdentity<'k>; 2] {
    [
        ObjectIdentity::of(key, release_namespace, &|_| false),
        ObjectIdentity::of(key, release_namespace, &|_| true),
    ]
}
