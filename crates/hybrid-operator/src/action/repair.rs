//! Applies objects of the deployed record again: those that drifted, or all of them when it is not
//! known how they are. Never a new render, whose random values would differ.

use super::deploy::{Before, apply_one};
use super::live::Live;
use super::{ActionContext, ActionError, objects};
use crate::cluster::apply::is_generated;
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
    live.revision = Some(revision);
    for object in objects(&release.manifest, revision)? {
        let hit = drifted.iter().any(|key| {
            object.key().is_same_object(key, context.namespace)
                || is_generated(object.object()) && key.kind == object.key().kind
        });
        if known && !hit {
            continue;
        }
        if let Some(one) = apply_one(context, live, &object, Before::Ignored).await? {
            repaired.push(one.applied.key.to_string());
            live.applied(&one.applied, one.content, one.guard);
        }
    }
    // What the API server has named has another name now.
    for key in live.missing() {
        live.forget(&key);
    }
    live.revision = Some(revision);
    live.complete = true;
    Ok(repaired)
}
