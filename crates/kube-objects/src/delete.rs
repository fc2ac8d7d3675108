//! Deletion of exactly the objects of a release.
//!
//! Every DELETE carries the uid of the object that was checked, so that an object that somebody has
//! created again under the same name is never deleted. Deletions are not waited for; use
//! [`is_gone`] or a watch.
//!
//! RBAC: `delete` and `get` on the kind, `patch` on what is kept; see [`contents`](super::contents).

use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use object_key::ObjectKey;
use serde_json::{Value, json};

use super::contents::{Held, holds_others};
use super::locate::of_kind;
use super::ownership::{self, Claimant, ForeignOwner, Ownership, Primary};
use super::read::{self, ReadError};
use super::request::{self, Call};
use super::{ApiError, ApiKind, Cluster, FIELD_MANAGER};

/// Number of attempts to patch metadata while others keep changing the object.
const MAX_ATTEMPTS: usize = 3;

/// Treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
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

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object is being deleted; finalizers and dependents may still hold it.
    Requested,
    /// The object no longer exists.
    Gone,
    /// Another object has its name now and was not deleted.
    Recreated,
}

/// Objects of a release that are deleted.
#[derive(Clone, Copy, Debug, Default)]
pub enum Which {
    /// All objects.
    #[default]
    All,
    /// Objects that the release no longer has. An object that a hook has created under the name of a
    /// former one stays: the label of its run tells them apart, also after a restart.
    Dropped,
    /// Objects that were created at this time or later, and not taken over.
    CreatedSince(Timestamp),
}

/// The decision whether an object may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The object is the release's.
    Delete {
        /// Uid of the live object.
        uid: String,
    },
    /// The object does not exist.
    Gone,
    /// The stored or the live object has `helm.sh/resource-policy: keep`.
    Kept {
        /// Uid of the live object.
        uid: String,
    },
    /// The object belongs to somebody else, or has no owner.
    Foreign(ForeignOwner),
    /// The object has the name of the recorded one, but another uid.
    Recreated,
    /// The object is older than the attempt whose objects are deleted, which took it over.
    Older,
    /// A hook has created it in the place of the release's.
    OfHook,
    /// The object holds others that must not be deleted with it.
    Protected {
        /// Uid of the live object.
        uid: String,
        /// The objects that it holds.
        held: Held,
    },
}

/// Requests the deletion of the object with this uid.
pub async fn delete(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    propagation: Propagation,
) -> Result<Deletion, ReadError> {
    let conflict = match send(cluster, key, json!({"uid": uid}), propagation).await {
        Ok(Some(())) => return Ok(Deletion::Requested),
        Ok(None) => return Ok(Deletion::Gone),
        Err(error @ ReadError::Api(ApiError::Conflict { .. })) => error,
        Err(error) => return Err(error),
    };
    // The conflict is another uid, or a namespace that is already being deleted.
    match metadata(cluster, key).await? {
        None => Ok(Deletion::Gone),
        Some(live) if live.uid.as_deref() != Some(uid) => Ok(Deletion::Recreated),
        Some(live) if live.deletion_timestamp.is_some() => Ok(Deletion::Requested),
        Some(_) => Err(conflict),
    }
}

/// Requests the deletion of the object with this uid and resource version. Returns `false` if it
/// has changed or has been replaced.
pub async fn delete_as_seen(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    version: u64,
    propagation: Propagation,
) -> Result<bool, ReadError> {
    let preconditions = json!({"uid": uid, "resourceVersion": version.to_string()});
    match send(cluster, key, preconditions, propagation).await {
        Ok(_) => Ok(true),
        Err(ReadError::Api(ApiError::Conflict { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends a DELETE with these preconditions; `None` if the object does not exist.
async fn send(
    cluster: &Cluster,
    key: &ObjectKey,
    preconditions: Value,
    propagation: Propagation,
) -> Result<Option<()>, ReadError> {
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation.as_str(),
        "preconditions": preconditions,
    });
    let options = options.to_string().into_bytes();
    let sent = of_kind(cluster, key, |kind| {
        let options = options.clone();
        Box::pin(async move {
            let namespace = key.namespace.as_deref();
            let uri = request::path(&kind, namespace, Some(&key.name))?;
            let target = request::target("delete", &kind, namespace, Some(&key.name));
            let call = Call::with_body(
                Method::DELETE,
                uri,
                request::METADATA_ONLY,
                request::JSON,
                options,
            );
            match request::call(cluster.client(), target, call).await {
                Ok(_) => Ok(Some(())),
                Err(error) if error.is_not_found() && !error.is_unserved() => Ok(None),
                Err(error) => Err(error),
            }
        })
    });
    Ok(sent.await?.flatten())
}

/// Reads the metadata of an object; `None` if it does not exist.
pub async fn metadata(cluster: &Cluster, key: &ObjectKey) -> Result<Option<ObjectMeta>, ReadError> {
    let read = of_kind(cluster, key, |kind| {
        Box::pin(async move {
            read::metadata(cluster, &kind, key.namespace.as_deref(), &key.name).await
        })
    });
    Ok(read.await?.flatten())
}

/// Returns whether the object with this uid no longer exists.
pub async fn is_gone(cluster: &Cluster, key: &ObjectKey, uid: &str) -> Result<bool, ReadError> {
    let live = metadata(cluster, key).await?;
    Ok(live.is_none_or(|live| live.uid.as_deref() != Some(uid)))
}

/// Decides by its metadata whether a live object may be deleted. `recorded` is the uid that the
/// release knows, and `kept` says whether the stored manifest excludes the object from deletion.
pub fn judge(
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
pub async fn verify(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
    recorded: Option<&str>,
    kept: bool,
) -> Result<Verdict, ReadError> {
    verify_in(cluster, key, claimant, recorded, kept, Which::All).await
}

/// Like [`verify`], for some of the objects of a release.
pub async fn verify_in(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
    recorded: Option<&str>,
    kept: bool,
    which: Which,
) -> Result<Verdict, ReadError> {
    let Some(live) = metadata(cluster, key).await? else {
        return Ok(Verdict::Gone);
    };
    judge_contents(cluster, key, &live, claimant, (recorded, kept, which)).await
}

/// Decides whether a live object may be deleted, by its metadata and by what it holds, unless its deletion has
/// begun. The arguments are those of [`verify_in`].
pub async fn judge_contents(
    cluster: &Cluster,
    key: &ObjectKey,
    live: &ObjectMeta,
    claimant: &Claimant<'_>,
    (recorded, kept, which): (Option<&str>, bool, Which),
) -> Result<Verdict, ReadError> {
    let verdict = judge(live, claimant, recorded, kept);
    if matches!(which, Which::Dropped)
        && matches!(verdict, Verdict::Delete { .. } | Verdict::Recreated)
        && ownership::run_of(live).is_some()
    {
        return Ok(Verdict::OfHook);
    }
    let Verdict::Delete { uid } = verdict else {
        return Ok(verdict);
    };
    if let Which::CreatedSince(since) = which
        && !is_created_since(live, since)
    {
        return Ok(Verdict::Older);
    }
    if live.deletion_timestamp.is_some() {
        // What it holds is being deleted with it, whatever is decided here.
        return Ok(Verdict::Delete { uid });
    }
    Ok(match holds_others(cluster, key, claimant).await? {
        Some(held) => Verdict::Protected { uid, held },
        None => Verdict::Delete { uid },
    })
}

/// The metadata of an object before and after its owner reference was removed.
pub struct Released {
    /// Metadata with the owner reference.
    pub before: ObjectMeta,
    /// Metadata without it.
    pub after: ObjectMeta,
}

/// Removes the owner reference to a custom resource from an object that outlives its release, so
/// that it is not garbage collected. Sends no patch if there is no reference. Returns `None` if the
/// object is gone or has another uid.
pub async fn release_kept(
    cluster: &Cluster,
    key: &ObjectKey,
    uid: &str,
    primary: &Primary,
) -> Result<Option<Released>, ReadError> {
    let mut attempts = 1;
    loop {
        let Some(before) = metadata(cluster, key).await? else {
            return Ok(None);
        };
        if before.uid.as_deref() != Some(uid) {
            return Ok(None);
        }
        let Some(references) = ownership::other_references(&before, primary) else {
            let after = before.clone();
            return Ok(Some(Released { before, after }));
        };
        let patch = json!({"metadata": {
            "uid": before.uid,
            "resourceVersion": before.resource_version,
            "ownerReferences": references,
        }});
        let body = patch.to_string().into_bytes();
        let patched = of_kind(cluster, key, |kind| {
            let body = body.clone();
            Box::pin(async move { patch_metadata(cluster, &kind, key, body).await })
        });
        match patched.await {
            Ok(patched) => {
                let after = patched.flatten();
                return Ok(after.map(|after| Released { before, after }));
            }
            Err(ReadError::Api(ApiError::Conflict { .. })) if attempts < MAX_ATTEMPTS => {
                attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sends a merge patch, and returns the metadata of the object; `None` if it does not exist.
async fn patch_metadata(
    cluster: &Cluster,
    kind: &ApiKind,
    key: &ObjectKey,
    body: Vec<u8>,
) -> Result<Option<ObjectMeta>, ApiError> {
    let namespace = key.namespace.as_deref();
    let uri = request::path(kind, namespace, Some(&key.name))?;
    let target = request::target("patch", kind, namespace, Some(&key.name));
    let call = Call::with_body(
        Method::PATCH,
        format!("{uri}?fieldManager={FIELD_MANAGER}"),
        request::METADATA_ONLY,
        request::MERGE_PATCH,
        body,
    );
    match request::call(cluster.client(), target, call).await {
        Ok(answer) => Ok(Some(answer.decode::<read::Metadata>()?.metadata)),
        Err(error) if error.is_not_found() && !error.is_unserved() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
