//! Runs the hooks of an event, as Helm 4 does: by weight, then by name, each awaited.
//!
//! # What a run is
//! How far a hook is at an event stands in the record: it is `Running` before its object is
//! created and `Succeeded` before the next one begins, so that no completed hook runs twice. An
//! event that failed is run again as a whole when it is tried again. See [`progress`].
//!
//! An object carries a label with its run: the record, the revision, the event and the attempt.
//! One that carries another label is left of an earlier run; the policy `before-hook-creation`
//! deletes it, waits until it is gone, and creates it anew. Waiting ends after the timeout of the
//! action, counted for each hook from where it began at this event.
//!
//! # When a Job or Pod is gone
//! It is never deleted by its own `ttlSecondsAfterFinished` before the record says how it has
//! ended (see [`ttl`]). When somebody else has deleted it:
//! * What a watch of this process saw complete is complete, and what it saw fail has failed.
//! * What this process knows to have been there, and whose end nobody saw, has failed: it is not
//!   known how far it came. Whoever tries the event again runs it again.
//! * What this process knows nothing of, because it was started meanwhile, is created: either its
//!   predecessor died before creating it, or somebody deleted it while no operator ran.
//!
//! # What is deleted when
//! `hook-succeeded` after all hooks of the event, in reverse order; `hook-failed` for the hook that
//! failed, and then `hook-succeeded` for those before it. Only an object of the same run is
//! deleted so, as a hook of two events may have been created again for the other one. Definitions
//! of kinds are never deleted, nor is what belongs to others.

mod memory;
mod progress;
mod removal;
mod ttl;

use helm_core::manifest::hook::{DeletePolicy, OutputLogPolicy, at_event};
use helm_core::manifest::{Hook, HookEvent, HookPhase, ManifestObject, ObjectKey};
use helm_core::release::Release;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::deploy::Stored;
use super::live::{Live, Place, place};
use super::{ActionContext, ActionError, Progress, hook_logs, objects, run_id};
use crate::cluster::apply::{Apply, ApplyError, Claim, apply};
use crate::cluster::delete::{Propagation, delete};
use crate::cluster::ownership::{ForeignOwner, Ownership, RUN_LABEL, label_value, mark, ownership};
use crate::cluster::read;
use crate::controller::WatchState;
use crate::readiness::{HookOutcome, View, hook_outcome};

pub(super) use memory::HookMemory;
use progress::Attempt;
pub(super) use removal::remove_all;
use removal::{located, remove, remove_succeeded};

/// An attempt at an event, and the label of its objects.
struct Run {
    attempt: Attempt,
    label: String,
}

impl Run {
    fn of(stored: &Stored, event: &HookEvent) -> Self {
        let attempt = Attempt::of(&stored.release, event);
        // A release that was uninstalled by hand begins again with the first revision, but with
        // another record.
        let step = format!("{event}-{}", attempt.number);
        let run = run_id(&stored.meta.uid, stored.release.revision.0, &step);
        Self {
            attempt,
            label: label_value(&run),
        }
    }
}

/// How a hook is after a look at its objects.
struct Look {
    outcome: HookOutcome,
    /// Whether this look has created an object that is awaited.
    created: bool,
}

/// Runs what is left of an event's hooks.
pub async fn run(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut Stored,
    event: &HookEvent,
) -> Result<Progress, ActionError> {
    if context.disable_hooks {
        return Ok(Progress::Done);
    }
    let run = Run::of(stored, event);
    if live.hooks.has_ended(&run.label) {
        return Ok(Progress::Done);
    }
    let mut ended = Vec::new();
    for index in order(&stored.release, event) {
        let Some(hook) = stored.release.hooks.get(index).cloned() else {
            continue;
        };
        let known = run.attempt.execution(&stored.release, &hook);
        if known.phase == HookPhase::Succeeded {
            ended.push(hook);
            continue;
        }
        let begins = known.phase != HookPhase::Running;
        if begins {
            set_phase(context, stored, &run, index, HookPhase::Running).await?;
        }
        let look = look(context, &mut live.hooks, &hook, &run.label, begins).await?;
        match look.outcome {
            HookOutcome::Succeeded => {
                set_phase(context, stored, &run, index, HookPhase::Succeeded).await?;
                hook_logs::tell(context, &hook, &OutputLogPolicy::HookSucceeded).await;
                settle(context, live, &hook, &DeletePolicy::HookSucceeded).await?;
                ended.push(hook);
            }
            HookOutcome::Running => {
                let late = known.started_at.is_some_and(|began| {
                    let age = context.now.duration_since(began.instant());
                    !begins && age.unsigned_abs() > context.timeout
                });
                if late && !look.created {
                    let message = format!("it did not end within {:?}", context.timeout);
                    return fail(context, live, stored, &run, index, &ended, message).await;
                }
                if late {
                    // The process that began it died before it created anything.
                    set_phase(context, stored, &run, index, HookPhase::Running).await?;
                }
                return Ok(Progress::Waiting {
                    why: format!("{event} hook {}", hook.name),
                });
            }
            HookOutcome::Failed(message) => {
                return fail(context, live, stored, &run, index, &ended, message).await;
            }
        }
    }
    remove_succeeded(context, &ended, &run.label).await?;
    live.hooks.end(&run.label);
    Ok(Progress::Done)
}

/// The hooks of an event in the order in which they run.
fn order(release: &Release, event: &HookEvent) -> Vec<usize> {
    let position = |hook: &Hook| {
        let mut all = release.hooks.iter();
        all.position(|known| std::ptr::eq(known, hook))
    };
    let hooks = at_event(&release.hooks, event).into_iter();
    hooks.filter_map(position).collect()
}

/// Records a failure and cleans up as the policies say.
async fn fail(
    context: &ActionContext<'_>,
    live: &mut Live,
    stored: &mut Stored,
    run: &Run,
    index: usize,
    ended: &[Hook],
    message: String,
) -> Result<Progress, ActionError> {
    set_phase(context, stored, run, index, HookPhase::Failed).await?;
    let hook = stored.release.hooks.get(index).cloned().unwrap_or_default();
    hook_logs::tell(context, &hook, &OutputLogPolicy::HookFailed).await;
    settle(context, live, &hook, &DeletePolicy::HookFailed).await?;
    if hook.has_delete_policy(&DeletePolicy::HookFailed) {
        remove(context, &hook, Some(&run.label)).await?;
    }
    remove_succeeded(context, ended, &run.label).await?;
    Err(ActionError::Hook {
        event: run.attempt.event.as_str().to_owned(),
        name: hook.name,
        message,
    })
}

/// Takes down how far a hook has come, and writes the record.
async fn set_phase(
    context: &ActionContext<'_>,
    stored: &mut Stored,
    run: &Run,
    index: usize,
    phase: HookPhase,
) -> Result<(), ActionError> {
    let attempt = &run.attempt;
    attempt.set(&mut stored.release, index, phase, context.now);
    context.save(stored).await?;
    Ok(())
}

/// Lets go of the Jobs and Pods of a hook whose end is recorded; `policy` is the one that may
/// delete them now.
async fn settle(
    context: &ActionContext<'_>,
    live: &mut Live,
    hook: &Hook,
    policy: &DeletePolicy,
) -> Result<(), ActionError> {
    if !hook.has_delete_policy(policy) {
        ttl::release(context, &live.hooks, hook).await?;
    }
    for object in objects(&hook.manifest, 0)? {
        if is_awaited(object.key())
            && let Some(key) = located(context, object.key()).await?
        {
            live.hooks.forget(&key);
        }
    }
    Ok(())
}

/// Creates the hook's objects where they are missing and says how they are; `begins` when nothing
/// of this run can be there yet.
async fn look(
    context: &ActionContext<'_>,
    memory: &mut HookMemory,
    hook: &Hook,
    run: &str,
    begins: bool,
) -> Result<Look, ActionError> {
    for object in objects(&hook.manifest, 0)? {
        let look = look_at(context, memory, hook, &object, run, begins).await?;
        if look.outcome != HookOutcome::Succeeded {
            return Ok(look);
        }
    }
    Ok(HookOutcome::Succeeded.into())
}

async fn look_at(
    context: &ActionContext<'_>,
    memory: &mut HookMemory,
    hook: &Hook,
    object: &ManifestObject,
    run: &str,
    begins: bool,
) -> Result<Look, ActionError> {
    let place = place(
        context.cluster,
        context.registry,
        context.operator,
        context.namespaces,
        object.key(),
        context.namespace,
    )
    .await
    .map_err(ApplyError::from)?;
    // What every watch shows as absent need not be read: if it is there all the same, the request
    // that creates it is refused.
    let absent = begins
        && place.guard.state() == WatchState::Synced
        && place
            .guard
            .get(place.key.namespace.as_deref(), &place.key.name)
            .is_none();
    if absent {
        match create(context, memory, object, &place, run).await {
            Err(ActionError::Apply(ApplyError::Exists { .. })) => {}
            answer => return answer,
        }
    }
    let live = read::get(context.cluster, &place.key).await?;
    let metadata = live.as_ref().map(metadata_of).unwrap_or_default();
    if let Some(live) = live.as_ref().filter(|_| is_of_run(&metadata, run)) {
        let outcome = hook_outcome(&gvk_of(object), &View::of(live));
        if is_awaited(&place.key) {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (uid, version) = (text(&metadata.uid), text(&metadata.resource_version));
            memory.saw(&place.key, run, &uid, &version, &place.guard);
        }
        return Ok(outcome.into());
    }
    if let Some(outcome) = memory.fate(&place.key, run) {
        return Ok(outcome.into());
    }
    if live.is_none() {
        return create(context, memory, object, &place, run).await;
    }
    Ok(replace(context, hook, object, &place, &metadata)
        .await?
        .into())
}

/// Makes way for an object whose name another one has, left of an earlier run or somebody else's.
async fn replace(
    context: &ActionContext<'_>,
    hook: &Hook,
    object: &ManifestObject,
    place: &Place,
    old: &ObjectMeta,
) -> Result<HookOutcome, ActionError> {
    let key = &place.key;
    if let Some(owner) = another_owner(context, old) {
        return Ok(HookOutcome::Failed(format!(
            "{key} exists already: {owner}"
        )));
    }
    if old.deletion_timestamp.is_some() {
        return Ok(HookOutcome::Running);
    }
    if is_definition(key) {
        // To delete it would delete every object of its kind.
        apply(
            context.cluster,
            request(context, object, place, None, Claim::Unproven),
        )
        .await?;
        return Ok(HookOutcome::Succeeded);
    }
    if !hook.has_delete_policy(&DeletePolicy::BeforeHookCreation) {
        return Ok(HookOutcome::Failed(format!(
            "{key} exists already; delete it, or add before-hook-creation to the hook's delete policies"
        )));
    }
    let uid = old.uid.as_deref().unwrap_or_default();
    delete(context.cluster, key, uid, Propagation::Background).await?;
    Ok(HookOutcome::Running)
}

/// Creates an object of a run.
async fn create(
    context: &ActionContext<'_>,
    memory: &mut HookMemory,
    object: &ManifestObject,
    place: &Place,
    run: &str,
) -> Result<Look, ActionError> {
    let mut request = request(context, object, place, Some(run), Claim::Absent);
    ttl::hold(&mut request.object);
    let made = apply(context.cluster, request).await?;
    if !is_awaited(&place.key) {
        return Ok(HookOutcome::Succeeded.into());
    }
    let version = &made.resource_version;
    memory.saw(&place.key, run, &made.uid, version, &place.guard);
    Ok(Look {
        outcome: HookOutcome::Running,
        created: true,
    })
}

/// How an object is sent.
fn request<'c>(
    context: &'c ActionContext<'_>,
    object: &ManifestObject,
    place: &Place,
    run: Option<&'c str>,
    claim: Claim,
) -> Apply<'c> {
    let marks = context.marks(run, true);
    let mut body = object.object().clone();
    mark(&mut body, &marks, place.kind.scope);
    Apply {
        object: body,
        claim,
        claimant: context.claimant(),
        policy: &context.policy,
    }
}

/// To whom an object of a hook's name belongs, where that is somebody else. One that belongs to
/// nobody may be left of a run of Helm's command line, which marks no hooks.
fn another_owner(context: &ActionContext<'_>, live: &ObjectMeta) -> Option<ForeignOwner> {
    match ownership(live, &context.claimant()) {
        Ownership::Foreign(ForeignOwner::Nobody) | Ownership::Ours | Ownership::Release => None,
        Ownership::Foreign(owner) => Some(owner),
    }
}

/// Whether a hook of this kind is awaited; any other has succeeded when it is there.
fn is_awaited(key: &ObjectKey) -> bool {
    matches!(
        (key.group.as_str(), key.kind.as_str()),
        ("batch", "Job") | ("", "Pod")
    )
}

fn is_definition(key: &ObjectKey) -> bool {
    key.kind == "CustomResourceDefinition"
}

fn is_of_run(metadata: &ObjectMeta, run: &str) -> bool {
    let labels = metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(RUN_LABEL))
        .map(String::as_str)
        == Some(run)
}

fn metadata_of(live: &Value) -> ObjectMeta {
    let metadata = live.get("metadata").cloned().unwrap_or_default();
    serde_json::from_value(metadata).unwrap_or_default()
}

fn gvk_of(object: &ManifestObject) -> GroupVersionKind {
    let key = object.key();
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

impl From<HookOutcome> for Look {
    fn from(outcome: HookOutcome) -> Self {
        Self {
            outcome,
            created: false,
        }
    }
}
