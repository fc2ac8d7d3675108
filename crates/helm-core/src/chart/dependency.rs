//! Enables and renames the dependencies of a chart (`chart/v2/util/dependencies.go`).

use std::collections::HashSet;
use std::sync::Arc;

use go_template::{Str, Tree, TreeMap};

use super::metadata::{Dependency, Metadata};
use super::{Chart, version_range};
use crate::values::CoalesceError;
use crate::values::coalesce::{Nulls, coalesce};

/// Returns the chart with the dependencies that `values` enable, each under its alias.
pub(crate) fn with_enabled(chart: &Chart, values: &Arc<TreeMap>) -> Result<Chart, CoalesceError> {
    with_enabled_below(chart, values, "", &|chart, values| {
        coalesce(chart, values, Nulls::Remove)
    })
}

/// Returns the chart with the dependencies that its own values enable. Those of its dependencies, which may
/// decide otherwise, are not read.
pub(crate) fn with_likely(chart: &Chart) -> Chart {
    let (_, own) = chart.value_trees();
    let as_given = |_: &Chart, values: &Arc<TreeMap>| Ok(Arc::clone(values));
    with_enabled_below(chart, own, "", &as_given).unwrap_or_else(|_| chart.clone())
}

/// Returns the chart with every dependency that some values could enable.
pub(crate) fn with_all(chart: &Chart) -> Chart {
    if !chart.metadata().declares_dependencies {
        return chart.clone();
    }
    let (chart, _) = renamed(chart);
    let below = chart.dependencies().iter().map(with_all).collect();
    chart.with_dependencies(below)
}

fn with_enabled_below(
    chart: &Chart,
    values: &Arc<TreeMap>,
    path: &str,
    complete: &impl Fn(&Chart, &Arc<TreeMap>) -> Result<Arc<TreeMap>, CoalesceError>,
) -> Result<Chart, CoalesceError> {
    if !chart.metadata().declares_dependencies {
        return Ok(chart.clone());
    }
    let (chart, mut metadata) = renamed(chart);
    let values = complete(&chart, values)?;
    let tags = values.get("tags");
    for dependency in &mut metadata.dependencies {
        dependency.enabled = enabled(dependency, tags, &values, path);
    }
    let off: HashSet<&str> = metadata
        .dependencies
        .iter()
        .filter(|dependency| !dependency.enabled)
        .map(|dependency| dependency.name.as_str())
        .collect();
    let on = chart
        .dependencies()
        .iter()
        .filter(|below| !off.contains(below.name()));
    let on: Vec<Chart> = on
        .map(|below| {
            let path = format!("{path}{}.", below.name());
            with_enabled_below(below, &values, &path, complete)
        })
        .collect::<Result<_, _>>()?;
    let off: HashSet<String> = off.into_iter().map(str::to_owned).collect();
    metadata
        .dependencies
        .retain(|dependency| !off.contains(&dependency.name));
    Ok(chart.with_metadata(metadata).with_dependencies(on))
}

/// Returns the chart with its dependencies under their aliases, those that `Chart.yaml` does not
/// list first, and its metadata with aliases as names.
fn renamed(chart: &Chart) -> (Chart, Metadata) {
    let mut metadata = chart.metadata().clone();
    let fits = |below: &Chart, wanted: &Dependency| {
        below.name() == wanted.name
            && version_range::contains(&wanted.version, &below.metadata().version)
    };
    let unnamed = chart.dependencies().iter().filter(|below| {
        !metadata
            .dependencies
            .iter()
            .any(|wanted| fits(below, wanted))
    });
    let mut found: Vec<Chart> = unnamed.cloned().collect();
    for wanted in &mut metadata.dependencies {
        if let Some(below) = chart
            .dependencies()
            .iter()
            .find(|below| fits(below, wanted))
        {
            found.push(below.with_name(&wanted.alias));
        }
        if !wanted.alias.is_empty() {
            wanted.name.clone_from(&wanted.alias);
        }
    }
    (chart.with_dependencies(found), metadata)
}

/// Returns whether a dependency is enabled. Conditions override tags; without either it is enabled.
fn enabled(dependency: &Dependency, tags: Option<&Tree>, values: &TreeMap, path: &str) -> bool {
    let condition = dependency
        .condition
        .trim()
        .split(',')
        .filter(|path| !path.is_empty());
    let mut decided = condition.filter_map(|below| boolean_at(values, &format!("{path}{below}")));
    if let Some(decision) = decided.next() {
        return decision;
    }
    let Some(Tree::Map(tags)) = tags else {
        return true;
    };
    let mut set = dependency
        .tags
        .iter()
        .filter_map(|tag| match tags.get(tag) {
            Some(Tree::Bool(on)) => Some(*on),
            _ => None,
        });
    match set.next() {
        None => true,
        Some(first) => first || set.any(|on| on),
    }
}

/// Returns the boolean at a dot-separated path.
fn boolean_at(values: &TreeMap, path: &str) -> Option<bool> {
    let (tables, key) = path
        .rsplit_once('.')
        .map_or((None, path), |(tables, key)| (Some(tables), key));
    let mut table = values;
    for name in tables.into_iter().flat_map(|tables| tables.split('.')) {
        match table.get(Str::from(name)) {
            Some(Tree::Map(below)) => table = below,
            _ => return None,
        }
    }
    match table.get(Str::from(key)) {
        Some(Tree::Bool(on)) => Some(*on),
        _ => None,
    }
}
