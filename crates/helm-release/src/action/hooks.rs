//! Runs the hooks of an event as Helm 4 does: by weight, then by name, one after the other.
//!
//! # Runs
//! The record holds the phase of a hook at an event: it is `Running` before its object is created
//! and `Succeeded` before the next hook begins, so that no completed hook runs twice. When an event
//! that failed is retried, all of its hooks run again. See [`progress`].
//!
//! An object carries a label that identifies its run: the record, the revision, the event and the
//! attempt. An object with another label was left behind by an earlier run; the policy
//! `before-hook-creation` deletes it, waits until it is gone, and creates it again. The timeout of
//! the action applies to each hook, from its start at this event; a hook whose process died before it
//! did anything starts anew.
//!
//! # Missing Jobs and Pods
//! The `ttlSecondsAfterFinished` of a Job takes effect only after the record holds its result (see
//! [`ttl`]). When something else has deleted a Job or Pod:
//! * If a watch of this process saw it complete or fail, that is its result.
//! * If this process knows that it existed, but did not see its end, it has failed, because it is
//!   unknown how far it got. Retrying the event runs it again.
//! * If this process knows nothing of it because it was started later, it is created: either the
//!   previous process died before creating it, or it was deleted while no operator ran.
//!
//! # Deletion
//! `hook-succeeded` applies after all hooks of the event, in reverse order. When a hook fails,
//! `hook-failed` applies to it, and then `hook-succeeded` to those before it. These policies only
//! delete an object of the same run, because a hook of two events may have been created again for
//! the other event. Custom resource definitions and objects of others are never deleted.
//!
//! Custom resource definitions and namespaces are not replaced before a run, because everything in
//! them would be deleted: an existing one is taken as created.
//!
//! An interrupted run leaves objects to which its policies were never applied. The next run deletes
//! and creates them again, whatever its policies are (see [`leftover`]).

pub(super) mod leftover;
pub(super) mod memory;
mod progress;
pub(super) mod removal;
mod ttl;

use helm_core::manifest::hook::{DeletePolicy, OutputLogPolicy, at_event};
use helm_core::manifest::{Hook, HookEvent, HookExecution, HookPhase, ManifestObject, ObjectKey};
use helm_core::release::{Release, Time};
use host::phases;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use kube_objects::apply::{Apply, ApplyError, Claim, apply};
use kube_objects::delete::{Propagation, delete};
use kube_objects::diagnosis;
use kube_objects::locate::locate;
use kube_objects::ownership::{ForeignOwner, Ownership, mark, ownership};
use kube_objects::read;
use kube_objects::readiness::{HookOutcome, View, hook_outcome};
use kube_objects::watch::WatchState;
use serde_json::Value;

use super::context::StoredRelease;
use super::context::{ActionContext, ActionProgress, objects};
use super::error::ActionError;
use super::hook_logs;
use super::live::Live;
use super::location::{self, ObjectLocation};
use super::log::{Details, Done};

use leftover::Interrupted;
use memory::HookMemory;
use progress::Run;
use removal::{is_definition, is_of_run, remove, remove_succeeded};

/// The state of a hook after its objects were checked.
struct HookCheck {
    outcome: HookOutcome,
    /// Whether the check has begun the work: it has created a Job or Pod, or deleted an object from before the run.
    began: bool,
    /// The Job or Pod of this run whose state is the outcome.
    decided_by: Option<ObjectKey>,
}

/// Runs the hooks of an event that have not completed yet. `before` are earlier runs of other
/// revisions that may have been interrupted.
pub(crate) async fn run(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut StoredRelease,
    event: &HookEvent,
    before: &Interrupted,
) -> Result<ActionProgress, ActionError> {
    if context.disable_hooks {
        return Ok(ActionProgress::Done);
    }
    let run = Run::of(stored, event);
    if live.hooks.is_complete(&run.label) {
        return Ok(ActionProgress::Done);
    }
    let mut interrupted = Interrupted::attempts_before(stored, &run.attempt);
    interrupted.extend(before, stored);
    let mut ended = Vec::new();
    for index in hook_order(&stored.release, event) {
        let Some(hook) = stored.release.hooks.get(index).cloned() else {
            continue;
        };
        let known = run.attempt.execution(&stored.release, &hook);
        if known.phase == HookPhase::Succeeded {
            // The answer to the write of this phase may have been lost.
            stop_tracking(context, live, &hook, &DeletePolicy::HookSucceeded).await?;
            ended.push(hook);
            continue;
        }
        let is_first = known.phase != HookPhase::Running;
        if is_first {
            set_phase(context, stored, &run, index, HookPhase::Running).await?;
        }
        let checking = phases::span("hook")
            .text("helm.hook.name", hook.display_name())
            .text("helm.hook.event", event.as_str())
            .run(check(
                context,
                &mut live.hooks,
                (&stored.release, &hook),
                &run.label,
                &known,
                &interrupted,
            ));
        let check = match checking.await {
            // The result of a test is reported, not retried.
            Err(error) if *event == HookEvent::Test && error.is_refusal() => {
                HookOutcome::Failed(error.to_string()).into()
            }
            check => check?,
        };
        match check.outcome {
            HookOutcome::Succeeded => {
                set_phase(context, stored, &run, index, HookPhase::Succeeded).await?;
                let began = known.started_at.as_ref().map(Time::instant);
                Done {
                    primary: context.primary,
                    release: context.name,
                    revision: Some(stored.release.revision),
                    began: began.or(Some(context.now)),
                    details: Details {
                        hook: Some(hook.display_name()),
                        event: Some(event.as_str()),
                        ..Details::default()
                    },
                }
                .log("ran a hook");
                hook_logs::log_output(context, &hook, &OutputLogPolicy::HookSucceeded).await;
                stop_tracking(context, live, &hook, &DeletePolicy::HookSucceeded).await?;
                ended.push(hook);
            }
            HookOutcome::Running => {
                let late = known.started_at.is_some_and(|began| {
                    let age = context.now.duration_since(began.instant());
                    !is_first && age.unsigned_abs() > context.timeout
                });
                if late && !check.began {
                    let message = format!("did not complete within {:?}", context.timeout);
                    let message = explained(context, message, check.decided_by).await;
                    return fail(context, live, stored, &run, index, &ended, message).await;
                }
                if late {
                    // The process that started the hook died before doing anything.
                    set_phase(context, stored, &run, index, HookPhase::Running).await?;
                }
                phases::waits_for("hook", hook.display_name());
                return Ok(ActionProgress::Waiting {
                    why: format!("{event} hook {}", hook.display_name()),
                });
            }
            HookOutcome::Failed(message) => {
                let message = explained(context, message, check.decided_by).await;
                return fail(context, live, stored, &run, index, &ended, message).await;
            }
        }
    }
    remove_succeeded(context, &ended, &run.label).await?;
    live.hooks.complete(&run.label);
    Ok(ActionProgress::Done)
}

/// Returns the indexes of an event's hooks in the order in which they run.
fn hook_order(release: &Release, event: &HookEvent) -> Vec<usize> {
    let position = |hook: &Hook| {
        let mut all = release.hooks.iter();
        all.position(|known| std::ptr::eq(known, hook))
    };
    let hooks = at_event(&release.hooks, event).into_iter();
    hooks.filter_map(position).collect()
}

/// Adds to a failure why the Pods of a Job, or the Pod, did not do their work. They are read now, because
/// the delete policies may remove them.
async fn explained(
    context: &ActionContext<'_>,
    message: String,
    object: Option<ObjectKey>,
) -> String {
    let Some(object) = object else {
        return message;
    };
    match diagnosis::of_ended(context.cluster, &object, context.crash_logs).await {
        Some(cause) => format!("{message}: {}", cause.message),
        None => message,
    }
}

/// Records the failure of a hook and applies the delete policies.
async fn fail(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut StoredRelease,
    run: &Run,
    index: usize,
    ended: &[Hook],
    message: String,
) -> Result<ActionProgress, ActionError> {
    set_phase(context, stored, run, index, HookPhase::Failed).await?;
    let hook = stored.release.hooks.get(index).cloned().unwrap_or_default();
    hook_logs::log_output(context, &hook, &OutputLogPolicy::HookFailed).await;
    stop_tracking(context, live, &hook, &DeletePolicy::HookFailed).await?;
    if hook.has_delete_policy(&DeletePolicy::HookFailed) {
        remove(context, &hook, Some(&run.label), false).await?;
    }
    remove_succeeded(context, ended, &run.label).await?;
    Err(ActionError::Hook {
        event: run.attempt.event.as_str().to_owned(),
        name: hook.display_name().to_owned(),
        message,
    })
}

/// Sets the phase of a hook and writes the record.
async fn set_phase(
    context: &ActionContext<'_>,
    stored: &mut StoredRelease,
    run: &Run,
    index: usize,
    phase: HookPhase,
) -> Result<(), ActionError> {
    let attempt = &run.attempt;
    attempt.set(&mut stored.release, index, phase, context.now);
    context.save(stored).await?;
    Ok(())
}

/// Stops tracking the Jobs and Pods of a hook whose result is recorded, and restores their
/// `ttlSecondsAfterFinished` unless `policy` deletes them.
async fn stop_tracking(
    context: &ActionContext<'_>,
    live: &mut Live,
    hook: &Hook,
    policy: &DeletePolicy,
) -> Result<(), ActionError> {
    if !hook.has_delete_policy(policy) {
        ttl::restore(context, &live.hooks, hook).await?;
    }
    for object in objects(&hook.manifest, 0)? {
        if is_awaited(object.key())
            && let Some(key) = locate(context.cluster, object.key(), context.namespace).await?
        {
            live.hooks.forget(&key);
        }
    }
    Ok(())
}

/// Creates the missing objects of a hook of a release and returns their state. `known` is what the record says of this
/// run.
async fn check(
    context: &ActionContext<'_>,
    memory: &mut HookMemory,
    (release, hook): (&Release, &Hook),
    run: &str,
    known: &HookExecution,
    interrupted: &Interrupted,
) -> Result<HookCheck, ActionError> {
    for object in context.served_objects(release, &hook.manifest).await? {
        let check = check_object(context, memory, hook, &object, run, known, interrupted).await?;
        if matches!(check.outcome, HookOutcome::Failed(_)) {
            phases::failed("HookFailed");
        }
        if check.outcome != HookOutcome::Succeeded {
            return Ok(check);
        }
    }
    Ok(HookOutcome::Succeeded.into())
}

async fn check_object(
    context: &ActionContext<'_>,
    memory: &mut HookMemory,
    hook: &Hook,
    object: &ManifestObject,
    run: &str,
    known: &HookExecution,
    interrupted: &Interrupted,
) -> Result<HookCheck, ActionError> {
    let location = location::locate(context, object.key()).await;
    let location = location.map_err(ApplyError::from)?;
    // An object that the watch does not show need not be read: if it exists nevertheless, the API
    // server rejects its creation.
    let absent = known.phase != HookPhase::Running
        && location.guard.state() == WatchState::Synced
        && location
            .guard
            .get(location.key.namespace.as_deref(), &location.key.name)
            .is_none();
    if absent {
        match create(context, memory, object, &location, run).await {
            Err(ActionError::Apply(ApplyError::Exists { .. })) => {}
            answer => return answer,
        }
    }
    let live = read::get(context.cluster, &location.key).await?;
    let metadata = live.as_ref().map(metadata_of).unwrap_or_default();
    if let Some(live) = live.as_ref().filter(|_| is_of_run(&metadata, run)) {
        let outcome = hook_outcome(&gvk_of(object), &View::of(live));
        let awaited = is_awaited(&location.key);
        if awaited {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (uid, version) = (text(&metadata.uid), text(&metadata.resource_version));
            memory.track(&location.key, run, &uid, &version, &location.guard);
        }
        return Ok(HookCheck {
            decided_by: awaited.then(|| location.key.clone()),
            ..outcome.into()
        });
    }
    if let Some(outcome) = memory.outcome_of_missing(&location.key, run) {
        return Ok(outcome.into());
    }
    if live.is_none() {
        return create(context, memory, object, &location, run).await;
    }
    let replaced = hook.has_delete_policy(&DeletePolicy::BeforeHookCreation)
        || interrupted.left(&location.key, &metadata);
    let outcome = replace(context, object, &location, &metadata, run, replaced).await?;
    let is_older = || {
        let began = known.started_at.as_ref().map(Time::instant);
        let made = metadata.creation_timestamp.as_ref().map(|made| made.0);
        began.zip(made).is_none_or(|(began, made)| made < began)
    };
    Ok(HookCheck {
        began: outcome == HookOutcome::Running
            && metadata.deletion_timestamp.is_none()
            && is_older(),
        ..outcome.into()
    })
}

/// Handles an existing object of the same name, which an earlier run or somebody else has created.
/// `replaced` says that it is deleted if it is the release's.
async fn replace(
    context: &ActionContext<'_>,
    object: &ManifestObject,
    location: &ObjectLocation,
    old: &ObjectMeta,
    run: &str,
    replaced: bool,
) -> Result<HookOutcome, ActionError> {
    let key = &location.key;
    if let Some(owner) = foreign_owner(context, old) {
        return Ok(HookOutcome::Failed(format!(
            "{key} already exists: {owner}"
        )));
    }
    if old.deletion_timestamp.is_some() {
        return Ok(HookOutcome::Running);
    }
    if is_definition(key) || is_namespace(key) {
        let is_nobodys = matches!(
            ownership(old, &context.claimant()),
            Ownership::Foreign(ForeignOwner::Nobody)
        );
        if !(is_nobodys && is_namespace(key)) {
            apply(
                context.cluster,
                request(context, object, location, Some(run), Claim::Unproven),
            )
            .await?;
        }
        return Ok(HookOutcome::Succeeded);
    }
    if !replaced {
        return Ok(HookOutcome::Failed(format!(
            "{key} already exists; delete it, or add before-hook-creation to the hook's delete policies"
        )));
    }
    let uid = old.uid.as_deref().unwrap_or_default();
    delete(context.cluster, key, uid, Propagation::Background).await?;
    Ok(HookOutcome::Running)
}

/// Creates an object of a run and tracks it.
async fn create(
    context: &ActionContext<'_>,
    memory: &mut HookMemory,
    object: &ManifestObject,
    location: &ObjectLocation,
    run: &str,
) -> Result<HookCheck, ActionError> {
    let mut request = request(context, object, location, Some(run), Claim::Absent);
    ttl::hold(&mut request.object);
    let made = apply(context.cluster, request).await?;
    if !is_awaited(&location.key) {
        return Ok(HookOutcome::Succeeded.into());
    }
    let version = &made.resource_version;
    memory.track(&location.key, run, &made.uid, version, &location.guard);
    Ok(HookCheck {
        outcome: HookOutcome::Running,
        began: true,
        decided_by: None,
    })
}

/// Builds the apply request for an object.
fn request<'c>(
    context: &'c ActionContext<'_>,
    object: &ManifestObject,
    location: &ObjectLocation,
    run: Option<&'c str>,
    claim: Claim,
) -> Apply<'c> {
    let marks = context.marks(run, true);
    let mut body = object.object().clone();
    mark(&mut body, &marks, location.kind.scope);
    Apply {
        object: body,
        claim,
        claimant: context.claimant(),
        policy: &context.policy,
    }
}

/// Returns the owner of an existing object if it is somebody else. An object without an owner may
/// come from the `helm` command, which does not label hooks.
fn foreign_owner(context: &ActionContext<'_>, live: &ObjectMeta) -> Option<ForeignOwner> {
    match ownership(live, &context.claimant()) {
        Ownership::Foreign(ForeignOwner::Nobody) | Ownership::Ours | Ownership::Release => None,
        Ownership::Foreign(owner) => Some(owner),
    }
}

/// Returns whether hooks of this kind are waited for. Objects of other kinds succeed when they
/// exist.
fn is_awaited(key: &ObjectKey) -> bool {
    matches!(
        (key.group.as_str(), key.kind.as_str()),
        ("batch", "Job") | ("", "Pod")
    )
}

fn is_namespace(key: &ObjectKey) -> bool {
    key.group.is_empty() && key.kind == "Namespace"
}

fn metadata_of(live: &Value) -> ObjectMeta {
    let metadata = live.get("metadata").cloned().unwrap_or_default();
    serde_json::from_value(metadata).unwrap_or_default()
}

fn gvk_of(object: &ManifestObject) -> GroupVersionKind {
    let key = object.key();
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

impl From<HookOutcome> for HookCheck {
    fn from(outcome: HookOutcome) -> Self {
        Self {
            outcome,
            began: false,
            decided_by: None,
        }
    }
}
