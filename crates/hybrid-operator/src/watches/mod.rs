//! `watches.yaml`: binds kinds of custom resources to charts, with options.
//!
//! ```yaml
//! - group: cache.example.com
//!   version: v1alpha1
//!   kind: Memcached
//!   chart: helm-charts/memcached
//!   overrideValues:
//!     image.repository: $MEMCACHED_IMAGE
//! ```
//!
//! [`load`] reads a file and reports all mistakes at once, each with its line, column and field. It
//! sends no requests to the cluster.

mod admission;
mod api;
mod chart;
mod definitions;
mod entry;
pub(crate) mod expand;
mod expression;
mod fields;
mod limits;
mod lock;
mod mapping;
mod outputs;
mod parse;
mod patch;
mod patches_from;
mod problem;
mod suggest;
mod target;
pub(crate) mod template;
mod validate;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};

pub use admission::{Admission, AdmissionMode};
pub use api::Api;
pub use chart::{ChartSource, RemoteChart, SecretName};
pub use entry::{Dependency, Entry, OverrideValuesType, ReferenceKind, ValuesFrom, Watch};
pub use helm_release::policy::{
    ActionPolicy, ChartLimits, CrdPolicy, DriftDetection, DriftIgnore, DriftMode, Patch, PatchBody,
    ReleasePolicy, Remediation, RemediationStrategy, way_to_raise,
};
pub use kube_objects::target::Target;
pub use limits::{parse_duration, parse_size};
pub use lock::{Lock, LockError, LockedChart};
pub use mapping::ValuePath;
pub(crate) use outputs::OWN_FIELDS;
pub use outputs::Outputs;
pub use parse::parse;
pub use patches_from::PatchesFrom;
pub use problem::{Mistake, Problem};
pub use suggest::nearest;
pub use validate::validate;
pub use verify::Verify;

/// Reason why a watches file cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WatchesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The lock beside the file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The file has mistakes.
    #[error("{}", ProblemList { path, problems })]
    Invalid {
        path: PathBuf,
        /// Every mistake, in the order of the file.
        problems: Vec<Problem>,
    },
}

struct ProblemList<'a> {
    path: &'a Path,
    problems: &'a [Problem],
}

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            let Problem {
                line,
                column,
                field,
                message,
            } = problem;
            write!(f, "{}", self.path.display())?;
            if *line > 0 {
                write!(f, ":{line}:{column}")?;
            }
            if !field.is_empty() {
                write!(f, ": {field}")?;
            }
            write!(f, ": {message}")?;
        }
        Ok(())
    }
}

/// Reads a watches file and its lock, and checks its fields, its kinds, and that its charts exist. Charts
/// that are fetched are not asked for.
///
/// Relative chart paths are resolved against the folder of `path`.
///
/// # Errors
/// [`WatchesError::Read`] if the file cannot be read, else [`WatchesError::Invalid`] with all
/// mistakes.
pub fn load(path: &Path) -> Result<Vec<Watch>, WatchesError> {
    load_with(path, |entry| Ok(entry.watch))
}

/// Reads a watches file as [`load`] does, but not its lock, for the command that writes it.
///
/// # Errors
/// As [`load`].
pub fn load_unlocked(path: &Path) -> Result<Vec<Watch>, WatchesError> {
    let (entries, problems) = read(path)?;
    let entries = entries.into_iter().map(|entry| entry.watch).collect();
    finish(path, entries, problems)
}

/// Reads a watches file as [`load`] does, and calls `make` for each entry. An error of `make` is
/// reported as a mistake of the entry, together with all others.
///
/// # Errors
/// As [`load`].
pub fn load_with<T>(
    path: &Path,
    make: impl Fn(Entry) -> Result<T, Mistake>,
) -> Result<Vec<T>, WatchesError> {
    let (mut entries, mut problems) = read(path)?;
    if entries
        .iter()
        .any(|entry| entry.watch.chart.remote().is_some())
    {
        let lock = Lock::read(path)?;
        problems.extend(lock::apply(&mut entries, lock.as_ref(), &Lock::path(path)));
    }
    let mut results = Vec::new();
    for mut entry in entries {
        let (index, chart_position) = (entry.index, entry.chart_position);
        let field = format!("[{index}].chart");
        // A missing chart has already been reported.
        if problems.iter().any(|problem| problem.field == field) {
            continue;
        }
        let positions = std::mem::take(&mut entry.positions);
        match make(entry) {
            Ok(value) => results.push(value),
            Err(Mistake { field, message }) => {
                let position = positions.get(&field).copied();
                let (line, column) = position.unwrap_or(chart_position);
                problems.push(Problem {
                    line,
                    column,
                    field: format!("[{index}].{field}"),
                    message,
                });
            }
        }
    }
    finish(path, results, problems)
}

/// Reads the entries of a file, and the mistakes in them.
fn read(path: &Path) -> Result<(Vec<Entry>, Vec<Problem>), WatchesError> {
    let text = std::fs::read(path).map_err(|source| WatchesError::Read {
        path: path.to_owned(),
        source,
    })?;
    let base = path.parent().unwrap_or(Path::new(""));
    let (entries, mut problems) = parse(&text, base);
    problems.extend(validate(&entries));
    Ok((entries, problems))
}

fn finish<T>(
    path: &Path,
    results: Vec<T>,
    mut problems: Vec<Problem>,
) -> Result<Vec<T>, WatchesError> {
    if problems.is_empty() {
        return Ok(results);
    }
    problems.sort_by_key(|p| (p.line, p.column));
    Err(WatchesError::Invalid {
        path: path.to_owned(),
        problems,
    })
}

#[cfg(test)]
mod tests;
