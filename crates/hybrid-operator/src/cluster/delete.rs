//! Deletion of exactly the objects of a release.
//!
//! Every DELETE carries the uid of the object that was checked, so that an object that somebody has
//! created again under the same name is never deleted. Deletions are not waited for; use
//! [`is_gone`] or a watch.
//!
//! RBAC: `delete` and `get` on the kind; `list` on all kinds in a namespace that a chart created,
//! and on custom resources whose definition it contains.

use futures::StreamExt;
use helm_core::manifest::ObjectKey;
use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::ownership::{self, Claimant, ForeignOwner, Ownership, Primary, controller_of};
use super::read::{self, ReadError};
use super::request::{self, Call};
use super::{ApiError, ApiKind, Cluster, DiscoveryError, FIELD_MANAGER};

/// Number of kinds of a namespace that are listed concurrently.
const LISTS_AT_ONCE: usize = 4;

/// Number of attempts to patch metadata while others keep changing the object.
const MAX_ATTEMPTS: usize = 3;

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// Dependents are deleted after it.
    #[default]
    Background,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }
}

/// The result of a deletion request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// It is being deleted; finalizers and dependents may still hold it.
    Requested,
    /// The object no longer exists.
    Gone,
    /// Another object has its name now and was not deleted.
    Recreated,
}

/// Which of the objects of a release are deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// All.
    All,
    /// Those that the release no longer has. An object that a hook has created under the name of a
    /// former one stays: the label of its run tells them apart, also after a restart.
    Dropped,
    /// Those that were created at this time or later, and not taken over.
    CreatedSince(Timestamp),
}

/// The decision whether an object may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the release's.
    Delete {
        /// The uid to delete.
        uid: String,
    },
    /// It does not exist.
    Gone,
    /// The stored or the live object has `helm.sh/resource-policy: keep`.
    Kept {
        /// The uid of the live object.
        uid: String,
    },
    /// It belongs to somebody else, or has no owner.
    Foreign(ForeignOwner),
    /// It has the name of the recorded object, but another uid.
    Recreated,
    /// It is older than the attempt whose objects are deleted, which took it over.
    Older,
    /// A hook has created it in the place of the release's.
    OfHook,
    /// It holds objects that are not of this release.
    Protected {
        /// An object that it holds, for messages.
        holds: String,
    },
}

/// Requests the deletion of the object with this uid.
pub(crate) async fn delete(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    propagation: Propagation,
) -> Result<Deletion, ReadError> {
    let Some(kind) = served(cluster, key).await? else {
        return Ok(Deletion::Gone);
    };
    let namespace = key.namespace.as_deref();
    let preconditions = json!({"uid": uid});
    let conflict = match send(cluster, &kind, key, &preconditions, propagation).await {
        Ok(()) => return Ok(Deletion::Requested),
        Err(error) if error.is_not_found() => return Ok(Deletion::Gone),
        Err(error @ ApiError::Conflict { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    // The conflict is another uid, or a namespace that is already being deleted.
    match read::metadata(cluster, &kind, namespace, &key.name).await? {
        None => Ok(Deletion::Gone),
        Some(live) if live.uid.as_deref() != Some(uid) => Ok(Deletion::Recreated),
        Some(live) if live.deletion_timestamp.is_some() => Ok(Deletion::Requested),
        Some(_) => Err(conflict.into()),
    }
}

/// Requests the deletion of the object with this uid and resource version. Returns `false` if it
/// has changed or has been replaced.
pub(crate) async fn delete_as_seen(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    version: u64,
    propagation: Propagation,
) -> Result<bool, ReadError> {
    let Some(kind) = served(cluster, key).await? else {
        return Ok(true);
    };
    let preconditions = json!({"uid": uid, "resourceVersion": version.to_string()});
    match send(cluster, &kind, key, &preconditions, propagation).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(true),
        Err(ApiError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sends a DELETE with these preconditions.
async fn send(
    cluster: &Cluster,
    kind: &ApiKind,
    key: &ObjectKey,
    preconditions: &Value,
    propagation: Propagation,
) -> Result<(), ApiError> {
    let namespace = key.namespace.as_deref();
    let uri = request::path(kind, namespace, Some(&key.name))?;
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation.as_str(),
        "preconditions": preconditions,
    });
    let target = request::target("delete", kind, namespace, Some(&key.name));
    let call = Call::with_body(
        Method::DELETE,
        uri,
        request::METADATA_ONLY,
        request::JSON,
        options.to_string().into_bytes(),
    );
    request::call(cluster.client(), target, call).await?;
    Ok(())
}

/// Returns whether the object with this uid is gone.
pub(crate) async fn is_gone(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
) -> Result<bool, ReadError> {
    let Some(kind) = served(cluster, key).await? else {
        return Ok(true);
    };
    let live = read::metadata(cluster, &kind, key.namespace.as_deref(), &key.name).await?;
    Ok(live.is_none_or(|live| live.uid.as_deref() != Some(uid)))
}

/// Decides by its metadata whether a live object may be deleted. `recorded` is the uid that the
/// release knows, and `kept` says whether the stored manifest excludes the object from deletion.
pub(crate) fn judge(
    live: &ObjectMeta,
    claimant: &Claimant<'_>,
    recorded: Option<&str>,
    kept: bool,
) -> Verdict {
    let uid = live.uid.clone().unwrap_or_default();
    if let Ownership::Foreign(owner) = ownership::ownership(live, claimant) {
        return Verdict::Foreign(owner);
    }
    if recorded.is_some_and(|recorded| recorded != uid) {
        return Verdict::Recreated;
    }
    if kept || ownership::is_kept(live) {
        return Verdict::Kept { uid };
    }
    Verdict::Delete { uid }
}

/// Returns whether an object was created at this time or later, to the second. An object without a
/// creation timestamp counts as older.
fn is_created_since(live: &ObjectMeta, since: Timestamp) -> bool {
    live.creation_timestamp
        .as_ref()
        .is_some_and(|created| created.0.as_second() >= since.as_second())
}

/// Reads an object and decides whether it may be deleted. Takes one request, except for namespaces
/// and custom resource definitions, whose contents are checked, too.
pub(crate) async fn verify(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
    recorded: Option<&str>,
    kept: bool,
) -> Result<Verdict, ReadError> {
    verify_in(cluster, key, claimant, recorded, kept, Which::All).await
}

/// Like [`verify`], for some of the objects of a release.
pub(crate) async fn verify_in(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
    recorded: Option<&str>,
    kept: bool,
    which: Which,
) -> Result<Verdict, ReadError> {
    let Some(kind) = served(cluster, key).await? else {
        return Ok(Verdict::Gone);
    };
    let live = read::metadata(cluster, &kind, key.namespace.as_deref(), &key.name).await?;
    let Some(live) = live else {
        return Ok(Verdict::Gone);
    };
    let verdict = judge(&live, claimant, recorded, kept);
    if matches!(which, Which::Dropped)
        && matches!(verdict, Verdict::Delete { .. } | Verdict::Recreated)
        && ownership::run_of(&live).is_some()
    {
        return Ok(Verdict::OfHook);
    }
    if !matches!(verdict, Verdict::Delete { .. }) {
        return Ok(verdict);
    }
    if let Which::CreatedSince(since) = which
        && !is_created_since(&live, since)
    {
        return Ok(Verdict::Older);
    }
    Ok(match holds_others(cluster, key, claimant).await? {
        Some(holds) => Verdict::Protected { holds },
        None => verdict,
    })
}

/// Returns an object of others in a namespace or of a custom resource definition, for messages;
/// `None` for every other kind.
pub(crate) async fn holds_others(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
) -> Result<Option<String>, ReadError> {
    match (key.group.as_str(), key.kind.as_str()) {
        ("", "Namespace") => foreign_in_namespace(cluster, &key.name, claimant).await,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let Some((plural, group)) = key.name.split_once('.') else {
                return Ok(None);
            };
            let Some(kind) = cluster.kind_of_plural(group, plural).await? else {
                return Ok(None);
            };
            let foreign = |live: &ObjectMeta| is_foreign(live, claimant);
            let objects = read::list_metadata(cluster, &kind, None, None, Some(&foreign)).await?;
            Ok(objects
                .iter()
                .find(|live| foreign(live))
                .map(|live| describe(&kind, live)))
        }
        _ => Ok(None),
    }
}

/// Removes the owner reference to a custom resource from an object that outlives its release, so
/// that it is not garbage collected. Sends no patch if there is no reference.
pub(crate) async fn release_kept(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    primary: &Primary,
) -> Result<(), ReadError> {
    let Some(kind) = served(cluster, key).await? else {
        return Ok(());
    };
    let namespace = key.namespace.as_deref();
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        let Some(live) = read::metadata(cluster, &kind, namespace, &key.name).await? else {
            return Ok(());
        };
        if live.uid.as_deref() != Some(uid) {
            return Ok(());
        }
        let Some(patch) = without_reference(&live, primary) else {
            return Ok(());
        };
        let uri = request::path(&kind, namespace, Some(&key.name)).map_err(ApiError::from)?;
        let target = request::target("patch", &kind, namespace, Some(&key.name));
        let call = Call::with_body(
            Method::PATCH,
            format!("{uri}?fieldManager={FIELD_MANAGER}"),
            request::METADATA_ONLY,
            request::MERGE_PATCH,
            patch.to_string().into_bytes(),
        );
        match request::call(cluster.client(), target, call).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error @ ApiError::Conflict { .. }) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    last.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns the merge patch that removes references to a custom resource; `None` if there are none.
/// The uid may differ, because restoring a backup changes it.
fn without_reference(live: &ObjectMeta, primary: &Primary) -> Option<Value> {
    let references = live.owner_references.as_deref()?;
    let is_primary = |reference: &&_| {
        let reference: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference = reference;
        let group = reference
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        reference.uid == primary.uid
            || (group == primary.gvk.group
                && reference.kind == primary.gvk.kind
                && reference.name == primary.name)
    };
    let rest: Vec<_> = references
        .iter()
        .filter(|reference| !is_primary(reference))
        .collect();
    if rest.len() == references.len() {
        return None;
    }
    Some(json!({"metadata": {
        "uid": live.uid,
        "resourceVersion": live.resource_version,
        "ownerReferences": if rest.is_empty() { Value::Null } else { json!(rest) },
    }}))
}

async fn foreign_in_namespace(
    cluster: &Cluster,
    namespace: &str,
    claimant: &Claimant<'_>,
) -> Result<Option<String>, ReadError> {
    let kinds = cluster.listable().await?;
    let kinds = kinds.into_iter().filter(|kind| !is_derived(kind));
    let mut lists = futures::stream::iter(kinds)
        .map(|kind| async move {
            let foreign = |live: &ObjectMeta| {
                !is_in_every_namespace(&kind, live) && is_foreign(live, claimant)
            };
            let objects =
                read::list_metadata(cluster, &kind, Some(namespace), None, Some(&foreign)).await?;
            let found = objects
                .iter()
                .find(|live| foreign(live))
                .map(|live| describe(&kind, live));
            Ok::<_, ApiError>(found)
        })
        .buffer_unordered(LISTS_AT_ONCE);
    while let Some(found) = lists.next().await {
        if let Some(found) = found? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns whether an object belongs neither to the release nor to a controller, whose own object
/// is checked instead.
fn is_foreign(live: &ObjectMeta, claimant: &Claimant<'_>) -> bool {
    let is_record = live.labels.as_ref().is_some_and(|labels| {
        labels.get("owner").is_some_and(|owner| owner == "helm")
            && labels
                .get("name")
                .is_some_and(|name| name == claimant.release_name)
    });
    let foreign = matches!(ownership::ownership(live, claimant), Ownership::Foreign(_));
    foreign && !is_record && controller_of(live).is_none()
}

/// Returns whether the cluster derives the objects of this kind from others.
fn is_derived(kind: &ApiKind) -> bool {
    let resource = &kind.resource;
    matches!(
        (resource.group.as_str(), resource.kind.as_str()),
        ("", "Event" | "Endpoints") | ("events.k8s.io", "Event") | ("metrics.k8s.io", _)
    )
}

/// Returns whether every namespace has this object.
fn is_in_every_namespace(kind: &ApiKind, live: &ObjectMeta) -> bool {
    let name = live.name.as_deref().unwrap_or_default();
    kind.resource.group.is_empty()
        && matches!(
            (kind.resource.kind.as_str(), name),
            ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt")
        )
}

fn describe(kind: &ApiKind, live: &ObjectMeta) -> String {
    let name = live.name.as_deref().unwrap_or_default();
    match &live.namespace {
        Some(namespace) => format!("{} {namespace}/{name}", kind.resource.kind),
        None => format!("{} {name}", kind.resource.kind),
    }
}

/// Resolves the kind of an object; `None` if the cluster no longer serves it, so that no object can
/// be left.
async fn served(
    cluster: &Cluster,
    key: &ObjectKey,
) -> Result<Option<std::sync::Arc<ApiKind>>, ReadError> {
    let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
    match cluster.resolve(&gvk).await {
        Ok(kind) => Ok(Some(kind)),
        Err(DiscoveryError::UnknownKind { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
