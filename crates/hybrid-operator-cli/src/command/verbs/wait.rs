//! Waits until the operator has handled requests.

use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::bail;
use futures::stream::{self, StreamExt as _};
use hybrid_operator::native::AnyObject;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject};
use kube::runtime::wait::await_condition;

use super::Target;
use crate::cluster::{Cluster, condition, explain_watch};
use crate::output::with_progress;

/// Number of custom resources that are watched at the same time.
const WATCHES: usize = 20;

/// Waits for all custom resources, and prints each that is done.
pub(super) async fn until_handled(
    cluster: &Cluster,
    targets: &[Target],
    timeout: Duration,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + timeout;
    let mut waits = stream::iter(targets)
        .map(|target| async move {
            let last = Mutex::new(None);
            let waited = tokio::time::timeout_at(end, target.wait(cluster, &last)).await;
            (target, waited, last.into_inner().ok().flatten())
        })
        .buffer_unordered(WATCHES);
    let (mut done, mut late) = (0, Vec::new());
    while let Some((target, waited, last)) = {
        let what = format!(
            "waiting for the operator, {done} of {} are done",
            targets.len()
        );
        with_progress(&what, waits.next()).await
    } {
        match waited {
            Ok(result) => {
                let resource = result?;
                done += 1;
                writeln!(
                    out,
                    "{} is done: {}",
                    target.name(),
                    summary(resource.as_ref())
                )?;
                out.flush()?;
            }
            Err(_) => late.push(format!("{} ({})", target.name(), summary(last.as_ref()))),
        }
    }
    if !late.is_empty() {
        bail!(
            "the operator has not handled this within {} s: {}; 'hybrid-operator why' says what it does instead",
            timeout.as_secs(),
            late.join(", ")
        );
    }
    Ok(())
}

/// Describes the condition `Ready`.
fn summary(resource: Option<&DynamicObject>) -> String {
    let ready = resource.and_then(|resource| condition(resource, "Ready"));
    let text = |field: &str| {
        ready
            .and_then(|ready| ready.get(field)?.as_str())
            .unwrap_or("?")
    };
    match ready {
        Some(_) => format!("Ready={} {}", text("status"), text("reason")),
        None if resource.is_some() => "no condition Ready".to_owned(),
        None => "it is gone".to_owned(),
    }
}

impl Target {
    /// Waits until the request is handled; `None` if the custom resource is gone. `last` has its state meanwhile.
    async fn wait(
        &self,
        cluster: &Cluster,
        last: &Mutex<Option<DynamicObject>>,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let namespace = self.resource.namespace();
        let api: Api<AnyObject> = cluster.api(&self.served, namespace.as_deref());
        let handled = |found: Option<&AnyObject>| {
            let Some(AnyObject(resource)) = found else {
                return true;
            };
            if let Ok(mut last) = last.lock() {
                *last = Some(resource.clone());
            }
            self.request.is_handled(resource)
        };
        let found = await_condition(api, &self.resource.name_any(), handled).await;
        match found {
            Ok(found) => Ok(found.map(|AnyObject(resource)| resource)),
            Err(kube::runtime::wait::Error::ProbeFailed(error)) => {
                let text = self.served.text();
                Err(explain_watch(cluster, error, &text, namespace.as_deref()))
            }
        }
    }
}
