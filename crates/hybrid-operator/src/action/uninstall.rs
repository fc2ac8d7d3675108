//! From a deployed record to none.
//!
//! ```text
//! pre-delete hooks -> record uninstalling -> deletes -> (awaited) -> post-delete hooks
//!                  -> kept objects released -> records deleted
//! ```
//!
//! The caller has made sure by a fresh GET that the custom resource is being deleted.

use helm_core::manifest::{HookEvent, KindOrder, ManifestObject};
use helm_core::release::Status;

use super::deploy::Stored;
use super::live::Live;
use super::{ActionContext, ActionError, Progress, hooks, objects, prune};
use crate::cluster::delete::is_gone;

/// Uninstalls the release of `stored`, the newest record; `earlier` is the last deployed record,
/// when that is another.
pub async fn uninstall(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut Stored,
    earlier: Option<&Stored>,
    wait: bool,
    description: &str,
) -> Result<Progress, ActionError> {
    if stored.release.info.status != Status::Uninstalling {
        if let waiting @ Progress::Waiting { .. } =
            hooks::run(context, stored, &HookEvent::PreDelete).await?
        {
            return Ok(waiting);
        }
        stored.release.set_status(Status::Uninstalling, description);
        context.save(stored).await?;
    }
    let mut all: Vec<ManifestObject> =
        objects(&stored.release.manifest, stored.release.revision.0)?;
    if let Some(earlier) = earlier {
        let more = objects(&earlier.release.manifest, earlier.release.revision.0)?;
        let new = |object: &ManifestObject| !all.iter().any(|known| known.key() == object.key());
        let more: Vec<ManifestObject> = more.into_iter().filter(|object| new(object)).collect();
        all.extend(more);
    }
    KindOrder::Uninstall.sort(&mut all, |object| &object.key().kind);
    let mut asked = Vec::new();
    for object in &all {
        asked.extend(prune::remove(context, live, object).await?);
    }
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
        hooks::run(context, stored, &HookEvent::PostDelete).await?
    {
        return Ok(waiting);
    }
    hooks::remove_all(context, &stored.release.hooks).await?;
    context
        .store
        .delete_all(context.namespace, context.name)
        .await?;
    Ok(Progress::Done)
}
