//! Cluster connections and caches of a chart controller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::events::EventSink;
use super::interest::Interests;
use super::resources::Resources;
use crate::client::{ImpersonateError, impersonate, refusing};
use crate::cluster::{AccountName, Cluster};
use crate::controller::{Key, QueueHandle, Registry};
use crate::manager::ControllerContext;
use crate::native::Readers;
use crate::release::{RecordStore, ReleaseIndex};
use crate::render_pool::RenderPool;
use crate::telemetry::traces::Tracer;

/// The account with whose permissions the release of a custom resource is managed.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) who: Who,
    pub(super) cluster: Cluster,
    /// Watches of the objects that custom resources refer to, by this account.
    pub(super) interests: Arc<Interests>,
}

/// Identifies an [`Account`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The operator itself.
    Operator,
    /// A service account that it impersonates.
    Account(AccountName),
    /// Nobody: the custom resource names no account although `serviceAccountName` is set. Every
    /// request is refused.
    Nobody,
}

impl Who {
    /// Returns the service account that is impersonated, if one is.
    pub(super) fn impersonated(&self) -> Option<&AccountName> {
        match self {
            Self::Account(name) => Some(name),
            Self::Operator | Self::Nobody => None,
        }
    }
}

/// Connections and caches of one controller.
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) cluster: Cluster,
    /// Service accounts.
    impersonated: Mutex<HashMap<AccountName, Account>>,
    nobody: OnceLock<Account>,
    /// Watches of dependents.
    pub(super) registry: Registry,
    /// Release records.
    pub(super) store: RecordStore,
    /// Release records in other storages.
    pub(super) other_records: Vec<ReleaseIndex>,
    /// Custom resources.
    pub(super) resources: Resources,
    /// Objects that the extensions read.
    pub(super) readers: Readers,
    /// Watches of the objects that custom resources refer to, by the operator itself.
    pub(super) interests: Arc<Interests>,
    queue: QueueHandle,
    stop: CancellationToken,
    pub(super) events: EventSink,
    /// Threads that render charts.
    pub(super) pool: RenderPool,
    /// Sends traces.
    pub(super) tracer: Tracer,
}

impl Access {
    pub(super) fn new(
        context: &ControllerContext,
        queue: &QueueHandle,
        resources: Resources,
        readers: Readers,
        records: ReleaseIndex,
    ) -> Self {
        let connection = &context.connection;
        let (client, cluster) = (&connection.client, &connection.cluster);
        let mut other_records = context.caches.records.all();
        other_records.retain(|other| other.storage() != records.storage());
        Self {
            impersonated: Mutex::default(),
            nobody: OnceLock::new(),
            registry: context.caches.registry.clone(),
            store: RecordStore::new(client.clone(), records, context.caches.records.keys()),
            other_records,
            resources,
            readers,
            interests: Arc::new(Interests::new(cluster, queue.clone(), context.stop.clone())),
            queue: queue.clone(),
            stop: context.stop.clone(),
            events: EventSink::new(connection.events.clone()),
            pool: context.limits.pool.clone(),
            tracer: context.tracer.clone(),
            client: client.clone(),
            cluster: cluster.clone(),
        }
    }
    /// Returns the operator's own account.
    pub(super) fn own_account(&self) -> Account {
        Account {
            who: Who::Operator,
            cluster: self.cluster.clone(),
            interests: Arc::clone(&self.interests),
        }
    }

    /// Returns the account of a custom resource that names none: it may do nothing.
    pub(super) fn nobody(&self) -> Account {
        let nobody = || {
            let client = refusing("the custom resource names no service account");
            self.impersonating(Who::Nobody, self.cluster.with_client(client))
        };
        self.nobody.get_or_init(nobody).clone()
    }

    /// Returns a service account that the operator impersonates.
    ///
    /// # Errors
    /// When the name is not a valid header value.
    pub(super) fn account(&self, name: &AccountName) -> Result<Account, ImpersonateError> {
        let mut known = self.accounts();
        if let Some(account) = known.get(name) {
            return Ok(account.clone());
        }
        let client = impersonate(&self.client, name.namespace(), &name.user())?;
        let cluster = self.cluster.with_client(client);
        let account = self.impersonating(Who::Account(name.clone()), cluster);
        known.insert(name.clone(), account.clone());
        Ok(account)
    }

    fn impersonating(&self, who: Who, cluster: Cluster) -> Account {
        let interests = Interests::new(&cluster, self.queue.clone(), self.stop.clone());
        Account {
            who,
            cluster,
            interests: Arc::new(interests),
        }
    }

    /// Forgets what a custom resource refers to.
    pub(super) fn forget(&self, key: &Key) {
        self.interests.forget(key);
        let accounts = self.accounts();
        for account in accounts.values().chain(self.nobody.get()) {
            account.interests.forget(key);
        }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountName, Account>> {
        self.impersonated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
