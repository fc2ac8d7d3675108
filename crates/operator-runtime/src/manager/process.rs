//! Runs the controllers of a process, before and during its term as leader.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Controller, ControllerContext, ManagerError};
use crate::leader::{Election, Term};
use crate::options::Options;

/// A process whose connections and caches are set up.
pub(super) struct Process {
    /// Context of the controllers that need no leadership.
    pub(super) always: ControllerContext,
    /// Context of the other controllers.
    pub(super) leading: ControllerContext,
    pub(super) options: Options,
    pub(super) stop: CancellationToken,
}

/// Controllers that run.
type Running = JoinSet<Result<(), ManagerError>>;

impl Process {
    /// Runs the controllers that need no leadership, and the others while this process is the leader.
    pub(super) async fn run(
        self,
        controllers: Vec<Box<dyn Controller>>,
        mut election: Option<Election>,
    ) -> Result<(), ManagerError> {
        let (leading, always): (Vec<_>, Vec<_>) = controllers
            .into_iter()
            .partition(|controller| controller.needs_leadership());
        let mut running = Running::new();
        start(always, &self.always, &mut running);
        let term = self.lead(leading, &mut election, &mut running).await;
        // What was started for the term ends before the lease is released.
        self.leading.stop.cancel();
        let outcome = self.end(running, term).await;
        if let Some(election) = &mut election {
            election.release().await;
        }
        self.show_leader(false);
        outcome
    }

    /// Waits for leadership, starts the controllers, and returns when the term ends or one fails.
    async fn lead(
        &self,
        controllers: Vec<Box<dyn Controller>>,
        election: &mut Option<Election>,
        running: &mut Running,
    ) -> Result<(), ManagerError> {
        if let Some(election) = election {
            self.show_leader(false);
            tokio::select! {
                biased;
                elected = election.acquire(&self.stop) => if !elected {
                    return Ok(());
                },
                failed = first_failure(running) => return failed,
            }
        }
        self.show_leader(true);
        start(controllers, &self.leading, running);
        let term = async {
            if let Some(election) = election {
                return election.hold(&self.stop).await;
            }
            self.stop.cancelled().await;
            Term::Stopped
        };
        tokio::select! {
            biased;
            term = term => match term {
                Term::Stopped => Ok(()),
                Term::Lost => Err(ManagerError::LeaseLost),
            },
            failed = first_failure(running) => failed,
        }
    }

    /// Shows in the metrics whether this process is the leader. Shards show whose they are.
    fn show_leader(&self, is_leader: bool) {
        if self.options.shards.is_none() {
            let ring = self.options.ring.as_ref();
            let lease = ring.map_or(&self.options.operator_name, |ring| &ring.shard);
            self.leading.metrics.set_leader(lease, is_leader);
        }
    }

    /// Waits for the controllers, no longer than the grace period.
    async fn end(
        &self,
        mut running: Running,
        mut outcome: Result<(), ManagerError>,
    ) -> Result<(), ManagerError> {
        let within = self.options.graceful_shutdown_timeout;
        let ended = async {
            while let Some(ended) = running.join_next().await {
                if let (Ok(()), Ok(Err(error))) = (&outcome, ended) {
                    outcome = Err(error);
                }
            }
        };
        if tokio::time::timeout(within, ended).await.is_err() {
            warn!(
                ?within,
                "reconciles are still in progress; they are cancelled, and continued after the next start"
            );
        }
        outcome
    }
}

fn start(
    controllers: Vec<Box<dyn Controller>>,
    context: &ControllerContext,
    running: &mut Running,
) {
    for controller in controllers {
        let name = controller.name().to_owned();
        info!(controller = name, "starting controller");
        let run = controller.run(context.clone());
        running.spawn(async move {
            run.await
                .map_err(|source| ManagerError::Controller { name, source })
        });
    }
}

/// Waits until a controller fails; controllers that end without an error are ignored.
async fn first_failure(running: &mut Running) -> Result<(), ManagerError> {
    while let Some(ended) = running.join_next().await {
        if let Ok(Err(error)) = ended {
            return Err(error);
        }
    }
    std::future::pending().await
}
