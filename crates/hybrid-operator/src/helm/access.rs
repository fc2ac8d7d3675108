//! Cluster connections and caches of a chart controller.

use host::{HashMap, HashSet};
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use kube::Client;
use kube_objects::client::{ImpersonateError, impersonate, refusing};
use kube_objects::diagnosis::Rounds;
use kube_objects::watch::Registry;
use kube_objects::{AccountName, Cluster};
use operator_runtime::controller::{Key, QueueHandle};
use operator_runtime::manager::ControllerContext;
use operator_runtime::telemetry::traces::Tracer;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::events::EventSink;
use super::interest::Interests;
use crate::process::Process;
use crate::release::{RecordStore, ReleaseIndex};
use crate::release_memory::{ReleaseMemory, Share};
use crate::render_pool::RenderPool;

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

/// The service accounts that the operator impersonates, each as long as a custom resource uses it.
#[derive(Default)]
struct Impersonated {
    accounts: HashMap<AccountName, (Account, HashSet<Key>)>,
    used: HashMap<Key, AccountName>,
}

impl Impersonated {
    /// Returns the account that a custom resource uses from now on, in place of another one. `connect`
    /// makes it unless another custom resource uses it.
    fn account(
        &mut self,
        key: &Key,
        name: AccountName,
        connect: impl FnOnce() -> Result<Account, ImpersonateError>,
    ) -> Result<Account, ImpersonateError> {
        if self.used.get(key).is_some_and(|used| *used != name) {
            self.release(key);
        }
        let (account, users) = match self.accounts.entry(name.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((connect()?, HashSet::default())),
        };
        if users.insert(key.clone()) {
            self.used.insert(key.clone(), name);
        }
        Ok(account.clone())
    }

    /// Records that a custom resource uses no account any more, and drops one that nobody uses.
    fn release(&mut self, key: &Key) {
        let Some(name) = self.used.remove(key) else {
            return;
        };
        let Some((account, users)) = self.accounts.get_mut(&name) else {
            return;
        };
        account.interests.forget(key);
        users.remove(key);
        if users.is_empty() {
            self.accounts.remove(&name);
        }
    }
}

/// Connections and caches of one controller.
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) cluster: Cluster,
    impersonated: Mutex<Impersonated>,
    nobody: OnceLock<Account>,
    /// Watches of dependents.
    pub(super) registry: Registry,
    /// Release records.
    pub(super) store: RecordStore,
    /// Release records in other storages.
    pub(super) other_records: Vec<ReleaseIndex>,
    /// Watches of the objects that custom resources refer to, by the operator itself.
    pub(super) interests: Arc<Interests>,
    pub(super) queue: QueueHandle,
    stop: CancellationToken,
    pub(super) events: EventSink,
    /// Threads that render charts.
    pub(super) pool: RenderPool,
    /// The memory that releases may take.
    memory: ReleaseMemory,
    /// Examines releases that are not ready.
    pub(super) rounds: Rounds,
    /// Sends traces.
    pub(super) tracer: Tracer,
}

impl Access {
    pub(super) fn new(
        context: &ControllerContext,
        queue: &QueueHandle,
        records: ReleaseIndex,
    ) -> Self {
        let connection = &context.connection;
        let process = Process::of(context);
        let (client, cluster) = (&connection.client, &connection.cluster);
        let mut other_records = process.records.all();
        other_records.retain(|other| other.storage() != records.storage());
        Self {
            impersonated: Mutex::default(),
            nobody: OnceLock::new(),
            registry: context.caches.registry.clone(),
            store: RecordStore::new(client.clone(), records, process.records.keys()),
            other_records,
            interests: Arc::new(Interests::new(cluster, queue.clone(), context.stop.clone())),
            queue: queue.clone(),
            stop: context.stop.clone(),
            events: EventSink::new(connection.events.clone()),
            pool: process.pool,
            memory: process.memory,
            rounds: context.rounds.clone(),
            tracer: context.tracer.clone(),
            client: client.clone(),
            cluster: cluster.clone(),
        }
    }

    /// Returns the share of a reconcile, empty at first.
    pub(super) fn share(&self) -> Share {
        self.memory.share()
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

    /// Returns a service account that the operator impersonates for a custom resource, in place of
    /// another one that it has used before.
    ///
    /// # Errors
    /// When the name is not a valid header value.
    pub(super) fn account(
        &self,
        key: &Key,
        name: &AccountName,
    ) -> Result<Account, ImpersonateError> {
        let connect = || {
            let client = impersonate(&self.client, name.namespace(), &name.user())?;
            let who = Who::Account(name.clone());
            Ok(self.impersonating(who, self.cluster.with_client(client)))
        };
        self.impersonated.lock().account(key, name.clone(), connect)
    }

    fn impersonating(&self, who: Who, cluster: Cluster) -> Account {
        let interests = Interests::new(&cluster, self.queue.clone(), self.stop.clone());
        Account {
            who,
            cluster,
            interests: Arc::new(interests),
        }
    }

    /// Records that a custom resource uses the operator's own account.
    pub(super) fn release_account(&self, key: &Key) {
        self.impersonated.lock().release(key);
    }

    /// Forgets what a custom resource refers to, and with which account.
    pub(super) fn forget(&self, key: &Key) {
        self.interests.forget(key);
        if let Some(nobody) = self.nobody.get() {
            nobody.interests.forget(key);
        }
        self.impersonated.lock().release(key);
    }
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::Script;

    use super::*;

    #[tokio::test]
    async fn an_account_is_dropped_when_no_custom_resource_uses_it() {
        let script = Script::default();
        let queue = QueueHandle::detached("accounts");
        let mut known = Impersonated::default();
        let use_account = |known: &mut Impersonated, key: &str, name: &str| {
            let connect = || {
                let cluster = Cluster::new(script.client());
                let stop = CancellationToken::new();
                let interests = Arc::new(Interests::new(&cluster, queue.clone(), stop));
                Ok(Account {
                    who: Who::Operator,
                    cluster,
                    interests,
                })
            };
            let name = AccountName::new("ns", name).unwrap();
            let account = known.account(&Key::new(None, key), name, connect).unwrap();
            Arc::downgrade(&account.interests)
        };
        let first = use_account(&mut known, "a", "one");
        assert!(use_account(&mut known, "b", "one").ptr_eq(&first));
        let second = use_account(&mut known, "a", "two");
        assert!(first.upgrade().is_some(), "b still uses it");
        known.release(&Key::new(None, "b"));
        assert!(first.upgrade().is_none() && second.upgrade().is_some());
        known.release(&Key::new(None, "a"));
        known.release(&Key::new(None, "never seen"));
        assert!(second.upgrade().is_none());
        assert!(known.accounts.is_empty() && known.used.is_empty());
    }
}
