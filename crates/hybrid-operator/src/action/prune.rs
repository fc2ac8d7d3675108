//! Removes objects that a release no longer has.

use helm_core::manifest::{ManifestObject, ObjectKey};

use super::live::{Live, locate};
use super::{ActionContext, ActionError, generated_run};
use crate::cluster::apply::{delete_generated, is_generated};
use crate::cluster::delete::{
    Propagation, Verdict, Which, delete, delete_as_seen, release_kept, verify_in,
};
use crate::reasons::EventReason;
use crate::telemetry::traces;

/// Deletes the objects that are in `before` but not in `wanted`. Objects that are annotated to be
/// kept or are not the release's stay.
pub(super) async fn prune(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    before: &[ManifestObject],
    wanted: &[ManifestObject],
) -> Result<(), ActionError> {
    let gone = before.iter().filter(|old| {
        // Each revision creates a new object if the API server generates the name.
        is_generated(old.object())
            || !wanted
                .iter()
                .any(|new| new.key().is_same_object(old.key(), context.namespace))
    });
    let gone: Vec<&ManifestObject> = gone.collect();
    if gone.is_empty() {
        return Ok(());
    }
    let pruning = traces::span("prune").number("objects", gone.len());
    let prune = async {
        for object in gone {
            remove(context, live, revision, object, Which::Dropped).await?;
        }
        Ok(())
    };
    pruning.run(prune).await
}

/// Deletes an object of a revision if it exists, is the release's and is not to be kept. Returns
/// the keys and uids of the objects whose deletion was requested. The object stays in `live` until
/// the API server has accepted the deletion.
pub(super) async fn remove(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    object: &ManifestObject,
    which: Which,
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    if is_generated(object.object()) {
        let run = generated_run(&context.primary.uid, revision, object);
        let marks = context.marks(Some(&run), false);
        let claimant = marks.claimant();
        let asked = delete_generated(context.cluster, object.key(), &run, &claimant).await?;
        live.forget_run(&run);
        return Ok(asked);
    }
    let location = match locate(context, object.key()).await {
        Ok(location) => location,
        // A kind that is no longer served has no objects.
        Err(error) if !error.is_transient() => return Ok(Vec::new()),
        Err(error) => return Err(crate::cluster::apply::ApplyError::from(error).into()),
    };
    let marks = context.marks(None, false);
    let recorded = live.uid(&location.key).map(ToOwned::to_owned);
    // An object that this process applied and that is unchanged need not be read again, unless it
    // holds other objects.
    let holds = matches!(
        location.key.kind.as_str(),
        "Namespace" | "CustomResourceDefinition"
    );
    let by_age = matches!(which, Which::CreatedSince(_));
    let unchanged = !holds && !object.is_kept() && !by_age;
    if let Some(uid) = recorded.as_ref().filter(|_| unchanged)
        && live.is_clean(&location.key)
        && let Some(seen) = location
            .guard
            .get(location.key.namespace.as_deref(), &location.key.name)
        && !seen.kept
        && delete_as_seen(
            context.cluster,
            &location.key,
            uid,
            seen.version,
            Propagation::Background,
        )
        .await?
    {
        live.forget(&location.key);
        return Ok(vec![(location.key, uid.clone())]);
    }
    let claimant = marks.claimant();
    let verdict = verify_in(
        context.cluster,
        &location.key,
        &claimant,
        recorded.as_deref(),
        object.is_kept(),
        which,
    )
    .await?;
    if let Some(why) = why_left(&verdict) {
        let note = format!("{} is not deleted: {why}", location.key);
        live.remark(EventReason::ObjectLeft, note);
    }
    let asked = match verdict {
        Verdict::Delete { uid } => {
            delete(
                context.cluster,
                &location.key,
                &uid,
                Propagation::Background,
            )
            .await?;
            vec![(location.key.clone(), uid)]
        }
        Verdict::Kept { uid } => {
            release_kept(context.cluster, &location.key, &uid, context.primary).await?;
            Vec::new()
        }
        Verdict::Gone
        | Verdict::Foreign(_)
        | Verdict::Recreated
        | Verdict::Older
        | Verdict::OfHook
        | Verdict::Protected { .. } => Vec::new(),
    };
    live.forget(&location.key);
    Ok(asked)
}

/// Returns why an object of the release stays; `None` if it does not, or never was the release's.
fn why_left(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Kept { .. } => Some(
            "it is annotated with helm.sh/resource-policy: keep, and no longer belongs to the release"
                .to_owned(),
        ),
        Verdict::Foreign(owner) => Some(owner.to_string()),
        Verdict::Recreated => Some(
            "somebody has deleted it and created another object with its name".to_owned(),
        ),
        Verdict::Protected { holds } => Some(format!(
            "it holds {holds}, which is not of this release; delete that first, or delete both by hand"
        )),
        Verdict::Delete { .. } | Verdict::Gone | Verdict::Older | Verdict::OfHook => None,
    }
}
