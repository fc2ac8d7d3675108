//! Moves a project of operator-sdk or helm-operator-plugins to this operator.
//!
//! Each module looks at one kind of file and returns findings; what can be changed without a
//! decision is changed in memory. Only the caller writes files.

mod containers;
mod definitions;
mod dockerfile;
mod go_code;
mod makefile;
mod roles;
mod watches_file;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::{FileSet, FilesError};
use crate::project::{PROJECT, ProjectFile, WATCHES};

/// Maximum size of a file that is read, in bytes. Files of projects are far smaller.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Maximum number of files of a project, without charts.
const MAX_FILES: usize = 10_000;
/// Directories that hold nothing to migrate.
const SKIPPED: &[&str] = &[
    ".git",
    "bin",
    "bundle",
    "helm-charts",
    "node_modules",
    "target",
    "vendor",
];

/// Error reading a project.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error(
        "{} has no watches.yaml, so it is not a project of operator-sdk's Helm plugin or of helm-operator-plugins; give the directory of the project",
        root.display()
    )]
    NoWatches { root: PathBuf },
    #[error(
        "{} is a project of operator-sdk's Ansible plugin: its watches.yaml names playbooks or roles, for which there are no charts",
        root.display()
    )]
    Ansible { root: PathBuf },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{} has more than {MAX_FILES} files; give the directory of the project",
        root.display()
    )]
    TooManyFiles { root: PathBuf },
    /// The changed files cannot be collected.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// A finding in one place of the project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Consequence for the migration.
    pub(crate) kind: Kind,
    /// The file, relative to the project.
    pub(crate) path: PathBuf,
    /// The line, from 1.
    pub(crate) line: Option<usize>,
    /// Change that is made, or to be done, and the reason.
    pub(crate) text: String,
}

/// Consequence of a finding for the migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `migrate` changes it.
    Change,
    /// Work that must be done by hand.
    ByHand,
    /// Something that behaves differently, or is worth knowing.
    Note,
}

/// Files of a project by their path, and what was found in them.
#[derive(Debug)]
pub(crate) struct Migration {
    /// Findings, in the order of their kinds, paths and lines.
    pub(crate) findings: Vec<Finding>,
    /// The tool that wrote the project.
    pub(crate) origin: Origin,
    /// Number of entries in the watches file.
    pub(crate) charts: usize,
    changed: BTreeMap<PathBuf, String>,
}

/// The tool that wrote a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// operator-sdk with the plugin `helm`: the operator is a base image.
    Sdk,
    /// helm-operator-plugins: the operator is a Go program.
    Plugins,
}

/// A project while it is migrated.
struct Tree {
    root: PathBuf,
    origin: Origin,
    files: BTreeMap<PathBuf, String>,
    findings: Vec<Finding>,
    changed: BTreeMap<PathBuf, String>,
}

/// Looks at the project in a directory. Changes nothing.
pub(crate) fn assess(directory: &Path) -> Result<Migration, MigrateError> {
    let root = directory.to_owned();
    if !root.join(WATCHES).is_file() {
        return Err(MigrateError::NoWatches { root });
    }
    let mut files = BTreeMap::new();
    read_files(directory, directory, &mut files)?;
    if watches_file::is_ansible(files.get(Path::new(WATCHES))) {
        return Err(MigrateError::Ansible { root });
    }
    let mut tree = Tree {
        origin: origin(&files),
        root,
        files,
        findings: Vec::new(),
        changed: BTreeMap::new(),
    };
    dockerfile::check(&mut tree);
    let kinds = watches_file::check(&mut tree);
    roles::check(&mut tree, &kinds);
    containers::check(&mut tree);
    definitions::check(&mut tree, &kinds);
    makefile::check(&mut tree);
    go_code::check(&mut tree);
    tree.findings.sort();
    Ok(Migration {
        findings: tree.findings,
        origin: tree.origin,
        charts: kinds.len(),
        changed: tree.changed,
    })
}

impl Migration {
    /// Returns the changed files.
    pub(crate) fn files(&self) -> Result<FileSet, FilesError> {
        let mut files = FileSet::default();
        for (path, text) in &self.changed {
            files.add(path, text.as_str())?;
        }
        Ok(files)
    }

    /// Returns the findings of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Finding> {
        let findings = self.findings.iter();
        findings.filter(move |finding| finding.kind == kind)
    }
}

impl Tree {
    fn add(&mut self, kind: Kind, path: &Path, line: Option<usize>, text: impl Into<String>) {
        self.findings.push(Finding {
            kind,
            path: path.to_owned(),
            line,
            text: text.into(),
        });
    }

    /// Returns the files whose path `wanted` accepts, as they will be.
    fn matching(&self, wanted: impl Fn(&Path) -> bool) -> Vec<(PathBuf, String)> {
        let files = self.files.iter().filter(|(path, _)| wanted(path));
        files
            .map(|(path, text)| (path.clone(), self.changed.get(path).unwrap_or(text).clone()))
            .collect()
    }

    /// Replaces the content of a file.
    fn change(&mut self, path: &Path, text: String) {
        self.changed.insert(path.to_owned(), text);
    }
}

/// Returns which tool wrote the project: by the layout of its PROJECT file, else by whether it has a
/// Go module.
fn origin(files: &BTreeMap<PathBuf, String>) -> Origin {
    let project = files.get(Path::new(PROJECT));
    let project: Option<ProjectFile> = project.and_then(|text| go_yaml::from_str(text).ok());
    let layout = project.map(|project| project.layout).unwrap_or_default();
    let plugins = layout.iter().any(|name| name.starts_with("hybrid.helm."));
    if plugins || (layout.is_empty() && files.contains_key(Path::new("go.mod"))) {
        Origin::Plugins
    } else {
        Origin::Sdk
    }
}

/// Returns whether a path is a YAML file below one of these directories.
fn is_yaml_in(path: &Path, directories: &[&str]) -> bool {
    let yaml = path
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml");
    yaml && directories
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// Returns the number of the first line that contains a text.
fn line_with(text: &str, part: &str) -> Option<usize> {
    let found = text.lines().position(|line| line.contains(part));
    found.map(|index| index + 1)
}

/// Reads the text files of a directory and those below it.
fn read_files(
    root: &Path,
    directory: &Path,
    files: &mut BTreeMap<PathBuf, String>,
) -> Result<(), MigrateError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| MigrateError::Read { path, source }
    };
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let entry = entry.map_err(failed(directory))?;
        let path = entry.path();
        let metadata = entry.metadata().map_err(failed(&path))?;
        if metadata.is_dir() {
            let name = entry.file_name();
            let skipped = SKIPPED.iter().any(|skipped| *name == **skipped);
            if !skipped {
                read_files(root, &path, files)?;
            }
        } else if metadata.is_file() && metadata.len() <= MAX_FILE {
            if files.len() >= MAX_FILES {
                let root = root.to_owned();
                return Err(MigrateError::TooManyFiles { root });
            }
            let data = fs::read(&path).map_err(failed(&path))?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            if let Ok(text) = String::from_utf8(data) {
                files.insert(relative.to_owned(), text);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
