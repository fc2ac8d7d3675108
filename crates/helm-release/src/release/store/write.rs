//! Creates, updates and adopts records.

use std::collections::BTreeMap;

use helm_core::release::Release;
use helm_core::release::name::{SECRET_KEY, SECRET_TYPE};
use host::phases;
use http::Method;
use kube_objects::ApiError;
use kube_objects::apply::keep_finalizers;
use kube_objects::ownership::{CR_LABEL, OPERATOR_LABEL};
use kube_objects::request::{self, Answer, Call};
use serde_json::{Value, json};

use super::{ObjectMetadata, RecordStore, on_blocking_thread};
use crate::release::StoreError;
use crate::release::meta::{
    BASELINE_LABEL, DIGEST_LABEL, Format, PARTS_LABEL, PROOF_LABEL, RecordMeta, RecordTags,
    UNOWNED_LABEL, WRITER_MANAGER, account_labels, unowned_label,
};
use crate::release::proof::ProofSubject;
use crate::release::side::{
    self, EncodedRecord, PART_KEY, PART_OF_LABEL, PART_OWNER, PART_TYPE, PartMeta, Parts,
};

impl RecordStore {
    /// Creates a revision, which must not exist.
    pub(crate) async fn create(
        &self,
        release: &Release,
        tags: &RecordTags,
    ) -> Result<RecordMeta, StoreError> {
        let (stored, proof) = self.encode(release, tags).await?;
        self.write_parts(release, tags, &stored, None).await?;
        let mut labels = labels_of(release, tags, &stored, proof);
        labels.insert(
            "createdAt".to_owned(),
            host::timestamp().as_second().to_string(),
        );
        let secret = release.secret_name();
        let body = self.body(
            &secret,
            &release.namespace,
            &labels,
            SECRET_TYPE,
            SECRET_KEY,
            &stored.record,
        );
        let uri = with_manager(&self.path(&release.namespace, None)?);
        let call = write_call(Method::POST, uri, &body);
        let own = self.index.writing(&release.namespace, vec![secret.clone()]);
        let answer = self
            .call("create", &release.namespace, Some(&secret), call)
            .await;
        let written = match answer {
            Ok(answer) => self.index_written(&answer, stored)?,
            Err(ApiError::Conflict { .. }) => {
                drop(own);
                self.refresh(&release.namespace, &secret).await?;
                let (name, revision) = (release.name.clone(), release.revision);
                return Err(StoreError::Exists { name, revision });
            }
            Err(error) => return Err(creation_error(error, &release.namespace)),
        };
        drop(own);
        self.delete_unreferenced_parts(&written).await;
        Ok(written)
    }

    /// Reads the metadata of a record from the API server and adds it to the index. The index may
    /// lack it because the watch lags behind, the response to its creation was lost, or its label
    /// was removed.
    pub(super) async fn refresh(
        &self,
        namespace: &str,
        secret: &str,
    ) -> Result<Option<RecordMeta>, StoreError> {
        let call = Call::get(self.path(namespace, Some(secret))?, request::METADATA_ONLY);
        let _own = self.index.writing(namespace, vec![secret.to_owned()]);
        match self.call("get", namespace, Some(secret), call).await {
            Ok(answer) => {
                let ObjectMetadata { metadata } = answer.decode()?;
                let meta = RecordMeta::of(&metadata, Format::Helm);
                if let Some(meta) = &meta {
                    self.index.written(meta.clone());
                }
                Ok(meta)
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Updates a revision, which must still match `meta`.
    pub(crate) async fn update(
        &self,
        meta: &RecordMeta,
        release: &Release,
        tags: &RecordTags,
    ) -> Result<RecordMeta, StoreError> {
        let (stored, proof) = self.encode(release, tags).await?;
        self.write_parts(release, tags, &stored, meta.parts.as_ref())
            .await?;
        // A record that was read from the cache has no custom labels.
        let mut labels = BTreeMap::new();
        meta.asked.label(&mut labels);
        labels.extend(labels_of(release, tags, &stored, proof));
        if let Some(created) = meta.created_at {
            labels.insert("createdAt".to_owned(), created.as_second().to_string());
        }
        labels.insert(
            "modifiedAt".to_owned(),
            host::timestamp().as_second().to_string(),
        );
        let mut body = self.body(
            &meta.secret,
            &meta.namespace,
            &labels,
            SECRET_TYPE,
            SECRET_KEY,
            &stored.record,
        );
        fence(&mut body, meta);
        keep_finalizers(&mut body, &meta.finalizers);
        let uri = with_manager(&self.path(&meta.namespace, Some(&meta.secret))?);
        let call = write_call(Method::PUT, uri, &body);
        let own = self
            .index
            .writing(&meta.namespace, vec![meta.secret.clone()]);
        let answer = self
            .call("update", &meta.namespace, Some(&meta.secret), call)
            .await;
        let written =
            self.index_written(&answer.map_err(|error| fencing_error(error, meta))?, stored)?;
        drop(own);
        if meta.parts != written.parts
            && let Err(error) = self.delete_parts_of(meta).await
        {
            super::delete::log_undeleted_parts(&error);
        }
        self.delete_unreferenced_parts(&written).await;
        Ok(written)
    }

    /// Creates the parts of a record unless they equal `known`. Called before the record is
    /// written.
    async fn write_parts(
        &self,
        release: &Release,
        tags: &RecordTags,
        stored: &EncodedRecord,
        known: Option<&Parts>,
    ) -> Result<(), StoreError> {
        let Some(parts) = stored.parts.as_ref().filter(|parts| known != Some(*parts)) else {
            return Ok(());
        };
        let labels = BTreeMap::from([
            ("owner".to_owned(), PART_OWNER.to_owned()),
            (PART_OF_LABEL.to_owned(), release.name.to_string()),
            (
                PARTS_LABEL.to_owned(),
                format!("{}-{parts}", release.revision),
            ),
            (CR_LABEL.to_owned(), tags.cr.to_string()),
            (OPERATOR_LABEL.to_owned(), tags.operator.to_string()),
        ]);
        let names = parts.names(&release.name, release.revision);
        for (name, piece) in names.iter().zip(&stored.pieces) {
            let mut body = self.body(
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
            let uri = with_manager(&self.path(&release.namespace, None)?);
            let call = write_call(Method::POST, uri, &body);
            match self
                .call("create", &release.namespace, Some(name), call)
                .await
            {
                Ok(answer) => {
                    let ObjectMetadata { metadata } = answer.decode()?;
                    if let Some(part) = PartMeta::of(&metadata) {
                        self.index.part_written(part);
                    }
                }
                // Created by an earlier attempt; the name contains a hash of the content.
                Err(ApiError::Conflict { .. }) => {}
                Err(error) => return Err(creation_error(error, &release.namespace)),
            }
        }
        Ok(())
    }

    /// Adopts a record: adds the operator's labels and removes owner references, because garbage
    /// collection would delete the history before the uninstall. Content and writer stay unchanged.
    /// A digest that the tags lack is removed. If the tags say that `content`, that of the record, is
    /// proven, it gets a proof.
    pub(crate) async fn adopt(
        &self,
        meta: &RecordMeta,
        tags: &RecordTags,
        content: Option<&Release>,
    ) -> Result<RecordMeta, StoreError> {
        let mut body = json!({"metadata": {
            "labels": {DIGEST_LABEL: null, PROOF_LABEL: null, BASELINE_LABEL: null},
            "ownerReferences": null,
        }});
        let mut labels = tags.labels(meta.revision);
        if let Some(release) = content.filter(|_| tags.proven) {
            let proof = self.encode(release, tags).await?.1;
            labels.extend(proof.map(|proof| (PROOF_LABEL.to_owned(), proof)));
        }
        if let Some(all) = body
            .pointer_mut("/metadata/labels")
            .and_then(Value::as_object_mut)
        {
            all.extend(account_labels().map(|key| (key, Value::Null)));
            all.extend(labels.into_iter().map(|(key, value)| (key, value.into())));
        }
        self.patch(meta, body).await
    }

    /// Records whether the objects of a revision have no owner references.
    pub(crate) async fn mark_unowned(
        &self,
        meta: &RecordMeta,
        unowned: bool,
    ) -> Result<RecordMeta, StoreError> {
        let label = unowned.then(|| unowned_label(meta.revision));
        let body = json!({"metadata": {"labels": {UNOWNED_LABEL: label}}});
        self.patch(meta, body).await
    }

    /// Merges a patch into the Secret of a record.
    async fn patch(&self, meta: &RecordMeta, mut body: Value) -> Result<RecordMeta, StoreError> {
        fence(&mut body, meta);
        let uri = with_manager(&self.path(&meta.namespace, Some(&meta.secret))?);
        let call = Call::with_body(
            Method::PATCH,
            uri,
            request::METADATA_ONLY,
            request::MERGE_PATCH,
            body.to_string().into_bytes(),
        );
        let _own = self
            .index
            .writing(&meta.namespace, vec![meta.secret.clone()]);
        let answer = self
            .call("patch", &meta.namespace, Some(&meta.secret), call)
            .await;
        let answer = answer.map_err(|error| fencing_error(error, meta))?;
        let written: ObjectMetadata = answer.decode()?;
        let patched =
            RecordMeta::of(&written.metadata, meta.format).ok_or_else(|| StoreError::Gone {
                secret: meta.secret.clone(),
            })?;
        if meta.format == Format::Helm {
            self.index.written(patched.clone());
        }
        phases::changed();
        Ok(patched)
    }

    /// Encodes a record, and returns the value of the label with its proof if it is proven.
    async fn encode(
        &self,
        release: &Release,
        tags: &RecordTags,
    ) -> Result<(EncodedRecord, Option<String>), StoreError> {
        let key = if tags.proven {
            Some(self.keys.key().await?)
        } else {
            None
        };
        let (whole, cr, account) = (release.clone(), tags.cr.clone(), tags.account.clone());
        let digest = tags.digest.as_ref().map(ToString::to_string);
        let encode = move || {
            let stored = side::store(&whole, &cr)?;
            let cr = Some(&cr);
            let proof = key.map(|key| {
                let account = account.as_ref();
                let subject = ProofSubject {
                    cr,
                    digest,
                    account,
                };
                let proof = key.prove(&subject, &whole);
                format!("{}-{proof}", whole.revision)
            });
            Ok((stored, proof))
        };
        let encoded = on_blocking_thread(encode).await;
        encoded.map_err(|source| StoreError::Encode {
            name: release.name.clone(),
            source,
        })
    }

    fn body(
        &self,
        name: &str,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        type_: &str,
        key: &str,
        content: &str,
    ) -> Value {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let storage = self.index.storage();
        storage.object(&metadata, type_, key, content)
    }

    /// Adds a written record to the index and the cache.
    fn index_written(
        &self,
        answer: &Answer,
        stored: EncodedRecord,
    ) -> Result<RecordMeta, StoreError> {
        let ObjectMetadata { metadata } = answer.decode()?;
        let secret = metadata.name.clone().unwrap_or_default();
        let meta = RecordMeta::of(&metadata, Format::Helm).ok_or(StoreError::Gone { secret })?;
        if stored.parts.is_none() {
            self.with_cache(|cache| {
                cache.put(&meta.uid, &meta.resource_version, stored.record.into());
            });
        }
        self.index.written(meta.clone());
        phases::changed();
        Ok(meta)
    }
}

/// Adds the field manager to a path.
fn with_manager(path: &str) -> String {
    format!("{path}?fieldManager={WRITER_MANAGER}")
}

pub(super) fn write_call(method: Method, uri: String, body: &Value) -> Call {
    let body = body.to_string().into_bytes();
    Call::with_body(method, uri, request::METADATA_ONLY, request::JSON, body)
}

/// Returns the labels of Helm, the user and the operator.
fn labels_of(
    release: &Release,
    tags: &RecordTags,
    stored: &EncodedRecord,
    proof: Option<String>,
) -> BTreeMap<String, String> {
    let mut labels = release.secret_labels();
    labels.remove(PARTS_LABEL);
    labels.remove(PROOF_LABEL);
    labels.remove(BASELINE_LABEL);
    for key in account_labels() {
        labels.remove(&key);
    }
    labels.extend(tags.labels(release.revision));
    labels.extend(proof.map(|proof| (PROOF_LABEL.to_owned(), proof)));
    if let Some(parts) = &stored.parts {
        labels.insert(
            PARTS_LABEL.to_owned(),
            format!("{}-{parts}", release.revision),
        );
    }
    labels
}

/// Makes a request body conditional on the version of the record in `meta`.
fn fence(body: &mut Value, meta: &RecordMeta) {
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), meta.uid.clone().into());
        metadata.insert(
            "resourceVersion".to_owned(),
            meta.resource_version.clone().into(),
        );
    }
}

pub(super) fn fencing_error(error: ApiError, meta: &RecordMeta) -> StoreError {
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
