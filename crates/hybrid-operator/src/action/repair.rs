//! Applies objects of the deployed record again: those that drifted, or all of them when it is not
//! known how they are. Never a new render, whose random values would differ.

use super::deploy::apply_one;
use super::live::Live;
use super::{ActionContext, ActionError, objects};
use helm_core::release::Release;

/// Applies what drifted; answers the objects that were applied, for people.
pub async fn repair(
    context: &ActionContext<'_>,
    live: &mut Live,
    release: &Release,
) -> Result<Vec<String>, ActionError> {
    let revision = release.revision.0;
    let known = live.revision == Some(revision) && live.complete;
    let drifted = live.drifted();
    let mut repaired = Vec::new();
    for object in objects(&release.manifest, revision)? {
        let hit = drifted
            .iter()
            .any(|key| object.key().is_same_object(key, context.namespace));
        if known && !hit {
            continue;
        }
        if let Some((applied, guard)) = apply_one(context, live, &object, false).await? {
            repaired.push(applied.key.to_string());
            live.applied(&applied, guard);
        }
    }
    live.revision = Some(revision);
    live.complete = true;
    Ok(repaired)
}
