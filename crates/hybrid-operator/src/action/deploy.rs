//! From a pending record to a deployed one: install, upgrade and rollback differ only in their
//! hooks and in what was there before.
//!
//! ```text
//! record pending -> pre hooks -> apply by kind -> prune -> wait -> post hooks -> record deployed
//!                -> predecessor superseded
//! ```

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use helm_core::manifest::{HookEvent, ManifestObject};
use helm_core::release::{Release, Status, Time};

use super::live::{Live, place};
use super::{ActionContext, ActionError, Progress, hooks, objects, prune};
use crate::cluster::apply::{Applied, Apply, Claim, apply};
use crate::cluster::ownership::mark;
use crate::controller::WatchGuard;
use crate::release::RecordMeta;

/// How many objects of a kind are applied at once.
const CONCURRENCY: usize = 8;

/// An object that was applied, if it had to be, and the watch that shows it.
type ApplyResult = Result<Option<(Applied, WatchGuard)>, ActionError>;

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
    /// The event of the hooks that come first.
    pub pre: HookEvent,
    /// The event of the hooks that come last.
    pub post: HookEvent,
    /// Whether it is done only when every object is ready.
    pub wait: bool,
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
        pre,
        post,
        wait,
        description,
    } = deployment;
    let revision = stored.release.revision.0;
    if let waiting @ Progress::Waiting { .. } = hooks::run(context, stored, &pre).await? {
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
        apply_all(context, live, &wanted, &before).await?;
        prune::prune(context, live, &before, &wanted).await?;
        live.complete = true;
    }
    if wait {
        let unready = live.unready();
        if let Some(first) = unready.first() {
            let began = stored
                .release
                .info
                .last_deployed
                .as_ref()
                .map(Time::instant);
            let age = began
                .map(|began| context.now.duration_since(began))
                .unwrap_or_default();
            if age.unsigned_abs() > context.timeout {
                return Err(ActionError::Timeout {
                    timeout: context.timeout,
                    why: first.clone(),
                });
            }
            return Ok(Progress::Waiting { why: first.clone() });
        }
    }
    if let waiting @ Progress::Waiting { .. } = hooks::run(context, stored, &post).await? {
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

/// Applies objects in their order, those of one kind side by side. An object that the record
/// before had just the same, and that nobody changed since, is left out.
async fn apply_all(
    context: &ActionContext<'_>,
    live: &mut Live,
    wanted: &[ManifestObject],
    before: &[ManifestObject],
) -> Result<(), ActionError> {
    for group in wanted.chunk_by(|a, b| a.key().kind == b.key().kind) {
        let unchanged = |object: &ManifestObject| {
            before
                .iter()
                .any(|old| old.key() == object.key() && old.object() == object.object())
        };
        let known = &*live;
        let mut applies: Vec<BoxFuture<'_, ApplyResult>> = Vec::new();
        for object in group {
            applies.push(apply_one(context, known, object, unchanged(object)).boxed());
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
        for (applied, guard) in done {
            live.applied(&applied, guard);
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// Applies one object, unless it is `unchanged` and known to be so in the cluster.
pub(super) async fn apply_one(
    context: &ActionContext<'_>,
    live: &Live,
    object: &ManifestObject,
    unchanged: bool,
) -> ApplyResult {
    let place = place(
        context.cluster,
        context.registry,
        context.operator,
        context.namespaces,
        object.key(),
        context.namespace,
    )
    .await
    .map_err(crate::cluster::apply::ApplyError::from)?;
    if unchanged && live.is_clean(&place.key) {
        return Ok(None);
    }
    let seen = place
        .guard
        .get(place.key.namespace.as_deref(), &place.key.name);
    let own = seen.filter(|seen| seen.owner.as_ref() == Some(&context.primary.identity()));
    let uid = own
        .map(|seen| seen.uid.to_string())
        .or_else(|| live.uid(&place.key).map(Into::into));
    let claim = uid.map_or(Claim::Unproven, |uid| Claim::Known { uid });
    let marks = context.marks(None, false);
    let mut body = object.object().clone();
    mark(&mut body, &marks, place.kind.scope);
    let request = Apply {
        object: body,
        claim,
        claimant: marks.claimant(),
        policy: &context.policy,
    };
    let applied = apply(context.cluster, request).await?;
    Ok(Some((applied, place.guard)))
}
