//! Removes objects that a release no longer has.

use helm_core::manifest::{ManifestObject, ObjectKey};
use jiff::Timestamp;

use super::live::{Live, place_of};
use super::{ActionContext, ActionError, generated_run};
use crate::cluster::apply::{delete_generated, is_generated};
use crate::cluster::delete::{
    Propagation, Verdict, delete, delete_as_seen, release_kept, verify_since,
};

/// Deletes what `before` had and `wanted` has not. What is kept by annotation, and what is not
/// ours, stays.
pub(super) async fn prune(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    before: &[ManifestObject],
    wanted: &[ManifestObject],
) -> Result<(), ActionError> {
    let gone = before.iter().filter(|old| {
        // What the API server has named is made anew by each revision.
        is_generated(old.object())
            || !wanted
                .iter()
                .any(|new| new.key().is_same_object(old.key(), context.namespace))
    });
    for object in gone {
        remove(context, live, revision, object, Scope::All).await?;
    }
    Ok(())
}

/// Which of the objects of a revision are deleted.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// All that are the release's.
    All,
    /// Those that were created at this time or later, and not taken over.
    CreatedSince(Timestamp),
}

/// Deletes an object of a revision, if it is there, ours, and not to be kept. What was asked to go,
/// and by which identity. Until the API server has agreed, the object stays known.
pub(super) async fn remove(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    object: &ManifestObject,
    scope: Scope,
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    if is_generated(object.object()) {
        let run = generated_run(&context.primary.uid, revision, object);
        let marks = context.marks(Some(&run), false);
        let claimant = marks.claimant();
        let asked = delete_generated(context.cluster, object.key(), &run, &claimant).await?;
        live.forget_run(&run);
        return Ok(asked);
    }
    let place = match place_of(context, object.key()).await {
        Ok(place) => place,
        // A kind that is gone has no objects.
        Err(error) if !error.is_transient() => return Ok(Vec::new()),
        Err(error) => return Err(crate::cluster::apply::ApplyError::from(error).into()),
    };
    let marks = context.marks(None, false);
    let recorded = live.uid(&place.key).map(ToOwned::to_owned);
    // What this process applied, and nobody changed since, needs no second look; what holds other
    // objects always does.
    let holds = matches!(
        place.key.kind.as_str(),
        "Namespace" | "CustomResourceDefinition"
    );
    let since = match scope {
        Scope::All => None,
        Scope::CreatedSince(since) => Some(since),
    };
    let sure = !holds && !object.is_kept() && since.is_none();
    if let Some(uid) = recorded.as_ref().filter(|_| sure)
        && live.is_clean(&place.key)
        && let Some(seen) = place
            .guard
            .get(place.key.namespace.as_deref(), &place.key.name)
        && !seen.kept
        && delete_as_seen(
            context.cluster,
            &place.key,
            uid,
            seen.version,
            Propagation::Background,
        )
        .await?
    {
        live.forget(&place.key);
        return Ok(vec![(place.key, uid.clone())]);
    }
    let claimant = marks.claimant();
    let verdict = verify_since(
        context.cluster,
        &place.key,
        &claimant,
        recorded.as_deref(),
        object.is_kept(),
        since,
    )
    .await?;
    let asked = match verdict {
        Verdict::Delete { uid } => {
            delete(context.cluster, &place.key, &uid, Propagation::Background).await?;
            vec![(place.key.clone(), uid)]
        }
        Verdict::Kept { uid } => {
            release_kept(context.cluster, &place.key, &uid, context.primary).await?;
            Vec::new()
        }
        Verdict::Gone
        | Verdict::Foreign(_)
        | Verdict::Recreated
        | Verdict::Older
        | Verdict::Protected { .. } => Vec::new(),
    };
    live.forget(&place.key);
    Ok(asked)
}
