//! Runs the hooks of an event, as Helm 4 does: by weight, then by name, each awaited.
//!
//! How far a hook is stands in the record: it is `Running` before its object is created and
//! `Succeeded` before the next begins, so that no completed hook runs twice.

use helm_core::manifest::hook::{DeletePolicy, OutputLogPolicy, at_event};
use helm_core::manifest::{Hook, HookEvent, HookPhase, ManifestObject};
use helm_core::release::Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;

use super::deploy::Stored;
use super::live::place;
use super::{ActionContext, ActionError, Progress, hook_logs, objects, run_id};
use crate::cluster::apply::{Apply, Claim, apply};
use crate::cluster::delete::{Propagation, Verdict, delete, verify};
use crate::cluster::ownership::{ForeignOwner, Ownership, RUN_LABEL, mark, ownership};
use crate::cluster::read;
use crate::controller::WatchState;
use crate::readiness::{HookOutcome, View, hook_outcome};

/// Runs what is left of an event's hooks.
pub async fn run(
    context: &ActionContext<'_>,
    stored: &mut Stored,
    event: &HookEvent,
) -> Result<Progress, ActionError> {
    if context.disable_hooks {
        return Ok(Progress::Done);
    }
    let order: Vec<usize> = at_event(&stored.release.hooks, event)
        .into_iter()
        .filter_map(|hook| {
            stored
                .release
                .hooks
                .iter()
                .position(|known| std::ptr::eq(known, hook))
        })
        .collect();
    let run = run_id(
        &context.primary.uid,
        stored.release.revision.0,
        event.as_str(),
    );
    let mut ended = Vec::new();
    for index in order {
        let Some(hook) = stored.release.hooks.get(index).cloned() else {
            continue;
        };
        if hook.last_run.phase == HookPhase::Succeeded {
            ended.push(hook);
            continue;
        }
        let begins = hook.last_run.phase != HookPhase::Running;
        if begins {
            set_phase(context, stored, index, HookPhase::Running).await?;
        }
        match advance(context, &hook, &run, begins).await? {
            HookOutcome::Succeeded => {
                set_phase(context, stored, index, HookPhase::Succeeded).await?;
                hook_logs::tell(context, &hook, &OutputLogPolicy::HookSucceeded).await;
                ended.push(hook);
            }
            HookOutcome::Running => {
                let began = stored
                    .release
                    .hooks
                    .get(index)
                    .and_then(|h| h.last_run.started_at);
                let age = began.map(|began| context.now.duration_since(began.instant()));
                if age.is_some_and(|age| age.unsigned_abs() > context.timeout) {
                    let message = format!("it did not end within {:?}", context.timeout);
                    return fail(context, stored, index, &ended, event, message).await;
                }
                return Ok(Progress::Waiting {
                    why: format!("{} hook {}", event.as_str(), hook.name),
                });
            }
            HookOutcome::Failed(message) => {
                return fail(context, stored, index, &ended, event, message).await;
            }
        }
    }
    for hook in ended.iter().rev() {
        if hook.has_delete_policy(&DeletePolicy::HookSucceeded) {
            remove(context, hook).await?;
        }
    }
    Ok(Progress::Done)
}

/// Records a failure and cleans up as the policies say.
async fn fail(
    context: &ActionContext<'_>,
    stored: &mut Stored,
    index: usize,
    ended: &[Hook],
    event: &HookEvent,
    message: String,
) -> Result<Progress, ActionError> {
    set_phase(context, stored, index, HookPhase::Failed).await?;
    let hook = stored.release.hooks.get(index).cloned().unwrap_or_default();
    hook_logs::tell(context, &hook, &OutputLogPolicy::HookFailed).await;
    if hook.has_delete_policy(&DeletePolicy::HookFailed) {
        remove(context, &hook).await?;
    }
    for hook in ended.iter().rev() {
        if hook.has_delete_policy(&DeletePolicy::HookSucceeded) {
            remove(context, hook).await?;
        }
    }
    Err(ActionError::Hook {
        event: event.as_str().to_owned(),
        name: hook.name,
        message,
    })
}

async fn set_phase(
    context: &ActionContext<'_>,
    stored: &mut Stored,
    index: usize,
    phase: HookPhase,
) -> Result<(), ActionError> {
    if let Some(hook) = stored.release.hooks.get_mut(index) {
        let now = Some(Time::utc(context.now));
        if phase == HookPhase::Running {
            hook.last_run.started_at = now;
            hook.last_run.completed_at = None;
        } else {
            hook.last_run.completed_at = now;
        }
        hook.last_run.phase = phase;
    }
    context.save(stored).await?;
    Ok(())
}

/// Creates the hook's objects where they are missing and says how they are; `begins` when nothing
/// of this run can be there yet.
async fn advance(
    context: &ActionContext<'_>,
    hook: &Hook,
    run: &str,
    begins: bool,
) -> Result<HookOutcome, ActionError> {
    for object in objects(&hook.manifest, 0)? {
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
        // What every watch shows as absent need not be read: where somebody else has the name, the
        // request that creates it is refused.
        let absent = begins
            && place.guard.state() == WatchState::Synced
            && place
                .guard
                .get(place.key.namespace.as_deref(), &place.key.name)
                .is_none();
        let live = if absent {
            None
        } else {
            read::get(context.cluster, &place.key).await?
        };
        let ours = live
            .as_ref()
            .filter(|live| label(live, RUN_LABEL) == Some(run));
        if let Some(live) = ours {
            let gvk = gvk_of(&object);
            match hook_outcome(&gvk, &View::of(live)) {
                HookOutcome::Succeeded => continue,
                other => return Ok(other),
            }
        }
        if let Some(old) = &live {
            if let Some(owner) = another_owner(context, old) {
                return Ok(HookOutcome::Failed(format!(
                    "{} exists already: {owner}",
                    place.key
                )));
            }
            if hook.has_delete_policy(&DeletePolicy::BeforeHookCreation) {
                let uid = old
                    .pointer("/metadata/uid")
                    .and_then(|uid| uid.as_str())
                    .unwrap_or_default();
                delete(context.cluster, &place.key, uid, Propagation::Background).await?;
                return Ok(HookOutcome::Running);
            }
            return Ok(HookOutcome::Failed(format!("{} exists already", place.key)));
        }
        let marks = context.marks(Some(run), true);
        let mut body = object.object().clone();
        mark(&mut body, &marks, place.kind.scope);
        let request = Apply {
            object: body,
            claim: Claim::Unproven,
            claimant: marks.claimant(),
            policy: &context.policy,
        };
        apply(context.cluster, request).await?;
        if matches!(object.key().kind.as_str(), "Job" | "Pod") {
            return Ok(HookOutcome::Running);
        }
    }
    Ok(HookOutcome::Succeeded)
}

/// Deletes the objects of a hook, as far as they are ours and not to be kept.
async fn remove(context: &ActionContext<'_>, hook: &Hook) -> Result<(), ActionError> {
    for object in objects(&hook.manifest, 0)? {
        if object.key().kind == "CustomResourceDefinition" {
            continue;
        }
        let mut key = object.key().clone();
        key.namespace
            .get_or_insert_with(|| context.namespace.to_owned());
        let marks = context.marks(None, true);
        let kept = object.is_kept();
        let verdict = verify(context.cluster, &key, &marks.claimant(), None, kept).await?;
        if let Verdict::Delete { uid } = verdict {
            delete(context.cluster, &key, &uid, Propagation::Background).await?;
        }
    }
    Ok(())
}

/// To whom an object of a hook's name belongs, where that is somebody else. One that belongs to
/// nobody may be left of a run of Helm's command line, which marks no hooks.
fn another_owner(context: &ActionContext<'_>, live: &serde_json::Value) -> Option<ForeignOwner> {
    let metadata = live.get("metadata").cloned().unwrap_or_default();
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap_or_default();
    match ownership(&metadata, &context.marks(None, true).claimant()) {
        Ownership::Foreign(ForeignOwner::Nobody) | Ownership::Ours | Ownership::Release => None,
        Ownership::Foreign(owner) => Some(owner),
    }
}

/// Deletes what is left of all hooks of a release.
pub(super) async fn remove_all(
    context: &ActionContext<'_>,
    hooks: &[Hook],
) -> Result<(), ActionError> {
    for hook in hooks
        .iter()
        .filter(|hook| hook.last_run.phase != HookPhase::None)
    {
        remove(context, hook).await?;
    }
    Ok(())
}

fn label<'v>(object: &'v serde_json::Value, name: &str) -> Option<&'v str> {
    object.get("metadata")?.get("labels")?.get(name)?.as_str()
}

fn gvk_of(object: &ManifestObject) -> GroupVersionKind {
    let key = object.key();
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}
