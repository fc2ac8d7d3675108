//! Writes or checks generated files, and says what changed.

use std::io::Write;
use std::path::Path;

use anyhow::bail;

use crate::files::{ChangeKind, FileSet};

/// Writes the files below `root` and prints what changed. With `check`, nothing is written, and
/// files that are out of date are an error. `command` is what brings them up to date; `shown` is
/// `root` as messages name it.
pub(crate) fn write_or_check(
    files: &FileSet,
    root: &Path,
    shown: &Path,
    check: bool,
    command: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if check {
        let changes = files.changes(root)?;
        for change in &changes {
            match &change.kind {
                ChangeKind::Create => {
                    writeln!(out, "{} is missing", shown.join(&change.path).display())?;
                }
                ChangeKind::Update { diff } => write!(out, "{diff}")?,
            }
        }
        if !changes.is_empty() {
            let paths: Vec<String> = changes
                .iter()
                .map(|change| shown.join(&change.path).display().to_string())
                .collect();
            bail!("out of date: {}; run '{command}'", paths.join(", "));
        }
        return Ok(());
    }
    let changes = files.write(root)?;
    for change in &changes {
        let done = match change.kind {
            ChangeKind::Create => "created",
            ChangeKind::Update { .. } => "updated",
        };
        writeln!(out, "{done} {}", shown.join(&change.path).display())?;
    }
    if changes.is_empty() {
        writeln!(out, "{} is up to date", shown.display())?;
    }
    Ok(())
}
