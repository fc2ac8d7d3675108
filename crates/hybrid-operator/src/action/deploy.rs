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
use helm_core::manifest::{HookEvent, ManifestObject};
use helm_core::release::{Release, Status, Time};

use super::live::{Live, Place, place};
use super::{ActionContext, ActionError, Progress, hooks, objects, prune};
use crate::cluster::apply::{self as generated, Applied, Apply, ApplyError, Claim, apply};
use crate::cluster::delete::{Propagation, delete};
use crate::cluster::ownership::mark;
use crate::cluster::{DiscoveryError, read};
use crate::controller::WatchGuard;
use crate::release::RecordMeta;

/// How many objects of a kind are applied at once.
const CONCURRENCY: usize = 8;

/// An object that was applied.
pub(super) struct One {
    pub(super) applied: Applied,
    /// Hash of what was applied.
    pub(super) content: u64,
    /// The watch that shows it.
    pub(super) guard: WatchGuard,
}

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
        live.revision = Some(revision);
        live.complete = false;
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
        live.complete = true;
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
            applies.push(apply_one(context, known, object, Before::Record(before)).boxed());
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
            live.applied(&one.applied, one.content, one.guard);
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
    /// It is applied whatever is known.
    Ignored,
}

/// Applies one object, unless nothing would change.
pub(super) async fn apply_one(
    context: &ActionContext<'_>,
    live: &Live,
    object: &ManifestObject,
    before: Before<'_>,
) -> ApplyResult {
    let spot = place(
        context.cluster,
        context.registry,
        context.operator,
        context.namespaces,
        object.key(),
        context.namespace,
    )
    .await
    .map_err(ApplyError::from)?;
    let hash = content_of(object);
    if let Before::Record(before) = before {
        let same = match live.content(&spot.key) {
            Some(applied) => applied == hash,
            None => before
                .iter()
                .any(|old| old.key() == object.key() && old.object() == object.object()),
        };
        if same && live.is_clean(&spot.key) {
            return Ok(None);
        }
    }
    let seen = spot
        .guard
        .get(spot.key.namespace.as_deref(), &spot.key.name);
    let own = seen.filter(|seen| seen.owner.as_ref() == Some(&context.primary.identity()));
    let uid = own
        .map(|seen| seen.uid.to_string())
        .or_else(|| live.uid(&spot.key).map(Into::into));
    let claim = uid.map_or(Claim::Unproven, |uid| Claim::Known { uid });
    let run = generated::is_generated(object.object())
        .then(|| super::generated_run(&context.primary.uid, live.revision.unwrap_or(0), object));
    let marks = context.marks(run.as_deref(), false);
    let mut body = object.object().clone();
    mark(&mut body, &marks, spot.kind.scope);
    let request = Apply {
        object: body,
        claim,
        claimant: marks.claimant(),
        policy: &context.policy,
    };
    let applied = if run.is_some() {
        generated::create_generated(context.cluster, request, true).await?
    } else {
        match apply(context.cluster, request.clone()).await {
            Err(ApplyError::Immutable { key, .. }) if context.recreates(&key.kind) => {
                recreate(context, request, &spot, object).await?
            }
            answer => answer?,
        }
    };
    Ok(Some(One {
        applied,
        content: hash,
        guard: spot.guard,
    }))
}

/// Deletes an object whose fields cannot be changed, and creates it anew.
async fn recreate(
    context: &ActionContext<'_>,
    request: Apply<'_>,
    place: &Place,
    object: &ManifestObject,
) -> Result<Applied, ActionError> {
    let live = read::get_metadata(context.cluster, &place.key).await?;
    if let Some(uid) = live.and_then(|live| live.uid) {
        // The Pods of a StatefulSet, and with them its data, stay.
        let propagation = if object.key().kind == "StatefulSet" {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        delete(context.cluster, &place.key, &uid, propagation).await?;
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
