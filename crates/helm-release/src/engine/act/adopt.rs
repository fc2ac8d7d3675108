//! Adopts a release that a Go operator or `helm install` created, and a record of this operator
//! whose proof is missing.
//!
//! Its records get this operator's labels. If its objects and hooks are those that the chart renders
//! for the owner, no new revision is created: replacing the operator neither restarts Pods
//! nor generates new random passwords. Otherwise the chart is rendered anew, as a new revision.

use helm_core::release::{Release, Revision};

use super::super::report::Report;
use super::context::ActContext;
use super::endorse;
use super::error::ActError;
use crate::event::EventReason;
use crate::release::InputsDigest;

pub(super) async fn run(context: &ActContext<'_>, revision: Revision) -> Result<Report, ActError> {
    let stored = context.load(revision).await?;
    let digest = digest_of(context, &stored.release).await?;
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    // Remove the owner references of all older records first: garbage collection would delete them.
    let store = &context.access.store;
    let is_ours = |meta: &crate::release::RecordMeta| {
        meta.cr.as_ref() == Some(&context.target.primary.identity())
            && meta.operator.as_ref() == Some(&context.setup.identity.operator)
            && meta.owners.is_empty()
    };
    let history = context.observation.history.iter();
    for meta in history.filter(|meta| meta.revision != revision && !is_ours(meta)) {
        let tags = context.tags(meta.digest.clone(), None, false);
        store.adopt(meta, &tags, None).await?;
    }
    let same = digest.is_some();
    let tags = context.tags(digest, None, same);
    let release = Some(&stored.release);
    store.adopt(&stored.meta, &tags, release).await?;
    let name = &context.target.name;
    let done = context.done(Some(revision), Some(context.target.now));
    done.log(if same {
        "adopted the release as it is"
    } else {
        "adopted the release; its inputs differ, so an upgrade follows"
    });
    let note = if is_ours(&stored.meta) && same {
        format!("the chart renders revision {revision} of release {name}, which had no valid proof")
    } else if is_ours(&stored.meta) {
        format!(
            "revision {revision} of release {name} has no valid proof and is not what the chart renders; upgrading"
        )
    } else {
        format!("adopted revision {revision} of release {name}")
    };
    let notices = context.notices;
    notices.tell(EventReason::ReleaseAdopted, "Adopt", note);
    Ok(Report::replan())
}

/// Returns the digest of the desired inputs if the chart renders a record that was written by
/// someone else; `None` if it does not render.
///
/// # Errors
/// When the render may succeed later: a new revision would generate new passwords.
pub(super) async fn digest_of(
    context: &ActContext<'_>,
    record: &Release,
) -> Result<Option<InputsDigest>, ActError> {
    let Some(desired) = context.desired() else {
        return Ok(None);
    };
    let inputs = &desired.inputs;
    match endorse::is_rendered(context, inputs, record).await {
        Ok(same) => Ok(same.then(|| inputs.digest.clone())),
        Err(error) if error.is_transient() => Err(error.into()),
        Err(_) => Ok(None),
    }
}
