//! Uninstalls a release.
//!
//! ```text
//! pre-delete hooks -> record uninstalling -> deletes -> (awaited) -> post-delete hooks
//!                  -> kept objects released -> records deleted
//! ```
//!
//! The caller has verified with a fresh GET that the owner is being deleted.

use host::HashSet;
use kube_objects::apply::is_generated;
use kube_objects::delete::{Which, is_gone};

use helm_core::manifest::{HookEvent, KindOrder, ManifestObject, ObjectKey};
use helm_core::release::Status;
use host::phases;
use jiff::Timestamp;

use super::context::StoredRelease;
use super::context::{ActionContext, ActionProgress};
use super::error::ActionError;
use super::hooks::leftover::Interrupted;
use super::live::Live;
use super::prune::Spared;
use super::{hooks, prune};

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
    let interrupted = Interrupted::of(earlier.iter().chain([&*stored]));
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
    let asked = phases::span("delete").run(removing).await?;
    if wait {
        for (key, uid) in &asked {
            if !is_gone(context.cluster, key, uid).await? {
                phases::waits_for("deletion", "");
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
    let releases = records.map(|record| &record.release);
    hooks::removal::remove_all(context, releases, false).await?;
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
    remove_but(context, live, stored, earlier, &Spared::default()).await
}

/// Removes the owner references of the objects of the records that are not in `live`, and of their hooks, so that they
/// outlive the owner. Deletes nothing.
pub(crate) async fn unbind_all(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &StoredRelease,
    earlier: &[StoredRelease],
) -> Result<(), ActionError> {
    let spared = Spared {
        kept: true,
        ..Spared::default()
    };
    remove_but(context, live, stored, earlier, &spared).await?;
    let records = std::iter::once(stored).chain(earlier);
    let releases = records.map(|record| &record.release);
    hooks::removal::remove_all(context, releases, true).await
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
    let spared = Spared {
        which: Which::CreatedSince(began.unwrap_or(Timestamp::MAX)),
        ..Spared::default()
    };
    remove_but(context, live, stored, earlier, &spared).await
}

async fn remove_but(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &StoredRelease,
    earlier: &[StoredRelease],
    spared: &Spared,
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    let mut all: Vec<(u32, ManifestObject)> = Vec::new();
    for record in std::iter::once(stored).chain(earlier) {
        let revision = record.release.revision.0;
        let (objects, _) = context.applied_objects(&record.release).await?;
        all.extend(objects.into_iter().map(|object| (revision, object)));
    }
    let scopes = context.scopes(all.iter().map(|(_, object)| object)).await?;
    let mut known = HashSet::default();
    // The newest record that has an object says whether it is to be kept.
    let is_first: Vec<bool> = all
        .iter()
        .map(|(_, object)| {
            is_generated(object.object())
                || known.insert(scopes.identity(object.key(), context.namespace))
        })
        .collect();
    let mut is_first = is_first.into_iter();
    all.retain(|_| is_first.next().unwrap_or(true));
    KindOrder::Uninstall.sort(&mut all, |(_, object)| &object.key().kind);
    let mut asked = Vec::new();
    for (revision, object) in &all {
        asked.extend(prune::remove(context, live, *revision, object, spared).await?);
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
        prune::remove(context, live, 0, object, &Spared::default()).await?;
    }
    Ok(())
}
