//! Checks for duplicate kinds and missing charts.

use host::HashMap;
use std::path::Path;

use super::entry::Entry;
use super::problem::Problem;

/// Returns the mistakes that only show in comparison with other entries and the file system.
pub fn validate(entries: &[Entry]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut first: HashMap<String, &Entry> = HashMap::default();
    for entry in entries {
        let gvk = &entry.watch.gvk;
        let kind = format!("{}/{}, kind {}", gvk.group, gvk.version, gvk.kind);
        if let Some(earlier) = first.get(&kind) {
            problems.push(Problem {
                line: entry.line,
                column: entry.column,
                field: format!("[{}]", entry.index),
                message: format!(
                    "duplicate entry for {kind}: already in entry [{}], line {}; remove one of them",
                    earlier.index, earlier.line
                ),
            });
        } else {
            first.insert(kind, entry);
        }
        if let Some(message) = entry.watch.chart.path().and_then(chart_problem) {
            let (line, column) = entry.chart_position;
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

/// Returns why there is no chart at `path`. The chart itself is checked when it is loaded.
fn chart_problem(path: &Path) -> Option<String> {
    let shown = path.display();
    if path.is_dir() {
        let has_metadata = path.join("Chart.yaml").is_file();
        return (!has_metadata).then(|| {
            format!("{shown} has no Chart.yaml; give the path of a chart's folder or .tgz archive")
        });
    }
    if !path.exists() {
        return Some(format!(
            "{shown} does not exist; relative paths are resolved against the folder of the watches file"
        ));
    }
    let archive = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("tgz"));
    (!archive).then(|| {
        format!("{shown} is neither a folder nor a .tgz archive; give the path of a chart")
    })
}
