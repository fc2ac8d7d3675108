//! Answers of the server to discovery: aggregated since Kubernetes 1.26, and by group version before.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::{ApiResource, GroupVersion};
use serde::Deserialize;
use tokio::time::Instant;

use super::{ApiKind, DiscoveryError, Scope, Verbs, Versions};
use crate::request;

/// Version of an API server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    /// The version, such as `v1.36.3`.
    pub git_version: String,
    /// Major version, such as `1`.
    #[serde(default)]
    pub major: String,
    /// Minor version, such as `36`; some servers add a suffix.
    #[serde(default)]
    pub minor: String,
}

#[derive(Deserialize)]
pub(super) struct GroupDiscoveryList {
    pub(super) kind: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) items: Vec<GroupDiscovery>,
}

#[derive(Deserialize)]
pub(super) struct GroupDiscovery {
    #[serde(default)]
    pub(super) metadata: GroupName,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) versions: Vec<VersionDiscovery>,
}

#[derive(Default, Deserialize)]
pub(super) struct GroupName {
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct VersionDiscovery {
    pub(super) version: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) resources: Vec<ResourceDiscovery>,
    #[serde(default)]
    pub(super) freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceDiscovery {
    #[serde(default)]
    pub(super) resource: String,
    pub(super) response_kind: Option<KindName>,
    #[serde(default)]
    pub(super) scope: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) verbs: Vec<String>,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) subresources: Vec<SubresourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubresourceDiscovery {
    #[serde(default)]
    pub(super) subresource: String,
    pub(super) response_kind: Option<KindName>,
}

#[derive(Deserialize)]
pub(super) struct KindName {
    #[serde(default)]
    pub(super) kind: String,
}

#[derive(Deserialize)]
pub(super) struct CoreVersions {
    pub(super) kind: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) versions: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct GroupList {
    pub(super) kind: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) groups: Vec<Group>,
}

#[derive(Deserialize)]
pub(super) struct Group {
    pub(super) name: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) versions: Vec<GroupVersionName>,
}

#[derive(Deserialize)]
pub(super) struct GroupVersionName {
    pub(super) version: String,
}

#[derive(Default, Deserialize)]
pub(super) struct ResourceList {
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) resources: Vec<Resource>,
}

#[derive(Deserialize)]
pub(super) struct Resource {
    pub(super) name: String,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespaced: bool,
    #[serde(default, deserialize_with = "request::nullable")]
    pub(super) verbs: Vec<String>,
}

/// The form in which a server lists what it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListForm {
    /// All groups with their kinds.
    Aggregated,
    /// The names of the groups; the server is older than Kubernetes 1.26.
    Names,
}

impl GroupDiscoveryList {
    /// Returns the form of a list. Every API server has groups, and what lists none is no answer: an
    /// empty list would mean that no object of any kind exists.
    pub(super) fn form(&self, path: &'static str) -> Result<ListForm, DiscoveryError> {
        let has_versions = self.items.iter().any(|group| !group.versions.is_empty());
        match self.kind.as_str() {
            "APIGroupDiscoveryList" if has_versions => Ok(ListForm::Aggregated),
            "APIVersions" | "APIGroupList" => Ok(ListForm::Names),
            _ => Err(DiscoveryError::Unreadable { path }),
        }
    }
}

impl VersionDiscovery {
    pub(super) fn read(self, version: GroupVersion, asked: Instant) -> Versions {
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
    /// Rejects an answer that is no list of resources.
    pub(super) fn checked(self) -> Result<Self, DiscoveryError> {
        if self.kind == "APIResourceList" {
            Ok(self)
        } else {
            Err(DiscoveryError::Unreadable {
                path: "/apis/GROUP/VERSION",
            })
        }
    }

    pub(super) fn read(self, version: GroupVersion, asked: Instant) -> Versions {
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
