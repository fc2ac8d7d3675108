//! Stores records in Secrets or `ConfigMap`s, with Helm's names and format.
//!
//! | write | request |
//! |---|---|
//! | create | POST, after one for each part; 409 if the revision exists |
//! | update | PUT with uid and resource version, after a POST for each new part |
//! | adopt | PATCH of metadata, with uid and resource version |
//! | delete | DELETE with uid, then its parts |
//! | delete all | DELETE of the collection except the newest, then the newest, then all parts |
//!
//! # Crash safety
//! Parts are written before the record that refers to them and deleted after it, so that a record
//! is readable as long as it exists. A crash can only leave unreferenced parts. The index finds
//! them by their labels; they are deleted after the next write of their release and by
//! [`RecordStore::delete_leftover_parts`]. Without leftover parts this sends no request.
//!
//! RBAC: on `secrets`, or `configmaps`, `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` and
//! `deletecollection`.

mod delete;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube_objects::discovery::Verbs;
use kube_objects::ownership::CR_LABEL;
use kube_objects::request::{self, Answer, Call};
use kube_objects::{ApiError, ApiKind, CrIdentity, Scope};
use parking_lot::Mutex;
use tokio::time::Instant;

use data_encoding::BASE64;
use helm_core::release::name::{SECRET_KEY, SECRET_TYPE};
use helm_core::release::{Release, ReleaseName, codec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde::Deserialize;

use super::error::StoreError;
use super::index::ReleaseIndex;
use super::lru::Lru;
use super::meta::{Format, RecordMeta, custom_labels};
use super::proof::ProofKeys;
use super::side::{self, PART_KEY};
use super::storage::Storage;

/// Size limit of the cache of encoded records.
const CACHE_BYTES: usize = 4 << 20;

/// Type of the index Secrets of helm-operator-plugins.
const CHUNKED_TYPE: &str = "operatorframework.io/index.v1";

/// Maximum number of chunks or parts of a record.
const MAX_CHUNKS: usize = 100;

/// Stores records. Cheap to clone; clones share the store.
#[derive(Clone)]
pub struct RecordStore {
    client: Client,
    kind: Arc<ApiKind>,
    index: ReleaseIndex,
    cache: Arc<Mutex<Lru>>,
    keys: ProofKeys,
}

/// Content of a record.
pub struct StoredContent {
    /// The decoded release.
    pub release: Release,
    /// Whether this operator wrote it. Nothing may be applied from any other.
    pub proven: bool,
}

/// Secret or `ConfigMap` with its content.
#[derive(Deserialize)]
struct StoredObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(skip)]
    storage: Storage,
}

impl StoredObject {
    /// Returns a decoded value; `None` if it is missing or not encoded as it should be.
    fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.storage.content(self.data.get(key)?)
    }
}

#[derive(Deserialize)]
struct ObjectMetadata {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct SecretMetadataList {
    #[serde(default, deserialize_with = "request::nullable")]
    items: Vec<ObjectMetadata>,
}

impl RecordStore {
    /// Returns a store with `index` as its history. The caller must run the index's watch. Records
    /// are proven by `keys`.
    pub(crate) fn new(client: Client, index: ReleaseIndex, keys: ProofKeys) -> Self {
        let verbs = Verbs {
            list: true,
            watch: true,
            patch: true,
            delete: true,
        };
        let kind = ApiKind {
            resource: index.storage().resource(),
            scope: Scope::Namespaced,
            verbs,
            scalable: false,
            has_status: false,
        };
        let cache = Arc::new(Mutex::new(Lru::new(CACHE_BYTES)));
        Self {
            client,
            kind: Arc::new(kind),
            index,
            cache,
            keys,
        }
    }

    /// Returns the records of a release from memory, oldest first. Own writes are visible at once.
    pub fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta> {
        self.index.history(namespace, name)
    }

    /// Returns the names of the components of an owner that have records.
    pub fn components_of(&self, whole: &CrIdentity) -> Vec<String> {
        self.index.components_of(whole)
    }

    /// Returns the records with the label of an owner from memory, sorted by release and
    /// revision.
    pub fn records_of(&self, cr: &CrIdentity) -> Vec<RecordMeta> {
        self.index.records_of(cr)
    }

    /// Returns how long this process has known this state of a record; see
    /// [`ReleaseIndex::seen_for`].
    pub(crate) fn seen_for(&self, meta: &RecordMeta, now: Instant) -> Duration {
        self.index.seen_for(meta, now)
    }

    /// Lists the records that helm-operator-plugins stored in chunks, oldest first. `history` does
    /// not include them. Each call sends a request.
    pub(crate) async fn chunked(
        &self,
        namespace: &str,
        name: &ReleaseName,
    ) -> Result<Vec<RecordMeta>, StoreError> {
        if self.index.storage() != Storage::Secrets {
            return Ok(Vec::new());
        }
        let uri = format!(
            "{}?fieldSelector={}&labelSelector={}",
            self.path(namespace, None)?,
            request::query_value(&format!("type={CHUNKED_TYPE}")),
            request::query_value(&format!("name={name},type=index")),
        );
        let call = Call::get(uri, request::METADATA_LIST);
        let list: SecretMetadataList = self.call("list", namespace, None, call).await?.decode()?;
        let mut records: Vec<RecordMeta> = list
            .items
            .iter()
            .filter_map(|item| RecordMeta::of(&item.metadata, Format::Chunked))
            .collect();
        records.sort_by_key(|meta| meta.revision);
        Ok(records)
    }

    /// Lists the records of an owner, or all records, from the API server. A `namespace` of
    /// `None` lists all namespaces.
    pub(crate) async fn list(
        &self,
        namespace: Option<&str>,
        cr: Option<&CrIdentity>,
    ) -> Result<Vec<RecordMeta>, StoreError> {
        let selector = match cr {
            Some(cr) => format!("owner=helm,{CR_LABEL}={cr}"),
            None => "owner=helm".to_owned(),
        };
        let path = request::path(&self.kind, namespace, None).map_err(ApiError::from)?;
        let uri = format!("{path}?labelSelector={}", request::query_value(&selector));
        let target = request::target("list", &self.kind, namespace, None);
        let call = Call::get(uri, request::METADATA_LIST);
        let answer = request::call(&self.client, target, call).await?;
        let list: SecretMetadataList = answer.decode()?;
        let items = list.items.iter();
        Ok(items
            .filter_map(|item| RecordMeta::of(&item.metadata, Format::Helm))
            .collect())
    }

    /// Reads a record, to show it, to compare it, or to find what may be deleted. Sends one request,
    /// plus one for each part, unless the record is cached.
    pub async fn load(&self, meta: &RecordMeta) -> Result<Release, StoreError> {
        Ok(self.fetch(meta).await?.0)
    }

    /// Reads a record like [`RecordStore::load`], and verifies its proof. A wrong proof is
    /// remembered: the history then has the record without a proof.
    pub async fn load_with_proof(&self, meta: &RecordMeta) -> Result<StoredContent, StoreError> {
        let (release, fresh) = self.fetch(meta).await?;
        if meta.proof.is_none() || fresh.proof.is_none() || meta.format != Format::Helm {
            return Ok(StoredContent {
                release,
                proven: false,
            });
        }
        let key = self.keys.key().await?;
        let verify = move || {
            let proven = key.holds(&fresh, &release);
            StoredContent { release, proven }
        };
        let content = on_blocking_thread(verify).await;
        if !content.proven {
            tracing::warn!(
                namespace = meta.namespace,
                record = meta.secret,
                "the proof of a release record is wrong; nothing is applied from it"
            );
            self.index.disprove(meta);
        }
        Ok(content)
    }

    /// Reads a record, and its metadata as they were read with it.
    async fn fetch(&self, meta: &RecordMeta) -> Result<(Release, RecordMeta), StoreError> {
        if let Some(stored) = self.with_cache(|cache| cache.get(&meta.uid, &meta.resource_version))
        {
            let meta = meta.clone();
            let decode = move || {
                let (release, _) = assemble(&meta, stored.as_bytes(), &[])?;
                Ok((release, meta))
            };
            return on_blocking_thread(decode).await;
        }
        let secret = self.get(&meta.namespace, &meta.secret).await?;
        let Some(secret) = secret else {
            return Err(StoreError::Gone {
                secret: meta.secret.clone(),
            });
        };
        // The index may be stale: use the parts named by the Secret itself.
        let fresh = RecordMeta::of(&secret.metadata, meta.format).unwrap_or_else(|| meta.clone());
        let missing = |part: &str| StoreError::Incomplete {
            secret: meta.secret.clone(),
            problem: format!("{part} is missing"),
        };
        let (record, chunks) = match meta.format {
            Format::Helm => {
                let record = secret
                    .value(SECRET_KEY)
                    .ok_or_else(|| missing(SECRET_KEY))?;
                let names = fresh
                    .parts
                    .iter()
                    .flat_map(|parts| parts.names(&meta.name, meta.revision));
                (record, names.collect::<Vec<_>>())
            }
            Format::Chunked => {
                let first = secret.value("chunk").ok_or_else(|| missing("chunk"))?;
                let names = secret
                    .value("extraChunks")
                    .ok_or_else(|| missing("extraChunks"))?;
                let names: Vec<String> =
                    serde_json::from_slice(&names).map_err(|_| missing("extraChunks"))?;
                (first, names)
            }
        };
        if chunks.len() > MAX_CHUNKS {
            let count = chunks.len();
            return Err(StoreError::Incomplete {
                secret: meta.secret.clone(),
                problem: format!("{count} parts exceed the limit of {MAX_CHUNKS}"),
            });
        }
        let key = if meta.format == Format::Helm {
            PART_KEY
        } else {
            "chunk"
        };
        let mut pieces = Vec::with_capacity(chunks.len());
        for name in &chunks {
            let part = self
                .get(&meta.namespace, name)
                .await?
                .ok_or_else(|| missing(name))?;
            pieces.push(part.value(key).ok_or_else(|| missing(name))?);
        }
        let decode = move || {
            let (release, encoded) = assemble(&fresh, &record, &pieces)?;
            Ok::<_, StoreError>((release, encoded, fresh))
        };
        let (mut release, encoded, fresh) = on_blocking_thread(decode).await?;
        if let Some(labels) = &secret.metadata.labels {
            release.labels = custom_labels(labels);
        }
        if let Some(encoded) = encoded {
            let uid = secret.metadata.uid.unwrap_or_default();
            let version = secret.metadata.resource_version.unwrap_or_default();
            self.with_cache(|cache| cache.put(&uid, &version, encoded));
        }
        Ok((release, fresh))
    }

    /// Returns whether a namespace is being deleted, or gone: nothing can be created in it. Sends the
    /// dry run of a creation, which needs no permission beyond those for records.
    pub(crate) async fn is_ending(&self, namespace: &str) -> Result<bool, StoreError> {
        let metadata =
            serde_json::json!({"generateName": "sh.helm.release.", "namespace": namespace});
        let storage = self.index.storage();
        let body = storage.object(&metadata, SECRET_TYPE, SECRET_KEY, "");
        let uri = format!("{}?dryRun=All", self.path(namespace, None)?);
        let call = write::write_call(http::Method::POST, uri, &body);
        match self.call("create", namespace, None, call).await {
            Err(error) if error.has_cause("NamespaceTerminating") || error.is_not_found() => {
                Ok(true)
            }
            Err(error) if error.is_transient() => Err(error.into()),
            Ok(_) | Err(_) => Ok(false),
        }
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<StoredObject>, StoreError> {
        let call = Call::get(self.path(namespace, Some(name))?, request::JSON);
        match self.call("get", namespace, Some(name), call).await {
            Ok(answer) => Ok(Some(StoredObject {
                storage: self.index.storage(),
                ..answer.decode()?
            })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn call(
        &self,
        verb: &'static str,
        namespace: &str,
        name: Option<&str>,
        call: Call,
    ) -> Result<Answer, ApiError> {
        let target = request::target(verb, &self.kind, Some(namespace), name);
        request::call(&self.client, target, call).await
    }

    fn path(&self, namespace: &str, name: Option<&str>) -> Result<String, ApiError> {
        Ok(request::path(&self.kind, Some(namespace), name)?)
    }

    fn with_cache<T>(&self, f: impl FnOnce(&mut Lru) -> T) -> T {
        f(&mut self.cache.lock())
    }
}

/// Runs work that takes long for a large record off the runtime's threads, which serve watches and
/// leases.
async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match host::blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and with it whoever awaits this.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Decodes a record. Also returns the encoded text if it may be cached.
fn assemble(
    meta: &RecordMeta,
    record: &[u8],
    pieces: &[Vec<u8>],
) -> Result<(Release, Option<Arc<str>>), StoreError> {
    let corrupt = |source| StoreError::Corrupt {
        secret: meta.secret.clone(),
        source,
    };
    if meta.format == Format::Chunked {
        let chunks: Vec<&[u8]> = std::iter::once(record)
            .chain(pieces.iter().map(Vec::as_slice))
            .collect();
        let encoded = BASE64.encode(&chunks.concat());
        return Ok((codec::decode(encoded.as_bytes()).map_err(corrupt)?, None));
    }
    let parts = meta.parts.as_ref().filter(|_| !pieces.is_empty());
    let release = side::restore(record, parts, pieces).map_err(corrupt)?;
    let encoded = (pieces.is_empty()).then(|| String::from_utf8_lossy(record).into());
    Ok((release, encoded))
}

#[cfg(test)]
mod tests;
