//! Leader-for-life: the leader stays the leader until its Pod is gone, as in operator-lib's `leader`.
//!
//! The lock is a `ConfigMap` that the leader's Pod owns, so that Kubernetes' garbage collector removes
//! it with the Pod. There are never two leaders, even with clocks that run at different speeds; in
//! return nobody leads until the garbage collector has noticed that the Pod is gone, which can take
//! minutes after the loss of a node.
//!
//! RBAC: `get` and `create` on `configmaps`, `get` and `delete` on `pods`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use kube_objects::client::LeaderGate;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Term;

/// Pauses between two attempts: from the first, doubling, to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));

/// The lock of an operator.
#[derive(Debug, Clone)]
pub(crate) struct LockOptions {
    /// Namespace of the Pod and of the lock.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) pod: String,
}

/// A candidate for leadership.
pub(crate) struct LifeElector {
    locks: Api<ConfigMap>,
    pods: Api<Pod>,
    options: LockOptions,
    gate: LeaderGate,
}

impl LifeElector {
    /// Creates a candidate; `gate` lets writes pass only while it is the leader. `client` must not
    /// depend on the gate.
    pub(crate) fn new(client: &Client, options: LockOptions, gate: LeaderGate) -> Self {
        gate.close();
        Self {
            locks: Api::namespaced(client.clone(), &options.namespace),
            pods: Api::namespaced(client.clone(), &options.namespace),
            options,
            gate,
        }
    }

    /// Waits until this Pod is the leader; returns false when `stop` is cancelled first.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        info!(lock = %self.options.name, pod = %self.options.pod, "waiting to become the leader");
        let mut pause = PAUSES.0;
        loop {
            match self.attempt().await {
                Ok(true) => {
                    info!(lock = %self.options.name, "became the leader");
                    self.gate.open();
                    return true;
                }
                Ok(false) => {}
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "leader election failed; retrying"
                ),
            }
            let sleep = tokio::time::sleep(pause);
            if stop.run_until_cancelled(sleep).await.is_none() {
                return false;
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Stays the leader until `stop`.
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) -> Term {
        stop.cancelled().await;
        Term::Stopped
    }

    /// Stops writing. The lock stays until the Pod is gone.
    pub(crate) fn release(&mut self) {
        self.gate.close();
    }

    /// Tries once to become the leader.
    async fn attempt(&self) -> Result<bool, kube::Error> {
        let own = self.pods.get(&self.options.pod).await?;
        if let Some(lock) = self.locks.get_opt(&self.options.name).await? {
            return self.is_ours(&lock, &own).await;
        }
        let lock = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.options.name.clone()),
                owner_references: Some(vec![reference(&own)]),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        match self.locks.create(&PostParams::default(), &lock).await {
            Ok(_) => Ok(true),
            // Another replica was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether this Pod owns the lock: its container was restarted. A leader whose Pod failed
    /// is deleted, so that its lock is removed.
    async fn is_ours(&self, lock: &ConfigMap, own: &Pod) -> Result<bool, kube::Error> {
        let Some(owner) = lock.owner_references().first() else {
            warn!(lock = %self.options.name, "the ConfigMap has no owner, so nothing removes it; delete it");
            return Ok(false);
        };
        if own.uid().as_deref() == Some(&*owner.uid) {
            return Ok(true);
        }
        let named = self.pods.get_opt(&owner.name).await?;
        let leader = named.filter(|pod| pod.uid().as_deref() == Some(&*owner.uid));
        let failed = |pod: &Pod| {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase == Some("Failed") && pod.metadata.deletion_timestamp.is_none()
        };
        match leader {
            Some(pod) if failed(&pod) => {
                info!(pod = %owner.name, "deleting the failed Pod of the leader");
                let deleted = self
                    .pods
                    .delete(&owner.name, &DeleteParams::default())
                    .await;
                deleted.map(|_| false)
            }
            Some(_) => Ok(false),
            None => {
                info!(pod = %owner.name, "the leader is gone; waiting for the garbage collector to remove its lock");
                Ok(false)
            }
        }
    }
}

fn reference(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::{LifeElector, LockOptions};
    use kube_objects::client::LeaderGate;

    const LOCK: &str = "/api/v1/namespaces/ns/configmaps/op";

    fn pod(name: &str, phase: &str) -> Value {
        json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "status": {"phase": phase}})
    }

    fn lock_of(pod: &str) -> Value {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("uid-of-{pod}")});
        json!({"metadata": {"name": "op", "ownerReferences": [owner]}})
    }

    fn api() -> ScriptedApi {
        let api = ScriptedApi::new();
        let path = "/api/v1/namespaces/ns/pods/own";
        api.on(When::get(path), Answer::json(200, pod("own", "Running")));
        api
    }

    fn elector(api: &ScriptedApi) -> LifeElector {
        let options = LockOptions {
            namespace: "ns".to_owned(),
            name: "op".to_owned(),
            pod: "own".to_owned(),
        };
        LifeElector::new(&api.client("ns"), options, LeaderGate::default())
    }

    #[tokio::test(start_paused = true)]
    async fn the_lock_belongs_to_the_pod_that_creates_it() {
        let api = api();
        api.on(When::get(LOCK), Answer::not_found());
        api.on(
            When::post("/api/v1/namespaces/ns/configmaps"),
            Answer::echo(201),
        );
        assert!(elector(&api).acquire(&CancellationToken::new()).await);
        let requests = api.requests();
        let lock = requests.last().unwrap().body.clone().unwrap();
        assert_eq!(lock["metadata"]["ownerReferences"][0]["uid"], "uid-of-own");
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_container_is_still_the_leader() {
        let api = api();
        api.on(When::get(LOCK), Answer::json(200, lock_of("own")));
        assert!(elector(&api).acquire(&CancellationToken::new()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn another_pod_waits_and_deletes_a_leader_that_failed() {
        let api = api();
        api.on(
            When::get(LOCK).times(3),
            Answer::json(200, lock_of("other")),
        );
        let other = "/api/v1/namespaces/ns/pods/other";
        let answer = |phase| Answer::json(200, pod("other", phase));
        api.on(When::get(other).times(1), answer("Running"));
        api.on(When::get(other).times(1), answer("Failed"));
        api.on(When::get(other), Answer::not_found());
        api.on(When::delete(other), Answer::json(200, json!({})));
        // The garbage collector has removed the lock.
        api.on(When::get(LOCK), Answer::not_found());
        api.on(
            When::post("/api/v1/namespaces/ns/configmaps"),
            Answer::echo(201),
        );
        assert!(elector(&api).acquire(&CancellationToken::new()).await);
        let requests = api.requests();
        let deleted = requests.iter().filter(|request| request.method == "DELETE");
        assert_eq!(deleted.count(), 1);
    }
}
