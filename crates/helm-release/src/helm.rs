//! Releases of a program that is no operator.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, pending, select};
use host::watch;
use kube::Client;
use kube::core::GroupVersionKind;
use kube_objects::diagnosis::Rounds;
use kube_objects::shards::Shards;
use kube_objects::watch::definitions::follow_definitions;
use kube_objects::watch::{Change, Owners, Registry, Restarts, Route};
use kube_objects::{Cluster, InstanceId, OperatorId, Primary};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::engine::access::{Access, Shared, Waking};
use crate::engine::setup::Identity;
use crate::engine::target::ReleaseLocation;
use crate::release::{AllRecords, IndexState, ProofKeys, Storage};
use crate::release_memory::ReleaseMemory;
use crate::releases::{Advanced, ReleaseState, Releases, Wanted};
use crate::render_pool::RenderPool;

/// Time that one call of [`Releases::advance`] has.
const ATTEMPT_WITHIN: Duration = Duration::from_mins(5);
/// Longest pause after an attempt that failed for a reason that may pass.
const PAUSE: Duration = Duration::from_secs(5);

/// Error of [`Helm`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum HelmError {
    /// The release records cannot be listed.
    #[error("cannot list the release records: {0}")]
    Records(String),
    /// An action failed, or can do nothing until something changes.
    #[error("release {namespace}/{name}: {why}")]
    Failed {
        namespace: String,
        name: String,
        why: String,
    },
}

/// Installs, upgrades, repairs and uninstalls releases for a program.
///
/// A release belongs to the program that has installed it, under the name that it gave to [`connect`](Self::connect):
/// the records have it, and a program that is started again continues what the one before has begun. Two of its processes
/// must not manage a release at the same time.
pub struct Helm {
    releases: Releases,
    changes: watch::Receiver<()>,
    /// Number of calls.
    calls: i64,
    _route: Arc<Changes>,
    _stop: DropGuard,
}

/// Tells of changes of objects and records.
struct Changes(watch::Sender<()>);

impl Route for Changes {
    fn changed(&self, _: &Owners, _: Change) {
        self.0.send_replace(());
    }
}

impl Helm {
    /// Connects a program to a cluster, and waits until all release records are known. Call it within a runtime of
    /// tokio. The key that proves the records of the program is a Secret of the client's default namespace.
    ///
    /// Needs all verbs on Secrets, and for the objects of the charts `get`, `list`, `watch`, `create`, `patch` and `delete`:
    /// records and objects are watched in all namespaces.
    ///
    /// # Errors
    /// When the records cannot be listed.
    pub async fn connect(client: Client, program: &str) -> Result<Self, HelmError> {
        let (operator, stop) = (OperatorId::new(program), CancellationToken::new());
        let restarts = Restarts::default();
        let keys = ProofKeys::in_secret(client.clone(), client.default_namespace(), &operator);
        let all = AllRecords::new(
            client.clone(),
            Vec::new(),
            restarts.clone(),
            Shards::default(),
            stop.clone(),
            keys,
        );
        let records = all.stored_in(Storage::Secrets);
        let mut states = records.states();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                IndexState::Synced => break,
                IndexState::Forbidden(why) | IndexState::Failing(why) => {
                    return Err(HelmError::Records(why));
                }
                IndexState::Starting => {}
            }
            // The index lives as long as `records`.
            let _ = states.changed().await;
        }
        let cluster = Cluster::new(client.clone());
        let definitions = follow_definitions(cluster.clone(), restarts.clone());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(definitions).await });
        let (sender, changes) = watch::channel(());
        let registry = Registry::new(client, restarts.clone());
        let route = Arc::new(Changes(sender.clone()));
        registry.add_route(&route);
        let tell = sender.clone();
        records.on_change(move |_| tell.send_replace(()));
        let shared = Shared {
            pool: RenderPool::default(),
            memory: ReleaseMemory::of_container(),
            registry,
        };
        let waking = Waking {
            wake: Arc::new(move |_| sender.send_replace(())),
            restarts,
            stop: stop.clone(),
        };
        let access = Access::new(&cluster, all.store(records), shared, waking);
        let identity = Identity {
            operator,
            instance: InstanceId::new(program),
            elected: false,
            namespaces: Vec::new(),
        };
        Ok(Self {
            releases: Releases::new(Arc::new(access), Rounds::new(stop.clone()), identity),
            changes,
            calls: 0,
            _route: route,
            _stop: stop.drop_guard(),
        })
    }

    /// Makes a release what is wanted, and waits until it is ready: installs it, upgrades it, repairs its objects, or
    /// continues what a former process has begun. Drop the future to stop waiting.
    ///
    /// # Errors
    /// When an action fails. The next call tries again.
    pub async fn install(
        &mut self,
        location: &ReleaseLocation,
        wanted: &Wanted,
    ) -> Result<ReleaseState, HelmError> {
        self.calls += 1;
        let wanted = Wanted {
            generation: self.calls,
            ..wanted.clone()
        };
        self.until(location, Some(&wanted), |state| state.is_ready)
            .await
    }

    /// Uninstalls a release, and waits until it is gone.
    ///
    /// # Errors
    /// When the uninstall fails. The next call tries again.
    pub async fn uninstall(&mut self, location: &ReleaseLocation) -> Result<(), HelmError> {
        let gone = |state: &ReleaseState| state.is_gone;
        self.until(location, None, gone).await.map(drop)
    }

    async fn until(
        &mut self,
        location: &ReleaseLocation,
        wanted: Option<&Wanted>,
        is_done: impl Fn(&ReleaseState) -> bool,
    ) -> Result<ReleaseState, HelmError> {
        let owner = owner_of(location);
        loop {
            self.changes.borrow_and_update();
            let until = Instant::now() + ATTEMPT_WITHIN;
            let releases = &self.releases;
            let advanced = releases.advance(&owner, location, wanted, PAUSE, until);
            let Advanced {
                state,
                events,
                next,
            } = advanced.await;
            for event in events {
                tracing::info!(release = %location, reason = event.reason, "{}", event.note);
            }
            if is_done(&state) {
                return Ok(state);
            }
            let failed = |why| HelmError::Failed {
                namespace: location.namespace.clone(),
                name: location.name.to_string(),
                why,
            };
            let delay = next.map_err(failed)?;
            if state.has_failed {
                return Err(failed(state.message));
            }
            let timer = match delay {
                Some(delay) => Either::Left(sleep(delay)),
                None => Either::Right(pending()),
            };
            let changed = Box::pin(self.changes.changed());
            select(Box::pin(timer), changed).await;
        }
    }
}

/// Returns the owner of a release without one: the release itself.
fn owner_of(location: &ReleaseLocation) -> Primary {
    Primary {
        gvk: GroupVersionKind::gvk("helm.sh", "v1", "Release"),
        namespace: Some(location.namespace.clone()),
        name: location.name.to_string(),
        uid: String::new(),
        component: None,
    }
}
