//! Deploys a pending revision. Install, upgrade and rollback differ only in their hooks and in the
//! previous revision.
//!
//! ```text
//! record pending -> pre hooks -> apply by kind -> prune -> wait -> post hooks -> record deployed
//!                -> predecessor superseded
//! ```

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use helm_core::manifest::{HookEvent, ManifestObject, ObjectIdentity, ObjectKey};
use helm_core::release::{Release, Status, Time};
use host::phases;
use kube_objects::apply::{
    self as generated, Apply, ApplyError, ApplyPolicy, Claim, TakeOver, apply,
};
use kube_objects::ownership::mark;
use kube_objects::watch::WatchState;
use kube_objects::{DiscoveryError, Scope};
use serde_json::Value;

use super::context::{ActionContext, ActionProgress, StoredRelease, generated_run, objects};
use super::error::ActionError;
use super::hooks::leftover::Interrupted;
use super::immutable::{Refused, explained, resolve};
use super::live::{
    AppliedObject, Content, JobReadiness, Live, expires, read_unseen, read_unwatched, settled,
};
use super::location::{ObjectLocation, locate};
use super::scaling::Autoscalers;
use super::{hooks, prune, repair};
use crate::event::EventReason;

/// Number of objects of a kind that are applied concurrently.
const CONCURRENCY: usize = 8;

/// A revision to deploy.
pub(crate) struct Deployment<'a> {
    /// The pending record.
    pub stored: &'a mut StoredRelease,
    /// The previously deployed revision.
    pub previous: Option<StoredRelease>,
    /// Later revisions that failed or were abandoned; their objects are pruned, too.
    pub leftovers: Vec<StoredRelease>,
    /// Event of the hooks that run before the objects are applied.
    pub pre: HookEvent,
    /// Event of the hooks that run after the objects are applied.
    pub post: HookEvent,
    /// Whether to wait until every object is ready.
    pub wait: bool,
    /// Whether to wait for the completion of Jobs, too. Without it, Jobs are not waited for.
    pub wait_for_jobs: bool,
    /// Description of the record once it is deployed.
    pub description: String,
}

/// Returns always the same of the errors of several objects, in whatever order they come: what comes back
/// the same is permanent.
fn one_of(known: Option<ActionError>, error: ActionError) -> ActionError {
    match known {
        Some(known) if known.to_string() <= error.to_string() => known,
        _ => error,
    }
}

/// Returns the objects of these revisions, each with its number.
fn objects_of(revisions: &[StoredRelease]) -> Result<Vec<(u32, Vec<ManifestObject>)>, ActionError> {
    let mut found = Vec::new();
    for stored in revisions {
        let number = stored.release.revision.0;
        found.push((number, objects(&stored.release.manifest, number)?));
    }
    Ok(found)
}

/// Deploys a revision, or resumes an interrupted deployment.
pub(crate) async fn deploy(
    context: &ActionContext<'_>,
    live: &mut Live,
    deployment: Deployment<'_>,
) -> Result<ActionProgress, ActionError> {
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
    let interrupted = Interrupted::of(leftovers.iter().chain(&previous));
    if let waiting @ ActionProgress::Waiting { .. } =
        hooks::run(context, live, stored, &pre, &interrupted).await?
    {
        return Ok(waiting);
    }
    if live.revision != Some(revision) || !live.complete {
        let (wanted, replaced) = context.applied_objects(&stored.release).await?;
        let before = match &previous {
            Some(previous) => objects(&previous.release.manifest, previous.release.revision.0)?,
            None => Vec::new(),
        };
        let left = objects_of(&leftovers)?;
        live.begin(revision, context.now);
        for note in replaced {
            live.remark(EventReason::RenderedTwice, note);
        }
        let earlier = before
            .iter()
            .chain(left.iter().flat_map(|(_, objects)| objects));
        let autoscalers = Autoscalers::of(&wanted, earlier, context.namespace);
        let applying = phases::span("apply").number("objects", wanted.len());
        match applying
            .run(Box::pin(apply_all(
                context,
                live,
                &wanted,
                &before,
                &autoscalers,
            )))
            .await
        {
            Ok(ActionProgress::Done) => {}
            Ok(ActionProgress::Waiting { why }) => {
                return check_deadline(context, live, stored, why);
            }
            Err(error) => {
                let awaited = awaited(error, &wanted)?;
                return check_deadline(context, live, stored, awaited);
            }
        }
        let revision_before = previous.as_ref().map_or(0, |p| p.release.revision.0);
        prune::prune(context, live, revision_before, &before, &wanted).await?;
        for ((number, made), leftover) in left.iter().zip(&leftovers) {
            prune::prune(context, live, *number, made, &wanted).await?;
            // Once this revision is deployed, nothing tells that these are ours.
            hooks::removal::remove_interrupted(context, leftover).await?;
        }
        live.finish(&wanted, context);
    } else if wait
        && !live.drifted().is_empty()
        && let Some(kind) = reapply_drifted(context, live, &stored.release).await?
    {
        return check_deadline(context, live, stored, kind);
    }
    if wait {
        read_unwatched(context.cluster, live).await?;
        read_unseen(context.cluster, live).await?;
        let jobs = if wait_for_jobs {
            // A failed Job does not become complete.
            if let Some((key, message)) = live.failed_job() {
                let key = Box::new(key.clone());
                return Err(ActionError::Job { key, message });
            }
            JobReadiness::Complete
        } else {
            JobReadiness::Ignored
        };
        if let Some((key, why)) = live.unready(jobs).first() {
            return check_deadline(context, live, stored, format!("{key}: {why}"));
        }
    }
    if let waiting @ ActionProgress::Waiting { .. } =
        hooks::run(context, live, stored, &post, &interrupted).await?
    {
        return Ok(waiting);
    }
    stored.release.set_status(Status::Deployed, description);
    let baseline = live.complete.then(|| live.aggregate());
    context.save_with_baseline(stored, baseline).await?;
    if let Some(mut previous) = previous
        && previous.release.info.status == Status::Deployed
    {
        let text = previous.release.info.description.clone();
        previous.release.set_status(Status::Superseded, text);
        context.save(&mut previous).await?;
    }
    Ok(ActionProgress::Done)
}

/// Applies drifted objects again: an object that was changed or removed since it was applied might never become
/// ready. Returns the kind that must be served before.
async fn reapply_drifted(
    context: &ActionContext<'_>,
    live: &mut Live,
    release: &Release,
) -> Result<Option<String>, ActionError> {
    let (manifest, _) = context.applied_objects(release).await?;
    let accepted = live.take_reapplicable();
    let only = |key: &ObjectKey| accepted.contains(key);
    let chosen = live.drifted_of(&manifest, context, &only);
    match repair::reapply(context, live, chosen).await {
        Ok(_) => Ok(None),
        Err(error) => awaited_kind(context, &error, &manifest)
            .map(Some)
            .ok_or(error),
    }
}

/// Returns that the action waits for `missing`, or a timeout error once the deadline has passed. The time of
/// hooks before, and that before a restart, do not count.
fn check_deadline(
    context: &ActionContext<'_>,
    live: &Live,
    stored: &StoredRelease,
    missing: String,
) -> Result<ActionProgress, ActionError> {
    let began = stored.release.info.last_deployed.as_ref();
    let began = began.map(Time::instant).max(live.began);
    let age = began
        .map(|began| context.now.duration_since(began))
        .unwrap_or_default();
    if age.unsigned_abs() > context.timeout {
        return Err(ActionError::Timeout {
            timeout: context.timeout,
            why: missing,
        });
    }
    phases::waits_for("objects", "");
    Ok(ActionProgress::Waiting { why: missing })
}

/// Returns what a revision waits for before it applies these objects again, which creates what is being deleted; other
/// errors are returned.
fn awaited(error: ActionError, wanted: &[ManifestObject]) -> Result<String, ActionError> {
    let is_wanted = |namespace: Option<&str>| {
        let mut keys = wanted.iter().map(ManifestObject::key);
        keys.any(|key| {
            key.group.is_empty() && key.kind == "Namespace" && Some(&*key.name) == namespace
        })
    };
    match error {
        ActionError::Apply(ApplyError::Terminating { key }) => Ok(format!("{key} to be gone")),
        ActionError::Apply(
            ApplyError::NamespaceTerminating { key } | ApplyError::NamespaceMissing { key },
        ) if is_wanted(key.namespace.as_deref()) => {
            Ok(format!("the namespace of {key} to be gone"))
        }
        error => Err(error),
    }
}

/// Applies objects in order, those of one kind concurrently. An object that is unchanged in the
/// cluster and in the manifest is skipped.
async fn apply_all(
    context: &ActionContext<'_>,
    live: &mut Live,
    wanted: &[ManifestObject],
    before: &[ManifestObject],
    autoscalers: &Autoscalers<'_>,
) -> Result<ActionProgress, ActionError> {
    for group in wanted.chunk_by(|a, b| a.key().kind == b.key().kind) {
        let mut applies: Vec<BoxFuture<'_, Result<AppliedObject, ActionError>>> = Vec::new();
        let mut failed = None;
        for object in group {
            let before = Before::Record(before);
            match planned(context, &context.policy, live, object, before, autoscalers).await {
                Ok(Some(one)) => {
                    live.sending(&one.location.key);
                    applies.push(one.send(context).boxed());
                }
                Ok(None) => {}
                Err(error) => failed = Some(one_of(failed, error)),
            }
        }
        let mut applies = futures::stream::iter(applies).buffer_unordered(CONCURRENCY);
        // Each answer is recorded at once: the reconcile may be cancelled before the others come.
        while let Some(result) = applies.next().await {
            match result {
                Ok(one) => live.applied(one),
                Err(error) => failed = Some(one_of(failed, error)),
            }
        }
        drop(applies);
        match failed {
            None => {}
            Some(error) => match awaited_kind(context, &error, wanted) {
                Some(why) => {
                    phases::waits_for("kind", "");
                    return Ok(ActionProgress::Waiting { why });
                }
                None => return Err(error),
            },
        }
    }
    Ok(ActionProgress::Done)
}

/// Describes a kind that is not served yet but that a `CustomResourceDefinition` in the same
/// manifest serves.
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
    let (group, version) = api_version.split_once('/')?;
    let defines = |object: &ManifestObject| {
        let definition = object.object();
        let text = |pointer| definition.pointer(pointer).and_then(|v| v.as_str());
        let versions = definition.pointer("/spec/versions");
        let mut versions = versions.and_then(Value::as_array).into_iter().flatten();
        object.key().kind == "CustomResourceDefinition"
            && text("/spec/group") == Some(group)
            && text("/spec/names/kind") == Some(kind.as_str())
            && versions.any(|item| item["name"] == version && item["served"] == true)
    };
    wanted.iter().any(defines).then(|| {
        context.cluster.group_changed(group);
        format!("{kind}.{group} to be served")
    })
}

/// Basis of the decision whether an object must be applied at all.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    /// The objects of the deployed record. An object that was recognised and is the same there, or
    /// that this process has applied like this, is skipped if it is unchanged in the cluster.
    Record(&'a [ManifestObject]),
    /// The object is applied unless this process has applied it like this and it is unchanged, or it
    /// is a Job that `ttlSecondsAfterFinished` has removed.
    Ignored,
}

pub(super) struct PlannedApply<'a> {
    pub(super) location: ObjectLocation,
    object: &'a ManifestObject,
    policy: Cow<'a, ApplyPolicy>,
    claim: Claim,
    content: u64,
    run: Option<String>,
    /// Whether the chart or somebody else has annotated it to be kept.
    kept: bool,
}

/// Returns how an object is to be applied; `None` if nothing would change.
pub(super) async fn planned<'a>(
    context: &ActionContext<'_>,
    policy: &'a ApplyPolicy,
    live: &Live,
    object: &'a ManifestObject,
    before: Before<'_>,
    autoscalers: &Autoscalers<'_>,
) -> Result<Option<PlannedApply<'a>>, ActionError> {
    let location = locate(context, object.key())
        .await
        .map_err(ApplyError::from)?;
    let hash = content_hash(object);
    let seen = |location: &ObjectLocation| {
        let key = &location.key;
        location.guard.get(key.namespace.as_deref(), &key.name)
    };
    let loses_autoscaler = autoscalers.has_gone(object.key(), context.namespace);
    let known = live.content(&location.key);
    // Replacing drops fields that others have added, which are not known here.
    let replaces = policy.replace && !live.is_replaced(&location.key);
    let may_skip = !replaces && !loses_autoscaler && live.is_clean(&location.key);
    let recorded = match before {
        Before::Record(before) => {
            let is_cluster_scoped = location.kind.scope == Scope::Cluster;
            let identity = ObjectIdentity::in_cluster(&location.key);
            let old = before.iter().rev().find(|old| {
                let of = |_: &ObjectKey| is_cluster_scoped;
                identity == ObjectIdentity::of(old.key(), context.namespace, &of)
            });
            let same = match known {
                Some(Content::Applied(applied)) => applied == hash,
                Some(Content::Recorded) => old.is_some_and(|old| {
                    old.object() == object.object() && old.is_kept() == object.is_kept()
                }),
                Some(Content::Unknown) | None => false,
            };
            if same && may_skip {
                return Ok(None);
            }
            old.is_some()
        }
        Before::Ignored => {
            if known == Some(Content::Applied(hash)) && may_skip {
                return Ok(None);
            }
            // The Job ran when its revision was deployed.
            if expires(object)
                && settled(&location.guard).await == WatchState::Synced
                && seen(&location).is_none()
            {
                return Ok(None);
            }
            true
        }
    };
    let own =
        seen(&location).filter(|seen| seen.owner.as_ref() == Some(&context.primary.identity()));
    let uid = own
        .map(|seen| seen.uid.to_string())
        .or_else(|| live.uid(&location.key).map(Into::into));
    let claim = match uid {
        Some(uid) => Claim::Known { uid },
        None if recorded && policy.take_over != TakeOver::Never => Claim::Adopted,
        None => Claim::Unproven,
    };
    let run = generated::is_generated(object.object())
        .then(|| generated_run(&context.primary.uid, live.revision.unwrap_or(0), object));
    let unscaled = loses_autoscaler || live.is_unscaled(&location.key);
    let mut policy = Cow::Borrowed(policy);
    if unscaled {
        policy.to_mut().unscaled = true;
    }
    let kept = object.is_kept() || seen(&location).is_some_and(|seen| seen.kept);
    Ok(Some(PlannedApply {
        location,
        object,
        policy,
        claim,
        content: hash,
        run,
        kept,
    }))
}

impl PlannedApply<'_> {
    /// Applies the object. Its content is unknown until the answer comes; see [`Live::sending`].
    pub(super) async fn send(
        self,
        context: &ActionContext<'_>,
    ) -> Result<AppliedObject, ActionError> {
        let Self {
            location,
            object,
            policy,
            claim,
            content,
            run,
            kept,
        } = self;
        let _turn = context.cluster.turn(object.object()).await;
        let mut marks = context.marks(run.as_deref(), false);
        marks.unowned |= kept;
        let mut body = object.object().clone();
        mark(&mut body, &marks, location.kind.scope);
        let request = Apply {
            object: body,
            claim,
            claimant: marks.claimant(),
            policy: &policy,
        };
        let again =
            (run.is_none() && context.may_recreate(&location.key.kind)).then(|| request.clone());
        let sent = if run.is_some() {
            generated::create_generated(context.cluster, request).await
        } else {
            apply(context.cluster, request).await
        };
        let (applied, kept_size) = match (sent, again) {
            (
                Err(ApplyError::Immutable {
                    fields, message, ..
                }),
                again,
            ) => {
                let refused = Refused { fields, message };
                match again {
                    Some(again) => resolve(context, again, &location, object, refused).await?,
                    None => {
                        return Err(explained(context, &location, object, refused).await.into());
                    }
                }
            }
            (sent, _) => (sent?, None),
        };
        phases::changed();
        Ok(AppliedObject {
            applied,
            content,
            unscaled: policy.unscaled,
            replaced: policy.replace,
            run,
            expires: expires(object),
            kept_size,
            guard: location.guard,
        })
    }
}

/// Hashes an object as it is in the manifest.
fn content_hash(object: &ManifestObject) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.object().hash(&mut hasher);
    object.is_kept().hash(&mut hasher);
    hasher.finish()
}
