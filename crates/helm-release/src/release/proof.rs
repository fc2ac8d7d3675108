//! Proves that this operator wrote a record.
//!
//! A record decides what is applied: the operator repairs, resumes and rolls back from it, with its
//! own permissions. Whoever may write Secrets in a namespace could otherwise have any object applied
//! by writing it into a record. A record therefore carries a label with an HMAC-SHA256 over what is
//! applied from it, under a key that only the operator's namespace has. What is applied comes only
//! from records with a valid proof, or from a render.
//!
//! The proof covers the place of the record, its owner, its digest, the service account as
//! which its objects were applied, its manifest, what decides how its hooks run, and the last values
//! of optional references. It does not cover status,
//! description and phases of hooks: Helm changes them when it supersedes a revision, and they decide
//! when something is applied but not what.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use helm_core::release::Release;
use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use kube::Client;
use kube_objects::discovery::Verbs;
use kube_objects::request::{self, Call};
use kube_objects::{AccountName, ApiError, ApiKind, CrIdentity, OperatorId, Scope};
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::StoreError;
use super::meta::RecordMeta;
use super::storage::Storage;

/// Number of hexadecimal digits of a proof: 192 bits, so that it fits into a label together with the
/// number of a revision.
const DIGITS: usize = 48;
/// Length of a key in bytes.
const KEY_BYTES: usize = 32;
/// Key of the data of the Secret.
const DATA_KEY: &str = "key";
/// Label of the Secret that holds the key.
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";

/// The key under which records are proven.
#[derive(Clone)]
pub(crate) struct ProofKey(Arc<[u8]>);

/// Source of the key of an operator. Cheap to clone; clones share the key.
#[derive(Clone)]
pub struct ProofKeys(Arc<Shared>);

struct Shared {
    place: Option<Place>,
    known: Mutex<Option<Known>>,
}

/// The key in use.
struct Known {
    key: ProofKey,
    /// Time of the next attempt to keep the key in the Secret; `None` if it is kept.
    retry: Option<Instant>,
}

/// Time after which a refused permission is asked for again.
const RETRY_AFTER: Duration = Duration::from_mins(1);

struct Place {
    client: Client,
    namespace: String,
    secret: String,
}

#[derive(Deserialize)]
struct KeySecret {
    #[serde(default)]
    data: std::collections::BTreeMap<String, String>,
}

impl ProofKeys {
    /// Returns a new key that only this process knows.
    pub(crate) fn of_process() -> Self {
        Self(Arc::new(Shared {
            place: None,
            known: Mutex::default(),
        }))
    }

    /// Returns the key of an operator, in a Secret of its namespace. It is read, or created, when it
    /// is first needed: all replicas, and the process after a restart, use the same.
    ///
    /// RBAC: `get` and `create` on `secrets` in that namespace. Without them the key is one that
    /// only this process knows, and a warning names the permission. Once they are given, that key is kept.
    pub fn in_secret(client: Client, namespace: &str, operator: &OperatorId) -> Self {
        Self(Arc::new(Shared {
            place: Some(Place {
                client,
                namespace: namespace.to_owned(),
                secret: record_key_secret(&operator.to_string()),
            }),
            known: Mutex::default(),
        }))
    }

    /// Returns the key. Sends one request with the first call, and another one if the Secret does
    /// not exist. While the permission is missing, it asks again once a minute.
    ///
    /// # Errors
    /// When the API server does not respond; the next call tries again.
    pub(super) async fn key(&self) -> Result<ProofKey, StoreError> {
        let mut known = self.0.known.lock().await;
        if let Some(known) = &*known
            && known.retry.is_none_or(|at| Instant::now() < at)
        {
            return Ok(known.key.clone());
        }
        let own = known.as_ref().map(|known| known.key.clone());
        let found = self.find(own).await?;
        Ok(known.insert(found).key.clone())
    }

    /// Reads the key, or keeps `own`, or else a new one.
    async fn find(&self, own: Option<ProofKey>) -> Result<Known, StoreError> {
        let is_known = own.is_some();
        let own = match own {
            Some(own) => own,
            None => random_key()?,
        };
        let mut retry = None;
        let kept = match &self.0.place {
            None => None,
            Some(place) => match place.read_or_create(&own).await {
                Ok(Some(key)) => Some(key),
                Ok(None) => {
                    tracing::error!(
                        secret = format!("{}/{}", place.namespace, place.secret),
                        "the key that proves release records is invalid; delete the Secret, so that the next start creates a new one"
                    );
                    None
                }
                Err(StoreError::Api(error)) if !error.is_transient() => {
                    if !is_known {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            secret = format!("{}/{}", place.namespace, place.secret),
                            "cannot keep the key that proves release records: permit get and create on secrets in the operator's namespace; until then, records are not trusted after a restart"
                        );
                    }
                    retry = Some(Instant::now() + RETRY_AFTER);
                    None
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Known {
            key: kept.unwrap_or(own),
            retry,
        })
    }
}

impl Place {
    /// Returns the key in the Secret, or creates the Secret with this one; `None` if it is invalid.
    async fn read_or_create(&self, own: &ProofKey) -> Result<Option<ProofKey>, StoreError> {
        if let Some(found) = self.read().await? {
            return Ok(found.key());
        }
        match self.create(own).await {
            Ok(()) => Ok(Some(own.clone())),
            // Another replica has created it meanwhile.
            Err(ApiError::Conflict { .. }) => Ok(self.read().await?.and_then(|found| found.key())),
            Err(error) => Err(error.into()),
        }
    }

    async fn read(&self) -> Result<Option<KeySecret>, StoreError> {
        let kind = secrets();
        let name = Some(self.secret.as_str());
        let namespace = Some(self.namespace.as_str());
        let path = request::path(&kind, namespace, name).map_err(ApiError::from)?;
        let target = request::target("get", &kind, namespace, name);
        match request::call(&self.client, target, Call::get(path, request::JSON)).await {
            Ok(answer) => Ok(Some(answer.decode()?)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn create(&self, key: &ProofKey) -> Result<(), ApiError> {
        let kind = secrets();
        let namespace = Some(self.namespace.as_str());
        let path = request::path(&kind, namespace, None)?;
        let target = request::target("create", &kind, namespace, Some(&self.secret));
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self.secret,
                "namespace": self.namespace,
                "labels": {COMPONENT_LABEL: "release-record-key"},
            },
            "type": "Opaque",
            "immutable": true,
            "data": {DATA_KEY: BASE64.encode(&key.0)},
        });
        let body = body.to_string().into_bytes();
        let call = Call::with_body(
            Method::POST,
            path,
            request::METADATA_ONLY,
            request::JSON,
            body,
        );
        request::call(&self.client, target, call).await.map(drop)
    }
}

impl KeySecret {
    fn key(&self) -> Option<ProofKey> {
        let bytes = BASE64.decode(self.data.get(DATA_KEY)?.as_bytes()).ok()?;
        (bytes.len() >= KEY_BYTES).then(|| ProofKey(bytes.into()))
    }
}

/// Returns the name of the Secret with the key that proves the release records of an operator.
pub fn record_key_secret(operator: &str) -> String {
    // A label value may have characters that a name may not have.
    let name = operator.to_lowercase().replace('_', "-");
    format!("{name}-release-record-key")
}

fn secrets() -> ApiKind {
    let verbs = Verbs {
        list: true,
        watch: true,
        patch: true,
        delete: true,
    };
    ApiKind {
        resource: Storage::Secrets.resource(),
        scope: Scope::Namespaced,
        verbs,
        scalable: false,
        has_status: false,
    }
}

fn random_key() -> Result<ProofKey, StoreError> {
    let mut bytes = [0; KEY_BYTES];
    host::fill(&mut bytes).map_err(|_| StoreError::NoRandomness)?;
    Ok(ProofKey(bytes.as_slice().into()))
}

/// The place and the labels that a proof covers.
pub(super) struct ProofSubject<'a> {
    pub(super) cr: Option<&'a CrIdentity>,
    pub(super) digest: Option<String>,
    pub(super) account: Option<&'a AccountName>,
}

impl ProofKey {
    pub(super) fn prove(&self, subject: &ProofSubject<'_>, release: &Release) -> String {
        let mut text = HEXLOWER.encode(&self.mac(subject, release).finalize().into_bytes());
        text.truncate(DIGITS);
        text
    }

    /// Returns whether the proof in the label of a record is that of its content.
    pub(super) fn holds(&self, meta: &RecordMeta, release: &Release) -> bool {
        let Some(proof) = &meta.proof else {
            return false;
        };
        // The content names its place, too.
        let in_place = release.name == meta.name
            && release.namespace == meta.namespace
            && release.revision == meta.revision;
        let Ok(proof) = HEXLOWER.decode(proof.as_bytes()) else {
            return false;
        };
        let subject = ProofSubject {
            cr: meta.cr.as_ref(),
            digest: meta.digest.as_ref().map(ToString::to_string),
            account: meta.account.as_ref(),
        };
        in_place
            && proof.len() == DIGITS / 2
            && self
                .mac(&subject, release)
                .verify_truncated_left(&proof)
                .is_ok()
    }

    fn mac(&self, subject: &ProofSubject<'_>, release: &Release) -> Hmac<Sha256> {
        let mut fields = Fields(Hmac::<Sha256>::new(&padded(&self.0).into()));
        // Records of earlier versions, and those of the operator's own account, have no account.
        match subject.account {
            None => fields.add("release record v1"),
            Some(account) => {
                fields.add("release record v2");
                fields.add(&account.text());
            }
        }
        fields.add(&release.namespace);
        fields.add(release.name.as_str());
        fields.add(&release.revision.to_string());
        fields.add(subject.cr.map_or("", CrIdentity::as_str));
        fields.add(subject.digest.as_deref().unwrap_or_default());
        fields.add(&release.manifest);
        fields.add(&release.hooks.len().to_string());
        for hook in &release.hooks {
            fields.add(&hook.name);
            fields.add(&hook.kind);
            fields.add(&hook.path);
            fields.add(&hook.manifest);
            fields.add(&hook.weight.to_string());
            fields.add(&json!([hook.events, hook.delete_policies]).to_string());
            fields.add(&json!(hook.output_log_policies).to_string());
        }
        fields.add(&json!(release.values_from).to_string());
        fields.0
    }
}

/// Returns a key in the length of a block of SHA-256, as HMAC pads it.
fn padded(key: &[u8]) -> [u8; 64] {
    let mut block = [0; 64];
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    block
}

/// Fields with their lengths, so that no two records have the same sequence of bytes.
struct Fields(Hmac<Sha256>);

impl Fields {
    fn add(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
