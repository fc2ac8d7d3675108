//! Detects changes of files by their metadata, without reading them.
//!
//! Links are followed, so the swap of `..data` in a mounted `ConfigMap` is a change of every file in
//! it. Polling works on every kind of mount; inotify reports nothing on network file systems, and not
//! every swap of a mount.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of files and directories after which a scan ends, as a chart has no more.
const MAX_ENTRIES: usize = 20_000;
/// Depth at which a scan ends, which ends cycles of links.
const MAX_DEPTH: usize = 64;

/// Time between two scans of files at rest.
const AT_REST: Duration = Duration::from_secs(2);
/// Time between two scans while files change.
const CHANGING: Duration = Duration::from_millis(500);

/// Result of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Scan {
    /// Changes when a file is written, replaced, added or removed.
    pub(super) fingerprint: u64,
    /// Number of files and directories.
    pub(super) entries: usize,
}

/// Scans a file and the directories and files of charts. What cannot be read counts as missing.
pub(super) fn scan(file: &Path, charts: &BTreeSet<PathBuf>) -> Scan {
    let mut scan = Scan::default();
    for path in std::iter::once(file).chain(charts.iter().map(PathBuf::as_path)) {
        scan.add(path, hash(path), 0);
    }
    scan
}

impl Scan {
    fn add(&mut self, path: &Path, name: u64, depth: usize) {
        self.entries += 1;
        let Ok(about) = fs::metadata(path) else {
            self.count(hash((name, "missing")));
            return;
        };
        self.count(hash((name, metadata(&about))));
        if !about.is_dir() || depth > MAX_DEPTH {
            return;
        }
        let Ok(entries) = fs::read_dir(path) else {
            return;
        };
        for entry in entries.flatten() {
            let file = entry.file_name();
            // The directories behind the links of a mounted ConfigMap.
            if file.as_encoded_bytes().starts_with(b"..") || self.entries >= MAX_ENTRIES {
                continue;
            }
            self.add(&entry.path(), hash((name, &file)), depth + 1);
        }
    }

    /// The order of directory entries does not matter.
    fn count(&mut self, hash: u64) {
        self.fingerprint = self.fingerprint.wrapping_add(hash);
    }
}

fn metadata(about: &Metadata) -> impl Hash + use<> {
    let written = (about.mtime(), about.mtime_nsec());
    let changed = (about.ctime(), about.ctime_nsec());
    (about.dev(), about.ino(), about.len(), written, changed)
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// State of the files according to a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing has changed since the files were read.
    AtRest,
    /// Files are being changed, for example copied.
    Changing,
    /// Files have changed, and not since the previous scan: they can be read.
    Settled,
}

/// Waits for changed files to settle. Pure.
#[derive(Debug)]
pub(super) struct Settle {
    /// The files as they were last read.
    read: u64,
    /// The files as they were last scanned.
    seen: u64,
}

impl Settle {
    /// Starts with files that have been read.
    pub(super) fn new(read: u64) -> Self {
        Self { read, seen: read }
    }

    /// Returns what a scan means.
    pub(super) fn see(&mut self, fingerprint: u64) -> Meaning {
        let before = std::mem::replace(&mut self.seen, fingerprint);
        if fingerprint == self.read {
            Meaning::AtRest
        } else if fingerprint == before {
            Meaning::Settled
        } else {
            Meaning::Changing
        }
    }

    /// Remembers that files were read which did not change meanwhile.
    pub(super) fn was_read(&mut self, fingerprint: u64) {
        *self = Self::new(fingerprint);
    }
}

/// Returns the time until the next scan. It grows with the number of files, so that scans take a
/// fixed share of the time.
pub(super) fn pause(meaning: Meaning, entries: usize) -> Duration {
    if meaning != Meaning::AtRest {
        return CHANGING;
    }
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    let many = Duration::from_millis(10).saturating_mul(entries);
    many.clamp(AT_REST, 10 * AT_REST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::{Meaning, Settle, pause, scan};

    #[test]
    fn each_change_of_a_chart_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("chart/templates")).unwrap();
        fs::write(at("watches.yaml"), "[]").unwrap();
        fs::write(at("chart/values.yaml"), "a: 1").unwrap();
        let charts = BTreeSet::from([at("chart")]);
        let look = || scan(&at("watches.yaml"), &charts).fingerprint;
        let mut seen = vec![look()];
        assert_eq!(look(), seen[0], "nothing has changed");
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(at("chart/values.yaml"), "a: 22").unwrap(),
            &|| fs::write(at("chart/templates/a.yaml"), "").unwrap(),
            &|| fs::rename(at("chart/templates/a.yaml"), at("chart/templates/b.yaml")).unwrap(),
            &|| fs::remove_file(at("chart/templates/b.yaml")).unwrap(),
            &|| fs::write(at("watches.yaml"), "# text").unwrap(),
            &|| fs::rename(at("chart"), at("gone")).unwrap(),
        ];
        for change in changes {
            change();
            let now = look();
            assert!(!seen.contains(&now), "{}", seen.len());
            seen.push(now);
        }
    }

    #[test]
    fn the_swap_of_a_mounted_config_map_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for version in ["..1", "..2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("watches.yaml"), "[]").unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/watches.yaml", at("watches.yaml")).unwrap();
        let look = || scan(&at("watches.yaml"), &BTreeSet::new()).fingerprint;
        let before = look();
        symlink("..2", at("..new")).unwrap();
        assert_eq!(look(), before);
        fs::rename(at("..new"), at("..data")).unwrap();
        assert_ne!(look(), before);
    }

    #[test]
    fn files_are_read_once_they_have_settled() {
        let mut settle = Settle::new(1);
        let scans = [
            (1, Meaning::AtRest),
            (2, Meaning::Changing),
            (3, Meaning::Changing),
            (3, Meaning::Settled),
        ];
        for (fingerprint, meaning) in scans {
            assert_eq!(settle.see(fingerprint), meaning, "{fingerprint}");
        }
        assert_eq!(settle.see(3), Meaning::Settled, "until they are read");
        settle.was_read(3);
        assert_eq!(settle.see(3), Meaning::AtRest);
        assert_eq!(settle.see(4), Meaning::Changing);
        assert_eq!(settle.see(3), Meaning::AtRest, "the change was undone");
    }

    #[test]
    fn many_files_are_scanned_less_often() {
        let seconds = Duration::from_secs;
        let cases = [(10, 2), (500, 5), (1_000_000, 20)];
        for (entries, expected) in cases {
            assert_eq!(pause(Meaning::AtRest, entries), seconds(expected));
            assert!(pause(Meaning::Changing, entries) < seconds(1));
        }
    }
}
