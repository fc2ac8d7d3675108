//! Shares the namespaces of a cluster among replicas: one Lease for each range of the hash of their names.
//!
//! ```text
//! no range ──> takes its own, or any ──> takes others that nobody holds ──> hands over what others ask for
//! ```
//!
//! A replica that has fewer ranges than another asks for one with an annotation of its Lease. The holder begins nothing more
//! in that range, waits for what is in progress, and releases the Lease. Whoever cannot renew one Lease in
//! time stops writing everywhere.
//!
//! RBAC: `list`, `create` and `update` on `leases`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kube_objects::client::LeaderGate;
use kube_objects::shards::Shards;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::lease::{LeaseOptions, Seen, Term, holder, lost_race};
use crate::telemetry::metrics::Metrics;

/// Annotation of a Lease that names the replica that asks for it.
const WANTED_BY: &str = "helm.sdk.operatorframework.io/shard-wanted-by";
/// Time after which a range that is not listed is reported.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// Choice of the first range of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardId {
    /// Any.
    Auto,
    /// This one.
    Index(u32),
}

/// The ranges of an operator.
#[derive(Debug, Clone)]
pub(crate) struct ShardOptions {
    /// Namespace and durations of the Leases. Their names begin with its name.
    pub(crate) lease: LeaseOptions,
    pub(crate) count: u32,
    pub(crate) id: ShardId,
}

/// A replica that shares the cluster with others.
pub(crate) struct ShardElector {
    api: Api<Lease>,
    options: ShardOptions,
    shards: Shards,
    gate: LeaderGate,
    metrics: Metrics,
    /// Time of the last renewal of each Lease that this replica holds.
    held: BTreeMap<u32, Instant>,
    /// The Leases as they were last read, and the time since which they have not changed.
    seen: HashMap<u32, Seen>,
    /// The range that is handed over.
    leaving: Option<(u32, JoinHandle<()>)>,
    /// Time since which ranges are not listed.
    joining_since: Option<Instant>,
}

/// Reason why a pass has failed.
enum PassError {
    /// Another replica has a Lease of this one.
    Lost(u32),
    Request(kube::Error),
}

impl From<kube::Error> for PassError {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

impl ShardElector {
    /// Creates a replica without a range; `gate` lets writes pass only while it holds all Leases that it has.
    pub(crate) fn new(
        client: Client,
        options: ShardOptions,
        shards: Shards,
        gate: LeaderGate,
        metrics: Metrics,
    ) -> Self {
        gate.close();
        Self {
            api: Api::namespaced(client, &options.lease.namespace),
            options,
            shards,
            gate,
            metrics,
            held: BTreeMap::new(),
            seen: HashMap::new(),
            leaving: None,
            joining_since: None,
        }
    }

    /// Waits until this replica has a range; returns false when `stop` is cancelled first.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        let ShardOptions { count, id, lease } = &self.options;
        info!(count, ?id, identity = %lease.identity, "waiting for a shard");
        loop {
            if let Err(PassError::Request(error)) = self.pass().await {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot read or write the leases of the shards; retrying"
                );
            }
            if !self.held.is_empty() {
                return true;
            }
            let pause = tokio::time::sleep(self.options.lease.retry_period);
            if stop.run_until_cancelled(pause).await.is_none() {
                return false;
            }
        }
    }

    /// Renews the Leases, takes over and hands over ranges until `stop`, or until a Lease is lost.
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) -> Term {
        loop {
            let pause = tokio::time::sleep(self.options.lease.retry_period);
            if stop.run_until_cancelled(pause).await.is_none() {
                return Term::Stopped;
            }
            let deadline = self.deadline();
            let lost = match tokio::time::timeout_at(deadline, self.pass()).await {
                Ok(Ok(())) | Err(_) => None,
                Ok(Err(PassError::Lost(index))) => Some(index),
                Ok(Err(PassError::Request(error))) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot renew the leases of the shards"
                    );
                    None
                }
            };
            self.report_joining();
            if lost.is_some() || Instant::now() >= self.deadline() {
                self.gate.close();
                warn!(shard = lost, "lost the lease of a shard");
                return Term::Lost;
            }
        }
    }

    /// Releases all Leases.
    pub(crate) async fn release(&mut self) {
        self.gate.close();
        let Ok(leases) = self.list().await else {
            return;
        };
        for index in std::mem::take(&mut self.held).into_keys() {
            if let Some(lease) = leases.get(&index)
                && self.is_ours(lease)
                && let Err(error) = self.give_up(index, lease.clone()).await
            {
                let error = &error as &dyn std::error::Error;
                warn!(error, shard = index, "cannot release the lease of a shard");
            }
        }
    }

    /// Returns when this replica stops to write without a renewal.
    fn deadline(&self) -> Instant {
        let oldest = self.held.values().min().copied();
        oldest.unwrap_or_else(Instant::now) + self.options.lease.renew_deadline
    }

    fn name(&self, index: u32) -> String {
        format!("{}-shard-{index}", self.options.lease.name)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == Some(&self.options.lease.identity)
    }

    async fn list(&self) -> Result<HashMap<u32, Lease>, kube::Error> {
        let listed = self.api.list(&ListParams::default()).await?;
        let prefix = format!("{}-shard-", self.options.lease.name);
        let of_shard = listed.items.into_iter().filter_map(|lease| {
            let index = lease.metadata.name.as_deref()?.strip_prefix(&prefix)?;
            Some((index.parse().ok()?, lease))
        });
        Ok(of_shard
            .filter(|(index, _)| *index < self.options.count)
            .collect())
    }

    /// Renews the Leases of this replica, takes those that it may take, and hands over or asks for one.
    async fn pass(&mut self) -> Result<(), PassError> {
        let started = Instant::now();
        let leases = self.list().await?;
        for index in 0..self.options.count {
            let seen = self.seen.entry(index).or_default();
            seen.update(leases.get(&index), started);
        }
        for index in self.held.keys().copied().collect::<Vec<_>>() {
            if let Some(lease) = leases.get(&index)
                && !self.is_ours(lease)
            {
                return Err(PassError::Lost(index));
            }
            if !self.write(index, leases.get(&index), started).await? {
                let lease = self.api.get_opt(&self.name(index)).await?;
                // It is another's, or somebody asks for it, and the next pass renews it.
                if lease.is_some_and(|lease| !self.is_ours(&lease)) {
                    return Err(PassError::Lost(index));
                }
            }
        }
        self.open_gate();
        self.hand_over(&leases).await?;
        self.take_free(&leases, started).await?;
        self.ask(&leases, started).await?;
        Ok(())
    }

    fn open_gate(&self) {
        if let Some(oldest) = self.held.values().min() {
            let LeaseOptions {
                renew_deadline,
                duration,
                ..
            } = self.options.lease;
            self.gate
                .open_until(*oldest + renew_deadline, *oldest + duration);
        }
    }

    /// Writes this replica into a Lease. Returns whether no other was faster.
    async fn write(
        &mut self,
        index: u32,
        lease: Option<&Lease>,
        started: Instant,
    ) -> Result<bool, kube::Error> {
        let now = MicroTime(host::timestamp());
        let (options, name) = (&self.options.lease, self.name(index));
        let mut lease = lease.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        lease.spec = Some(options.spec(lease.spec.as_ref(), &now));
        if let Some(annotations) = &mut lease.metadata.annotations
            && !self.held.contains_key(&index)
        {
            annotations.remove(WANTED_BY);
        }
        let params = PostParams::default();
        let written = if lease.metadata.resource_version.is_none() {
            self.api.create(&params, &lease).await
        } else {
            self.api.replace(&name, &params, &lease).await
        };
        let is_ours = written.map(Some).or_else(lost_race)?.is_some();
        if is_ours {
            self.held.insert(index, started);
        }
        Ok(is_ours)
    }

    /// Hands over a range that another replica asks for, if this one has more than one.
    async fn hand_over(&mut self, leases: &HashMap<u32, Lease>) -> Result<(), PassError> {
        if let Some((index, leaving)) = &self.leaving {
            let index = *index;
            if !leaving.is_finished() {
                return Ok(());
            }
            self.leaving = None;
            self.held.remove(&index);
            // Renewed by this pass, so that it is read anew.
            if let Some(lease) = self.api.get_opt(&self.name(index)).await?
                && self.is_ours(&lease)
            {
                self.give_up(index, lease).await?;
            }
            return Ok(());
        }
        let asked = self.held.keys().copied().find(|index| {
            let wanted_by = leases.get(index).and_then(wanted_by);
            self.options.id != ShardId::Index(*index)
                && wanted_by.is_some_and(|by| by != self.options.lease.identity)
        });
        if let Some(index) = asked.filter(|_| self.held.len() > 1) {
            info!(shard = index, "handing over a shard to another replica");
            let shards = self.shards.clone();
            let leaving = tokio::spawn(async move { shards.leave(index).await });
            self.leaving = Some((index, leaving));
        }
        Ok(())
    }

    async fn give_up(&self, index: u32, mut lease: Lease) -> Result<(), kube::Error> {
        let mut spec = lease.spec.take().unwrap_or_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(host::timestamp()));
        lease.spec = Some(spec);
        let name = self.name(index);
        self.metrics.set_leader(&name, false);
        self.api
            .replace(&name, &PostParams::default(), &lease)
            .await
            .map(Some)
            .or_else(lost_race)?;
        Ok(())
    }

    /// Takes the ranges that this replica may take: at first its own, or one that nobody holds; then those that nobody else
    /// has taken for the time that a Lease lasts.
    async fn take_free(
        &mut self,
        leases: &HashMap<u32, Lease>,
        now: Instant,
    ) -> Result<(), PassError> {
        for index in 0..self.options.count {
            let lease = leases.get(&index);
            if self.held.contains_key(&index) || !self.may_take(index, lease, now) {
                continue;
            }
            if self.write(index, lease, now).await? {
                let former = lease.and_then(holder).filter(|holder| !holder.is_empty());
                info!(shard = index, former, "took a shard");
                self.metrics.set_leader(&self.name(index), true);
                self.open_gate();
                self.shards.join(index);
            }
        }
        Ok(())
    }

    fn may_take(&self, index: u32, lease: Option<&Lease>, now: Instant) -> bool {
        let duration = self.options.lease.duration;
        let is_expired = |after| {
            let seen = self.seen.get(&index);
            seen.is_some_and(|seen| seen.is_expired(after, now))
        };
        let holder = lease.and_then(holder).unwrap_or_default();
        if !holder.is_empty() && holder != self.options.lease.identity {
            return is_expired(None);
        }
        let is_first = match self.options.id {
            ShardId::Index(own) => own == index,
            ShardId::Auto => self.held.is_empty(),
        };
        let is_asked = lease.and_then(wanted_by) == Some(&self.options.lease.identity);
        is_first || is_asked || is_expired(Some(duration))
    }

    /// Asks for a range if another replica has more.
    async fn ask(&self, leases: &HashMap<u32, Lease>, now: Instant) -> Result<(), PassError> {
        let identity = &self.options.lease.identity;
        let is_live = |index: &u32| {
            let seen = self.seen.get(index);
            seen.is_some_and(|seen| !seen.is_expired(None, now))
        };
        let held_by_others: Vec<(u32, &Lease, &str)> = leases
            .iter()
            .filter(|(index, _)| !self.held.contains_key(index) && is_live(index))
            .filter_map(|(index, lease)| Some((*index, lease, holder(lease)?)))
            .filter(|(_, _, holder)| !holder.is_empty() && holder != identity)
            .collect();
        let has_asked = |lease: &Lease| wanted_by(lease) == Some(identity);
        if held_by_others.iter().any(|(_, lease, _)| has_asked(lease)) {
            return Ok(());
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, holder) in &held_by_others {
            *counts.entry(holder).or_default() += 1;
        }
        let wanted = held_by_others.iter().find(|(index, lease, holder)| {
            let count = counts.get(holder).copied().unwrap_or_default();
            let is_more = count >= self.held.len() + 2 && wanted_by(lease).is_none();
            match self.options.id {
                ShardId::Index(own) if !self.held.contains_key(&own) => own == *index,
                ShardId::Index(_) => false,
                ShardId::Auto => is_more,
            }
        });
        let Some((index, lease, _)) = wanted else {
            return Ok(());
        };
        let mut lease = (*lease).clone();
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(WANTED_BY.to_owned(), identity.clone());
        let name = self.name(*index);
        self.api
            .replace(&name, &PostParams::default(), &lease)
            .await
            .map(Some)
            .or_else(lost_race)?;
        Ok(())
    }

    /// Warns of ranges that are not handled because they cannot be listed.
    fn report_joining(&mut self) {
        let joining = self.shards.joining();
        if joining.is_empty() {
            self.joining_since = None;
            return;
        }
        let since = *self.joining_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LISTED_WITHIN {
            self.joining_since = Some(Instant::now());
            warn!(
                shards = ?joining,
                "the custom resources of these shards are not reconciled yet: a watch that they need has not listed them; other messages say why"
            );
        }
    }
}

fn wanted_by(lease: &Lease) -> Option<&str> {
    let annotations = lease.metadata.annotations.as_ref()?;
    annotations.get(WANTED_BY).map(String::as_str)
}

#[cfg(test)]
mod tests;
