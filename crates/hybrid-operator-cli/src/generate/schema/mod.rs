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
use helm_core::chart::DocumentIndex;
use serde_json::Value;

use convert::{Documents, convert_with};

pub(crate) use convert::convert;
pub(crate) use description::{default as default_text, of as description};
pub(crate) use node::{Kind, Node, Others};
pub(crate) use size::{LIMIT, cut};

use super::comments::Comments;

/// Strictness of a schema.
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
    #[error(
        "the chart {chart} has a values.schema.json that is not JSON; Helm refuses to install it"
    )]
    Json {
        chart: String,
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
        below(chart, strictness, &Documents::new())?
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

/// `above` are the documents that the charts around a dependency have.
fn below(chart: &Chart, strictness: Strictness, above: &Documents) -> Result<Node, SchemaError> {
    let mut documents = above.clone();
    documents.extend(kept(chart));
    let inferred = inferred(chart, strictness);
    let mut node = match chart.schema() {
        Some(file) => {
            let document: Value =
                serde_json::from_slice(file.data()).map_err(|source| SchemaError::Json {
                    chart: chart.name().to_owned(),
                    source,
                })?;
            convert_with(&document, &documents).and(inferred.relaxed())
        }
        None => inferred,
    };
    for dependency in chart.dependencies() {
        if !has_schema(dependency) {
            continue;
        }
        for (name, conditional) in uses(chart, dependency) {
            let mut values = below(dependency, strictness, &documents)?;
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

/// Returns the documents of the web that a chart has for its schemas. The operator reports those that cannot
/// be used, and refuses all values then.
fn kept(chart: &Chart) -> Documents {
    let files = chart.files();
    let index = DocumentIndex::read(files).unwrap_or_default();
    let urls = index.urls().map(ToOwned::to_owned);
    let documents = urls.filter_map(|url| {
        let text = index.find(&url, files)?;
        let document = serde_json::from_slice(&text).ok()?;
        Some((url, document))
    });
    documents.collect()
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

#[cfg(test)]
mod tests {
    use helm_core::chart::File;

    use super::*;

    #[test]
    fn documents_that_the_chart_has_count_for_its_schema_and_for_those_of_its_dependencies() {
        const URL: &str = "https://example.com/sizes.json";
        let schema =
            format!(r#"{{"properties": {{"size": {{"$ref": "{URL}#/definitions/size"}}}}}}"#);
        let manifest = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let mut index = DocumentIndex::default();
        let document = br#"{"definitions": {"size": {"type": "integer"}}}"#;
        let file = index.insert(URL, document.as_slice().into());
        for (documents, expected) in [
            (vec![file, index.file()], Some(Kind::Integer)),
            (Vec::new(), None),
        ] {
            let files = [
                File::new("Chart.yaml", manifest("web")),
                File::new("values.schema.json", schema.clone()),
                File::new("charts/db/Chart.yaml", manifest("db")),
                File::new("charts/db/values.schema.json", schema.clone()),
            ];
            let chart = Chart::from_files(files.into_iter().chain(documents)).unwrap();
            let node = of_chart(&chart, Strictness::default()).unwrap();
            assert_eq!(node.properties["size"].only_kind(), expected);
            let below = &node.properties["db"].properties["size"];
            assert_eq!(below.only_kind(), expected);
        }
    }
}
