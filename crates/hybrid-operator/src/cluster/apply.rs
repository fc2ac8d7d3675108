//! Applying objects: server-side apply that creates or updates in one request, and never takes
//! over what is not proven to be ours.
//!
//! ```text
//! Unproven --apply, resourceVersion "1"--> 201 created
//!                                     +--> 409 it exists --GET--> foreign: error, nothing changed
//!                                                             +-> the release's: migrate, apply
//! Known    --apply, uid---------------> 200 applied
//!                                   +-> 409 fields of others --GET--> leave out theirs, force
//!                                   +-> 409 other object ----GET--> judged like Unproven
//! ```
//!
//! A server-side apply never refuses a foreign object by itself: it would take it over silently
//! and prune the other's fields. The resource version and the uid in the body make it a create or
//! an update of exactly one object.
//!
//! RBAC: `patch` and `create` on the kind; `get` where an object exists already.

use std::time::Duration;

use futures::StreamExt;
use helm_core::manifest::ObjectKey;
use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{GroupVersionKind, Status};
use serde::Deserialize;
use serde_json::Value;

use super::conflict::{leave_out, migration};
use super::error::has_cause;
use super::ownership::{RUN_LABEL, has_release_metadata, placed};
use super::prepare::{Merged, prepare};
use super::request::{self, Call};
use super::{
    ApiError, ApiKind, Claimant, Cluster, DiscoveryError, FIELD_MANAGER, ForeignOwner, Ownership,
    Target, drift, ownership,
};

pub use super::conflict::{LeaveOut, injected_fields};

/// Requests for one object before an apply gives up: others keep changing it meanwhile.
const ROUNDS: usize = 3;

/// What is known of the object that is to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No record of ours proves that it exists and is ours: it is created, never overwritten.
    Unproven,
    /// Our last apply answered with this uid.
    Known {
        /// The uid.
        uid: String,
    },
    /// It belongs to a release that is being adopted, or that somebody else's tool has changed
    /// since: it is read first, and entries of earlier field managers become ours.
    Adopted,
}

/// How objects are applied.
#[derive(Clone, Debug)]
pub struct ApplyPolicy {
    /// Take over existing objects that do not belong to the release, as the user has asked.
    pub take_over: bool,
    /// Replace whole objects (PUT) instead of applying: Helm's `--force`. Never deletes.
    pub replace: bool,
    /// Fields that are left to others where these have set them.
    pub leave_out: Vec<LeaveOut>,
}

impl Default for ApplyPolicy {
    /// Applies; takes nothing over; leaves injected certificates to their injectors.
    fn default() -> Self {
        Self {
            take_over: false,
            replace: false,
            leave_out: injected_fields(),
        }
    }
}

/// An object to apply.
#[derive(Clone, Debug)]
pub struct Apply<'a> {
    /// The object, already marked.
    pub object: Value,
    /// What is known of it.
    pub claim: Claim,
    /// For whom it is applied.
    pub claimant: Claimant<'a>,
    /// How.
    pub policy: &'a ApplyPolicy,
}

/// An object as it is after an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The object, with the namespace it is in.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Its generation; `None` for kinds that have none.
    pub generation: Option<i64>,
    /// The hash of what is ours on it. See [`drift::ours_hash`].
    pub ours: u64,
    /// Whether this apply has created it.
    pub created: bool,
    /// Fields that were left to others, as JSON pointers.
    pub left_out: Vec<String>,
    /// List entries of the same key that were merged before sending.
    pub merged: Vec<Merged>,
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The document has neither apiVersion and kind, nor a name or generateName.
    #[error("{document} lacks {missing}")]
    Incomplete {
        /// What the document is, as far as it says.
        document: String,
        /// The missing fields.
        missing: &'static str,
    },
    /// It exists and does not belong to this release.
    #[error("{key} exists and cannot be taken over: {owner}")]
    Foreign {
        /// The object.
        key: Box<ObjectKey>,
        /// Whose it is.
        owner: ForeignOwner,
    },
    /// It exists and is being deleted; it can be created again when it is gone.
    #[error("{key} is being deleted")]
    Terminating {
        /// The object.
        key: Box<ObjectKey>,
    },
    /// A field that cannot be changed on an existing object has changed.
    #[error("{key}: {} cannot be changed: {message}", fields.join(", "))]
    Immutable {
        /// The object.
        key: Box<ObjectKey>,
        /// The fields.
        fields: Vec<String>,
        /// The server's message.
        message: String,
    },
    /// The server finds it invalid.
    #[error("{key}: {message}")]
    Invalid {
        /// The object.
        key: Box<ObjectKey>,
        /// The fields at fault, as far as the server names them.
        fields: Vec<String>,
        /// The server's message.
        message: String,
    },
    /// Its namespace is being deleted, so that nothing can be created in it.
    #[error("{key}: the namespace is being deleted")]
    NamespaceTerminating {
        /// The object.
        key: Box<ObjectKey>,
    },
    /// Its namespace does not exist.
    #[error("{key}: the namespace does not exist")]
    NamespaceMissing {
        /// The object.
        key: Box<ObjectKey>,
    },
    /// Others kept changing it while it was being applied.
    #[error("{key} keeps changing while it is applied")]
    Contended {
        /// The object.
        key: Box<ObjectKey>,
    },
    /// Its kind cannot be resolved.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ApplyError {
    /// Event reason and metric label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Incomplete { .. } => "IncompleteObject",
            Self::Foreign { .. } => "ForeignObject",
            Self::Terminating { .. } => "ObjectTerminating",
            Self::Immutable { .. } => "ImmutableField",
            Self::Invalid { .. } => "InvalidObject",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::NamespaceMissing { .. } => "NamespaceMissing",
            Self::Contended { .. } => "Contended",
            Self::Discovery(error) => error.reason(),
            Self::Api(error) => error.reason(),
        }
    }

    /// Whether the same apply may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Terminating { .. } | Self::Contended { .. } => true,
            Self::Discovery(error) => error.is_transient(),
            Self::Api(error) => error.is_transient(),
            Self::Incomplete { .. }
            | Self::Foreign { .. }
            | Self::Immutable { .. }
            | Self::Invalid { .. }
            | Self::NamespaceTerminating { .. }
            | Self::NamespaceMissing { .. } => false,
        }
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after(),
            _ => None,
        }
    }
}

/// What the answer to a write is reduced to.
#[derive(Deserialize)]
struct Written {
    metadata: ObjectMeta,
}

/// An object that is being applied.
struct Attempt<'a> {
    cluster: &'a Cluster,
    kind: &'a ApiKind,
    key: ObjectKey,
    object: Value,
    merged: Vec<Merged>,
    claimant: Claimant<'a>,
    policy: &'a ApplyPolicy,
}

/// Applies an object: one request where nothing stands in the way.
///
/// # Errors
/// On [`ApplyError::Foreign`] nothing has been changed.
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
    let attempt = Attempt {
        cluster,
        kind: &kind,
        key,
        object,
        merged,
        claimant,
        policy,
    };
    match claim {
        Claim::Unproven => attempt.create().await,
        Claim::Known { uid } if policy.replace => attempt.replace_known(&uid).await,
        Claim::Known { uid } => attempt.update(&uid).await,
        Claim::Adopted => match attempt.read().await? {
            Some(live) => attempt.take_over(live).await,
            None => attempt.create().await,
        },
    }
}

/// What [`apply_all`] has done.
#[derive(Debug, Default)]
pub struct AppliedAll {
    /// The objects that were applied.
    pub applied: Vec<Applied>,
    /// The objects that were refused.
    pub failed: Vec<(ObjectKey, ApplyError)>,
    /// The objects that were not tried, since an earlier kind had failed.
    pub skipped: Vec<ObjectKey>,
}

/// Applies objects in the given order, those of one kind at the same time, at most `concurrency`
/// of them. A failure ends it after the kind in which it happens.
pub async fn apply_all(
    cluster: &Cluster,
    requests: Vec<Apply<'_>>,
    concurrency: usize,
) -> AppliedAll {
    let kind_of = |request: &Apply<'_>| {
        let field = |name| {
            request
                .object
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (field("apiVersion").to_owned(), field("kind").to_owned())
    };
    let mut done = AppliedAll::default();
    let mut rest = requests.into_iter().peekable();
    while let Some(first) = rest.next() {
        let kind = kind_of(&first);
        let mut group = vec![first];
        while let Some(next) = rest.next_if(|next| kind_of(next) == kind) {
            group.push(next);
        }
        if !done.failed.is_empty() {
            done.skipped.extend(
                group
                    .iter()
                    .filter_map(|request| ObjectKey::of(&request.object)),
            );
            continue;
        }
        let results: Vec<_> = futures::stream::iter(group)
            .map(|request| async move {
                let key = ObjectKey::of(&request.object);
                (key, apply(cluster, request).await)
            })
            .buffered(concurrency.max(1))
            .collect()
            .await;
        for (key, result) in results {
            match (result, key) {
                (Ok(applied), _) => done.applied.push(applied),
                (Err(error), key) => {
                    let key = key.unwrap_or_else(|| nameless(&kind));
                    done.failed.push((key, error));
                }
            }
        }
    }
    done
}

/// Creates an object whose name the server generates, or finds the one that an earlier attempt of
/// the same run has created.
///
/// The object carries [`RUN_LABEL`] with the run; `resumed` tells that an earlier attempt may
/// have been interrupted, so that the cluster is asked first.
pub async fn create_generated(
    cluster: &Cluster,
    request: Apply<'_>,
    resumed: bool,
) -> Result<Applied, ApplyError> {
    let Apply {
        mut object,
        claimant,
        ..
    } = request;
    let key = ObjectKey::of(&object).ok_or_else(|| incomplete(&object, "apiVersion or kind"))?;
    let run = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(RUN_LABEL));
    let Some(run) = run.and_then(Value::as_str).map(str::to_owned) else {
        return Err(incomplete(&object, "the label of its run"));
    };
    let kind = cluster.resolve(&gvk_of(&key)).await?;
    let key = placed(&key, kind.scope, claimant.release_namespace);
    set_namespace(&mut object, &key);
    let merged = prepare(&mut object);
    let prefix = object
        .pointer("/metadata/generateName")
        .and_then(Value::as_str);
    let prefix = prefix.unwrap_or_default().to_owned();
    if resumed {
        let selector = format!("{RUN_LABEL}={run}");
        let namespace = key.namespace.as_deref();
        let made =
            super::read::list_metadata(cluster, &kind, namespace, Some(&selector), None).await?;
        let found = made.into_iter().find(|live| {
            live.generate_name.as_deref() == Some(&prefix)
                && live.deletion_timestamp.is_none()
                && ownership::cr_of(live) == Some(claimant.primary.identity())
        });
        if let Some(live) = found {
            return Ok(applied(&key, live, false, Vec::new(), merged));
        }
    }
    let namespace = key.namespace.as_deref();
    let uri = format!(
        "{}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict",
        request::path(&kind, namespace, None).map_err(ApiError::from)?
    );
    let target = request::target("create", &kind, namespace, None);
    let call = Call::with_body(
        Method::POST,
        uri,
        request::METADATA_ONLY,
        request::JSON,
        bytes(&object),
    );
    match request::call(cluster.client(), target, call).await {
        Ok(answer) => {
            let Written { metadata } = answer.decode()?;
            Ok(applied(&key, metadata, true, Vec::new(), merged))
        }
        Err(error) => Err(sorted(&key, error)),
    }
}

impl Attempt<'_> {
    /// Creates the object, or judges the one that exists.
    async fn create(&self) -> Result<Applied, ApplyError> {
        for _ in 0..ROUNDS {
            let mut body = self.object.clone();
            // Any version but 0 makes the apply an update of that version, which is refused with
            // 409 if there is an object; 1 is never that of an object.
            set_metadata(&mut body, "resourceVersion", "1");
            match self.send(&body, false, Vec::new()).await {
                Ok(applied) => return Ok(applied),
                Err(ApplyError::Api(ApiError::Conflict { status, target })) => {
                    if is_quota(&status) {
                        return Err(ApiError::Conflict { status, target }.into());
                    }
                }
                Err(error) => return Err(error),
            }
            if let Some(live) = self.read().await? {
                return self.take_over(live).await;
            }
        }
        Err(self.contended())
    }

    /// Applies to an existing object if it belongs to the release, or if the user has asked.
    async fn take_over(&self, live: ObjectMeta) -> Result<Applied, ApplyError> {
        let verdict = ownership::ownership(&live, &self.claimant);
        // An owner reference alone is no proof: a controller of the same custom resource may have
        // made the object.
        let proven = has_release_metadata(&live, &self.claimant)
            || ownership::cr_of(&live) == Some(self.claimant.primary.identity());
        let owner = match verdict {
            Ownership::Foreign(owner) => Some(owner),
            Ownership::Ours | Ownership::Release if proven => None,
            Ownership::Ours | Ownership::Release => Some(ForeignOwner::Nobody),
        };
        if let Some(owner) = owner.filter(|_| !self.policy.take_over) {
            return Err(ApplyError::Foreign {
                key: Box::new(self.key.clone()),
                owner,
            });
        }
        if live.deletion_timestamp.is_some() {
            return Err(ApplyError::Terminating {
                key: Box::new(self.key.clone()),
            });
        }
        if self.policy.replace {
            return self.replace(&live).await;
        }
        let live = match migration(&live) {
            Some(patch) => self.migrate(&patch).await?,
            None => live,
        };
        self.update_read(&live).await
    }

    /// Applies to the object with this uid.
    async fn update(&self, uid: &str) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        set_metadata(&mut body, "uid", uid);
        let status = match self.send(&body, false, Vec::new()).await {
            Err(ApplyError::Api(ApiError::Conflict { status, target })) => {
                if is_quota(&status) {
                    return Err(ApiError::Conflict { status, target }.into());
                }
                status
            }
            other => return other,
        };
        if !is_field_conflict(&status) {
            // Gone, or another object has its name now.
            return match self.read().await? {
                Some(live) if live.uid.as_deref() == Some(uid) => Err(self.contended()),
                Some(live) => self.take_over(live).await,
                None => self.create().await,
            };
        }
        if !self.may_leave_out() {
            return self.send(&body, true, Vec::new()).await;
        }
        match self.read().await? {
            Some(live) if live.uid.as_deref() == Some(uid) => self.update_read(&live).await,
            Some(live) => self.take_over(live).await,
            None => self.create().await,
        }
    }

    /// Applies to an object that has just been read: all fields but those of others.
    async fn update_read(&self, live: &ObjectMeta) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        let rules = self.rules();
        let left = leave_out(&mut body, live, &rules);
        set_metadata(&mut body, "uid", live.uid.as_deref().unwrap_or_default());
        match self.send(&body, true, left).await {
            Err(ApplyError::Api(ApiError::Conflict { status, target })) => {
                if is_quota(&status) {
                    Err(ApiError::Conflict { status, target }.into())
                } else {
                    Err(self.contended())
                }
            }
            other => other,
        }
    }

    /// Replaces the object with this uid, or creates it.
    async fn replace_known(&self, uid: &str) -> Result<Applied, ApplyError> {
        match self.read().await? {
            Some(live) if live.uid.as_deref() == Some(uid) => self.replace(&live).await,
            Some(live) => self.take_over(live).await,
            None => self.create().await,
        }
    }

    /// Replaces the whole object, as Helm's `--force` does.
    async fn replace(&self, live: &ObjectMeta) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        set_metadata(&mut body, "uid", live.uid.as_deref().unwrap_or_default());
        set_metadata(
            &mut body,
            "resourceVersion",
            live.resource_version.as_deref().unwrap_or_default(),
        );
        let uri = format!(
            "{}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict",
            self.path()?
        );
        let call = Call::with_body(
            Method::PUT,
            uri,
            request::METADATA_ONLY,
            request::JSON,
            bytes(&body),
        );
        self.write("update", call, Vec::new()).await
    }

    /// Turns the entries of former field managers into ours.
    async fn migrate(&self, patch: &Value) -> Result<ObjectMeta, ApplyError> {
        let uri = format!("{}?fieldManager={FIELD_MANAGER}", self.path()?);
        let call = Call::with_body(
            Method::PATCH,
            uri,
            request::METADATA_ONLY,
            request::JSON_PATCH,
            bytes(patch),
        );
        match request::call(self.cluster.client(), self.target("patch"), call).await {
            Ok(answer) => Ok(answer.decode::<Written>()?.metadata),
            Err(ApiError::Conflict { .. }) => Err(self.contended()),
            Err(error) => Err(sorted(&self.key, error)),
        }
    }

    async fn send(
        &self,
        body: &Value,
        force: bool,
        left_out: Vec<String>,
    ) -> Result<Applied, ApplyError> {
        let uri = format!(
            "{}?fieldManager={FIELD_MANAGER}&force={force}&fieldValidation=Strict",
            self.path()?
        );
        let call = Call::with_body(
            Method::PATCH,
            uri,
            request::METADATA_ONLY,
            request::APPLY,
            bytes(body),
        );
        self.write("patch", call, left_out).await
    }

    async fn write(
        &self,
        verb: &'static str,
        call: Call,
        left_out: Vec<String>,
    ) -> Result<Applied, ApplyError> {
        match request::call(self.cluster.client(), self.target(verb), call).await {
            Ok(answer) => {
                let created = answer.status == StatusCode::CREATED;
                let Written { metadata } = answer.decode()?;
                Ok(applied(
                    &self.key,
                    metadata,
                    created,
                    left_out,
                    self.merged.clone(),
                ))
            }
            Err(error) => {
                if is_kind_gone(&error) {
                    self.cluster.group_changed(&self.kind.resource.group);
                }
                Err(sorted(&self.key, error))
            }
        }
    }

    /// The metadata of the object as it is.
    async fn read(&self) -> Result<Option<ObjectMeta>, ApplyError> {
        let namespace = self.key.namespace.as_deref();
        Ok(super::read::metadata(self.cluster, self.kind, namespace, &self.key.name).await?)
    }

    /// Whether there can be fields that are left to others.
    fn may_leave_out(&self) -> bool {
        self.kind.scalable || !self.rules().is_empty()
    }

    fn rules(&self) -> Vec<&LeaveOut> {
        let gvk = self.kind.gvk();
        self.policy
            .leave_out
            .iter()
            .filter(|rule| rule.applies(&gvk, &self.key.name))
            .collect()
    }

    fn path(&self) -> Result<String, ApplyError> {
        request::path(
            self.kind,
            self.key.namespace.as_deref(),
            Some(&self.key.name),
        )
        .map_err(|error| ApiError::from(error).into())
    }

    fn target(&self, verb: &'static str) -> Target {
        request::target(
            verb,
            self.kind,
            self.key.namespace.as_deref(),
            Some(&self.key.name),
        )
    }

    fn contended(&self) -> ApplyError {
        ApplyError::Contended {
            key: Box::new(self.key.clone()),
        }
    }
}

/// The identity of an object that has a name of its own.
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
        let missing = "a decision: metadata.name and metadata.generateName cannot both be set";
        return Err(ApplyError::Incomplete { document, missing });
    }
    Ok(key)
}

/// Whether the server is to generate the name of an object.
pub fn is_generated(object: &Value) -> bool {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    text("/metadata/name").is_empty() && !text("/metadata/generateName").is_empty()
}

fn incomplete(object: &Value, missing: &'static str) -> ApplyError {
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

fn nameless((api_version, kind): &(String, String)) -> ObjectKey {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ObjectKey {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.clone(),
        namespace: None,
        name: String::new(),
    }
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

fn bytes(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

fn set_namespace(object: &mut Value, key: &ObjectKey) {
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

fn applied(
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

/// Gives a failed write the variant that says what to do about it.
fn sorted(key: &ObjectKey, error: ApiError) -> ApplyError {
    let boxed = || Box::new(key.clone());
    let status = match &error {
        ApiError::Rejected { status, .. } | ApiError::NotFound { status, .. } => status,
        ApiError::Unavailable { status, .. } if is_malformed(status) => status,
        ApiError::Forbidden { status, .. } if has_cause(status, "NamespaceTerminating") => {
            return ApplyError::NamespaceTerminating { key: boxed() };
        }
        _ => return error.into(),
    };
    if status.code == 404 {
        let names_namespace = status
            .details
            .as_ref()
            .is_some_and(|details| details.kind == "namespaces");
        return if names_namespace {
            ApplyError::NamespaceMissing { key: boxed() }
        } else {
            error.into()
        };
    }
    let message = status.message.clone();
    let immutable = immutable_fields(status);
    if !immutable.is_empty() {
        return ApplyError::Immutable {
            key: boxed(),
            fields: immutable,
            message,
        };
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields: Vec<String> = causes
        .map(|cause| cause.field.clone())
        .filter(|field| !field.is_empty())
        .collect();
    fields.dedup();
    ApplyError::Invalid {
        key: boxed(),
        fields,
        message,
    }
}

/// The fields that the server refuses to change.
///
/// The causes of a 422 name the fields. That the reason is immutability they tell by their
/// messages only: `field is immutable`, and for the spec of a StatefulSet a cause of its own.
fn immutable_fields(status: &Status) -> Vec<String> {
    let Some(details) = &status.details else {
        return Vec::new();
    };
    let mut fields: Vec<String> = details
        .causes
        .iter()
        .filter(|cause| {
            cause.message.contains("immutable")
                || cause.message.contains("may not be changed")
                || cause.message.contains("may not change once set")
                || (cause.reason == "FieldValueForbidden" && cause.message.contains("updates to "))
        })
        .map(|cause| cause.field.clone())
        .collect();
    fields.dedup();
    fields
}

/// Whether a 500 means that the object cannot be understood, however often it is sent: server-side
/// apply answers objects that do not fit their schema like that.
fn is_malformed(status: &Status) -> bool {
    status.code == 500 && status.reason.is_empty() && status.details.is_none()
}

/// Whether a 409 means that others own fields with other values.
fn is_field_conflict(status: &Status) -> bool {
    has_cause(status, "FieldManagerConflict")
}

/// Whether a 409 means that a quota was being updated by somebody else.
fn is_quota(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| details.kind == "resourcequotas")
}

/// Whether a 404 means that the kind itself is no longer served.
fn is_kind_gone(error: &ApiError) -> bool {
    matches!(error, ApiError::NotFound { status, .. }
        if status.details.as_ref().is_none_or(|details| details.kind.is_empty()))
}
