//! Compares with a helm binary: both render each chart of any folder with its own values.

#![allow(
    clippy::expect_used,
    reason = "a folder of charts that cannot be read ends the run"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::values::{self, Values};

use crate::support::{self, MASK, Outcome, compare, guarded, run_all, wanted};

/// Renders every chart of a folder (or the folder itself, if it is a chart), directories and
/// archives, and compares with `helm template`: without values, and with each `ci/*-values.yaml` of
/// a chart directory.
pub(crate) fn run(folder: &Path, helm: &Path) -> Vec<Outcome> {
    let entries = std::fs::read_dir(folder).expect("the folder of charts can be read");
    let mut charts: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    charts.retain(|path| {
        path.join("Chart.yaml").is_file()
            || path.extension().is_some_and(|extension| extension == "tgz")
    });
    if folder.join("Chart.yaml").is_file() {
        charts = vec![folder.to_owned()];
    }
    charts.sort();
    let mut cases = Vec::new();
    for chart in charts {
        let name = chart
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut variants = vec![None];
        if let Ok(entries) = std::fs::read_dir(chart.join("ci")) {
            let mut files: Vec<_> = entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect();
            files.retain(|path| path.to_string_lossy().ends_with("values.yaml"));
            files.sort();
            variants.extend(files.into_iter().map(Some));
        }
        for values in variants {
            let id = values
                .as_ref()
                .and_then(|path| path.file_stem())
                .map_or_else(
                    || "default".to_owned(),
                    |stem| stem.to_string_lossy().into_owned(),
                );
            if wanted(&name, &id) {
                cases.push((name.clone(), id, chart.clone(), values));
            }
        }
    }
    run_all(&cases, |(group, id, chart, values)| Outcome {
        group: group.clone(),
        id: id.clone(),
        failure: guarded(|| check(chart, values.as_deref(), helm)),
    })
}

fn check(chart: &Path, values: Option<&Path>, helm: &Path) -> Result<(), String> {
    match (ask(chart, values, helm)?, template(chart, values)) {
        (Err(_), Err(_)) => Ok(()),
        (Ok(expected), Ok(found)) if expected == found => Ok(()),
        (Ok(expected), Ok(found)) => {
            let again = ask(chart, values, helm)?.unwrap_or_default();
            compare("output", &masked(&expected, &again), &found)
        }
        (Ok(_), Err(error)) => Err(format!("failed: {error}")),
        (Err(error), Ok(_)) => Err(format!("should fail: {error}")),
    }
}

/// Returns what the binary prints, or its error.
fn ask(chart: &Path, values: Option<&Path>, helm: &Path) -> Result<Result<String, String>, String> {
    let mut command = Command::new(helm);
    command
        .args(["template", "demo", "--namespace", "default"])
        .arg(chart);
    if let Some(values) = values {
        command.arg("--values").arg(values);
    }
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", helm.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    })
}

/// Returns `expected` with a mask for every line that differs between two runs of the binary:
/// passwords, certificates, times.
fn masked(expected: &str, again: &str) -> String {
    if expected.lines().count() != again.lines().count() {
        return expected.to_owned();
    }
    let lines = expected.split('\n').zip(again.split('\n'));
    let masked: Vec<&str> = lines
        .map(|(line, again)| if line == again { line } else { MASK })
        .collect();
    masked.join("\n")
}

/// Returns what `helm template` would print.
fn template(chart: &Path, values: Option<&Path>) -> Result<String, String> {
    let compiled = support::cases::compile(chart)?;
    let user = match values {
        Some(path) => values::read_file(path).map_err(|error| error.to_string())?,
        None => Values::new(),
    };
    let values = compiled.coalesce(user).map_err(|error| error.to_string())?;
    let mut input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
    // Helm's messages show values.
    input.values_in_errors = true;
    let rendered = compiled.render(&input).map_err(|error| error.to_string())?;
    let mut text = format!("{}\n", rendered.manifest().trim());
    for hook in rendered.hooks() {
        for part in ["---\n# Source: ", &hook.path, "\n", &hook.manifest, "\n"] {
            text.push_str(part);
        }
    }
    Ok(text)
}
