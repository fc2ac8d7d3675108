//! Deletes the objects of hooks: according to their delete policies, and with the release.

use helm_core::manifest::hook::DeletePolicy;
use helm_core::manifest::{Hook, HookPhase, ObjectKey};
use helm_core::release::Release;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_objects::delete::{
    Propagation, Verdict, Which, delete, judge_contents, metadata, release_kept,
};
use kube_objects::locate::locate;
use kube_objects::ownership::{RUN_LABEL, is_referenced};

use super::leftover::Interrupted;
use crate::action::context::{ActionContext, StoredRelease, objects};
use crate::action::error::ActionError;

/// Deletes the objects of the hooks with the policy `hook-succeeded` that succeeded in a run, in
/// reverse order.
pub(super) async fn remove_succeeded(
    context: &ActionContext<'_>,
    ended: &[Hook],
    run: &str,
) -> Result<(), ActionError> {
    for hook in ended.iter().rev() {
        if hook.has_delete_policy(&DeletePolicy::HookSucceeded) {
            remove(context, hook, Some(run), false).await?;
        }
    }
    Ok(())
}

/// Deletes the objects of a hook, of one run or of any. Objects that are kept or not the release's
/// stay; `kept` says that all are kept.
pub(super) async fn remove(
    context: &ActionContext<'_>,
    hook: &Hook,
    run: Option<&str>,
    kept: bool,
) -> Result<(), ActionError> {
    for object in objects(&hook.manifest, 0)? {
        if is_definition(object.key()) {
            continue;
        }
        let Some(key) = locate(context.cluster, object.key(), context.namespace).await? else {
            continue;
        };
        let Some(live) = metadata(context.cluster, &key).await? else {
            continue;
        };
        if run.is_some_and(|run| !is_of_run(&live, run)) {
            continue;
        }
        let (claimant, rules) = (
            context.claimant(),
            (None, kept || object.is_kept(), Which::All),
        );
        match judge_contents(context.cluster, &key, &live, &claimant, rules).await? {
            Verdict::Delete { uid } => {
                delete(context.cluster, &key, &uid, Propagation::Background).await?;
            }
            Verdict::Kept { uid } | Verdict::Protected { uid, .. } if is_referenced(&live) => {
                release_kept(context.cluster, &key, &uid, context.primary).await?;
            }
            Verdict::Kept { .. }
            | Verdict::Protected { .. }
            | Verdict::Gone
            | Verdict::Foreign(_)
            | Verdict::Recreated
            | Verdict::Older
            | Verdict::OfHook => {}
        }
    }
    Ok(())
}

/// Deletes the objects that interrupted runs of a record have left. Nothing would tell later that
/// they are ours.
pub(in crate::action) async fn remove_interrupted(
    context: &ActionContext<'_>,
    stored: &StoredRelease,
) -> Result<(), ActionError> {
    let interrupted = Interrupted::of([stored]);
    for (hook, run) in interrupted.of_hooks(&stored.release.hooks) {
        remove(context, hook, Some(run), false).await?;
    }
    Ok(())
}

/// Deletes the remaining objects of all hooks of these records that have run, or only removes their owner references
/// if they are to be kept.
pub(in crate::action) async fn remove_all(
    context: &ActionContext<'_>,
    records: impl Iterator<Item = &Release>,
    kept: bool,
) -> Result<(), ActionError> {
    let has_run =
        |hook: &&Hook| hook.last_run.phase != HookPhase::None || !hook.event_runs.is_empty();
    let mut hooks: Vec<&Hook> = Vec::new();
    for hook in records.flat_map(|release| release.hooks.iter().filter(has_run)) {
        if hooks.iter().all(|known| known.manifest != hook.manifest) {
            hooks.push(hook);
        }
    }
    for hook in hooks {
        remove(context, hook, None, kept).await?;
    }
    Ok(())
}

pub(super) fn is_definition(key: &ObjectKey) -> bool {
    key.kind == "CustomResourceDefinition"
}

pub(super) fn is_of_run(metadata: &ObjectMeta, run: &str) -> bool {
    let labels = metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(RUN_LABEL))
        .map(String::as_str)
        == Some(run)
}
