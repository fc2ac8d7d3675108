//! Leader election: of several replicas, only the leader runs the controllers.

mod lease;
mod life;
mod shards;

use tokio_util::sync::CancellationToken;

pub(crate) use lease::{Elector, LeaseOptions, Term};
pub(crate) use life::{LifeElector, LockOptions};
pub use shards::ShardId;
pub(crate) use shards::{ShardElector, ShardOptions};

/// Method of leader election.
pub(crate) enum Election {
    /// By a lease that the leader renews.
    Lease(Elector),
    /// By a lock that the leader's Pod owns.
    Life(LifeElector),
    /// By a lease for each range of namespaces.
    Shards(ShardElector),
}

impl Election {
    /// Waits until this process is the leader; returns false when `stop` is cancelled first.
    pub(crate) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        match self {
            Self::Lease(elector) => elector.acquire(stop).await,
            Self::Life(elector) => elector.acquire(stop).await,
            Self::Shards(elector) => elector.acquire(stop).await,
        }
    }

    /// Stays the leader until `stop`, or until another process may be the leader.
    pub(crate) async fn hold(&mut self, stop: &CancellationToken) -> Term {
        match self {
            Self::Lease(elector) => elector.hold(stop).await,
            Self::Life(elector) => elector.hold(stop).await,
            Self::Shards(elector) => elector.hold(stop).await,
        }
    }

    /// Ends the term.
    pub(crate) async fn release(&mut self) {
        match self {
            Self::Lease(elector) => elector.release().await,
            Self::Life(elector) => elector.release(),
            Self::Shards(elector) => elector.release().await,
        }
    }
}
