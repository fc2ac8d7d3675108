//! A kind with its chart, as the operator renders it.

use std::collections::{BTreeMap, BTreeSet};

use helm_core::{Coalesced, CompiledChart, Values};
use hybrid_operator::helm::{self, Chart, PreviewInput};
use hybrid_operator::watches::Watch;
use serde_json::{Map, Value, json};

use crate::rbac::matrix::Combination;
use crate::rbac::survey::{self, Found, NAMESPACE, RELEASE, RenderOptions};

/// Prefix of the variables with images, by which OLM's tools know them.
pub(crate) const PREFIX: &str = "RELATED_IMAGE_";

/// Texts of `overrideValues` by their paths.
pub(crate) type Overrides = BTreeMap<String, String>;

/// A kind with its chart.
pub(crate) struct Subject<'a> {
    /// Entry of the watches file, without the lines of `overrideValues` that read variables with images.
    watch: Watch,
    /// Lines of `overrideValues` that read variables with images.
    pub(super) present: Overrides,
    /// Other lines of `overrideValues`.
    fixed: Overrides,
    chart: &'a Chart,
    compiled: &'a CompiledChart,
    apis: BTreeSet<String>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        watch: &Watch,
        chart: &'a Chart,
        compiled: &'a CompiledChart,
        apis: BTreeSet<String>,
        variables: &BTreeMap<String, String>,
    ) -> Self {
        let mut watch = watch.clone();
        let (present, fixed): (Overrides, Overrides) = std::mem::take(&mut watch.override_values)
            .into_iter()
            .partition(|(_, text)| text.contains(PREFIX));
        // The content of other variables is not known.
        watch.override_values = expand(&fixed, variables);
        watch.override_values.retain(|_, text| !text.contains('$'));
        // These need objects of the cluster, or fields that only custom resources have.
        watch.values_from.clear();
        watch.api = None;
        watch.map.clear();
        watch.release_name = None;
        let mut subject = Self {
            watch,
            present,
            fixed,
            chart,
            compiled,
            apis,
        };
        let empty = Combination::of(Map::new());
        if subject.values(&empty, &Overrides::new(), false).is_err() {
            subject.watch.values = None;
        }
        subject
    }

    /// Returns the text that `overrideValues` gives a path, unless it reads a variable with an image.
    pub(super) fn fixed(&self, path: &str) -> Option<&str> {
        self.fixed.get(path).map(String::as_str)
    }

    /// Returns all values, with those of the chart.
    pub(super) fn values(
        &self,
        case: &Combination,
        overrides: &Overrides,
        checked: bool,
    ) -> Result<Coalesced, String> {
        let mut watch = self.watch.clone();
        watch.skip_schema |= !checked;
        for (path, text) in overrides {
            watch.override_values.insert(path.clone(), text.clone());
        }
        let object = json!({
            "apiVersion": format!("{}/{}", watch.gvk.group, watch.gvk.version),
            "kind": watch.gvk.kind,
            "metadata": {"name": RELEASE, "namespace": NAMESPACE, "uid": RELEASE},
            "spec": case.values,
        });
        let input = PreviewInput {
            watch: &watch,
            chart: self.chart,
            object: &object,
            operator_namespace: Some(NAMESPACE),
            latest: None,
            values_in_errors: false,
        };
        helm::values_of(&input).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    /// Renders the chart with further lines of `overrideValues`. Schemas count if `checked`.
    pub(super) fn render(
        &self,
        case: &Combination,
        overrides: &Overrides,
        checked: bool,
    ) -> Result<Vec<Found>, String> {
        let values = self.values(case, overrides, checked)?;
        let options = RenderOptions::default();
        survey::render_values(self.compiled, case, &values, &self.apis, &options)
            .map(|render| render.objects)
            .map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    /// Returns the texts and numbers among all values, and the empty ones, by their paths in the syntax of `--set`.
    pub(crate) fn leaves(&self, given: &Values) -> BTreeMap<String, String> {
        let mut leaves = BTreeMap::new();
        let case = Combination::of(given.clone());
        if let Ok(values) = self.values(&case, &Overrides::new(), false) {
            collect(values.values(), "", &mut leaves);
        }
        leaves
    }
}

fn collect(map: &Map<String, Value>, path: &str, leaves: &mut BTreeMap<String, String>) {
    for (name, value) in map {
        let mut key = String::new();
        for c in name.chars() {
            if "\\.,[]=".contains(c) {
                key.push('\\');
            }
            key.push(c);
        }
        let path = if path.is_empty() {
            key
        } else {
            format!("{path}.{key}")
        };
        match value {
            Value::Object(map) => collect(map, &path, leaves),
            Value::String(text) => drop(leaves.insert(path, text.clone())),
            Value::Number(number) => drop(leaves.insert(path, number.to_string())),
            Value::Null => drop(leaves.insert(path, String::new())),
            Value::Bool(_) | Value::Array(_) => {}
        }
    }
}

/// Replaces the variables that are known in texts of `overrideValues`.
pub(super) fn expand(texts: &Overrides, variables: &BTreeMap<String, String>) -> Overrides {
    let texts = texts.iter().map(|(path, text)| {
        let mut text = text.clone();
        // Names that begin with another one come first.
        for (name, value) in variables.iter().rev() {
            text = text.replace(&format!("${{{name}}}"), value);
            text = text.replace(&format!("${name}"), value);
        }
        (path.clone(), text)
    });
    texts.collect()
}

/// Returns the variable with an image that a text reads.
pub(super) fn variable_in(text: &str) -> Option<&str> {
    let start = text.find(PREFIX)?;
    let rest = text.get(start..)?;
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(rest.len());
    rest.get(..end)
}
