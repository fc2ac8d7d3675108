//! Writes a set of files as one: everything is computed in memory first, then all files are
//! written, or none.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use similar::TextDiff;
use tempfile::NamedTempFile;

/// Error writing a set of files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    #[error("{} is not a path inside of the project", path.display())]
    Outside { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file cannot be written; the others were not written either.
    #[error("cannot write {}; nothing was changed", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Files to be written below one directory.
#[derive(Debug, Default)]
pub(crate) struct FileSet {
    /// The content of each file, or `None` for one that is deleted.
    files: BTreeMap<PathBuf, Option<Vec<u8>>>,
}

/// Change that writing makes to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The file, relative to the directory.
    pub(crate) path: PathBuf,
    pub(crate) kind: ChangeKind,
}

/// Kind of change to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// The file does not exist yet.
    Create,
    /// The file exists with other content; the difference is in the unified format.
    Update { diff: String },
    /// The file exists, and is deleted.
    Delete,
}

impl FileSet {
    /// Adds a file, or replaces one that was added before.
    pub(crate) fn add(
        &mut self,
        path: impl Into<PathBuf>,
        data: impl Into<Vec<u8>>,
    ) -> Result<(), FilesError> {
        self.insert(path.into(), Some(data.into()))
    }

    /// Adds a file that is to be deleted.
    pub(crate) fn delete(&mut self, path: impl Into<PathBuf>) -> Result<(), FilesError> {
        self.insert(path.into(), None)
    }

    fn insert(&mut self, path: PathBuf, data: Option<Vec<u8>>) -> Result<(), FilesError> {
        let inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !inside || path.as_os_str().is_empty() {
            return Err(FilesError::Outside { path });
        }
        self.files.insert(path, data);
        Ok(())
    }

    /// Returns the paths, sorted.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Returns the set with all paths below a directory.
    pub(crate) fn below(self, directory: &Path) -> Result<Self, FilesError> {
        let mut set = Self::default();
        for (path, data) in self.files {
            set.insert(directory.join(path), data)?;
        }
        Ok(set)
    }

    /// Returns the content of a file of the set.
    pub(crate) fn get(&self, path: &Path) -> Option<&[u8]> {
        self.files.get(path)?.as_deref()
    }

    /// Compares the set with the files of a directory. Equal files are not in the result.
    pub(crate) fn changes(&self, root: &Path) -> Result<Vec<Change>, FilesError> {
        let mut changes = Vec::new();
        for (path, content) in &self.files {
            let kind = match (read(&root.join(path))?, content) {
                (None, Some(_)) => ChangeKind::Create,
                (Some(_), None) => ChangeKind::Delete,
                (present, content) if present == *content => continue,
                (present, content) => ChangeKind::Update {
                    diff: unified(
                        path,
                        &present.unwrap_or_default(),
                        content.as_deref().unwrap_or_default(),
                    ),
                },
            };
            changes.push(Change {
                path: path.clone(),
                kind,
            });
        }
        Ok(changes)
    }

    /// Writes the files that differ, and returns what changed. Whoever reads a file during this
    /// sees it as it was or as it is then, never a part. If a file cannot be written, those written
    /// before it are put back.
    pub(crate) fn write(&self, root: &Path) -> Result<Vec<Change>, FilesError> {
        let changes = self.changes(root)?;
        let mut undo = Undo::default();
        match self.write_changes(root, &changes, &mut undo) {
            Ok(()) => Ok(changes),
            Err(error) => {
                undo.run();
                Err(error)
            }
        }
    }

    fn write_changes(
        &self,
        root: &Path,
        changes: &[Change],
        undo: &mut Undo,
    ) -> Result<(), FilesError> {
        let mut staged = Vec::new();
        for change in changes {
            let path = root.join(&change.path);
            let Some(content) = self.get(&change.path) else {
                staged.push((path, None));
                continue;
            };
            let file = stage(&path, content, undo).map_err(|source| FilesError::Write {
                path: path.clone(),
                source,
            })?;
            staged.push((path, Some(file)));
        }
        // Only renames and deletions are left, for which no space is needed.
        for (path, file) in staged {
            let previous = read(&path)?;
            let done = match file {
                Some(file) => file.persist(&path).map(drop).map_err(|error| error.error),
                None => fs::remove_file(&path),
            };
            done.map_err(|source| FilesError::Write {
                path: path.clone(),
                source,
            })?;
            undo.files.push((path, previous));
        }
        Ok(())
    }
}

/// Writes the content to a temporary file beside its target.
fn stage(path: &Path, content: &[u8], undo: &mut Undo) -> io::Result<NamedTempFile> {
    let directory = path.parent().unwrap_or(Path::new("."));
    create_directories(directory, undo)?;
    if path.is_dir() {
        return Err(io::Error::new(
            ErrorKind::IsADirectory,
            "a directory has this name",
        ));
    }
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(content)?;
    let mode = match fs::metadata(path) {
        Ok(present) => present.permissions().mode(),
        Err(_) => 0o644,
    };
    let file_handle: &File = file.as_file();
    file_handle.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Returns the paths of what is in a directory, sorted; none if there is no such directory.
pub(crate) fn entries_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let paths: io::Result<Vec<PathBuf>> = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect()),
    };
    let mut paths = paths.with_context(|| format!("cannot read {}", directory.display()))?;
    paths.sort();
    Ok(paths)
}

/// Creates a directory and those above it that are missing.
fn create_directories(directory: &Path, undo: &mut Undo) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create_directories(parent, undo)?;
    }
    fs::create_dir(directory)?;
    undo.directories.push(directory.to_owned());
    Ok(())
}

/// Changes made so far, which must be undone after an error.
#[derive(Default)]
struct Undo {
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl Undo {
    /// Puts everything back. An error here cannot be reported beside the one that led to it.
    fn run(self) {
        for (path, previous) in self.files.into_iter().rev() {
            let _ = match previous {
                Some(data) => fs::write(&path, data),
                None => fs::remove_file(&path),
            };
        }
        for directory in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Reads a file that may be missing.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, FilesError> {
    match fs::read(path) {
        Ok(data) => Ok(Some(data)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Writing reports that the path is a directory.
        Err(error) if error.kind() == ErrorKind::IsADirectory => Ok(None),
        Err(source) => Err(FilesError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Returns the difference of two texts in the unified format.
fn unified(path: &Path, present: &[u8], wanted: &[u8]) -> String {
    let (present, wanted) = (
        String::from_utf8_lossy(present),
        String::from_utf8_lossy(wanted),
    );
    let path = path.display().to_string();
    TextDiff::from_lines(present.as_ref(), wanted.as_ref())
        .unified_diff()
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(files: &[(&str, &str)]) -> FileSet {
        let mut set = FileSet::default();
        for (path, data) in files {
            set.add(*path, *data).unwrap();
        }
        set
    }

    #[test]
    fn a_second_write_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let project = ("PROJECT", "version: 3\n");
        let set = set(&[project, ("config/rbac/a.yaml", "a: 1\n")]);
        assert_eq!(set.write(directory.path()).unwrap().len(), 2);
        assert_eq!(set.changes(directory.path()).unwrap(), []);
        assert_eq!(set.write(directory.path()).unwrap(), []);
    }

    #[test]
    fn a_changed_file_is_shown_as_a_unified_diff() {
        let directory = tempfile::tempdir().unwrap();
        let (before, after) = (("a.yaml", "x: 1\ny: 2\n"), ("a.yaml", "x: 1\ny: 3\n"));
        set(&[before]).write(directory.path()).unwrap();
        let changes = set(&[after]).changes(directory.path()).unwrap();
        let diff = "--- a/a.yaml\n+++ b/a.yaml\n@@ -1,2 +1,2 @@\n x: 1\n-y: 2\n+y: 3\n";
        let kind = ChangeKind::Update { diff: diff.into() };
        let path = "a.yaml".into();
        assert_eq!(changes, [Change { path, kind }]);
    }

    #[test]
    fn nothing_is_written_if_one_file_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("b.yaml"), "old").unwrap();
        // A directory has the name of the last file.
        fs::create_dir(root.join("z.yaml")).unwrap();
        let set = set(&[("a/new.yaml", "a"), ("b.yaml", "new"), ("z.yaml", "z")]);
        let error = set.write(root).unwrap_err().to_string();
        assert!(error.contains("z.yaml; nothing was changed"), "{error}");
        assert_eq!(fs::read_to_string(root.join("b.yaml")).unwrap(), "old");
        let entries = fs::read_dir(root).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b.yaml", "z.yaml"]);
    }

    #[test]
    fn deleted_files_are_put_back_if_another_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("a.yaml"), "old").unwrap();
        let mut files = set(&[("z.yaml", "z")]);
        files.delete("a.yaml").unwrap();
        files.delete("absent.yaml").unwrap();
        fs::create_dir(root.join("z.yaml")).unwrap();
        assert!(files.write(root).is_err());
        assert_eq!(fs::read_to_string(root.join("a.yaml")).unwrap(), "old");
        fs::remove_dir(root.join("z.yaml")).unwrap();
        let changes = files.write(root).unwrap();
        let kinds: Vec<_> = changes.into_iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Delete, ChangeKind::Create]);
        assert!(!root.join("a.yaml").exists());
        assert_eq!(files.write(root).unwrap(), []);
    }

    #[test]
    fn paths_outside_of_the_directory_are_refused() {
        for path in ["../a", "/etc/a", "a/../../b", ""] {
            assert!(FileSet::default().add(path, "").is_err(), "{path}");
        }
    }

    #[test]
    fn permissions_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let set = set(&[("run", "#!/bin/bash\n")]);
        set.write(directory.path()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
