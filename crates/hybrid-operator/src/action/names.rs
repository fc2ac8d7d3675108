//! Finding the objects of a manifest among those of the cluster, and the other way round, in a time
//! that does not grow with the product of both.

use std::collections::HashSet;

use helm_core::manifest::{ManifestObject, ObjectKey};

use super::{ActionContext, generated_run};
use crate::cluster::apply::is_generated;

/// An object by its name, so that it is found in a set. The version does not matter.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Named<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> Named<'a> {
    /// As the cluster has it: without a namespace if its kind has none.
    pub(super) fn in_cluster(key: &'a ObjectKey) -> Self {
        Self {
            group: &key.group,
            kind: &key.kind,
            namespace: key.namespace.as_deref(),
            name: &key.name,
        }
    }

    /// As a manifest has it, if its kind has namespaces.
    pub(super) fn of(key: &'a ObjectKey, release_namespace: &'a str) -> Self {
        Self {
            namespace: Some(key.namespace.as_deref().unwrap_or(release_namespace)),
            ..Self::in_cluster(key)
        }
    }

    /// As a manifest has it, if its kind has none.
    pub(super) fn without_namespace(key: &'a ObjectKey) -> Self {
        Self {
            namespace: None,
            ..Self::in_cluster(key)
        }
    }
}

/// What a manifest holds, to be looked up by objects of the cluster.
pub(super) struct Names<'a> {
    names: HashSet<Named<'a>>,
    runs: HashSet<String>,
}

impl<'a> Names<'a> {
    pub(super) fn of(
        objects: &'a [ManifestObject],
        revision: u32,
        context: &'a ActionContext<'_>,
    ) -> Names<'a> {
        let (mut names, mut runs) = (HashSet::new(), HashSet::new());
        for object in objects {
            if is_generated(object.object()) {
                runs.insert(generated_run(&context.primary.uid, revision, object));
            } else {
                names.insert(Named::of(object.key(), context.namespace));
                names.insert(Named::without_namespace(object.key()));
            }
        }
        Names { names, runs }
    }

    /// Whether it holds an object of the cluster; `run` is the run that has made it, where the API
    /// server has named it.
    pub(super) fn has(&self, key: &ObjectKey, run: Option<&str>) -> bool {
        match run {
            Some(run) => self.runs.contains(run),
            None => self.names.contains(&Named::in_cluster(key)),
        }
    }
}
