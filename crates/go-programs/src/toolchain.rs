//! Checks the prerequisites of a build: Go, its version, disk space.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{BuildError, GO_NEEDED, Program};

/// MiB written by a build with empty caches: modules, compiled packages, the binary.
const NEEDED_MIB: u64 = 4096;
/// MiB written by a build if Go's caches contain the modules and most packages.
const NEEDED_WARM_MIB: u64 = 512;

/// Checks the prerequisites; `cache` is the directory of the binary.
pub(crate) fn check(program: &Program, cache: &Path) -> Result<(), BuildError> {
    // Run in a directory without go.mod, because inside a module Go may download another toolchain.
    let output = Command::new("go")
        .args(["env", "GOVERSION", "GOMODCACHE", "GOCACHE"])
        .current_dir(env::temp_dir())
        .env("GOWORK", "off")
        .env("GO111MODULE", "on")
        .output()
        .map_err(|source| BuildError::GoMissing {
            program: program.name,
            variable: program.variable,
            source,
        })?;
    let answer = String::from_utf8_lossy(&output.stdout);
    let mut lines = answer.lines();
    let version = lines.next().unwrap_or_default();
    if parse_version(version).is_none_or(|found| found < GO_NEEDED) {
        return Err(BuildError::GoTooOld {
            program: program.name,
            variable: program.variable,
            found: version.to_owned(),
        });
    }
    let modules = PathBuf::from(lines.next().unwrap_or_default());
    let compiled = PathBuf::from(lines.next().unwrap_or_default());
    let warm = modules.join(program.largest_module).is_dir();
    let needed = if warm { NEEDED_WARM_MIB } else { NEEDED_MIB };
    for dir in [modules.as_path(), compiled.as_path(), cache] {
        check_space(program, dir, needed)?;
    }
    Ok(())
}

/// Parses `go1.26.8`, `go1.27rc1`, `go1.26` and `devel go1.28-…`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let numbers = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go"))?;
    let (major, rest) = numbers.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Fails if the file system of `dir` has less than `needed_mib` left. For a directory that does not
/// exist, its nearest existing parent is checked; if the free space is unknown, the check passes.
fn check_space(program: &Program, dir: &Path, needed_mib: u64) -> Result<(), BuildError> {
    let Some(existing) = dir.ancestors().find(|dir| dir.is_dir()) else {
        return Ok(());
    };
    let Ok(stat) = rustix::fs::statvfs(existing) else {
        return Ok(());
    };
    let free_mib = stat.f_bavail.saturating_mul(stat.f_frsize) / (1024 * 1024);
    if free_mib < needed_mib {
        return Err(BuildError::Disk {
            program: program.name,
            dir: existing.to_owned(),
            needed_mib,
            free_mib,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HELM;

    #[test]
    fn go_versions_are_parsed() {
        for (text, version) in [
            ("go1.26.8", Some((1, 26))),
            ("go1.27rc1", Some((1, 27))),
            ("go1.26", Some((1, 26))),
            ("devel go1.28-abc123 Sat Nov 21", Some((1, 28))),
            ("go1.21.3 X:nocoverageredesign", Some((1, 21))),
            ("", None),
            ("gone", None),
        ] {
            assert_eq!(parse_version(text), version, "{text}");
        }
    }

    #[test]
    fn full_disk_is_reported_with_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        check_space(&HELM, &dir.path().join("not/there/yet"), 0).unwrap();
        let error = check_space(&HELM, dir.path(), u64::MAX).unwrap_err();
        assert!(error.is_missing_prerequisite());
        assert!(
            error
                .to_string()
                .contains(&dir.path().display().to_string()),
            "{error}"
        );
    }
}
