//! Chart cases: a packaged chart and values, with Helm's manifest, hooks and notes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use helm_core::Rendered;
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::manifest::Hook;
use helm_core::release::Revision;
use helm_core::values::{self, Values};
use serde::Deserialize;

use super::vectors::capabilities;
use super::{Outcome, compare, guarded, run_all, wanted};

/// The content of `case.yaml`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Case {
    /// Path of the archive within the folder.
    pub(crate) chart: String,
    name: String,
    namespace: String,
    #[serde(default)]
    is_upgrade: bool,
    #[serde(default)]
    kube_version: String,
    #[serde(default)]
    api_versions: Vec<String>,
}

/// An entry of `hooks.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ExpectedHook {
    name: String,
    kind: String,
    path: String,
    events: Option<Vec<String>>,
    weight: i64,
    delete_policies: Option<Vec<String>>,
    manifest: String,
}

/// Returns the directories of all cases below `folder/cases`.
pub(crate) fn directories(folder: &Path) -> Vec<PathBuf> {
    let below = |path: &Path| -> Vec<PathBuf> {
        let entries =
            fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.retain(|path| path.is_dir());
        paths.sort();
        paths
    };
    below(&folder.join("cases"))
        .iter()
        .flat_map(|chart| below(chart))
        .collect()
}

/// Runs all cases of a folder; every chart is loaded and compiled once.
pub(crate) fn run(folder: &Path) -> Vec<Outcome> {
    let part = |path: Option<&Path>| {
        path.and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let mut cases = directories(folder);
    cases.retain(|case| wanted(&part(case.parent()), &part(Some(case))));
    let compiled = Compiled::default();
    run_all(&cases, |directory| Outcome {
        group: part(directory.parent()),
        id: part(Some(directory)),
        failure: guarded(|| check(folder, directory, &compiled)),
    })
}

/// Charts by path, each compiled once for all of its cases.
#[derive(Default)]
struct Compiled(Mutex<HashMap<String, Arc<Slot>>>);

type Slot = OnceLock<Result<CompiledChart, String>>;

impl Compiled {
    fn get(&self, folder: &Path, chart: &str) -> Result<CompiledChart, String> {
        let slot = Arc::clone(self.0.lock().unwrap().entry(chart.to_owned()).or_default());
        slot.get_or_init(|| compile(&folder.join(chart))).clone()
    }
}

fn check(folder: &Path, directory: &Path, compiled: &Compiled) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let case: Case = go_yaml::from_str(&read("case.yaml").ok_or("no case.yaml")?)
        .map_err(|error| error.to_string())?;
    let chart = compiled.get(folder, &case.chart);
    let user = match read("values.yaml") {
        Some(text) => values::read(text.as_bytes()).map_err(|error| error.to_string())?,
        None => Values::new(),
    };
    let result = chart.and_then(|chart| render(&chart, &case, user));
    match (read("error.txt"), result) {
        (Some(_), Err(_)) => Ok(()),
        (Some(error), Ok(_)) => Err(format!("should fail: {error}")),
        (None, Err(error)) => Err(format!("failed: {error}")),
        (None, Ok(rendered)) => {
            compare(
                "manifest",
                &read("manifest.yaml").unwrap_or_default(),
                rendered.manifest(),
            )?;
            let hooks = read("hooks.json").unwrap_or_else(|| "[]".to_owned());
            let hooks: Vec<ExpectedHook> =
                serde_json::from_str(&hooks).map_err(|error| error.to_string())?;
            compare_hooks(&hooks, rendered.hooks())?;
            compare(
                "notes",
                &read("notes.txt").unwrap_or_default(),
                rendered.notes(),
            )
        }
    }
}

/// Loads and compiles a chart.
pub(crate) fn compile(path: &Path) -> Result<CompiledChart, String> {
    CompiledChart::load(path).map_err(|error| error.to_string())
}

pub(crate) fn render(chart: &CompiledChart, case: &Case, user: Values) -> Result<Rendered, String> {
    let values = chart.coalesce(user).map_err(|error| error.to_string())?;
    let mut release = ReleaseInfo::new(&case.name, &case.namespace);
    if case.is_upgrade {
        release = release.upgrade_to(Revision::FIRST);
    }
    let capabilities = capabilities(&case.kube_version, &case.api_versions)?;
    let mut input = RenderInput::new(release, &values).capabilities(&capabilities);
    // Helm's messages show values.
    input.values_in_errors = true;
    chart.render(&input).map_err(|error| error.to_string())
}

fn compare_hooks(expected: &[ExpectedHook], found: &[Hook]) -> Result<(), String> {
    fn joined(names: &[impl ToString]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        names.join(",")
    }
    let listed: Vec<&str> = expected.iter().map(|hook| hook.path.as_str()).collect();
    let paths: Vec<&str> = found.iter().map(|hook| hook.path.as_str()).collect();
    compare("paths of hooks", &listed.join("\n"), &paths.join("\n"))?;
    for (expected, found) in expected.iter().zip(found) {
        let what = |field: &str| format!("hook {}: {field}", expected.path);
        compare(&what("name"), &expected.name, &found.name)?;
        compare(&what("kind"), &expected.kind, &found.kind)?;
        let events = expected.events.as_deref().unwrap_or_default();
        compare(&what("events"), &events.join(","), &joined(&found.events))?;
        let (weight, found_weight) = (expected.weight.to_string(), found.weight.to_string());
        compare(&what("weight"), &weight, &found_weight)?;
        let policies = expected.delete_policies.as_deref().unwrap_or_default();
        let found_policies = joined(&found.delete_policies);
        compare(
            &what("delete policies"),
            &policies.join(","),
            &found_policies,
        )?;
        compare(&what("manifest"), &expected.manifest, &found.manifest)?;
    }
    Ok(())
}
