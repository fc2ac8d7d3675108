//! From a pending record to a deployed one: install, upgrade and rollback differ only in their
//! hooks and in what was there before.
//!
//! ```text
//! record pending -> pre hooks -> apply by kind -> prune -> wait -> post hooks -> record deployed
//!                -> predecessor superseded
//! ```

use std::hash::{DefaultHasher, Hash, Hasher};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use helm_core::manifest::{HookEvent, ManifestObject, ObjectKey};
use helm_core::release::{Release, Status, Time};

use super::live::{Live, One, Place, expires, place_of, read_unwatched, settled};
use super::{ActionContext, ActionError, Progress, hooks, objects, prune, repair};
use crate::cluster::DiscoveryError;
use crate::cluster::apply::{
    self as generated, Applied, Apply, ApplyError, ApplyPolicy, Claim, TakeOver, apply,
};
use crate::cluster::delete::{Propagation, Verdict, delete, verify};
use crate::cluster::ownership::mark;
use crate::controller::WatchState;
use crate::release::RecordMeta;

/// How many objects of a kind are applied at once.
const CONCURRENCY: usize = 8;

/// `None` when nothing had to be applied.
type ApplyResult = Result<Option<One>, ActionError>;

/// A record and its content.
pub struct Stored {
    /// Where it is.
    pub meta: RecordMeta,
    /// What it says.
    pub release: Release,
}

/// What is to be deployed.
pub struct Deployment<'a> {
    /// The pending record.
    pub stored: &'a mut Stored,
    /// The revision that was deployed before.
    pub previous: Option<Stored>,
    /// Later revisions that failed or were given up: what they made is pruned, too.
    pub leftovers: Vec<Stored>,
    /// The event of the hooks that come first.
    pub pre: HookEvent,
    /// The event of the hooks that come last.
    pub post: HookEvent,
    /// Whether it is done only when every object is ready.
    pub wait: bool,
    /// Whether waiting includes the completion of Jobs.
    pub wait_for_jobs: bool,
    /// What the record says when all is done.
    pub description: String,
}

/// Deploys, or goes on with it.
pub async fn deploy(
    context: &ActionContext<'_>,
    live: &mut Live,
    deployment: Deployment<'_>,
) -> Result<Progress, ActionError> {
    let Deployment {
        stored,
        previous,
        leftovers,
        pre,
        post,
        wait,
        wait_for_jobs,
        description,
    } = deployment;
    let revision = stored.release.revision.0;
    if let waiting @ Progress::Waiting { .. } = hooks::run(context, live, stored, &pre).await? {
        return Ok(waiting);
    }
    if live.revision != Some(revision) || !live.complete {
        let wanted = objects(&stored.release.manifest, revision)?;
        let before = match &previous {
            Some(previous) => objects(&previous.release.manifest, previous.release.revision.0)?,
            None => Vec::new(),
        };
        live.begin(revision);
        if let waiting @ Progress::Waiting { .. } =
            apply_all(context, live, &wanted, &before).await?
        {
            return Ok(waiting);
        }
        let revision_before = previous.as_ref().map_or(0, |p| p.release.revision.0);
        prune::prune(context, live, revision_before, &before, &wanted).await?;
        for leftover in &leftovers {
            let number = leftover.release.revision.0;
            let made = objects(&leftover.release.manifest, number)?;
            prune::prune(context, live, number, &made, &wanted).await?;
        }
        live.finish(&wanted, context);
    } else if wait && !live.drifted().is_empty() {
        // Somebody has changed or removed an object since it was applied: it would be waited for
        // in vain.
        let manifest = objects(&stored.release.manifest, revision)?;
        let accepted = live.apply_again();
        let only = |key: &ObjectKey| accepted.contains(key);
        let chosen = live.drifted_of(&manifest, context, &only);
        repair::apply_again(context, live, chosen).await?;
    }
    if wait && !live.unwatched().is_empty() {
        read_unwatched(context.cluster, live).await?;
    }
    if wait && let Some(missing) = live.unready(wait_for_jobs).into_iter().next() {
        return waited(context, stored, missing);
    }
    if let waiting @ Progress::Waiting { .. } = hooks::run(context, live, stored, &post).await? {
        return Ok(waiting);
    }
    stored.release.set_status(Status::Deployed, description);
    context.save(stored).await?;
    if let Some(mut previous) = previous
        && previous.release.info.status == Status::Deployed
    {
        let text = previous.release.info.description.clone();
        previous.release.set_status(Status::Superseded, text);
        context.save(&mut previous).await?;
    }
    Ok(Progress::Done)
}

/// Something is missing still: goes on waiting until the deadline.
fn waited(
    context: &ActionContext<'_>,
    stored: &Stored,
    missing: String,
) -> Result<Progress, ActionError> {
    let began = stored.release.info.last_deployed.as_ref();
    let age = began
        .map(|began| context.now.duration_since(Time::instant(began)))
        .unwrap_or_default();
    if age.unsigned_abs() > context.timeout {
        return Err(ActionError::Timeout {
            timeout: context.timeout,
            why: missing,
        });
    }
    Ok(Progress::Waiting { why: missing })
}

/// Applies objects in their order, those of one kind side by side. What is as it was applied, and
/// would be applied just the same, is left out.
async fn apply_all(
    context: &ActionContext<'_>,
    live: &mut Live,
    wanted: &[ManifestObject],
    before: &[ManifestObject],
) -> Result<Progress, ActionError> {
    for group in wanted.chunk_by(|a, b| a.key().kind == b.key().kind) {
        let known = &*live;
        let mut applies: Vec<BoxFuture<'_, ApplyResult>> = Vec::new();
        for object in group {
            let before = Before::Record(before);
            applies.push(apply_one(context, &context.policy, known, object, before).boxed());
        }
        let mut applies = futures::stream::iter(applies).buffer_unordered(CONCURRENCY);
        let mut done = Vec::new();
        let mut failed = None;
        while let Some(result) = applies.next().await {
            match result {
                Ok(Some(one)) => done.push(one),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        drop(applies);
        // What was applied is remembered even if another object of the kind failed.
        for one in done {
            live.applied(one);
        }
        match failed {
            None => {}
            Some(error) => match awaited_kind(context, &error, wanted) {
                Some(why) => return Ok(Progress::Waiting { why }),
                None => return Err(error),
            },
        }
    }
    Ok(Progress::Done)
}

/// A kind that is not served yet, although a definition in the same manifest brings it.
fn awaited_kind(
    context: &ActionContext<'_>,
    error: &ActionError,
    wanted: &[ManifestObject],
) -> Option<String> {
    let ActionError::Apply(ApplyError::Discovery(DiscoveryError::UnknownKind {
        api_version,
        kind,
    })) = error
    else {
        return None;
    };
    let group = api_version.split('/').next().unwrap_or_default();
    let brings = |object: &ManifestObject| {
        let text = |pointer| object.object().pointer(pointer).and_then(|v| v.as_str());
        object.key().kind == "CustomResourceDefinition"
            && text("/spec/group") == Some(group)
            && text("/spec/names/kind") == Some(kind.as_str())
    };
    wanted.iter().any(brings).then(|| {
        context.cluster.group_changed(group);
        format!("{kind}.{group} to be served")
    })
}

/// What tells whether an object must be applied at all.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    /// The objects of the deployed record: what is the same there, or was applied by this
    /// process just so, is left out if nobody changed it.
    Record(&'a [ManifestObject]),
    /// It is applied whatever is known; only a Job that its time to live has removed is not.
    Ignored,
}

/// Applies one object, unless nothing would change.
pub(super) async fn apply_one(
    context: &ActionContext<'_>,
    policy: &ApplyPolicy,
    live: &Live,
    object: &ManifestObject,
    before: Before<'_>,
) -> ApplyResult {
    let spot = place_of(context, object.key())
        .await
        .map_err(ApplyError::from)?;
    let hash = content_of(object);
    let seen = |spot: &Place| {
        let key = &spot.key;
        spot.guard.get(key.namespace.as_deref(), &key.name)
    };
    let recorded = match before {
        Before::Record(before) => {
            let old = before
                .iter()
                .find(|old| old.key().is_same_object(object.key(), context.namespace));
            let same = match live.content(&spot.key) {
                Some(applied) => applied == hash,
                None => old.is_some_and(|old| old.object() == object.object()),
            };
            // Replacing drops what others have added, which is not known here.
            if same && !policy.replace && live.is_clean(&spot.key) {
                return Ok(None);
            }
            old.is_some()
        }
        Before::Ignored => {
            // It ran when its revision was deployed.
            if expires(object)
                && settled(&spot.guard).await == WatchState::Synced
                && seen(&spot).is_none()
            {
                return Ok(None);
            }
            true
        }
    };
    let own = seen(&spot).filter(|seen| seen.owner.as_ref() == Some(&context.primary.identity()));
    let uid = own
        .map(|seen| seen.uid.to_string())
        .or_else(|| live.uid(&spot.key).map(Into::into));
    let claim = match uid {
        Some(uid) => Claim::Known { uid },
        None if recorded && policy.take_over != TakeOver::Never => Claim::Adopted,
        None => Claim::Unproven,
    };
    let run = generated::is_generated(object.object())
        .then(|| super::generated_run(&context.primary.uid, live.revision.unwrap_or(0), object));
    let marks = context.marks(run.as_deref(), false);
    let mut body = object.object().clone();
    mark(&mut body, &marks, spot.kind.scope);
    let request = Apply {
        object: body,
        claim,
        claimant: marks.claimant(),
        policy,
    };
    let applied = if run.is_some() {
        generated::create_generated(context.cluster, request, true).await?
    } else {
        match apply(context.cluster, request.clone()).await {
            Err(ApplyError::Immutable { key, fields, .. }) if context.recreates(&key.kind) => {
                recreate(context, request, &spot, object, fields).await?
            }
            answer => answer?,
        }
    };
    Ok(Some(One {
        applied,
        content: hash,
        run,
        expires: expires(object),
        guard: spot.guard,
    }))
}

/// Deletes an object whose fields cannot be changed, and creates it anew. As with any deletion it
/// has to be the release's, the one that was applied, and not to be kept.
async fn recreate(
    context: &ActionContext<'_>,
    request: Apply<'_>,
    place: &Place,
    object: &ManifestObject,
    fields: Vec<String>,
) -> Result<Applied, ActionError> {
    let recorded = match &request.claim {
        Claim::Known { uid } => Some(uid.as_str()),
        Claim::Unproven | Claim::Absent | Claim::Adopted => None,
    };
    let claimant = &request.claimant;
    let kept = object.is_kept();
    let verdict = verify(context.cluster, &place.key, claimant, recorded, kept).await?;
    let key = || Box::new(place.key.clone());
    match verdict {
        Verdict::Delete { uid } => {
            // The Pods of a StatefulSet, and with them its data, stay.
            let propagation = if object.key().kind == "StatefulSet" {
                Propagation::Orphan
            } else {
                Propagation::Background
            };
            delete(context.cluster, &place.key, &uid, propagation).await?;
        }
        Verdict::Gone => {}
        Verdict::Kept { .. } => return Err(ApplyError::Kept { key: key(), fields }.into()),
        Verdict::Foreign(owner) => return Err(ApplyError::Foreign { key: key(), owner }.into()),
        // Somebody has made it anew since: it is looked at again.
        Verdict::Recreated | Verdict::Older | Verdict::Protected { .. } => {
            return Err(ApplyError::Contended { key: key() }.into());
        }
    }
    let anew = Apply {
        claim: Claim::Unproven,
        ..request
    };
    Ok(apply(context.cluster, anew).await?)
}

/// A hash of what is applied.
fn content_of(object: &ManifestObject) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.object().hash(&mut hasher);
    hasher.finish()
}
