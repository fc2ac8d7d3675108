//! Compares what `olm validate` finds in broken bundles with what the Go packages find.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::or_skip;
use crate::{CSV, bundle, copy, edit, olm, project, run};

/// Parts of the messages of the Go packages, and the rules here that they belong to. The first that
/// matches counts.
const RULES: &[(&str, &str)] = &[
    ("Unable to locate", "directory"),
    ("Could not find annotations file", "annotations-file"),
    ("Missing annotation", "annotation-missing"),
    ("to have non-empty value", "annotation-empty"),
    ("Expecting annotation", "annotation-value"),
    ("unsupported dependency type", "dependency"),
    ("couldn't parse dependency", "dependency"),
    ("Package name is empty", "dependency"),
    ("Invalid semver format version", "dependency"),
    ("is not supported type for registryV1", "unsupported-kind"),
    ("error validating object metadata", "object-metadata"),
    ("bundle manifests dir contains directory", "manifests"),
    ("contains multiple CSVs", "manifests"),
    ("unable to find a csv", "manifests"),
    ("unable to parse CSV", "csv-shape"),
    ("unable to decode object", "manifests"),
    ("metadata.name \"", "csv-name"),
    ("spec.replaces", "csv-replaces"),
    ("annotations not found", "examples-missing"),
    ("both `alm-examples`", "examples-twice"),
    ("invalid example", "examples-json"),
    ("error decoding example", "examples-decode"),
    ("couldn't parse plural.group", "owned-name"),
    (
        "example must have a provided API",
        "example-of-unknown-kind",
    ),
    ("provided API should have an example", "example-missing"),
    ("install modes not found", "install-modes-missing"),
    ("none of InstallModeTypes", "install-modes"),
    ("only AllNamespaces", "install-modes-conversion"),
    ("minKubeVersion is not informed", "min-kube-version-missing"),
    ("MinKubeVersion has an invalid value", "min-kube-version"),
    ("unable to use csv.Spec.MinKubeVersion", "min-kube-version"),
    ("required field missing", "required-field"),
    ("uses wrong case", "annotation-case"),
    ("found olm.properties annotation", "properties-annotation"),
    ("'apiVersion' is missing", "csv-api-version"),
    ("duplicate CRD", "definition-twice"),
    ("not found in bundle", "owned-missing"),
    ("not defined in CSV", "definition-not-owned"),
    ("invalid service account found", "account"),
    ("relatedImages[", "related-image"),
    ("maximum bundle compressed size", "size"),
    ("must be spec.names.plural", "definition"),
    ("Field spec.versions", "definition"),
    ("Field spec.scope", "definition"),
    ("Field spec.names", "definition"),
    ("Field spec.group", "definition"),
    ("csv.Spec.Icon not specified", "icon-missing"),
    ("csv.Spec.Icon", "icon"),
    ("csv.Spec.Provider", "hub"),
    ("csv.Spec.Maintainers", "hub"),
    ("csv.Spec.Links", "hub"),
    ("csv.Spec.Version must be set", "hub"),
    ("is not a valid capabilities level", "capabilities"),
    ("set of standard categories", "categories"),
    ("unable to find a deployment", "no-deployment"),
    ("unable to find the resource requests", "resource-requests"),
    ("has an empty description", "description-missing"),
    ("channel(s)", "channel-names"),
    ("permissions to create CRD", "creates-definitions"),
    ("versioning convention", "version-in-name"),
    ("naming convention", "form-of-name"),
    ("deprecated and removed", "removed-api"),
];

/// Findings that differ, with the bundle, the rule, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    (
        "no csv",
        "annotation-value",
        "the Go packages also say that the annotations name the type of a bundle",
    ),
    (
        "unusual channel",
        "channel-names",
        "the loader of the Go packages leaves out the channels of the annotations",
    ),
];

/// A broken bundle that is not one of [`VALUES`]: its name, and what breaks it.
type Broken = (&'static str, fn(&Path));

fn csv(directory: &Path, change: impl FnOnce(&mut Value)) {
    edit(&directory.join(CSV), change);
}

fn add(directory: &Path, file: &str, object: &Value) {
    fs::write(directory.join(file), go_yaml::to_string(object).unwrap()).unwrap();
}

const BROKEN: &[Broken] = &[
    ("as it is made", |_| ()),
    ("no metadata", |dir| {
        fs::remove_dir_all(dir.join("metadata")).unwrap();
    }),
    ("no annotations", |dir| {
        fs::write(dir.join("metadata/annotations.yaml"), "a: b\n").unwrap();
    }),
    ("bad dependencies", |dir| {
        let bad = json!({"dependencies": [
            {"type": "olm.package", "value": {"packageName": "a", "version": "one"}},
            {"type": "olm.package", "value": {"packageName": "", "version": ">=1.0.0"}}]});
        add(dir, "metadata/dependencies.yaml", &bad);
    }),
    ("good dependencies", |dir| {
        let good = json!({"dependencies": [
            {"type": "olm.package", "value": {"packageName": "a", "version": ">=1.0.0 <2.0.0"}},
            {"type": "olm.gvk", "value": {"group": "a.example.com", "version": "v1", "kind": "A"}}]});
        add(dir, "metadata/dependencies.yaml", &good);
    }),
    ("no csv", |dir| fs::remove_file(dir.join(CSV)).unwrap()),
    ("two csvs", |dir| {
        fs::copy(dir.join(CSV), dir.join("manifests/second.yaml")).unwrap();
    }),
    ("a directory", |dir| {
        fs::create_dir(dir.join("manifests/more")).unwrap();
    }),
    ("not yaml", |dir| {
        fs::write(dir.join("manifests/bad.yaml"), "a: [\n").unwrap();
    }),
    ("long name", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["name"] = json!(format!("{}.v0.1.0", "a".repeat(60)));
        });
    }),
    ("conversion in one namespace", |dir| {
        csv(dir, |csv| {
            csv["spec"]["installModes"][0]["supported"] = json!(true);
            csv["spec"]["webhookdefinitions"] = json!([{"type": "ConversionWebhook", "conversionCRDs": ["a.example.com"],
                "admissionReviewVersions": ["v1"], "generateName": "a", "sideEffects": "None"}]);
        });
    }),
    ("definition that is not there", |dir| {
        fs::remove_file(dir.join("manifests/cache.example.com_memcacheds.yaml")).unwrap();
    }),
    ("definition that is not owned", |dir| {
        csv(dir, |csv| {
            let owned = &mut csv["spec"]["customresourcedefinitions"]["owned"];
            drop(owned.as_array_mut().unwrap().remove(1));
        });
    }),
    ("may create definitions", |dir| {
        csv(dir, |csv| {
            let rules = &mut csv["spec"]["install"]["spec"]["clusterPermissions"][0]["rules"];
            let rule = json!({"apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"], "verbs": ["create"]});
            rules.as_array_mut().unwrap().push(rule);
        });
    }),
];

/// Bundles that one value breaks: the name, the file, the place in it, which is `/` for a whole new file, and
/// the value; without one the field is removed.
const VALUES: &str = r#"
    no package: annotations /annotations/operators.operatorframework.io.bundle.package.v1
    empty channels: annotations /annotations/operators.operatorframework.io.bundle.channels.v1 ""
    other media type: annotations /annotations/operators.operatorframework.io.bundle.mediatype.v1 "plain"
    unusual channel: annotations /annotations/operators.operatorframework.io.bundle.channels.v1 "alpha,stable"
    bad version: csv /spec/version "one"
    version zero: csv /spec/version "0.0.0"
    bad name: csv /metadata/name "Memcached.v0.1.0"
    name without version: csv /metadata/name "memcached-operator"
    bad replaces: csv /spec/replaces "Old One"
    no display name: csv /spec/displayName
    no install strategy: csv /spec/install
    no deployments: csv /spec/install/spec/deployments
    no strategy name: csv /spec/install/strategy
    no annotations of the csv: csv /metadata/annotations
    examples twice: csv /metadata/annotations/olm.examples "[]"
    examples that are not JSON: csv /metadata/annotations/alm-examples "[{"
    examples without kind: csv /metadata/annotations/alm-examples "[{\"apiVersion\": \"a/v1\"}]"
    no examples: csv /metadata/annotations/alm-examples "[]"
    example of another kind: csv /metadata/annotations/alm-examples "[{\"apiVersion\": \"a/v1\", \"kind\": \"A\"}]"
    no install modes: csv /spec/installModes []
    no supported install mode: csv /spec/installModes/3/supported false
    no oldest Kubernetes: csv /spec/minKubeVersion
    bad oldest Kubernetes: csv /spec/minKubeVersion "v1.x"
    wrong case: csv /metadata/annotations/olm.skiprange "<1.0.0"
    properties in an annotation: csv /metadata/annotations/olm.properties "[]"
    owned without group: csv /spec/customresourcedefinitions/owned/0/name "memcachedbackups"
    owned without description: csv /spec/customresourcedefinitions/owned/0/description
    definition with another name: crd /metadata/name "others.cache.example.com"
    definition without stored version: crd /spec/versions/0/storage false
    definition without scope: crd /spec/scope "Everywhere"
    account of the operator: manifests/account.yaml / {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "memcached-operator-controller-manager"}}
    kind that OLM does not take: manifests/web.yaml / {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"}}
    object without name: manifests/map.yaml / {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    object with namespace: manifests/map.yaml / {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    image that is none: csv /spec/relatedImages/0/image "Not An Image"
    empty image: csv /spec/relatedImages/0/image ""
    no provider: csv /spec/provider {}
    maintainer without email: csv /spec/maintainers [{"name": "A"}]
    bad link: csv /spec/links [{"name": "A", "url": "example"}]
    bad icon: csv /spec/icon [{"base64data": "", "mediatype": "text/plain"}]
    bad capabilities: csv /metadata/annotations/capabilities "All"
    bad categories: csv /metadata/annotations/categories "Database, Toys"
    no requests: csv /spec/install/spec/deployments/0/spec/template/spec/containers/0/resources
    removed API: manifests/budget.yaml / {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}}
"#;

/// Does what a line of [`VALUES`] says after the name.
fn set(directory: &Path, change: &str) {
    let mut words = change.splitn(3, ' ');
    let (file, place) = (words.next().unwrap(), words.next().unwrap());
    let value: Option<Value> = words.next().map(|text| serde_json::from_str(text).unwrap());
    if let ("/", Some(value)) = (place, &value) {
        return add(directory, file, value);
    }
    let file = match file {
        "csv" => CSV,
        "crd" => "manifests/cache.example.com_memcacheds.yaml",
        _ => "metadata/annotations.yaml",
    };
    let (parent, field) = place.rsplit_once('/').unwrap();
    edit(&directory.join(file), |object| {
        let parent = object.pointer_mut(parent).unwrap();
        match value {
            Some(value) => parent[field] = value,
            None => drop(parent.as_object_mut().unwrap().remove(field)),
        }
    });
}

type Findings = BTreeSet<(String, String)>;

/// Runs `olm validate` with all optional checks.
fn ours(directory: &Path) -> Findings {
    let arguments = "olm validate . -o json --select-optional suite=operatorframework \
        --select-optional name=good-practices --select-optional name=alpha-deprecated-apis";
    let done = run(directory, arguments);
    let result: Value = serde_json::from_str(&done.out).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = result["findings"].as_array().unwrap().iter();
    let findings: Findings = findings
        .map(|finding| (text(&finding["level"]), text(&finding["rule"])))
        .collect();
    let has_errors = findings.iter().any(|(level, _)| level == "error");
    assert_eq!(done.code, Some(if has_errors { 3 } else { 0 }));
    assert_eq!(result["passed"], !has_errors);
    findings
}

/// Returns the rule of a message of the Go packages.
fn rule(message: &str) -> String {
    let known = RULES.iter().find(|(part, _)| message.contains(part));
    known.map_or_else(
        || format!("unknown: {message}"),
        |(_, rule)| (*rule).to_owned(),
    )
}

/// Returns whether a finding is known to differ.
fn is_different(bundle: &str, rule: &str) -> bool {
    let mut known = DIFFERENT.iter();
    known.any(|(of, known, _)| *of == bundle && *known == rule)
}

#[test]
fn broken_bundles_have_the_findings_of_the_go_packages() {
    let program = or_skip!(hybrid_operator_test::olm::ensure_or_skip().unwrap());
    let project = project();
    bundle(project.path(), "0.1.0", "");
    let mut bundles = Vec::new();
    let mut broken = |name: &'static str, change: &dyn Fn(&Path)| {
        let directory = project.path().join(format!("broken-{}", bundles.len()));
        copy(&project.path().join("bundle"), &directory);
        change(&directory);
        bundles.push((name, directory));
    };
    for &(name, change) in BROKEN {
        broken(name, &change);
    }
    for line in VALUES.trim().lines() {
        let (name, change) = line.trim_start().split_once(": ").unwrap();
        broken(name, &|directory: &Path| set(directory, change));
    }
    let mut arguments = vec!["validate", "all"];
    arguments.extend(bundles.iter().map(|(_, path)| path.to_str().unwrap()));
    let answers = olm(&program, &arguments);
    let answers: Vec<&str> = answers.lines().collect();
    assert_eq!(answers.len(), bundles.len());
    let mut different = BTreeMap::new();
    for ((name, directory), answer) in bundles.iter().zip(answers) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let theirs: Findings = answer
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| (text(&finding["level"]), rule(&text(&finding["detail"]))))
            .filter(|(_, rule)| !is_different(name, rule))
            .collect();
        let mut ours = ours(directory);
        ours.retain(|(_, rule)| !is_different(name, rule));
        if ours != theirs {
            different.insert(*name, (ours, theirs));
        }
    }
    assert!(different.is_empty(), "ours, and theirs: {different:#?}");
}
