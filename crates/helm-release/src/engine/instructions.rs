//! Requests of the owner of a release beside the values.

use std::time::Duration;

use kube_objects::OperatorId;

use crate::policy::DeletionPolicy;

/// Operator that may adopt a release that it did not create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptionPolicy {
    /// No operator.
    Denied,
    /// Any operator, unless another operator manages the release.
    Allowed,
    /// The named operator, even if another operator manages the release.
    AllowedFor(OperatorId),
}

/// Options of the actions on one release, which annotations of its owner set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an annotation")]
#[non_exhaustive]
pub struct ReleaseOptions {
    /// `install-disable-hooks`
    pub install_disable_hooks: bool,
    /// `upgrade-disable-hooks`
    pub upgrade_disable_hooks: bool,
    /// `uninstall-disable-hooks`
    pub uninstall_disable_hooks: bool,
    /// `install-description`
    pub install_description: Option<String>,
    /// `upgrade-description`
    pub upgrade_description: Option<String>,
    /// `uninstall-description`
    pub uninstall_description: Option<String>,
    /// `upgrade-force`: objects are replaced instead of applied.
    pub upgrade_force: bool,
    /// `rollback-force`; true by default.
    pub rollback_force: bool,
    /// `uninstall-wait`: the finalizer stays until every object is gone.
    pub uninstall_wait: bool,
    /// `reconcile-period`; zero means never.
    pub reconcile_period: Option<Duration>,
}

/// Requests of the owner of a release beside the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instructions {
    /// Options of the actions.
    pub options: ReleaseOptions,
    /// `adopt-release`: true, false, or the name of an operator.
    pub adopt_release: AdoptionPolicy,
    /// `paused`, or the annotation configured in its place.
    pub paused: bool,
    /// `deletion-policy`; `None` means that of [`ReleasePolicy`](crate::policy::ReleasePolicy).
    pub deletion: Option<DeletionPolicy>,
    /// `protect`; `None` means that of [`ReleasePolicy`](crate::policy::ReleasePolicy).
    pub protected: Option<bool>,
    /// `reset-at`: a new value resets the count of failed attempts.
    pub reset_at: Option<String>,
    /// `force-at`: a new value forces a new revision even if the inputs are unchanged.
    pub force_at: Option<String>,
    /// `reconcile-at`: a new value starts a pass, as any change of the owner does.
    pub reconcile_at: Option<String>,
}

impl Default for Instructions {
    fn default() -> Self {
        Self {
            options: ReleaseOptions {
                install_disable_hooks: false,
                upgrade_disable_hooks: false,
                uninstall_disable_hooks: false,
                install_description: None,
                upgrade_description: None,
                uninstall_description: None,
                upgrade_force: false,
                rollback_force: true,
                uninstall_wait: false,
                reconcile_period: None,
            },
            adopt_release: AdoptionPolicy::Denied,
            paused: false,
            deletion: None,
            protected: None,
            reset_at: None,
            force_at: None,
            reconcile_at: None,
        }
    }
}

impl Instructions {
    /// Returns whether `operator` may adopt a release that no operator manages.
    pub fn adopts(&self, operator: &OperatorId) -> bool {
        self.adopt_release == AdoptionPolicy::Allowed || self.adopts_from_operators(operator)
    }

    /// Returns whether `operator` may adopt a release from another operator.
    pub fn adopts_from_operators(&self, operator: &OperatorId) -> bool {
        matches!(&self.adopt_release, AdoptionPolicy::AllowedFor(chosen) if chosen == operator)
    }
}
