//! Compares generated files with those of a project, or writes them.

use std::io::Write;
use std::path::{Component, Path, PathBuf};

use crate::ToDo;
use crate::files::{ChangeKind, FileSet};

/// Destination of generated files.
pub(crate) struct Target<'a> {
    /// Directory that paths are relative to.
    pub(crate) root: &'a Path,
    /// Whether files are only compared.
    pub(crate) check: bool,
    /// The command that writes them, for messages.
    pub(crate) command: &'a str,
}

/// Writes the files that differ, or with `check` prints the differences.
pub(crate) fn deliver(
    files: &FileSet,
    target: &Target<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if !target.check {
        for change in files.write(target.root)? {
            let done = match change.kind {
                ChangeKind::Create => "created",
                ChangeKind::Update { .. } => "updated",
                ChangeKind::Delete => "deleted",
            };
            writeln!(out, "{done} {}", change.path.display())?;
        }
        return Ok(());
    }
    let changes = files.changes(target.root)?;
    for change in &changes {
        match &change.kind {
            ChangeKind::Create => {
                writeln!(out, "missing {}", change.path.display())?;
            }
            ChangeKind::Update { diff } => out.write_all(diff.as_bytes())?,
            ChangeKind::Delete => writeln!(out, "outdated {}", change.path.display())?,
        }
    }
    let outdated = match changes.as_slice() {
        [] => return Ok(()),
        [one] => format!("{} is", one.path.display()),
        many => format!("{} files are", many.len()),
    };
    let message = format!("{outdated} out of date; run '{}'", target.command);
    Err(ToDo::Message(message).into())
}

/// Splits the path of a directory in the project into the project's root and the rest, so that
/// messages and differences name files as the user does. The rest is empty for other directories.
pub(crate) fn place(root: &Path, directory: &Path) -> (PathBuf, PathBuf) {
    let is_inside = |path: &Path| {
        path.components()
            .all(|part| matches!(part, Component::Normal(_)))
    };
    match directory.strip_prefix(root) {
        Ok(inside) if is_inside(inside) => (root.to_owned(), inside.to_owned()),
        _ => (directory.to_owned(), PathBuf::new()),
    }
}
