//! The schema of a chart's values.
//!
//! ```text
//! values.schema.json --convert--+
//!                               +--> Node --structural--> what the CRD holds
//! values.yaml, comments --infer-+
//! ```
//! What Helm accepts, the result accepts: only `values.schema.json` restricts values. What is
//! inferred from defaults and comments is documentation, unless it is asked for more.

mod convert;
mod description;
mod infer;
mod node;
mod size;
pub(crate) mod structural;

#[cfg(test)]
mod properties;

use helm_core::Chart;
use serde_json::Value;

pub(crate) use convert::convert;
pub(crate) use description::{default as default_text, of as description};
pub(crate) use node::{Kind, Node, Others};
pub(crate) use size::{LIMIT, cut};

use super::comments::Comments;

/// How strict a schema is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strictness {
    /// Whether the kinds of the defaults, and what the comments say, restrict values.
    pub(crate) inferred: bool,
    /// Whether objects stay open that the chart's schema closes.
    pub(crate) keep_unknown: bool,
}

/// Error reading a chart's schema.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    /// `values.schema.json` is not JSON.
    #[error(
        "the chart {chart} has a values.schema.json that is not JSON; Helm refuses to install it"
    )]
    Json {
        /// The chart.
        chart: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Returns what is known of a chart's values, including those of its dependencies where their
/// schemas apply. A chart whose schemas are skipped counts as one without schemas.
pub(crate) fn of_chart(chart: &Chart, strictness: Strictness) -> Result<Node, SchemaError> {
    let mut node = if chart.skips_schemas() {
        inferred(chart, strictness)
    } else {
        below(chart, strictness)?
    };
    node.kinds = [Kind::Object].into();
    if strictness.keep_unknown {
        open(&mut node);
    }
    Ok(node)
}

/// Returns what defaults and comments say of a chart's values.
fn inferred(chart: &Chart, strictness: Strictness) -> Node {
    let text = chart.values_file().map(helm_core::chart::File::data);
    let text = String::from_utf8_lossy(text.unwrap_or_default());
    infer::infer(chart.values(), &Comments::read(&text), strictness.inferred)
}

fn below(chart: &Chart, strictness: Strictness) -> Result<Node, SchemaError> {
    let inferred = inferred(chart, strictness);
    let mut node = match chart.schema() {
        Some(file) => {
            let document: Value =
                serde_json::from_slice(file.data()).map_err(|source| SchemaError::Json {
                    chart: chart.name().to_owned(),
                    source,
                })?;
            convert(&document).and(inferred.relaxed())
        }
        None => inferred,
    };
    for dependency in chart.dependencies() {
        if !has_schema(dependency) {
            continue;
        }
        for (name, conditional) in uses(chart, dependency) {
            let mut values = below(dependency, strictness)?;
            values.kinds = [Kind::Object].into();
            // Helm does not validate the values of a dependency that is disabled.
            if conditional {
                values = values.relaxed();
            }
            let values = match node.properties.remove(&name) {
                Some(present) => present.and(values),
                None => values,
            };
            node.properties.insert(name, values);
        }
    }
    Ok(node)
}

fn has_schema(chart: &Chart) -> bool {
    chart.schema().is_some() || chart.dependencies().iter().any(has_schema)
}

/// Returns the keys under which a chart uses a dependency, and whether it can be disabled there.
fn uses(chart: &Chart, dependency: &Chart) -> Vec<(String, bool)> {
    let named = chart.metadata().dependencies.iter();
    let uses: Vec<_> = named
        .filter(|entry| entry.name == dependency.name())
        .map(|entry| {
            let key = match entry.alias.as_str() {
                "" => &entry.name,
                alias => alias,
            };
            let conditional = !entry.condition.is_empty() || !entry.tags.is_empty();
            (key.to_owned(), conditional)
        })
        .collect();
    if uses.is_empty() {
        return vec![(dependency.name().to_owned(), false)];
    }
    uses
}

/// Opens all maps.
fn open(node: &mut Node) {
    if node.others == Others::None {
        node.others = Others::Any;
    }
    node.properties.values_mut().for_each(open);
    if let Some(items) = &mut node.items {
        open(items);
    }
    if let Others::Like(others) = &mut node.others {
        open(others);
    }
}
