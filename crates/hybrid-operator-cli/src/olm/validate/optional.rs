//! Checks that are run on request: what catalogs expect, and good practice. Pure.

use std::collections::BTreeSet;

use semver::Version;
use serde_json::Value;

use super::{Bundle, Finding};
use crate::olm::{group_version, items, kind, name, text};

/// An optional check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Optional {
    /// Requirements of `OperatorHub.io` for the metadata.
    OperatorHub,
    Capabilities,
    Categories,
    GoodPractices,
    /// API versions that Kubernetes no longer serves.
    RemovedApis,
}

/// All checks with their name, suite and purpose.
pub(crate) const ALL: &[(Optional, &str, &str, &str)] = &[
    (
        Optional::OperatorHub,
        "operatorhubv2",
        "operatorframework",
        "metadata that OperatorHub.io needs",
    ),
    (
        Optional::Capabilities,
        "standardcapabilities",
        "operatorframework",
        "the annotation capabilities",
    ),
    (
        Optional::Categories,
        "standardcategories",
        "operatorframework",
        "the annotation categories",
    ),
    (
        Optional::GoodPractices,
        "good-practices",
        "",
        "resource requests, descriptions, names of channels and of the bundle",
    ),
    (
        Optional::RemovedApis,
        "alpha-deprecated-apis",
        "",
        "API versions that Kubernetes 1.22, 1.25 and 1.26 removed",
    ),
];

/// Levels of `capabilities`.
const CAPABILITIES: &[&str] = &[
    "Basic Install",
    "Seamless Upgrades",
    "Full Lifecycle",
    "Deep Insights",
    "Auto Pilot",
];

const CATEGORIES: &[&str] = &[
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Database",
    "Developer Tools",
    "Integration & Delivery",
    "Logging & Tracing",
    "Modernization & Migration",
    "Monitoring",
    "Networking",
    "Observability",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
];

const ICONS: &[&str] = &["image/gif", "image/jpeg", "image/png", "image/svg+xml"];

impl Optional {
    /// Returns the checks that a selector such as `suite=operatorframework` names.
    pub(crate) fn select(selector: &str) -> Vec<Self> {
        let (key, value) = selector.split_once('=').unwrap_or_default();
        let value = value.trim_start_matches('=').trim();
        let is_hub = value == "operatorhub";
        let chosen = ALL.iter().filter(|(_, name, suite, _)| match key.trim() {
            // The name of the three checks in earlier versions of operator-sdk.
            "name" if is_hub => *suite == "operatorframework",
            "name" => *name == value,
            "suite" => !suite.is_empty() && *suite == value,
            _ => false,
        });
        chosen.map(|(check, ..)| *check).collect()
    }

    pub(super) fn check(self, bundle: &Bundle, findings: &mut Vec<Finding>) {
        match self {
            Self::OperatorHub => {
                hub(&bundle.csv, findings);
                removed_apis(bundle, findings);
            }
            Self::Capabilities => annotation(bundle, "capabilities", CAPABILITIES, findings),
            Self::Categories => annotation(bundle, "categories", CATEGORIES, findings),
            Self::GoodPractices => good_practices(bundle, findings),
            Self::RemovedApis => removed_apis(bundle, findings),
        }
    }
}

/// Checks an annotation with one of several values, or a list of categories.
fn annotation(bundle: &Bundle, key: &'static str, values: &[&str], findings: &mut Vec<Finding>) {
    let annotations = bundle.csv.pointer("/metadata/annotations");
    let Some(value) = annotations
        .and_then(|annotations| annotations.get(key))
        .and_then(Value::as_str)
    else {
        return;
    };
    let given: Vec<&str> = if key == "categories" {
        value.split(',').map(str::trim).collect()
    } else {
        vec![value]
    };
    let known = values.join(", ");
    for value in given.iter().filter(|value| !values.contains(value)) {
        let message = format!("the annotation {key} has {value:?}; known are {known}");
        findings.push(Finding::error(key, message));
    }
}

fn hub(csv: &Value, findings: &mut Vec<Finding>) {
    let mut add = |message: String| findings.push(Finding::error("hub", message));
    if text(csv, "/spec/provider/name").trim().is_empty() {
        add("spec.provider.name is not set".to_owned());
    }
    for maintainer in items(csv, "/spec/maintainers") {
        let (name, email) = (text(maintainer, "/name"), text(maintainer, "/email"));
        if name.is_empty() || email.is_empty() {
            add("each of spec.maintainers needs a name and an email".to_owned());
        }
        if !email.is_empty() && !is_address(email) {
            let message = format!("the email {email:?} in spec.maintainers is not an address");
            add(message);
        }
    }
    for link in items(csv, "/spec/links") {
        let (name, url) = (text(link, "/name"), text(link, "/url"));
        if name.is_empty() || url.is_empty() {
            add("each of spec.links needs a name and a url".to_owned());
        }
        if !url.is_empty() && !url.starts_with('/') && !url.contains("://") {
            add(format!("the url {url:?} in spec.links is not a URL"));
        }
    }
    if matches!(text(csv, "/spec/version"), "" | "0.0.0") {
        add("spec.version is not set".to_owned());
    }
    let icons: Vec<&Value> = items(csv, "/spec/icon").collect();
    match icons.as_slice() {
        [] => {
            findings.push(Finding::warning("icon-missing", "spec.icon is not set"));
        }
        [icon, rest @ ..] => {
            let mut refuse = |message: &str| findings.push(Finding::error("icon", message));
            if !rest.is_empty() {
                refuse("spec.icon must have one element");
            }
            let media_type = text(icon, "/mediatype");
            if media_type.is_empty() || text(icon, "/base64data").is_empty() {
                refuse("spec.icon needs base64data and mediatype");
            }
            if !media_type.is_empty() && !ICONS.contains(&media_type) {
                refuse(&format!(
                    "the mediatype {media_type:?} of spec.icon is none of {}",
                    ICONS.join(", ")
                ));
            }
        }
    }
}

/// Returns whether a text has the form of an address.
fn is_address(email: &str) -> bool {
    let bare = email
        .rsplit_once('<')
        .map_or(email, |(_, rest)| rest.trim_end_matches('>'));
    bare.split_once('@').is_some_and(|(user, host)| {
        let is_plain = |part: &str| {
            !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c == '@')
        };
        is_plain(user) && is_plain(host)
    })
}

#[allow(
    clippy::too_many_lines,
    reason = "the checks stand one after the other"
)]
fn good_practices(bundle: &Bundle, findings: &mut Vec<Finding>) {
    let csv = &bundle.csv;
    let deployments: Vec<&Value> = items(csv, "/spec/install/spec/deployments").collect();
    if deployments.is_empty() {
        let message = "the install strategy has no Deployment";
        findings.push(Finding::error("no-deployment", message));
    }
    let mut add =
        |rule: &'static str, message: String| findings.push(Finding::warning(rule, message));
    for container in deployments
        .iter()
        .flat_map(|entry| items(entry, "/spec/template/spec/containers"))
    {
        if container
            .pointer("/resources/requests")
            .is_none_or(Value::is_null)
        {
            let name = text(container, "/name");
            let message = format!("the container {name} has no resource requests");
            add("resource-requests", message);
        }
    }
    for list in ["owned", "required"] {
        for crd in items(csv, &format!("/spec/customresourcedefinitions/{list}")) {
            if text(crd, "/description").is_empty() {
                let name = text(crd, "/name");
                let message = format!("the {list} definition {name} has no description");
                add("description-missing", message);
            }
        }
    }
    let is_usual = |channel: &&str| {
        let usual = ["candidate", "stable", "fast"];
        usual.iter().any(|start| channel.starts_with(start))
    };
    let mut unusual: BTreeSet<&str> = bundle.channels.iter().map(String::as_str).collect();
    unusual.retain(|channel| !is_usual(channel));
    if !unusual.is_empty() {
        let unusual: Vec<&str> = unusual.into_iter().collect();
        let message = format!(
            "the names of channels should begin with candidate, fast or stable: {}",
            unusual.join(", ")
        );
        add("channel-names", message);
    }
    let mut rules = [
        "/spec/install/spec/permissions",
        "/spec/install/spec/clusterPermissions",
    ]
    .into_iter()
    .flat_map(|list| items(csv, list))
    .flat_map(|entry| items(entry, "/rules"));
    let has = |rule: &Value, field: &str, wanted: &[&str]| {
        items(rule, field).any(|value| value.as_str().is_some_and(|value| wanted.contains(&value)))
    };
    if rules.any(|rule| {
        has(rule, "/apiGroups", &["apiextensions.k8s.io"])
            && has(
                rule,
                "/resources",
                &["customresourcedefinitions", "*", "[*]"],
            )
            && has(rule, "/verbs", &["create", "*", "[*]", "patch"])
    }) {
        let message =
            "the operator may create or patch CustomResourceDefinitions, which OLM is for"
                .to_owned();
        add("creates-definitions", message);
    }
    let name = name(csv);
    let is_version = name
        .split_once(".v")
        .is_some_and(|(_, version)| Version::parse(version).is_ok());
    if !is_version {
        let message = format!("the bundle's name {name:?} should be PACKAGE.vVERSION");
        add("version-in-name", message);
    }
    if name.split(".v").count() != 2 {
        let message =
            format!("the bundle's name {name:?} should have '.v' once, before the version");
        add("form-of-name", message);
    }
}

/// API versions of objects in bundles, and the version of Kubernetes that removed them.
const REMOVED: &[(&str, &str, &str, u64)] = &[
    (
        "apiextensions.k8s.io",
        "v1beta1",
        "CustomResourceDefinition",
        22,
    ),
    ("scheduling.k8s.io", "v1beta1", "PriorityClass", 22),
    ("rbac.authorization.k8s.io", "v1beta1", "Role", 22),
    ("rbac.authorization.k8s.io", "v1beta1", "ClusterRole", 22),
    ("rbac.authorization.k8s.io", "v1beta1", "RoleBinding", 22),
    (
        "rbac.authorization.k8s.io",
        "v1beta1",
        "ClusterRoleBinding",
        22,
    ),
    ("policy", "v1beta1", "PodDisruptionBudget", 25),
];

fn removed_apis(bundle: &Bundle, findings: &mut Vec<Finding>) {
    let oldest = Version::parse(text(&bundle.csv, "/spec/minKubeVersion")).ok();
    for (_, object) in &bundle.objects {
        let (group, version) = group_version(object);
        let known = REMOVED.iter().find(|(of_group, of_version, of_kind, _)| {
            (*of_group, *of_version, *of_kind) == (group, version, kind(object))
        });
        let Some((.., minor)) = known else {
            continue;
        };
        let message = format!(
            "the {} {} has the API version {group}/{version}, which Kubernetes 1.{minor} removed",
            kind(object),
            name(object)
        );
        let is_needed = oldest
            .as_ref()
            .is_some_and(|oldest| *oldest >= Version::new(1, *minor, 0));
        findings.push(if is_needed {
            Finding::error("removed-api", message)
        } else {
            Finding::warning("removed-api", message)
        });
    }
}
