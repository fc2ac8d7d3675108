//! Records in memory: the twin of the Secrets for tests, with the same rules for writers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use helm_core::release::{Release, ReleaseName};
use jiff::Timestamp;

use super::meta::{RecordMeta, RecordTags};
use super::side::{self, Stored};
use super::{ReleaseStore, StoreError};
use crate::cluster::CrIdentity;

/// Keeps records in memory, encoded as they would be in Secrets.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By namespace, release and revision.
    records: BTreeMap<(String, ReleaseName, u32), (RecordMeta, Kept)>,
    version: u64,
}

/// The content of a record and of its parts.
#[derive(Debug, Default)]
struct Kept {
    record: String,
    pieces: Vec<String>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the content of a record, for tests of corrupt ones.
    pub fn overwrite(&self, meta: &RecordMeta, content: &str) {
        self.with(|inner| {
            if let Some((_, kept)) = inner.records.get_mut(&key(meta)) {
                content.clone_into(&mut kept.record);
            }
        });
    }

    /// Puts a record there as somebody else would, without labels of ours.
    pub fn put_foreign(&self, release: &Release) -> Result<RecordMeta, StoreError> {
        let stored = encode(release)?;
        Ok(self.with(|inner| {
            let meta = inner.describe(release, &stored, None);
            inner.put(meta, stored)
        }))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn describe(
        &mut self,
        release: &Release,
        stored: &Stored,
        tags: Option<&RecordTags>,
    ) -> RecordMeta {
        self.version += 1;
        let mut meta = RecordMeta::bare(
            &release.namespace,
            release.name.clone(),
            release.revision,
            release.info.status,
        );
        meta.uid = format!("uid-{}", self.version);
        meta.resource_version = self.version.to_string();
        meta.created_at = Some(Timestamp::now());
        meta.parts.clone_from(&stored.parts);
        if let Some(tags) = tags {
            tag(&mut meta, tags);
        }
        meta
    }

    fn put(&mut self, meta: RecordMeta, stored: Stored) -> RecordMeta {
        let kept = Kept {
            record: stored.record,
            pieces: stored.pieces,
        };
        self.records.insert(key(&meta), (meta.clone(), kept));
        meta
    }

    /// The record if it is what the writer believes.
    fn fenced(&mut self, meta: &RecordMeta) -> Result<&mut (RecordMeta, Kept), StoreError> {
        let secret = || meta.secret.clone();
        let Some(found) = self.records.get_mut(&key(meta)) else {
            return Err(StoreError::Gone { secret: secret() });
        };
        if found.0.uid != meta.uid || found.0.resource_version != meta.resource_version {
            return Err(StoreError::Fenced { secret: secret() });
        }
        Ok(found)
    }
}

impl ReleaseStore for MemoryStore {
    fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta> {
        self.with(|inner| {
            let records = inner.records.values().map(|(meta, _)| meta);
            records
                .filter(|meta| meta.namespace == namespace && meta.name == *name)
                .cloned()
                .collect()
        })
    }

    fn records_of(&self, cr: &CrIdentity) -> Vec<RecordMeta> {
        self.with(|inner| {
            let records = inner.records.values().map(|(meta, _)| meta);
            records
                .filter(|meta| meta.cr.as_ref() == Some(cr))
                .cloned()
                .collect()
        })
    }

    fn load<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<Release, StoreError>> {
        let loaded = self.with(|inner| {
            let secret = || meta.secret.clone();
            let Some((found, kept)) = inner.records.get(&key(meta)) else {
                return Err(StoreError::Gone { secret: secret() });
            };
            let pieces: Vec<Vec<u8>> = kept
                .pieces
                .iter()
                .map(|piece| piece.clone().into_bytes())
                .collect();
            side::restore(kept.record.as_bytes(), found.parts.as_ref(), &pieces).map_err(|source| {
                StoreError::Corrupt {
                    secret: secret(),
                    source,
                }
            })
        });
        ready(loaded).boxed()
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        let created = encode(release).and_then(|stored| {
            self.with(|inner| {
                let meta = inner.describe(release, &stored, Some(tags));
                if inner.records.contains_key(&key(&meta)) {
                    return Err(StoreError::Exists {
                        name: meta.name,
                        revision: meta.revision,
                    });
                }
                Ok(inner.put(meta, stored))
            })
        });
        ready(created).boxed()
    }

    fn update<'a>(
        &'a self,
        meta: &'a RecordMeta,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        let updated = encode(release).and_then(|stored| {
            self.with(|inner| {
                inner.version += 1;
                let version = inner.version.to_string();
                let (found, kept) = inner.fenced(meta)?;
                found.status = release.info.status;
                found.resource_version = version;
                found.modified_at = Some(Timestamp::now());
                found.parts.clone_from(&stored.parts);
                tag(found, tags);
                *kept = Kept {
                    record: stored.record,
                    pieces: stored.pieces,
                };
                Ok(found.clone())
            })
        });
        ready(updated).boxed()
    }

    fn delete<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<(), StoreError>> {
        self.with(|inner| {
            let same = inner
                .records
                .get(&key(meta))
                .is_some_and(|(found, _)| found.uid == meta.uid);
            if same {
                inner.records.remove(&key(meta));
            }
        });
        ready(Ok(())).boxed()
    }

    fn delete_all<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a ReleaseName,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.with(|inner| {
            inner
                .records
                .retain(|(own, release, _), _| own != namespace || release != name);
        });
        ready(Ok(())).boxed()
    }

    fn adopt<'a>(
        &'a self,
        meta: &'a RecordMeta,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        let adopted = self.with(|inner| {
            inner.version += 1;
            let version = inner.version.to_string();
            let (found, _) = inner.fenced(meta)?;
            found.resource_version = version;
            found.owners.clear();
            tag(found, tags);
            Ok(found.clone())
        });
        ready(adopted).boxed()
    }
}

fn encode(release: &Release) -> Result<Stored, StoreError> {
    side::store(release).map_err(|source| StoreError::Encode {
        name: release.name.clone(),
        source,
    })
}

fn tag(meta: &mut RecordMeta, tags: &RecordTags) {
    meta.cr = Some(tags.cr.clone());
    meta.operator = Some(tags.operator.clone());
    meta.writer = Some(tags.writer.clone());
    if tags.digest.is_some() {
        meta.digest.clone_from(&tags.digest);
    }
}

fn key(meta: &RecordMeta) -> (String, ReleaseName, u32) {
    (meta.namespace.clone(), meta.name.clone(), meta.revision.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{InstanceId, OperatorId};
    use crate::release::load_newest;
    use helm_core::release::{Revision, Status};

    fn release(revision: u32, status: Status) -> Release {
        let mut release = Release::new("web".parse().unwrap(), "prod", Revision(revision));
        release.info.status = status;
        release.manifest = format!("manifest {revision}");
        release
    }

    fn tags() -> RecordTags {
        RecordTags {
            cr: CrIdentity::of("g", "K", Some("prod"), "web"),
            operator: OperatorId::new("op"),
            writer: InstanceId::new("pod"),
            digest: None,
        }
    }

    #[tokio::test]
    async fn rule_3_5_records_are_fenced() {
        let store = MemoryStore::new();
        let first = release(1, Status::PendingInstall);
        let meta = store.create(&first, &tags()).await.unwrap();
        let again = store.create(&first, &tags()).await.unwrap_err();
        assert!(matches!(again, StoreError::Exists { .. }));

        let newer = store
            .update(&meta, &release(1, Status::Deployed), &tags())
            .await
            .unwrap();
        let late = store
            .update(&meta, &release(1, Status::Failed), &tags())
            .await
            .unwrap_err();
        assert!(matches!(late, StoreError::Fenced { .. }));
        let history = store.history("prod", &meta.name);
        assert_eq!(history, std::slice::from_ref(&newer));
        assert_eq!(
            store.load(&newer).await.unwrap(),
            release(1, Status::Deployed)
        );

        store.delete(&newer).await.unwrap();
        store.delete(&newer).await.unwrap();
        let gone = store.update(&newer, &first, &tags()).await.unwrap_err();
        assert!(matches!(gone, StoreError::Gone { .. }));
    }

    #[tokio::test]
    async fn a_corrupt_record_is_reported_and_an_earlier_one_used() {
        let store = MemoryStore::new();
        for revision in 1..=3 {
            store
                .create(&release(revision, Status::Deployed), &tags())
                .await
                .unwrap();
        }
        let history = store.history("prod", &"web".parse().unwrap());
        store.overwrite(&history[2], "!");
        let loaded = load_newest(&store, &history).await.unwrap().unwrap();
        assert_eq!(loaded.release.revision, Revision(2));
        assert_eq!(loaded.corrupt[0].0.revision, Revision(3));
        store.overwrite(&history[1], "!");
        store.overwrite(&history[0], "!");
        assert!(
            load_newest(&store, &history)
                .await
                .unwrap_err()
                .is_corrupt()
        );
        assert!(load_newest(&store, &[]).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn records_are_found_by_custom_resource_and_deleted_by_release() {
        let store = MemoryStore::new();
        store
            .create(&release(1, Status::Superseded), &tags())
            .await
            .unwrap();
        store
            .create(&release(2, Status::Deployed), &tags())
            .await
            .unwrap();
        assert_eq!(store.records_of(&tags().cr).len(), 2);
        let other: ReleaseName = "other".parse().unwrap();
        store.delete_all("prod", &other).await.unwrap();
        assert_eq!(store.records_of(&tags().cr).len(), 2);
        store
            .delete_all("prod", &"web".parse().unwrap())
            .await
            .unwrap();
        assert!(store.records_of(&tags().cr).is_empty());
    }

    #[tokio::test]
    async fn adopting_makes_a_foreign_record_ours() {
        let store = MemoryStore::new();
        let foreign = store.put_foreign(&release(1, Status::Deployed)).unwrap();
        assert!(foreign.is_foreign());
        let ours = store.adopt(&foreign, &tags()).await.unwrap();
        assert_eq!(ours.cr, Some(tags().cr));
        assert!(store.adopt(&foreign, &tags()).await.is_err());
    }
}
