//! Uninstalls the release of an owner that is being deleted, and then removes the
//! finalizer.

use std::collections::BTreeSet;

use helm_core::manifest::{HookEvent, ObjectKey};
use helm_core::release::Status;
use kube_objects::read::ReadError;
use kube_objects::with_causes;

use super::super::desired::inputs;
use super::super::error_kind::ErrorKind;
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::message::Message;
use super::super::owner::Present;
use super::super::report::{Next, Report, StepOutcome, describe};
use super::context::{ActContext, POLL_INTERVAL, waiting};
use super::error::ActError;
use super::record::unproven_record_event;
use super::stranded::{self, Deleter};
use super::{convert, endorse, orphans};
use crate::action::StoredRelease;
use crate::action::uninstall::uninstall;
use crate::action::{ActionError, ActionProgress};
use crate::event::EventReason;
use crate::event::corrupt_record_event;
use crate::release::RecordMeta;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    let subject = context.subject;
    // The cache may be stale: uninstall only after a read from the API server.
    let Some(present) = subject.owner.read().await? else {
        return Ok(Report::gone());
    };
    if present.deleted.is_none() || !present.is_held {
        return Ok(Report::gone());
    }
    let store = &context.access.store;
    let own = own_records(context).await?;
    let deleter = Deleter::of(context, &own).await?;
    let Some((mut stored, earlier)) = readable(context, &own).await? else {
        let found = orphans::find(context, memory).await?;
        let outside = found.iter().map(|object| object.key().clone()).collect();
        let refusal = match orphans::remove(context, memory, found).await {
            Ok(()) => {
                let identity = context.target.primary.identity();
                store.delete_leftover_parts(&identity).await?;
                return finish(context, &own, &present).await;
            }
            Err(error) if stranded::is_refused(context, &error) => error,
            Err(error) => return Err(error),
        };
        if !store.is_ending(&context.target.namespace).await? {
            return Ok(held_back(deleter.message(context, Some(&refusal))));
        }
        return leave(context, &outside, &deleter, &present).await;
    };
    let ended = match &deleter {
        Deleter::Unknown => None,
        deleter => Some(uninstall_as(context, memory, deleter, &mut stored, &earlier).await),
    };
    if !matches!(ended, Some(Ok(_))) {
        for stored in std::iter::once(&stored).chain(&earlier) {
            memory.withhold_record(&stored.release, subject.owner.quoted());
        }
    }
    let refusal = match ended {
        None => None,
        Some(Ok(ActionProgress::Done)) => return finish(context, &own, &present).await,
        Some(Ok(ActionProgress::Waiting { why })) => {
            return Ok(waiting(context, memory, &stored, why));
        }
        Some(Err(error)) if stranded::is_refused(context, &error) => Some(error),
        Some(Err(ActError::Action(ActionError::Read(error)))) if error.is_transient() => {
            return Ok(unread(&stored, &error));
        }
        Some(Err(ActError::Action(error))) if !error.is_transient() => {
            let message =
                Message::from(with_causes(&error)).about(&memory.values(subject.owner.quoted()));
            return Ok(failed(&stored, message));
        }
        Some(Err(error)) => return Err(error),
    };
    if !store.is_ending(&context.target.namespace).await? {
        let message = deleter.message(context, refusal.as_ref());
        return Ok(failed(&stored, message.into()));
    }
    let records: Vec<StoredRelease> = std::iter::once(stored).chain(earlier).collect();
    let outside = stranded::outside(context, &records).await?;
    leave(context, &outside, &deleter, &present).await
}

/// Returns the records of the release, oldest first, in Helm's format.
pub(super) async fn own_records(context: &ActContext<'_>) -> Result<Vec<RecordMeta>, ActError> {
    let history = &context.observation.history;
    if history.is_empty() && context.subject.legacy && convert::convert(context).await? {
        return Ok(context.target.own(&context.target.history(context.access)));
    }
    Ok(context.target.own(history))
}

/// Leaves a release to its namespace, which is being deleted, and removes the finalizer.
async fn leave(
    context: &ActContext<'_>,
    outside: &BTreeSet<ObjectKey>,
    deleter: &Deleter,
    present: &Present,
) -> Result<Report, ActError> {
    stranded::leave(context, outside, deleter).await?;
    context.subject.owner.release(present).await?;
    Ok(Report::gone())
}

/// Deletes the release as this account. Without hooks if the owner does not name it, if
/// they must not run, or if their namespace is being deleted, where nothing can be created.
async fn uninstall_as(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    deleter: &Deleter,
    stored: &mut StoredRelease,
    earlier: &[StoredRelease],
) -> Result<ActionProgress, ActError> {
    let subject = context.subject;
    if stored.meta.status == Status::Superseded {
        // The record of the revision that followed is gone. Once this one is being uninstalled, nothing says so.
        let found = orphans::find(context, memory).await?;
        orphans::remove(context, memory, found).await?;
    }
    let mut action = context.action(ActionKind::Uninstall, &[]);
    if let Deleter::Recorded(account) = deleter {
        action.cluster = &account.cluster;
        action.disable_hooks = true;
    } else if !may_run_hooks(context, memory, stored).await? {
        action.disable_hooks = true;
    }
    let wait = subject.instructions.options.uninstall_wait || context.setup.policy.uninstall.wait;
    let description = subject
        .instructions
        .options
        .uninstall_description
        .as_deref();
    let description = description.unwrap_or(ActionKind::Uninstall.initial_description());
    let live = &mut memory.live;
    let mut ended = uninstall(&action, live, stored, earlier, wait, description).await;
    if !action.disable_hooks && matches!(&ended, Err(error) if error.is_in_ending_namespace()) {
        tracing::warn!(
            release = %context.target.name,
            namespace = context.target.namespace,
            "hooks do not run: their namespace is being deleted"
        );
        action.disable_hooks = true;
        ended = uninstall(&action, live, stored, earlier, wait, description).await;
    }
    Ok(ended?)
}

/// Reports why an owner is not let go.
pub(super) fn held_back(message: String) -> Report {
    let message = Message::from(message);
    Report {
        error: Some(message.clone()),
        ..Report::settle(StepOutcome::Irreconcilable {
            reason: ErrorKind::Chart,
            message,
            kind: Some(ActionKind::Uninstall),
        })
    }
}

/// Reports why a release is not uninstalled.
fn failed(stored: &StoredRelease, message: Message) -> Report {
    let message = message.about_values(&stored.release.config);
    Report::failed(ActionKind::Uninstall, stored, message, Next::Period)
}

/// Removes the finalizer of an owner whose release is gone.
async fn finish(
    context: &ActContext<'_>,
    own: &[RecordMeta],
    present: &Present,
) -> Result<Report, ActError> {
    let revision = own.last().map(|meta| meta.revision);
    let done = context.done(revision, present.deleted);
    done.log(ActionKind::Uninstall.done());
    let (notices, note) = (context.notices, "the release was uninstalled");
    notices.tell(EventReason::UninstallSuccessful, "Uninstall", note);
    context.subject.owner.release(present).await?;
    Ok(Report::gone())
}

/// Returns the report of an uninstall that cannot go on now, because it is not known what is in the
/// cluster. The owner stays until it is.
pub(super) fn unread(stored: &StoredRelease, error: &ReadError) -> Report {
    let text = with_causes(error);
    // A webhook may quote what is to be deleted.
    let message = Message::from(text.as_str()).about_values(&stored.release.config);
    let outcome = StepOutcome::Progressing {
        why: format!("the API server: {text}"),
        release: Some(Box::new(describe(stored))),
    };
    Report {
        error: Some(message),
        retried: true,
        ..Report::new(outcome, Next::After(POLL_INTERVAL))
    }
}

/// Returns whether the hooks of a record may run at the uninstall: the record has a proof, or the
/// chart renders its hooks. Otherwise an event says so.
pub(super) async fn may_run_hooks(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    stored: &mut StoredRelease,
) -> Result<bool, ActError> {
    if stored.proven || !has_hooks(stored) {
        return Ok(true);
    }
    stored.proven = is_rendered(context, memory, stored).await?;
    if !stored.proven {
        context.notices.add(unproven_record_event(&stored.meta));
    }
    Ok(stored.proven)
}

/// Returns whether a record has hooks that run at the uninstall.
fn has_hooks(stored: &StoredRelease) -> bool {
    let mut hooks = stored.release.hooks.iter();
    hooks.any(|hook| {
        let mut events = hook.events.iter();
        events.any(|event| matches!(event, HookEvent::PreDelete | HookEvent::PostDelete))
    })
}

/// Returns whether the chart renders the hooks of a record without a proof; `false` if it does not
/// render.
async fn is_rendered(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    stored: &StoredRelease,
) -> Result<bool, ActError> {
    let (setup, access, subject) = (context.setup, context.access, context.subject);
    let result = match inputs(setup, access, subject, memory, context.notices).await {
        Ok((inputs, _)) => endorse::is_rendered(context, &inputs, &stored.release).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(rendered) => Ok(rendered),
        Err(error) if error.is_transient() => Err(error.into()),
        Err(_) => Ok(false),
    }
}

/// Returns the newest readable record, and the earlier ones, newest first. Those before the deployed one
/// have no objects any more, since later revisions have pruned them; what their hooks have made may be
/// there. `None` if there are no records.
pub(super) async fn readable(
    context: &ActContext<'_>,
    own: &[RecordMeta],
) -> Result<Option<(StoredRelease, Vec<StoredRelease>)>, ActError> {
    let mut records: Vec<StoredRelease> = Vec::new();
    let mut unreadable = None;
    let mut pruned = false;
    for meta in own.iter().rev() {
        match context.load_record(meta).await {
            Ok(mut stored) => {
                if pruned {
                    stored.release.manifest.clear();
                }
                records.push(stored);
            }
            Err(ActError::Store(error)) if error.is_corrupt() => {
                context.notices.add(corrupt_record_event(&error));
                unreadable = Some(error);
            }
            Err(error) => return Err(error),
        }
        let good = matches!(meta.status, Status::Deployed | Status::Superseded);
        pruned = pruned || good && !records.is_empty();
    }
    // Without a manifest it is unknown what to delete, so delete nothing.
    match (records.is_empty(), unreadable) {
        (true, Some(error)) => Err(error.into()),
        (true, None) => Ok(None),
        _ => {
            let newest = records.remove(0);
            Ok(Some((newest, records)))
        }
    }
}
