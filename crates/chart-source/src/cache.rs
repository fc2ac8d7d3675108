//! Archives on disk, by their digest, and beside them what proves who has published them.
//!
//! A file is written under another name and renamed, so that readers never see half of it; several
//! processes may use one cache at the same time. Its size is bounded: the files that were not used for
//! the longest time are removed first. A file whose content does not have the digest of its name is
//! removed and counts as missing.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::digest::Digest;
use crate::limits;

/// Age at which a file that was written half is removed.
const ABANDONED: Duration = Duration::from_hours(1);
/// Extension of a file that is being written.
const PARTIAL: &str = "partial";
/// Extension of an archive.
const ARCHIVE: &str = "tgz";
/// Last part of the name of a file with what proves an archive.
const EVIDENCE: &str = "proof";

/// Makes the names of files that this process writes differ.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {} of the chart cache; choose another directory with --chart-cache or CHART_CACHE", path.display())]
    File {
        /// The failed action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A directory with archives.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
    /// Largest number of bytes.
    capacity: u64,
    /// Whether archives are only read.
    read_only: bool,
}

impl Cache {
    /// Opens the cache in `CHART_CACHE`, else in `hybrid-operator/charts` of the user's cache directory
    /// (`XDG_CACHE_HOME`, else `~/.cache`). Returns `None` if no variable names a directory.
    pub fn open_default() -> Option<Self> {
        Self::from_env(|name| std::env::var_os(name).map(PathBuf::from))
    }

    fn from_env(env: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let set = |name: &str| env(name).filter(|value| !value.as_os_str().is_empty());
        let directory = set("CHART_CACHE").or_else(|| {
            let cache =
                set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
            cache.map(|cache| cache.join("hybrid-operator/charts"))
        })?;
        Some(Self::at(directory))
    }

    /// Opens the cache in a directory, which is created when it is first needed.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            capacity: limits::CACHE,
            read_only: false,
        }
    }

    /// Returns the same cache, into which nothing is written.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }

    /// Returns whether nothing is written into it.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns where the archive with a digest is, or would be.
    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{}.{ARCHIVE}", digest.hex()))
    }

    /// Returns where the evidence of one kind about an archive is, or would be.
    pub(crate) fn evidence_path(&self, digest: &Digest, kind: &str) -> PathBuf {
        let name = format!("{}.{kind}.{EVIDENCE}", digest.hex());
        self.directory.join(name)
    }

    /// Returns an archive, if it is there.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub(crate) fn get(&self, digest: &Digest) -> Result<Option<Vec<u8>>, CacheError> {
        let path = self.path(digest);
        let Some(data) = Self::read(&path, limits::ARCHIVE)? else {
            return Ok(None);
        };
        if Digest::of(&data) == *digest {
            return Ok(Some(data));
        }
        if !self.read_only {
            remove(&path).map_err(failed("remove", &path))?;
        }
        Ok(None)
    }

    /// Returns the evidence of one kind about an archive, if it is there. What proves it is not checked here.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub(crate) fn evidence(
        &self,
        digest: &Digest,
        kind: &str,
    ) -> Result<Option<Vec<u8>>, CacheError> {
        Self::read(&self.evidence_path(digest, kind), limits::EVIDENCE)
    }

    /// Reads a file; nothing of one that is larger than `limit`.
    fn read(path: &Path, limit: usize) -> Result<Option<Vec<u8>>, CacheError> {
        let file = match File::options().read(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", path)(error)),
        };
        let length = file.metadata().map_err(failed("read", path))?.len();
        let mut data = Vec::new();
        if length <= limit as u64 {
            let mut bounded = (&file).take(limit as u64);
            bounded
                .read_to_end(&mut data)
                .map_err(failed("read", path))?;
        }
        // On a file system that is only read, the order of removal does not matter.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(data))
    }

    /// Stores an archive, and removes others if there is not enough room. An archive that is larger
    /// than the whole cache is not stored.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn put(&self, digest: &Digest, data: &[u8]) -> Result<(), CacheError> {
        self.write(digest, &self.path(digest), data)
    }

    /// Stores evidence of one kind about an archive, as [`put`](Self::put) does.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn put_evidence(
        &self,
        digest: &Digest,
        kind: &str,
        data: &[u8],
    ) -> Result<(), CacheError> {
        if data.len() > limits::EVIDENCE {
            return Ok(());
        }
        self.write(digest, &self.evidence_path(digest, kind), data)
    }

    /// Writes a file that belongs to an archive.
    fn write(&self, digest: &Digest, path: &Path, data: &[u8]) -> Result<(), CacheError> {
        if self.read_only || data.len() as u64 > self.capacity {
            return Ok(());
        }
        let directory = &self.directory;
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}.{PARTIAL}", digest.hex(), std::process::id());
        let partial = directory.join(name);
        let written = File::create_new(&partial)
            .and_then(|mut file| {
                file.write_all(data)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&partial, path));
        if let Err(error) = written {
            // What remains is removed later.
            let _ = fs::remove_file(&partial);
            return Err(failed("write", &partial)(error));
        }
        self.shrink(digest).map_err(failed("clean", directory))
    }

    /// Removes the files that were not used for the longest time, except for those of the archive `keep`,
    /// and files of processes that ended while they wrote.
    fn shrink(&self, keep: &Digest) -> io::Result<()> {
        let keep = keep.hex();
        let mut files = Vec::new();
        let mut used = 0;
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            // Another process may remove it at the same time.
            let Ok(about) = fs::metadata(&path) else {
                continue;
            };
            let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let extension = path.extension().and_then(|extension| extension.to_str());
            match extension {
                Some(PARTIAL) if modified.elapsed().is_ok_and(|age| age > ABANDONED) => {
                    remove(&path)?;
                }
                Some(ARCHIVE | EVIDENCE) => {
                    used += about.len();
                    files.push((modified, about.len(), path));
                }
                _ => {}
            }
        }
        files.sort();
        for (_, size, path) in files {
            if used <= self.capacity {
                break;
            }
            let name = path.file_name().and_then(|name| name.to_str());
            if !name.is_some_and(|name| name.starts_with(&keep)) {
                remove(&path)?;
                used -= size;
            }
        }
        Ok(())
    }
}

/// Returns what makes an error of the cache out of one of a file.
fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.to_owned();
    move |source| CacheError::File {
        action,
        path,
        source,
    }
}

/// Removes a file that may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(directory: &Path, capacity: u64) -> Cache {
        Cache {
            capacity,
            ..Cache::at(directory)
        }
    }

    fn names(cache: &Cache) -> Vec<String> {
        let entries = fs::read_dir(&cache.directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn age(cache: &Cache, digest: &Digest, seconds: u64) {
        let file = File::options()
            .write(true)
            .open(cache.path(digest))
            .unwrap();
        let time = SystemTime::now() - Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    }

    #[test]
    fn archives_are_kept_by_digest_and_damaged_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("a/b"));
        let digest = Digest::of(b"one");
        assert_eq!(cache.get(&digest).unwrap(), None);
        cache.put(&digest, b"one").unwrap();
        cache.put(&digest, b"one").unwrap();
        assert_eq!(cache.get(&digest).unwrap().unwrap(), b"one");
        assert_eq!(names(&cache), [format!("{}.tgz", digest.hex())]);
        fs::write(cache.path(&digest), "two").unwrap();
        assert_eq!(cache.get(&digest).unwrap(), None);
        assert!(names(&cache).is_empty());
    }

    #[test]
    fn nothing_is_written_to_a_cache_that_is_only_read() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        cache.put(&one, b"one").unwrap();
        let cache = cache.read_only();
        cache.put(&two, b"two").unwrap();
        assert_eq!(cache.get(&one).unwrap().unwrap(), b"one");
        assert_eq!(cache.get(&two).unwrap(), None);
        fs::write(cache.path(&one), "damaged").unwrap();
        assert_eq!(cache.get(&one).unwrap(), None);
        assert!(cache.path(&one).exists());
    }

    #[test]
    fn least_recently_used_archives_make_room_and_abandoned_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = small(dir.path(), 10);
        let digests = [b"aaaa", b"bbbb", b"cccc"].map(|data| Digest::of(data));
        cache.put(&digests[0], b"aaaa").unwrap();
        cache.put(&digests[1], b"bbbb").unwrap();
        age(&cache, &digests[0], 60);
        age(&cache, &digests[1], 30);
        // Its use makes it the newest.
        assert!(cache.get(&digests[0]).unwrap().is_some());
        let (old, new) = (dir.path().join("x.partial"), dir.path().join("y.partial"));
        fs::write(&new, "").unwrap();
        let file = File::create(&old).unwrap();
        file.set_modified(SystemTime::now() - 2 * ABANDONED)
            .unwrap();
        cache.put(&digests[2], b"cccc").unwrap();
        let there = digests.map(|digest| cache.get(&digest).unwrap().is_some());
        assert_eq!(there, [true, false, true]);
        assert!(!old.exists() && new.exists());
        let large = [0; 11];
        cache.put(&Digest::of(&large), &large).unwrap();
        assert!(cache.get(&Digest::of(&large)).unwrap().is_none());
    }

    #[test]
    fn many_writers_and_readers_see_whole_archives_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = small(dir.path(), 300_000);
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..20_u8 {
                        let data = vec![round % 5 + writer; 60_000];
                        let digest = Digest::of(&data);
                        cache.put(&digest, &data).unwrap();
                        if let Some(found) = cache.get(&digest).unwrap() {
                            assert_eq!(found, data);
                        }
                    }
                });
            }
        });
        let total: u64 = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(total <= 300_000, "{total}");
        assert!(names(&cache).iter().all(|name| name.contains(".tgz")));
    }

    #[test]
    fn cache_is_where_the_environment_says() {
        let at = |set: &[(&str, &str)]| {
            let cache = Cache::from_env(|name| {
                let one = set.iter().find(|(key, _)| *key == name);
                one.map(|(_, value)| PathBuf::from(value))
            });
            cache.map(|cache| cache.directory)
        };
        let home = ("HOME", "/h");
        let expected = Some("/h/.cache/hybrid-operator/charts".into());
        assert_eq!(at(&[home]), expected);
        let expected = Some("/x/hybrid-operator/charts".into());
        assert_eq!(at(&[home, ("XDG_CACHE_HOME", "/x")]), expected);
        assert_eq!(at(&[home, ("CHART_CACHE", "/c")]), Some("/c".into()));
        assert_eq!(at(&[("HOME", "")]), None);
    }
}
