//! Compares what `bundle validate` finds in broken bundles with what the Go packages find.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::{CSV, PROGRAM, bundle, copy, edit, olm, project, run};

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
const DIFFERENT: &[(&str, &str, &str)] = &[(
    "no csv",
    "annotation-value",
    "the Go packages also say that the annotations name the type of a bundle",
)];

/// A broken bundle: its name, and what breaks it.
type Broken = (&'static str, fn(&Path));

fn csv(directory: &Path, change: impl FnOnce(&mut Value)) {
    edit(&directory.join(CSV), change);
}

fn crd(directory: &Path, change: impl FnOnce(&mut Value)) {
    edit(
        &directory.join("manifests/cache.example.com_memcacheds.yaml"),
        change,
    );
}

fn annotations(directory: &Path, change: impl FnOnce(&mut Value)) {
    edit(&directory.join("metadata/annotations.yaml"), |file| {
        change(&mut file["annotations"]);
    });
}

fn add(directory: &Path, file: &str, object: &Value) {
    fs::write(directory.join(file), go_yaml::to_string(object).unwrap()).unwrap();
}

fn remove(value: &mut Value, field: &str) {
    value.as_object_mut().unwrap().remove(field);
}

const ANNOTATION: &str = "operators.operatorframework.io.bundle.";

const BROKEN: &[Broken] = &[
    ("as it is made", |_| ()),
    ("no metadata", |dir| {
        fs::remove_dir_all(dir.join("metadata")).unwrap();
    }),
    ("no annotations", |dir| {
        fs::write(dir.join("metadata/annotations.yaml"), "a: b\n").unwrap();
    }),
    ("no package", |dir| {
        annotations(dir, |all| remove(all, &format!("{ANNOTATION}package.v1")));
    }),
    ("empty channels", |dir| {
        annotations(dir, |all| {
            all[format!("{ANNOTATION}channels.v1")] = json!("");
        });
    }),
    ("other media type", |dir| {
        annotations(dir, |all| {
            all[format!("{ANNOTATION}mediatype.v1")] = json!("plain");
        });
    }),
    ("unusual channel", |dir| {
        annotations(dir, |all| {
            all[format!("{ANNOTATION}channels.v1")] = json!("alpha,stable");
        });
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
    ("bad version", |dir| {
        csv(dir, |csv| csv["spec"]["version"] = json!("1.0"));
    }),
    ("version zero", |dir| {
        csv(dir, |csv| csv["spec"]["version"] = json!("0.0.0"));
    }),
    ("bad name", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["name"] = json!("Memcached.v0.1.0");
        });
    }),
    ("long name", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["name"] = json!(format!("{}.v0.1.0", "a".repeat(60)));
        });
    }),
    ("name without version", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["name"] = json!("memcached-operator");
        });
    }),
    ("bad replaces", |dir| {
        csv(dir, |csv| csv["spec"]["replaces"] = json!("Old One"));
    }),
    ("no display name", |dir| {
        csv(dir, |csv| remove(&mut csv["spec"], "displayName"));
    }),
    ("no install strategy", |dir| {
        csv(dir, |csv| remove(&mut csv["spec"], "install"));
    }),
    ("no deployments", |dir| {
        csv(dir, |csv| {
            remove(&mut csv["spec"]["install"]["spec"], "deployments");
        });
    }),
    ("no strategy name", |dir| {
        csv(dir, |csv| remove(&mut csv["spec"]["install"], "strategy"));
    }),
    ("no annotations of the csv", |dir| {
        csv(dir, |csv| remove(&mut csv["metadata"], "annotations"));
    }),
    ("examples twice", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["olm.examples"] = json!("[]");
        });
    }),
    ("examples that are not JSON", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["alm-examples"] = json!("[{");
        });
    }),
    ("examples without kind", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["alm-examples"] = json!("[{\"apiVersion\": \"a/v1\"}]");
        });
    }),
    ("no examples", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["alm-examples"] = json!("[]");
        });
    }),
    ("example of another kind", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["alm-examples"] =
                json!("[{\"apiVersion\": \"a/v1\", \"kind\": \"A\"}]");
        });
    }),
    ("no install modes", |dir| {
        csv(dir, |csv| csv["spec"]["installModes"] = json!([]));
    }),
    ("no supported install mode", |dir| {
        csv(dir, |csv| {
            csv["spec"]["installModes"][3]["supported"] = json!(false);
        });
    }),
    ("conversion in one namespace", |dir| {
        csv(dir, |csv| {
            csv["spec"]["installModes"][0]["supported"] = json!(true);
            csv["spec"]["webhookdefinitions"] = json!([{"type": "ConversionWebhook", "conversionCRDs": ["a.example.com"],
                "admissionReviewVersions": ["v1"], "generateName": "a", "sideEffects": "None"}]);
        });
    }),
    ("no oldest Kubernetes", |dir| {
        csv(dir, |csv| remove(&mut csv["spec"], "minKubeVersion"));
    }),
    ("bad oldest Kubernetes", |dir| {
        csv(dir, |csv| csv["spec"]["minKubeVersion"] = json!("v1.x"));
    }),
    ("wrong case", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["olm.skiprange"] = json!("<1.0.0");
        });
    }),
    ("properties in an annotation", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["olm.properties"] = json!("[]");
        });
    }),
    ("definition that is not there", |dir| {
        fs::remove_file(dir.join("manifests/cache.example.com_memcacheds.yaml")).unwrap();
    }),
    ("definition that is not owned", |dir| {
        csv(dir, |csv| {
            drop(
                csv["spec"]["customresourcedefinitions"]["owned"]
                    .as_array_mut()
                    .unwrap()
                    .remove(1),
            );
        });
    }),
    ("owned without group", |dir| {
        csv(dir, |csv| {
            csv["spec"]["customresourcedefinitions"]["owned"][0]["name"] =
                json!("memcachedbackups");
        });
    }),
    ("owned without description", |dir| {
        csv(dir, |csv| {
            remove(
                &mut csv["spec"]["customresourcedefinitions"]["owned"][0],
                "description",
            );
        });
    }),
    ("definition with another name", |dir| {
        crd(dir, |crd| {
            crd["metadata"]["name"] = json!("others.cache.example.com");
        });
    }),
    ("definition without stored version", |dir| {
        crd(dir, |crd| {
            crd["spec"]["versions"][0]["storage"] = json!(false);
        });
    }),
    ("definition without scope", |dir| {
        crd(dir, |crd| crd["spec"]["scope"] = json!("Everywhere"));
    }),
    ("account of the operator", |dir| {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "memcached-operator-controller-manager"}});
        add(dir, "manifests/account.yaml", &account);
    }),
    ("kind that OLM does not take", |dir| {
        add(
            dir,
            "manifests/web.yaml",
            &json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"}}),
        );
    }),
    ("object without name", |dir| {
        add(
            dir,
            "manifests/map.yaml",
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
        );
    }),
    ("object with namespace", |dir| {
        add(
            dir,
            "manifests/map.yaml",
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}),
        );
    }),
    ("image that is none", |dir| {
        csv(dir, |csv| {
            csv["spec"]["relatedImages"][0]["image"] = json!("Not An Image");
        });
    }),
    ("empty image", |dir| {
        csv(dir, |csv| {
            csv["spec"]["relatedImages"][0]["image"] = json!("");
        });
    }),
    ("no provider", |dir| {
        csv(dir, |csv| csv["spec"]["provider"] = json!({}));
    }),
    ("maintainer without email", |dir| {
        csv(dir, |csv| {
            csv["spec"]["maintainers"] = json!([{"name": "A"}]);
        });
    }),
    ("bad link", |dir| {
        csv(dir, |csv| {
            csv["spec"]["links"] = json!([{"name": "A", "url": "example"}]);
        });
    }),
    ("bad icon", |dir| {
        csv(dir, |csv| {
            csv["spec"]["icon"] = json!([{"base64data": "", "mediatype": "text/plain"}]);
        });
    }),
    ("bad capabilities", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["capabilities"] = json!("All");
        });
    }),
    ("bad categories", |dir| {
        csv(dir, |csv| {
            csv["metadata"]["annotations"]["categories"] = json!("Database, Toys");
        });
    }),
    ("no requests", |dir| {
        csv(dir, |csv| {
            let deployment = &mut csv["spec"]["install"]["spec"]["deployments"][0];
            remove(
                &mut deployment["spec"]["template"]["spec"]["containers"][0],
                "resources",
            );
        });
    }),
    ("may create definitions", |dir| {
        csv(dir, |csv| {
            let rules = &mut csv["spec"]["install"]["spec"]["clusterPermissions"][0]["rules"];
            rules
                .as_array_mut()
                .unwrap()
                .push(json!({"apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"], "verbs": ["create"]}));
        });
    }),
    ("removed API", |dir| {
        let budget = json!({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}});
        add(dir, "manifests/budget.yaml", &budget);
    }),
];

type Findings = BTreeSet<(String, String)>;

/// Runs `bundle validate` with all optional checks.
fn ours(directory: &Path) -> Findings {
    let mut arguments = vec!["bundle", "validate", ".", "-o", "json"];
    for selector in [
        "suite=operatorframework",
        "name=good-practices",
        "name=alpha-deprecated-apis",
    ] {
        arguments.extend(["--select-optional", selector]);
    }
    let output = run(directory, &arguments);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = result["findings"].as_array().unwrap().iter();
    let findings: Findings = findings
        .map(|finding| (text(&finding["level"]), text(&finding["rule"])))
        .collect();
    let has_errors = findings.iter().any(|(level, _)| level == "error");
    assert_eq!(
        output.status.code(),
        Some(i32::from(has_errors)),
        "{PROGRAM}"
    );
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

#[test]
fn broken_bundles_have_the_findings_of_the_go_packages() {
    let Some(program) = hybrid_operator_test::olm::ensure_or_skip().unwrap() else {
        return;
    };
    let project = project();
    bundle(project.path(), "0.1.0", &[]);
    let directories: Vec<_> = BROKEN
        .iter()
        .enumerate()
        .map(|(index, (_, change))| {
            let directory = project.path().join(format!("broken-{index}"));
            copy(&project.path().join("bundle"), &directory);
            change(&directory);
            directory
        })
        .collect();
    let mut arguments = vec!["validate", "all"];
    arguments.extend(
        directories
            .iter()
            .map(|directory| directory.to_str().unwrap()),
    );
    let answers = olm(&program, &arguments);
    let answers: Vec<&str> = answers.lines().collect();
    assert_eq!(answers.len(), BROKEN.len());
    let mut different = BTreeMap::new();
    for (((name, _), directory), answer) in BROKEN.iter().zip(&directories).zip(answers) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let theirs: Findings = answer
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| (text(&finding["level"]), rule(&text(&finding["detail"]))))
            .filter(|(_, rule)| {
                !DIFFERENT
                    .iter()
                    .any(|(of, known, _)| of == name && known == rule);
            })
            .collect();
        let ours = ours(directory);
        if ours != theirs {
            different.insert(*name, (ours, theirs));
        }
    }
    assert!(different.is_empty(), "ours, and theirs: {different:#?}");
}
