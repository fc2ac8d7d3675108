//! Checks that span entries or need the file system: duplicate kinds, charts that are not there.

use std::collections::HashMap;
use std::path::Path;

use super::{Entry, Problem};

/// Everything that is wrong with well-formed entries.
pub fn validate(entries: &[Entry]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut first: HashMap<String, &Entry> = HashMap::new();
    for entry in entries {
        let gvk = &entry.watch.gvk;
        let kind = format!("{}/{}, kind {}", gvk.group, gvk.version, gvk.kind);
        if let Some(earlier) = first.get(&kind) {
            problems.push(Problem {
                line: entry.line,
                column: entry.column,
                field: format!("[{}]", entry.index),
                message: format!(
                    "duplicate entry for {kind}: entry [{}] in line {} has it; one entry per kind",
                    earlier.index, earlier.line
                ),
            });
        } else {
            first.insert(kind, entry);
        }
        if let Some(message) = chart_problem(&entry.watch.chart) {
            let (line, column) = entry.chart_mark;
            problems.push(Problem {
                line,
                column,
                field: format!("[{}].chart", entry.index),
                message,
            });
        }
    }
    problems
}

/// Why there is no chart at `path`. What the chart says is checked when it is loaded.
fn chart_problem(path: &Path) -> Option<String> {
    let shown = path.display();
    if path.is_dir() {
        let has_metadata = path.join("Chart.yaml").is_file();
        return (!has_metadata).then(|| {
            format!("{shown} is no chart: it has no Chart.yaml; name the folder that has it")
        });
    }
    if !path.exists() {
        return Some(format!(
            "no chart at {shown}; the path is relative to the folder of the watches file"
        ));
    }
    let archive = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("tgz"));
    (!archive).then(|| format!("{shown} is neither a folder nor a .tgz archive"))
}
