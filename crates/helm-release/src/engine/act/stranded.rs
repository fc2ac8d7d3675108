//! The uninstall of a release whose service account is unknown, or may not delete it: it is never
//! done with the operator's own permissions.
//!
//! * `serviceAccountName` yields no account: the objects are deleted as the account that a record
//!   proves, and no hook runs.
//! * No record proves one, or the account is refused: the owner stays, and its condition
//!   names the account and the ways out.
//! * The namespace of the release is being deleted, where accounts go before owners: the
//!   namespace deletes what is inside. What is outside stays, and an event names it.

use std::collections::BTreeSet;

use helm_core::manifest::{HookPhase, ObjectKey, parse_objects};
use kube::core::GroupVersionKind;
use kube_objects::ownership::placed;
use kube_objects::with_causes;
use kube_objects::{AccountName, DiscoveryError, read};

use super::super::access::{Account, Who};
use super::super::owner::Remedy;
use super::context::ActContext;
use super::error::ActError;
use crate::action::StoredRelease;
use crate::event::EventReason;
use crate::event::Notice;
use crate::release::RecordMeta;

/// The account as which a release is deleted.
pub(super) enum Deleter {
    /// Account of the owner.
    Own,
    /// Account that a record proves; the owner names none.
    Recorded(Account),
    Unknown,
}

impl Deleter {
    /// Finds the account for the records of a release, oldest first.
    pub(super) async fn of(context: &ActContext<'_>, own: &[RecordMeta]) -> Result<Self, ActError> {
        if context.target.who != Who::Nobody {
            return Ok(Self::Own);
        }
        for meta in own.iter().rev() {
            let Some(name) = meta.account.as_ref().filter(|_| meta.proof.is_some()) else {
                continue;
            };
            let is_proven = context
                .load_if_readable(meta)
                .await?
                .is_some_and(|stored| stored.proven);
            let key = context.target.key();
            if is_proven && let Ok(account) = context.access.account(&key, name) {
                return Ok(Self::Recorded(account));
            }
        }
        Ok(Self::Unknown)
    }

    /// Returns the service account; `None` if it is unknown, or the operator's own.
    fn name<'a>(&'a self, context: &'a ActContext<'_>) -> Option<&'a AccountName> {
        match self {
            Self::Own => context.target.who.impersonated(),
            Self::Recorded(account) => account.who.impersonated(),
            Self::Unknown => None,
        }
    }

    /// Says why a release is not uninstalled, and what to do. `error` is the refusal of the account.
    pub(super) fn message(&self, context: &ActContext<'_>, error: Option<&ActError>) -> String {
        let owner = &context.subject.owner;
        let way = format!(
            "delete the objects of the release by other means and {}",
            owner.remedy(Remedy::LetGo)
        );
        match (self.name(context), error) {
            (Some(name), Some(error)) => format!(
                "{}; the release is uninstalled as service account {name}: restore the account and its permissions, or {way}",
                with_causes(error)
            ),
            (_, error) => {
                let why = match (error, &context.subject.error) {
                    (Some(error), _) => with_causes(error),
                    (None, Some(error)) => error.text().to_owned(),
                    (None, None) => String::new(),
                };
                format!(
                    "{why}; no release record proves as which service account the release was deployed, so that nothing is deleted: {}, or {way}",
                    owner.remedy(Remedy::NameAccount)
                )
            }
        }
    }
}

/// Returns whether an error says that the account of an owner may not do what the uninstall
/// takes.
pub(super) fn is_refused(context: &ActContext<'_>, error: &ActError) -> bool {
    context.target.who != Who::Operator && error.is_forbidden()
}

/// Leaves a release to its namespace, which is being deleted: deletes its records, and names the
/// objects outside of the namespace in an event.
pub(super) async fn leave(
    context: &ActContext<'_>,
    outside: &BTreeSet<ObjectKey>,
    deleter: &Deleter,
) -> Result<(), ActError> {
    let who = match deleter.name(context) {
        Some(name) => format!("service account {name} may not delete the release any more"),
        None => "the service account of the release is not known".to_owned(),
    };
    let left = if outside.is_empty() {
        String::new()
    } else {
        let names: Vec<String> = outside.iter().map(ToString::to_string).collect();
        format!("; these objects outside of it stay: {}", names.join(", "))
    };
    let note = format!(
        "namespace {} is being deleted with the release in it, and {who}{left}",
        context.target.namespace
    );
    tracing::warn!(
        release = %context.target.name,
        namespace = context.target.namespace,
        account = deleter.name(context).map(ToString::to_string),
        left = outside.len(),
        "a release is left to its namespace, which is being deleted"
    );
    let notice = Notice::new(EventReason::ObjectLeft, "Uninstall", note);
    context
        .notices
        .add(notice.about_namespace(&context.target.namespace));
    let store = &context.access.store;
    store
        .delete_all(&context.target.namespace, &context.target.name)
        .await?;
    Ok(())
}

/// Returns the objects of records, and of their hooks that have run, outside of the namespace of the
/// release. An object that cannot be read counts as existing.
pub(super) async fn outside(
    context: &ActContext<'_>,
    records: &[StoredRelease],
) -> Result<BTreeSet<ObjectKey>, ActError> {
    let (cluster, namespace) = (&context.access.cluster, &context.target.namespace);
    let mut outside = BTreeSet::new();
    for stored in records {
        let release = &stored.release;
        let has_run = release
            .hooks
            .iter()
            .filter(|hook| hook.last_run.phase != HookPhase::None || !hook.event_runs.is_empty());
        let texts = has_run.map(|hook| &hook.manifest);
        for text in std::iter::once(&release.manifest).chain(texts) {
            for object in parse_objects(text)? {
                let key = object.key();
                let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
                let key = match cluster.resolve(&gvk).await {
                    Ok(kind) => placed(key, kind.scope, namespace),
                    Err(DiscoveryError::UnknownKind { .. }) => continue,
                    Err(error) => return Err(error.into()),
                };
                let inside = key.namespace.as_ref() == Some(namespace);
                if !inside && !matches!(read::get_metadata(cluster, &key).await, Ok(None)) {
                    outside.insert(key);
                }
            }
        }
    }
    Ok(outside)
}
