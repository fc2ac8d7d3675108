//! The `ClusterServiceVersion` of a bundle: a base that people edit, and what follows from the project.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use semver::Version;
use serde_json::{Map, Value, json};

use super::kustomize::containers;
use super::parts::Parts;
use super::{CSV, descriptors, items, kind, name, text};

/// Annotation with the examples.
pub(crate) const EXAMPLES: &str = "alm-examples";
/// Annotation with the range of versions that a bundle updates.
pub(crate) const SKIP_RANGE: &str = "olm.skipRange";
/// Variable with the namespaces that the operator watches.
const WATCH_NAMESPACE: &str = "WATCH_NAMESPACE";
/// Install mode without a namespace.
const ALL_NAMESPACES: &str = "AllNamespaces";

/// Bundle that is released.
#[derive(Debug)]
pub(crate) struct Release<'a> {
    pub(crate) package: &'a str,
    pub(crate) version: &'a Version,
    /// Image of the operator; without it, that of the Deployment.
    pub(crate) image: Option<&'a str>,
    /// Whether images must be named by their digest.
    pub(crate) digests: bool,
    /// Name of the bundle that this one replaces.
    pub(crate) replaces: Option<&'a str>,
    /// Range of versions that this one updates.
    pub(crate) skip_range: Option<&'a str>,
    pub(crate) layout: &'a str,
}

/// Returns the base of a new project.
pub(crate) fn base(package: &str) -> String {
    let title = descriptors::words(package);
    format!(
        "\
# What no file of the project says about the operator. Edit it: 'hybrid-operator olm bundle' adds
# the version, the install strategy, the definitions and the examples, and keeps what is written here.
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: {package}.v0.0.0
  annotations:
    # Basic Install, Seamless Upgrades, Full Lifecycle, Deep Insights or Auto Pilot
    capabilities: Basic Install
spec:
  displayName: {title}
  description: {title} runs its custom resources as Helm releases or with native controllers.
  # icon:
  # - base64data: ...
  #   mediatype: image/svg+xml
  keywords:
  - {package}
  links:
  - name: {title}
    url: https://{package}.example.com
  maintainers:
  - name: Maintainer
    email: maintainer@example.com
  maturity: alpha
  # The oldest version of Kubernetes that you support.
  minKubeVersion: 1.30.0
  provider:
    name: Provider
  # With one of the others, the operator watches the namespaces of its OperatorGroup only.
  installModes:
  - type: OwnNamespace
    supported: false
  - type: SingleNamespace
    supported: false
  - type: MultiNamespace
    supported: false
  - type: AllNamespaces
    supported: true
"
    )
}

/// Returns the `ClusterServiceVersion`.
pub(crate) fn csv(parts: &Parts, base: &Value, release: &Release) -> anyhow::Result<Value> {
    if kind(base) != CSV {
        bail!("the base has the kind {:?} instead of {CSV}", kind(base));
    }
    if !release.version.build.is_empty() {
        bail!(
            "the version {} has build metadata, and a label with the bundle's name cannot have '+'; leave out {:?}",
            release.version,
            format!("+{}", release.version.build)
        );
    }
    if items(base, "/spec/webhookdefinitions").next().is_some() {
        bail!(
            "the base has spec.webhookdefinitions; the operator registers its webhooks itself, and each would be called twice, so remove the field"
        );
    }
    let mut deployments = parts.deployments.clone();
    if let Some(image) = release.image {
        set_image(&mut deployments, image)?;
    }
    let modes = Modes::of(base)?;
    modes.check(&parts.crds)?;
    for container in deployments.iter_mut().flat_map(containers) {
        modes.apply(container);
    }
    let images = related_images(&mut deployments, &parts.related, base);
    if release.digests {
        check_digests(&images)?;
    }

    let mut csv = base.clone();
    let mut annotations: Map<String, Value> = base
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let mut annotate = |key: &str, value: &str| annotations.insert(key.to_owned(), value.into());
    let examples = serde_json::to_string_pretty(&parts.examples)
        .context("cannot write the examples as JSON")?;
    annotate(EXAMPLES, &examples);
    annotate("operators.operatorframework.io/builder", BUILDER);
    let layout = "operators.operatorframework.io/project_layout";
    annotate(layout, release.layout);
    if let Some(image) = images.first() {
        annotate("containerImage", text(image, "/image"));
    }
    if let Some(range) = release.skip_range {
        annotate(SKIP_RANGE, range);
    }
    set(&mut csv, "metadata", "annotations", annotations.into());
    set(
        &mut csv,
        "metadata",
        "name",
        json!(format!("{}.v{}", release.package, release.version)),
    );
    set(
        &mut csv,
        "spec",
        "version",
        json!(release.version.to_string()),
    );
    if let Some(replaced) = release.replaces {
        set(&mut csv, "spec", "replaces", json!(replaced));
    }
    set(&mut csv, "spec", "install", install(parts, &deployments));
    set(&mut csv, "spec", "relatedImages", images.into());
    let mut definitions = base
        .pointer("/spec/customresourcedefinitions")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let described: Vec<Value> = items(base, "/spec/customresourcedefinitions/owned")
        .cloned()
        .collect();
    let mut crds: Vec<&Value> = parts.crds.iter().collect();
    crds.sort_by_key(|crd| name(crd));
    let owned: Vec<Value> = crds
        .iter()
        .flat_map(|crd| descriptors::owned(crd, &parts.created, &described))
        .collect();
    definitions.insert("owned".to_owned(), owned.into());
    set(
        &mut csv,
        "spec",
        "customresourcedefinitions",
        definitions.into(),
    );
    Ok(csv)
}

/// Program that made the bundle.
pub(crate) const BUILDER: &str = concat!("hybrid-operator-v", env!("CARGO_PKG_VERSION"));

/// Sets a field of an object inside of an object, which is created if it is missing.
fn set(object: &mut Value, outer: &str, field: &str, value: Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let outer = fields.entry(outer).or_insert_with(|| json!({}));
    if let Some(outer) = outer.as_object_mut() {
        outer.insert(field.to_owned(), value);
    }
}

/// Returns the install strategy.
fn install(parts: &Parts, deployments: &[Value]) -> Value {
    let permissions = |rules: &BTreeMap<String, Vec<Value>>| -> Vec<Value> {
        let accounts = rules.iter();
        accounts
            .map(|(account, rules)| json!({"serviceAccountName": account, "rules": rules}))
            .collect()
    };
    let deployments: Vec<Value> = deployments
        .iter()
        .map(|deployment| {
            let mut entry = json!({"name": name(deployment), "spec": deployment.get("spec")});
            if let (Some(labels), Some(fields)) = (
                deployment.pointer("/metadata/labels"),
                entry.as_object_mut(),
            ) {
                fields.insert("label".to_owned(), labels.clone());
            }
            entry
        })
        .collect();
    let mut spec = json!({"deployments": deployments});
    for (field, rules) in [
        ("permissions", &parts.permissions),
        ("clusterPermissions", &parts.cluster_permissions),
    ] {
        let rules = permissions(rules);
        if let (false, Some(spec)) = (rules.is_empty(), spec.as_object_mut()) {
            spec.insert(field.to_owned(), rules.into());
        }
    }
    json!({"strategy": "deployment", "spec": spec})
}

/// Sets the image of the operator's container: the one named `manager`, or the only one.
fn set_image(deployments: &mut [Value], image: &str) -> anyhow::Result<()> {
    let mut all: Vec<&mut Value> = deployments.iter_mut().flat_map(containers).collect();
    let count = all.len();
    let chosen = all
        .iter_mut()
        .find(|container| count == 1 || text(container, "/name") == "manager")
        .and_then(|container| container.as_object_mut());
    let Some(container) = chosen else {
        bail!(
            "--image does not say which of the {count} containers it is for: none has the name manager; set the image in config/manager"
        );
    };
    container.insert("image".to_owned(), image.into());
    Ok(())
}

/// Returns all images of the operator: those of its containers first, then those in variables
/// `RELATED_IMAGE_*`, those of the charts, and those of the base.
fn related_images(
    deployments: &mut [Value],
    charts: &BTreeSet<String>,
    base: &Value,
) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let mut images: Vec<Value> = Vec::new();
    let mut add = |name: &str, image: &str| {
        if !image.is_empty() && seen.insert(image.to_owned()) {
            images.push(json!({"name": name, "image": image}));
        }
    };
    for container in deployments.iter_mut().flat_map(containers) {
        add(text(container, "/name"), text(container, "/image"));
    }
    for container in deployments.iter_mut().flat_map(containers) {
        for variable in items(container, "/env") {
            if let Some(name) = text(variable, "/name").strip_prefix("RELATED_IMAGE_") {
                let name = name.to_ascii_lowercase().replace('_', "-");
                add(&name, text(variable, "/value"));
            }
        }
    }
    for image in charts {
        let name = image.split(['@', ':']).next().unwrap_or_default();
        add(name.rsplit('/').next().unwrap_or_default(), image);
    }
    for image in items(base, "/spec/relatedImages") {
        add(text(image, "/name"), text(image, "/image"));
    }
    images
}

/// Refuses images that are not named by their digest.
fn check_digests(images: &[Value]) -> anyhow::Result<()> {
    let tagged: Vec<&str> = images
        .iter()
        .map(|image| text(image, "/image"))
        .filter(|image| !image.contains("@sha256:"))
        .collect();
    if tagged.is_empty() {
        return Ok(());
    }
    bail!(
        "--image-digests needs images with a digest, such as NAME@sha256:...; this command asks no registry for that of {}",
        tagged.join(", ")
    )
}

/// The install modes.
struct Modes {
    limits_namespaces: bool,
}

impl Modes {
    /// Reads those of the base.
    fn of(base: &Value) -> anyhow::Result<Self> {
        let supported = |mode: &&Value| mode.get("supported") == Some(&Value::Bool(true));
        let modes: Vec<&str> = items(base, "/spec/installModes")
            .filter(supported)
            .map(|mode| text(mode, "/type"))
            .collect();
        if modes.is_empty() {
            bail!("the base supports none of spec.installModes; support at least {ALL_NAMESPACES}");
        }
        Ok(Self {
            limits_namespaces: modes.iter().any(|mode| *mode != ALL_NAMESPACES),
        })
    }

    /// Kinds without a namespace have their releases in a namespace that may not be watched.
    fn check(&self, crds: &[Value]) -> anyhow::Result<()> {
        let cluster_scoped = crds
            .iter()
            .find(|crd| text(crd, "/spec/scope") == "Cluster");
        match cluster_scoped {
            Some(crd) if self.limits_namespaces => bail!(
                "{} is cluster-scoped, so the operator cannot be limited to namespaces; support only {ALL_NAMESPACES} in spec.installModes of the base",
                name(crd)
            ),
            _ => Ok(()),
        }
    }

    /// Lets OLM say which namespaces the operator watches.
    fn apply(&self, container: &mut Value) {
        let is_operator = text(container, "/name") == "manager";
        let Some(container) = container.as_object_mut() else {
            return;
        };
        let variables = container.entry("env").or_insert_with(|| json!([]));
        let Some(variables) = variables.as_array_mut() else {
            return;
        };
        let from_olm = json!({
            "name": WATCH_NAMESPACE,
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}},
        });
        match variables
            .iter_mut()
            .find(|variable| text(variable, "/name") == WATCH_NAMESPACE)
        {
            Some(present) => *present = from_olm,
            None if self.limits_namespaces && is_operator => variables.push(from_olm),
            None => {}
        }
        if variables.is_empty() {
            container.remove("env");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let container = json!({"name": "manager", "image": "example.com/shop:v1",
            "env": [{"name": "RELATED_IMAGE_DB_SERVER", "value": "db:16"}]});
        Parts {
            deployments: vec![
                json!({"kind": "Deployment", "metadata": {"name": "shop-manager", "labels": {"a": "b"}},
                "spec": {"template": {"spec": {"serviceAccountName": "shop", "containers": [container]}}}}),
            ],
            permissions: BTreeMap::from([("shop".to_owned(), vec![json!({"verbs": ["get"]})])]),
            crds: vec![
                json!({"metadata": {"name": "shops.example.com"}, "spec": {"scope": "Namespaced",
                "names": {"kind": "Shop"}, "versions": [{"name": "v1", "served": true}]}}),
            ],
            examples: vec![json!({"kind": "Shop", "apiVersion": "example.com/v1"})],
            ..Parts::default()
        }
    }

    fn made(base: &Value, change: impl FnOnce(&mut Release)) -> anyhow::Result<Value> {
        made_as("0.1.0", base, change)
    }

    fn made_as(
        version: &str,
        base: &Value,
        change: impl FnOnce(&mut Release),
    ) -> anyhow::Result<Value> {
        let mut release = Release {
            package: "shop",
            version: &Version::parse(version).unwrap(),
            image: None,
            digests: false,
            replaces: None,
            skip_range: None,
            layout: "hybrid",
        };
        change(&mut release);
        csv(&parts(), base, &release)
    }

    fn new_base() -> Value {
        go_yaml::from_str(&base("shop")).unwrap()
    }

    #[test]
    fn the_install_strategy_images_and_examples_are_those_of_the_project() {
        let csv = made(&new_base(), |release| {
            release.image = Some("example.com/shop:v2");
            release.replaces = Some("shop.v0.0.9");
            release.skip_range = Some("<0.1.0");
        })
        .unwrap();
        assert_eq!(csv["metadata"]["name"], "shop.v0.1.0");
        assert_eq!(csv["spec"]["version"], "0.1.0");
        assert_eq!(csv["spec"]["replaces"], "shop.v0.0.9");
        let annotations = &csv["metadata"]["annotations"];
        assert_eq!(annotations["olm.skipRange"], "<0.1.0");
        assert_eq!(annotations["containerImage"], "example.com/shop:v2");
        assert_eq!(annotations["capabilities"], "Basic Install");
        let examples = annotations["alm-examples"].as_str().unwrap();
        assert!(examples.contains("\"kind\": \"Shop\""), "{examples}");
        let strategy = &csv["spec"]["install"]["spec"];
        assert_eq!(strategy["deployments"][0]["name"], "shop-manager");
        assert_eq!(strategy["deployments"][0]["label"]["a"], "b");
        let pod = &strategy["deployments"][0]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "example.com/shop:v2");
        assert_eq!(strategy["permissions"][0]["serviceAccountName"], "shop");
        assert_eq!(strategy.get("clusterPermissions"), None);
        let images = json!([{"name": "manager", "image": "example.com/shop:v2"},
            {"name": "db-server", "image": "db:16"}]);
        assert_eq!(csv["spec"]["relatedImages"], images);
        // All namespaces: the operator is not limited.
        assert_eq!(pod["containers"][0]["env"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_mode_with_namespaces_limits_the_operator_to_those_that_olm_names() {
        let mut base = new_base();
        base["spec"]["installModes"][0]["supported"] = json!(true);
        let csv = made(&base, |_| ()).unwrap();
        let deployment = &csv["spec"]["install"]["spec"]["deployments"][0];
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][1]["name"], "WATCH_NAMESPACE");
        let path = &container["env"][1]["valueFrom"]["fieldRef"]["fieldPath"];
        assert_eq!(path, "metadata.annotations['olm.targetNamespaces']");
    }

    #[test]
    fn what_would_not_hold_is_refused() {
        let refused = |base: &Value, change: &dyn Fn(&mut Release)| {
            made(base, change).unwrap_err().to_string()
        };
        let message = refused(&new_base(), &|release| release.digests = true);
        assert!(message.contains("example.com/shop:v1, db:16"), "{message}");
        let mut base = new_base();
        base["spec"]["installModes"][3]["supported"] = json!(false);
        assert!(refused(&base, &|_| ()).contains("support at least AllNamespaces"));
        let mut base = new_base();
        base["spec"]["webhookdefinitions"] = json!([{"type": "ValidatingAdmissionWebhook"}]);
        assert!(refused(&base, &|_| ()).contains("called twice"));
        assert!(refused(&json!({"kind": "Pod"}), &|_| ()).contains("\"Pod\""));
        let built = made_as("1.0.0+build", &new_base(), |_| ());
        let message = built.unwrap_err().to_string();
        assert!(message.contains("leave out \"+build\""), "{message}");
        let mut modes = Modes {
            limits_namespaces: true,
        };
        let cluster =
            [json!({"metadata": {"name": "shops.example.com"}, "spec": {"scope": "Cluster"}})];
        let message = modes.check(&cluster).unwrap_err().to_string();
        let why = "shops.example.com is cluster-scoped";
        assert!(message.contains(why), "{message}");
        modes.limits_namespaces = false;
        modes.check(&cluster).unwrap();
    }
}
