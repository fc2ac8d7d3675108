//! Matches objects of a manifest with objects of the cluster, in linear time.

use std::collections::HashSet;

use helm_core::manifest::{ManifestObject, ObjectKey};

use super::{ActionContext, generated_run};
use crate::cluster::apply::is_generated;

/// The identity of an object without its version, as the element of a set.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct ObjectIdentity<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> ObjectIdentity<'a> {
    /// Returns the name of an object as the cluster has it, without a namespace if its kind is
    /// cluster-scoped.
    pub(super) fn in_cluster(key: &'a ObjectKey) -> Self {
        Self {
            group: &key.group,
            kind: &key.kind,
            namespace: key.namespace.as_deref(),
            name: &key.name,
        }
    }

    /// Returns the name of an object of a manifest whose kind is namespaced.
    pub(super) fn of(key: &'a ObjectKey, release_namespace: &'a str) -> Self {
        Self {
            namespace: Some(key.namespace.as_deref().unwrap_or(release_namespace)),
            ..Self::in_cluster(key)
        }
    }

    /// Returns the name of an object of a manifest whose kind is cluster-scoped.
    pub(super) fn without_namespace(key: &'a ObjectKey) -> Self {
        Self {
            namespace: None,
            ..Self::in_cluster(key)
        }
    }
}

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
        let (mut names, mut runs) = (HashSet::new(), HashSet::new());
        for object in objects {
            if is_generated(object.object()) {
                runs.insert(generated_run(&context.primary.uid, revision, object));
            } else {
                names.insert(ObjectIdentity::of(object.key(), context.namespace));
                names.insert(ObjectIdentity::without_namespace(object.key()));
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
