//! The CRD of a kind that charts serve.

use std::cmp::Reverse;

use anyhow::{Context as _, anyhow};
use hybrid_operator::native::CATEGORY;
use hybrid_operator::watches::{Api, Outputs, PatchesFrom};
use serde_json::{Map, Value, json};

use super::ChartApi;
use super::schema::{self, Strictness, structural};

/// Names and scope of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "the name of the field in a CRD")]
pub(crate) struct Names {
    /// Plural name in lower case.
    pub(crate) plural: String,
    /// Whether custom resources are in a namespace.
    pub(crate) namespaced: bool,
    /// Singular name, if it is not the kind in lower case.
    pub(crate) singular: Option<String>,
    /// Short names for kubectl.
    pub(crate) short_names: Vec<String>,
    /// Groups such as `all` for kubectl.
    pub(crate) categories: Vec<String>,
    /// The version that is stored, if that has been decided.
    pub(crate) stored: Option<String>,
}

impl Names {
    /// Returns the names that the caller has decided.
    pub(crate) fn of(api: &ChartApi) -> Self {
        Self {
            plural: api.plural.to_owned(),
            namespaced: api.namespaced,
            singular: None,
            short_names: Vec::new(),
            categories: Vec::new(),
            stored: None,
        }
    }

    /// Reads the names of an existing CRD, if it is that of the kind.
    pub(crate) fn of_definition(crd: &Value, group: &str, kind: &str) -> Option<Self> {
        let spec = crd.get("spec")?;
        let names = spec.get("names")?;
        if spec.get("group")?.as_str()? != group || names.get("kind")?.as_str()? != kind {
            return None;
        }
        let list = |name: &str| {
            let texts = names.get(name).and_then(Value::as_array);
            let texts = texts.into_iter().flatten().filter_map(Value::as_str);
            texts.map(ToOwned::to_owned).collect()
        };
        let versions = spec.get("versions").and_then(Value::as_array);
        let stored = versions.into_iter().flatten().find(|version| {
            let stored = version.get("storage").and_then(Value::as_bool);
            stored.unwrap_or_default()
        });
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
        Some(Self {
            plural: text(names.get("plural"))?,
            namespaced: spec.get("scope").and_then(Value::as_str) != Some("Cluster"),
            singular: text(names.get("singular")),
            short_names: list("shortNames"),
            categories: list("categories"),
            stored: text(stored.and_then(|version| version.get("name"))),
        })
    }
}

/// A version of a kind.
pub(crate) struct Version {
    name: String,
    description: String,
    spec: Value,
    /// Schemas of fields of the status.
    status: Map<String, Value>,
    /// Columns of `kubectl get`, beside those that all kinds have.
    columns: Vec<Value>,
}

impl Version {
    /// Returns the version that a chart serves.
    pub(crate) fn of_chart(api: &ChartApi, strictness: Strictness) -> anyhow::Result<Self> {
        let mut values = schema::of_chart(api.chart, strictness)?;
        let (chart, version) = (api.chart.name(), &api.chart.metadata().version);
        values.text = Some(format!(
            "Values of the chart {chart} {version}. What is left out has the chart's default; null removes a default."
        ));
        Ok(Self {
            name: api.version.to_owned(),
            description: format!(
                "{} is a release of the chart {chart}; its spec holds the chart's values.",
                api.kind
            ),
            spec: structural::spec(&values),
            status: Map::new(),
            columns: Vec::new(),
        })
    }

    /// Returns the version whose spec has fields of its own.
    pub(crate) fn of_spec(api: &ChartApi, spec: &Api) -> Self {
        Self {
            name: api.version.to_owned(),
            description: format!(
                "{} is a release of the chart {}.",
                api.kind,
                api.chart.name()
            ),
            spec: spec.schema.clone(),
            status: Map::new(),
            columns: Vec::new(),
        }
    }

    /// Adds the list of patches to the spec.
    pub(crate) fn with_patches(mut self, from: &PatchesFrom) -> anyhow::Result<Self> {
        let in_the_way = || {
            let place = from.place();
            anyhow!(
                "patchesFrom: the schema of the spec has no room for {place}; choose another path"
            )
        };
        let mut schema = &mut self.spec;
        for name in &from.path {
            let object = schema.as_object_mut().ok_or_else(in_the_way)?;
            if object.get("type") != Some(&json!("object"))
                || object.contains_key("additionalProperties")
            {
                return Err(in_the_way());
            }
            let properties = object.entry("properties").or_insert_with(|| json!({}));
            let properties = properties.as_object_mut().ok_or_else(in_the_way)?;
            schema = properties
                .entry(name)
                .or_insert_with(|| json!({"type": "object"}));
        }
        if *schema != json!({"type": "object"}) {
            return Err(in_the_way());
        }
        *schema = from.schema();
        Ok(self)
    }

    /// Adds the fields of the status that the watches file defines, and the columns.
    #[must_use]
    pub(crate) fn with_outputs(mut self, outputs: &Outputs) -> Self {
        let fields = outputs.status.iter();
        self.status = fields
            .map(|(name, expression)| (name.clone(), expression.result().schema()))
            .collect();
        let columns = outputs.columns.iter().map(|(title, path)| {
            let field = path.strip_prefix(".status.");
            let schema = field.and_then(|field| self.status.get(field));
            column(title, column_type(schema), path)
        });
        self.columns = columns.collect();
        self
    }
}

/// The CRD of a kind.
pub(crate) struct Definition {
    group: String,
    kind: String,
    names: Names,
    versions: Vec<Version>,
}

impl Definition {
    /// Creates a CRD without versions.
    pub(crate) fn new(group: &str, kind: &str, names: Names) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            names,
            versions: Vec::new(),
        }
    }

    #[must_use]
    pub(crate) fn version(mut self, version: Version) -> Self {
        self.versions.push(version);
        self.versions
            .sort_by_cached_key(|version| Reverse(priority(&version.name)));
        self
    }

    pub(crate) fn file_name(&self) -> String {
        format!("{}_{}.yaml", self.group, self.names.plural)
    }

    /// Returns the CRD as YAML, and a message if it had to be cut to be below `limit` bytes.
    pub(crate) fn to_yaml(&self, limit: usize) -> anyhow::Result<(String, Option<String>)> {
        let mut crd = self.to_json();
        let cut = schema::cut(&mut crd, limit).map(|what| {
            format!(
                "CRD of {}: the chart's values are many; to stay below {} KiB, the limit of 'kubectl apply', {what}",
                self.kind,
                limit / 1024
            )
        });
        let yaml = go_yaml::to_string(&crd)
            .with_context(|| format!("cannot write the CRD of {}", self.kind))?;
        Ok((yaml, cut))
    }

    fn to_json(&self) -> Value {
        let singular = self.kind.to_ascii_lowercase();
        let mut names = Map::new();
        names.insert("kind".to_owned(), json!(self.kind));
        names.insert("listKind".to_owned(), json!(format!("{}List", self.kind)));
        names.insert("plural".to_owned(), json!(self.names.plural));
        let singular = self.names.singular.as_ref().unwrap_or(&singular);
        names.insert("singular".to_owned(), json!(singular));
        if !self.names.short_names.is_empty() {
            names.insert("shortNames".to_owned(), json!(self.names.short_names));
        }
        // The commands for a cluster find the kind by it.
        let mut categories = self.names.categories.clone();
        if !categories.iter().any(|category| category == CATEGORY) {
            categories.push(CATEGORY.to_owned());
        }
        names.insert("categories".to_owned(), json!(categories));
        // The newest of the most stable versions, unless objects are stored in another already.
        let earlier = self.names.stored.as_ref();
        let stored = earlier
            .filter(|stored| self.versions.iter().any(|v| v.name == **stored))
            .or(self.versions.first().map(|version| &version.name));
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| version.to_json(stored == Some(&version.name)))
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.names.plural, self.group)},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": if self.names.namespaced { "Namespaced" } else { "Cluster" },
                "versions": versions,
            },
        })
    }
}

impl Version {
    fn to_json(&self, stored: bool) -> Value {
        let mut columns = vec![
            column(
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            column("Release", "string", ".status.release.name"),
            column("Revision", "integer", ".status.release.revision"),
            column("Chart", "string", ".status.release.chartVersion"),
        ];
        columns.extend(self.columns.iter().cloned());
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
        let mut status = json!({
            "description": "Observed state of the release.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
        });
        if let Value::Object(status) = &mut status
            && !self.status.is_empty()
        {
            status.insert("properties".to_owned(), json!(self.status));
        }
        json!({
            "name": self.name,
            "served": true,
            "storage": stored,
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": {
                "description": self.description,
                "type": "object",
                "properties": {
                    "apiVersion": {
                        "description": "Version of the schema of this object.",
                        "type": "string",
                    },
                    "kind": {"description": "Kind of this object.", "type": "string"},
                    "metadata": {"type": "object"},
                    "spec": self.spec,
                    "status": status,
                },
            }},
        })
    }
}

fn column(title: &str, kind: &str, path: &str) -> Value {
    json!({"name": title, "type": kind, "jsonPath": path})
}

/// Returns the type of the column of a field.
fn column_type(schema: Option<&Value>) -> &'static str {
    let text = |name: &str| schema.and_then(|schema| schema.get(name)?.as_str());
    match (text("type"), text("format")) {
        (Some("integer"), _) => "integer",
        (Some("number"), _) => "number",
        (Some("boolean"), _) => "boolean",
        (Some("string"), Some("date-time")) => "date",
        _ => "string",
    }
}

/// Orders versions as Kubernetes does: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then others.
fn priority(name: &str) -> (u8, u64, u64, Reverse<String>) {
    let parse = || {
        let rest = name.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit());
        let (major, rest) = rest.split_at(digits.unwrap_or(rest.len()));
        let major: u64 = major.parse().ok()?;
        for (stage, rank) in [("", 3), ("beta", 2), ("alpha", 1)] {
            match rest.strip_prefix(stage) {
                Some("") if stage.is_empty() => return Some((rank, major, 0)),
                Some(minor) if !stage.is_empty() => {
                    return Some((rank, major, minor.parse().ok()?));
                }
                _ => {}
            }
        }
        None
    };
    let (stability, major, minor) = parse().unwrap_or_default();
    (stability, major, minor, Reverse(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_stable_newest_version_comes_first() {
        let mut names = [
            "v1alpha1", "foo", "v1", "v10beta1", "v2", "v1beta2", "v1beta1",
        ];
        names.sort_by_cached_key(|name| Reverse(priority(name)));
        let expected = "v2 v1 v10beta1 v1beta2 v1beta1 v1alpha1 foo";
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn list_of_patches_is_added_where_the_schema_has_room() {
        let from = PatchesFrom {
            path: ["own", "patches"].map(ToOwned::to_owned).to_vec(),
            allow: Vec::new(),
        };
        let with = |spec: Value| {
            let version = Version {
                name: "v1".to_owned(),
                description: String::new(),
                spec,
                status: Map::new(),
                columns: Vec::new(),
            };
            version.with_patches(&from).map(|version| version.spec)
        };
        let size = json!({"type": "integer"});
        for room in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"own": {"type": "object", "properties": {"size": size}}}}),
        ] {
            let spec = with(room.clone()).unwrap();
            let own = spec.pointer("/properties/own/properties").unwrap();
            assert_eq!(own["patches"], from.schema());
            assert_eq!(own.get("size").is_some(), room != json!({"type": "object"}));
        }
        for full in [
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "properties": {"own": {"type": "string"}}}),
            json!({"type": "object", "properties": {"own": {"type": "object", "properties": {"patches": size}}}}),
        ] {
            let error = with(full).unwrap_err().to_string();
            assert!(error.contains("no room for spec.own.patches"), "{error}");
        }
    }

    #[test]
    fn names_scope_and_stored_version_of_an_existing_crd_are_kept() {
        let crd = json!({"spec": {"group": "a.example.com", "scope": "Cluster",
            "names": {"kind": "Ox", "plural": "oxen", "shortNames": ["o"],
                "categories": ["all"]},
            "versions": [{"name": "v1beta1", "storage": true}, {"name": "v1", "storage": false}]}});
        let names = Names::of_definition(&crd, "a.example.com", "Ox").unwrap();
        assert_eq!((names.plural.as_str(), names.namespaced), ("oxen", false));
        assert_eq!(Names::of_definition(&crd, "b.example.com", "Ox"), None);
        let version = |name: &str| Version {
            name: name.to_owned(),
            description: String::new(),
            spec: json!({}),
            status: Map::new(),
            columns: Vec::new(),
        };
        let definition = Definition::new("a.example.com", "Ox", names)
            .version(version("v1beta1"))
            .version(version("v1"));
        let versions = definition.to_json()["spec"]["versions"].clone();
        assert_eq!(versions[0]["name"], "v1");
        assert_eq!(versions[0]["storage"], false);
        assert_eq!(versions[1]["storage"], true);
        assert_eq!(definition.file_name(), "a.example.com_oxen.yaml");
        let json = definition.to_json();
        let names = &json["spec"]["names"];
        assert_eq!(names["shortNames"], json!(["o"]));
        assert_eq!(names["categories"], json!(["all", CATEGORY]));
    }
}
