//! The Go sources of the control plane, embedded, so that the crate also works outside of this workspace.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::BinaryError;

macro_rules! embedded {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../tests/control-plane/", $name)))),+]
    };
}

/// File names and contents.
const FILES: &[(&str, &str)] = embedded![
    "go.mod",
    "go.sum",
    "main.go",
    "up.go",
    "plane.go",
    "certs.go",
    "files.go",
    "client.go",
    "kwok.go",
    "stages.yaml",
];

/// Arguments of `go` that make the binary; the output and the package follow.
///
/// Without `-X` the API server reports v0.0.0, and charts with a `kubeVersion` refuse it.
pub(super) const BUILD: &[&str] = &[
    "build",
    "-v",
    "-trimpath",
    "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
];

/// Returns a name for exactly these sources, built exactly so.
pub(super) fn hash() -> String {
    let mut hasher = Sha256::new();
    for part in FILES
        .iter()
        .flat_map(|(name, text)| [*name, *text])
        .chain(BUILD.iter().copied())
    {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let start = digest.first_chunk().copied().map_or(0, u64::from_be_bytes);
    format!("{start:016x}")
}

/// Writes the sources into a directory, which is created.
pub(super) fn unpack(dir: &Path) -> Result<(), BinaryError> {
    fs::create_dir_all(dir).map_err(BinaryError::cache("create", dir))?;
    for (name, text) in FILES {
        let path = dir.join(name);
        fs::write(&path, text).map_err(BinaryError::cache("write", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_go_file_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/control-plane");
        let mut there: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "README.md")
            .collect();
        there.sort();
        let mut embedded: Vec<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        embedded.sort();
        assert_eq!(there, embedded);
    }

    #[test]
    fn the_build_reports_the_version_that_go_mod_requires() {
        let required = FILES[0]
            .1
            .lines()
            .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
            .unwrap();
        assert!(
            BUILD
                .iter()
                .any(|arg| arg.contains(&format!("gitVersion={required} "))),
            "{required}"
        );
    }

    #[test]
    fn unpacking_writes_what_is_embedded() {
        let dir = tempfile::tempdir().unwrap();
        unpack(&dir.path().join("src")).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("src/go.mod")).unwrap(),
            FILES[0].1
        );
    }
}
