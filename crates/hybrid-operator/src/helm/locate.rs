//! The place of the release of an owner.
//!
//! An existing release keeps its name and namespace: moving it would leave its objects behind under
//! the old name and could take over a foreign release under the new one.

use helm_core::release::{NameError, ReleaseName};
use helm_release::engine::Message;
use helm_release::release::{RecordStore, ReleaseIndex};
use helm_release::{ReleaseLocation, Storage};
use kube_objects::client::ImpersonateError;
use kube_objects::with_causes;
use kube_objects::{AccountNameError, Primary, Scope};
use serde_json::Value;

use super::environment::environment;
use crate::values::{self, ValuesError};
use crate::watches::Watch;

/// Error determining the release of a custom resource.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubjectError {
    /// The custom resource could not be read as a whole.
    #[error("{0}")]
    LeftOut(String),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("serviceAccountName in watches.yaml yields no account")]
    AccountName(#[from] AccountNameError),
    #[error(transparent)]
    Account(#[from] ImpersonateError),
    #[error(
        "serviceAccountName picks service account {0:?} in the operator's own namespace, which custom resources may not pick; to allow it, set 'allowOperatorAccounts: true' in watches.yaml"
    )]
    OperatorAccount(String),
    #[error(transparent)]
    Template(#[from] ValuesError),
    #[error(
        "a cluster-scoped custom resource needs releaseNamespace in watches.yaml, or $POD_NAMESPACE"
    )]
    NoNamespace,
    #[error(
        "the releases of cluster-scoped custom resources are in namespace {namespace}, which is not in $WATCH_NAMESPACE ({watched}); set releaseNamespace in watches.yaml to one of these, or add {namespace} to $WATCH_NAMESPACE"
    )]
    NotWatched { namespace: String, watched: String },
    #[error(
        "releaseNamespace in watches.yaml is for cluster-scoped kinds, but {0} is namespaced, and its releases are in the namespaces of its custom resources; remove it"
    )]
    OwnNamespace(String),
    #[error(
        "the release records of this custom resource are stored in {0:?}; set the storage of the operator back, or delete and recreate the custom resource"
    )]
    OtherStorage(Storage),
    #[error(
        "release {old} cannot be moved to {new}; set releaseName and releaseNamespace back, or delete and recreate the custom resource"
    )]
    Moved {
        /// Current namespace and name.
        old: String,
        /// New namespace and name.
        new: String,
    },
}

impl SubjectError {
    /// Returns the error as a message.
    pub(super) fn message(&self) -> Message {
        let hidden = match self {
            // The environment is among the names that it computes.
            Self::Template(error) => error.without_contents(),
            _ => None,
        };
        Message::from(hidden.unwrap_or_else(|| with_causes(self)))
    }
}

/// The place of the release of an owner.
pub(super) struct Place {
    /// A placeholder that allows an uninstall if there can be no release.
    pub(super) location: ReleaseLocation,
    /// Reason why there can be no release.
    pub(super) error: Option<SubjectError>,
}

/// Facts that the place of a release depends on beside its owner.
pub(super) struct Locator<'a> {
    pub(super) watch: &'a Watch,
    /// Namespace of the operator.
    pub(super) home: Option<&'a str>,
    /// Watched namespaces; all if empty.
    pub(super) namespaces: &'a [String],
    pub(super) store: &'a RecordStore,
    /// Release records in other storages.
    pub(super) others: &'a [ReleaseIndex],
}

impl Locator<'_> {
    /// Finds the release of an owner: where its records are or, without records, where `configured` says.
    pub(super) fn place(
        &self,
        primary: &Primary,
        deleting: bool,
        configured: impl FnOnce() -> Result<Wanted, SubjectError>,
    ) -> Result<Place, SubjectError> {
        match self.locate(primary, deleting, configured) {
            Ok(location) => Ok(Place {
                location,
                error: None,
            }),
            // Nothing else would uninstall the release.
            Err(error @ (SubjectError::OtherStorage(_) | SubjectError::NotWatched { .. }))
                if deleting =>
            {
                Err(error)
            }
            Err(error) => Ok(Place {
                location: self.placeholder(primary)?,
                error: Some(error),
            }),
        }
    }

    /// Returns the name and namespace of the release of an owner: those of its records or, without records, the
    /// configured ones.
    fn locate(
        &self,
        primary: &Primary,
        deleting: bool,
        configured: impl FnOnce() -> Result<Wanted, SubjectError>,
    ) -> Result<ReleaseLocation, SubjectError> {
        let mut records = self.store.records_of(&primary.identity());
        if let Some(home) = namespace_of(primary, self.watch, self.home) {
            // The release of a namespaced custom resource is in its namespace. A record in another one
            // counts only for a cluster-scoped custom resource that has none in the configured one.
            let only_here = primary.namespace.is_some()
                || records.iter().any(|record| record.namespace == home);
            records.retain(|record| !only_here || record.namespace == home);
        }
        let present = records.last().map(|record| ReleaseLocation {
            name: record.name.clone(),
            namespace: record.namespace.clone(),
        });
        // An uninstall uses the recorded location even if the templates have changed.
        if let Some(present) = present.clone().filter(|_| deleting) {
            return Ok(present);
        }
        let scope = match primary.namespace {
            Some(_) => Scope::Namespaced,
            None => Scope::Cluster,
        };
        check_scope(self.watch, scope, self.namespaces, self.home)?;
        let Wanted {
            name: wanted,
            qualified,
            namespace,
        } = configured()?;
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
        if let Some(other) = self
            .others
            .iter()
            .find(|other| !other.records_of(&identity).is_empty())
        {
            return Err(SubjectError::OtherStorage(other.storage()));
        }
        let taken = self
            .store
            .history(&namespace, &wanted)
            .into_iter()
            .any(|record| record.cr.is_some_and(|cr| cr != identity));
        let name = if taken { qualified } else { wanted };
        Ok(ReleaseLocation { name, namespace })
    }

    /// Returns a location without a release, for an owner that cannot have one.
    fn placeholder(&self, primary: &Primary) -> Result<ReleaseLocation, NameError> {
        Ok(ReleaseLocation {
            name: ReleaseName::new(format!("none-{}", primary.identity()))?,
            namespace: namespace_of(primary, self.watch, self.home)
                .unwrap_or_else(|| "default".to_owned()),
        })
    }
}

/// Checks whether the releases of a kind of this scope have a namespace, and one that is watched.
/// `watched` are the watched namespaces, all if empty; `operator_namespace` is the operator's own.
pub(super) fn check_scope(
    watch: &Watch,
    scope: Scope,
    watched: &[String],
    operator_namespace: Option<&str>,
) -> Result<(), SubjectError> {
    if scope == Scope::Namespaced {
        return match watch.release_namespace {
            Some(_) => Err(SubjectError::OwnNamespace(watch.gvk.kind.clone())),
            None => Ok(()),
        };
    }
    let namespace = watch.release_namespace.as_deref().or(operator_namespace);
    let namespace = namespace.ok_or(SubjectError::NoNamespace)?;
    if watched.is_empty() || watched.iter().any(|known| known == namespace) {
        return Ok(());
    }
    Err(SubjectError::NotWatched {
        namespace: namespace.to_owned(),
        watched: watched.join(", "),
    })
}

/// Name and namespace that `watches.yaml` gives a release that has no records yet.
pub(super) struct Wanted {
    pub(super) name: ReleaseName,
    /// Name if a custom resource of another kind has the other one.
    pub(super) qualified: ReleaseName,
    pub(super) namespace: Option<String>,
}

/// Returns the name and namespace that `watches.yaml` gives the release of a custom resource.
/// `operator_namespace` is that of the operator itself. No I/O.
pub(super) fn wanted(
    primary: &Primary,
    object: &Value,
    watch: &Watch,
    operator_namespace: Option<&str>,
) -> Result<Wanted, SubjectError> {
    let name = match &primary.component {
        Some(component) => format!("{}-{component}", primary.name),
        None => primary.name.clone(),
    };
    let wanted = match &watch.release_name {
        Some(template) => {
            let text = values::render_text(template, object, environment(), "releaseName")?;
            ReleaseName::new(text)?
        }
        None => ReleaseName::for_resource(&name)?,
    };
    Ok(Wanted {
        name: wanted,
        qualified: ReleaseName::for_resource_of_kind(&name, &primary.gvk.kind)?,
        namespace: namespace_of(primary, watch, operator_namespace),
    })
}

fn namespace_of(
    primary: &Primary,
    watch: &Watch,
    operator_namespace: Option<&str>,
) -> Option<String> {
    primary
        .namespace
        .clone()
        .or_else(|| watch.release_namespace.clone())
        .or_else(|| operator_namespace.map(ToOwned::to_owned))
}
