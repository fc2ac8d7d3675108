//! Adds the finalizer to an owner that has a release and lost it: `kubectl replace`, or a
//! tool that replaces objects, sends none. Without it, a deletion would leave the release behind.

use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;

pub(super) async fn run(context: &ActContext<'_>) -> Result<Report, ActError> {
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    Ok(Report::replan())
}
