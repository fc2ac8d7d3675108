//! The combinations of values and capabilities with which a chart is rendered to find the kinds
//! that it can contain.
//!
//! Most kinds depend on one switch, so each switch is turned alone, from the defaults and from
//! everything turned on. Combinations are in order of their use: if there are more than
//! [`MAX_RENDERS`], the last are left out.

use std::collections::BTreeMap;

use helm_core::chart::Chart;
use helm_core::{CompiledChart, Values};
use serde_json::{Map, Value, json};

use super::gates::{Gates, Path};
use crate::template_source::TemplateFile;

/// Maximum number of renders of a chart.
pub(crate) const MAX_RENDERS: usize = 300;

/// Maximum number of renders that find out which switches can be on together.
const MAX_TRIALS: usize = 40;

/// Value of numbers in conditions, which usually ask for more than one or two.
const HIGH: u32 = 3;

/// API versions that the cluster of a render serves beyond those of Kubernetes.
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
    /// Wording in which a person would ask for it, such as `--set autoscaling.enabled=true`.
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

impl Combination {
    /// Creates an install on the newest Kubernetes with every API that the templates ask for.
    pub(crate) fn of(values: Values) -> Self {
        Self {
            label: String::new(),
            values,
            apis: Apis::All,
            is_upgrade: false,
            kube_version: None,
        }
    }
}

/// Returns the combinations for a chart, at most [`MAX_RENDERS`], and how many were left out.
/// `given` are values files with their names; `accepts` tells whether the chart can be rendered with
/// values.
pub(crate) fn combinations(
    chart: &CompiledChart,
    templates: &[TemplateFile],
    given: &[(String, Values)],
    accepts: &dyn Fn(&Values) -> bool,
) -> (Vec<Combination>, usize) {
    let gates = Gates::of(templates);
    let start = start(given, accepts);
    let dependencies = dependency_switches(chart.chart(), &[]);
    let mut with_dependencies = start.clone();
    for path in &dependencies {
        set(&mut with_dependencies, path, Value::Bool(true));
    }
    let tree = chart.coalesce_unchecked(with_dependencies).map_or_else(
        |_| chart.chart().values().clone(),
        |values| values.values().clone(),
    );
    let mut leaves = Vec::new();
    leaves_of(&tree, &mut Vec::new(), &mut leaves);
    let booleans: Vec<(&Path, bool)> = leaves
        .iter()
        .filter_map(|(path, value)| Some((path, value.as_bool()?)))
        .collect();
    let gating: Vec<(&Path, bool)> = booleans
        .iter()
        .filter(|(path, _)| gates.contain(path))
        .copied()
        .collect();
    let mut everything = start.clone();
    for path in dependencies
        .iter()
        .chain(booleans.iter().map(|(path, _)| *path))
    {
        set(&mut everything, path, Value::Bool(true));
    }
    let numbers: Vec<(&Path, &Value)> = leaves
        .iter()
        .filter(|(path, value)| value.is_number() && gates.contain(path))
        .map(|(path, value)| (path, value))
        .collect();
    let on = dependencies
        .iter()
        .chain(gating.iter().map(|(path, _)| *path))
        .map(|path| (path, Value::Bool(true)));
    // A condition such as `gt (int .Values.replicaCount) 1`.
    let high = numbers.iter().map(|(path, _)| (*path, Value::from(HIGH)));
    let switches: Vec<(&Path, Value)> = on.chain(high).collect();
    let mut trials = MAX_TRIALS;
    let enabled = turn_on(&start, &switches, accepts, &mut trials);

    let mut list = List {
        start: start.clone(),
        ..List::default()
    };
    list.add("defaults", Values::new());
    for (name, values) in given {
        list.add(format!("--values {name}"), values.clone());
    }
    list.add("every switch on", enabled.clone());
    list.add("every boolean on", everything);
    for values in [&start, &enabled] {
        list.add_variants(values);
    }
    for path in &dependencies {
        list.add_set(&start, path, Value::Bool(true));
    }
    for (path, value) in &gating {
        list.add_set(&start, path, Value::Bool(!value));
    }
    for (path, constants) in &gates.compared {
        for constant in constants {
            list.add_set(&start, path, constant.as_str().into());
            list.add_set(&enabled, path, constant.as_str().into());
        }
    }
    for pairs in &gates.together {
        list.add_together(&enabled, pairs);
    }
    for (path, value) in &numbers {
        list.add_set(&enabled, path, (*value).clone());
    }
    for (path, value) in enums(chart.chart()) {
        list.add_set(&enabled, &path, value);
    }
    let schema = schema(chart.chart());
    for (path, value) in &leaves {
        let filled = if gates.contain(path) {
            fills(value, schema_at(&schema, &schema, path))
        } else {
            Vec::new()
        };
        for fill in filled {
            list.add_set(&enabled, path, fill);
        }
    }
    for (path, _) in &gating {
        list.add_set(&enabled, path, Value::Bool(false));
    }
    list.finish()
}

/// Returns the values to begin with: none, or the first file with which the chart can be rendered.
fn start(given: &[(String, Values)], accepts: &dyn Fn(&Values) -> bool) -> Values {
    let none = Values::new();
    if accepts(&none) {
        return none;
    }
    let mut files = given.iter().map(|(_, values)| values);
    let found = files.find(|values| accepts(values));
    found.cloned().unwrap_or(none)
}

/// Turns on as many switches as the chart accepts together: halves of a set that is refused are
/// tried alone, until the trials are used up.
fn turn_on(
    values: &Values,
    switches: &[(&Path, Value)],
    accepts: &dyn Fn(&Values) -> bool,
    trials: &mut usize,
) -> Values {
    if switches.is_empty() || *trials == 0 {
        return values.clone();
    }
    *trials -= 1;
    let mut all = values.clone();
    for (path, value) in switches {
        set(&mut all, path, value.clone());
    }
    if accepts(&all) {
        return all;
    }
    if switches.len() == 1 {
        return values.clone();
    }
    let (one, other) = switches.split_at(switches.len() / 2);
    let values = turn_on(values, one, accepts, trials);
    turn_on(&values, other, accepts, trials)
}

/// Combinations without duplicates.
#[derive(Default)]
struct List {
    /// The values of combinations that change one thing only.
    start: Values,
    combinations: Vec<Combination>,
    /// Index of each combination.
    seen: BTreeMap<String, usize>,
    left_out: usize,
}

impl List {
    fn add(&mut self, label: impl Into<String>, values: Values) {
        self.push(Combination {
            label: label.into(),
            ..Combination::of(values)
        });
    }

    /// Adds `base` with another value.
    fn add_set(&mut self, base: &Values, path: &[String], value: Value) {
        let mut values = base.clone();
        let text = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let flag = match value {
            Value::Array(_) | Value::Object(_) => "--set-json",
            _ => "--set",
        };
        let mut label = format!("{flag} {}={text}", path.join("."));
        if *base != self.start {
            label.push_str(" with every switch on");
        }
        set(&mut values, path, value);
        self.add(label, values);
    }

    /// Adds `base` with several values.
    fn add_together(&mut self, base: &Values, pairs: &[(Path, String)]) {
        let mut values = base.clone();
        let mut given = Vec::new();
        for (path, text) in pairs {
            given.push(format!("{}={text}", path.join(".")));
            set(&mut values, path, text.as_str().into());
        }
        let label = format!("--set {} with every switch on", given.join(","));
        self.add(label, values);
    }

    /// Adds values with other clusters and as an upgrade.
    fn add_variants(&mut self, values: &Values) {
        let on = if *values == self.start {
            ""
        } else {
            " with every switch on"
        };
        let new = |label: &str| Combination {
            label: format!("{label}{on}"),
            ..Combination::of(values.clone())
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
        if let Some(index) = self.seen.get(&key) {
            // The more precise description of the same values.
            if let Some(known) = self.combinations.get_mut(*index)
                && known.label.starts_with("every")
            {
                known.label = combination.label;
            }
            return;
        }
        self.seen.insert(key, self.combinations.len());
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
            let type_ = schema
                .and_then(|schema| schema.pointer("/items/type"))
                .and_then(Value::as_str);
            match type_ {
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
    use std::fmt::Write as _;

    use helm_core::chart::File;

    use super::*;
    use crate::template_source::templates;

    fn labels(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| File::new(*name, text));
        let metadata = File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
        let chart = Chart::from_files(files.chain([metadata])).unwrap();
        let compiled = CompiledChart::compile(&chart).unwrap();
        let (found, left_out) = combinations(&compiled, &templates(&chart), &[], &|_| true);
        assert_eq!(left_out, 0);
        found.into_iter().map(|found| found.label).collect()
    }

    #[test]
    fn each_kind_of_switch_is_turned() {
        let found = labels(&[
            (
                "values.yaml",
                "a: {enabled: false}\nlist: []\nmode: x\nname: ''\nraw: {deep: true}\n",
            ),
            (
                "values.schema.json",
                r##"{"properties": {"mode": {"$ref": "#/definitions/mode"}},
                     "definitions": {"mode": {"enum": ["x", "y"]}}}"##,
            ),
            (
                "templates/a.yaml",
                "{{ if .Values.a.enabled }}{{ with .Values.list }}{{ if eq .Values.mode \"z\" }}\nkind: Pod\n\
                 {{ end }}{{ end }}{{ end }}{{ .Values.name }}{{ if .Values.raw.deep }}{{ end }}",
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
            let is_found = found.iter().any(|label| label == wanted);
            assert!(is_found, "{wanted}: {found:#?}");
        }
        // No condition around an object reads these.
        for unwanted in ["raw.deep", "name="] {
            let is_found = found.iter().any(|label| label.contains(unwanted));
            assert!(!is_found, "{found:#?}");
        }
    }

    #[test]
    fn the_number_of_combinations_is_limited() {
        let mut values = String::new();
        let mut template = String::new();
        for index in 0..MAX_RENDERS {
            let _ = writeln!(values, "a{index}: false");
            let _ = write!(
                template,
                "{{{{ if .Values.a{index} }}}}\nkind: Pod\n{{{{ end }}}}"
            );
        }
        let chart = Chart::from_files([
            File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n"),
            File::new("values.yaml", &values),
            File::new("templates/a.yaml", &template),
        ])
        .unwrap();
        let compiled = CompiledChart::compile(&chart).unwrap();
        let (found, left_out) = combinations(&compiled, &templates(&chart), &[], &|_| true);
        assert_eq!(found.len(), MAX_RENDERS);
        assert!(left_out > 0);
    }

    #[test]
    fn switches_that_exclude_each_other_are_not_on_together() {
        let paths: Vec<Path> = (0..8).map(|index| vec![format!("a{index}")]).collect();
        let switches: Vec<(&Path, Value)> = paths.iter().map(|path| (path, true.into())).collect();
        let accepts = |values: &Values| !(values.contains_key("a2") && values.contains_key("a5"));
        let found = turn_on(&Values::new(), &switches, &accepts, &mut 60);
        assert_eq!(found.len(), 7, "{found:?}");
        assert!(accepts(&found));
        let none = turn_on(&Values::new(), &switches, &|_| true, &mut 0);
        assert!(none.is_empty());
    }
}
