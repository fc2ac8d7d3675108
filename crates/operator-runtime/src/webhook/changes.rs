//! Watches the definitions whose objects are converted.
//!
//! Whoever writes a definition as a whole, as the Operator Lifecycle Manager does with each upgrade,
//! removes `spec.conversion`. Until it is back, objects are shown and written without the fields in
//! which their versions differ.
//!
//! RBAC: `list` and `watch` on `customresourcedefinitions`. Without it, a change is noticed by the
//! next comparison.

use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tracing::debug;

/// Yields whenever a definition may have changed.
pub(super) type Changes = BoxStream<'static, ()>;

/// Watches definitions by their names; one watch each, of the metadata alone.
pub(super) fn of_definitions<'a>(
    client: &Client,
    names: impl IntoIterator<Item = &'a str>,
) -> Changes {
    let watches = names.into_iter().map(|name| {
        let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> =
            Api::all(client.clone());
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let events = watcher(definitions, only).default_backoff();
        events.filter_map(|event| future::ready(is_change(event)))
    });
    stream::select_all(watches.map(StreamExt::boxed)).boxed()
}

/// Returns whether something may have changed.
fn is_change<K>(event: watcher::Result<watcher::Event<K>>) -> Option<()> {
    match event {
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => None,
        // A list begins the watch, and begins it again after changes that it has missed.
        Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
            Some(())
        }
        Err(error) => {
            debug!(
                error = &error as &dyn std::error::Error,
                "cannot watch a definition whose objects are converted"
            );
            None
        }
    }
}
