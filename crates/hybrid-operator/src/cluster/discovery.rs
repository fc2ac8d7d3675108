//! What kinds the API server serves, asked once for the whole process.
//!
//! The first question fetches everything in two requests (aggregated discovery, Kubernetes 1.26
//! and later) or, from older servers, the one group version in question. Only a kind that is not
//! known, or a group that is said to have changed, is asked for again, and the same group version
//! at most once in a few seconds: a reconcile of known kinds sends no request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use helm_core::Capabilities;
use helm_core::capabilities::{ApiVersions, HelmVersion, KubeVersion};
use kube::Client;
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::request::{self, Call};
use super::{ApiError, Target};

/// How soon the same group version may be asked for again.
const SOONEST: Duration = Duration::from_secs(2);

/// Accepts aggregated discovery, and what servers before it answer.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In the cluster.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// How a kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Where its objects live.
    pub scope: Scope,
    /// What can be done with its objects.
    pub verbs: Verbs,
    /// Whether it has the subresource `scale`.
    pub scalable: bool,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
}

/// What can be done with the objects of a kind, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each tells of one verb")]
pub struct Verbs {
    /// They can be listed.
    pub list: bool,
    /// They can be watched.
    pub watch: bool,
    /// They can be patched, and so applied.
    pub patch: bool,
    /// They can be deleted.
    pub delete: bool,
}

impl ApiKind {
    /// The group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        let resource = &self.resource;
        GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind)
    }

    #[cfg(test)]
    pub(crate) fn fixture(
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        scope: Scope,
    ) -> Self {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let verbs = Verbs {
            list: true,
            watch: true,
            patch: true,
            delete: true,
        };
        let scalable = matches!(kind, "Deployment" | "StatefulSet" | "ReplicaSet");
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Self {
            resource,
            scope,
            verbs,
            scalable,
            has_status: true,
        }
    }
}

/// Why a kind cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The server does not serve it: a custom resource definition may be missing.
    #[error("the cluster does not serve {kind} in {api_version}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The server that serves this group version does not answer.
    #[error("the API {api_version} is registered, but its server is not available")]
    GroupUnavailable {
        /// Group and version.
        api_version: String,
    },
    /// The API server's version cannot be found out.
    #[error("the API server does not tell its version")]
    NoVersion,
    /// Asking failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl DiscoveryError {
    /// Event reason and metric label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "UnknownKind",
            Self::GroupUnavailable { .. } => "GroupUnavailable",
            Self::NoVersion => "NoVersion",
            Self::Api(error) => error.reason(),
        }
    }

    /// Whether the same question may be answered later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::UnknownKind { .. } | Self::NoVersion => false,
            Self::GroupUnavailable { .. } => true,
            Self::Api(error) => error.is_transient(),
        }
    }
}

/// The cache.
pub struct Discovery {
    client: Client,
    known: RwLock<Known>,
    /// Held while asking, so that many questions at once become one request.
    asking: tokio::sync::Mutex<()>,
    /// How often what is served was found to have changed.
    epoch: watch::Sender<u64>,
    /// Told when somebody wants to know of changes.
    wanted: Notify,
}

#[derive(Default)]
struct Known {
    /// By `group/version`.
    groups: BTreeMap<String, Versions>,
    /// When everything was fetched last.
    complete: Option<Instant>,
    /// Whether the server lacks aggregated discovery.
    piecemeal: bool,
    version: Option<(KubeVersion, Instant)>,
}

/// What is known of a group version.
struct Versions {
    version: GroupVersion,
    kinds: Vec<Arc<ApiKind>>,
    /// Kinds as capabilities name them, those of subresources among them.
    names: BTreeSet<String>,
    asked: Instant,
    unavailable: bool,
    changed: bool,
}

impl Known {
    fn kind(&self, gvk: &GroupVersionKind) -> Option<Arc<ApiKind>> {
        let versions = self.groups.get(&gvk.api_version())?;
        if versions.changed {
            return None;
        }
        versions
            .kinds
            .iter()
            .find(|kind| kind.resource.kind == gvk.kind)
            .cloned()
    }
}

impl Discovery {
    /// Nothing known yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: RwLock::default(),
            asking: tokio::sync::Mutex::default(),
            epoch: watch::Sender::new(0),
            wanted: Notify::new(),
        }
    }

    /// Tells when other kinds are served than before: the number grows with each change that is
    /// noticed. What is known at first is no change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.wanted.notify_one();
        self.epoch.subscribe()
    }

    /// How often what is served was found to have changed.
    pub fn epoch(&self) -> u64 {
        *self.epoch.borrow()
    }

    /// Waits until somebody wants to know of changes.
    pub(crate) async fn wanted(&self) {
        if self.epoch.receiver_count() == 0 {
            self.wanted.notified().await;
        }
    }

    /// How a kind is served, as far as is known without asking.
    pub(crate) fn served(&self, gvk: &GroupVersionKind) -> Option<Arc<ApiKind>> {
        self.read(|known| {
            let versions = known.groups.get(&gvk.api_version())?;
            let mut kinds = versions.kinds.iter();
            kinds.find(|kind| kind.resource.kind == gvk.kind).cloned()
        })
    }

    /// Asks for everything again.
    ///
    /// # Errors
    /// When a request fails; what was known stays.
    pub(crate) async fn refresh(&self) -> Result<(), DiscoveryError> {
        let _asking = self.asking.lock().await;
        self.ask_everything().await?;
        if self.read(|known| known.piecemeal) {
            self.ask_all_groups().await?;
        }
        Ok(())
    }

    /// Finds out how a kind is served: from the cache, or by asking.
    ///
    /// # Errors
    /// [`DiscoveryError::UnknownKind`] only after the server itself has denied the kind within
    /// the last seconds.
    pub async fn resolve(&self, gvk: &GroupVersionKind) -> Result<Arc<ApiKind>, DiscoveryError> {
        if let Some(kind) = self.read(|known| known.kind(gvk)) {
            return Ok(kind);
        }
        let _asking = self.asking.lock().await;
        if let Some(kind) = self.read(|known| known.kind(gvk)) {
            return Ok(kind);
        }
        if self.read(|known| known.complete.is_none() && !known.piecemeal) {
            self.ask_everything().await?;
        }
        let version = group_version(gvk);
        let fresh = self.read(|known| {
            known
                .groups
                .get(&gvk.api_version())
                .is_some_and(|versions| {
                    !versions.changed && !versions.unavailable && versions.asked.elapsed() < SOONEST
                })
        });
        if !fresh && self.read(|known| known.kind(gvk)).is_none() {
            self.ask_group(&version).await?;
        }
        self.read(|known| known.kind(gvk))
            .ok_or_else(|| DiscoveryError::UnknownKind {
                api_version: version.api_version(),
                kind: gvk.kind.clone(),
            })
    }

    /// The capabilities as Helm builds them from a cluster: every group version, and every kind
    /// in it, of subresources too. Asked for again when older than `max_age` or when a group has
    /// changed; if that fails, the ones known before stay in use.
    ///
    /// A group whose server does not answer keeps the kinds that it had when last seen, so that
    /// an outage never looks like a removal.
    pub async fn capabilities(&self, max_age: Duration) -> Result<Capabilities, DiscoveryError> {
        let _asking = self.asking.lock().await;
        let fresh = |known: &Known| {
            known.complete.is_some_and(|at| at.elapsed() < max_age)
                && known
                    .version
                    .as_ref()
                    .is_some_and(|(_, at)| at.elapsed() < max_age)
                && !known.groups.values().any(|versions| versions.changed)
        };
        if !self.read(fresh)
            && let Err(error) = self.ask_capabilities(max_age).await
        {
            if !self.read(|known| known.complete.is_some() && known.version.is_some()) {
                return Err(error);
            }
            tracing::warn!(%error, "capabilities of the cluster could not be read again");
        }
        self.read(|known| {
            let (kube_version, _) = known.version.clone().ok_or(DiscoveryError::NoVersion)?;
            Ok(Capabilities {
                kube_version,
                api_versions: api_versions(&known.groups),
                helm_version: HelmVersion::default(),
            })
        })
    }

    /// Marks the kinds of a group as possibly changed.
    pub fn group_changed(&self, group: &str) {
        self.write(|known| {
            for versions in known.groups.values_mut() {
                versions.changed |= versions.version.group == group;
            }
            // A group that is new has no entry to mark.
            known.complete = None;
        });
    }

    /// The kind that is served under a plural, in any version; `None` if there is none.
    pub(crate) async fn kind_of_plural(
        &self,
        group: &str,
        plural: &str,
    ) -> Result<Option<Arc<ApiKind>>, DiscoveryError> {
        self.complete().await?;
        Ok(self.read(|known| {
            let versions = known
                .groups
                .values()
                .filter(|known| known.version.group == group);
            let mut kinds = versions.flat_map(|versions| &versions.kinds);
            kinds.find(|kind| kind.resource.plural == plural).cloned()
        }))
    }

    /// All kinds that can be listed and live in namespaces, each in one version.
    pub(crate) async fn listable(&self) -> Result<Vec<Arc<ApiKind>>, DiscoveryError> {
        self.complete().await?;
        self.read(|known| {
            let mut chosen: BTreeMap<(String, String), Arc<ApiKind>> = BTreeMap::new();
            for (api_version, versions) in &known.groups {
                if versions.unavailable {
                    let api_version = api_version.clone();
                    return Err(DiscoveryError::GroupUnavailable { api_version });
                }
                for kind in &versions.kinds {
                    if kind.verbs.list && kind.scope == Scope::Namespaced {
                        let name = (versions.version.group.clone(), kind.resource.plural.clone());
                        chosen.entry(name).or_insert_with(|| Arc::clone(kind));
                    }
                }
            }
            Ok(chosen.into_values().collect())
        })
    }

    /// Sees to it that all groups are known.
    async fn complete(&self) -> Result<(), DiscoveryError> {
        let _asking = self.asking.lock().await;
        if self.read(|known| known.complete.is_none()) {
            self.ask_everything().await?;
            if self.read(|known| known.piecemeal) {
                self.ask_all_groups().await?;
            }
        }
        Ok(())
    }

    /// Asks for what is older than `max_age`.
    async fn ask_capabilities(&self, max_age: Duration) -> Result<(), DiscoveryError> {
        let young = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < max_age);
        let (version, groups) = self.read(|known| {
            let changed = known.groups.values().any(|versions| versions.changed);
            let version = known.version.as_ref().map(|(_, at)| *at);
            (young(version), young(known.complete) && !changed)
        });
        let version = async {
            if version {
                Ok(())
            } else {
                self.ask_version().await
            }
        };
        let groups = async {
            if groups {
                Ok(())
            } else {
                self.ask_everything().await
            }
        };
        let (version, groups) = futures::join!(version, groups);
        version?;
        groups?;
        if self.read(|known| known.piecemeal) {
            self.ask_all_groups().await?;
        }
        Ok(())
    }

    /// Asks for the server's version, which tells whether it answers at all.
    pub(crate) async fn ask_version(&self) -> Result<(), DiscoveryError> {
        let info: VersionInfo = self.get("/version", request::JSON).await?;
        let version = KubeVersion::from_server(info.git_version, info.major, info.minor);
        self.write(|known| known.version = Some((version, Instant::now())));
        Ok(())
    }

    /// Fetches all groups in two requests, if the server can.
    async fn ask_everything(&self) -> Result<(), DiscoveryError> {
        let (core, groups) =
            futures::join!(self.get("/api", AGGREGATED), self.get("/apis", AGGREGATED));
        let (core, groups): (GroupDiscoveryList, GroupDiscoveryList) = (core?, groups?);
        let aggregated = |list: &GroupDiscoveryList| list.kind == "APIGroupDiscoveryList";
        if !aggregated(&core) || !aggregated(&groups) {
            self.write(|known| known.piecemeal = true);
            return Ok(());
        }
        let now = Instant::now();
        let mut seen = BTreeMap::new();
        for group in core.items.into_iter().chain(groups.items) {
            for version in group.versions {
                let name = GroupVersion::gv(&group.metadata.name, &version.version);
                seen.insert(name.api_version(), version.read(name, now));
            }
        }
        self.learn(|known| {
            for (name, versions) in &mut seen {
                if versions.unavailable
                    && let Some(before) = known.groups.remove(name)
                {
                    versions.kinds = before.kinds;
                    versions.names = before.names;
                }
            }
            known.groups = seen;
            known.complete = Some(now);
            known.piecemeal = false;
        });
        Ok(())
    }

    /// Fetches every group version by itself.
    async fn ask_all_groups(&self) -> Result<(), DiscoveryError> {
        let core: CoreVersions = self.get("/api", request::JSON).await?;
        let list: GroupList = self.get("/apis", request::JSON).await?;
        let mut versions: Vec<GroupVersion> = core
            .versions
            .iter()
            .map(|version| GroupVersion::gv("", version))
            .collect();
        for group in &list.groups {
            let named = group.versions.iter();
            versions.extend(named.map(|version| GroupVersion::gv(&group.name, &version.version)));
        }
        for version in &versions {
            match self.ask_group(version).await {
                Ok(()) | Err(DiscoveryError::GroupUnavailable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.learn(|known| {
            known
                .groups
                .retain(|_, known| versions.contains(&known.version));
            known.complete = Some(Instant::now());
        });
        Ok(())
    }

    /// Fetches one group version. One that is not served is remembered as empty.
    async fn ask_group(&self, version: &GroupVersion) -> Result<(), DiscoveryError> {
        let path = if version.group.is_empty() {
            format!("/api/{}", version.version)
        } else {
            format!("/apis/{}/{}", version.group, version.version)
        };
        let resources: ResourceList = match self.get(&path, request::JSON).await {
            Ok(resources) => resources,
            Err(DiscoveryError::Api(error)) if error.is_not_found() => ResourceList::default(),
            Err(DiscoveryError::Api(ApiError::Unavailable { status, .. }))
                if status.code == 503 && !version.group.is_empty() =>
            {
                let api_version = version.api_version();
                return Err(DiscoveryError::GroupUnavailable { api_version });
            }
            Err(error) => return Err(error),
        };
        let versions = resources.read(version.clone(), Instant::now());
        self.learn(|known| {
            known.groups.insert(version.api_version(), versions);
        });
        Ok(())
    }

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        accept: &'static str,
    ) -> Result<T, DiscoveryError> {
        let target = Target {
            verb: "get",
            resource: path.to_owned(),
            namespace: None,
            name: None,
        };
        let call = Call::get(path.to_owned(), accept);
        Ok(request::call(&self.client, target, call).await?.decode()?)
    }

    fn read<T>(&self, f: impl FnOnce(&Known) -> T) -> T {
        f(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in what the server has answered, and tells of it if it is news.
    fn learn(&self, f: impl FnOnce(&mut Known)) {
        let changed = self.write(|known| {
            let before = served_of(&known.groups);
            f(known);
            !before.is_empty() && before != served_of(&known.groups)
        });
        if changed {
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    fn write<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is served, without when that was asked: by group version, its kinds and their names.
fn served_of(
    groups: &BTreeMap<String, Versions>,
) -> BTreeMap<String, (Vec<Arc<ApiKind>>, BTreeSet<String>)> {
    groups
        .iter()
        // A group version that is remembered as not served has no names.
        .filter(|(_, versions)| !versions.names.is_empty() || versions.unavailable)
        .map(|(name, versions)| {
            let mut kinds = versions.kinds.clone();
            kinds.sort_by(|a, b| a.resource.plural.cmp(&b.resource.plural));
            (name.clone(), (kinds, versions.names.clone()))
        })
        .collect()
}

fn group_version(gvk: &GroupVersionKind) -> GroupVersion {
    GroupVersion::gv(&gvk.group, &gvk.version)
}

/// The texts of Helm's version set: `apps/v1`, and `apps/v1/Deployment`, sorted.
fn api_versions(groups: &BTreeMap<String, Versions>) -> ApiVersions {
    let mut texts = BTreeSet::new();
    for (version, versions) in groups {
        if versions.names.is_empty() && !versions.unavailable {
            continue;
        }
        texts.extend(
            versions
                .names
                .iter()
                .map(|name| format!("{version}/{name}")),
        );
        texts.insert(version.clone());
    }
    texts.into_iter().collect()
}

// === What the server answers ===

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionInfo {
    git_version: String,
    #[serde(default)]
    major: String,
    #[serde(default)]
    minor: String,
}

#[derive(Deserialize)]
struct GroupDiscoveryList {
    kind: String,
    #[serde(default, deserialize_with = "request::nullable")]
    items: Vec<GroupDiscovery>,
}

#[derive(Deserialize)]
struct GroupDiscovery {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default, deserialize_with = "request::nullable")]
    versions: Vec<VersionDiscovery>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: String,
    #[serde(default, deserialize_with = "request::nullable")]
    resources: Vec<ResourceDiscovery>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    #[serde(default)]
    resource: String,
    response_kind: Option<KindName>,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "request::nullable")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "request::nullable")]
    subresources: Vec<SubresourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceDiscovery {
    #[serde(default)]
    subresource: String,
    response_kind: Option<KindName>,
}

#[derive(Deserialize)]
struct KindName {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct CoreVersions {
    #[serde(default, deserialize_with = "request::nullable")]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(default, deserialize_with = "request::nullable")]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    #[serde(default, deserialize_with = "request::nullable")]
    versions: Vec<GroupVersionName>,
}

#[derive(Deserialize)]
struct GroupVersionName {
    version: String,
}

#[derive(Default, Deserialize)]
struct ResourceList {
    #[serde(default, deserialize_with = "request::nullable")]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default, deserialize_with = "request::nullable")]
    verbs: Vec<String>,
}

impl VersionDiscovery {
    fn read(self, version: GroupVersion, asked: Instant) -> Versions {
        let mut kinds = Vec::with_capacity(self.resources.len());
        let mut names = BTreeSet::new();
        for resource in self.resources {
            let has = |name: &str| {
                resource
                    .subresources
                    .iter()
                    .any(|sub| sub.subresource == name)
            };
            let of_subresources = resource.subresources.iter();
            names.extend(
                of_subresources
                    .filter_map(|sub| sub.response_kind.as_ref())
                    .map(|kind| kind.kind.clone()),
            );
            let Some(KindName { kind }) = &resource.response_kind else {
                continue;
            };
            names.insert(kind.clone());
            let scope = if resource.scope == "Cluster" {
                Scope::Cluster
            } else {
                Scope::Namespaced
            };
            kinds.push(Arc::new(ApiKind {
                resource: api_resource(&version, kind, &resource.resource),
                scope,
                verbs: Verbs::read(&resource.verbs),
                scalable: has("scale"),
                has_status: has("status"),
            }));
        }
        names.remove("");
        let unavailable = self.freshness == "Stale";
        Versions {
            version,
            kinds,
            names,
            asked,
            unavailable,
            changed: false,
        }
    }
}

impl ResourceList {
    fn read(self, version: GroupVersion, asked: Instant) -> Versions {
        let mut names: BTreeSet<String> = self
            .resources
            .iter()
            .map(|resource| resource.kind.clone())
            .collect();
        names.remove("");
        let has = |name: &str, sub: &str| {
            let full = format!("{name}/{sub}");
            self.resources.iter().any(|resource| resource.name == full)
        };
        let kinds = self
            .resources
            .iter()
            .filter(|resource| !resource.name.contains('/'))
            .map(|resource| {
                Arc::new(ApiKind {
                    resource: api_resource(&version, &resource.kind, &resource.name),
                    scope: if resource.namespaced {
                        Scope::Namespaced
                    } else {
                        Scope::Cluster
                    },
                    verbs: Verbs::read(&resource.verbs),
                    scalable: has(&resource.name, "scale"),
                    has_status: has(&resource.name, "status"),
                })
            })
            .collect();
        Versions {
            version,
            kinds,
            names,
            asked,
            unavailable: false,
            changed: false,
        }
    }
}

impl Verbs {
    fn read(verbs: &[String]) -> Self {
        let has = |verb: &str| verbs.iter().any(|known| known == verb);
        Self {
            list: has("list"),
            watch: has("watch"),
            patch: has("patch"),
            delete: has("delete"),
        }
    }
}

fn api_resource(version: &GroupVersion, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&version.clone().with_kind(kind), plural)
}

#[cfg(test)]
mod tests;
