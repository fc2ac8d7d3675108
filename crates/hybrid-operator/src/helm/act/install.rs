//! Deploys the first revision, or one after the release was uninstalled.

use super::super::kind::ActionKind;
use super::super::memory::Memory;
use super::super::report::Report;
use super::{ActContext, ActError, deployment};

pub(super) async fn run(context: &ActContext<'_>, memory: &mut Memory) -> Result<Report, ActError> {
    deployment::start(context, memory, ActionKind::Install).await
}
