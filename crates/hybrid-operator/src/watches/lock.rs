//! `watches.lock`: the exact charts that the ranges of versions in a watches file mean.
//!
//! The command `hybrid-operator charts lock` writes it, and the operator only reads it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use chart_source::{Digest, Resolved};
use serde::{Deserialize, Serialize};

use super::chart::{ChartSource, RemoteChart};
use super::entry::Entry;
use super::problem::Problem;

/// The command that mends a lock.
const COMMAND: &str = "hybrid-operator charts lock";

/// Beginning of a lock.
const HEADER: &str = "# Written by `hybrid-operator charts lock`; do not edit.\n";

/// The charts of a watches file, each in one exact version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lock {
    /// The charts, by their reference.
    pub charts: Vec<LockedChart>,
}

/// Chart that a reference of the watches file means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedChart {
    /// The reference, as the watches file has it.
    pub reference: String,
    /// The version, unless only the archive says it.
    pub version: Option<String>,
    /// Location of the archive: a URL, or an OCI name with the digest of the manifest.
    pub url: String,
    /// Digest of the archive.
    pub digest: Digest,
}

/// A lock cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LockError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is malformed.
    #[error("{} is not a lock: {why}; write it again with `{COMMAND}`", path.display())]
    Malformed {
        path: PathBuf,
        /// Mistake in the file.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    charts: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    url: String,
    digest: String,
}

impl LockedChart {
    /// Locks a chart that was found.
    pub fn new(chart: &RemoteChart, found: &Resolved) -> Self {
        Self {
            reference: chart.reference.key(),
            version: found.version.clone(),
            url: found.url.clone(),
            digest: found.digest,
        }
    }
}

impl Lock {
    /// Returns where the lock of a watches file is: beside it, as `watches.lock`.
    pub fn path(watches_file: &Path) -> PathBuf {
        watches_file.with_extension("lock")
    }

    /// Reads the lock of a watches file; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read or is malformed.
    pub fn read(watches_file: &Path) -> Result<Option<Self>, LockError> {
        let path = Self::path(watches_file);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LockError::Read { path, source }),
        };
        match Self::parse(&text) {
            Ok(lock) => Ok(Some(lock)),
            Err(why) => Err(LockError::Malformed { path, why }),
        }
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let file: File = go_yaml::from_slice_strict(text).map_err(|error| error.to_string())?;
        let charts = file.charts.into_iter().map(|row| {
            let digest = row.digest.parse();
            Ok(LockedChart {
                digest: digest.map_err(|error| format!("{}: {error}", row.reference))?,
                reference: row.reference,
                version: row.version,
                url: row.url,
            })
        });
        let charts = charts.collect::<Result<_, String>>()?;
        Ok(Self { charts })
    }

    /// Returns the content of the file.
    ///
    /// # Errors
    /// If a text cannot be written as YAML.
    pub fn to_yaml(&self) -> Result<String, go_yaml::Error> {
        let charts = self.charts.iter().map(|chart| Row {
            reference: chart.reference.clone(),
            version: chart.version.clone(),
            url: chart.url.clone(),
            digest: chart.digest.to_string(),
        });
        let file = File {
            charts: charts.collect(),
        };
        Ok(format!("{HEADER}{}", go_yaml::to_string(&file)?))
    }

    /// Returns what the lock has for a chart.
    pub fn find(&self, chart: &RemoteChart) -> Option<&LockedChart> {
        let key = chart.reference.key();
        self.charts.iter().find(|locked| locked.reference == key)
    }
}

/// Gives entries with a chart that is fetched what the lock says, and returns the mistakes.
pub(super) fn apply(entries: &mut [Entry], lock: Option<&Lock>, file: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for entry in entries {
        let ChartSource::Remote(chart) = &mut entry.watch.chart else {
            continue;
        };
        match locked(chart, lock, file) {
            Ok(locked) => chart.locked = locked,
            Err(message) => problems.push(Problem {
                line: entry.chart_position.0,
                column: entry.chart_position.1,
                field: format!("[{}].chart", entry.index),
                message,
            }),
        }
    }
    problems
}

/// Returns what the lock says about a chart. Without a lock, the watches file must say which chart it is.
fn locked(
    chart: &RemoteChart,
    lock: Option<&Lock>,
    file: &Path,
) -> Result<Option<LockedChart>, String> {
    let reference = &chart.reference;
    let name = file.file_name().unwrap_or_default().display();
    let Some(lock) = lock else {
        if reference.is_exact() {
            return Ok(None);
        }
        return Err(format!(
            "{reference} does not say one exact version, and there is no {name}; write it with \
             `{COMMAND}`, or give a complete version such as 1.2.3, or a digest"
        ));
    };
    let Some(locked) = lock.find(chart) else {
        return Err(format!(
            "{reference} is not in {name}; add it with `{COMMAND}`"
        ));
    };
    match reference.digest {
        Some(digest) if digest != locked.digest => Err(format!(
            "{reference} has the digest {} in {name}, but {digest} here; if this one is right, run \
             `{COMMAND} --update`",
            locked.digest
        )),
        _ => Ok(Some(locked.clone())),
    }
}

#[cfg(test)]
mod tests {
    use chart_source::ChartReference;

    use super::*;

    fn chart(text: &str, version: Option<&str>) -> RemoteChart {
        RemoteChart::new(ChartReference::parse(text, None, version).unwrap())
    }

    fn lock(of: &RemoteChart) -> Lock {
        let digest = Digest::of(b"archive");
        let found = Resolved {
            version: Some("1.4.0".to_owned()),
            url: format!("oci://h/web:1.4.0@{}", Digest::of(b"manifest")),
            digest,
        };
        Lock {
            charts: vec![LockedChart::new(of, &found)],
        }
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let locked = lock(&chart("oci://h/web", Some("^1")));
        let text = locked.to_yaml().unwrap();
        assert!(text.contains("reference: oci://h/web ^1\n"), "{text}");
        assert!(text.contains("version: 1.4.0\n"), "{text}");
        assert_eq!(Lock::parse(text.as_bytes()), Ok(locked));
        for (wrong, why) in [
            ("charts: x", "expected a sequence"),
            ("chart: []", "chart"),
            (
                "charts: [{reference: a, url: b, digest: c}]",
                "a: \"c\" is not a SHA-256 digest",
            ),
        ] {
            let error = Lock::parse(wrong.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let path = Lock::path(Path::new("a/watches.yaml"));
        assert_eq!(path, Path::new("a/watches.lock"));
    }

    #[test]
    fn a_locked_chart_is_fetched_by_its_digests() {
        let mut remote = chart("oci://h/web", Some("^1"));
        let lock = lock(&remote);
        let path = Path::new("watches.lock");
        remote.locked = locked(&remote, Some(&lock), path).unwrap();
        let wanted = remote.wanted();
        assert_eq!(wanted.digest, Some(Digest::of(b"archive")));
        let manifest = Digest::of(b"manifest");
        assert_eq!(wanted.to_string(), format!("oci://h/web:1.4.0@{manifest}"));
        assert_eq!(remote.to_string(), "oci://h/web ^1 (locked: 1.4.0)");
    }

    #[test]
    fn what_is_not_one_certain_chart_is_refused_with_the_command_that_locks_it() {
        let path = Path::new("a/watches.lock");
        let range = chart("oci://h/web", Some("^1"));
        let exact = chart("oci://h/web", Some("1.2.3"));
        let with_lock = lock(&range);
        assert_eq!(locked(&exact, None, path), Ok(None));
        let mut pinned = range.clone();
        pinned.reference.digest = Some(Digest::of(b"other"));
        for (chart, lock, why) in [
            (&range, None, "there is no watches.lock"),
            (&exact, Some(&with_lock), "is not in watches.lock"),
            (&pinned, Some(&with_lock), "charts lock --update"),
        ] {
            let error = locked(chart, lock, path).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert!(error.contains("`hybrid-operator charts lock"), "{error}");
        }
    }
}
