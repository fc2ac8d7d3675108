//! Applies objects of the deployed record again: those that drifted, or all of them if their state
//! is not known. The chart is not rendered again, because its random values would differ.

use helm_core::manifest::{ManifestObject, ObjectKey};
use helm_core::release::Release;
use host::phases;
use kube_objects::apply::ApplyPolicy;

use super::context::ActionContext;
use super::deploy::{Before, planned};
use super::error::ActionError;
use super::live::Live;
use super::scaling::Autoscalers;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// The objects that were applied.
    pub applied: Vec<ObjectKey>,
    /// The objects that are drifted after the repair: those that `only` excluded, and those that
    /// somebody changed or removed meanwhile. The caller repeats the repair for the latter.
    pub drifted: Vec<ObjectKey>,
}

/// Applies the drifted objects that `only` accepts. If this process does not know the state of this
/// revision's objects, it applies all of them, regardless of `only`.
///
/// Objects are applied, never replaced: a repair restores the release's fields and keeps those that
/// others have added.
///
/// # Errors
/// Returns the first failure. The remaining objects have been applied nevertheless.
pub(crate) async fn repair(
    context: &ActionContext<'_>,
    live: &mut Live,
    release: &Release,
    only: &(dyn Fn(&ObjectKey) -> bool + Sync),
) -> Result<Repaired, ActionError> {
    let revision = release.revision.0;
    let (manifest, _) = context.applied_objects(release).await?;
    let known = live.revision == Some(revision) && live.complete;
    let chosen: Vec<&ManifestObject> = if known {
        live.drifted_of(&manifest, context, only)
    } else {
        live.begin(revision, context.now);
        manifest.iter().collect()
    };
    let applied = reapply(context, live, chosen).await?;
    if !known {
        live.finish(&manifest, context);
    }
    Ok(Repaired {
        applied,
        drifted: live.drifted(),
    })
}

/// Applies these objects regardless of their state, without replacing any. Returns the keys of the
/// applied objects.
///
/// # Errors
/// Returns the first failure. The remaining objects have been applied nevertheless.
pub(super) async fn reapply(
    context: &ActionContext<'_>,
    live: &mut Live,
    chosen: Vec<&ManifestObject>,
) -> Result<Vec<ObjectKey>, ActionError> {
    let policy = ApplyPolicy {
        replace: false,
        ..context.policy.clone()
    };
    // Whether an object has lost its autoscaler was found when its revision was deployed.
    let autoscalers = Autoscalers::default();
    let applying = phases::span("apply").number("objects", chosen.len());
    let apply = async {
        let mut applied = Vec::new();
        let mut failed = None;
        for object in chosen {
            let plan = planned(
                context,
                &policy,
                live,
                object,
                Before::Ignored,
                &autoscalers,
            )
            .await;
            let sent = match plan {
                Ok(Some(one)) => {
                    live.sending(&one.location.key);
                    one.send(context).await
                }
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match sent {
                Ok(one) => {
                    applied.push(one.applied.key.clone());
                    live.applied(one);
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(applied), Err)
    };
    applying.run(apply).await
}
