//! Uninstalls the release of a custom resource that is being deleted, and then removes the
//! finalizer.

use helm_core::manifest::HookEvent;
use helm_core::release::Status;
use kube::ResourceExt;

use super::super::desired::{corrupt_record_event, inputs};
use super::super::events::Notice;
use super::super::finalizer;
use super::super::kind::ActionKind;
use super::super::memory::Memory;
use super::super::report::{Failure, Next, Report, StepOutcome, describe};
use super::super::status::chain;
use super::record::unproven_record_event;
use super::{ActContext, ActError, POLL_INTERVAL, convert, endorse, orphans};
use crate::action::ActionProgress;
use crate::action::deploy::StoredRelease;
use crate::action::log::{Details, Done};
use crate::action::uninstall::uninstall;
use crate::reasons::EventReason;
use crate::release::RecordMeta;

pub(super) async fn run(context: &ActContext<'_>, memory: &mut Memory) -> Result<Report, ActError> {
    let subject = context.subject;
    // The cache may be stale: uninstall only after a read from the API server.
    let Some(fresh) = finalizer::read(context.access, subject).await? else {
        return Ok(Report::gone());
    };
    let same = fresh.uid().as_deref() == Some(subject.primary.uid.as_str());
    if !same || fresh.metadata.deletion_timestamp.is_none() || !finalizer::is_present(&fresh) {
        return Ok(Report::gone());
    }
    let store = &context.access.store;
    let mut history = context.observation.history.clone();
    if history.is_empty()
        && finalizer::is_legacy(&subject.resource)
        && convert::convert(context).await?
    {
        history = store.history(&subject.namespace, &subject.name);
    }
    let own: Vec<RecordMeta> = history
        .into_iter()
        .filter(|meta| subject.owns(meta))
        .collect();
    if let Some((mut stored, earlier)) = readable(context, &own).await? {
        let mut action = context.action(ActionKind::Uninstall, &[]);
        if !may_run_hooks(context, memory, &mut stored).await? {
            action.disable_hooks = true;
        }
        let wait = subject.annotations.options.uninstall_wait || context.setup.watch.uninstall.wait;
        let description = subject.annotations.options.uninstall_description.as_deref();
        let description = description.unwrap_or(ActionKind::Uninstall.initial_description());
        let ended = uninstall(
            &action,
            &mut memory.live,
            &mut stored,
            &earlier,
            wait,
            description,
        )
        .await;
        match ended {
            Ok(ActionProgress::Done) => {}
            Ok(ActionProgress::Waiting { why }) => {
                let release = Some(Box::new(describe(&stored)));
                return Ok(Report::new(
                    StepOutcome::Progressing { why, release },
                    Next::After(POLL_INTERVAL),
                ));
            }
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => {
                let message = chain(&error);
                let failure = Failure {
                    kind: ActionKind::Uninstall,
                    message: message.clone(),
                    release: describe(&stored),
                    next: None,
                };
                return Ok(Report {
                    error: Some(message),
                    ..Report::settle(StepOutcome::Failed(Box::new(failure)))
                });
            }
        }
    } else {
        orphans::remove(context, memory).await?;
        let identity = subject.primary.identity();
        store.delete_leftover_parts(&identity).await?;
    }
    let deleted = fresh.metadata.deletion_timestamp.as_ref();
    Done {
        primary: &subject.primary,
        release: &subject.name,
        revision: own.last().map(|meta| meta.revision),
        began: deleted.map(|deleted| deleted.0),
        details: Details::default(),
    }
    .log(ActionKind::Uninstall.done());
    context.notices.add(Notice::new(
        EventReason::UninstallSuccessful,
        "Uninstall",
        "the release was uninstalled",
    ));
    finalizer::remove(context.access, subject, &fresh).await?;
    Ok(Report::gone())
}

/// Returns whether the hooks of a record may run at the uninstall: the record has a proof, or the
/// chart renders its hooks. Otherwise an event says so.
pub(super) async fn may_run_hooks(
    context: &ActContext<'_>,
    memory: &mut Memory,
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
    memory: &mut Memory,
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

/// Returns the newest readable record, and the earlier ones back to the deployed one, whose objects
/// may exist. `None` if there are no records.
pub(super) async fn readable(
    context: &ActContext<'_>,
    own: &[RecordMeta],
) -> Result<Option<(StoredRelease, Vec<StoredRelease>)>, ActError> {
    let mut records = Vec::new();
    let mut unreadable = None;
    for meta in own.iter().rev() {
        match context.load_record(meta).await {
            Ok(stored) => records.push(stored),
            Err(ActError::Store(error)) if error.is_corrupt() => {
                context.notices.add(corrupt_record_event(&error));
                unreadable = Some(error);
            }
            Err(error) => return Err(error),
        }
        let good = matches!(meta.status, Status::Deployed | Status::Superseded);
        if good && !records.is_empty() {
            break;
        }
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
