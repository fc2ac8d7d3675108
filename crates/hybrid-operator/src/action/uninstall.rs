//! From a deployed record to none.
//!
//! ```text
//! pre-delete hooks -> record uninstalling -> deletes -> (awaited) -> post-delete hooks
//!                  -> kept objects released -> records deleted
//! ```
//!
//! The caller has made sure by a fresh GET that the custom resource is being deleted.

use helm_core::manifest::{HookEvent, KindOrder, ManifestObject, ObjectKey};
use helm_core::release::Status;
use jiff::Timestamp;

use super::deploy::Stored;
use super::live::Live;
use super::prune::Scope;
use super::{ActionContext, ActionError, Progress, hooks, objects, prune};
use crate::cluster::apply::is_generated;
use crate::cluster::delete::is_gone;

/// Uninstalls the release of `stored`, the newest record that can be read; `earlier` are those
/// whose objects may still be there.
pub async fn uninstall(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut Stored,
    earlier: &[Stored],
    wait: bool,
    description: &str,
) -> Result<Progress, ActionError> {
    if stored.release.info.status != Status::Uninstalling {
        if let waiting @ Progress::Waiting { .. } =
            hooks::run(context, live, stored, &HookEvent::PreDelete).await?
        {
            return Ok(waiting);
        }
        stored.release.set_status(Status::Uninstalling, description);
        context.save(stored).await?;
    }
    let asked = remove_objects(context, live, stored, earlier).await?;
    if wait {
        for (key, uid) in &asked {
            if !is_gone(context.cluster, key, uid).await? {
                return Ok(Progress::Waiting {
                    why: format!("{key} to be gone"),
                });
            }
        }
    }
    if let waiting @ Progress::Waiting { .. } =
        hooks::run(context, live, stored, &HookEvent::PostDelete).await?
    {
        return Ok(waiting);
    }
    let records = std::iter::once(&*stored).chain(earlier);
    hooks::remove_all(context, records.map(|record| &record.release)).await?;
    context
        .store
        .delete_all(context.namespace, context.name)
        .await?;
    Ok(Progress::Done)
}

/// Deletes every object of the records that is ours and not to be kept; answers what was asked to
/// go.
pub async fn remove_objects(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &Stored,
    earlier: &[Stored],
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    remove_of(context, live, stored, earlier, Scope::All).await
}

/// Deletes every object that the attempts of these records created; answers what was asked to go.
/// What was there before them and was taken over stays, as does what is to be kept.
///
/// An attempt writes its record before its first object, so that an object that the API server
/// created earlier than the record is none of the attempt's. That is known after a restart, too.
pub async fn remove_created(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &Stored,
    earlier: &[Stored],
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    let began = std::iter::once(stored)
        .chain(earlier)
        .map(|record| record.meta.stored_at)
        .min()
        .flatten();
    let since = Scope::CreatedSince(began.unwrap_or(Timestamp::MAX));
    remove_of(context, live, stored, earlier, since).await
}

async fn remove_of(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &Stored,
    earlier: &[Stored],
    scope: Scope,
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
        asked.extend(prune::remove(context, live, *revision, object, scope).await?);
    }
    Ok(asked)
}

/// Deletes these objects, as far as they are ours and not to be kept.
pub async fn remove_all(
    context: &ActionContext<'_>,
    live: &mut Live,
    mut objects: Vec<ManifestObject>,
) -> Result<(), ActionError> {
    KindOrder::Uninstall.sort(&mut objects, |object| &object.key().kind);
    for object in &objects {
        prune::remove(context, live, 0, object, Scope::All).await?;
    }
    Ok(())
}
