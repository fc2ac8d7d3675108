//! Cluster connections and caches of releases.

use host::{HashMap, HashSet};
#[cfg(test)]
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use kube::Client;
use kube_objects::client::{ImpersonateError, impersonate, refusing};
use kube_objects::watch::{Registry, Restarts};
use kube_objects::{AccountName, Cluster, Key};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::interest::Interests;
use crate::release::RecordStore;
use crate::release_memory::{ReleaseMemory, Share};
use crate::render_pool::RenderPool;

/// The account with whose permissions the release of an owner is managed.
#[derive(Clone)]
pub struct Account {
    pub(super) who: Who,
    pub(super) cluster: Cluster,
    /// Watches of the objects that owners refer to, by this account.
    pub(super) interests: Arc<Interests>,
}

/// Identifies an [`Account`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The operator itself.
    Operator,
    /// A service account that it impersonates.
    Account(AccountName),
    /// Nobody: the owner names no account although `serviceAccountName` is set. Every
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

/// The service accounts that the operator impersonates, each as long as an owner uses it.
#[derive(Default)]
struct Impersonated {
    accounts: HashMap<AccountName, (Account, HashSet<Key>)>,
    used: HashMap<Key, AccountName>,
}

impl Impersonated {
    /// Returns the account that an owner uses from now on, in place of another one. `connect`
    /// makes it unless another owner uses it.
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

    /// Records that an owner uses no account any more, and drops one that nobody uses.
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

/// Connections and caches of the releases of one controller.
pub struct Access {
    /// Client of the operator itself.
    pub client: Client,
    /// Cluster client of the operator itself.
    pub cluster: Cluster,
    impersonated: Mutex<Impersonated>,
    nobody: OnceLock<Account>,
    /// Watches of dependents.
    pub registry: Registry,
    /// Release records.
    pub store: RecordStore,
    /// Watches of the objects that releases refer to, by the operator itself.
    pub interests: Arc<Interests>,
    waking: Waking,
    /// Threads that render charts.
    pub pool: RenderPool,
    /// The memory that releases may take.
    memory: ReleaseMemory,
}

/// Wakes the owner of a release when something changes that the release refers to.
pub type Wake = Arc<dyn Fn(&Key) + Send + Sync>;

/// Inputs of watches of objects that releases refer to. Cheap to clone.
#[derive(Clone)]
pub struct Waking {
    /// Wakes the owner of a release.
    pub wake: Wake,
    /// Counts the restarts of watches.
    pub restarts: Restarts,
    /// Ends the watches.
    pub stop: CancellationToken,
}

/// State that the releases of a process share.
#[derive(Clone)]
pub struct Shared {
    /// Renders the charts.
    pub pool: RenderPool,
    /// The memory that releases may take.
    pub memory: ReleaseMemory,
    /// Watches of dependents.
    pub registry: Registry,
}

impl Access {
    /// Creates the access to the releases of one controller, whose records are in `store`.
    pub fn new(cluster: &Cluster, store: RecordStore, shared: Shared, waking: Waking) -> Self {
        Self {
            client: cluster.client().clone(),
            cluster: cluster.clone(),
            impersonated: Mutex::default(),
            nobody: OnceLock::new(),
            registry: shared.registry,
            store,
            interests: Arc::new(Interests::new(cluster, waking.clone())),
            waking,
            pool: shared.pool,
            memory: shared.memory,
        }
    }

    /// Returns the share of a reconcile, empty at first.
    pub(super) fn share(&self) -> Share {
        self.memory.share()
    }

    /// Returns what wakes the owner of a release.
    pub(crate) fn wake(&self) -> Wake {
        Arc::clone(&self.waking.wake)
    }

    /// Returns the operator's own account.
    pub fn own_account(&self) -> Account {
        Account {
            who: Who::Operator,
            cluster: self.cluster.clone(),
            interests: Arc::clone(&self.interests),
        }
    }

    /// Returns the account of an owner that names none: it may do nothing.
    pub fn nobody(&self) -> Account {
        let nobody = || {
            let client = refusing("the custom resource names no service account");
            self.impersonating(Who::Nobody, self.cluster.with_client(client))
        };
        self.nobody.get_or_init(nobody).clone()
    }

    /// Returns a service account that the operator impersonates for an owner, in place of
    /// another one that it has used before.
    ///
    /// # Errors
    /// When the name is not a valid header value.
    pub fn account(&self, key: &Key, name: &AccountName) -> Result<Account, ImpersonateError> {
        let connect = || {
            let client = impersonate(&self.client, name.namespace(), &name.user())?;
            let who = Who::Account(name.clone());
            Ok(self.impersonating(who, self.cluster.with_client(client)))
        };
        self.impersonated.lock().account(key, name.clone(), connect)
    }

    fn impersonating(&self, who: Who, cluster: Cluster) -> Account {
        let interests = Interests::new(&cluster, self.waking.clone());
        Account {
            who,
            cluster,
            interests: Arc::new(interests),
        }
    }

    /// Records that an owner uses the operator's own account.
    pub fn release_account(&self, key: &Key) {
        self.impersonated.lock().release(key);
    }

    /// Forgets what an owner refers to, and with which account.
    pub fn forget(&self, key: &Key) {
        self.interests.forget(key);
        if let Some(nobody) = self.nobody.get() {
            nobody.interests.forget(key);
        }
        self.impersonated.lock().release(key);
    }
}

#[cfg(test)]
impl Waking {
    /// Returns one that remembers whom it wakes.
    pub(super) fn remembering() -> (Self, Arc<Mutex<BTreeSet<Key>>>) {
        let woken: Arc<Mutex<BTreeSet<Key>>> = Arc::default();
        let all = Arc::clone(&woken);
        let waking = Self {
            wake: Arc::new(move |key: &Key| {
                all.lock().insert(key.clone());
            }),
            restarts: Restarts::default(),
            stop: CancellationToken::new(),
        };
        (waking, woken)
    }
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::Script;

    use super::*;

    #[tokio::test]
    async fn an_account_is_dropped_when_no_custom_resource_uses_it() {
        let script = Script::default();
        let mut known = Impersonated::default();
        let use_account = |known: &mut Impersonated, key: &str, name: &str| {
            let connect = || {
                let cluster = Cluster::new(script.client());
                let interests = Arc::new(Interests::new(&cluster, Waking::remembering().0));
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
