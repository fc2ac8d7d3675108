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
//! replace  --GET--PUT--> migrate, apply
//! ```
//!
//! A PUT alone would leave the fields that it changed in an Update entry of ours, where neither
//! drift detection nor the removal of dropped keys finds them; the apply after it takes every field
//! of the object into our Apply entry.
//!
//! A server-side apply never refuses a foreign object by itself: it would take it over silently
//! and prune the other's fields. The resource version and the uid in the body make it a create or
//! an update of exactly one object.
//!
//! RBAC: `patch` and `create` on the kind; `get` where an object exists already.

use helm_core::manifest::ObjectKey;
use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::Value;

use super::conflict::{FORMER_MANAGERS, leave_out, migration};
use super::failure::{Conflict, conflict, is_kind_gone, sorted};
use super::ownership::{has_release_metadata, placed};
use super::prepare::{Merged, prepare};
use super::request::{self, Call};
use super::{
    ApiError, ApiKind, Claimant, Cluster, FIELD_MANAGER, ForeignOwner, Ownership, Target, drift,
    ownership,
};

pub use super::conflict::{LeaveOut, injected_fields};
pub use super::failure::ApplyError;
pub use super::generated::{create_generated, delete_generated, is_generated};

/// Requests for one object before an apply gives up: others keep changing it meanwhile.
const ROUNDS: usize = 3;

/// What is known of the object that is to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No record of ours proves that it exists and is ours: it is created, never overwritten.
    Unproven,
    /// It is to be created anew: one that exists, whosever it is, is left as it is.
    Absent,
    /// Our last apply answered with this uid.
    Known {
        /// The uid.
        uid: String,
    },
    /// A record of a release that is being adopted names it: it is read first, and entries of
    /// earlier field managers become ours.
    Adopted,
}

/// Which existing objects become the release's although neither our label nor Helm's metadata of
/// this release proves that they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TakeOver {
    /// None.
    #[default]
    Never,
    /// While a release is adopted: the objects that its records name ([`Claim::Adopted`]), where
    /// nothing on them contradicts that they belong to this release. An object of another release,
    /// of another custom resource, of another controller, or with no sign of an owner stays
    /// untouched.
    HelmRelease {
        /// Name of the release, as Helm's annotation on its objects has it.
        name: String,
        /// Namespace of the release, as Helm's annotation has it.
        namespace: String,
    },
}

/// How objects are applied.
#[derive(Clone, Debug)]
pub struct ApplyPolicy {
    /// Which objects of a release that is being adopted are taken over.
    pub take_over: TakeOver,
    /// Replace whole objects (PUT) instead of applying: Helm's `--force`. Never deletes.
    pub replace: bool,
    /// Fields that are left to others where these have set them.
    pub leave_out: Vec<LeaveOut>,
    /// Whether it is only tried: the answer is as if it was done, and nothing is changed.
    pub dry_run: bool,
}

impl Default for ApplyPolicy {
    /// Applies; takes nothing over; leaves injected certificates to their injectors.
    fn default() -> Self {
        Self {
            take_over: TakeOver::Never,
            replace: false,
            leave_out: injected_fields(),
            dry_run: false,
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

/// What the answer to a write is reduced to.
#[derive(Deserialize)]
pub(super) struct Written {
    pub(super) metadata: ObjectMeta,
}

/// The answer to an apply.
struct Sent {
    metadata: ObjectMeta,
    created: bool,
    left_out: Vec<String>,
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
    /// Whether a record of the release that is being adopted names the object.
    recorded: bool,
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
        recorded: claim == Claim::Adopted,
    };
    match claim {
        Claim::Unproven => attempt.create().await,
        Claim::Absent => attempt.create_anew().await,
        Claim::Known { uid } if policy.replace => attempt.replace_known(&uid).await,
        Claim::Known { uid } => attempt.update(&uid).await,
        Claim::Adopted => match attempt.read().await? {
            Some(live) => attempt.take_over(live).await,
            None => attempt.create().await,
        },
    }
}

impl Attempt<'_> {
    /// Creates the object, or judges the one that exists.
    async fn create(&self) -> Result<Applied, ApplyError> {
        for _ in 0..ROUNDS {
            match self.create_anew().await {
                Err(ApplyError::Exists { .. }) => {}
                answer => return answer,
            }
            if let Some(live) = self.read().await? {
                return self.take_over(live).await;
            }
        }
        Err(self.contended())
    }

    /// Creates the object, and does nothing if there is one of its name.
    async fn create_anew(&self) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        // Any version but 0 makes the apply an update of that version, which is refused with 409
        // if there is an object; 1 is never that of an object.
        set_metadata(&mut body, "resourceVersion", "1");
        match self.send(&body, false, Vec::new()).await {
            Err(error) if conflict(&error).is_some() => Err(ApplyError::Exists {
                key: Box::new(self.key.clone()),
            }),
            answer => answer.map_err(|error| self.sorted(error)),
        }
    }

    /// Applies to an existing object if it belongs to the release, or to the one that is adopted.
    async fn take_over(&self, live: ObjectMeta) -> Result<Applied, ApplyError> {
        if let Some(owner) = self.other_owner(&live) {
            let key = Box::new(self.key.clone());
            return Err(ApplyError::Foreign { key, owner });
        }
        if live.deletion_timestamp.is_some() {
            let key = Box::new(self.key.clone());
            return Err(ApplyError::Terminating { key });
        }
        if self.policy.replace {
            return self.replace(&live).await;
        }
        self.own(live, FORMER_MANAGERS).await
    }

    /// To whom an existing object belongs; `None` if it may be applied to.
    fn other_owner(&self, live: &ObjectMeta) -> Option<ForeignOwner> {
        // An owner reference alone is no proof: a controller of the same custom resource may have
        // made the object.
        let proven = has_release_metadata(live, &self.claimant)
            || ownership::cr_of(live) == Some(self.claimant.primary.identity());
        match ownership::ownership(live, &self.claimant) {
            Ownership::Ours | Ownership::Release if proven => None,
            _ if self.is_adopted(live) => None,
            Ownership::Foreign(owner) => Some(owner),
            Ownership::Ours | Ownership::Release => Some(ForeignOwner::Nobody),
        }
    }

    /// Whether the object is one of the release that is being adopted: a record names it, and
    /// nothing on it speaks against that.
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

    /// Applies to an object that has just been read, after what these field managers own of it by
    /// updates has become ours.
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
            // A PUT of ours whose apply was cut off, or Helm's command line, left this: later
            // applies would not remove what it holds.
            Ok(sent) if migration(&sent.metadata, &[FIELD_MANAGER]).is_some() => {
                return self.own(sent.metadata, &[FIELD_MANAGER]).await;
            }
            Ok(sent) => return Ok(self.applied(sent)),
            Err(error) => conflict(&error).ok_or_else(|| self.sorted(error))?,
        };
        if found == Conflict::Fields && !self.may_leave_out() {
            return self
                .send(&body, true, Vec::new())
                .await
                .map_err(|error| self.raced(error));
        }
        match self.read().await? {
            None => self.create().await,
            Some(live) if live.uid.as_deref() != Some(uid) => self.take_over(live).await,
            Some(live) if found == Conflict::Fields => self.force(&live).await,
            Some(_) => Err(self.contended()),
        }
    }

    /// Applies to an object that has just been read: all fields but those that are others' to
    /// set.
    async fn force(&self, live: &ObjectMeta) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        let left = leave_out(&mut body, live, &self.rules());
        set_metadata(&mut body, "uid", live.uid.as_deref().unwrap_or_default());
        self.send(&body, true, left)
            .await
            .map_err(|error| self.raced(error))
    }

    /// Replaces the object with this uid, or creates it.
    async fn replace_known(&self, uid: &str) -> Result<Applied, ApplyError> {
        match self.read().await? {
            Some(live) if live.uid.as_deref() == Some(uid) => self.replace(&live).await,
            Some(live) => self.take_over(live).await,
            None => self.create().await,
        }
    }

    /// Replaces the whole object, as Helm's `--force` does, and makes its fields ours.
    async fn replace(&self, live: &ObjectMeta) -> Result<Applied, ApplyError> {
        let mut body = self.object.clone();
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        set_metadata(&mut body, "uid", &text(&live.uid));
        set_metadata(&mut body, "resourceVersion", &text(&live.resource_version));
        let uri = self.uri("fieldValidation=Strict")?;
        let call = Call::with_body(
            Method::PUT,
            uri,
            request::METADATA_ONLY,
            request::JSON,
            bytes(&body),
        );
        let answer = request::call(self.cluster.client(), self.target("update"), call).await;
        let written = answer.and_then(|answer| answer.decode::<Written>());
        let Written { metadata } = written.map_err(|error| self.raced(error))?;
        self.own(metadata, &[FIELD_MANAGER]).await
    }

    /// Turns the entries of former field managers into ours.
    async fn migrate(&self, patch: &Value) -> Result<ObjectMeta, ApplyError> {
        let (accept, form) = (request::METADATA_ONLY, request::JSON_PATCH);
        let call = Call::with_body(Method::PATCH, self.uri("")?, accept, form, bytes(patch));
        match request::call(self.cluster.client(), self.target("patch"), call).await {
            Ok(answer) => Ok(answer.decode::<Written>()?.metadata),
            Err(error) => Err(self.raced(error)),
        }
    }

    async fn send(
        &self,
        body: &Value,
        force: bool,
        left_out: Vec<String>,
    ) -> Result<Applied, ApiError> {
        let sent = self.exchange(body, force, left_out).await;
        sent.map(|sent| self.applied(sent))
    }

    async fn exchange(
        &self,
        body: &Value,
        force: bool,
        left_out: Vec<String>,
    ) -> Result<Sent, ApiError> {
        let uri = self.uri(&format!("force={force}&fieldValidation=Strict"))?;
        let (accept, form) = (request::METADATA_ONLY, request::APPLY);
        let call = Call::with_body(Method::PATCH, uri, accept, form, bytes(body));
        let answer = request::call(self.cluster.client(), self.target("patch"), call).await?;
        let created = answer.status == StatusCode::CREATED;
        let Written { metadata } = answer.decode()?;
        Ok(Sent {
            metadata,
            created,
            left_out,
        })
    }

    fn applied(&self, sent: Sent) -> Applied {
        let Sent {
            metadata,
            created,
            left_out,
        } = sent;
        let merged = self.merged.clone();
        applied(&self.key, metadata, created, left_out, merged)
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
        self.policy
            .leave_out
            .iter()
            .filter(|rule| rule.applies(&self.key, &self.object))
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

    /// Sorts the failure of a write.
    fn sorted(&self, error: ApiError) -> ApplyError {
        if is_kind_gone(&error) {
            self.cluster.group_changed(&self.kind.resource.group);
        }
        sorted(&self.key, error)
    }

    /// Sorts the failure of a write to an object that has just been read.
    fn raced(&self, error: ApiError) -> ApplyError {
        if conflict(&error).is_some() {
            self.contended()
        } else {
            self.sorted(error)
        }
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
