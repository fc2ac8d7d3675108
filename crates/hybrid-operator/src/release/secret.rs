//! Records in Secrets, exactly where and as Helm keeps them.
//!
//! | write | request |
//! |---|---|
//! | create | POST, after one for each part: refused with 409 where the revision exists |
//! | update | PUT with uid and resource version |
//! | adopt | PATCH of metadata, with uid and resource version |
//! | delete | DELETE with uid, and of its parts |
//! | delete all | DELETE of the collection but for the newest, of all parts, then of the newest |
//!
//! RBAC: on `secrets` `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` and
//! `deletecollection`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use data_encoding::BASE64;
use futures::FutureExt;
use futures::future::BoxFuture;
use helm_core::release::name::{SECRET_KEY, SECRET_TYPE};
use helm_core::release::{Release, ReleaseName, codec};
use http::Method;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::index::ReleaseIndex;
use super::lru::Lru;
use super::meta::{Format, PARTS_LABEL, RecordMeta, RecordTags, further_labels};
use super::side::{self, PART_KEY, PART_OF_LABEL, PART_TYPE, Stored};
use super::{ReleaseStore, StoreError};
use crate::cluster::discovery::Verbs;
use crate::cluster::request::{self, Answer, Call};
use crate::cluster::{ApiError, ApiKind, CrIdentity, FIELD_MANAGER, Scope};

/// Bytes of encoded records that are kept so that they need not be read again.
const CACHE: usize = 4 << 20;

/// Type of the index Secrets of helm-operator-plugins.
const CHUNKED_TYPE: &str = "operatorframework.io/index.v1";

/// Most chunks of a chunked record that are read.
const MAX_CHUNKS: usize = 100;

/// Keeps records in Secrets. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct SecretStore {
    client: Client,
    kind: Arc<ApiKind>,
    index: ReleaseIndex,
    cache: Arc<Mutex<Lru>>,
}

/// A Secret with its content.
#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Secret {
    /// A value; `None` if it is missing or not base64, as no server sends it.
    fn value(&self, key: &str) -> Option<Vec<u8>> {
        BASE64.decode(self.data.get(key)?.as_bytes()).ok()
    }
}

#[derive(Deserialize)]
struct Written {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct MetadataList {
    #[serde(default, deserialize_with = "request::nullable")]
    items: Vec<Written>,
}

impl SecretStore {
    /// A store whose history is `index`, which somebody feeds.
    pub fn new(client: Client, index: ReleaseIndex) -> Self {
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("", "v1", "Secret"),
            "secrets",
        );
        let verbs = Verbs {
            list: true,
            watch: true,
            patch: true,
            delete: true,
        };
        let kind = ApiKind {
            resource,
            scope: Scope::Namespaced,
            verbs,
            scalable: false,
            has_status: false,
        };
        let cache = Arc::new(Mutex::new(Lru::new(CACHE)));
        Self {
            client,
            kind: Arc::new(kind),
            index,
            cache,
        }
    }

    /// The index.
    pub fn index(&self) -> &ReleaseIndex {
        &self.index
    }

    /// See [`ReleaseStore::chunked`].
    async fn find_chunked(
        &self,
        namespace: &str,
        name: &ReleaseName,
    ) -> Result<Vec<RecordMeta>, StoreError> {
        let uri = format!(
            "{}?fieldSelector={}&labelSelector={}",
            self.path(namespace, None)?,
            request::query_value(&format!("type={CHUNKED_TYPE}")),
            request::query_value(&format!("name={name},type=index")),
        );
        let call = Call::get(uri, request::METADATA_LIST);
        let list: MetadataList = self.call("list", namespace, None, call).await?.decode()?;
        let mut records: Vec<RecordMeta> = list
            .items
            .iter()
            .filter_map(|item| RecordMeta::of(&item.metadata, Format::Chunked))
            .collect();
        records.sort_by_key(|meta| meta.revision);
        Ok(records)
    }

    async fn read(&self, meta: &RecordMeta) -> Result<Release, StoreError> {
        if let Some(stored) = self.with_cache(|cache| cache.get(&meta.uid, &meta.resource_version))
        {
            return assemble(meta, stored.as_bytes(), &[]).map(|(release, _)| release);
        }
        let secret = self.get(&meta.namespace, &meta.secret).await?;
        let Some(secret) = secret else {
            return Err(StoreError::Gone {
                secret: meta.secret.clone(),
            });
        };
        // The index may lag behind: what the Secret says of its parts is what belongs to it.
        let fresh = RecordMeta::of(&secret.metadata, meta.format);
        let fresh = fresh.as_ref().unwrap_or(meta);
        let missing = |part: &str| StoreError::Incomplete {
            secret: meta.secret.clone(),
            part: part.to_owned(),
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
            return Err(missing(&format!("{} parts are too many", chunks.len())));
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
        let (mut release, encoded) = assemble(fresh, &record, &pieces)?;
        if let Some(labels) = &secret.metadata.labels {
            release.labels = further_labels(labels);
        }
        if let Some(encoded) = encoded {
            let uid = secret.metadata.uid.unwrap_or_default();
            let version = secret.metadata.resource_version.unwrap_or_default();
            self.with_cache(|cache| cache.put(&uid, &version, encoded));
        }
        Ok(release)
    }

    async fn write_new(
        &self,
        release: &Release,
        tags: &RecordTags,
    ) -> Result<RecordMeta, StoreError> {
        let stored = encode(release)?;
        self.write_parts(release, &stored, None).await?;
        let mut labels = labels_of(release, tags, &stored);
        labels.insert(
            "createdAt".to_owned(),
            Timestamp::now().as_second().to_string(),
        );
        let name = release.secret_name();
        let body = secret_body(
            &name,
            &release.namespace,
            &labels,
            SECRET_TYPE,
            SECRET_KEY,
            &stored.record,
        );
        let uri = format!(
            "{}?fieldManager={FIELD_MANAGER}",
            self.path(&release.namespace, None)?
        );
        let call = write_call(Method::POST, uri, &body);
        match self
            .call("create", &release.namespace, Some(&name), call)
            .await
        {
            Ok(answer) => self.note(&answer, stored),
            Err(ApiError::Conflict { .. }) => {
                self.learn(&release.namespace, &name).await?;
                let (name, revision) = (release.name.clone(), release.revision);
                Err(StoreError::Exists { name, revision })
            }
            Err(error) => Err(creation_error(error, &release.namespace)),
        }
    }

    /// Takes note of a record that exists although the index does not know it: the watch lags
    /// behind, the answer to our own creation was lost, or somebody has taken its label off.
    async fn learn(&self, namespace: &str, name: &str) -> Result<(), StoreError> {
        let call = Call::get(self.path(namespace, Some(name))?, request::METADATA_ONLY);
        match self.call("get", namespace, Some(name), call).await {
            Ok(answer) => {
                let Written { metadata } = answer.decode()?;
                if let Some(meta) = RecordMeta::of(&metadata, Format::Helm) {
                    self.index.written(meta);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn write_again(
        &self,
        meta: &RecordMeta,
        release: &Release,
        tags: &RecordTags,
    ) -> Result<RecordMeta, StoreError> {
        let stored = encode(release)?;
        self.write_parts(release, &stored, meta.parts.as_ref())
            .await?;
        let mut labels = labels_of(release, tags, &stored);
        if let Some(created) = meta.created_at {
            labels.insert("createdAt".to_owned(), created.as_second().to_string());
        }
        labels.insert(
            "modifiedAt".to_owned(),
            Timestamp::now().as_second().to_string(),
        );
        let mut body = secret_body(
            &meta.secret,
            &meta.namespace,
            &labels,
            SECRET_TYPE,
            SECRET_KEY,
            &stored.record,
        );
        fence(&mut body, meta);
        let uri = format!(
            "{}?fieldManager={FIELD_MANAGER}",
            self.path(&meta.namespace, Some(&meta.secret))?
        );
        let call = write_call(Method::PUT, uri, &body);
        let answer = self
            .call("update", &meta.namespace, Some(&meta.secret), call)
            .await;
        let written = self.note(&answer.map_err(|error| fencing_error(error, meta))?, stored)?;
        if meta.parts != written.parts {
            self.delete_parts(meta).await?;
        }
        Ok(written)
    }

    /// Writes the parts of a record that `known` does not have yet, before the record itself.
    async fn write_parts(
        &self,
        release: &Release,
        stored: &Stored,
        known: Option<&side::Parts>,
    ) -> Result<(), StoreError> {
        let Some(parts) = stored.parts.as_ref().filter(|parts| known != Some(*parts)) else {
            return Ok(());
        };
        let labels = BTreeMap::from([(PART_OF_LABEL.to_owned(), release.name.to_string())]);
        let names = parts.names(&release.name, release.revision);
        for (name, piece) in names.iter().zip(&stored.pieces) {
            let mut body = secret_body(
                name,
                &release.namespace,
                &labels,
                PART_TYPE,
                PART_KEY,
                piece,
            );
            if let Some(secret) = body.as_object_mut() {
                secret.insert("immutable".to_owned(), true.into());
            }
            let uri = format!(
                "{}?fieldManager={FIELD_MANAGER}",
                self.path(&release.namespace, None)?
            );
            let call = write_call(Method::POST, uri, &body);
            match self
                .call("create", &release.namespace, Some(name), call)
                .await
            {
                // An earlier attempt has written it: the name tells its content.
                Ok(_) | Err(ApiError::Conflict { .. }) => {}
                Err(error) => return Err(creation_error(error, &release.namespace)),
            }
        }
        Ok(())
    }

    async fn delete_parts(&self, meta: &RecordMeta) -> Result<(), StoreError> {
        let names = meta
            .parts
            .iter()
            .flat_map(|parts| parts.names(&meta.name, meta.revision));
        for name in names {
            let uri = self.path(&meta.namespace, Some(&name))?;
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
            let call = write_call(Method::DELETE, uri, &options);
            match self
                .call("delete", &meta.namespace, Some(&name), call)
                .await
            {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn delete_one(&self, meta: &RecordMeta) -> Result<(), StoreError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid}});
        let uri = self.path(&meta.namespace, Some(&meta.secret))?;
        let call = write_call(Method::DELETE, uri, &options);
        match self
            .call("delete", &meta.namespace, Some(&meta.secret), call)
            .await
        {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(fencing_error(error, meta)),
        }
        self.forget(meta);
        if meta.format == Format::Helm {
            self.delete_parts(meta).await?;
        }
        Ok(())
    }

    async fn delete_release(&self, namespace: &str, name: &ReleaseName) -> Result<(), StoreError> {
        let history = self.index.history(namespace, name);
        let Some((newest, older)) = history.split_last() else {
            return Ok(());
        };
        if !older.is_empty() {
            let selector = format!("owner=helm,name={name},version!={}", newest.revision);
            self.delete_collection(namespace, &selector).await?;
            for meta in older {
                self.forget(meta);
            }
        }
        if history.iter().any(|meta| meta.parts.is_some()) {
            self.delete_collection(namespace, &format!("{PART_OF_LABEL}={name}"))
                .await?;
        }
        let mut newest = newest.clone();
        // Its parts have gone with the others.
        newest.parts = None;
        self.delete_one(&newest).await
    }

    async fn delete_collection(&self, namespace: &str, selector: &str) -> Result<(), StoreError> {
        let uri = format!(
            "{}?labelSelector={}",
            self.path(namespace, None)?,
            request::query_value(selector)
        );
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let mut call = write_call(Method::DELETE, uri, &options);
        call.accept = request::METADATA_LIST;
        self.call("deletecollection", namespace, None, call).await?;
        Ok(())
    }

    async fn make_ours(
        &self,
        meta: &RecordMeta,
        tags: &RecordTags,
    ) -> Result<RecordMeta, StoreError> {
        let mut body = json!({"metadata": {
            "labels": tags.labels(meta.revision),
            "ownerReferences": null,
        }});
        fence(&mut body, meta);
        let uri = format!(
            "{}?fieldManager={FIELD_MANAGER}",
            self.path(&meta.namespace, Some(&meta.secret))?
        );
        let call = Call::with_body(
            Method::PATCH,
            uri,
            request::METADATA_ONLY,
            request::MERGE_PATCH,
            body.to_string().into_bytes(),
        );
        let answer = self
            .call("patch", &meta.namespace, Some(&meta.secret), call)
            .await;
        let answer = answer.map_err(|error| fencing_error(error, meta))?;
        let written: Written = answer.decode()?;
        let adopted =
            RecordMeta::of(&written.metadata, meta.format).ok_or_else(|| StoreError::Gone {
                secret: meta.secret.clone(),
            })?;
        if meta.format == Format::Helm {
            self.index.written(adopted.clone());
        }
        Ok(adopted)
    }

    /// Takes note of what was written.
    fn note(&self, answer: &Answer, stored: Stored) -> Result<RecordMeta, StoreError> {
        let Written { metadata } = answer.decode()?;
        let secret = metadata.name.clone().unwrap_or_default();
        let meta = RecordMeta::of(&metadata, Format::Helm).ok_or(StoreError::Gone { secret })?;
        if stored.parts.is_none() {
            self.with_cache(|cache| {
                cache.put(&meta.uid, &meta.resource_version, stored.record.into());
            });
        }
        self.index.written(meta.clone());
        Ok(meta)
    }

    fn forget(&self, meta: &RecordMeta) {
        self.with_cache(|cache| cache.forget(&meta.uid));
        self.index.removed(meta);
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Secret>, StoreError> {
        let call = Call::get(self.path(namespace, Some(name))?, request::JSON);
        match self.call("get", namespace, Some(name), call).await {
            Ok(answer) => Ok(Some(answer.decode()?)),
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
        f(&mut self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ReleaseStore for SecretStore {
    fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta> {
        self.index.history(namespace, name)
    }

    fn records_of(&self, cr: &CrIdentity) -> Vec<RecordMeta> {
        self.index.records_of(cr)
    }

    fn chunked<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a ReleaseName,
    ) -> BoxFuture<'a, Result<Vec<RecordMeta>, StoreError>> {
        Box::pin(self.find_chunked(namespace, name))
    }

    fn load<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<Release, StoreError>> {
        self.read(meta).boxed()
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        self.write_new(release, tags).boxed()
    }

    fn update<'a>(
        &'a self,
        meta: &'a RecordMeta,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        self.write_again(meta, release, tags).boxed()
    }

    fn delete<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<(), StoreError>> {
        self.delete_one(meta).boxed()
    }

    fn delete_all<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a ReleaseName,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.delete_release(namespace, name).boxed()
    }

    fn adopt<'a>(
        &'a self,
        meta: &'a RecordMeta,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>> {
        self.make_ours(meta, tags).boxed()
    }
}

/// Decodes a record; the text is what may be cached of it.
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

fn write_call(method: Method, uri: String, body: &Value) -> Call {
    let body = body.to_string().into_bytes();
    Call::with_body(method, uri, request::METADATA_ONLY, request::JSON, body)
}

fn encode(release: &Release) -> Result<Stored, StoreError> {
    side::store(release).map_err(|source| StoreError::Encode {
        name: release.name.clone(),
        source,
    })
}

/// Helm's labels, the user's, and ours.
fn labels_of(release: &Release, tags: &RecordTags, stored: &Stored) -> BTreeMap<String, String> {
    let mut labels = release.secret_labels();
    labels.remove(PARTS_LABEL);
    labels.extend(tags.labels(release.revision));
    if let Some(parts) = &stored.parts {
        labels.insert(
            PARTS_LABEL.to_owned(),
            format!("{}-{parts}", release.revision),
        );
    }
    labels
}

fn secret_body(
    name: &str,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    secret_type: &str,
    key: &str,
    content: &str,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "type": secret_type,
        "data": {key: BASE64.encode(content.as_bytes())},
    })
}

/// Makes a body one that changes exactly the state of the record that `meta` describes.
fn fence(body: &mut Value, meta: &RecordMeta) {
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), meta.uid.clone().into());
        metadata.insert(
            "resourceVersion".to_owned(),
            meta.resource_version.clone().into(),
        );
    }
}

fn fencing_error(error: ApiError, meta: &RecordMeta) -> StoreError {
    match error {
        ApiError::Conflict { .. } => StoreError::Fenced {
            secret: meta.secret.clone(),
        },
        error if error.is_not_found() => StoreError::Gone {
            secret: meta.secret.clone(),
        },
        error => error.into(),
    }
}

fn creation_error(error: ApiError, namespace: &str) -> StoreError {
    if error.has_cause("NamespaceTerminating") {
        return StoreError::NamespaceTerminating {
            namespace: namespace.to_owned(),
        };
    }
    error.into()
}

#[cfg(test)]
mod tests;
