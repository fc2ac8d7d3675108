//! Errors of applies, as the server answers them.

use super::path;
use super::updater::Conflict;

/// Reason why an object is not applied or its fields are not managed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// 409: others own fields that the applied object changes.
    #[error("{message}")]
    Conflict {
        /// The text of the answer.
        message: String,
        /// The fields with their owners.
        causes: Vec<Cause>,
    },
    /// 400: the applied object cannot be one.
    #[error("{0}")]
    BadRequest(String),
    /// 500 without a reason: the applied object has not its type.
    #[error("{0}")]
    Internal(String),
    /// The real server would do something that is not known here.
    #[error("not modelled: {0}")]
    NotModelled(String),
}

/// One field of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// The path, such as `.spec.replicas`.
    pub(crate) field: String,
    /// The text with the manager.
    pub(crate) message: String,
}

impl ApplyError {
    pub(super) fn conflicts(conflicts: &[Conflict]) -> Self {
        let causes = conflicts.iter().map(|conflict| Cause {
            field: path::text(&conflict.path),
            message: format!("conflict with {}", conflict.manager.readable()),
        });
        let message = match conflicts {
            [only] => format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                only.manager.readable(),
                path::text(&only.path)
            ),
            all => {
                let mut managers: Vec<_> = all.iter().map(|one| &one.manager).collect();
                managers.sort_by_key(|manager| manager.text());
                managers.dedup();
                let mut lines = Vec::new();
                for manager in managers {
                    lines.push(format!("conflicts with {}:", manager.readable()));
                    let theirs = all.iter().filter(|one| one.manager == *manager);
                    lines.extend(theirs.map(|one| format!("- {}", path::text(&one.path))));
                }
                format!(
                    "Apply failed with {} conflicts: {}",
                    all.len(),
                    lines.join("\n")
                )
            }
        };
        Self::Conflict {
            message,
            causes: causes.collect(),
        }
    }
}
