//! Lets an owner go that is being deleted, and leaves the objects and the records of its release. An owner of its name
//! takes them over, since records belong to a name.

use kube_objects::Cluster;

use super::super::memory::KnownRelease;
use super::super::owner::Remedy;
use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;
use super::stranded::Deleter;
use super::unbind::unbind_release;
use super::uninstall::{held_back, own_records};
use crate::event::EventReason;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    let owner = &context.subject.owner;
    // The cache may be stale.
    let Some(present) = owner.read().await? else {
        return Ok(Report::gone());
    };
    if present.deleted.is_none() || !present.is_held {
        return Ok(Report::gone());
    }
    let own = own_records(context).await?;
    if own.last().is_none_or(|latest| !latest.unowned) {
        let deleter = Deleter::of(context, &own).await?;
        match cluster_of(context, &deleter) {
            Some(cluster) => unbind_release(context, memory, cluster, &own).await?,
            None if own.is_empty() => {}
            None => return Ok(held_back(unknown_account(context))),
        }
    }
    if let Some(latest) = own.last() {
        let (name, revision) = (&context.target.name, latest.revision);
        tracing::info!(release = %name, namespace = context.target.namespace, revision = revision.0, "left the release, as its deletion policy says");
        let note = format!(
            "the objects and the records of release {name} stay at revision {revision}, as the deletion policy Orphan says"
        );
        let notices = context.notices;
        notices.tell(EventReason::ReleaseOrphaned, "Orphan", note);
    }
    owner.release(&present).await?;
    Ok(Report::gone())
}

fn cluster_of<'a>(context: &ActContext<'a>, deleter: &'a Deleter) -> Option<&'a Cluster> {
    match deleter {
        Deleter::Own => Some(&context.target.cluster),
        Deleter::Recorded(account) => Some(&account.cluster),
        Deleter::Unknown => None,
    }
}

/// Says why the objects cannot be left.
fn unknown_account(context: &ActContext<'_>) -> String {
    let error = context.subject.error.as_ref();
    let why = error
        .map(|error| error.text().to_owned())
        .unwrap_or_default();
    format!(
        "{why}; no release record proves as which service account the release was deployed, so that the owner references of its objects stay, and garbage collection would delete them with their owner: {}",
        context.subject.owner.remedy(Remedy::NameAccount)
    )
}
