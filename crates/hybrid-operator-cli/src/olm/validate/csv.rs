//! The fields of a `ClusterServiceVersion`. Pure.

use std::collections::BTreeSet;

use semver::Version;
use serde_json::Value;

use super::Finding;
use super::names::bundle_name;
use crate::olm::csv::EXAMPLES;
use crate::olm::{group_version, items, kind, name, text};

/// Annotations whose names are read as they are written.
const ANNOTATIONS: &[&str] = &[
    "olm.operatorGroup",
    "olm.operatorNamespace",
    "olm.providedAPIs",
    "olm.skipRange",
    "olm.targetNamespaces",
];

/// Checks the form that all fields need to be read at all.
pub(super) fn check_shape(csv: &Value) -> Result<(), Finding> {
    let wrong = |pointer: &str, wanted: &str| {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let message = format!("{field} of the ClusterServiceVersion must be {wanted}");
        Finding::error("csv-shape", message)
    };
    for (pointer, wanted) in [
        ("/metadata", "a map"),
        ("/metadata/annotations", "a map"),
        ("/spec", "a map"),
        ("/spec/install", "a map"),
        ("/spec/install/spec", "a map"),
        ("/spec/install/spec/deployments", "a list"),
        ("/spec/install/spec/permissions", "a list"),
        ("/spec/install/spec/clusterPermissions", "a list"),
        ("/spec/customresourcedefinitions", "a map"),
        ("/spec/customresourcedefinitions/owned", "a list"),
        ("/spec/installModes", "a list"),
        ("/spec/keywords", "a list"),
        ("/spec/links", "a list"),
        ("/spec/maintainers", "a list"),
        ("/spec/icon", "a list"),
        ("/spec/relatedImages", "a list"),
        ("/spec/displayName", "a text"),
        ("/spec/description", "a text"),
        ("/spec/minKubeVersion", "a text"),
        ("/spec/replaces", "a text"),
        ("/spec/version", "a text"),
    ] {
        let fits = match csv.pointer(pointer) {
            None | Some(Value::Null) => true,
            Some(Value::Object(_)) => wanted == "a map",
            Some(Value::Array(_)) => wanted == "a list",
            Some(Value::String(_)) => wanted == "a text",
            Some(_) => false,
        };
        if !fits {
            return Err(wrong(pointer, wanted));
        }
    }
    if let Some(values) = csv
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        && let Some((key, _)) = values
            .iter()
            .find(|(_, value)| !value.is_string() && !value.is_null())
    {
        return Err(wrong(&format!("/metadata/annotations/{key}"), "a text"));
    }
    if let Some(version) = csv.pointer("/spec/version").and_then(Value::as_str)
        && Version::parse(version).is_err()
    {
        let wanted = format!("a version such as 0.1.0; it is {version:?}");
        return Err(wrong("/spec/version", &wanted));
    }
    for mode in items(csv, "/spec/installModes") {
        if !mode.get("supported").is_none_or(Value::is_boolean) {
            return Err(wrong("/spec/installModes/supported", "true or false"));
        }
    }
    Ok(())
}

pub(super) fn check(csv: &Value, findings: &mut Vec<Finding>) {
    if let Some(wrong) = bundle_name(name(csv)) {
        let name = name(csv);
        let message =
            format!("the name {name:?} of the ClusterServiceVersion is not valid: {wrong}");
        findings.push(Finding::error("csv-name", message));
    }
    let replaces = text(csv, "/spec/replaces");
    if let (false, Some(wrong)) = (replaces.is_empty(), bundle_name(replaces)) {
        let message = format!("spec.replaces {replaces:?} is not valid: {wrong}");
        findings.push(Finding::error("csv-replaces", message));
    }
    if group_version(csv).1.is_empty() {
        let message = "the ClusterServiceVersion has no apiVersion";
        findings.push(Finding::error("csv-api-version", message));
    }
    check_fields(csv, findings);
    check_examples(csv, findings);
    check_modes(csv, findings);
    match text(csv, "/spec/minKubeVersion") {
        empty if empty.trim().is_empty() => findings.push(Finding::warning(
            "min-kube-version-missing",
            "spec.minKubeVersion is not set, so that the operator can be installed in clusters of any version",
        )),
        version if Version::parse(version).is_err() => findings.push(Finding::error(
            "min-kube-version",
            format!("spec.minKubeVersion {version:?} is not a version such as 1.30.0"),
        )),
        _ => {}
    }
    let annotations = csv
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    for key in annotations
        .into_iter()
        .flat_map(|annotations| annotations.keys())
    {
        let known = ANNOTATIONS
            .iter()
            .find(|known| known.eq_ignore_ascii_case(key));
        if let Some(known) = known.filter(|known| *known != key) {
            let message = format!("the annotation {key} has the wrong case; write {known}");
            findings.push(Finding::error("annotation-case", message));
        }
        if key == "olm.properties" {
            let message = "properties are in the annotation olm.properties; put them into metadata/properties.yaml";
            findings.push(Finding::warning("properties-annotation", message));
        }
    }
}

/// Returns whether a field has no value, or an empty one.
fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Object(fields)) => fields.values().all(|value| is_empty(Some(value))),
        Some(_) => false,
    }
}

fn check_fields(csv: &Value, findings: &mut Vec<Finding>) {
    for (outer, pointer) in [
        ("", "/metadata"),
        ("", "/spec"),
        ("/spec", "/spec/install"),
        ("/spec", "/spec/displayName"),
        ("/spec/install", "/spec/install/strategy"),
        ("/spec/install/spec", "/spec/install/spec/deployments"),
    ] {
        // A field that is missing as a whole is named alone.
        let is_expected = outer.is_empty() || !is_empty(csv.pointer(outer));
        if is_expected && is_empty(csv.pointer(pointer)) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            let message = format!("the ClusterServiceVersion has no {field}");
            findings.push(Finding::error("required-field", message));
        }
    }
}

/// A kind of custom resource.
type Gvk<'v> = (&'v str, &'v str, &'v str);

fn check_examples(csv: &Value, findings: &mut Vec<Finding>) {
    let annotations = csv
        .pointer("/metadata/annotations")
        .and_then(Value::as_object);
    let Some(annotations) = annotations.filter(|annotations| !annotations.is_empty()) else {
        let message = "the ClusterServiceVersion has no annotations, so no examples";
        findings.push(Finding::warning("examples-missing", message));
        return;
    };
    let own = annotations.get(EXAMPLES).and_then(Value::as_str);
    let other = annotations.get("olm.examples").and_then(Value::as_str);
    let Some(examples) = own.or(other) else {
        let message = format!("the ClusterServiceVersion has no annotation {EXAMPLES}");
        findings.push(Finding::warning("examples-missing", message));
        return;
    };
    if own.is_some() && other.is_some() {
        let message =
            format!("of the annotations {EXAMPLES} and olm.examples only {EXAMPLES} is read");
        findings.push(Finding::warning("examples-twice", message));
    }
    let examples: Vec<Value> = if examples.is_empty() {
        Vec::new()
    } else {
        match serde_json::from_str(examples) {
            Ok(Value::Array(examples)) => examples,
            Ok(_) => {
                let message = format!("{EXAMPLES} is not a list of objects");
                return findings.push(Finding::error("examples-decode", message));
            }
            Err(error) => {
                let message = format!("{EXAMPLES} is not JSON: {error}");
                return findings.push(Finding::error("examples-json", message));
            }
        }
    };
    if let Some(bad) = examples.iter().find(|example| kind(example).is_empty()) {
        let message = format!("an object in {EXAMPLES} has no kind: {bad}");
        return findings.push(Finding::error("examples-decode", message));
    }
    let mut provided: BTreeSet<Gvk<'_>> = BTreeSet::new();
    for owned in items(csv, "/spec/customresourcedefinitions/owned") {
        let Some((_, group)) = text(owned, "/name").split_once('.') else {
            let name = text(owned, "/name");
            let message = format!("the owned definition {name:?} has no group; write PLURAL.GROUP");
            findings.push(Finding::error("owned-name", message));
            continue;
        };
        let (version, kind) = (text(owned, "/version"), text(owned, "/kind"));
        provided.insert((group, version, kind));
    }
    for owned in items(csv, "/spec/apiservicedefinitions/owned") {
        let field = |field: &str| text(owned, field);
        provided.insert((field("/group"), field("/version"), field("/kind")));
    }
    let gvk = |example| {
        let (group, version) = group_version(example);
        (group, version, kind(example))
    };
    let shown: BTreeSet<Gvk<'_>> = examples.iter().map(gvk).collect();
    for (group, version, kind) in shown.difference(&provided) {
        let message = format!(
            "{EXAMPLES} has a {kind} of {group}/{version}, which the operator does not own"
        );
        findings.push(Finding::error("example-of-unknown-kind", message));
    }
    for (group, version, kind) in provided.difference(&shown) {
        let message =
            format!("{EXAMPLES} has no {kind} of {group}/{version}; add a file to config/samples");
        findings.push(Finding::warning("example-missing", message));
    }
}

fn check_modes(csv: &Value, findings: &mut Vec<Finding>) {
    let modes: Vec<&Value> = items(csv, "/spec/installModes").collect();
    if modes.is_empty() {
        let message = "the ClusterServiceVersion has no spec.installModes";
        return findings.push(Finding::error("install-modes-missing", message));
    }
    let is_supported = |mode: &Value| mode.get("supported") == Some(&Value::Bool(true));
    if !modes.iter().any(|mode| is_supported(mode)) {
        let message = "none of spec.installModes is supported";
        findings.push(Finding::error("install-modes", message));
    }
    let converts = items(csv, "/spec/webhookdefinitions")
        .any(|webhook| items(webhook, "/conversionCRDs").next().is_some());
    let only_all = modes
        .iter()
        .all(|mode| (text(mode, "/type") == "AllNamespaces") == is_supported(mode));
    if converts && !only_all {
        let message = "an operator with conversion webhooks must support AllNamespaces only";
        findings.push(Finding::error("install-modes-conversion", message));
    }
}
