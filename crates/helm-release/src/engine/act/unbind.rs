//! Removes the owner references of objects that are to outlive the owner: those that somebody has annotated to be
//! kept, or all.

use kube_objects::Cluster;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;
use super::uninstall::readable;
use crate::action::bound::unbind;
use crate::action::uninstall::unbind_all;
use crate::release::RecordMeta;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    unbind_kept(context, memory).await?;
    let target = context.target;
    let unowned = context.subject.is_unowned(&context.setup.policy);
    let own = target.own(&context.observation.history);
    if let Some(latest) = own.last().filter(|latest| latest.unowned != unowned) {
        if unowned {
            unbind_release(context, memory, &target.cluster, &own).await?;
        }
        context.access.store.mark_unowned(latest, unowned).await?;
    }
    Ok(Report::replan())
}

/// Removes the owner references of objects that somebody has annotated to be kept.
pub(super) async fn unbind_kept(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<(), ActError> {
    let target = context.target;
    let kept = memory.live.bound(&target.primary.uid);
    unbind(&target.cluster, &mut memory.live, &target.primary, kept).await?;
    Ok(())
}

/// Removes the owner references of all objects of a release with these records, oldest first.
pub(super) async fn unbind_release(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    cluster: &Cluster,
    own: &[RecordMeta],
) -> Result<(), ActError> {
    let live = &mut memory.live;
    let known = live.keys().cloned().collect();
    unbind(cluster, live, &context.target.primary, known).await?;
    if let Some((stored, earlier)) = readable(context, own).await? {
        let mut action = context.action(ActionKind::Uninstall, &[]);
        action.cluster = cluster;
        unbind_all(&action, live, &stored, &earlier).await?;
    }
    Ok(())
}
