//! The files of a command before they are written: new ones, and edits of those that exist.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::ScaffoldError;
use crate::files::{ChangeKind, FileSet};

/// Files to be written into a project.
pub(crate) struct Draft {
    root: PathBuf,
    files: FileSet,
    /// Files whose present content was read, and kept except for what was inserted.
    edited: BTreeSet<PathBuf>,
}

impl Draft {
    /// Creates an empty draft for a directory.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            files: FileSet::default(),
            edited: BTreeSet::new(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a file as it will be.
    pub(super) fn read(&self, path: &str) -> Result<Option<String>, ScaffoldError> {
        if let Some(data) = self.files.get(Path::new(path)) {
            return Ok(Some(String::from_utf8_lossy(data).into_owned()));
        }
        let path = self.root.join(path);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ScaffoldError::Read { path, source }),
        }
    }

    /// Adds a file that only this command writes.
    pub(crate) fn add(
        &mut self,
        path: impl Into<PathBuf>,
        data: impl Into<Vec<u8>>,
    ) -> Result<(), ScaffoldError> {
        Ok(self.files.add(path, data)?)
    }

    /// Deletes a file.
    pub(crate) fn delete(&mut self, path: impl Into<PathBuf>) -> Result<(), ScaffoldError> {
        Ok(self.files.delete(path)?)
    }

    /// Adds a file that other commands edit: one that is there stays as it is.
    pub(super) fn add_shared(&mut self, path: &str, text: String) -> Result<(), ScaffoldError> {
        let text = self.read(path)?.unwrap_or(text);
        self.edit_or_add(path, text)
    }

    /// Adds a file that was computed from its present content.
    pub(super) fn edit_or_add(&mut self, path: &str, text: String) -> Result<(), ScaffoldError> {
        self.edited.insert(path.into());
        self.add(path, text)
    }

    /// Edits a file. `change` returns `None` if it does not find the place for `line`.
    pub(super) fn edit(
        &mut self,
        path: &str,
        line: &str,
        change: impl FnOnce(&str) -> Option<String>,
    ) -> Result<(), ScaffoldError> {
        let present = self.read(path)?;
        let changed = present.as_deref().and_then(change);
        let text = changed.ok_or_else(|| match present {
            Some(_) => ScaffoldError::NoPlace {
                path: path.to_owned(),
                line: line.to_owned(),
            },
            None => ScaffoldError::NotThere {
                path: path.to_owned(),
                line: line.to_owned(),
            },
        })?;
        self.edit_or_add(path, text)
    }

    /// Writes all files, or none, and lists them. Without `force`, a file that exists with other
    /// content is not overwritten, and none is deleted: the differences are printed, and nothing is
    /// written. Returns whether anything changed.
    pub(crate) fn write(&self, force: bool, out: &mut dyn Write) -> anyhow::Result<bool> {
        self.check_yaml()?;
        let mut paths = BTreeSet::new();
        let changes = self.files.changes(&self.root)?;
        if !force {
            for change in &changes {
                let path = change.path.display();
                match &change.kind {
                    ChangeKind::Update { diff } if !self.edited.contains(&change.path) => {
                        write!(out, "{diff}")?;
                        paths.insert(path.to_string());
                    }
                    ChangeKind::Delete => {
                        paths.insert(format!("{path} (not in the chart)"));
                    }
                    ChangeKind::Update { .. } | ChangeKind::Create => {}
                }
            }
        }
        if !paths.is_empty() {
            let paths: Vec<String> = paths.into_iter().collect();
            return Err(ScaffoldError::Differ {
                paths: paths.join(", "),
            }
            .into());
        }
        let written = self.files.write(&self.root)?;
        for path in self.files.paths() {
            let verb = match written.iter().find(|change| change.path == path) {
                Some(change) => verb(&change.kind),
                None if self.files.get(path).is_some() => "unchanged",
                None => continue,
            };
            writeln!(out, "{verb:9} {}", path.display())?;
        }
        Ok(!written.is_empty())
    }

    /// Parses the YAML files, except those of charts, which may be templates.
    fn check_yaml(&self) -> Result<(), ScaffoldError> {
        for path in self.files.paths() {
            let is_yaml = path.extension().is_some_and(|end| end == "yaml");
            if is_yaml && !path.starts_with(super::CHARTS) {
                let text = self.files.get(path).unwrap_or_default();
                go_yaml::documents::<serde_json::Value>(text).map_err(|source| {
                    ScaffoldError::Yaml {
                        path: path.to_owned(),
                        source,
                    }
                })?;
            }
        }
        Ok(())
    }
}

fn verb(kind: &ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Create => "create",
        ChangeKind::Update { .. } => "update",
        ChangeKind::Delete => "delete",
    }
}
