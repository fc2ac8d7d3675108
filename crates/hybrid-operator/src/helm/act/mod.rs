//! What a step does, one file each. An executor does what the plan has decided and reports what
//! came of it; it decides nothing, writes no status and publishes no event.

mod adopt;
mod clean_up;
mod convert;
mod definitions;
mod deployment;
mod discard;
mod inspect;
mod install;
mod keep;
mod leave;
mod obstacle;
mod orphans;
mod record;
mod repair;
mod resume;
mod retry;
mod rollback;
mod settle;
mod test;
mod uninstall;
mod upgrade;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use helm_core::manifest::ManifestError;

use super::access::Access;
use super::desired::{Desired, DesiredError};
use super::events::Notices;
use super::extend::ExtensionError;
use super::kind::Kind;
use super::memory::Memory;
use super::observe::Observation;
use super::plan::Step;
use super::report::Report;
use super::setup::{Setup, timeout};
use super::status::chain;
use super::subject::Subject;
use crate::action::{ActionContext, ActionError};
use crate::cluster::apply::ApplyPolicy;
use crate::cluster::read::ReadError;
use crate::cluster::{ApiError, DiscoveryError};
use crate::release::StoreError;

pub(super) use definitions::{Definitions, are_wanted as definitions_are_wanted};

/// What is waited for is shown by a watch; this is for what is not watched.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What a step works with.
pub(super) struct ActContext<'a> {
    pub(super) setup: &'a Arc<Setup>,
    pub(super) access: &'a Access,
    pub(super) subject: &'a Subject,
    pub(super) observation: &'a Observation,
    /// What should be; the error where it cannot be computed.
    pub(super) desired: Option<&'a Result<Desired, DesiredError>>,
    pub(super) notices: &'a Notices,
}

/// Why a step was not done. The release is as it was, or will be gone on with from its record.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActError {
    /// What Helm does to a release failed.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// A record was not read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The custom resource was not read or written.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object was not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A kind was not found.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// A definition of `crds/` was not installed.
    #[error(transparent)]
    Definition(#[from] definitions::DefinitionError),
    /// The objects of a list cannot be understood.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Code of this operator failed.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// The plan has chosen a step without what it needs.
    #[error("the step {0} lacks {1}")]
    Lacks(&'static str, &'static str),
}

impl ActError {
    /// Whether the same may succeed in a moment, so that it is not worth a condition.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Action(error) => error.is_transient(),
            Self::Store(error) => error.is_transient(),
            Self::Api(error) => error.is_transient(),
            Self::Read(error) => error.is_transient(),
            Self::Discovery(error) => error.is_transient(),
            Self::Definition(error) => error.is_transient(),
            Self::Manifest(_) | Self::Extension(_) | Self::Lacks(..) => false,
        }
    }
}

/// Takes a step, between the hooks in code.
pub(super) async fn run(
    step: &Step,
    context: &ActContext<'_>,
    memory: &mut Memory,
) -> Result<Report, ActError> {
    let extensions = &context.setup.extensions;
    let inputs = context.desired().map(|desired| &desired.inputs);
    extensions.before(step, context.subject, inputs).await?;
    let mut report = Box::pin(take(step, context, memory)).await?;
    if report.is_settled() {
        let after = extensions.after(step, context).await;
        report.objection = after.err().map(|error| chain(error.as_ref()));
    }
    Ok(report)
}

async fn take(
    step: &Step,
    context: &ActContext<'_>,
    memory: &mut Memory,
) -> Result<Report, ActError> {
    match *step {
        Step::Nothing => settle::run(context, memory).await,
        Step::Forget => Ok(Report::gone()),
        Step::Leave => Ok(leave::run(context, memory)),
        Step::Install => install::run(context, memory).await,
        Step::Upgrade => upgrade::run(context, memory).await,
        Step::Rollback { to } => Box::pin(rollback::run(context, memory, to)).await,
        Step::Resume { revision } => resume::run(context, memory, revision).await,
        Step::Retry { revision } => retry::run(context, memory, revision).await,
        Step::Repair { revision } => repair::run(context, memory, revision).await,
        Step::Inspect { revision } => inspect::run(context, memory, revision).await,
        Step::Adopt { revision } => adopt::run(context, revision).await,
        Step::Convert => convert::run(context).await,
        Step::KeepUnchanged { revision } => keep::run(context, memory, revision).await,
        Step::InstallDefinitions { upgrade } => definitions::run(context, memory, upgrade).await,
        Step::Test { revision } => test::run(context, memory, revision).await,
        Step::CleanUp { revision } => clean_up::run(context, memory, revision).await,
        Step::Discard { revision } => discard::run(context, memory, revision).await,
        Step::Uninstall => uninstall::run(context, memory).await,
        Step::Wait { delay, until } => wait::run(context, delay, until).await,
        Step::Refuse(refusal) => wait::refuse(context, memory, refusal).await,
    }
}

impl<'a> ActContext<'a> {
    /// What should be, where it is known.
    fn desired(&self) -> Option<&'a Desired> {
        self.desired.and_then(|desired| desired.as_ref().ok())
    }

    /// What should be, for a step that is never planned without it.
    fn wanted(&self, step: &'static str) -> Result<&'a Desired, ActError> {
        self.desired().ok_or(ActError::Lacks(step, "its inputs"))
    }

    /// What Helm's actions work with.
    fn action<'c>(&'c self, kind: Kind, recreate: &'c [String]) -> ActionContext<'c> {
        action_context(self.setup, self.access, self.subject, kind, recreate)
    }
}

/// What Helm's actions work with.
pub(super) fn action_context<'a>(
    setup: &'a Setup,
    access: &'a Access,
    subject: &'a Subject,
    kind: Kind,
    recreate: &'a [String],
) -> ActionContext<'a> {
    let annotations = &subject.annotations;
    let policy = setup.policy(kind);
    let (without_hooks, replace) = match kind {
        Kind::Install => (annotations.install_disable_hooks, false),
        Kind::Upgrade => (annotations.upgrade_disable_hooks, annotations.upgrade_force),
        Kind::Rollback => (
            annotations.upgrade_disable_hooks,
            annotations.rollback_force,
        ),
        Kind::Uninstall => (annotations.uninstall_disable_hooks, false),
        Kind::Test => (false, false),
    };
    ActionContext {
        cluster: &subject.cluster,
        store: &access.store,
        registry: &access.registry,
        namespaces: &setup.namespaces,
        primary: &subject.primary,
        operator: &setup.operator,
        instance: &setup.instance,
        chart: setup.chart.chart().name(),
        name: &subject.name,
        namespace: &subject.namespace,
        policy: ApplyPolicy {
            replace,
            leave_out: setup.left_to_others(),
            ..ApplyPolicy::default()
        },
        recreate,
        timeout: timeout(policy.timeout),
        disable_hooks: without_hooks || policy.disable_hooks,
        now: subject.now,
    }
}
