//! Discovery of the kinds that the API server serves, cached for the whole process.
//!
//! The first lookup fetches everything in two requests (aggregated discovery, Kubernetes 1.26 and
//! later) or, from older servers, only the group version in question. Later requests are sent only
//! for unknown kinds and for groups that are marked as changed, at most once every few seconds per
//! group version. A reconcile of known kinds sends no requests.

mod responses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use host::watch;
use kube::Client;
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use object_key::api_versions::groups_of;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::request::{self, Call};
use super::{ApiError, Target};
pub use responses::VersionInfo;
use responses::{CoreVersions, GroupDiscoveryList, GroupList, ListForm, ResourceList};

/// Minimum time between two requests for the same group version.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// Media types of aggregated discovery, and of the response of older servers.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Objects without a namespace.
    Cluster,
    /// Objects in namespaces.
    Namespaced,
}

/// A kind that the API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Scope of the kind.
    pub scope: Scope,
    /// The verbs that it supports.
    pub verbs: Verbs,
    /// Whether it has the subresource `scale`.
    pub scalable: bool,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
}

impl ApiKind {
    /// Describes the kind of a type that is known when the operator is compiled, without asking the
    /// API server. It is assumed to support everything.
    pub fn of_type(resource: ApiResource, scope: Scope) -> Self {
        Self {
            resource,
            scope,
            verbs: Verbs {
                list: true,
                watch: true,
                patch: true,
                delete: true,
            },
            scalable: true,
            has_status: true,
        }
    }
}

/// The verbs of a kind that the operator uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "one per verb")]
pub struct Verbs {
    /// Whether objects can be listed.
    pub list: bool,
    /// Whether objects can be watched.
    pub watch: bool,
    /// Whether objects can be patched, and so applied.
    pub patch: bool,
    /// Whether objects can be deleted.
    pub delete: bool,
}

impl ApiKind {
    #[cfg(test)]
    pub(super) fn fixture(
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

/// Error of resolving a kind.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DiscoveryError {
    /// The server does not serve it: a custom resource definition may be missing.
    #[error("the cluster does not serve {kind} in {api_version}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        kind: String,
    },
    /// The server that extends the API with a group does not answer.
    #[error("the API {api_version} is registered, but its server is not available")]
    GroupUnavailable {
        /// Group and version.
        api_version: String,
    },
    /// The answer has no version.
    #[error("the API server does not report its version")]
    NoVersion,
    /// The answer is not a discovery document.
    #[error("the API server's response to {path} does not list what it serves")]
    Unreadable {
        /// Path of the request.
        path: &'static str,
    },
    /// The API server lists a kind but does not know its path: it has just been added or removed.
    #[error("the API server lists {kind} in {api_version}, but does not serve it")]
    Unsettled {
        /// Group and version.
        api_version: String,
        kind: String,
    },
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl DiscoveryError {
    /// Returns the kind of the error, for metrics and traces.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "UnknownKind",
            Self::GroupUnavailable { .. } => "GroupUnavailable",
            Self::NoVersion => "NoVersion",
            Self::Unreadable { .. } => "UnreadableAnswer",
            Self::Unsettled { .. } => "Unsettled",
            Self::Api(error) => error.reason(),
        }
    }

    /// Returns whether the same lookup may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::UnknownKind { .. } | Self::NoVersion => false,
            Self::GroupUnavailable { .. } | Self::Unreadable { .. } | Self::Unsettled { .. } => {
                true
            }
            Self::Api(error) => error.is_transient(),
        }
    }
}

/// Version and kinds of an API server.
#[derive(Clone, Debug)]
pub struct Served {
    /// Version of the API server.
    pub version: VersionInfo,
    /// Every group version and kind, also of subresources, such as `apps/v1` and `apps/v1/Deployment`.
    pub api_versions: BTreeSet<String>,
}

/// The kinds that the API server serves, and its version, cached.
pub struct Discovery {
    client: Client,
    known: RwLock<DiscoveryCache>,
    /// Held during requests, so that concurrent lookups share one request.
    fetching: tokio::sync::Mutex<()>,
    /// Number of changes of the served kinds so far.
    epoch: watch::Sender<u64>,
    /// Notified when somebody subscribes to changes.
    subscribed: Notify,
}

#[derive(Default)]
struct DiscoveryCache {
    /// By `group/version`.
    groups: BTreeMap<String, Versions>,
    /// Time at which everything was last fetched.
    complete: Option<Instant>,
    /// Whether the server lacks aggregated discovery.
    piecemeal: bool,
    version: Option<(VersionInfo, Instant)>,
}

/// The cached kinds of a group version.
struct Versions {
    version: GroupVersion,
    kinds: Vec<Arc<ApiKind>>,
    /// Names of the kinds for capabilities, including those of subresources.
    names: BTreeSet<String>,
    asked: Instant,
    unavailable: bool,
    changed: bool,
}

impl Versions {
    /// Returns a group version of which no kinds are known.
    fn empty(version: GroupVersion, asked: Instant) -> Self {
        Self {
            version,
            kinds: Vec::new(),
            names: BTreeSet::new(),
            asked,
            unavailable: false,
            changed: false,
        }
    }

    fn kind(&self, kind: &str) -> Option<Arc<ApiKind>> {
        let mut kinds = self.kinds.iter();
        kinds.find(|known| known.resource.kind == kind).cloned()
    }
}

impl DiscoveryCache {
    fn kind(&self, gvk: &GroupVersionKind) -> Option<Arc<ApiKind>> {
        let versions = self.groups.get(&gvk.api_version())?;
        versions.kind(&gvk.kind).filter(|_| !versions.changed)
    }

    /// Returns a kind in any version of its group.
    fn kind_in_group(&self, group: &str, kind: &str) -> Option<Arc<ApiKind>> {
        let in_group = |versions: &&Versions| versions.version.group == group && !versions.changed;
        let mut versions = self.groups.values().filter(in_group);
        versions.find_map(|versions| versions.kind(kind))
    }

    /// Returns the first version of a group whose server is not available.
    fn unavailable(&self, group: &str) -> Option<String> {
        let mut versions = self.groups.values();
        let down = versions.find(|known| known.unavailable && known.version.group == group)?;
        Some(down.version.api_version())
    }
}

impl Discovery {
    /// Creates an empty cache. Sends no requests.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
            epoch: watch::Sender::new(0),
            subscribed: Notify::new(),
        }
    }

    /// Subscribes to changes of the served kinds: the number grows with each change. The first
    /// discovery is not a change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.subscribed.notify_one();
        self.epoch.subscribe()
    }

    /// Returns how often the served kinds have changed.
    pub fn epoch(&self) -> u64 {
        *self.epoch.borrow()
    }

    /// Waits until somebody subscribes to changes.
    pub(crate) async fn subscribed(&self) {
        if self.epoch.receiver_count() == 0 {
            self.subscribed.notified().await;
        }
    }

    /// Returns a kind from the cache without sending a request.
    pub fn cached(&self, gvk: &GroupVersionKind) -> Option<Arc<ApiKind>> {
        self.read(|known| known.groups.get(&gvk.api_version())?.kind(&gvk.kind))
    }

    /// Fetches everything again.
    ///
    /// # Errors
    /// When a request fails; the cache then keeps its content.
    pub async fn refresh(&self) -> Result<(), DiscoveryError> {
        let _fetching = self.fetching.lock().await;
        self.fetch_all().await?;
        if self.read(|known| known.piecemeal) {
            self.fetch_each_group().await?;
        }
        Ok(())
    }

    /// Resolves a kind, from the cache or with a request.
    ///
    /// # Errors
    /// [`DiscoveryError::UnknownKind`] only if the server was asked for the kind within the last
    /// seconds.
    pub async fn resolve(&self, gvk: &GroupVersionKind) -> Result<Arc<ApiKind>, DiscoveryError> {
        if let Some(kind) = self.read(|known| known.kind(gvk)) {
            return Ok(kind);
        }
        let _fetching = self.fetching.lock().await;
        if let Some(kind) = self.read(|known| known.kind(gvk)) {
            return Ok(kind);
        }
        if self.read(|known| known.complete.is_none() && !known.piecemeal) {
            self.fetch_all().await?;
        }
        let version = group_version(gvk);
        let fresh = self.read(|known| {
            known
                .groups
                .get(&gvk.api_version())
                .is_some_and(|versions| {
                    !versions.changed
                        && !versions.unavailable
                        && versions.asked.elapsed() < MIN_INTERVAL
                })
        });
        if !fresh && self.read(|known| known.kind(gvk)).is_none() {
            self.fetch_group(&version).await?;
        }
        self.read(|known| known.kind(gvk))
            .ok_or_else(|| DiscoveryError::UnknownKind {
                api_version: version.api_version(),
                kind: gvk.kind.clone(),
            })
    }

    /// Returns the version of the API server, every group version and every kind in it. Fetches them again when
    /// they are older than `max_age` or a group has changed; if that fails, returns the cached ones.
    ///
    /// A group whose server is not available keeps its last known kinds, so that an outage does not
    /// look like a removal.
    pub async fn served(&self, max_age: Duration) -> Result<Served, DiscoveryError> {
        let _fetching = self.fetching.lock().await;
        let fresh = |known: &DiscoveryCache| {
            known.complete.is_some_and(|at| at.elapsed() < max_age)
                && known
                    .version
                    .as_ref()
                    .is_some_and(|(_, at)| at.elapsed() < max_age)
                && !known.groups.values().any(|versions| versions.changed)
        };
        if !self.read(fresh)
            && let Err(error) = self.fetch_served(max_age).await
        {
            if !self.read(|known| known.complete.is_some() && known.version.is_some()) {
                return Err(error);
            }
            tracing::warn!(%error, "cannot refresh what the cluster serves");
        }
        self.read(|known| {
            let (version, _) = known.version.as_ref().ok_or(DiscoveryError::NoVersion)?;
            Ok(Served {
                version: version.clone(),
                api_versions: api_versions(&known.groups),
            })
        })
    }

    /// Marks the kinds of a group as possibly changed.
    pub fn group_changed(&self, group: &str) {
        self.write(|known| {
            for versions in known.groups.values_mut() {
                versions.changed |= versions.version.group == group;
            }
            // A new group has no entry to mark.
            known.complete = None;
        });
    }

    /// Returns the kind that serves the objects of a group and kind now: in this version, or else in
    /// another one. `None` is proof that there is no such object: the API server was asked for
    /// everything that it serves, and answered completely.
    ///
    /// # Errors
    /// When the answer is not complete: a request fails, or the server of the group is not available.
    pub async fn find(
        &self,
        gvk: &GroupVersionKind,
    ) -> Result<Option<Arc<ApiKind>>, DiscoveryError> {
        match self.resolve(gvk).await {
            Err(DiscoveryError::UnknownKind { .. }) => {}
            answer => return answer.map(Some),
        }
        self.refresh().await?;
        let groups = groups_of(&gvk.group, &gvk.kind);
        self.read(|known| {
            for group in &groups {
                let found = known
                    .kind(gvk)
                    .or_else(|| known.kind_in_group(group, &gvk.kind));
                if found.is_some() {
                    return Ok(found);
                }
            }
            match groups.iter().find_map(|group| known.unavailable(group)) {
                Some(api_version) => Err(DiscoveryError::GroupUnavailable { api_version }),
                None => Ok(None),
            }
        })
    }

    /// Returns the scope of a kind, in any version; `None` if the kind is not served.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn scope(&self, gvk: &GroupVersionKind) -> Result<Option<Scope>, DiscoveryError> {
        match self.resolve(gvk).await {
            Ok(kind) => Ok(Some(kind.scope)),
            Err(DiscoveryError::UnknownKind { .. }) => {
                let other = self.read(|known| known.kind_in_group(&gvk.group, &gvk.kind));
                Ok(other.map(|kind| kind.scope))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks the API server for everything that it serves, and returns the kinds that can be listed, each in
    /// one version. Kinds whose objects the cluster derives from others are left out.
    ///
    /// # Errors
    /// When the answer is not complete: a request fails, or the server of a group is not available.
    pub async fn listable(&self) -> Result<Vec<Arc<ApiKind>>, DiscoveryError> {
        self.refresh().await?;
        self.read(|known| {
            let mut chosen: BTreeMap<(String, String), Arc<ApiKind>> = BTreeMap::new();
            for (api_version, versions) in &known.groups {
                if is_derived_group(&versions.version.group) {
                    continue;
                }
                if versions.unavailable {
                    let api_version = api_version.clone();
                    return Err(DiscoveryError::GroupUnavailable { api_version });
                }
                for kind in &versions.kinds {
                    if kind.verbs.list && !is_derived(kind) {
                        let name = (versions.version.group.clone(), kind.resource.plural.clone());
                        chosen.entry(name).or_insert_with(|| Arc::clone(kind));
                    }
                }
            }
            Ok(chosen.into_values().collect())
        })
    }

    /// Fetches the parts that are older than `max_age`.
    async fn fetch_served(&self, max_age: Duration) -> Result<(), DiscoveryError> {
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
                self.fetch_version().await
            }
        };
        let groups = async {
            if groups {
                Ok(())
            } else {
                self.fetch_all().await
            }
        };
        let (version, groups) = futures::join!(version, groups);
        version?;
        groups?;
        if self.read(|known| known.piecemeal) {
            self.fetch_each_group().await?;
        }
        Ok(())
    }

    /// Requests the version of the API server.
    pub(crate) async fn fetch_version(&self) -> Result<(), DiscoveryError> {
        let info: VersionInfo = self.get("/version", request::JSON).await?;
        self.write(|known| known.version = Some((info, Instant::now())));
        Ok(())
    }

    /// Fetches all groups in two requests, if the server supports aggregated discovery.
    async fn fetch_all(&self) -> Result<(), DiscoveryError> {
        let (core, groups) =
            futures::join!(self.get("/api", AGGREGATED), self.get("/apis", AGGREGATED));
        let (core, groups): (GroupDiscoveryList, GroupDiscoveryList) = (core?, groups?);
        let forms = (core.form("/api")?, groups.form("/apis")?);
        if !matches!(forms, (ListForm::Aggregated, ListForm::Aggregated)) {
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
        self.update(|known| {
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

    /// Fetches every group version individually.
    async fn fetch_each_group(&self) -> Result<(), DiscoveryError> {
        let core: CoreVersions = self.get("/api", request::JSON).await?;
        let list: GroupList = self.get("/apis", request::JSON).await?;
        if core.kind != "APIVersions" || core.versions.is_empty() {
            return Err(DiscoveryError::Unreadable { path: "/api" });
        }
        if list.kind != "APIGroupList" || list.groups.is_empty() {
            return Err(DiscoveryError::Unreadable { path: "/apis" });
        }
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
            match self.fetch_group(version).await {
                Ok(()) => {}
                Err(DiscoveryError::GroupUnavailable { .. }) => self.update(|known| {
                    let group = known
                        .groups
                        .entry(version.api_version())
                        .or_insert_with(|| Versions::empty(version.clone(), Instant::now()));
                    group.unavailable = true;
                }),
                Err(error) => return Err(error),
            }
        }
        self.update(|known| {
            known
                .groups
                .retain(|_, known| versions.contains(&known.version));
            known.complete = Some(Instant::now());
        });
        Ok(())
    }

    /// Fetches one group version. One that is not served is cached as empty.
    async fn fetch_group(&self, version: &GroupVersion) -> Result<(), DiscoveryError> {
        let path = if version.group.is_empty() {
            format!("/api/{}", version.version)
        } else {
            format!("/apis/{}/{}", version.group, version.version)
        };
        let resources: ResourceList = match self.get(&path, request::JSON).await {
            Ok(resources) => ResourceList::checked(resources)?,
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
        self.update(|known| {
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

    fn read<T>(&self, f: impl FnOnce(&DiscoveryCache) -> T) -> T {
        f(&self.known.read())
    }

    /// Updates the cache, and notifies subscribers if the served kinds have changed.
    fn update(&self, f: impl FnOnce(&mut DiscoveryCache)) {
        let changed = self.write(|known| {
            let before = served_of(&known.groups);
            f(known);
            !before.is_empty() && before != served_of(&known.groups)
        });
        if changed {
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    fn write<T>(&self, f: impl FnOnce(&mut DiscoveryCache) -> T) -> T {
        f(&mut self.known.write())
    }
}

/// Returns the kinds and their names by group version, without timestamps.
fn served_of(
    groups: &BTreeMap<String, Versions>,
) -> BTreeMap<String, (Vec<Arc<ApiKind>>, BTreeSet<String>)> {
    groups
        .iter()
        // A group version that is cached as not served has no names.
        .filter(|(_, versions)| !versions.names.is_empty() || versions.unavailable)
        .map(|(name, versions)| {
            let mut kinds = versions.kinds.clone();
            kinds.sort_by(|a, b| a.resource.plural.cmp(&b.resource.plural));
            (name.clone(), (kinds, versions.names.clone()))
        })
        .collect()
}

/// Returns whether the cluster derives the objects of a group from others.
fn is_derived_group(group: &str) -> bool {
    group == "metrics.k8s.io" || group.ends_with(".metrics.k8s.io")
}

/// Returns whether the cluster derives the objects of this kind from others.
fn is_derived(kind: &ApiKind) -> bool {
    let resource = &kind.resource;
    matches!(
        (resource.group.as_str(), resource.kind.as_str()),
        ("", "Event" | "Endpoints") | ("events.k8s.io", "Event")
    )
}

fn group_version(gvk: &GroupVersionKind) -> GroupVersion {
    GroupVersion::gv(&gvk.group, &gvk.version)
}

/// Returns every group version and kind, such as `apps/v1` and `apps/v1/Deployment`.
fn api_versions(groups: &BTreeMap<String, Versions>) -> BTreeSet<String> {
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
    texts
}

#[cfg(test)]
mod tests;
