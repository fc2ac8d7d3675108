//! Discovery documents, in the aggregated form and in the old one.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::kinds::{Kind, Version, built_in_groups};
use super::object::{items, set, text, text_at};
use super::request::Call;
use super::server::{Server, unserved};
use super::status::Failure;

/// Returns the document at a path; `None` if it is none of discovery.
pub(super) fn document(server: &Server, call: &Call) -> Option<Result<Value, Failure>> {
    debug_assert_eq!(call.method, Method::GET);
    let aggregated =
        call.accept.split(',').next().is_some_and(|first| {
            first.contains("as=APIGroupDiscoveryList") && first.contains("v=v2")
        });
    let parts = call.path.split('/').filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    let found = match parts.as_slice() {
        ["version"] => Ok(version()),
        ["api"] if aggregated => Ok(list(&built_in_groups(true))),
        ["apis"] if aggregated => Ok(list(&groups(server))),
        ["api"] => Ok(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
        })),
        ["apis"] => {
            let groups = groups(server);
            let groups: Vec<Value> = groups.iter().map(old_group).collect();
            Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", version] => resources(&built_in_groups(true), "", version),
        ["apis", group] => {
            let groups = groups(server);
            let found = groups.iter().find(|known| name_of(known) == *group);
            let found = found.ok_or_else(Failure::no_page);
            found.map(|found| {
                let mut page = old_group(found);
                set(&mut page, "kind", "APIGroup");
                set(&mut page, "apiVersion", "v1");
                page
            })
        }
        ["apis", group, version] => resources(&groups(server), group, version),
        _ => return None,
    };
    Some(found)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.3",
        "gitCommit": "$Format:%H$", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.8", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn list(groups: &[Value]) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": groups,
    })
}

/// Returns the documents of all groups but the core group.
fn groups(server: &Server) -> Vec<Value> {
    let mut groups = built_in_groups(false);
    let mut names: Vec<&str> = Vec::new();
    for kind in server.kinds.custom() {
        if !names.contains(&kind.resource.group.as_str()) {
            names.push(&kind.resource.group);
        }
    }
    for name in names {
        let mut kinds: Vec<_> = server.kinds.custom().collect();
        kinds.retain(|kind| kind.resource.group == name);
        let versions = kinds.iter().flat_map(|kind| &kind.versions);
        let mut versions: Vec<&str> = versions.map(|version| &*version.name).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(super::definitions::priority(version)));
        versions.dedup();
        let versions = versions.iter().map(|version| {
            let resource = |kind: &&Arc<Kind>| Some(resource(kind, kind.version(version)?));
            let resources: Vec<Value> = kinds.iter().filter_map(resource).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        });
        let versions: Vec<Value> = versions.collect();
        groups.push(json!({"metadata": {"name": name}, "versions": versions}));
    }
    groups
}

fn resource(kind: &Kind, version: &Version) -> Value {
    let own = json!({
        "group": kind.resource.group, "version": version.name, "kind": kind.kind,
    });
    let namespaced = kind.namespaced;
    let scope = if namespaced { "Namespaced" } else { "Cluster" };
    let mut document = json!({
        "resource": kind.resource.plural, "responseKind": own, "scope": scope,
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        set(&mut document, "shortNames", kind.short_names.clone());
    }
    if !kind.categories.is_empty() {
        set(&mut document, "categories", kind.categories.clone());
    }
    let subresources = version.subresources.iter().map(|name| {
        let response = if name == "scale" {
            json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
        } else {
            own.clone()
        };
        json!({"subresource": name, "responseKind": response, "verbs": ["get", "patch", "update"]})
    });
    let subresources: Vec<Value> = subresources.collect();
    if !subresources.is_empty() {
        set(&mut document, "subresources", subresources);
    }
    document
}

fn name_of(group: &Value) -> &str {
    text_at(group, "/metadata/name")
}

fn old_group(group: &Value) -> Value {
    let name = name_of(group);
    let versions = items(group.get("versions")).iter().map(|version| {
        let version = text(version, "version");
        json!({"groupVersion": super::kinds::api_version(name, version), "version": version})
    });
    let versions: Vec<Value> = versions.collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// Returns the old document of a version of a group.
fn resources(groups: &[Value], group: &str, version: &str) -> Result<Value, Failure> {
    let missing = || unserved(group);
    let found = groups.iter().find(|known| name_of(known) == group);
    let found = found.ok_or_else(missing)?;
    let mut versions = items(found.get("versions")).iter();
    let served = versions.find(|known| text(known, "version") == version);
    let served = served.ok_or_else(missing)?;
    let mut list = Vec::new();
    for resource in items(served.get("resources")) {
        let namespaced = resource.get("scope") == Some(&json!("Namespaced"));
        let mut entry = json!({
            "name": resource.get("resource"), "singularName": resource.get("singularResource"),
            "namespaced": namespaced, "kind": resource.pointer("/responseKind/kind"),
            "verbs": resource.get("verbs"),
        });
        for field in ["shortNames", "categories"] {
            if let Some(value) = resource.get(field) {
                set(&mut entry, field, value.clone());
            }
        }
        list.push(entry);
        for subresource in items(resource.get("subresources")) {
            let (plural, name) = (text(resource, "resource"), text(subresource, "subresource"));
            let name = format!("{plural}/{name}");
            let response = subresource.get("responseKind").cloned().unwrap_or_default();
            let mut child = json!({
                "name": name, "singularName": "", "namespaced": namespaced,
                "kind": response.get("kind"), "verbs": subresource.get("verbs"),
            });
            let other = (text(&response, "group"), text(&response, "version"));
            if !other.1.is_empty() && other != (group, version) {
                set(&mut child, "group", other.0);
                set(&mut child, "version", other.1);
            }
            list.push(child);
        }
    }
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": super::kinds::api_version(group, version), "resources": list,
    }))
}
