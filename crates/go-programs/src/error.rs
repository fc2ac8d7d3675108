//! Errors of building the programs.

use std::io;
use std::path::{Path, PathBuf};

use crate::GO_NEEDED;

/// An error while finding or building a program.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BuildError {
    /// The environment variable names something that is not a file.
    #[error("no such file: {} (from the environment variable {variable})", path.display())]
    NotFound {
        variable: &'static str,
        /// Value of the variable.
        path: PathBuf,
    },
    /// Go is not installed.
    #[error(
        "cannot build {program}: `go` not found. Install Go {}.{} or newer (https://go.dev/dl/), \
         or set {variable} to a ready binary", GO_NEEDED.0, GO_NEEDED.1
    )]
    GoMissing {
        program: &'static str,
        /// The variable that would name a ready binary.
        variable: &'static str,
        /// The error from starting `go`.
        #[source]
        source: io::Error,
    },
    /// The Go that is installed is too old.
    #[error(
        "cannot build {program}: it needs Go {}.{} or newer, and `go` is {found}. Install a newer one \
         (https://go.dev/dl/), or set {variable} to a ready binary", GO_NEEDED.0, GO_NEEDED.1
    )]
    GoTooOld {
        program: &'static str,
        /// The variable that would name a ready binary.
        variable: &'static str,
        /// The output of `go env GOVERSION`.
        found: String,
    },
    /// There is not enough disk space.
    #[error(
        "cannot build {program}: {} has {free_mib} MiB free, and the build needs {needed_mib} MiB. Free some space, \
         or point CONTROL_PLANE_DIR, GOCACHE and GOMODCACHE to another disk", dir.display()
    )]
    Disk {
        program: &'static str,
        /// The directory that is short of space.
        dir: PathBuf,
        /// MiB that the build writes there.
        needed_mib: u64,
        /// MiB that are free.
        free_mib: u64,
    },
    /// `go build` failed.
    #[error("building {program} failed ({status}); the full output is in {}. Its last lines:\n{tail}", log.display())]
    Compile {
        program: &'static str,
        /// The exit status of `go build`.
        status: String,
        /// The file with its output.
        log: PathBuf,
        /// Last lines of the output.
        tail: String,
    },
    /// A file or directory of the cache cannot be used.
    #[error("cannot {action} {}", path.display())]
    Cache {
        /// The failed action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl BuildError {
    /// Returns whether the machine lacks a prerequisite, so that tests may be skipped; all other
    /// errors are defects.
    pub fn is_missing_prerequisite(&self) -> bool {
        matches!(
            self,
            Self::GoMissing { .. } | Self::GoTooOld { .. } | Self::Disk { .. }
        )
    }

    pub(crate) fn cache<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Cache {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_program_the_cause_and_the_remedy() {
        let text = BuildError::GoTooOld {
            program: "helm",
            variable: "HELM",
            found: "go1.21.3".to_owned(),
        }
        .to_string();
        for part in [
            "cannot build helm",
            "go1.21.3",
            "Go 1.26 or newer",
            "set HELM to",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
