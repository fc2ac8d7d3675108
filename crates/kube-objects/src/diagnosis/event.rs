//! Meaning of an event about an object that is not ready.

use k8s_openapi::api::core::v1::Event;

use super::pod::Expected;

/// Subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Told {
    /// A Pod does not get past this step.
    Of(Expected),
    /// A `PersistentVolumeClaim` is not bound.
    Claim,
    /// A controller cannot create Pods.
    Create,
}

/// Returns what an event is about; `None` if it explains nothing.
pub(super) fn told(event: &Event) -> Option<Told> {
    let message = event.message.as_deref().unwrap_or_default();
    Some(match event.reason.as_deref()? {
        "Failed" if message.contains("pull") => Told::Of(Expected::Pull),
        "FailedMount" | "FailedAttachVolume" | "FailedCreatePodSandBox" => {
            Told::Of(Expected::Setup)
        }
        "Unhealthy" | "ProbeError" => Told::Of(Expected::Probe),
        "ProvisioningFailed" | "FailedBinding" => Told::Claim,
        "FailedCreate" => Told::Create,
        _ => return None,
    })
}

pub(super) fn count_of(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.or(event.count).unwrap_or(1)
}

/// Returns when an event was seen last, in seconds.
pub(super) fn last_seen(event: &Event) -> i64 {
    let series = event.series.as_ref();
    let micro = series
        .and_then(|series| series.last_observed_time.as_ref())
        .or(event.event_time.as_ref());
    let created = event.metadata.creation_timestamp.as_ref();
    event
        .last_timestamp
        .as_ref()
        .map(|time| time.0.as_second())
        .max(micro.map(|time| time.0.as_second()))
        .or_else(|| created.map(|time| time.0.as_second()))
        .unwrap_or(0)
}
