//! Deletes records, and parts that no record refers to.

use host::HashSet;
use std::collections::BTreeSet;

use helm_core::release::{ReleaseName, name};
use host::phases;
use http::Method;
use kube_objects::ownership::CR_LABEL;
use kube_objects::{ApiError, CrIdentity, request};
use serde_json::{Value, json};

use super::RecordStore;
use super::write::{fencing_error, write_call};
use crate::release::StoreError;
use crate::release::index::OwnWrite;
use crate::release::meta::{Format, RecordMeta};
use crate::release::side::{PART_OF_LABEL, PartMeta};

impl RecordStore {
    /// Deletes a record and its parts. A missing record is not an error.
    pub(crate) async fn delete(&self, meta: &RecordMeta) -> Result<(), StoreError> {
        self.delete_record(meta).await?;
        if meta.format == Format::Helm {
            if let Err(error) = self.delete_parts_of(meta).await {
                log_undeleted_parts(&error);
            }
            let parts = self.index.parts(&meta.namespace, &meta.name);
            if let Err(error) = self.delete_unreferenced(parts, None).await {
                log_undeleted_parts(&error);
            }
        }
        Ok(())
    }

    /// Deletes all records of a release, the newest last, so that the uninstalled state and the
    /// manifest stay readable until the end; then all parts. If interrupted,
    /// [`RecordStore::delete_leftover_parts`] deletes the rest.
    pub(crate) async fn delete_all(
        &self,
        namespace: &str,
        name: &ReleaseName,
    ) -> Result<(), StoreError> {
        let history = self.index.history(namespace, name);
        let Some((newest, older)) = history.split_last() else {
            return Ok(());
        };
        if !older.is_empty() {
            let _own = self.deleting(namespace, older);
            let selector = format!("owner=helm,name={name},version!={}", newest.revision);
            self.delete_collection(namespace, &selector).await?;
            for meta in older {
                self.forget(meta);
            }
        }
        // After the newest record is deleted, others may use the name of the release.
        let parts = self.index.parts(namespace, name);
        self.delete_record(newest).await?;
        self.delete_parts(namespace, name, &parts).await?;
        let known: HashSet<&str> = parts.iter().map(|part| part.secret.as_str()).collect();
        for meta in &history {
            for secret in names_of_parts(meta) {
                if !known.contains(secret.as_str()) {
                    self.delete_secret(namespace, &secret, None).await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes the parts of an owner's releases that no record refers to, which a crash
    /// may have left. Called before the owner is deleted. Sends no request if there are
    /// no parts.
    pub async fn delete_leftover_parts(&self, cr: &CrIdentity) -> Result<(), StoreError> {
        let parts = self.index.parts_of(cr);
        self.delete_unreferenced(parts, None).await
    }

    /// Deletes the unreferenced parts of a release after a write of one of its records. A failure
    /// does not fail the write; the parts are deleted after the next one.
    pub(super) async fn delete_unreferenced_parts(&self, written: &RecordMeta) {
        let parts = self.index.parts(&written.namespace, &written.name);
        if let Err(error) = self.delete_unreferenced(parts, Some(written)).await {
            log_undeleted_parts(&error);
        }
    }

    /// Deletes those of `parts` that no record refers to. Reads the metadata of records other than
    /// `certain` from the API server: the index may be stale, and a record without its parts is
    /// lost.
    async fn delete_unreferenced(
        &self,
        parts: Vec<PartMeta>,
        certain: Option<&RecordMeta>,
    ) -> Result<(), StoreError> {
        let mut checked: Vec<(PartMeta, bool)> = Vec::new();
        for part in parts {
            let same_set = |(known, _): &&(PartMeta, bool)| is_same_set(known, &part);
            let is_leftover = match checked.iter().find(same_set) {
                Some((_, is_leftover)) => *is_leftover,
                None => self.is_leftover(&part, certain).await?,
            };
            checked.push((part, is_leftover));
        }
        for (part, _) in checked.iter().filter(|(_, is_leftover)| *is_leftover) {
            self.delete_secret(&part.namespace, &part.secret, Some(&part.uid))
                .await?;
            self.index.part_removed(part);
        }
        Ok(())
    }

    async fn is_leftover(
        &self,
        part: &PartMeta,
        certain: Option<&RecordMeta>,
    ) -> Result<bool, StoreError> {
        let refers = |meta: &RecordMeta| {
            meta.revision == part.revision && meta.parts.as_ref() == Some(&part.parts)
        };
        let history = self.index.history(&part.namespace, &part.release);
        if history.iter().any(refers) {
            return Ok(false);
        }
        if certain.is_some_and(|meta| meta.revision == part.revision) {
            return Ok(true);
        }
        let secret = name::secret_name(&part.release, part.revision);
        let record = self.refresh(&part.namespace, &secret).await?;
        Ok(!record.as_ref().is_some_and(refers))
    }

    async fn delete_record(&self, meta: &RecordMeta) -> Result<(), StoreError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": {"uid": meta.uid}});
        let uri = self.path(&meta.namespace, Some(&meta.secret))?;
        let call = write_call(Method::DELETE, uri, &options);
        let _own = self.deleting(&meta.namespace, std::slice::from_ref(meta));
        match self
            .call("delete", &meta.namespace, Some(&meta.secret), call)
            .await
        {
            Ok(_) => phases::changed(),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(fencing_error(error, meta)),
        }
        self.forget(meta);
        Ok(())
    }

    /// Deletes the parts that a record refers to.
    pub(super) async fn delete_parts_of(&self, meta: &RecordMeta) -> Result<(), StoreError> {
        let known = self.index.parts(&meta.namespace, &meta.name);
        for secret in names_of_parts(meta) {
            self.delete_secret(&meta.namespace, &secret, None).await?;
            if let Some(part) = known.iter().find(|part| part.secret == secret) {
                self.index.part_removed(part);
            }
        }
        Ok(())
    }

    /// Deletes these parts of a release in one request. Keeps parts that another owner
    /// has written since for a release of the same name.
    async fn delete_parts(
        &self,
        namespace: &str,
        name: &ReleaseName,
        parts: &[PartMeta],
    ) -> Result<(), StoreError> {
        let owners: BTreeSet<&str> = parts.iter().map(|part| part.cr.as_str()).collect();
        if owners.is_empty() {
            return Ok(());
        }
        let owners: Vec<&str> = owners.into_iter().collect();
        let selector = format!(
            "{PART_OF_LABEL}={name},{CR_LABEL} in ({})",
            owners.join(",")
        );
        self.delete_collection(namespace, &selector).await?;
        for part in parts {
            self.index.part_removed(part);
        }
        Ok(())
    }

    /// Deletes a Secret. A missing Secret, or another one of the same name, is not an error.
    async fn delete_secret(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let (Some(options), Some(uid)) = (options.as_object_mut(), uid) {
            options.insert("preconditions".to_owned(), json!({ "uid": uid }));
        }
        let uri = self.path(namespace, Some(name))?;
        let call = write_call(Method::DELETE, uri, &options);
        match self.call("delete", namespace, Some(name), call).await {
            Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_collection(&self, namespace: &str, selector: &str) -> Result<(), StoreError> {
        let uri = format!(
            "{}?labelSelector={}",
            self.path(namespace, None)?,
            request::query_value(selector)
        );
        let options: Value = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let mut call = write_call(Method::DELETE, uri, &options);
        call.accept = request::METADATA_LIST;
        self.call("deletecollection", namespace, None, call).await?;
        Ok(())
    }

    fn deleting(&self, namespace: &str, records: &[RecordMeta]) -> OwnWrite {
        let secrets = records.iter().map(|meta| meta.secret.clone());
        self.index.writing(namespace, secrets.collect())
    }

    fn forget(&self, meta: &RecordMeta) {
        self.with_cache(|cache| cache.forget(&meta.uid));
        self.index.removed(meta);
    }
}

fn names_of_parts(meta: &RecordMeta) -> Vec<String> {
    let parts = meta.parts.iter();
    parts
        .flat_map(|parts| parts.names(&meta.name, meta.revision))
        .collect()
}

fn is_same_set(a: &PartMeta, b: &PartMeta) -> bool {
    (&a.namespace, &a.release, a.revision, &a.parts)
        == (&b.namespace, &b.release, b.revision, &b.parts)
}

pub(super) fn log_undeleted_parts(error: &StoreError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "cannot delete unreferenced parts of a release record; retrying after the next write of the release"
    );
}
