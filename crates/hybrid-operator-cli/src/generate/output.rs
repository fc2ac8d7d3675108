//! Compares generated files with those of a project, or writes them.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::files::{ChangeKind, FileSet};

/// Where generated files go.
pub(crate) struct Target<'a> {
    /// Directory that paths are relative to.
    pub(crate) root: &'a Path,
    /// The same directory as messages name it; empty if they need not.
    pub(crate) shown: &'a Path,
    /// Whether files are only compared.
    pub(crate) check: bool,
    /// The command that writes them, for messages.
    pub(crate) command: &'a str,
}

/// Writes the files that differ, or with `check` prints the differences and fails.
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
            };
            writeln!(out, "{done} {}", target.shown.join(&change.path).display())?;
        }
        return Ok(());
    }
    let changes = files.changes(target.root)?;
    for change in &changes {
        match &change.kind {
            ChangeKind::Create => {
                writeln!(out, "missing {}", target.shown.join(&change.path).display())?;
            }
            ChangeKind::Update { diff } => out.write_all(diff.as_bytes())?,
        }
    }
    match changes.as_slice() {
        [] => Ok(()),
        [one] => bail!(
            "{} is out of date; run '{}'",
            target.shown.join(&one.path).display(),
            target.command
        ),
        many => bail!(
            "{} files are out of date; run '{}'",
            many.len(),
            target.command
        ),
    }
}

/// Splits the path of a directory into the part above the project's root and the rest, so that
/// messages name files as the user does.
pub(crate) fn place(root: &Path, directory: &Path) -> (PathBuf, PathBuf) {
    match directory.strip_prefix(root) {
        Ok(inside) => (root.to_owned(), inside.to_owned()),
        Err(_) => (directory.to_owned(), PathBuf::new()),
    }
}
