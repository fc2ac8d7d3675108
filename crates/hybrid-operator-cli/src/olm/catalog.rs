//! File-based catalogs: the packages, channels and bundles that `opm` serves. Pure, but for reading
//! bundles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use data_encoding::BASE64;
use semver::Version;
use serde_json::{Map, Value, json};

use super::bundle::ANNOTATION;
use super::csv::SKIP_RANGE;
use super::validate::{annotations, load_bundle, metadata};
use super::{CRD, items, kind, name, text};

/// Information in the catalog about the objects of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Objects {
    /// The metadata of the `ClusterServiceVersion` (olm.csv.metadata)
    Metadata,
    /// All objects (olm.bundle.object), for versions of OLM that do not know the metadata
    Full,
}

/// A bundle of a catalog.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    package: String,
    name: String,
    channels: Vec<String>,
    default_channel: String,
    version: Version,
    /// Entry of a channel for the bundle.
    edge: Value,
    /// The object of the catalog.
    blob: Value,
    description: String,
    icon: Option<Value>,
}

/// Reads the bundle in a directory. In `image`, `{package}`, `{name}` and `{version}` are replaced.
pub(crate) fn read(directory: &Path, image: &str, objects: Objects) -> anyhow::Result<Entry> {
    let shown = directory.display();
    let (csv, manifests) = load_bundle(directory)
        .map_err(|finding| anyhow!("{shown} is not a bundle: {}", finding.message))?;
    let annotations = annotations(directory);
    let annotations =
        annotations.with_context(|| format!("{shown} has no metadata/annotations.yaml"))?;
    let annotation = |name: &str| {
        let value = annotations
            .get(format!("{ANNOTATION}{name}"))
            .and_then(Value::as_str);
        value.unwrap_or_default().trim().to_owned()
    };
    let channels = annotation("channels.v1");
    let channels: Vec<String> = channels
        .split(',')
        .map(|channel| channel.trim().to_owned())
        .filter(|channel| !channel.is_empty())
        .collect();
    let (package, bundle) = (annotation("package.v1"), name(&csv).to_owned());
    let Some(first) = channels
        .first()
        .filter(|_| !package.is_empty() && !bundle.is_empty())
    else {
        bail!(
            "{shown} lacks the name of its package, channels or bundle; 'hybrid-operator olm validate' says which"
        );
    };
    let default_channel =
        Some(annotation("channel.default.v1")).filter(|channel| !channel.is_empty());
    let default_channel = default_channel.unwrap_or_else(|| first.clone());
    let version = text(&csv, "/spec/version");
    let parsed = Version::parse(version)
        .with_context(|| format!("the version {version:?} of {shown} is not one such as 0.1.0"))?;
    let image = image
        .replace("{package}", &package)
        .replace("{name}", &bundle)
        .replace("{version}", version);

    let manifests: Vec<Value> = manifests.into_iter().map(|(_, object)| object).collect();
    let mut found = properties(&csv, &manifests, &metadata(directory), &package);
    match objects {
        Objects::Metadata => found.push(property("olm.csv.metadata", csv_metadata(&csv))),
        Objects::Full => found.extend(bundle_objects(&manifests)),
    }
    let mut blob = json!({
        "schema": "olm.bundle",
        "name": bundle,
        "package": package,
        "image": image,
        "properties": found,
    });
    let images = related_images(&csv, &image);
    if let (false, Some(fields)) = (images.is_empty(), blob.as_object_mut()) {
        fields.insert("relatedImages".to_owned(), images.into());
    }
    let icon = items(&csv, "/spec/icon").next().cloned();
    Ok(Entry {
        edge: edge(&csv),
        description: text(&csv, "/spec/description").to_owned(),
        version: parsed,
        name: bundle,
        package,
        channels,
        default_channel,
        blob,
        icon,
    })
}

/// Returns what a channel says of a bundle.
fn edge(csv: &Value) -> Value {
    let mut edge = json!({"name": name(csv)});
    let Some(fields) = edge.as_object_mut() else {
        return edge;
    };
    let replaces = text(csv, "/spec/replaces");
    let range = csv
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(SKIP_RANGE));
    let skips: Vec<Value> = items(csv, "/spec/skips").cloned().collect();
    if !replaces.is_empty() {
        fields.insert("replaces".to_owned(), json!(replaces));
    }
    if !skips.is_empty() {
        fields.insert("skips".to_owned(), skips.into());
    }
    if let Some(range) = range {
        fields.insert("skipRange".to_owned(), range.clone());
    }
    edge
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "callers make the value for this"
)]
fn property(kind: &str, value: Value) -> Value {
    json!({"type": kind, "value": value})
}

/// Returns the package, the kinds that a bundle provides and needs, and what its metadata adds, in the
/// order of opm.
fn properties(csv: &Value, manifests: &[Value], metadata: &[Value], package: &str) -> Vec<Value> {
    let gvk = |group: &str, version: &str, kind: &str| json!({"group": group, "kind": kind, "version": version});
    let mut found = Vec::new();
    let version = text(csv, "/spec/version");
    found.push(property(
        "olm.package",
        json!({"packageName": package, "version": version}),
    ));
    for crd in manifests.iter().filter(|object| kind(object) == CRD) {
        for version in items(crd, "/spec/versions") {
            let value = gvk(
                text(crd, "/spec/group"),
                text(version, "/name"),
                text(crd, "/spec/names/kind"),
            );
            found.push(property("olm.gvk", value));
        }
    }
    for (list, kind) in [("owned", "olm.gvk"), ("required", "olm.gvk.required")] {
        for api in items(csv, &format!("/spec/apiservicedefinitions/{list}")) {
            found.push(property(
                kind,
                gvk(
                    text(api, "/group"),
                    text(api, "/version"),
                    text(api, "/kind"),
                ),
            ));
        }
    }
    for crd in items(csv, "/spec/customresourcedefinitions/required") {
        let (_, group) = text(crd, "/name").split_once('.').unwrap_or_default();
        found.push(property(
            "olm.gvk.required",
            gvk(group, text(crd, "/version"), text(crd, "/kind")),
        ));
    }
    for file in metadata {
        for dependency in items(file, "/dependencies") {
            let value = dependency.get("value").cloned().unwrap_or_default();
            found.push(match text(dependency, "/type") {
                "olm.gvk" => property("olm.gvk.required", value),
                "olm.package" => property(
                    "olm.package.required",
                    json!({"packageName": text(&value, "/packageName"), "versionRange": text(&value, "/version")}),
                ),
                other => property(other, value),
            });
        }
        found.extend(items(file, "/properties").cloned());
    }
    sort(&mut found);
    found
}

/// Sorts properties by type and then by their text, and removes repetitions.
fn sort(properties: &mut Vec<Value>) {
    properties.sort_by_cached_key(|property| {
        let value = property.get("value").map(Value::to_string);
        (text(property, "/type").to_owned(), value)
    });
    properties.dedup();
}

/// Returns the value of olm.csv.metadata.
fn csv_metadata(csv: &Value) -> Value {
    let mut value = Map::new();
    let mut add = |field: &str, found: Option<&Value>| {
        let found = found.filter(|found| match found {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        });
        if let Some(found) = found {
            value.insert(field.to_owned(), found.clone());
        }
    };
    for (field, pointer) in [
        ("annotations", "/metadata/annotations"),
        ("crdDescriptions", "/spec/customresourcedefinitions"),
        ("description", "/spec/description"),
        ("displayName", "/spec/displayName"),
        ("installModes", "/spec/installModes"),
        ("keywords", "/spec/keywords"),
        ("labels", "/metadata/labels"),
        ("links", "/spec/links"),
        ("maintainers", "/spec/maintainers"),
        ("maturity", "/spec/maturity"),
        ("minKubeVersion", "/spec/minKubeVersion"),
        ("nativeAPIs", "/spec/nativeAPIs"),
        ("provider", "/spec/provider"),
    ] {
        add(field, csv.pointer(pointer));
    }
    // opm writes these even if they are empty.
    for (field, pointer) in [
        ("apiServiceDefinitions", "/spec/apiservicedefinitions"),
        ("crdDescriptions", "/spec/customresourcedefinitions"),
        ("provider", "/spec/provider"),
    ] {
        let found = csv.pointer(pointer).cloned().unwrap_or_else(|| json!({}));
        value.insert(field.to_owned(), found);
    }
    Value::Object(value)
}

/// Returns the objects as properties, which hold them as JSON in base64.
fn bundle_objects(manifests: &[Value]) -> Vec<Value> {
    let mut found: Vec<Value> = manifests
        .iter()
        .map(|object| {
            // As Go writes JSON.
            let json = object.to_string();
            let json = json
                .replace('<', "\\u003c")
                .replace('>', "\\u003e")
                .replace('&', "\\u0026");
            let json = json
                .replace('\u{2028}', "\\u2028")
                .replace('\u{2029}', "\\u2029");
            property(
                "olm.bundle.object",
                json!({"data": BASE64.encode(json.as_bytes())}),
            )
        })
        .collect();
    sort(&mut found);
    found
}

/// Returns the images that a mirror needs: those of the `ClusterServiceVersion`, of its Deployments, and
/// the bundle itself.
fn related_images(csv: &Value, bundle: &str) -> Vec<Value> {
    let mut images: Vec<(String, String)> = items(csv, "/spec/relatedImages")
        .map(|image| {
            (
                text(image, "/image").to_owned(),
                text(image, "/name").to_owned(),
            )
        })
        .collect();
    let mut seen: BTreeSet<String> = images.iter().map(|(image, _)| image.clone()).collect();
    let deployments: Vec<&Value> = items(csv, "/spec/install/spec/deployments").collect();
    let of_deployments = deployments.iter().flat_map(|deployment| {
        let containers = items(deployment, "/spec/template/spec/containers");
        let all = containers.chain(items(deployment, "/spec/template/spec/initContainers"));
        all.map(|container| text(container, "/image"))
    });
    for image in [bundle].into_iter().chain(of_deployments) {
        if !image.is_empty() && seen.insert(image.to_owned()) {
            images.push((image.to_owned(), String::new()));
        }
    }
    images.sort();
    images
        .into_iter()
        .map(|(image, name)| json!({"image": image, "name": name}))
        .collect()
}

/// A package of a catalog: its objects by schema and name.
#[derive(Debug, Default)]
#[allow(
    clippy::struct_field_names,
    reason = "these are the schemas of a catalog"
)]
pub(crate) struct Package {
    package: Option<Value>,
    channels: BTreeMap<String, Value>,
    bundles: BTreeMap<String, Value>,
    others: Vec<Value>,
}

impl Package {
    /// Reads the catalog of a package, if there is one.
    pub(crate) fn parse(catalog: &[u8]) -> anyhow::Result<Self> {
        let mut package = Self::default();
        let documents: Vec<Value> =
            go_yaml::documents(catalog).context("the catalog is not valid YAML")?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let name = text(&document, "/name").to_owned();
            match text(&document, "/schema") {
                "olm.package" => package.package = Some(document),
                "olm.channel" => drop(package.channels.insert(name, document)),
                "olm.bundle" => drop(package.bundles.insert(name, document)),
                _ => package.others.push(document),
            }
        }
        Ok(package)
    }

    /// Adds bundles, or replaces those of the same name. All must be of one package.
    pub(crate) fn add(&mut self, mut entries: Vec<Entry>) -> anyhow::Result<()> {
        entries.sort_by(|one, two| one.version.cmp(&two.version));
        for entry in &entries {
            self.bundles.insert(entry.name.clone(), entry.blob.clone());
            // It may have left a channel.
            for channel in self.channels.values_mut() {
                if let Some(list) = channel.get_mut("entries").and_then(Value::as_array_mut) {
                    list.retain(|present| text(present, "/name") != entry.name);
                }
            }
            for channel in &entry.channels {
                let object = self.channels.entry(channel.clone()).or_insert_with(|| {
                    json!({"schema": "olm.channel", "name": channel, "package": entry.package, "entries": []})
                });
                if let Some(list) = object.get_mut("entries").and_then(Value::as_array_mut) {
                    list.push(entry.edge.clone());
                }
            }
        }
        self.channels
            .retain(|_, channel| items(channel, "/entries").next().is_some());
        let versions = self.versions();
        for channel in self.channels.values_mut() {
            if let Some(list) = channel.get_mut("entries").and_then(Value::as_array_mut) {
                list.sort_by_cached_key(|entry| versions.get(text(entry, "/name")).cloned());
            }
        }
        // The newest bundle speaks for the package, unless it is older than what was there.
        let newest = versions.values().max();
        if let Some(entry) = entries
            .last()
            .filter(|entry| newest == Some(&entry.version) || self.package.is_none())
        {
            let mut package = json!({
                "schema": "olm.package",
                "name": entry.package,
                "defaultChannel": entry.default_channel,
            });
            if let Some(fields) = package.as_object_mut() {
                if !entry.description.is_empty() {
                    fields.insert("description".to_owned(), json!(entry.description));
                }
                if let Some(icon) = &entry.icon {
                    fields.insert("icon".to_owned(), icon.clone());
                }
            }
            self.package = Some(package);
        }
        self.check()
    }

    /// Returns the versions of the bundles by their names.
    fn versions(&self) -> BTreeMap<String, Version> {
        let version = |bundle: &Value| {
            let package = items(bundle, "/properties")
                .find(|property| text(property, "/type") == "olm.package")?;
            Version::parse(text(package, "/value/version")).ok()
        };
        let versions = self.bundles.iter();
        versions
            .filter_map(|(name, bundle)| Some((name.clone(), version(bundle)?)))
            .collect()
    }

    /// Checks what opm refuses to serve: the channels must lead to one bundle each.
    fn check(&self) -> anyhow::Result<()> {
        let default = self
            .package
            .as_ref()
            .map(|package| text(package, "/defaultChannel"))
            .unwrap_or_default();
        if !self.channels.contains_key(default) {
            bail!(
                "the package has the default channel {default:?}, in which there is no bundle; name one of {}",
                self.channels.keys().cloned().collect::<Vec<_>>().join(", ")
            );
        }
        for (name, channel) in &self.channels {
            let entries: Vec<&Value> = items(channel, "/entries").collect();
            let left: BTreeSet<&str> = entries
                .iter()
                .flat_map(|entry| {
                    let skipped = items(entry, "/skips").filter_map(Value::as_str);
                    skipped.chain([text(entry, "/replaces")])
                })
                .collect();
            let heads: Vec<&str> = entries
                .iter()
                .map(|entry| text(entry, "/name"))
                .filter(|entry| !left.contains(entry))
                .collect();
            match heads.as_slice() {
                [_] => {}
                [] => bail!(
                    "the bundles of the channel {name} replace each other in a circle; correct spec.replaces"
                ),
                several => bail!(
                    "the channel {name} has several newest bundles: {}; say which replaces which, with --replaces of 'olm bundle' or spec.skips",
                    several.join(", ")
                ),
            }
            if let Some(missing) = entries
                .iter()
                .find(|entry| !self.bundles.contains_key(text(entry, "/name")))
            {
                bail!(
                    "the channel {name} has {}, which is none of the bundles; add its directory",
                    text(missing, "/name")
                );
            }
        }
        Ok(())
    }

    /// Returns the catalog as opm writes it.
    pub(crate) fn to_yaml(&self) -> anyhow::Result<String> {
        let all = self
            .package
            .iter()
            .chain(self.channels.values())
            .chain(self.bundles.values())
            .chain(&self.others);
        let mut catalog = String::new();
        for object in all {
            catalog.push_str("---\n");
            catalog.push_str(&go_yaml::to_string(object).context("cannot write the catalog")?);
        }
        Ok(catalog)
    }
}

/// Returns the packages that entries are of.
pub(crate) fn by_package(entries: Vec<Entry>) -> BTreeMap<String, Vec<Entry>> {
    let mut packages: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        packages
            .entry(entry.package.clone())
            .or_default()
            .push(entry);
    }
    packages
}

/// Returns the Dockerfile of a catalog in a directory beside it.
pub(crate) fn dockerfile(directory: &str, opm: &str) -> String {
    format!(
        "\
# The first stage fills the cache, so that the catalog is served at once.
FROM {opm} AS cache
COPY {directory} /configs
RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]

FROM {opm}
COPY --from=cache /configs /configs
COPY --from=cache /tmp/cache /tmp/cache
# Where opm and other tools find the catalog.
LABEL operators.operatorframework.io.index.configs.v1=/configs
ENTRYPOINT [\"/bin/opm\"]
CMD [\"serve\", \"/configs\", \"--cache-dir=/tmp/cache\"]
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: &str, mut edge: Value) -> Entry {
        let name = format!("shop.v{version}");
        edge["name"] = json!(name);
        Entry {
            package: "shop".to_owned(),
            channels: vec!["stable".to_owned()],
            default_channel: "stable".to_owned(),
            version: Version::parse(version).unwrap(),
            edge,
            blob: json!({"schema": "olm.bundle", "name": name, "properties":
                [{"type": "olm.package", "value": {"packageName": "shop", "version": version}}]}),
            description: format!("Shop {version}."),
            icon: None,
            name,
        }
    }

    fn names(package: &Package) -> Vec<String> {
        let entries = items(&package.channels["stable"], "/entries");
        entries
            .map(|entry| text(entry, "/name").to_owned())
            .collect()
    }

    #[test]
    fn bundles_are_added_to_those_of_the_catalog_and_channels_are_in_the_order_of_versions() {
        let mut package = Package::default();
        let second = entry("0.10.0", json!({"replaces": "shop.v0.9.0"}));
        let first = entry("0.9.0", json!({}));
        package.add(vec![second, first.clone()]).unwrap();
        let written = package.to_yaml().unwrap();
        let mut package = Package::parse(written.as_bytes()).unwrap();
        let edge = json!({"replaces": "shop.v0.9.0", "skips": ["shop.v0.10.0"]});
        let third = entry("0.11.0", edge);
        package.add(vec![third.clone()]).unwrap();
        let expected = ["shop.v0.9.0", "shop.v0.10.0", "shop.v0.11.0"];
        assert_eq!(names(&package), expected);
        let description =
            |package: &Package| package.package.clone().unwrap()["description"].clone();
        assert_eq!(description(&package), "Shop 0.11.0.");
        // An older one does not change what the package says.
        package.add(vec![first]).unwrap();
        assert_eq!(description(&package), "Shop 0.11.0.");
        let once = package.to_yaml().unwrap();
        package.add(vec![third]).unwrap();
        assert_eq!(package.to_yaml().unwrap(), once);
    }

    #[test]
    fn a_channel_without_a_single_newest_bundle_is_refused() {
        let mut package = Package::default();
        let error = package.add(vec![entry("0.1.0", json!({})), entry("0.2.0", json!({}))]);
        let message = error.unwrap_err().to_string();
        assert!(message.contains("shop.v0.1.0, shop.v0.2.0"), "{message}");
        let circle = vec![
            entry("0.1.0", json!({"replaces": "shop.v0.2.0"})),
            entry("0.2.0", json!({"replaces": "shop.v0.1.0"})),
        ];
        let message = Package::default().add(circle).unwrap_err().to_string();
        assert!(message.contains("in a circle"), "{message}");
        let mut lost = entry("0.1.0", json!({}));
        lost.default_channel = "fast".to_owned();
        let message = Package::default().add(vec![lost]).unwrap_err().to_string();
        assert!(message.contains("name one of stable"), "{message}");
    }
}
