//! Notices changed files by their metadata.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files with what identifies their content.
pub(super) type Files = BTreeMap<PathBuf, Version>;

/// Changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    size: u64,
    inode: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// Returns the files of these directories and files; what cannot be read is left out.
pub(super) fn files(paths: &[PathBuf]) -> Files {
    let mut found = Files::new();
    for path in paths {
        collect(path, &mut found, 0);
    }
    found
}

fn collect(path: &Path, found: &mut Files, depth: usize) {
    let Ok(about) = fs::metadata(path) else {
        return;
    };
    if about.is_file() {
        let version = Version {
            size: about.len(),
            inode: about.ino(),
            written: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        };
        found.insert(path.to_owned(), version);
    } else if about.is_dir() && depth < 32 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries {
            collect(&entry.path(), found, depth + 1);
        }
    }
}

/// Returns the files of `now` that are not the same in `before`.
pub(super) fn changed(before: &Files, now: &Files) -> Vec<PathBuf> {
    let differs = |(path, version): &(&PathBuf, &Version)| before.get(*path) != Some(*version);
    let changed = now.iter().filter(differs);
    changed.map(|(path, _)| path.clone()).collect()
}

/// Waits for files to settle: a change counts when two looks in a row see the same.
#[derive(Debug, Default)]
pub(super) struct Settled {
    handled: Files,
    seen: Files,
}

impl Settled {
    /// Starts with files that have been handled.
    pub(super) fn new(handled: Files) -> Self {
        Self {
            seen: handled.clone(),
            handled,
        }
    }

    /// Returns the state before a change that has settled.
    pub(super) fn see(&mut self, now: &Files) -> Option<Files> {
        let same = self.seen == *now;
        self.seen.clone_from(now);
        if !same || self.handled == *now {
            return None;
        }
        Some(std::mem::replace(&mut self.handled, now.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_and_when_it_has_settled() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().to_owned()];
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        write("a.yaml", "1");
        let mut settled = Settled::new(files(&paths));
        assert_eq!(settled.see(&files(&paths)), None);
        let written = write("b.yaml", "22");
        assert_eq!(settled.see(&files(&paths)), None, "it may still be written");
        let before = settled.see(&files(&paths)).unwrap();
        assert_eq!(changed(&before, &files(&paths)), [written]);
        assert_eq!(settled.see(&files(&paths)), None);
    }
}
