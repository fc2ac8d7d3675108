//! A replica in a ring of controllers, whose sharder assigns custom resources to replicas by labels: the protocol of
//! `kubernetes-controller-sharding`.
//!
//! * The replica has a Lease of its own, with the label of the ring and its own name: the name of the shard.
//! * It watches the custom resources that have the label of the shard.
//! * When one gets the label for draining, nothing of it is in progress any more once its turn comes: the replica
//!   forgets it and removes both labels, and the sharder assigns it to another one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::runtime::watcher;
use kube_objects::ApiError;
use kube_objects::request::{self, Call};
use kube_objects::watch::follow::{self, Follower, Lists, WatchState, WatchTarget};
use kube_objects::{ApiKind, Key};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::telemetry::metrics::Metrics;

/// Label of a Lease that names the ring.
const RING_LABEL: &str = "alpha.sharding.timebertt.dev/controllerring";

/// Time within which a sharder assigns a custom resource.
const PATIENCE: Duration = Duration::from_secs(30);

/// The membership of this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Name of the `ControllerRing`.
    pub name: String,
    /// Name of the shard and of its Lease.
    pub shard: String,
}

impl Ring {
    fn shard_label(&self) -> String {
        format!("shard.alpha.sharding.timebertt.dev/{}", self.name)
    }

    fn drain_label(&self) -> String {
        format!("drain.alpha.sharding.timebertt.dev/{}", self.name)
    }

    /// Returns the labels of the Lease.
    pub(crate) fn lease_labels(&self) -> impl Iterator<Item = (String, String)> + use<> {
        std::iter::once((RING_LABEL.to_owned(), self.name.clone()))
    }

    /// Returns the selector of the custom resources of this replica among those of a selector.
    pub fn selector(&self, among: Option<&str>) -> String {
        let own = format!("{}={}", self.shard_label(), self.shard);
        among.map_or(own.clone(), |among| format!("{own},{among}"))
    }

    /// Returns whether a replica has a custom resource.
    pub fn is_assigned(&self, metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(&self.shard_label()))
    }

    /// Returns whether a custom resource is to be given up.
    pub fn is_drained(&self, metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(&self.drain_label()))
    }

    /// Gives up a custom resource of which nothing is in progress.
    ///
    /// # Errors
    /// When the request fails for another reason than a change meanwhile, which its watch shows.
    pub async fn give_up(
        &self,
        client: &Client,
        kind: &ApiKind,
        metadata: &ObjectMeta,
    ) -> Result<(), ApiError> {
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let body = json!({"metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "labels": {self.shard_label(): null, self.drain_label(): null},
        }});
        let call = Call::with_body(
            http::Method::PATCH,
            request::path(kind, namespace, name)?,
            request::JSON,
            request::MERGE_PATCH,
            body.to_string().into_bytes(),
        );
        let target = request::target("patch", kind, namespace, name);
        match request::call(client, target, call).await {
            Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Watches the custom resources of a kind that no replica has, for the metrics and the log too, until `stop` is
    /// cancelled.
    pub fn follow_unassigned(
        &self,
        client: &Client,
        targets: impl IntoIterator<Item = WatchTarget>,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Unassigned {
        let unassigned = Unassigned::default();
        for target in targets {
            let (client, of) = (client.clone(), target.clone());
            let selector = format!("!{}", self.shard_label());
            let open = move |lists| follow::metadata(&client, &of, lists, Some(&selector));
            let follower = UnassignedFollower {
                ring: self.name.clone(),
                target: target.clone(),
                metrics: metrics.clone(),
                unassigned: unassigned.clone(),
                listed: BTreeSet::new(),
            };
            let follow = follow::follow(target, metrics.restarts(), Lists::Paged, open, follower);
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(follow).await });
        }
        unassigned
    }
}

/// The custom resources of a kind that no replica has.
#[derive(Clone, Default)]
pub struct Unassigned(Arc<Mutex<UnassignedKeys>>);

#[derive(Default)]
struct UnassignedKeys {
    all: BTreeSet<Key>,
    /// Keys that are not reported yet, the oldest first; some may have a shard by now.
    new: VecDeque<(Instant, Key)>,
}

impl Unassigned {
    /// Returns a custom resource that no replica has had for half a minute, waiting for it. Each is returned once.
    pub async fn late(&self) -> Key {
        loop {
            while let Some(key) = self.take_late() {
                if self.0.lock().all.contains(&key) {
                    return key;
                }
            }
            tokio::time::sleep(PATIENCE / 2).await;
        }
    }

    fn take_late(&self) -> Option<Key> {
        let late = |(since, _): &mut (Instant, Key)| since.elapsed() >= PATIENCE;
        let taken = self.0.lock().new.pop_front_if(late);
        taken.map(|(_, key)| key)
    }
}

/// Follows the custom resources that no replica has.
struct UnassignedFollower {
    ring: String,
    target: WatchTarget,
    metrics: Metrics,
    /// Custom resources of all targets.
    unassigned: Unassigned,
    /// Custom resources in the list in progress.
    listed: BTreeSet<Key>,
}

impl UnassignedFollower {
    fn add(known: &mut UnassignedKeys, key: Key) {
        if known.all.insert(key.clone()) {
            known.new.push_back((Instant::now(), key));
        }
    }

    fn change(&self, change: impl FnOnce(&mut UnassignedKeys)) {
        let mut known = self.unassigned.0.lock();
        let before = known.all.len();
        change(&mut known);
        let kind = &self.target.resource.kind;
        self.metrics.unassigned(kind, known.all.len());
        if before == 0
            && let Some(first) = known.all.first()
        {
            warn!(
                kind, ring = self.ring, object = %first,
                "a custom resource has no shard, and is reconciled once it has one: a sharder must run, and the ControllerRing must list this kind"
            );
        }
    }
}

fn key_of(metadata: &ObjectMeta) -> Key {
    let name = metadata.name.as_deref().unwrap_or_default();
    Key::new(metadata.namespace.as_deref(), name)
}

impl Follower for UnassignedFollower {
    type Object = ObjectMeta;

    fn event(&mut self, event: watcher::Event<ObjectMeta>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(metadata) => self.listed.extend([key_of(&metadata)]),
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let of = self.target.namespace.clone();
                self.change(|known| {
                    let is_elsewhere = |key: &Key| key.namespace.as_deref() != of.as_deref();
                    let is_kept = |key: &Key| of.is_some() && is_elsewhere(key);
                    known.all.retain(|key| is_kept(key) || listed.contains(key));
                    for key in listed {
                        Self::add(known, key);
                    }
                });
            }
            watcher::Event::Apply(metadata) => {
                self.change(|known| Self::add(known, key_of(&metadata)));
            }
            watcher::Event::Delete(metadata) => {
                self.change(|known| {
                    known.all.remove(&key_of(&metadata));
                });
            }
        }
    }

    fn state(&mut self, _: &WatchState) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Ring;

    #[test]
    fn custom_resources_of_a_replica_have_the_label_of_its_shard() {
        let ring = Ring {
            name: "shops".to_owned(),
            shard: "operator-0".to_owned(),
        };
        let own = "shard.alpha.sharding.timebertt.dev/shops=operator-0";
        assert_eq!(ring.selector(None), own);
        assert_eq!(
            ring.selector(Some("a in (b,c)")),
            format!("{own},a in (b,c)")
        );
        for (drain, is_drained) in [("shops", true), ("others", false)] {
            let label = format!("drain.alpha.sharding.timebertt.dev/{drain}");
            let metadata = serde_json::from_value(json!({"labels": {label: "true"}})).unwrap();
            assert_eq!(ring.is_drained(&metadata), is_drained);
        }
    }
}
