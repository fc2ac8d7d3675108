//! Applies objects of the deployed record again: those that drifted, or all of them when it is not
//! known how they are. Never a new render, whose random values would differ.

use helm_core::manifest::{ManifestObject, ObjectKey};
use helm_core::release::Release;

use super::deploy::{Before, apply_one};
use super::live::Live;
use super::{ActionContext, ActionError, objects};
use crate::cluster::apply::ApplyPolicy;

/// What a repair has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// The objects that were applied.
    pub applied: Vec<ObjectKey>,
    /// The objects that drifted still or again when it ended: what it was told to leave, and what
    /// somebody changed or removed meanwhile. Where there are any that it was not told to leave,
    /// the caller comes again.
    pub drifted: Vec<ObjectKey>,
}

/// Applies the drifted objects that `only` accepts. When this process does not know how the objects
/// of this revision are, it applies all of them, whatever `only` says.
///
/// Objects are applied, never replaced: a repair restores what is the release's and leaves what
/// others have added.
///
/// # Errors
/// The first failure; the objects after it have been applied all the same.
pub async fn repair(
    context: &ActionContext<'_>,
    live: &mut Live,
    release: &Release,
    only: &(dyn Fn(&ObjectKey) -> bool + Sync),
) -> Result<Repaired, ActionError> {
    let revision = release.revision.0;
    let manifest = objects(&release.manifest, revision)?;
    let known = live.revision == Some(revision) && live.complete;
    let chosen: Vec<&ManifestObject> = if known {
        live.drifted_of(&manifest, context, only)
    } else {
        live.begin(revision);
        manifest.iter().collect()
    };
    let applied = apply_again(context, live, chosen).await?;
    if !known {
        live.finish(&manifest, context);
    }
    Ok(Repaired {
        applied,
        drifted: live.drifted(),
    })
}

/// Applies these objects whatever is known of them; answers those that were applied. Nothing is
/// replaced.
///
/// # Errors
/// The first failure; the objects after it have been applied all the same.
pub(super) async fn apply_again(
    context: &ActionContext<'_>,
    live: &mut Live,
    chosen: Vec<&ManifestObject>,
) -> Result<Vec<ObjectKey>, ActionError> {
    let policy = ApplyPolicy {
        replace: false,
        ..context.policy.clone()
    };
    let mut applied = Vec::new();
    let mut failed = None;
    for object in chosen {
        match apply_one(context, &policy, live, object, Before::Ignored).await {
            Ok(Some(one)) => {
                applied.push(one.applied.key.clone());
                live.applied(one);
            }
            Ok(None) => {}
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(applied), Err)
}
