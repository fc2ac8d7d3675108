//! A store that fails or stops at a chosen write, to show that no crash between two writes loses
//! or doubles anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use helm_core::release::{Release, ReleaseName};

use super::{RecordMeta, RecordTags, ReleaseStore, StoreError};
use crate::cluster::CrIdentity;

/// What happens at the chosen write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing is written.
    FailBefore,
    /// It is written, but the answer is lost.
    FailAfter,
    /// Nothing is written, and no answer ever comes: whoever waits is to be dropped.
    StopBefore,
    /// It is written, and no answer ever comes.
    StopAfter,
}

/// Counts the writes to another store, and lets one of them go wrong.
pub struct FaultyStore {
    inner: Arc<dyn ReleaseStore>,
    fault: Option<(usize, Fault)>,
    writes: AtomicUsize,
}

impl FaultyStore {
    /// Lets the write with this number, from 0, go wrong; `None` only counts.
    pub fn new(inner: Arc<dyn ReleaseStore>, fault: Option<(usize, Fault)>) -> Self {
        Self {
            inner,
            fault,
            writes: AtomicUsize::new(0),
        }
    }

    /// How many writes there have been.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    fn guard<'a, T: Send + 'a>(
        &self,
        write: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let fault = self
            .fault
            .filter(|(at, _)| *at == number)
            .map(|(_, fault)| fault);
        async move {
            match fault {
                None => write.await,
                Some(Fault::FailBefore) => Err(StoreError::Injected),
                Some(Fault::StopBefore) => pending().await,
                Some(Fault::FailAfter) => write.await.and(Err(StoreError::Injected)),
                Some(Fault::StopAfter) => {
                    write.await?;
                    pending().await
                }
            }
        }
        .boxed()
    }
}

impl ReleaseStore for FaultyStore {
    fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta> {
        self.inner.history(namespace, name)
    }

    fn records_of(&self, cr: &CrIdentity) -> Vec<RecordMeta> {
        self.inner.records_of(cr)
    }

    fn load<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<Release, StoreError>> {
        self.inner.load(meta)
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        self.guard(async { self.inner.create(release, tags).await }.boxed())
    }

    fn update<'a>(
        &'a self,
        meta: &'a RecordMeta,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        self.guard(async { self.inner.update(meta, release, tags).await }.boxed())
    }

    fn delete<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<(), StoreError>> {
        self.guard(async { self.inner.delete(meta).await }.boxed())
    }

    fn delete_all<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a ReleaseName,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.guard(async { self.inner.delete_all(namespace, name).await }.boxed())
    }

    fn adopt<'a>(
        &'a self,
        meta: &'a RecordMeta,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        self.guard(async { self.inner.adopt(meta, tags).await }.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{InstanceId, OperatorId};
    use crate::release::MemoryStore;
    use helm_core::release::Revision;

    fn tags() -> RecordTags {
        RecordTags {
            cr: CrIdentity::of("g", "K", None, "web"),
            operator: OperatorId::new("op"),
            writer: InstanceId::new("pod"),
            digest: None,
        }
    }

    #[tokio::test]
    async fn the_chosen_write_goes_wrong_and_only_that() {
        for (fault, written) in [
            (Fault::FailBefore, 1),
            (Fault::FailAfter, 2),
            (Fault::StopBefore, 1),
            (Fault::StopAfter, 2),
        ] {
            let memory = Arc::new(MemoryStore::new());
            let inner: Arc<dyn ReleaseStore> = memory.clone();
            let store = FaultyStore::new(inner, Some((1, fault)));
            let name: ReleaseName = "web".parse().unwrap();
            let release = |revision| Release::new(name.clone(), "prod", Revision(revision));
            store.create(&release(1), &tags()).await.unwrap();
            let second = release(2);
            let tags = tags();
            match (fault, store.create(&second, &tags).now_or_never()) {
                (Fault::StopBefore | Fault::StopAfter, None)
                | (Fault::FailBefore | Fault::FailAfter, Some(Err(StoreError::Injected))) => {}
                (_, other) => panic!("{fault:?}: {other:?}"),
            }
            assert_eq!(memory.history("prod", &name).len(), written, "{fault:?}");
            assert_eq!(store.writes(), 2);
        }
    }
}
