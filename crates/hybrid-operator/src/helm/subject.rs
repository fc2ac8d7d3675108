//! The custom resource of a reconcile, and which release belongs to it.
//!
//! A release that has begun keeps its name and namespace: moving it would leave its objects behind
//! under the old name and take over somebody else's under the new one.

use std::sync::{Arc, PoisonError};

use helm_core::release::{NameError, ReleaseName, Revision};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::access::Access;
use super::annotations::{self, Annotations};
use super::finalizer;
use super::setup::Setup;
use super::status::Status;
use crate::client::{ImpersonateError, impersonate};
use crate::cluster::{Cluster, Primary};
use crate::controller::Key;
use crate::release::RecordMeta;
use crate::values::{self, ValuesError};

/// Why a custom resource can have no release.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubjectError {
    /// The release's name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name of the service account to act as is invalid.
    #[error(transparent)]
    Account(#[from] ImpersonateError),
    /// A template of `watches.yaml` fails.
    #[error(transparent)]
    Template(#[from] ValuesError),
    /// The release of a cluster-scoped custom resource has no namespace.
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

/// Name and namespace of a release.
#[derive(Debug, Clone)]
struct Place {
    name: ReleaseName,
    namespace: String,
}

/// A custom resource as it was when its reconcile began.
pub(super) struct Subject {
    pub(super) primary: Primary,
    pub(super) resource: Arc<DynamicObject>,
    /// The cluster as the custom resource's service account sees it.
    pub(super) cluster: Cluster,
    pub(super) object: Arc<Value>,
    pub(super) generation: Option<i64>,
    pub(super) deleting: bool,
    pub(super) finalizer: bool,
    pub(super) annotations: Annotations,
    /// Name of the release.
    pub(super) name: ReleaseName,
    /// Namespace of the release.
    pub(super) namespace: String,
    pub(super) now: Timestamp,
    /// Why it can have no release. Name, namespace and cluster are stand-ins then, good enough to
    /// delete what may be there.
    pub(super) error: Option<SubjectError>,
}

impl Subject {
    pub(super) fn of(
        resource: &Arc<DynamicObject>,
        setup: &Setup,
        access: &Access,
    ) -> Result<Self, NameError> {
        let primary = primary(resource, setup);
        let object = serde_json::to_value(resource).unwrap_or_default();
        let deleting = resource.metadata.deletion_timestamp.is_some();
        let mut error = None;
        let place = match place(&primary, &object, setup, access) {
            Ok(place) => place,
            Err(found) => {
                error = Some(found);
                stand_in(&primary, setup)?
            }
        };
        let cluster = cluster_for(&primary, &object, setup, access).unwrap_or_else(|found| {
            error.get_or_insert(found);
            access.cluster.clone()
        });
        Ok(Self {
            primary,
            resource: Arc::clone(resource),
            cluster,
            generation: resource.metadata.generation,
            deleting,
            finalizer: finalizer::is_present(resource),
            annotations: annotations_of(resource, setup),
            object: Arc::new(object),
            name: place.name,
            namespace: place.namespace,
            now: Timestamp::now(),
            error,
        })
    }

    /// The queue's key of the custom resource.
    pub(super) fn key(&self) -> Key {
        Key::new(self.primary.namespace.as_deref(), &self.primary.name)
    }

    /// Whether a record belongs to the custom resource. The Go operators made it the owner of its
    /// records.
    pub(super) fn owns(&self, meta: &RecordMeta) -> bool {
        meta.cr.as_ref() == Some(&self.primary.identity())
            || meta.owners.contains(&self.primary.uid)
    }

    /// Whether `force-at` has a value that was not acted upon yet.
    pub(super) fn is_forced(&self) -> bool {
        self.is_new(
            self.annotations.force_at.as_deref(),
            "/status/handled/forceAt",
        )
    }

    /// Whether `reset-at` has a value that was not acted upon yet.
    pub(super) fn is_reset(&self) -> bool {
        self.is_new(
            self.annotations.reset_at.as_deref(),
            "/status/handled/resetAt",
        )
    }

    /// The revision up to which failures no longer count.
    pub(super) fn forgiven(&self, latest: Revision) -> Revision {
        if self.is_reset() {
            return latest;
        }
        Revision(self.number("/status/handled/forgiven").unwrap_or(0))
    }

    fn is_new(&self, asked: Option<&str>, handled: &str) -> bool {
        asked.is_some() && self.object.pointer(handled).and_then(Value::as_str) != asked
    }

    /// A number of the custom resource.
    pub(super) fn number(&self, pointer: &str) -> Option<u32> {
        let number = self.object.pointer(pointer)?.as_u64()?;
        u32::try_from(number).ok()
    }

    /// The status as it is.
    pub(super) fn status(&self) -> Status {
        Status::read(self.object.get("status"), self.now, self.generation)
    }
}

/// Which custom resource it is.
fn primary(resource: &DynamicObject, setup: &Setup) -> Primary {
    Primary {
        gvk: setup.watch.gvk.clone(),
        namespace: resource.namespace(),
        name: resource.name_any(),
        uid: resource.uid().unwrap_or_default(),
    }
}

/// What the annotations of a custom resource ask for.
fn annotations_of(resource: &DynamicObject, setup: &Setup) -> Annotations {
    let pause = setup.watch.pause_annotation.as_deref();
    annotations::read(resource.annotations(), pause)
}

/// The cluster as the service account of a custom resource sees it, or as the operator does.
fn cluster_for(
    primary: &Primary,
    object: &Value,
    setup: &Setup,
    access: &Access,
) -> Result<Cluster, SubjectError> {
    let Some(template) = &setup.watch.service_account_name else {
        return Ok(access.cluster.clone());
    };
    let account = values::render_text(template, object, "serviceAccountName")?;
    let own = setup.operator_namespace.as_deref();
    let namespace = primary.namespace.as_deref().or(own).unwrap_or("default");
    let mut clusters = access
        .impersonated
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let known = (namespace.to_owned(), account);
    if let Some(cluster) = clusters.get(&known) {
        return Ok(cluster.clone());
    }
    let client = impersonate(&access.client, namespace, &known.1)?;
    let cluster = access.cluster.with_client(client);
    clusters.insert(known, cluster.clone());
    Ok(cluster)
}

/// Finds the release of a custom resource: the one that its records have, else the one that the
/// rules give it.
fn place(
    primary: &Primary,
    object: &Value,
    setup: &Setup,
    access: &Access,
) -> Result<Place, SubjectError> {
    let records = access.store.records_of(&primary.identity());
    let present = records.last().map(|record| Place {
        name: record.name.clone(),
        namespace: record.namespace.clone(),
    });
    // What is to be deleted is found wherever it is, whatever its templates say now.
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some();
    if let Some(present) = present.clone().filter(|_| deleting) {
        return Ok(present);
    }
    let namespace = namespace_of(primary, setup);
    let wanted = match &setup.watch.release_name {
        Some(template) => {
            let text = values::render_text(template, object, "releaseName")?;
            ReleaseName::new(text)?
        }
        None => ReleaseName::for_resource(&primary.name)?,
    };
    let qualified = ReleaseName::for_resource_of_kind(&primary.name, &primary.gvk.kind)?;
    if let Some(present) = present {
        let same = (present.name == wanted || present.name == qualified)
            && namespace.as_ref() == Some(&present.namespace);
        return if same {
            Ok(present)
        } else {
            Err(SubjectError::Moved {
                old: format!("{}/{}", present.namespace, present.name),
                new: format!("{}/{wanted}", namespace.unwrap_or_default()),
            })
        };
    }
    let namespace = namespace.ok_or(SubjectError::NoNamespace)?;
    let identity = primary.identity();
    let neighbour = access
        .store
        .history(&namespace, &wanted)
        .into_iter()
        .any(|record| record.cr.is_some_and(|cr| cr != identity));
    let name = if neighbour { qualified } else { wanted };
    Ok(Place { name, namespace })
}

fn namespace_of(primary: &Primary, setup: &Setup) -> Option<String> {
    primary
        .namespace
        .clone()
        .or_else(|| setup.watch.release_namespace.clone())
        .or_else(|| setup.operator_namespace.clone())
}

/// A place where no release is, for a custom resource that can have none.
fn stand_in(primary: &Primary, setup: &Setup) -> Result<Place, NameError> {
    Ok(Place {
        name: ReleaseName::new(format!("none-{}", primary.identity()))?,
        namespace: namespace_of(primary, setup).unwrap_or_else(|| "default".to_owned()),
    })
}
