//! Says in the status of a custom resource that it is tried again, where nothing is known of its release: the
//! reconcile panicked, or the release of a custom resource that is being deleted cannot be found, because it is
//! kept elsewhere or in a namespace that is not watched.

use std::time::Duration;

use helm_release::engine::{Message, Reader, Redactor};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube_objects::ApiError;
use serde_json::json;

use super::custom_resource;
use super::resources::{Change, Resources};
use super::setup::Setup;
use super::status::{Status, WrittenStatus};

/// Writes the status of a custom resource unless it says so. `cause` quotes no values; `pause` is the longest
/// time until the next attempt.
pub(super) async fn report(
    resources: &Resources,
    setup: &Setup,
    resource: &DynamicObject,
    cause: &Message,
    pause: Duration,
) -> Result<(), ApiError> {
    let before = resource.data.get("status");
    let generation = resource.metadata.generation;
    let mut status = Status::read(before, host::timestamp(), generation);
    status.redact(&Redactor::default(), Reader::OfResource);
    status.retrying(cause, pause);
    let Some(patch) = status.patch(&WrittenStatus::default()) else {
        return Ok(());
    };
    let change = Change::Status {
        patch: &patch,
        version: json!(resource.resource_version()),
    };
    let primary = custom_resource::primary(resource, setup);
    resources.change(&primary, change).await?;
    Ok(())
}
