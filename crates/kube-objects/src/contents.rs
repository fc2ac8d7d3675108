//! The contents of namespaces and custom resource definitions, which are deleted with them.
//!
//! Nothing is taken from the discovery cache: a kind that is younger than the cache would look like one
//! without objects. For a definition, the definition itself says how its kind is served; for a
//! namespace, the API server is asked anew. What cannot be listed is unknown, never empty.
//!
//! RBAC: `get` on custom resource definitions; `list` on their kinds, and on all kinds in a namespace
//! that a chart creates.

use host::HashMap;
use std::fmt;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, GroupVersionKind};
use object_key::ObjectKey;
use serde_json::Value;

use super::locate::of_kind;
use super::ownership::{self, Claimant, Ownership, controller_of, is_container};
use super::read::{self, ReadError};
use super::{ApiError, ApiKind, Cluster, DiscoveryError, Scope};

/// Number of kinds of a namespace that are listed concurrently.
const LISTS_AT_ONCE: usize = 4;

/// Number of owners that are read to find out whose the objects of a namespace or definition are.
const MAX_OWNERS: usize = 100;

/// Number of owners from an object to the one that nobody owns.
const MAX_DEPTH: usize = 8;

/// Reason why an object is not deleted: what would be deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// An object that is not of the release.
    Others(String),
    /// An object of the release that is annotated to be kept.
    Kept(String),
    /// Contents that are not known, for this reason.
    Unknown(String),
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Others(object) => write!(
                f,
                "it holds {object}, which is not of this release; delete that first, or delete both by hand"
            ),
            Self::Kept(object) => write!(
                f,
                "it holds {object}, which is annotated with helm.sh/resource-policy: keep"
            ),
            Self::Unknown(why) => write!(
                f,
                "it is not known whether it holds objects that are not of this release: {why}; delete it by hand if it does not"
            ),
        }
    }
}

/// Returns what a namespace or a custom resource definition holds that must not be deleted with it:
/// objects of others, or to be kept; `None` if there is nothing, and for every other kind.
///
/// # Errors
/// When a request fails and may succeed later, or the API server does not say completely what it
/// serves.
pub(crate) async fn holds_others(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
) -> Result<Option<Held>, ReadError> {
    if !is_container(key) {
        return Ok(None);
    }
    if key.kind == "Namespace" {
        // A kind may vanish between discovery and its list; then both are repeated.
        return match of_namespace(cluster, &key.name, claimant).await {
            Err(ReadError::Api(error)) if error.is_unserved() => {
                of_namespace(cluster, &key.name, claimant).await
            }
            answer => answer,
        };
    }
    of_definition(cluster, key, claimant).await
}

async fn of_definition(
    cluster: &Cluster,
    key: &ObjectKey,
    claimant: &Claimant<'_>,
) -> Result<Option<Held>, ReadError> {
    let (name, target) = (key.name.as_str(), key);
    let read = of_kind(cluster, key, |kind| {
        Box::pin(async move { read::whole(cluster, &kind, None, name).await })
    });
    let Some(Some(definition)) = read.await? else {
        return Ok(None);
    };
    let definition = Definition(&definition);
    if definition
        .0
        .pointer("/metadata/deletionTimestamp")
        .is_some()
    {
        return Ok(None);
    }
    if !definition.has("Established", "True") {
        if definition.has("NamesAccepted", "False") {
            let why =
                "the API server does not accept its names, so that its objects cannot be listed";
            return Ok(Some(Held::Unknown(why.to_owned())));
        }
        return Err(unsettled(target).into());
    }
    let mut failed: Option<Result<Held, ReadError>> = None;
    for kind in definition.served() {
        match others_of_kind(cluster, &kind, None, claimant).await {
            Ok(held) => return Ok(held),
            Err(ReadError::Api(error)) if error.is_unserved() => {
                failed = Some(Err(unsettled(target).into()));
            }
            // The webhook that converts the objects may be one of the release, and deleted already.
            Err(ReadError::Api(error))
                if !error.is_transient() || (definition.converts() && is_internal(&error)) =>
            {
                let why = format!("they cannot be listed ({error})");
                failed.get_or_insert(Ok(Held::Unknown(why)));
            }
            Err(error) => failed = Some(Err(error)),
        }
    }
    match failed {
        Some(answer) => answer.map(Some),
        None => Ok(Some(Held::Unknown("no version of it is served".to_owned()))),
    }
}

fn is_internal(error: &ApiError) -> bool {
    error.status().is_some_and(|status| status.code == 500)
}

fn unsettled(key: &ObjectKey) -> DiscoveryError {
    DiscoveryError::Unsettled {
        api_version: "apiextensions.k8s.io".to_owned(),
        kind: key.name.clone(),
    }
}

struct Definition<'d>(&'d Value);

impl Definition<'_> {
    fn text(&self, pointer: &str) -> &str {
        let text = self.0.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    }

    fn has(&self, type_: &str, status: &str) -> bool {
        let conditions = self.0.pointer("/status/conditions");
        let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions.any(|condition| condition["type"] == type_ && condition["status"] == status)
    }

    /// Returns whether a webhook converts objects between versions.
    fn converts(&self) -> bool {
        self.text("/spec/conversion/strategy") == "Webhook"
    }

    /// Returns the kind in each version that is served, the one in which objects are stored first: it
    /// needs no conversion. Each version has all objects.
    fn served(&self) -> Vec<ApiKind> {
        let versions = self.0.pointer("/spec/versions").and_then(Value::as_array);
        let is = |version: &Value, field: &str| version[field] == true;
        let mut served: Vec<&Value> = versions.into_iter().flatten().collect();
        served.retain(|version| is(version, "served"));
        served.sort_by_key(|version| !is(version, "storage"));
        let scope = if self.text("/spec/scope") == "Cluster" {
            Scope::Cluster
        } else {
            Scope::Namespaced
        };
        let (group, kind) = (self.text("/spec/group"), self.text("/spec/names/kind"));
        let plural = self.text("/spec/names/plural");
        let names = served
            .into_iter()
            .filter_map(|version| version["name"].as_str());
        names
            .map(|version| {
                let gvk = GroupVersionKind::gvk(group, version, kind);
                ApiKind::of_type(ApiResource::from_gvk_with_plural(&gvk, plural), scope)
            })
            .collect()
    }
}

async fn of_namespace(
    cluster: &Cluster,
    namespace: &str,
    claimant: &Claimant<'_>,
) -> Result<Option<Held>, ReadError> {
    let listable = cluster.discovery().listable().await;
    let mut kinds = listable.map_err(ReadError::Unproven)?;
    kinds.retain(|kind| kind.scope == Scope::Namespaced);
    let mut lists = futures::stream::iter(kinds)
        .map(|kind| async move {
            match others_of_kind(cluster, &kind, Some(namespace), claimant).await {
                Err(ReadError::Api(error)) if !error.is_transient() && !error.is_unserved() => {
                    let why = format!("its objects cannot be listed ({error})");
                    Ok(Some(Held::Unknown(why)))
                }
                answer => answer,
            }
        })
        .buffer_unordered(LISTS_AT_ONCE);
    while let Some(held) = lists.next().await {
        if let Some(held) = held? {
            return Ok(Some(held));
        }
    }
    Ok(None)
}

/// Returns an object of a kind that must not be deleted, in a namespace or in all.
async fn others_of_kind(
    cluster: &Cluster,
    kind: &ApiKind,
    namespace: Option<&str>,
    claimant: &Claimant<'_>,
) -> Result<Option<Held>, ReadError> {
    let held = |live: &ObjectMeta| {
        if namespace.is_some() && is_in_every_namespace(kind, live) {
            return None;
        }
        match whose(live, claimant) {
            Whose::Kept => Some(Held::Kept(describe(kind, live))),
            Whose::Others => Some(Held::Others(describe(kind, live))),
            Whose::Release | Whose::Owner(_) => None,
        }
    };
    let stop = |live: &ObjectMeta| held(live).is_some();
    let objects = read::list_metadata(cluster, kind, namespace, None, Some(&stop)).await?;
    if let Some(held) = objects.iter().find_map(held) {
        return Ok(Some(held));
    }
    let mut owners = Owners {
        cluster,
        claimant,
        checked: namespace,
        known: HashMap::default(),
    };
    for live in &objects {
        if let Whose::Owner(owner) = whose(live, claimant)
            && owners.are_others(owner, live.namespace.as_deref()).await?
        {
            return Ok(Some(Held::Others(describe(kind, live))));
        }
    }
    Ok(None)
}

/// Ownership of an object, by its own metadata.
enum Whose<'m> {
    /// The release's.
    Release,
    /// The release's, and annotated to be kept.
    Kept,
    /// The controller's.
    Owner(&'m OwnerReference),
    /// Somebody else's.
    Others,
}

fn whose<'m>(live: &'m ObjectMeta, claimant: &Claimant<'_>) -> Whose<'m> {
    let label = |name: &str| live.labels.as_ref()?.get(name).map(String::as_str);
    let is_record = label("owner") == Some("helm")
        && label("name") == Some(claimant.release_name)
        && live
            .namespace
            .as_deref()
            .is_none_or(|own| own == claimant.release_namespace);
    let foreign = matches!(ownership::ownership(live, claimant), Ownership::Foreign(_));
    match controller_of(live) {
        _ if is_record => Whose::Release,
        _ if !foreign && ownership::is_kept(live) => Whose::Kept,
        _ if !foreign => Whose::Release,
        Some(owner) => Whose::Owner(owner),
        None => Whose::Others,
    }
}

/// Finds out whether the controllers of objects belong to the release.
struct Owners<'a> {
    cluster: &'a Cluster,
    claimant: &'a Claimant<'a>,
    /// The namespace whose objects are all checked.
    checked: Option<&'a str>,
    /// By uid, whether a controller is somebody else's.
    known: HashMap<String, bool>,
}

impl Owners<'_> {
    /// Returns whether a controller, or the one that controls it, is not the release's. One that is in
    /// the checked namespace is checked by itself.
    async fn are_others(
        &mut self,
        owner: &OwnerReference,
        namespace: Option<&str>,
    ) -> Result<bool, ReadError> {
        let mut owner = owner.clone();
        let mut path = Vec::new();
        let others = loop {
            if let Some(known) = self.known.get(&owner.uid) {
                break *known;
            }
            if path.len() >= MAX_DEPTH || self.known.len() >= MAX_OWNERS {
                break true;
            }
            path.push(owner.uid.clone());
            let (group, version) = owner
                .api_version
                .split_once('/')
                .unwrap_or(("", owner.api_version.as_str()));
            let gvk = GroupVersionKind::gvk(group, version, &owner.kind);
            let kind = match self.cluster.resolve(&gvk).await {
                Ok(kind) => kind,
                Err(DiscoveryError::UnknownKind { .. }) => break true,
                Err(error) => return Err(error.into()),
            };
            let place = namespace.filter(|_| kind.scope == Scope::Namespaced);
            if place.is_some() && place == self.checked {
                break false;
            }
            let live = read::metadata(self.cluster, &kind, place, &owner.name).await?;
            // Without its owner, garbage collection deletes it.
            let Some(live) = live.filter(|live| live.uid.as_deref() == Some(&*owner.uid)) else {
                break false;
            };
            match whose(&live, self.claimant) {
                Whose::Release | Whose::Kept => break false,
                Whose::Others => break true,
                Whose::Owner(next) => owner = next.clone(),
            }
        };
        self.known.extend(path.into_iter().map(|uid| (uid, others)));
        Ok(others)
    }
}

fn is_in_every_namespace(kind: &ApiKind, live: &ObjectMeta) -> bool {
    let name = live.name.as_deref().unwrap_or_default();
    kind.resource.group.is_empty()
        && matches!(
            (kind.resource.kind.as_str(), name),
            ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt")
        )
}

fn describe(kind: &ApiKind, live: &ObjectMeta) -> String {
    let name = live.name.as_deref().unwrap_or_default();
    match &live.namespace {
        Some(namespace) => format!("{} {namespace}/{name}", kind.resource.kind),
        None => format!("{} {name}", kind.resource.kind),
    }
}
