//! Uninstalls a release.
//!
//! ```text
//! pre-delete hooks -> record uninstalling -> deletes -> (awaited) -> post-delete hooks
//!                  -> kept objects released -> records deleted
//! ```
//!
//! The caller has verified with a fresh GET that the custom resource is being deleted.

use helm_core::manifest::{HookEvent, KindOrder, ManifestObject, ObjectKey};
use helm_core::release::Status;
use jiff::Timestamp;

use super::deploy::StoredRelease;
use super::live::Live;
use super::{ActionContext, ActionError, ActionProgress, Interrupted, hooks, objects, prune};
use crate::cluster::apply::is_generated;
use crate::cluster::delete::{Which, is_gone};
use crate::telemetry::traces;

/// Uninstalls the release of `stored`, the newest readable record. `earlier` are the records whose
/// objects may still exist.
pub(crate) async fn uninstall(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut StoredRelease,
    earlier: &[StoredRelease],
    wait: bool,
    description: &str,
) -> Result<ActionProgress, ActionError> {
    let interrupted = Interrupted::of(earlier);
    if stored.release.info.status != Status::Uninstalling {
        if let waiting @ ActionProgress::Waiting { .. } =
            hooks::run(context, live, stored, &HookEvent::PreDelete, &interrupted).await?
        {
            return Ok(waiting);
        }
        stored.release.set_status(Status::Uninstalling, description);
        context.save(stored).await?;
    }
    let removing = remove_objects(context, live, stored, earlier);
    let asked = traces::span("delete").run(removing).await?;
    if wait {
        for (key, uid) in &asked {
            if !is_gone(context.cluster, key, uid).await? {
                traces::waits_for("deletion", "");
                return Ok(ActionProgress::Waiting {
                    why: format!("{key} to be deleted"),
                });
            }
        }
    }
    if let waiting @ ActionProgress::Waiting { .. } =
        hooks::run(context, live, stored, &HookEvent::PostDelete, &interrupted).await?
    {
        return Ok(waiting);
    }
    let records = std::iter::once(&*stored).chain(earlier);
    hooks::remove_all(context, records.map(|record| &record.release)).await?;
    context
        .store
        .delete_all(context.namespace, context.name)
        .await?;
    Ok(ActionProgress::Done)
}

/// Deletes every object of the records that is the release's and not to be kept. Returns the keys
/// and uids of the objects whose deletion was requested.
pub(crate) async fn remove_objects(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &StoredRelease,
    earlier: &[StoredRelease],
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    remove_in_scope(context, live, stored, earlier, Which::All).await
}

/// Deletes every object that the attempts of these records created, and returns the keys and uids
/// of the objects whose deletion was requested. Objects that were taken over or are to be kept
/// stay.
///
/// An attempt writes its record before its first object, so an object with an earlier creation
/// timestamp than the record was not created by the attempt. This also holds after a restart.
pub(crate) async fn remove_created(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &StoredRelease,
    earlier: &[StoredRelease],
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    let began = std::iter::once(stored)
        .chain(earlier)
        .map(|record| record.meta.stored_at)
        .min()
        .flatten();
    let since = Which::CreatedSince(began.unwrap_or(Timestamp::MAX));
    remove_in_scope(context, live, stored, earlier, since).await
}

async fn remove_in_scope(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &StoredRelease,
    earlier: &[StoredRelease],
    which: Which,
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    let mut all: Vec<(u32, ManifestObject)> = Vec::new();
    for record in std::iter::once(stored).chain(earlier) {
        let revision = record.release.revision.0;
        for object in objects(&record.release.manifest, revision)? {
            let same = |(_, known): &(u32, ManifestObject)| {
                !is_generated(object.object())
                    && known.key().is_same_object(object.key(), context.namespace)
            };
            if !all.iter().any(same) {
                all.push((revision, object));
            }
        }
    }
    KindOrder::Uninstall.sort(&mut all, |(_, object)| &object.key().kind);
    let mut asked = Vec::new();
    for (revision, object) in &all {
        asked.extend(prune::remove(context, live, *revision, object, which).await?);
    }
    Ok(asked)
}

/// Deletes these objects if they are the release's and not to be kept.
pub(crate) async fn remove_all(
    context: &ActionContext<'_>,
    live: &mut Live,
    mut objects: Vec<ManifestObject>,
) -> Result<(), ActionError> {
    KindOrder::Uninstall.sort(&mut objects, |object| &object.key().kind);
    for object in &objects {
        prune::remove(context, live, 0, object, Which::All).await?;
    }
    Ok(())
}
