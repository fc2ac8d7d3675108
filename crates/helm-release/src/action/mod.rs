//! Helm's actions on a release, written so that they can be interrupted anywhere and resumed.
//!
//! Every action works on a release record, which is written before anything else and records how
//! far the action got. An action never sleeps: where it would have to wait it returns
//! [`ActionProgress::Waiting`] and is called again when something has changed. Called again after a
//! crash, it does the remaining steps.
//!
//! * [`deploy`]: takes a pending record to deployed, for install, upgrade and rollback.
//! * [`repair`]: applies recorded objects again.
//! * [`recognise`]: checks after a restart whether any object has changed.
//! * [`uninstall`]: removes the objects of a release and its records.
//! * `hooks`, `prune`, [`live`]: shared by the actions.

pub(crate) mod bound;
mod context;
pub(crate) mod deploy;
mod error;
mod hook_logs;
mod hooks;
mod immutable;
pub(crate) mod live;
mod location;
pub(crate) mod log;
mod names;
mod prune;
pub(crate) mod recognise;
pub(crate) mod repair;
mod scaling;
pub(crate) mod uninstall;
mod volumes;

pub(crate) use context::{ActionContext, ActionProgress, StoredRelease};
pub(crate) use error::ActionError;
pub(crate) use hooks::leftover::Interrupted;
pub(crate) use hooks::run as run_hooks;
pub(crate) use prune::prune_leftover;

#[cfg(test)]
mod tests;
