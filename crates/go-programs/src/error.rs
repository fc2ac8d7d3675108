//! Why a program is not there.

use std::io;
use std::path::{Path, PathBuf};

use crate::GO_NEEDED;

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The environment variable names something that is not a file.
    #[error("no such file: {} (from the environment variable {variable})", path.display())]
    NotThere {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// There is no Go to build the program.
    #[error(
        "cannot build {program}: there is no `go` command. Install Go {}.{} or newer (https://go.dev/dl/), \
         or set {variable} to a ready binary", GO_NEEDED.0, GO_NEEDED.1
    )]
    GoMissing {
        /// The program.
        program: &'static str,
        /// The variable that would name a ready binary.
        variable: &'static str,
        /// What starting `go` gave.
        #[source]
        source: io::Error,
    },
    /// The Go that is installed is too old.
    #[error(
        "cannot build {program}: it needs Go {}.{} or newer, and `go` is {found}. Install a newer one \
         (https://go.dev/dl/), or set {variable} to a ready binary", GO_NEEDED.0, GO_NEEDED.1
    )]
    GoTooOld {
        /// The program.
        program: &'static str,
        /// The variable that would name a ready binary.
        variable: &'static str,
        /// What `go env GOVERSION` answers.
        found: String,
    },
    /// The build would fill the disk.
    #[error(
        "cannot build {program}: {} has {free_mib} MiB free, and the build needs {needed_mib} MiB. Free some space, \
         or point CONTROL_PLANE_DIR, GOCACHE and GOMODCACHE to another disk", dir.display()
    )]
    Disk {
        /// The program.
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
        /// The program.
        program: &'static str,
        /// How `go build` ended.
        status: String,
        /// The file with its output.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A file or directory of the cache cannot be used.
    #[error("cannot {action} {}", path.display())]
    Cache {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl BuildError {
    /// Whether the machine lacks something, so that tests may be skipped; all else is a defect.
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
    fn messages_name_the_program_the_cause_and_what_to_do() {
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
