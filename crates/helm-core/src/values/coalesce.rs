//! Coalescing: merges the user's values over those of a chart and its dependencies, by Helm's rules
//! (`chart/common/util/coalesce.go`).

use std::sync::Arc;

use go_template::{Str, Tree, TreeMap};

use super::table::{Table, TableValue};
use super::{CoalesceError, tree};
use crate::chart::Chart;

const GLOBAL: &str = "global";

/// Treatment of nulls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// A null removes the chart's value of the key, and nulls in charts are dropped.
    Remove,
    /// Nulls are kept as values, for all steps but the last.
    Keep,
}

/// Returns the values that templates of `chart` see for the user's `values`.
pub(crate) fn coalesce(
    chart: &Chart,
    values: &Arc<TreeMap>,
    nulls: Nulls,
) -> Result<Arc<TreeMap>, CoalesceError> {
    let table = Table::of(values);
    chart_values(chart, &table, nulls)?;
    Ok(table.freeze())
}

/// Merges `table` over the values of `chart` and of its dependencies, in place.
pub(crate) fn chart_values(
    chart: &Chart,
    table: &Table,
    nulls: Nulls,
) -> Result<(), CoalesceError> {
    own_values(chart, table, nulls);
    dependencies(chart, table, nulls)
}

fn own_values(chart: &Chart, table: &Table, nulls: Nulls) {
    let (raw, clean) = chart.value_trees();
    let defaults = match nulls {
        Nulls::Remove => clean,
        Nulls::Keep => raw,
    };
    for (key, given) in table.lay_over(defaults) {
        let Some(value) = raw.get(key.as_bytes()) else {
            continue;
        };
        match (given, value) {
            (given, _) if given.is_nil() && nulls == Nulls::Remove => table.remove(&key),
            (TableValue::Table(given), Tree::Map(map)) => {
                // Nulls for a dependency are handled with its own values.
                let is_dependency = chart
                    .dependencies()
                    .iter()
                    .any(|d| d.name().as_bytes() == key.as_bytes());
                let nulls = if is_dependency { Nulls::Keep } else { nulls };
                let map = match clean.get(key.as_bytes()) {
                    Some(Tree::Map(clean)) if nulls == Nulls::Remove => clean,
                    _ => map,
                };
                merge_tree(&given, map, nulls);
            }
            _ => {}
        }
    }
}

fn dependencies(chart: &Chart, table: &Table, nulls: Nulls) -> Result<(), CoalesceError> {
    for dependency in chart.dependencies() {
        let key = Str::from(dependency.name());
        let below = match table.get(&key) {
            Some(TableValue::Table(below)) => below,
            Some(TableValue::Leaf(other)) => {
                return Err(CoalesceError::NotAMap {
                    dependency: dependency.name().to_owned(),
                    found: super::type_name(&tree::to_json(&other)),
                });
            }
            None => {
                let below = Table::new();
                table.insert(key, TableValue::Table(below.clone()));
                below
            }
        };
        globals(&below, table);
        chart_values(dependency, &below, nulls)?;
    }
    Ok(())
}

/// Copies the globals of `from` to `to`. Tables directly in `global` are copied, nested ones are
/// shared.
fn globals(to: &Table, from: &Table) {
    let key = Str::from(GLOBAL);
    let (given, handed) = match (to.get(&key), from.get(&key)) {
        (Some(TableValue::Leaf(_)), _) | (_, Some(TableValue::Leaf(_))) => return,
        (given, handed) => (given, handed),
    };
    let table = |node: Option<TableValue>| match node {
        Some(TableValue::Table(table)) => table,
        _ => Table::new(),
    };
    let (given, handed) = (table(given), table(handed));
    for key in handed.keys() {
        match (handed.get(&key), given.get(&key)) {
            (Some(TableValue::Table(from)), None) => {
                given.insert(key, TableValue::Table(from.shallow_copy()));
            }
            (Some(TableValue::Table(from)), Some(TableValue::Table(own))) => {
                let copy = from.shallow_copy();
                merge_tables(&copy, &own, Nulls::Keep);
                given.insert(key, TableValue::Table(copy));
            }
            (Some(TableValue::Leaf(leaf)), Some(TableValue::Leaf(_)) | None) => {
                given.insert(key, TableValue::Leaf(leaf));
            }
            // A table and a non-table are not merged.
            _ => {}
        }
    }
    to.insert(key, TableValue::Table(given));
}

/// Adds to `over` what only `under` has, table by table.
pub(crate) fn merge_tables(over: &Table, under: &Table, nulls: Nulls) {
    let nil = over.nil_keys();
    for key in &nil {
        let is_set = match under.get(key) {
            Some(value) if value.is_nil() => continue,
            value => value.is_some(),
        };
        // Helm writes the null to `under` as well, which may be shared.
        under.insert(key.clone(), TableValue::Leaf(Tree::Nil));
        if nulls == Nulls::Remove && is_set {
            over.remove(key);
        }
    }
    for key in under.keys() {
        if nil.contains(&key) {
            continue;
        }
        let Some(value) = under.get(&key) else {
            continue;
        };
        match (over.get(&key), value) {
            (None, value) => over.insert(key, value),
            (Some(TableValue::Table(over)), TableValue::Table(under)) => {
                merge_tables(&over, &under, nulls);
            }
            _ => {}
        }
    }
}

/// Adds to `over` what only a tree has, like [`merge_tables`] with a table that nobody else sees. What is only in trees
/// is not made into tables: of the charts of `docs/contributing/benchmarks.md`, those with large dependencies coalesce twice as fast.
fn merge_tree(over: &Table, under: &TreeMap, nulls: Nulls) {
    if let Some(tree) = over.as_tree() {
        if let Some(merged) = merged(&tree, under, nulls) {
            over.replace(Arc::new(merged));
        }
        return;
    }
    let nil = over.nil_keys();
    for key in &nil {
        if nulls == Nulls::Remove && under.get(key.as_bytes()).is_some_and(is_set) {
            over.remove(key);
        }
    }
    for (key, value) in under.iter() {
        if nil.contains(key) {
            continue;
        }
        match (over.get(key), value) {
            (None, value) => over.insert(key.clone(), TableValue::of(value)),
            (Some(TableValue::Table(over)), Tree::Map(under)) => merge_tree(&over, under, nulls),
            _ => {}
        }
    }
}

/// Returns `over` with what only `under` has, if that is something else.
fn merged(over: &TreeMap, under: &TreeMap, nulls: Nulls) -> Option<TreeMap> {
    let mut changes = Vec::new();
    for (key, value) in over.iter() {
        match (value, under.get(key.as_bytes())) {
            (Tree::Nil, Some(other)) if nulls == Nulls::Remove && is_set(other) => {
                changes.push((key.clone(), None));
            }
            (Tree::Map(over), Some(Tree::Map(under))) => {
                let change = merged(over, under, nulls);
                changes.extend(change.map(|merged| (key.clone(), Some(Tree::from(merged)))));
            }
            _ => {}
        }
    }
    for (key, value) in under.iter() {
        if over.get(key.as_bytes()).is_none() {
            changes.push((key.clone(), Some(value.clone())));
        }
    }
    (!changes.is_empty()).then(|| over.with(changes))
}

fn is_set(value: &Tree) -> bool {
    !matches!(value, Tree::Nil)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::chart::File;

    /// Returns some map with few different keys, and with nulls and maps among its values.
    fn some_map() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = prop::sample::select(vec![
            json!(null),
            json!(1),
            json!("x"),
            json!([{}]),
            json!({}),
        ]);
        let value = leaf.prop_recursive(3, 24, 4, |value| {
            prop::collection::hash_map("[a-d]", value, 0..4).prop_map(Value::from_iter)
        });
        prop::collection::hash_map("[a-d]", value, 0..4).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn trees_merge_like_tables(over in some_map(), under in some_map(), written: bool, removes: bool) {
            let nulls = if removes { Nulls::Remove } else { Nulls::Keep };
            let under = Arc::new(tree::from_map(&under));
            let merge = |merge: &dyn Fn(&Table)| {
                let table = Table::of(&Arc::new(tree::from_map(&over)));
                if written {
                    table.insert("d".into(), TableValue::Leaf(Tree::Bool(true)));
                }
                merge(&table);
                Value::Object(tree::to_map(&table.freeze()))
            };
            prop_assert_eq!(
                merge(&|table| merge_tree(table, &under, nulls)),
                merge(&|table| merge_tables(table, &Table::of(&under), nulls))
            );
        }
    }

    fn chart(files: &[(&str, &str)]) -> Chart {
        let metadata = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let mut all = vec![File::new("Chart.yaml", metadata("root"))];
        for (path, text) in files {
            if let Some((directory, "values.yaml")) = path.rsplit_once('/') {
                let name = directory.rsplit('/').next().unwrap_or_default();
                all.push(File::new(format!("{directory}/Chart.yaml"), metadata(name)));
            }
            all.push(File::new(*path, text));
        }
        Chart::from_files(all).unwrap()
    }

    fn coalesced(files: &[(&str, &str)], user: &str) -> String {
        let user = tree::from_map(&crate::values::read(user.as_bytes()).unwrap());
        let values = coalesce(&chart(files), &Arc::new(user), Nulls::Remove).unwrap();
        go_yaml::to_string(&tree::to_map(&values)).unwrap()
    }

    #[test]
    fn nulls_remove_values_of_the_chart() {
        for (own, user, expected) in [
            ("{}", "a: null", "a: null\n"),
            ("a: 1", "a: null", "{}\n"),
            ("a: {c: 2}", "a: {b: null}", "a:\n  b: null\n  c: 2\n"),
            ("a: {b: 1, c: 2}", "a: {b: null}", "a:\n  c: 2\n"),
            ("a: null", "{}", "{}\n"),
            ("a: {b: null, c: {d: null}}", "{}", "a:\n  c: {}\n"),
            ("a: {b: null}", "a: {c: 1}", "a:\n  c: 1\n"),
            ("a: 1", "a: {b: 2}", "a:\n  b: 2\n"),
            ("a: {b: 2}", "a: 1", "a: 1\n"),
        ] {
            assert_eq!(
                coalesced(&[("values.yaml", own)], user),
                expected,
                "{own} {user}"
            );
        }
    }

    #[test]
    fn globals_are_passed_down_with_nested_tables_shared() {
        let files = [
            ("values.yaml", "global: {t: {deep: {x: 1}}, s: 1}"),
            (
                "charts/a/values.yaml",
                "global: {t: {deep: {z: 2}, own: 3}, s: 9}",
            ),
        ];
        assert_eq!(
            coalesced(&files, "{}"),
            "a:\n  global:\n    s: 1\n    t:\n      deep:\n        x: 1\n        z: 2\n      \
             own: 3\nglobal:\n  s: 1\n  t:\n    deep:\n      x: 1\n      z: 2\n"
        );
    }

    #[test]
    fn values_of_a_dependency_must_be_a_map() {
        let chart = chart(&[("charts/a/values.yaml", "{}")]);
        let user = tree::from_map(&crate::values::read(b"a: 1").unwrap());
        let error = coalesce(&chart, &Arc::new(user), Nulls::Remove).unwrap_err();
        assert!(
            error.to_string().contains("dependency a are a number"),
            "{error}"
        );
    }
}
