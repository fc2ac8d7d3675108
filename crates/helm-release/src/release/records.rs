//! The indices of release records of a process, one for each storage.

use host::HashMap;
use std::sync::Arc;

use kube::Client;
use kube_objects::shards::Shards;
use kube_objects::watch::Restarts;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::index::ReleaseIndex;
use super::proof::ProofKeys;
use super::storage::Storage;
use super::store::RecordStore;

/// The indices of release records, each with its watches. Cheap to clone.
#[derive(Clone)]
pub struct AllRecords {
    client: Client,
    namespaces: Vec<String>,
    restarts: Restarts,
    shards: Shards,
    stop: CancellationToken,
    keys: ProofKeys,
    indices: Arc<Mutex<HashMap<Storage, ReleaseIndex>>>,
}

impl AllRecords {
    /// Watches the records in Secrets in `namespaces` (empty means all), those of a share, until `stop` is cancelled.
    /// Records are proven by `keys`.
    pub fn new(
        client: Client,
        namespaces: Vec<String>,
        restarts: Restarts,
        shards: Shards,
        stop: CancellationToken,
        keys: ProofKeys,
    ) -> Self {
        let records = Self {
            client,
            namespaces,
            restarts,
            shards,
            stop,
            keys,
            indices: Arc::default(),
        };
        drop(records.stored_in(Storage::Secrets));
        records
    }

    /// Returns the index of a storage, and starts its watches with the first call.
    pub fn stored_in(&self, storage: Storage) -> ReleaseIndex {
        let mut indices = self.indices.lock();
        let index = indices.entry(storage);
        index.or_insert_with(|| self.follow(storage)).clone()
    }

    /// Returns the indices that are in use.
    pub fn all(&self) -> Vec<ReleaseIndex> {
        self.indices.lock().values().cloned().collect()
    }

    /// Creates a store of the records in an index.
    pub fn store(&self, index: ReleaseIndex) -> RecordStore {
        RecordStore::new(self.client.clone(), index, self.keys.clone())
    }

    fn follow(&self, storage: Storage) -> ReleaseIndex {
        let index = ReleaseIndex::of(storage);
        let scopes: Vec<Option<String>> = if self.namespaces.is_empty() {
            vec![None]
        } else {
            self.namespaces.iter().cloned().map(Some).collect()
        };
        for scope in &scopes {
            index.expect(scope.as_deref());
        }
        for scope in scopes {
            let (client, restarts) = (self.client.clone(), self.restarts.clone());
            let watch = index
                .clone()
                .watch(client, scope, restarts, self.shards.clone());
            let stop = self.stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(watch).await });
        }
        index
    }
}
