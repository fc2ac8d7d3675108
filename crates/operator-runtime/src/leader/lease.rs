//! Leader election with a `coordination.k8s.io/v1` Lease, as in client-go's `leaderelection`.
//!
//! Clocks of different machines are never compared: a lease has expired if it has not changed for
//! its duration on the local monotonic clock.
//!
//! RBAC: `get`, `create` and `update` on `leases`.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use kube_objects::client::LeaderGate;

/// Time after the last renewal when others may take a lease.
const DURATION: Duration = Duration::from_secs(15);

/// The lease and its durations.
#[derive(Debug, Clone)]
pub(crate) struct LeaseOptions {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Name of this process in the lease; unique among the replicas.
    pub identity: String,
    /// Time after the last renewal when others may take the lease.
    pub duration: Duration,
    /// Time after the last renewal when the leader stops starting writes. Writes that it has
    /// started must end before others may take the lease.
    pub renew_deadline: Duration,
    /// Time between two attempts to take or renew the lease.
    pub retry_period: Duration,
    /// Labels of the lease.
    pub labels: BTreeMap<String, String>,
}

impl LeaseOptions {
    /// Uses the durations of controller-runtime: 15 s, 10 s and 2 s.
    pub(crate) fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: DURATION,
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            labels: BTreeMap::new(),
        }
    }

    /// Returns a lease that this process names after itself, with these labels.
    pub(crate) fn of_shard(
        namespace: &str,
        shard: &str,
        labels: impl Iterator<Item = (String, String)>,
    ) -> Self {
        Self {
            labels: labels.collect(),
            ..Self::new(namespace, shard, shard)
        }
    }

    /// Returns the content of the lease with this process as its holder.
    pub(super) fn spec(&self, before: Option<&LeaseSpec>, now: &MicroTime) -> LeaseSpec {
        let mut spec = before.cloned().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(self.identity.as_str());
        if !ours {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions =
                Some(spec.lease_transitions.map_or(0, |n| n.saturating_add(1)));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.duration.as_secs()).ok();
        spec.renew_time = Some(now.clone());
        spec
    }
}

/// A lease as it was last read, and the time since which it has not changed.
#[derive(Debug, Default)]
pub(super) struct Seen(Option<(Option<LeaseSpec>, Instant)>);

impl Seen {
    pub(super) fn update(&mut self, lease: Option<&Lease>, now: Instant) {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        if !matches!(&self.0, Some((seen, _)) if seen.as_ref() == spec) {
            self.0 = Some((spec.cloned(), now));
        }
    }

    fn holder(&self) -> Option<&str> {
        let (spec, _) = self.0.as_ref()?;
        spec.as_ref()?.holder_identity.as_deref()
    }

    /// Returns whether it has not changed for `after`, or for the time that its holder has given.
    pub(super) fn is_expired(&self, after: Option<Duration>, now: Instant) -> bool {
        let Some((spec, since)) = &self.0 else {
            return false;
        };
        let seconds = spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let given = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let given = given.map_or(DURATION, Duration::from_secs);
        now >= *since + after.unwrap_or(given)
    }
}

/// Error of reading or writing the lease.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} the lease {namespace}/{name}")]
pub(crate) struct LeaseError {
    verb: &'static str,
    namespace: String,
    name: String,
    #[source]
    source: kube::Error,
}

/// End of a term as leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// The process was asked to stop; it still holds the lease.
    Stopped,
    /// Another process took the lease, or it could not be renewed in time.
    Lost,
}

/// A candidate for leadership.
pub(crate) struct Elector {
    api: Api<Lease>,
    options: LeaseOptions,
    gate: LeaderGate,
    seen: Seen,
    /// Whether this process has taken the lease: another one may have had its name.
    is_taken: bool,
}

impl Elector {
    /// Creates a candidate; `gate` lets writes pass only while it is the leader.
    pub(crate) fn new(client: Client, options: LeaseOptions, gate: LeaderGate) -> Self {
        gate.close();
        let api = Api::namespaced(client, &options.namespace);
        Self {
            api,
            options,
            gate,
            seen: Seen::default(),
            is_taken: false,
        }
    }

    /// Waits until this process is the leader; returns false when `stop` is cancelled first.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        info!(lease = %self.options.name, identity = %self.options.identity, "waiting for the leader election lease");
        loop {
            match self.attempt().await {
                Ok(true) => {
                    info!(lease = %self.options.name, "became the leader");
                    return true;
                }
                Ok(false) => {}
                Err(error) => warn!(
                    error = &error as &dyn std::error::Error,
                    "leader election failed; retrying"
                ),
            }
            let pause = tokio::time::sleep(self.options.retry_period);
            if stop.run_until_cancelled(pause).await.is_none() {
                return false;
            }
        }
    }

    /// Renews the lease until `stop`, or until it is lost.
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) -> Term {
        let mut deadline = Instant::now() + self.options.renew_deadline;
        loop {
            let pause = tokio::time::sleep(self.options.retry_period);
            if stop.run_until_cancelled(pause).await.is_none() {
                return Term::Stopped;
            }
            let started = Instant::now();
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(Ok(true)) => deadline = started + self.options.renew_deadline,
                Ok(Ok(false)) if self.seen.holder() != Some(&self.options.identity) => break,
                Ok(Err(error)) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot renew the leader election lease"
                    );
                }
                // In the first case, somebody has changed something else of the lease meanwhile.
                Ok(Ok(false)) | Err(_) => {}
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        self.gate.close();
        warn!(lease = %self.options.name, "lost the leader election lease");
        Term::Lost
    }

    /// Releases the lease, so that the next leader does not have to wait for it to expire.
    pub(crate) async fn release(&mut self) {
        self.gate.close();
        let Ok(Some(mut lease)) = self.api.get_opt(&self.options.name).await else {
            return;
        };
        if holder(&lease) != Some(self.options.identity.as_str()) {
            return;
        }
        let mut spec = lease.spec.take().unwrap_or_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(host::timestamp()));
        lease.spec = Some(spec);
        if let Err(error) = self
            .api
            .replace(&self.options.name, &PostParams::default(), &lease)
            .await
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "cannot release the leader election lease"
            );
        }
    }

    /// Tries once to take or renew the lease; returns whether this process holds it.
    async fn attempt(&mut self) -> Result<bool, LeaseError> {
        let started = Instant::now();
        let now = MicroTime(host::timestamp());
        let name = self.options.name.clone();
        let params = PostParams::default();
        let current = self
            .api
            .get_opt(&name)
            .await
            .map_err(|e| self.error("get", e))?;
        let taken = match current {
            None => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        labels: Some(self.options.labels.clone())
                            .filter(|labels| !labels.is_empty()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(self.options.spec(None, &now)),
                };
                self.api
                    .create(&params, &lease)
                    .await
                    .map(Some)
                    .or_else(lost_race)
            }
            Some(mut lease) => {
                if !self.may_take(&lease, started) {
                    return Ok(false);
                }
                lease.spec = Some(self.options.spec(lease.spec.as_ref(), &now));
                for (name, value) in &self.options.labels {
                    let labels = lease.metadata.labels.get_or_insert_default();
                    labels.insert(name.clone(), value.clone());
                }
                self.api
                    .replace(&name, &params, &lease)
                    .await
                    .map(Some)
                    .or_else(lost_race)
            }
        };
        let taken = taken.map_err(|e| self.error("update", e))?;
        if taken.is_some() {
            self.is_taken = true;
            let LeaseOptions {
                renew_deadline,
                duration,
                ..
            } = self.options;
            self.gate
                .open_until(started + renew_deadline, started + duration);
        }
        Ok(taken.is_some())
    }

    /// Returns whether this process holds the lease, nobody does, or it has expired.
    fn may_take(&mut self, lease: &Lease, now: Instant) -> bool {
        self.seen.update(Some(lease), now);
        let holder = holder(lease).unwrap_or("");
        let is_ours = holder == self.options.identity && self.is_taken;
        holder.is_empty() || is_ours || self.seen.is_expired(None, now)
    }

    fn error(&self, verb: &'static str, source: kube::Error) -> LeaseError {
        let LeaseOptions {
            namespace, name, ..
        } = self.options.clone();
        LeaseError {
            verb,
            namespace,
            name,
            source,
        }
    }
}

pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// Treats a conflict as a lost race, which is not an error.
pub(super) fn lost_race(error: kube::Error) -> Result<Option<Lease>, kube::Error> {
    match error {
        kube::Error::Api(status) if status.code == 409 => Ok(None),
        other => Err(other),
    }
}
