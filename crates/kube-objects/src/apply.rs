//! Server-side apply that creates or updates in one request, and never takes over objects that are
//! not proven to be the release's.
//!
//! ```text
//! Unproven --apply, resourceVersion "1"--> 201 created
//!                                     +--> 409 exists --GET----> foreign: error, nothing changed
//!                                                             +-> the release's: migrate, apply
//! Known    --apply, uid---------------> 200 applied
//!                                   +-> 409 fields of others --GET--> leave them out, force
//!                                   +-> 409 other object ----GET--> judged like Unproven
//! replace  --GET--PUT--> migrate, apply
//! ```
//!
//! A PUT alone would leave the changed fields in an `Update` entry of our field manager, where
//! neither drift detection nor the removal of dropped keys finds them. The apply after it moves
//! every field of the object to our `Apply` entry.
//!
//! Server-side apply by itself does not reject foreign objects: it would silently take them over.
//! The resource version or the uid in the body makes it a create or an update of exactly one
//! object.
//!
//! RBAC: `patch` and `create` on the kind; `get` where an object already exists.

use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use object_key::ObjectKey;
use serde::Deserialize;
use serde_json::Value;

use super::conflict::{
    FORMER_MANAGERS, REPLICAS, injected_fields, is_autoscaled, keep, keep_replicas, leave_out,
    migration,
};
use super::failure::{Conflict, classify, conflict};
use super::nulls;
use super::ownership::{has_release_metadata, placed};
use super::prepare::prepare;
use super::read::{ReadError, unserved};
use super::request::{self, Answer, Call};
use super::{
    ApiError, ApiKind, Claimant, Cluster, FIELD_MANAGER, ForeignOwner, Ownership, Target, drift,
    ownership,
};

pub use super::conflict::{LeaveOut, keep_finalizers, keep_scale};
pub use super::failure::ApplyError;
pub use super::generated::{create_generated, is_generated, list_generated};
pub use super::prepare::{Merged, merged_lists};

/// Number of attempts for one object before an apply gives up because others keep changing it.
const MAX_ATTEMPTS: usize = 3;

/// Knowledge about the object before it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing proves that it exists and is the release's. It is created, never overwritten.
    Unproven,
    /// The object must not exist. An existing one, whoever owns it, is left unchanged.
    Absent,
    /// The last apply returned this uid.
    Known {
        /// Uid of the object.
        uid: String,
    },
    /// A record of a release that is being adopted contains it. It is read first, and fields of
    /// former field managers become ours.
    Adopted,
}

/// Existing objects that are taken over although neither the operator's label nor Helm's metadata
/// proves that they are the release's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TakeOver {
    /// Nothing is taken over.
    #[default]
    Never,
    /// The objects that the records of an adopted release contain ([`Claim::Adopted`]), unless
    /// their metadata contradicts that. Objects of another release, custom resource or controller,
    /// and objects without ownership metadata, stay untouched.
    HelmRelease {
        /// Name of the release in Helm's annotation on its objects.
        name: String,
        /// Namespace of the release in Helm's annotation.
        namespace: String,
    },
}

/// Rules for the objects of a release.
#[derive(Clone, Debug)]
pub struct ApplyPolicy {
    /// Objects to take over from a release that is being adopted.
    pub take_over: TakeOver,
    /// Replace whole objects (PUT) instead of applying: Helm's `--force`. Never deletes.
    pub replace: bool,
    /// Fields that are left to others if they have set them.
    pub leave_out: Vec<LeaveOut>,
    /// Whether the objects have lost their autoscaler: what it has set is not left to it any more.
    pub unscaled: bool,
    /// Whether to send a dry run, which returns the result without changing anything.
    pub dry_run: bool,
}

impl Default for ApplyPolicy {
    /// Applies without taking objects over, and leaves injected certificates to their injectors.
    fn default() -> Self {
        Self {
            take_over: TakeOver::Never,
            replace: false,
            leave_out: injected_fields(),
            unscaled: false,
            dry_run: false,
        }
    }
}

/// One object to be applied.
#[derive(Clone, Debug)]
pub struct Apply<'a> {
    /// The object, with ownership metadata.
    pub object: Value,
    /// Knowledge about the object.
    pub claim: Claim,
    /// The release it is applied for.
    pub claimant: Claimant<'a>,
    /// Options for applying the object.
    pub policy: &'a ApplyPolicy,
}

/// The state of an object after an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Key of the object, with its namespace.
    pub key: ObjectKey,
    /// Uid of the object.
    pub uid: String,
    /// Resource version of the object.
    pub resource_version: String,
    /// Generation of the object; `None` for kinds that have none.
    pub generation: Option<i64>,
    /// Hash of the fields that the operator owns. See [`drift::ours_hash`].
    pub ours: u64,
    /// Whether this apply created it.
    pub created: bool,
    /// Fields that were left to others, as JSON pointers.
    pub left_out: Vec<String>,
    /// List entries with equal keys that were merged before sending.
    pub merged: Vec<Merged>,
}

/// The metadata in the response to a write.
#[derive(Deserialize)]
pub(super) struct WriteResponse {
    pub(super) metadata: ObjectMeta,
}

struct ApplyResponse {
    metadata: ObjectMeta,
    created: bool,
    left_out: Vec<String>,
}

#[derive(Clone, Copy)]
enum Write {
    /// By server-side apply.
    Apply {
        /// Whether fields of others are taken.
        force: bool,
    },
    /// As a whole.
    Replace,
}

struct ApplyOperation<'a> {
    cluster: &'a Cluster,
    kind: &'a ApiKind,
    key: ObjectKey,
    object: Value,
    merged: Vec<Merged>,
    claimant: Claimant<'a>,
    policy: &'a ApplyPolicy,
    /// Whether a record of the release that is being adopted contains the object.
    recorded: bool,
}

/// Applies an object, with one request unless there is a conflict.
///
/// # Errors
/// See [`ApplyError`]. [`ApplyError::Foreign`] means that nothing has been changed.
pub async fn apply(cluster: &Cluster, request: Apply<'_>) -> Result<Applied, ApplyError> {
    let Apply {
        mut object,
        claim,
        claimant,
        policy,
    } = request;
    let key = identify(&object)?;
    let kind = cluster.resolve(&gvk_of(&key)).await?;
    let key = placed(&key, kind.scope, claimant.release_namespace);
    set_namespace(&mut object, &key);
    let merged = prepare(&mut object);
    let operation = ApplyOperation {
        cluster,
        kind: &kind,
        key,
        object,
        merged,
        claimant,
        policy,
        recorded: claim == Claim::Adopted,
    };
    match claim {
        Claim::Unproven => operation.create().await,
        Claim::Absent => operation.create_if_absent().await,
        Claim::Known { uid } if policy.replace => operation.replace_known(&uid).await,
        Claim::Known { uid } => operation.update(&uid).await,
        Claim::Adopted => match operation.read().await? {
            Some(live) => operation.take_over(live).await,
            None => operation.create().await,
        },
    }
}

impl ApplyOperation<'_> {
    /// Creates the object, or takes the existing one over if it is the release's.
    async fn create(&self) -> Result<Applied, ApplyError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.create_if_absent().await {
                Err(ApplyError::Exists { .. }) => {}
                answer => return answer,
            }
            if let Some(live) = self.read().await? {
                return self.take_over(live).await;
            }
        }
        Err(self.contended())
    }

    /// Creates the object, or fails with [`ApplyError::Exists`] if one of its name exists.
    async fn create_if_absent(&self) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        // Any version but 0 makes the apply an update of that version, which is rejected with 409
        // if the object exists. No object has version 1.
        set_metadata(&mut body, "resourceVersion", "1");
        match self.exchange(&body, false, Vec::new()).await {
            Err(error) if conflict(&error).is_some() => Err(ApplyError::Exists {
                key: Box::new(self.key.clone()),
            }),
            answer => self.applied(answer.map_err(|error| self.classify(error))?),
        }
    }

    /// Applies to an existing object if it belongs to the release, or to the adopted one.
    async fn take_over(&self, live: ObjectMeta) -> Result<Applied, ApplyError> {
        if let Some(owner) = self.other_owner(&live) {
            let key = Box::new(self.key.clone());
            return Err(ApplyError::Foreign { key, owner });
        }
        if live.deletion_timestamp.is_some() {
            return Err(self.terminating());
        }
        if self.policy.replace {
            return self.replace(&live).await;
        }
        self.own(live, FORMER_MANAGERS).await
    }

    /// Returns the owner of an existing object; `None` if it may be applied to.
    fn other_owner(&self, live: &ObjectMeta) -> Option<ForeignOwner> {
        // An owner reference alone proves nothing: another controller of the same custom resource
        // may have created the object.
        let proven = has_release_metadata(live, &self.claimant)
            || ownership::cr_of(live) == Some(self.claimant.primary.identity());
        match ownership::ownership(live, &self.claimant) {
            Ownership::Ours | Ownership::Release if proven => None,
            _ if self.is_adopted(live) => None,
            Ownership::Foreign(owner) => Some(owner),
            Ownership::Ours | Ownership::Release => Some(ForeignOwner::Nobody),
        }
    }

    /// Returns whether the object belongs to the release that is being adopted: a record contains
    /// it, and its metadata does not contradict that.
    fn is_adopted(&self, live: &ObjectMeta) -> bool {
        let TakeOver::HelmRelease { name, namespace } = &self.policy.take_over else {
            return false;
        };
        let adopted = Claimant {
            release_name: name,
            release_namespace: namespace,
            ..self.claimant
        };
        self.recorded && !matches!(ownership::ownership(live, &adopted), Ownership::Foreign(_))
    }

    /// Applies to an object that has just been read, after moving the `Update` entries of these
    /// field managers to our `Apply` entry.
    async fn own(&self, live: ObjectMeta, managers: &[&str]) -> Result<Applied, ApplyError> {
        let live = match migration(&live, managers) {
            Some(patch) => self.migrate(&patch).await?,
            None => live,
        };
        self.force(&live).await
    }

    /// Applies to the object with this uid.
    async fn update(&self, uid: &str) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        set_metadata(&mut body, "uid", uid);
        let found = match self.exchange(&body, false, Vec::new()).await {
            // An interrupted replacement, or the `helm` command, left an `Update` entry, whose
            // fields later applies would not remove.
            Ok(sent) if migration(&sent.metadata, &[FIELD_MANAGER]).is_some() => {
                return self.own(sent.metadata, &[FIELD_MANAGER]).await;
            }
            Ok(sent) => return self.applied(sent),
            Err(error) => conflict(&error).ok_or_else(|| self.classify(error))?,
        };
        if found == Conflict::Fields && !self.may_leave_out() {
            let sent = self.exchange(&body, true, Vec::new()).await;
            return self.applied(sent.map_err(|error| self.raced(error))?);
        }
        match self.read().await? {
            None => self.create().await,
            Some(live) if live.uid.as_deref() != Some(uid) => self.take_over(live).await,
            Some(live) if found == Conflict::Fields => self.force(&live).await,
            Some(_) => Err(self.contended()),
        }
    }

    /// Applies to an object that has just been read, without the fields that are left to others.
    async fn force(&self, live: &ObjectMeta) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        let left = leave_out(&mut body, live, &self.rules(), self.policy.unscaled);
        set_metadata(&mut body, "uid", live.uid.as_deref().unwrap_or_default());
        let sent = self.exchange(&body, true, left).await;
        self.applied(sent.map_err(|error| self.raced(error))?)
    }

    /// Replaces the object with this uid, or creates it if it is gone.
    async fn replace_known(&self, uid: &str) -> Result<Applied, ApplyError> {
        match self.read().await? {
            Some(live) if live.uid.as_deref() == Some(uid) => self.replace(&live).await,
            Some(live) => self.take_over(live).await,
            None => self.create().await,
        }
    }

    /// Replaces the whole object, as Helm's `--force` does, and takes ownership of its fields. Finalizers, and
    /// fields that are left to others, stay. An object that cannot be replaced is applied.
    async fn replace(&self, live: &ObjectMeta) -> Result<Applied, ApplyError> {
        if live.deletion_timestamp.is_some() {
            return Err(self.terminating());
        }
        let mut body = self.object.clone();
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (mut version, mut finalizers) = (text(&live.resource_version), live.finalizers.clone());
        let (rules, unscaled) = (self.rules(), self.policy.unscaled);
        let scaled_by_others = self.kind.scalable && body.pointer(REPLICAS).is_none();
        if !rules.is_empty() || scaled_by_others || !unscaled && is_autoscaled(live) {
            let whole = super::read::get(self.cluster, &self.key).await;
            let whole = whole.map_err(|error| match error {
                ReadError::Discovery(error) | ReadError::Unproven(error) => ApplyError::from(error),
                ReadError::Api(error) => error.into(),
            })?;
            let Some(whole) = whole else {
                return Err(self.contended());
            };
            let metadata = whole.get("metadata").cloned().unwrap_or_default();
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap_or_default();
            if metadata.uid != live.uid {
                return Err(self.contended());
            }
            if metadata.deletion_timestamp.is_some() {
                return Err(self.terminating());
            }
            keep(&mut body, &whole, &metadata, &rules, unscaled);
            if scaled_by_others {
                keep_replicas(&mut body, &whole);
            }
            version = text(&metadata.resource_version);
            finalizers = metadata.finalizers;
        }
        keep_finalizers(&mut body, &finalizers.unwrap_or_default());
        set_metadata(&mut body, "uid", &text(&live.uid));
        set_metadata(&mut body, "resourceVersion", &version);
        let answer = self.send(Write::Replace, &body).await;
        let written = answer.and_then(|answer| answer.decode::<WriteResponse>());
        match written.map_err(|error| self.raced(error)) {
            Ok(WriteResponse { metadata }) => self.own(metadata, &[FIELD_MANAGER]).await,
            // The manifest lacks a field that was set once and for all, such as the volume of a claim.
            Err(ApplyError::Immutable { .. }) => self.own(live.clone(), FORMER_MANAGERS).await,
            Err(error) => Err(error),
        }
    }

    /// Moves the entries of former field managers to ours.
    async fn migrate(&self, patch: &Value) -> Result<ObjectMeta, ApplyError> {
        let (accept, form) = (request::METADATA_ONLY, request::JSON_PATCH);
        let call = Call::with_body(Method::PATCH, self.uri("")?, accept, form, bytes(patch));
        match request::call(self.cluster.client(), self.target("patch"), call).await {
            Ok(answer) => Ok(answer.decode::<WriteResponse>()?.metadata),
            Err(error) => Err(self.raced(error)),
        }
    }

    async fn exchange(
        &self,
        body: &Value,
        force: bool,
        left_out: Vec<String>,
    ) -> Result<ApplyResponse, ApiError> {
        let answer = self.send(Write::Apply { force }, body).await?;
        let created = answer.status == StatusCode::CREATED;
        let WriteResponse { metadata } = answer.decode()?;
        Ok(ApplyResponse {
            metadata,
            created,
            left_out,
        })
    }

    /// Sends an object, and once more without those of its nulls that the server refuses.
    async fn send(&self, write: Write, body: &Value) -> Result<Answer, ApiError> {
        let refused = match self.send_once(write, body).await {
            Err(error) if nulls::are_refused(&error, body) => error,
            answer => return answer,
        };
        let namespace = self.key.namespace.as_deref();
        match super::read::whole(self.cluster, self.kind, namespace, &self.key.name).await {
            Ok(live) => {
                let body = nulls::settled(body, live.as_ref(), &refused);
                self.send_once(write, &body).await
            }
            Err(error) if error.is_transient() => Err(error),
            Err(_) => Err(refused),
        }
    }

    async fn send_once(&self, write: Write, body: &Value) -> Result<Answer, ApiError> {
        let (verb, method, form, query) = match write {
            Write::Apply { force } => {
                let query = format!("force={force}&fieldValidation=Strict");
                ("patch", Method::PATCH, request::APPLY, query)
            }
            Write::Replace => {
                let query = "fieldValidation=Strict".to_owned();
                ("update", Method::PUT, request::JSON, query)
            }
        };
        let uri = self.uri(&query)?;
        let call = Call::with_body(method, uri, request::METADATA_ONLY, form, bytes(body));
        request::call(self.cluster.client(), self.target(verb), call).await
    }

    /// Returns the state of the object after an apply. One that is being deleted does not count as
    /// applied: it will be gone.
    fn applied(&self, sent: ApplyResponse) -> Result<Applied, ApplyError> {
        let ApplyResponse {
            metadata,
            created,
            left_out,
        } = sent;
        if metadata.deletion_timestamp.is_some() {
            return Err(self.terminating());
        }
        let merged = self.merged.clone();
        Ok(applied(&self.key, metadata, created, left_out, merged))
    }

    /// Reads the current metadata of the object.
    async fn read(&self) -> Result<Option<ObjectMeta>, ApplyError> {
        let namespace = self.key.namespace.as_deref();
        let read = super::read::metadata(self.cluster, self.kind, namespace, &self.key.name).await;
        read.map_err(|error| match unserved(self.cluster, self.kind, &error) {
            Some(unserved) => unserved.into(),
            None => error.into(),
        })
    }

    /// Returns whether any fields may be left to others.
    fn may_leave_out(&self) -> bool {
        self.kind.scalable || !self.rules().is_empty()
    }

    fn rules(&self) -> Vec<&LeaveOut> {
        self.policy
            .leave_out
            .iter()
            .filter(|rule| rule.target.matches(&self.key, &self.object))
            .collect()
    }

    fn uri(&self, query: &str) -> Result<String, ApiError> {
        let namespace = self.key.namespace.as_deref();
        let path = request::path(self.kind, namespace, Some(&self.key.name))?;
        let dry_run = if self.policy.dry_run {
            "&dryRun=All"
        } else {
            ""
        };
        Ok(format!(
            "{path}?fieldManager={FIELD_MANAGER}&{query}{dry_run}"
        ))
    }

    fn target(&self, verb: &'static str) -> Target {
        request::target(
            verb,
            self.kind,
            self.key.namespace.as_deref(),
            Some(&self.key.name),
        )
    }

    /// Classifies the failure of a write.
    fn classify(&self, error: ApiError) -> ApplyError {
        match unserved(self.cluster, self.kind, &error) {
            Some(unserved) => unserved.into(),
            None => classify(&self.key, &self.object, error),
        }
    }

    /// Classifies the failure of a write to an object that has just been read.
    fn raced(&self, error: ApiError) -> ApplyError {
        let is_gone = match &error {
            ApiError::NotFound { status, .. } => status.details.as_ref().is_some_and(|details| {
                details.kind == self.kind.resource.plural && details.name == self.key.name
            }),
            _ => false,
        };
        if is_gone || conflict(&error).is_some() {
            self.contended()
        } else {
            self.classify(error)
        }
    }

    fn terminating(&self) -> ApplyError {
        ApplyError::Terminating {
            key: Box::new(self.key.clone()),
        }
    }

    fn contended(&self) -> ApplyError {
        ApplyError::Contended {
            key: Box::new(self.key.clone()),
        }
    }
}

/// Returns the key of an object whose name is not generated.
fn identify(object: &Value) -> Result<ObjectKey, ApplyError> {
    let key = ObjectKey::of(object).ok_or_else(|| incomplete(object, "apiVersion or kind"))?;
    if key.name.is_empty() {
        return Err(incomplete(
            object,
            "metadata.name and metadata.generateName",
        ));
    }
    if object
        .pointer("/metadata/generateName")
        .is_some_and(|name| !name.is_null())
    {
        let document = key.to_string();
        let missing =
            "an unambiguous name: metadata.name and metadata.generateName cannot both be set";
        return Err(ApplyError::Incomplete { document, missing });
    }
    Ok(key)
}

pub(super) fn incomplete(object: &Value, missing: &'static str) -> ApplyError {
    let text = |name| {
        object
            .pointer(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let document = format!("{} {}", text("/kind"), text("/metadata/name"))
        .trim()
        .to_owned();
    let document = if document.is_empty() {
        "a document".to_owned()
    } else {
        document
    };
    ApplyError::Incomplete { document, missing }
}

pub(super) fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

pub(super) fn bytes(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

pub(super) fn set_namespace(object: &mut Value, key: &ObjectKey) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        match &key.namespace {
            Some(namespace) => {
                metadata.insert("namespace".to_owned(), namespace.clone().into());
            }
            None => {
                metadata.remove("namespace");
            }
        }
    }
}

fn set_metadata(object: &mut Value, field: &str, value: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(field.to_owned(), value.into());
    }
}

pub(super) fn applied(
    key: &ObjectKey,
    metadata: ObjectMeta,
    created: bool,
    left_out: Vec<String>,
    merged: Vec<Merged>,
) -> Applied {
    let ours = drift::ours_hash(&metadata);
    let mut key = key.clone();
    key.name = metadata.name.unwrap_or(key.name);
    Applied {
        key,
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        ours,
        created,
        left_out,
        merged,
    }
}

#[cfg(test)]
mod tests;
