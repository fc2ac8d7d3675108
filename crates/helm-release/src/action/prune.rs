//! Removes objects that a release no longer has.

use host::HashSet;
use host::phases;
use kube_objects::apply::{is_generated, list_generated};
use kube_objects::delete::{
    Propagation, Verdict, Which, delete, delete_as_seen, judge_contents, release_kept, verify_in,
};
use kube_objects::locate::locate;
use kube_objects::ownership::is_container;

use helm_core::manifest::{ManifestObject, ObjectIdentity, ObjectKey};

use super::context::{ActionContext, StoredRelease, generated_run, objects};
use super::error::ActionError;
use super::hooks::removal::remove_interrupted;
use super::live::Live;
use super::location;
use crate::event::EventReason;

/// Deletes the objects that are in `before` but not in `wanted`. Objects that are annotated to be
/// kept or are not the release's stay.
pub(super) async fn prune(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    before: &[ManifestObject],
    wanted: &[ManifestObject],
) -> Result<(), ActionError> {
    let scopes = context.scopes(before.iter().chain(wanted)).await?;
    let identity = |object| scopes.identity(ManifestObject::key(object), context.namespace);
    let stay: HashSet<ObjectIdentity<'_>> = wanted
        .iter()
        .filter(|object| !is_generated(object.object()))
        .map(identity)
        .collect();
    let gone: Vec<&ManifestObject> = before
        .iter()
        // Each revision creates a new object if the API server generates the name.
        .filter(|old| is_generated(old.object()) || !stay.contains(&identity(old)))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let spared = Spared {
        uids: live.uids_of(&stay),
        which: Which::Dropped,
        kept: false,
    };
    let pruning = phases::span("prune").number("objects", gone.len());
    let prune = async {
        for object in gone {
            remove(context, live, revision, object, &spared).await?;
        }
        Ok(())
    };
    pruning.run(prune).await
}

/// The objects that are not deleted although a record has them.
#[derive(Default)]
pub(super) struct Spared {
    /// Uids of objects that the wanted revision has. An object may have two identities: two groups may
    /// serve it.
    pub(super) uids: HashSet<String>,
    /// Selection of the others that are deleted.
    pub(super) which: Which,
    /// Whether none is deleted, and only the owner references go.
    pub(super) kept: bool,
}

/// Deletes an object of a revision if it exists, is the release's and is not to be kept. Returns
/// the keys and uids of the objects whose deletion was requested. The object stays in `live` until
/// the API server has accepted the deletion.
pub(super) async fn remove(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    object: &ManifestObject,
    spared: &Spared,
) -> Result<Vec<(ObjectKey, String)>, ActionError> {
    let claimant = context.claimant();
    let kept = spared.kept || object.is_kept();
    let mut asked = Vec::new();
    if is_generated(object.object()) {
        let run = generated_run(&context.primary.uid, revision, object);
        let made = list_generated(context.cluster, object.key(), &run, &claimant).await?;
        for (key, found) in made {
            let rules = (None, kept, Which::All);
            let verdict = judge_contents(context.cluster, &key, &found, &claimant, rules).await?;
            asked.extend(carry_out(context, live, &key, verdict, spared).await?);
        }
        if !spared.kept {
            live.forget_run(&run);
        }
        return Ok(asked);
    }
    let Some(key) = locate(context.cluster, object.key(), context.namespace).await? else {
        return Ok(asked);
    };
    // It was applied in the version of the manifest, which may no longer be served.
    let applied = ObjectKey {
        namespace: key.namespace.clone(),
        ..object.key().clone()
    };
    if spared.kept && live.uid(&applied).is_some() {
        return Ok(asked);
    }
    if let Some(uid) = live.uid(&applied).map(ToOwned::to_owned)
        && let Some(version) = unchanged(context, live, &key, object, spared).await
        && !spared.uids.contains(&uid)
        && delete_as_seen(
            context.cluster,
            &key,
            &uid,
            version,
            Propagation::Background,
        )
        .await?
    {
        live.forget(&applied);
        return Ok(vec![(key, uid)]);
    }
    let verdict = verify_in(
        context.cluster,
        &key,
        &claimant,
        live.applied_uid(&applied),
        kept,
        spared.which,
    )
    .await?;
    asked.extend(carry_out(context, live, &key, verdict, spared).await?);
    live.forget(&applied);
    Ok(asked)
}

/// Returns the resource version of an object that this process applied and that is unchanged, so that
/// it need not be read again; `None` for an object that holds others.
async fn unchanged(
    context: &ActionContext<'_>,
    live: &Live,
    key: &ObjectKey,
    object: &ManifestObject,
    spared: &Spared,
) -> Option<u64> {
    let by_age = matches!(spared.which, Which::CreatedSince(_));
    if is_container(key) || object.is_kept() || spared.kept || by_age || !live.is_clean(key) {
        return None;
    }
    let guard = location::locate(context, key).await.ok()?.guard;
    let seen = guard.get(key.namespace.as_deref(), &key.name)?;
    (!seen.kept).then_some(seen.version)
}

/// Deletes or releases an object as the verdict says. Returns it if its deletion was requested.
async fn carry_out(
    context: &ActionContext<'_>,
    live: &mut Live,
    key: &ObjectKey,
    verdict: Verdict,
    spared: &Spared,
) -> Result<Option<(ObjectKey, String)>, ActionError> {
    let cluster = context.cluster;
    if let Some(why) = why_left(&verdict).filter(|_| !spared.kept) {
        let note = format!("{key} is not deleted: {why}");
        live.remark(EventReason::ObjectLeft, note);
    }
    match verdict {
        Verdict::Delete { uid } if !spared.uids.contains(&uid) => {
            delete(cluster, key, &uid, Propagation::Background).await?;
            return Ok(Some((key.clone(), uid)));
        }
        Verdict::Kept { uid } | Verdict::Protected { uid, .. } => {
            release_kept(cluster, key, &uid, context.primary).await?;
        }
        Verdict::Delete { .. }
        | Verdict::Gone
        | Verdict::Foreign(_)
        | Verdict::Recreated
        | Verdict::Older
        | Verdict::OfHook => {}
    }
    Ok(None)
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
        Verdict::Protected { held, .. } => Some(held.to_string()),
        Verdict::Delete { .. } | Verdict::Gone | Verdict::Older | Verdict::OfHook => None,
    }
}

/// Deletes the objects that only a failed revision has, and none of the revisions in `kept`.
/// Objects that are annotated to be kept or are not the release's stay.
///
/// # Errors
/// When an object cannot be read or deleted. Calling it again deletes the rest.
pub(crate) async fn prune_leftover(
    context: &ActionContext<'_>,
    live: &mut Live,
    leftover: &StoredRelease,
    kept: &[StoredRelease],
) -> Result<(), ActionError> {
    let mut wanted = Vec::new();
    for stored in kept {
        wanted.extend(objects(
            &stored.release.manifest,
            stored.release.revision.0,
        )?);
    }
    let revision = leftover.release.revision.0;
    let made = objects(&leftover.release.manifest, revision)?;
    prune(context, live, revision, &made, &wanted).await?;
    remove_interrupted(context, leftover).await
}
