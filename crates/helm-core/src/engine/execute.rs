//! Executes one render: builds the scopes of the charts, then executes the files in Helm's order.

use std::sync::Arc;

use bounded::memory::Held;
use go_template::{BudgetError, Buffer, Limits, Map, Session, Stop, Str, Tree, Type, Value};

use super::compile::Linked;
use super::include::{RenderState, TooManyLookups};
use super::lookup::LookupKey;
use super::values_object::{self, VALUES_TYPE};
use super::{RenderError, RenderInput, context, strip};
use crate::capabilities::CapabilityReads;

/// The rendered files of a chart.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The path of each file, prefixed with the chart's name, and its text, in the order of
    /// execution. Partials are not included.
    pub files: Vec<(String, Vec<u8>)>,
    /// The capabilities that the templates read.
    pub capability_reads: CapabilityReads,
    /// The objects that the templates looked up.
    pub lookups: Vec<LookupKey>,
}

/// Executes the files of the linked charts.
pub(super) fn files(
    linked: &Linked,
    input: &RenderInput<'_>,
    stop: &Stop,
) -> Result<Output, RenderError> {
    // The render's clock has started.
    let limits = Limits {
        time: None,
        ..input.limits.clone()
    };
    let mut session = Session::new(limits)
        .with_stop(stop.clone())
        .with_weak_secrets(input.weak_secrets)
        .remembering(&linked.set)
        .with_host(RenderState::new(
            Arc::clone(&input.lookup),
            input.host_names,
        ));
    if let Some(time) = input.time {
        session = session.with_time(time);
    }
    let scopes = scopes(linked, input);
    let mut output = Output {
        files: Vec::with_capacity(linked.files.len()),
        ..Output::default()
    };
    let mut held = Held::default();
    for file in &linked.files {
        let Some(scope) = scopes.get(file.chart) else {
            continue;
        };
        if let Value::Map(about) = Value::from(&file.about) {
            scope.insert_varying("Template", about);
        }
        let mut text = Buffer::with_capacity(file.length);
        let dot = Value::Map(scope.as_type(VALUES_TYPE));
        let result = session.execute_template(&linked.set, &file.template, &dot, &mut text);
        if let Err(error) = result {
            return Err(failure(&mut session, &error, input.values_in_errors));
        }
        strip::no_values(&mut text, 0);
        held.add(text.capacity());
        output.files.push((file.path.clone(), text.into_vec()));
    }
    if let Some(needed) = needed(&mut session) {
        return Err(needed);
    }
    if let Some(host) = session.host_mut::<RenderState>() {
        output.capability_reads = std::mem::take(&mut host.reads);
        if linked.reads_version || host.reads_version {
            let version = input.capabilities.kube_version.version();
            output.capability_reads.kube_version = Some(version.to_owned());
        }
        output.lookups = std::mem::take(&mut host.lookups).into_iter().collect();
    }
    Ok(output)
}

/// Returns the error for a failed template.
fn failure(
    session: &mut Session,
    error: &go_template::RenderError,
    shows_values: bool,
) -> RenderError {
    if error.budget() == Some(&BudgetError::Cancelled) {
        return RenderError::Cancelled;
    }
    if let Some(TooManyLookups) = error.host() {
        return RenderError::TooManyLookups;
    }
    // A missing object is probably the cause, unless a limit was exceeded: a lookup cannot undo
    // that.
    let needed = match error.budget() {
        Some(_) => None,
        None => needed(session),
    };
    needed.unwrap_or_else(|| RenderError::from_execution(error, shows_values))
}

/// Returns the lookups that the snapshot has no answer for.
fn needed(session: &mut Session) -> Option<RenderError> {
    let host = session.host_mut::<RenderState>()?;
    let unknown = std::mem::take(&mut host.unknown);
    (!unknown.is_empty()).then(|| RenderError::NeedsLookup(unknown.into_iter().collect()))
}

/// Returns the dot for the templates of each chart.
fn scopes(linked: &Linked, input: &RenderInput<'_>) -> Vec<Map> {
    let release = context::release(&input.release);
    let capabilities = context::capabilities(input.capabilities);
    let mut scopes: Vec<Map> = Vec::with_capacity(linked.charts.len());
    for chart in &linked.charts {
        let parent = chart.parent.and_then(|parent| scopes.get(parent));
        let values = match parent {
            None => {
                let values = Map::from_tree(Arc::clone(input.values.tree()));
                Value::Map(values.as_type(VALUES_TYPE))
            }
            Some(parent) => values_below(parent, &chart.name),
        };
        let scope = Map::from_entries(
            Type::MAP,
            [
                ("Chart", Value::from(&chart.metadata)),
                ("Files", Value::from(&chart.files)),
                ("Release", release.clone()),
                ("Capabilities", capabilities.clone()),
                ("Values", values),
                ("Subcharts", Value::Map(Map::new())),
            ],
        );
        if let Some(Value::Map(siblings)) = parent.and_then(|parent| parent.get("Subcharts")) {
            siblings.insert(chart.name.clone(), Value::Map(scope.clone()));
        }
        scopes.push(scope);
    }
    share_globals(linked, input, &scopes);
    scopes
}

/// Returns the values of the chart `name`: the table of that name in its parent's values. As in
/// Helm, a name with dots is a path.
fn values_below(parent: &Map, name: &Str) -> Value {
    let path = name.as_bytes().split(|byte| *byte == b'.');
    let values = parent.get("Values");
    let below = values.and_then(|values| values_object::below(&values, path).ok());
    Value::Map(below.unwrap_or_else(|| Map::with_type(VALUES_TYPE)))
}

/// Makes the templates of several charts share the tables that the charts share after coalescing: a
/// `set` on a nested table of `.Values.global` is visible in the others.
fn share_globals(linked: &Linked, input: &RenderInput<'_>, scopes: &[Map]) {
    let mut trees: Vec<Option<&Tree>> = Vec::with_capacity(scopes.len());
    let root = Tree::Map(Arc::clone(input.values.tree()));
    for chart in &linked.charts {
        let tree = match chart.parent {
            None => Some(&root),
            Some(parent) => trees
                .get(parent)
                .copied()
                .flatten()
                .and_then(|tree| match tree {
                    Tree::Map(map) => map.get(&chart.name),
                    _ => None,
                }),
        };
        trees.push(tree);
    }
    for ((chart, scope), tree) in linked.charts.iter().zip(scopes).zip(&trees) {
        let Some(parent) = chart.parent else { continue };
        let above = trees.get(parent).copied().flatten();
        let (Some(own), Some(above)) = (global(*tree), global(above)) else {
            continue;
        };
        let Some(parent) = scopes.get(parent) else {
            continue;
        };
        for (key, table) in own.iter() {
            let (Tree::Map(table), Some(Tree::Map(other))) = (table, above.get(key)) else {
                continue;
            };
            for (inner, value) in table.iter() {
                let (Tree::Map(value), Some(Tree::Map(theirs))) = (value, other.get(inner)) else {
                    continue;
                };
                if Arc::ptr_eq(value, theirs)
                    && let Some(target) = global_table(scope, key)
                    && let Some(shared) =
                        global_table(parent, key).and_then(|table| table.get(inner))
                {
                    target.insert(inner.clone(), shared);
                }
            }
        }
    }
}

fn global(tree: Option<&Tree>) -> Option<&go_template::TreeMap> {
    match tree? {
        Tree::Map(map) => match map.get("global")? {
            Tree::Map(global) => Some(global),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the table `.Values.global.KEY` of a scope.
fn global_table(scope: &Map, key: &Str) -> Option<Map> {
    let Value::Map(values) = scope.get("Values")? else {
        return None;
    };
    let Value::Map(global) = values.get("global")? else {
        return None;
    };
    match global.get(key)? {
        Value::Map(table) => Some(table),
        _ => None,
    }
}
