//! The objects of a bundle, and how they fit the `ClusterServiceVersion`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::names::{is_image, is_label, is_subdomain};
use super::{Bundle, Finding, is_supported};
use crate::olm::{CRD, CSV, group_version, items, kind, name, text};

/// Capacity of the `ConfigMap` that OLM keeps a bundle in, in bytes.
const LIMIT: usize = 1 << 20;

/// A version of a kind.
type Gvk = (String, String, String);

pub(super) fn check(bundle: &Bundle, findings: &mut Vec<Finding>) {
    for (file, object) in &bundle.objects {
        check_object(file, object, findings);
    }
    check_definitions(bundle, findings);
    check_accounts(bundle, findings);
    for (index, image) in items(&bundle.csv, "/spec/relatedImages").enumerate() {
        let image = text(image, "/image");
        if !is_image(image) {
            let message =
                format!("spec.relatedImages[{index}].image {image:?} does not name an image");
            findings.push(Finding::error("related-image", message));
        }
    }
    let too_big = format!(
        "the bundle has {} bytes as OLM keeps it, and OLM takes {LIMIT}; shorten descriptions of its definitions",
        bundle.size
    );
    if bundle.size > LIMIT {
        findings.push(Finding::error("size", too_big));
    } else if bundle.size > LIMIT / 100 * 85 {
        findings.push(Finding::warning("size", too_big));
    }
}

fn check_object(file: &str, object: &Value, findings: &mut Vec<Finding>) {
    let shown = format!("the {} {} in manifests/{file}", kind(object), name(object));
    if !is_supported(kind(object)) {
        let message = format!("{shown} is of a kind that OLM does not create; remove it");
        findings.push(Finding::error("unsupported-kind", message));
        return;
    }
    match kind(object) {
        CSV => {}
        CRD => check_definition(&shown, object, findings),
        _ => {
            let namespace = text(object, "/metadata/namespace");
            let wrong = if name(object).is_empty() {
                "has no name".to_owned()
            } else if !namespace.is_empty() {
                format!(
                    "has the namespace {namespace}; leave it out, because OLM creates it in that of the operator"
                )
            } else {
                return;
            };
            let message = format!("{shown} {wrong}");
            findings.push(Finding::error("object-metadata", message));
        }
    }
}

/// Checks what the API server checks of a definition outside of its schemas.
fn check_definition(shown: &str, crd: &Value, findings: &mut Vec<Finding>) {
    let mut add =
        |message: String| findings.push(Finding::error("definition", format!("{shown} {message}")));
    match group_version(crd) {
        ("apiextensions.k8s.io", "v1") => {}
        (group, version) => {
            let message =
                format!("has the API version {group}/{version}; use apiextensions.k8s.io/v1");
            return add(message);
        }
    }
    let field = |pointer: &str| text(crd, pointer);
    let (group, plural) = (field("/spec/group"), field("/spec/names/plural"));
    if name(crd) != format!("{plural}.{group}") {
        add(format!("must have the name {plural}.{group}"));
    }
    if !is_subdomain(group) || !group.contains('.') {
        let message = format!("has the group {group:?}, which is not a domain such as example.com");
        add(message);
    }
    if !is_label(plural) {
        let message = format!("has the plural name {plural:?}, which is not a lower case label");
        add(message);
    }
    let (kind, scope) = (field("/spec/names/kind"), field("/spec/scope"));
    if !is_label(&kind.to_ascii_lowercase()) {
        add(format!("has the kind {kind:?}, which is not valid"));
    }
    if field("/spec/names/listKind") == kind {
        add("has the same kind and listKind".to_owned());
    }
    if !matches!(scope, "Namespaced" | "Cluster") {
        let message = format!("has the scope {scope:?}; it must be Namespaced or Cluster");
        add(message);
    }
    let versions: Vec<&Value> = items(crd, "/spec/versions").collect();
    let stored = versions
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .count();
    if stored != 1 {
        let message = format!("has {stored} versions with 'storage: true'; it needs exactly one");
        add(message);
    }
    let mut seen = BTreeSet::new();
    for version in versions {
        let name = text(version, "/name");
        if !is_label(name) {
            let message = format!("has a version {name:?}, which is not a lower case label");
            add(message);
        }
        if !seen.insert(name) {
            add(format!("has the version {name} twice"));
        }
    }
}

/// Compares the definitions with those that the operator says it owns.
fn check_definitions(bundle: &Bundle, findings: &mut Vec<Finding>) {
    let mut present: BTreeMap<Gvk, &str> = BTreeMap::new();
    for crd in bundle.crds() {
        let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
        for version in items(crd, "/spec/versions") {
            let key = [group, text(version, "/name"), kind].map(str::to_owned);
            if present.insert(key.into(), name(crd)).is_some() {
                let message = format!("manifests has the definition {} twice", name(crd));
                findings.push(Finding::error("definition-twice", message));
            }
        }
    }
    let mut owned_kinds = BTreeSet::new();
    for owned in items(&bundle.csv, "/spec/customresourcedefinitions/owned") {
        let full = text(owned, "/name");
        let group = full.split_once('.').map_or(full, |(_, group)| group);
        let (version, kind) = (text(owned, "/version"), text(owned, "/kind"));
        if present.contains_key(&(group.to_owned(), version.to_owned(), kind.to_owned())) {
            owned_kinds.insert((group, kind));
        } else {
            let message = format!(
                "the operator owns {full} with the version {version} and the kind {kind}, but manifests has no such definition"
            );
            findings.push(Finding::error("owned-missing", message));
        }
    }
    for ((group, version, kind), crd) in &present {
        if !owned_kinds.contains(&(group.as_str(), kind.as_str())) {
            let message = format!(
                "manifests has the definition {crd} with the version {version}, which spec.customresourcedefinitions.owned does not list"
            );
            findings.push(Finding::error("definition-not-owned", message));
        }
    }
}

/// OLM creates the accounts of the Deployments itself.
fn check_accounts(bundle: &Bundle, findings: &mut Vec<Finding>) {
    let deployments = items(&bundle.csv, "/spec/install/spec/deployments");
    let own: BTreeSet<&str> = deployments
        .map(|entry| text(entry, "/spec/template/spec/serviceAccountName"))
        .collect();
    for (_, object) in &bundle.objects {
        if kind(object) == "ServiceAccount" && own.contains(name(object)) {
            let message = format!(
                "manifests has the ServiceAccount {}, which OLM creates for the Deployment; remove it",
                name(object)
            );
            findings.push(Finding::error("account", message));
        }
    }
}
