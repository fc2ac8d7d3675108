//! Which release belongs to a custom resource: its name and its namespace.
//!
//! A release that has begun keeps both: moving it would leave its objects behind under the old
//! name and take over somebody else's under the new one.

use std::sync::PoisonError;

use helm_core::release::{NameError, ReleaseName};
use serde_json::Value;

use super::HelmReconciler;
use crate::client::{ImpersonateError, impersonate};
use crate::cluster::{Cluster, Primary};
use crate::values::{self, ValuesError};

/// Why a custom resource can have no release.
#[derive(Debug, thiserror::Error)]
pub(super) enum NamingError {
    /// No release can have its name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The service account to act as has no possible name.
    #[error(transparent)]
    Account(#[from] ImpersonateError),
    /// The template of a name fails.
    #[error(transparent)]
    Template(#[from] ValuesError),
    /// A cluster-scoped custom resource whose release has no namespace.
    #[error(
        "a cluster-scoped custom resource needs releaseNamespace in watches.yaml, or $POD_NAMESPACE"
    )]
    NoNamespace,
    /// The release would move.
    #[error(
        "the release is {old} and would become {new}; releaseName and releaseNamespace cannot change: set them back, or delete the custom resource and create it again"
    )]
    Moved {
        /// Where it is.
        old: String,
        /// Where it would be.
        new: String,
    },
}

/// Where a release is.
pub(super) struct Place {
    pub(super) name: ReleaseName,
    pub(super) namespace: String,
}

impl HelmReconciler {
    /// The cluster as the service account of a custom resource sees it, or as the operator does.
    pub(super) fn cluster_for(
        &self,
        primary: &Primary,
        object: &Value,
    ) -> Result<Cluster, NamingError> {
        let Some(template) = &self.watch.service_account_name else {
            return Ok(self.manager.cluster.clone());
        };
        let account = values::render_text(template, object, "serviceAccountName")?;
        let own = self.manager.operator_namespace.as_deref();
        let namespace = primary.namespace.as_deref().or(own).unwrap_or("default");
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let known = (namespace.to_owned(), account);
        if let Some(cluster) = clusters.get(&known) {
            return Ok(cluster.clone());
        }
        let client = impersonate(&self.manager.client, namespace, &known.1)?;
        let cluster = self.manager.cluster.with_client(client);
        clusters.insert(known, cluster.clone());
        Ok(cluster)
    }

    /// Finds the release of a custom resource: the one that its records have, else the one that
    /// the rules give it.
    pub(super) fn place(&self, primary: &Primary, object: &Value) -> Result<Place, NamingError> {
        let watch = &self.watch;
        let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
        let records = self.store.records_of(&primary.identity());
        let namespace = primary
            .namespace
            .clone()
            .or_else(|| watch.release_namespace.clone())
            .or_else(|| self.manager.operator_namespace.clone());
        let wanted = match &watch.release_name {
            Some(template) => {
                let text = values::render_text(template, object, "releaseName")?;
                ReleaseName::new(text)?
            }
            None => ReleaseName::for_resource(&primary.name)?,
        };
        let qualified = ReleaseName::for_resource_of_kind(&primary.name, &primary.gvk.kind)?;
        if let Some(record) = records.last() {
            let old = Place {
                name: record.name.clone(),
                namespace: record.namespace.clone(),
            };
            let same = (old.name == wanted || old.name == qualified)
                && namespace.as_ref() == Some(&old.namespace);
            // What is to go is found wherever it is.
            if same || deleting {
                return Ok(old);
            }
            return Err(NamingError::Moved {
                old: format!("{}/{}", old.namespace, old.name),
                new: format!("{}/{wanted}", namespace.unwrap_or_default()),
            });
        }
        let namespace = namespace.ok_or(NamingError::NoNamespace)?;
        let identity = primary.identity();
        let neighbour = self
            .store
            .history(&namespace, &wanted)
            .into_iter()
            .any(|record| record.cr.is_some_and(|cr| cr != identity));
        let name = if neighbour { qualified } else { wanted };
        Ok(Place { name, namespace })
    }
}
