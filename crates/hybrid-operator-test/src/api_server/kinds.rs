//! The kinds that the server knows: built-in ones from a table, custom ones from their definitions.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::fields::scale::Replicas;
use super::fields::{TypeRef, Types};
use super::object::{items, text, text_at, texts};
use super::schema::Schema;
use super::status::Named;
use super::store::Resource;

/// Discovery documents of kube-apiserver 1.36.3 without custom resources.
const DISCOVERY: &str = include_str!("kinds.json");

/// Schemas of those built-in kinds of which the server drops unknown fields.
const SCHEMAS: &str = include_str!("schemas.json");

/// A kind, in all its versions.
#[derive(Debug)]
#[allow(
    clippy::struct_field_names,
    reason = "they are the names of Kubernetes"
)]
pub(super) struct Kind {
    pub(super) resource: Resource,
    pub(super) singular: String,
    pub(super) kind: String,
    pub(super) list_kind: String,
    pub(super) namespaced: bool,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) verbs: Vec<String>,
    /// The versions that are served, the preferred one first.
    pub(super) versions: Vec<Version>,
    /// The version in which objects are stored.
    pub(super) stored: Version,
    /// The schemas of all versions of a definition, by `apiVersion`.
    pub(super) schemas: BTreeMap<String, Arc<Schema>>,
    /// The version of the store from which on the kind is served as it is.
    pub(super) since: u64,
    /// Paths of the number of replicas in objects.
    pub(super) replicas: Replicas,
    pub(super) rules: Rules,
    /// The definition is being deleted, and nothing new is created.
    pub(super) terminating: bool,
}

/// A version of a kind that is served.
#[derive(Debug, Clone)]
#[allow(
    clippy::struct_field_names,
    reason = "they are the names of Kubernetes"
)]
pub(super) struct Version {
    pub(super) name: String,
    /// Group and version as objects name them.
    pub(super) api_version: String,
    pub(super) subresources: Vec<String>,
    pub(super) scale: Scale,
    pub(super) schema: Option<Arc<Schema>>,
    /// The type for merging; `None` if it is not known.
    pub(super) fields: Option<Arc<TypeRef>>,
}

/// Paths of the fields that the subresource `scale` shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Scale {
    pub(super) replicas: String,
    pub(super) status: String,
    pub(super) selector: Option<String>,
}

/// Rules of the server for objects of a kind.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub(super) struct Rules {
    /// The kind has a definition.
    pub(super) custom: bool,
    /// A change of the specification increases the generation.
    pub(super) generation: bool,
    /// An update needs a resource version.
    pub(super) conditional: bool,
    /// An update of a missing object creates it.
    pub(super) creates_on_update: bool,
    /// The answer to a deletion is the object.
    pub(super) returns_deleted: bool,
    pub(super) names: Names,
}

/// Rule for the names of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Names {
    /// RFC 1123 subdomain.
    #[default]
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// RFC 1035 label.
    ServiceLabel,
    /// A segment of a path.
    Segment,
}

impl Kind {
    /// Returns group and plural.
    pub(super) fn named(&self) -> Named<'_> {
        Named {
            group: &self.resource.group,
            name: &self.resource.plural,
        }
    }

    /// Returns group and kind.
    pub(super) fn named_kind(&self) -> Named<'_> {
        Named {
            group: &self.resource.group,
            name: &self.kind,
        }
    }

    /// Returns the `apiVersion` of a version.
    pub(super) fn api_version(&self, version: &str) -> String {
        api_version(&self.resource.group, version)
    }

    pub(super) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns the path of an object, or of all objects of a namespace, in the preferred version. Controllers
    /// of the server use it, also where another version has more fields, which they then drop.
    pub(super) fn path(&self, namespace: &str, name: &str) -> String {
        let preferred = self.versions.first();
        self.path_in(preferred.unwrap_or(&self.stored), namespace, name)
    }

    pub(super) fn path_in(&self, version: &Version, namespace: &str, name: &str) -> String {
        let version = &version.name;
        let mut path = if self.resource.group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{}/{version}", self.resource.group)
        };
        for part in [
            (!namespace.is_empty()).then(|| format!("namespaces/{namespace}")),
            Some(self.resource.plural.clone()),
            (!name.is_empty()).then(|| name.to_owned()),
        ]
        .into_iter()
        .flatten()
        {
            path.push('/');
            path.push_str(&part);
        }
        path
    }
}

impl Version {
    pub(super) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|known| known == subresource)
    }
}

/// Returns group and version as objects name them.
pub(super) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

#[derive(Debug)]
pub(super) struct Kinds {
    built_in: &'static [Arc<Kind>],
    custom: BTreeMap<Resource, Arc<Kind>>,
}

impl Kinds {
    pub(super) fn new() -> Self {
        Self {
            built_in: &BUILT_IN,
            custom: BTreeMap::new(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.built_in.iter().chain(self.custom.values())
    }

    pub(super) fn custom(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.custom.values()
    }

    /// Returns the kind that is served at a path.
    pub(super) fn served(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.all()
            .find(|kind| {
                kind.resource.group == group
                    && kind.resource.plural == plural
                    && kind.version(version).is_some()
            })
            .cloned()
    }

    pub(super) fn of(&self, resource: &Resource) -> Option<&Arc<Kind>> {
        self.all().find(|kind| kind.resource == *resource)
    }

    /// Returns the kind that an owner reference names.
    pub(super) fn named(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.all()
            .find(|known| known.resource.group == group && known.kind == kind)
    }

    pub(super) fn add(&mut self, kind: Kind) {
        self.custom.insert(kind.resource.clone(), Arc::new(kind));
    }

    pub(super) fn remove(&mut self, resource: &Resource) -> bool {
        self.custom.remove(resource).is_some()
    }
}

/// Returns whether the group is a built-in one.
pub(super) fn is_built_in_group(group: &str) -> bool {
    BUILT_IN.iter().any(|kind| kind.resource.group == group)
}

/// The discovery document of the built-in groups: that of `/api`, or that of `/apis`.
pub(super) fn built_in_groups(core: bool) -> Vec<Value> {
    items(DOCUMENT.get(if core { "api" } else { "apis" })).to_vec()
}

/// Returns the kind of the objects that the subresource `scale` shows.
pub(super) fn scale() -> Arc<Kind> {
    Arc::clone(&SCALE)
}

static SCALE: LazyLock<Arc<Kind>> = LazyLock::new(|| {
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    let document = json!({"responseKind": {"kind": "Scale"}, "scope": "Namespaced"});
    let resource = Resource::new("autoscaling", "scales");
    let version = served(&resource.group, "v1", &document, &schemas);
    Arc::new(built_in(resource, &document, version))
});

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(DISCOVERY).unwrap_or_default());

static BUILT_IN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| {
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    let mut kinds: Vec<Kind> = Vec::new();
    let groups = built_in_groups(true);
    for group in groups.into_iter().chain(built_in_groups(false)) {
        let name = text_at(&group, "/metadata/name");
        for listed in items(group.get("versions")) {
            let version_name = text(listed, "version");
            for resource in items(listed.get("resources")) {
                let resource_name = Resource::new(name, text(resource, "resource"));
                let version = served(name, version_name, resource, &schemas);
                let known = kinds.iter_mut().find(|kind| kind.resource == resource_name);
                match known {
                    Some(kind) => kind.versions.push(version),
                    None => kinds.push(built_in(resource_name, resource, version)),
                }
            }
        }
    }
    kinds.into_iter().map(Arc::new).collect()
});

fn served(group: &str, name: &str, resource: &Value, schemas: &Value) -> Version {
    let subresources = items(resource.get("subresources")).iter();
    let subresources = subresources.map(|known| text(known, "subresource").to_owned());
    let kind = text_at(resource, "/responseKind/kind");
    let schema = schemas.get(kind);
    let api_version = api_version(group, name);
    let selector = (text(resource, "resource") != "replicationcontrollers")
        .then(|| ".status.selector".to_owned());
    Version {
        name: name.to_owned(),
        subresources: subresources.collect(),
        scale: Scale {
            replicas: ".spec.replicas".to_owned(),
            status: ".status.replicas".to_owned(),
            selector,
        },
        schema: schema.and_then(|schema| Schema::parse(schema).ok().map(Arc::new)),
        fields: Types::builtin(&api_version, kind).ok().map(Arc::new),
        api_version,
    }
}

fn built_in(resource: Resource, document: &Value, version: Version) -> Kind {
    let kind = text_at(document, "/responseKind/kind");
    let rules = rules(&resource.plural);
    let path = || ["spec", "replicas"].map(str::to_owned).to_vec();
    let replicas = version.has("scale").then(path);
    Kind {
        singular: text(document, "singularResource").to_owned(),
        list_kind: format!("{kind}List"),
        kind: kind.to_owned(),
        namespaced: document.get("scope") == Some(&json!("Namespaced")),
        short_names: texts(document.get("shortNames")),
        categories: texts(document.get("categories")),
        verbs: texts(document.get("verbs")),
        stored: version.clone(),
        schemas: BTreeMap::new(),
        since: 0,
        replicas: Replicas::from([(version.api_version.clone(), replicas)]),
        versions: vec![version],
        resource,
        rules,
        terminating: false,
    }
}

/// Returns how objects of a built-in kind are treated, as the `strategy.go` of each kind says.
fn rules(plural: &str) -> Rules {
    let is_one_of = |plurals: &str| plurals.split(' ').any(|known| known == plural);
    Rules {
        custom: false,
        generation: is_one_of(
            "cronjobs customresourcedefinitions daemonsets deployments endpointslices \
             ingressclasses ingresses jobs mutatingwebhookconfigurations networkpolicies \
             poddisruptionbudgets pods podtemplates priorityclasses replicasets \
             replicationcontrollers statefulsets validatingwebhookconfigurations",
        ),
        conditional: is_one_of(
            "csidrivers csinodes customresourcedefinitions leases mutatingwebhookconfigurations \
             poddisruptionbudgets runtimeclasses validatingwebhookconfigurations apiservices",
        ),
        creates_on_update: is_one_of(
            "clusterrolebindings clusterroles endpoints events leases limitranges rolebindings \
             roles runtimeclasses services",
        ),
        returns_deleted: is_one_of(
            "csidrivers csinodes namespaces persistentvolumeclaims persistentvolumes pods \
             podtemplates resourcequotas serviceaccounts services storageclasses \
             volumeattachments",
        ),
        names: match plural {
            "clusterrolebindings" | "clusterroles" | "rolebindings" | "roles" => Names::Segment,
            "namespaces" => Names::Label,
            "services" => Names::ServiceLabel,
            _ => Names::Subdomain,
        },
    }
}
