//! Differences between Helm's actions: hook events and messages.

use helm_core::manifest::HookEvent;
use helm_core::release::{ReleaseName, Revision, Status as ReleaseStatus};

use super::instructions::ReleaseOptions;

/// Kind of a Helm action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// Helm's `install`.
    Install,
    /// Helm's `upgrade`.
    Upgrade,
    /// Helm's `rollback`.
    Rollback,
    /// Helm's `uninstall`.
    Uninstall,
    /// Helm's `test`.
    Test,
}

impl ActionKind {
    /// Returns the action that a pending record belongs to.
    pub(super) fn of(status: ReleaseStatus) -> Self {
        match status {
            ReleaseStatus::PendingUpgrade => Self::Upgrade,
            ReleaseStatus::PendingRollback => Self::Rollback,
            _ => Self::Install,
        }
    }

    /// Returns the status of a record while the action is in progress.
    pub(super) fn pending(self) -> ReleaseStatus {
        match self {
            Self::Upgrade => ReleaseStatus::PendingUpgrade,
            Self::Rollback => ReleaseStatus::PendingRollback,
            _ => ReleaseStatus::PendingInstall,
        }
    }

    /// Returns Helm's description of a record when the action begins.
    pub(super) fn initial_description(self) -> &'static str {
        match self {
            Self::Install => "Initial install underway",
            Self::Upgrade => "Preparing upgrade",
            Self::Rollback => "Preparing rollback",
            Self::Uninstall => "Deletion in progress (or silently failed)",
            Self::Test => "Running tests",
        }
    }

    /// Returns what the log says once the action is complete.
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Install => "installed the release",
            Self::Upgrade => "upgraded the release",
            Self::Rollback => "rolled the release back",
            Self::Uninstall => "uninstalled the release",
            Self::Test => "tested the release",
        }
    }

    /// Returns the action that created a deployed revision.
    pub(super) fn of_deployed(revision: Revision) -> Self {
        if revision == Revision::FIRST {
            Self::Install
        } else {
            Self::Upgrade
        }
    }

    pub(super) fn pre(self) -> HookEvent {
        match self {
            Self::Install => HookEvent::PreInstall,
            Self::Upgrade => HookEvent::PreUpgrade,
            Self::Rollback => HookEvent::PreRollback,
            Self::Uninstall => HookEvent::PreDelete,
            Self::Test => HookEvent::Test,
        }
    }

    pub(super) fn post(self) -> HookEvent {
        match self {
            Self::Install => HookEvent::PostInstall,
            Self::Upgrade => HookEvent::PostUpgrade,
            Self::Rollback => HookEvent::PostRollback,
            Self::Uninstall => HookEvent::PostDelete,
            Self::Test => HookEvent::Test,
        }
    }

    /// Returns the name of the action's success.
    pub(crate) fn success(self) -> &'static str {
        match self {
            Self::Install => "InstallSuccessful",
            _ => "UpgradeSuccessful",
        }
    }

    /// Returns the name of the action's failure.
    pub(crate) fn failure(self) -> &'static str {
        match self {
            Self::Install => "InstallError",
            Self::Uninstall => "UninstallError",
            _ => "UpgradeError",
        }
    }

    pub(crate) fn success_message(self) -> &'static str {
        match self {
            Self::Install => "release was successfully installed",
            _ => "release was successfully upgraded",
        }
    }

    /// Returns the description of a record when the action is complete.
    pub(super) fn description(self, options: &ReleaseOptions) -> String {
        match self {
            Self::Install => options.install_description.clone(),
            Self::Upgrade => options.upgrade_description.clone(),
            _ => None,
        }
        .unwrap_or_else(|| {
            match self {
                Self::Install => "Install complete",
                Self::Upgrade => "Upgrade complete",
                Self::Rollback => "Rollback complete",
                Self::Uninstall => "Uninstallation complete",
                Self::Test => "Tests complete",
            }
            .to_owned()
        })
    }

    pub(super) fn failure_description(self, release: &ReleaseName) -> String {
        let what = match self {
            Self::Install => "Release",
            Self::Upgrade => "Upgrade",
            _ => "Rollback",
        };
        format!("{what} {:?} failed", release.as_str())
    }
}
