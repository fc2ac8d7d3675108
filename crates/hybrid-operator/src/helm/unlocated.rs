//! Custom resources that are being deleted and whose release cannot be found: it is kept elsewhere, or in a
//! namespace that is not watched. They are tried again, which their status says.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

use super::access::Access;
use super::message::Redactor;
use super::resources::Change;
use super::setup::Setup;
use super::status::{Status, WrittenStatus, chain};
use super::subject::{self, SubjectError};
use crate::cluster::ApiError;
use crate::machine;

/// Writes the status of a custom resource unless it says so. `pause` is the longest time until the next
/// attempt.
pub(super) async fn report(
    setup: &Setup,
    access: &Access,
    resource: &DynamicObject,
    error: &SubjectError,
    pause: Duration,
) -> Result<(), ApiError> {
    let before = resource.data.get("status");
    let generation = resource.metadata.generation;
    let mut status = Status::read(before, machine::timestamp(), generation);
    // The errors name namespaces and kinds of storage.
    status.redact(&Redactor::default(), setup.reader());
    status.retrying(&chain(error).into(), pause);
    let Some(patch) = status.patch(&WrittenStatus::default()) else {
        return Ok(());
    };
    let change = Change::Status {
        patch: &patch,
        version: json!(resource.resource_version()),
    };
    let primary = subject::primary(resource, setup);
    access.resources.change(&primary, change).await?;
    Ok(())
}
