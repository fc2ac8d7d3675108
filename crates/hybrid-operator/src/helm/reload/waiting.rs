//! Says in `Ready` of custom resources that the chart of their entry cannot be fetched, until it is there.
//!
//! What is deployed stays as it is, and so does what its conditions say: only custom resources that no
//! operator has reconciled at their generation wait for the chart.
//!
//! RBAC: for the kind `list` and `watch`, and `patch` on its status.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use host::watch;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube_objects::Primary;
use operator_runtime::controller::{
    Backoff, Key, Outcome, Priority, Reconcile, ReconcileError, Request, WorkerOptions, Workers,
};
use operator_runtime::manager::ControllerContext;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::annotations;
use super::super::builder;
use super::super::resources::{Change, Resources};
use super::super::status::{Status, WrittenStatus};
use super::EntryKey;
use super::fetch::Missing;
use crate::helm::source::Source;
use crate::watches::Watch;
use helm_release::engine::{Reader, Redactor};

/// The entries whose custom resources wait for a chart.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<EntryKey, Waiter>);

/// Task that tells the custom resources of one entry.
struct Waiter {
    watch: Watch,
    stop: CancellationToken,
    /// Aborted when the process does not wait for it any longer.
    task: AbortOnDropHandle<()>,
}

impl Waiting {
    /// Makes the entries those in `missing`. When it returns, nothing is told any longer about others.
    pub(super) async fn follow(
        &mut self,
        missing: &watch::Receiver<Vec<Missing>>,
        context: &ControllerContext,
    ) {
        let listed = missing.borrow().clone();
        let mut wanted: BTreeMap<EntryKey, Watch> = listed
            .into_iter()
            .filter(|missing| missing.failure.is_some())
            .map(|missing| (EntryKey::of(&missing.watch), missing.watch))
            .collect();
        let is_over = |key: &EntryKey, waiter: &mut Waiter| wanted.get(key) != Some(&waiter.watch);
        let over: Vec<(EntryKey, Waiter)> = self.0.extract_if(.., is_over).collect();
        for (_, waiter) in &over {
            waiter.stop.cancel();
        }
        for (_, waiter) in over {
            // A panic concerns this entry only.
            let _ = waiter.task.await;
        }
        wanted.retain(|key, _| !self.0.contains_key(key));
        for (key, watch) in wanted {
            let mut own = context.clone();
            own.stop = context.stop.child_token();
            let waiter = Waiter {
                stop: own.stop.clone(),
                task: AbortOnDropHandle::new(tokio::spawn(tell(
                    watch.clone(),
                    missing.clone(),
                    own,
                ))),
                watch,
            };
            self.0.insert(key, waiter);
        }
    }

    /// Waits until nothing is told any longer; the context is stopped.
    pub(super) async fn end(self) {
        for (_, waiter) in self.0 {
            let _ = waiter.task.await;
        }
    }
}

/// Tells the custom resources of an entry what the newest attempt to fetch its chart has given, until the
/// context is stopped.
async fn tell(
    watch: Watch,
    mut missing: watch::Receiver<Vec<Missing>>,
    context: ControllerContext,
) {
    let Some(kind) = builder::served_kind(&watch, &context).await else {
        return;
    };
    let queue = context.queue(&watch.gvk.kind.to_lowercase(), Backoff::default());
    let selector = watch.selector.as_ref().map(ToString::to_string);
    let source = Source::start(&context, &kind, selector.as_deref(), &queue);
    let resources = Resources::new(context.connection.client.clone(), source.clone());
    let teller = Teller {
        watch,
        missing: missing.clone(),
        resources,
    };
    let options = WorkerOptions::default();
    let workers = Workers::new(&queue, Arc::new(teller), options).run(context.stop.clone());
    let wake = async {
        while missing.changed().await.is_ok() {
            for key in source.keys() {
                queue.add(key, Priority::Event);
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = workers => {}
        () = wake => {}
    }
}

/// Writes the status of the custom resources of one entry.
struct Teller {
    watch: Watch,
    missing: watch::Receiver<Vec<Missing>>,
    resources: Resources,
}

impl Reconcile for Teller {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            self.tell(&request.key).await?;
            Ok(Outcome::Done)
        })
    }

    /// Nothing is known beside the status.
    fn forget(&self, _: &Key) {}
}

impl Teller {
    async fn tell(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(resource) = self.resources.get(key) else {
            return Ok(());
        };
        let missing = self.missing.borrow().clone();
        let Some(missing) = missing.iter().find(|it| it.watch == self.watch) else {
            return Ok(());
        };
        let annotations = annotations::read(
            resource.annotations(),
            self.watch.pause_annotation.as_deref(),
            std::iter::empty(),
        );
        if annotations.instructions.paused {
            return Ok(());
        }
        let Some(patch) = status_of(&resource, missing, host::timestamp()) else {
            return Ok(());
        };
        let primary = Primary {
            gvk: self.watch.gvk.clone(),
            namespace: resource.namespace(),
            name: resource.name_any(),
            uid: resource.uid().unwrap_or_default(),
            component: None,
        };
        let change = Change::Status {
            patch: &patch,
            version: json!(resource.resource_version()),
        };
        self.resources.change(&primary, change).await?;
        Ok(())
    }
}

/// Returns the patch of the status that says that the chart is missing; `None` if it says so, or if the
/// custom resource does not wait for the chart.
fn status_of(resource: &DynamicObject, missing: &Missing, now: Timestamp) -> Option<Value> {
    let failure = missing.failure.as_ref()?;
    let generation = resource.metadata.generation;
    let mut status = Status::read(resource.data.get("status"), now, generation);
    if status.is_reconciled() {
        return None;
    }
    // The reason names the chart and its server.
    status.redact(&Redactor::default(), Reader::OfResource);
    status.initialized();
    status.retrying(&failure.why.as_str().into(), failure.pause);
    if !status.is_retrying() {
        return None;
    }
    status.patch(&WrittenStatus::default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::GroupVersionKind;

    use super::super::fetch::Failure;
    use super::*;

    #[test]
    fn only_what_no_operator_has_reconciled_waits_for_the_chart() {
        let missing = |pause| Missing {
            watch: Watch::new(GroupVersionKind::gvk("example.com", "v1", "Web"), ""),
            failure: Some(Failure {
                why: "cannot fetch oci://h/web:1.0.0: no route".to_owned(),
                pause: Duration::from_secs(pause),
            }),
        };
        let now = Timestamp::from_second(1_000).unwrap();
        let resource = |generation: i64, status: &Value| -> DynamicObject {
            let metadata = json!({"name": "one", "generation": generation});
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let new = resource(1, &Value::Null);
        assert_eq!(status_of(&new, &missing(2), now), None);
        let told = status_of(&new, &missing(8), now).unwrap();
        let ready = &told["conditions"][1];
        assert_eq!(
            (&ready["type"], &ready["reason"]),
            (&json!("Ready"), &json!("Retrying"))
        );
        let message = "cannot fetch oci://h/web:1.0.0: no route; the next attempt is within 8 s";
        assert_eq!(ready["message"], message);
        // It is told once for each length of the pause.
        assert_eq!(status_of(&resource(1, &told), &missing(8), now), None);
        assert!(status_of(&resource(1, &told), &missing(16), now).is_some());

        let ready = |reason: &str, is: &str| {
            let condition =
                json!({"type": "Ready", "status": is, "reason": reason, "observedGeneration": 1});
            json!({"conditions": [condition]})
        };
        for status in [
            ready("AllObjectsReady", "True"),
            ready("UpgradeError", "False"),
        ] {
            assert_eq!(status_of(&resource(1, &status), &missing(8), now), None);
            assert!(status_of(&resource(2, &status), &missing(8), now).is_some());
        }
    }
}
