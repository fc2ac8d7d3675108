//! `import-values`: values that a chart imports from its dependencies
//! (`chart/v2/util/dependencies.go`).

use go_template::Str;
use serde_json::{Value, json};

use super::CoalesceError;
use super::coalesce::{Nulls, chart_values, merge_tables};
use super::table::{Table, TableValue};
use crate::chart::Chart;

/// Replaces the values of every chart that has dependencies with its own, theirs, and what it
/// imports from them.
pub(crate) fn import_values(chart: &Chart) -> Result<Chart, CoalesceError> {
    let below: Vec<Chart> = chart
        .dependencies()
        .iter()
        .map(import_values)
        .collect::<Result<_, _>>()?;
    let chart = chart.with_dependencies(below);
    if chart.metadata().dependencies.is_empty() {
        return Ok(chart);
    }
    let values = Table::new();
    chart_values(&chart, &values, Nulls::Keep)?;
    let imported = Table::new();
    let mut metadata = chart.metadata().clone();
    for dependency in &mut metadata.dependencies {
        let mut pairs = Vec::new();
        for import in &dependency.import_values {
            let (child, parent) = match import {
                Value::Object(pair) => {
                    (path_text(pair.get("child")), path_text(pair.get("parent")))
                }
                Value::String(name) => (format!("exports.{name}"), ".".to_owned()),
                _ => continue,
            };
            let path = dependency.name.split('.').chain(child.split('.'));
            if let Some(found) = values.path(path) {
                // Helm passes on the table itself, unless it is empty.
                let found = if found.is_empty() {
                    Table::new()
                } else {
                    found
                };
                merge_tables(&imported, &at_path(&parent, found), Nulls::Keep);
            }
            pairs.push(json!({"child": child, "parent": parent}));
        }
        dependency.import_values = pairs;
    }
    let values = Table::of(&values.freeze());
    // The chart's own values override imported ones.
    merge_tables(&values, &imported, Nulls::Keep);
    Ok(chart.with_metadata(metadata).with_values(values.freeze()))
}

/// Formats a path as Go's `%v` prints it.
fn path_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "<nil>".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns `table` nested below `path`; `.` means the table itself.
fn at_path(path: &str, table: Table) -> Table {
    if path == "." {
        return table;
    }
    path.rsplit('.').fold(table, |below, key| {
        let outer = Table::new();
        outer.insert(Str::from(key), TableValue::Table(below));
        outer
    })
}
