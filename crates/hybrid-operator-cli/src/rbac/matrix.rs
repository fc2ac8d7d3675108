//! The combinations of values and capabilities with which a chart is rendered to find the kinds
//! that it can contain.
//!
//! Most kinds depend on one switch, so each switch is turned alone, from the defaults and from
//! everything turned on. Combinations are in order of their use: if there are more than
//! [`MAX_RENDERS`], the last are left out.

use std::collections::{BTreeMap, BTreeSet};

use helm_core::chart::Chart;
use helm_core::{CompiledChart, Values};
use serde_json::{Map, Value, json};

use crate::template_source::{Action, TemplateFile, TokenKind};

/// Maximum number of renders of a chart.
pub(crate) const MAX_RENDERS: usize = 600;

/// Which API versions the cluster of a render serves beyond those of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apis {
    /// None.
    BuiltIn,
    /// All that the templates ask for.
    All,
}

/// One render of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Combination {
    /// How a person would ask for it, such as `--set autoscaling.enabled=true`.
    pub(crate) label: String,
    /// The user's values.
    pub(crate) values: Values,
    /// API versions of the cluster.
    pub(crate) apis: Apis,
    /// Whether the release is upgraded instead of installed.
    pub(crate) is_upgrade: bool,
    /// Version of Kubernetes, if not the newest known.
    pub(crate) kube_version: Option<&'static str>,
}

/// A path of values.
type Path = Vec<String>;

/// What the templates do with values.
#[derive(Debug, Default)]
struct Uses {
    /// Names of fields that are read anywhere.
    named: BTreeSet<String>,
    /// Names of fields that conditions read.
    gates: BTreeSet<String>,
    /// Constants that paths are compared with.
    compared: BTreeMap<Path, BTreeSet<String>>,
}

/// Returns the combinations for a chart, at most [`MAX_RENDERS`], and how many were left out.
/// `given` are values files with their names.
pub(crate) fn combinations(
    chart: &CompiledChart,
    templates: &[TemplateFile],
    given: &[(String, Values)],
) -> (Vec<Combination>, usize) {
    let uses = Uses::of(templates);
    let dependencies = dependency_switches(chart.chart(), &[]);
    let mut all_dependencies = Values::new();
    for path in &dependencies {
        set(&mut all_dependencies, path, Value::Bool(true));
    }
    let tree = chart
        .coalesce_unchecked(all_dependencies.clone())
        .map(|values| values.values().clone())
        .unwrap_or_else(|_| chart.chart().values().clone());
    let mut leaves = Vec::new();
    leaves_of(&tree, &mut Vec::new(), &mut leaves);
    let booleans: Vec<(&Path, bool)> = leaves
        .iter()
        .filter_map(|(path, value)| Some((path, value.as_bool()?)))
        .filter(|(path, _)| path.last().is_some_and(|name| uses.named.contains(name)))
        .collect();
    let mut enabled = all_dependencies.clone();
    let mut everything = all_dependencies.clone();
    for (path, _) in &booleans {
        set(&mut everything, path, Value::Bool(true));
        if path.last().is_some_and(|name| is_switch(name)) {
            set(&mut enabled, path, Value::Bool(true));
        }
    }

    let mut list = List::default();
    list.add("defaults", Values::new());
    for (name, values) in given {
        list.add(format!("--values {name}"), values.clone());
    }
    list.add("every switch named enabled or create on", enabled.clone());
    list.add("every boolean on", everything);
    for values in [Values::new(), enabled.clone()] {
        list.add_variants(&values);
    }
    if !dependencies.is_empty() {
        list.add("every dependency on", all_dependencies);
    }
    for path in &dependencies {
        list.add_set(&Values::new(), path, Value::Bool(true));
    }
    for (path, value) in &booleans {
        list.add_set(&Values::new(), path, Value::Bool(!value));
    }
    for (path, constants) in &uses.compared {
        for constant in constants {
            list.add_set(&enabled, path, constant.as_str().into());
            list.add_set(&Values::new(), path, constant.as_str().into());
        }
    }
    for (path, value) in enums(chart.chart()) {
        list.add_set(&enabled, &path, value);
    }
    for (path, _) in &booleans {
        list.add_set(&enabled, path, Value::Bool(false));
    }
    let schema = schema(chart.chart());
    for (path, value) in &leaves {
        let is_gate = path.last().is_some_and(|name| uses.gates.contains(name));
        for fill in fills(value, schema_at(&schema, &schema, path)) {
            if is_gate {
                list.add_set(&enabled, path, fill);
            }
        }
    }
    list.finish()
}

/// Combinations without duplicates.
#[derive(Default)]
struct List {
    combinations: Vec<Combination>,
    seen: BTreeSet<String>,
    left_out: usize,
}

impl List {
    fn add(&mut self, label: impl Into<String>, values: Values) {
        self.push(Combination {
            label: label.into(),
            values,
            apis: Apis::All,
            is_upgrade: false,
            kube_version: None,
        });
    }

    /// Adds `base` with another value.
    fn add_set(&mut self, base: &Values, path: &[String], value: Value) {
        let mut values = base.clone();
        let text = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut label = format!("--set {}={text}", path.join("."));
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            label = format!("--set-json {}={text}", path.join("."));
        }
        if !base.is_empty() {
            label.push_str(" with every switch on");
        }
        set(&mut values, path, value);
        self.add(label, values);
    }

    /// Adds values with other clusters and as an upgrade.
    fn add_variants(&mut self, values: &Values) {
        let on = if values.is_empty() {
            ""
        } else {
            " with every switch on"
        };
        let new = |label: &str| Combination {
            label: format!("{label}{on}"),
            values: values.clone(),
            apis: Apis::All,
            is_upgrade: false,
            kube_version: None,
        };
        self.push(Combination {
            apis: Apis::BuiltIn,
            ..new("only Kubernetes' own APIs")
        });
        self.push(Combination {
            is_upgrade: true,
            ..new("--is-upgrade")
        });
        self.push(Combination {
            kube_version: Some("1.27.0"),
            ..new("--kube-version 1.27.0")
        });
    }

    fn push(&mut self, combination: Combination) {
        let Combination {
            values,
            apis,
            is_upgrade,
            kube_version,
            ..
        } = &combination;
        let values = Value::Object(values.clone()).to_string();
        let key = format!("{apis:?} {is_upgrade} {kube_version:?} {values}");
        if !self.seen.insert(key) {
            return;
        }
        if self.combinations.len() < MAX_RENDERS {
            self.combinations.push(combination);
        } else {
            self.left_out += 1;
        }
    }

    fn finish(self) -> (Vec<Combination>, usize) {
        (self.combinations, self.left_out)
    }
}

impl Uses {
    fn of(templates: &[TemplateFile]) -> Self {
        let mut uses = Self::default();
        for file in templates {
            for action in &file.source.actions {
                uses.add(action, &file.values_path);
            }
        }
        uses
    }

    fn add(&mut self, action: &Action, prefix: &[String]) {
        for token in &action.tokens {
            for field in token.fields() {
                self.named.insert(field.to_owned());
                if action.is_condition() {
                    self.gates.insert(field.to_owned());
                }
            }
        }
        for (call, arguments) in action.calls() {
            if !matches!(call.text.as_str(), "eq" | "ne" | "has" | "contains") {
                continue;
            }
            let near = arguments.iter().take(4);
            let path = near.clone().find_map(|token| token.values_path());
            let text = near.clone().find(|token| token.kind == TokenKind::Text);
            if let (Some(path), Some(text)) = (path, text) {
                let path = prefix.iter().cloned().chain(path).collect();
                let constants = self.compared.entry(path).or_default();
                constants.insert(text.text.clone());
            }
        }
    }
}

/// Returns whether a boolean of this name usually turns something on.
fn is_switch(name: &str) -> bool {
    let name = name.to_lowercase();
    name.starts_with("enable") || name.ends_with("enabled") || name.contains("create")
}

/// Returns the paths that turn dependencies on: their conditions and tags.
fn dependency_switches(chart: &Chart, prefix: &[String]) -> Vec<Path> {
    let mut paths = Vec::new();
    for declared in &chart.metadata().dependencies {
        let conditions = declared.condition.split(',').map(str::trim);
        for condition in conditions.filter(|condition| !condition.is_empty()) {
            let parts = condition.split('.').map(ToOwned::to_owned);
            paths.push(prefix.iter().cloned().chain(parts).collect());
        }
        for tag in &declared.tags {
            paths.push(vec!["tags".to_owned(), tag.clone()]);
        }
        let is_it = |have: &&Chart| have.name() == declared.name;
        if let Some(dependency) = chart.dependencies().iter().find(is_it) {
            let name = match declared.alias.as_str() {
                "" => &declared.name,
                alias => alias,
            };
            let prefix: Path = prefix.iter().cloned().chain([name.to_owned()]).collect();
            paths.extend(dependency_switches(dependency, &prefix));
        }
    }
    paths
}

/// Sets a value; maps are created on the way.
fn set(values: &mut Values, path: &[String], value: Value) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let mut map = values;
    for name in above {
        let next = map.entry(name.clone()).or_insert_with(|| json!({}));
        if !next.is_object() {
            *next = json!({});
        }
        let Value::Object(next) = next else { return };
        map = next;
    }
    map.insert(last.clone(), value);
}

/// Collects the values that are not maps, and empty maps.
fn leaves_of(map: &Map<String, Value>, path: &mut Path, leaves: &mut Vec<(Path, Value)>) {
    for (name, value) in map {
        path.push(name.clone());
        match value {
            Value::Object(map) if !map.is_empty() => leaves_of(map, path, leaves),
            value => leaves.push((path.clone(), value.clone())),
        }
        path.pop();
    }
}

/// Returns what an empty value may be filled with.
fn fills(value: &Value, schema: Option<&Value>) -> Vec<Value> {
    let object = json!({
        "name": "example", "host": "example.com", "hosts": ["example.com"],
        "secretName": "example", "key": "example", "value": "example", "path": "/",
        "pathType": "Prefix", "port": 80, "containerPort": 80, "mountPath": "/example",
    });
    let list = || vec![json!(["example"]), json!([object])];
    let map = || json!({"example": "example"});
    match value {
        Value::Array(items) if items.is_empty() => {
            let items = schema
                .and_then(|schema| schema.pointer("/items/type"))
                .and_then(Value::as_str);
            match items {
                Some("object") => vec![json!([object])],
                Some("string") => vec![json!(["example"])],
                _ => list(),
            }
        }
        Value::Object(map_value) if map_value.is_empty() => vec![map()],
        Value::String(text) if text.is_empty() => vec!["example".into()],
        Value::Null => {
            let type_ = schema
                .and_then(|schema| schema.get("type"))
                .and_then(Value::as_str);
            match type_ {
                Some("array") => list(),
                Some("object") => vec![map()],
                Some("boolean") => vec![true.into()],
                Some("integer" | "number") => vec![1.into()],
                _ => vec![true.into(), "example".into(), map()],
            }
        }
        Value::Number(number) if number.as_f64() == Some(0.0) => vec![1.into()],
        _ => Vec::new(),
    }
}

fn schema(chart: &Chart) -> Value {
    let file = chart.schema();
    file.and_then(|file| serde_json::from_slice(file.data()).ok())
        .unwrap_or_default()
}

/// Follows `$ref` within a schema.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let mut schema = schema;
    for _ in 0..8 {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| reference.strip_prefix('#'));
        match target.and_then(|pointer| root.pointer(pointer)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Returns the schema of a path.
fn schema_at<'s>(root: &'s Value, schema: &'s Value, path: &[String]) -> Option<&'s Value> {
    let mut schema = resolved(root, schema);
    for name in path {
        schema = resolved(root, schema.get("properties")?.get(name)?);
    }
    Some(schema)
}

/// Returns the values of every `enum` of the chart's schema.
fn enums(chart: &Chart) -> Vec<(Path, Value)> {
    let schema = schema(chart);
    let mut found = Vec::new();
    enums_below(&schema, &schema, &mut Vec::new(), &mut found);
    found
}

fn enums_below(root: &Value, schema: &Value, path: &mut Path, found: &mut Vec<(Path, Value)>) {
    if path.len() > 16 {
        return;
    }
    let schema = resolved(root, schema);
    let values = schema.get("enum").and_then(Value::as_array);
    for value in values.into_iter().flatten() {
        found.push((path.clone(), value.clone()));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name.clone());
        enums_below(root, property, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use helm_core::chart::File;

    use super::*;
    use crate::template_source::templates;

    fn labels(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| File::new(*name, text));
        let metadata = File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
        let chart = Chart::from_files(files.chain([metadata])).unwrap();
        let compiled = CompiledChart::compile(&chart).unwrap();
        let (found, left_out) = combinations(&compiled, &templates(&chart), &[]);
        assert_eq!(left_out, 0);
        found.into_iter().map(|found| found.label).collect()
    }

    #[test]
    fn each_kind_of_switch_is_turned() {
        let found = labels(&[
            ("values.yaml", "a: {enabled: false}\nlist: []\nmode: x\nname: ''\nraw: {deep: true}\n"),
            (
                "values.schema.json",
                r##"{"properties": {"mode": {"$ref": "#/definitions/mode"}},
                     "definitions": {"mode": {"enum": ["x", "y"]}}}"##,
            ),
            (
                "templates/a.yaml",
                "{{ if .Values.a.enabled }}{{ end }}{{ with .Values.list }}{{ end }}\
                 {{ if eq .Values.mode \"z\" }}{{ end }}{{ .Values.name }}{{ toYaml .Values.raw }}",
            ),
        ]);
        for wanted in [
            "defaults",
            "--set a.enabled=true",
            "--set mode=y with every switch on",
            "--set mode=z with every switch on",
            "--set-json list=[\"example\"] with every switch on",
            "--is-upgrade",
        ] {
            assert!(found.iter().any(|label| label == wanted), "{wanted}: {found:#?}");
        }
        // No template names this boolean, and no condition reads this string.
        for unwanted in ["raw.deep", "name="] {
            assert!(!found.iter().any(|label| label.contains(unwanted)), "{found:#?}");
        }
    }

    #[test]
    fn the_number_of_combinations_is_limited() {
        let mut values = String::new();
        let mut template = String::new();
        for index in 0..MAX_RENDERS {
            values.push_str(&format!("a{index}: false\n"));
            template.push_str(&format!("{{{{ if .Values.a{index} }}}}{{{{ end }}}}"));
        }
        let chart = Chart::from_files([
            File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n"),
            File::new("values.yaml", &values),
            File::new("templates/a.yaml", &template),
        ])
        .unwrap();
        let compiled = CompiledChart::compile(&chart).unwrap();
        let (found, left_out) = combinations(&compiled, &templates(&chart), &[]);
        assert_eq!(found.len(), MAX_RENDERS);
        assert!(left_out > 0);
    }
}
