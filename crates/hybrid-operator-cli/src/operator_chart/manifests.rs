//! Reads the kustomizations of `config/default` and of the parts that it may leave out.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The directory from which everything else is found.
const DEFAULT: &str = "default";
/// Directories that `config/default` names in comments. The chart has values for them.
const OPTIONAL: &[&str] = &["prometheus", "network-policy"];
/// Fields of a kustomization that have no effect on objects, or one that the chart has by itself.
const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "resources", "images"];
/// Fields of the kustomization of `config/default` only.
const OF_DEFAULT: &[&str] = &["namespace", "namePrefix"];

/// Error reading the manifests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not valid YAML", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: go_yaml::Error,
    },
    #[error(
        "{} has the field {field}, which is not carried over into the chart; make the change in the manifests themselves, so that the chart has it, too",
        path.display()
    )]
    Field { path: PathBuf, field: String },
    #[error(
        "{} names the resource {resource}, which is not in the project's config/; copy it there",
        path.display()
    )]
    Outside { path: PathBuf, resource: String },
}

/// The objects of one file.
#[derive(Debug)]
pub(super) struct Manifest {
    /// Path of the file below `config/`.
    pub(super) path: String,
    pub(super) objects: Vec<Value>,
}

/// All manifests.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub(super) files: Vec<Manifest>,
    /// The samples of custom resources.
    pub(super) samples: Vec<Value>,
    /// Entries of `images`.
    pub(super) images: Vec<Value>,
    /// Whether the project's licence is that of `init`.
    pub(super) is_apache2: bool,
    seen: BTreeSet<String>,
}

impl Manifests {
    /// Reads the manifests of the project in a directory.
    pub(super) fn read(root: &Path) -> Result<Self, ManifestError> {
        let config = root.join("config");
        let mut found = Self::default();
        found.visit(&config, DEFAULT)?;
        for directory in OPTIONAL {
            if config.join(directory).is_dir() {
                found.visit(&config, directory)?;
            }
        }
        let license = fs::read_to_string(root.join("LICENSE")).unwrap_or_default();
        found.is_apache2 = license.contains("Apache License") && license.contains("Version 2.0");
        if config.join("samples").is_dir() {
            let mut samples = Self::default();
            samples.visit(&config, "samples")?;
            found.samples = samples.objects().cloned().collect();
        }
        Ok(found)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.files.iter().flat_map(|file| &file.objects)
    }

    /// Returns whether there is an object of this kind and name.
    pub(super) fn has(&self, kind: &str, name: &str) -> bool {
        self.objects()
            .any(|object| super::kind(object) == kind && super::object_name(object) == name)
    }

    /// Adds the objects of a directory, or of a file.
    fn visit(&mut self, config: &Path, at: &str) -> Result<(), ManifestError> {
        if !self.seen.insert(at.to_owned()) {
            return Ok(());
        }
        let path = config.join(at);
        if !path.is_dir() {
            let objects = documents(&path)?;
            self.files.push(Manifest {
                path: at.to_owned(),
                objects,
            });
            return Ok(());
        }
        let path = path.join("kustomization.yaml");
        for kustomization in documents(&path)? {
            let fields = kustomization.as_object().into_iter().flatten();
            for (field, value) in fields {
                let is_known = KNOWN.contains(&field.as_str())
                    || (at == DEFAULT && OF_DEFAULT.contains(&field.as_str()));
                if !is_known && !value.is_null() {
                    return Err(ManifestError::Field {
                        path,
                        field: field.clone(),
                    });
                }
            }
            self.images.extend(list(&kustomization, "images").cloned());
            for resource in list(&kustomization, "resources").filter_map(Value::as_str) {
                let inside = join(at, resource).filter(|inside| config.join(inside).exists());
                let inside = inside.ok_or_else(|| ManifestError::Outside {
                    path: path.clone(),
                    resource: resource.to_owned(),
                })?;
                self.visit(config, &inside)?;
            }
        }
        Ok(())
    }
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// Returns a path relative to a directory of `config/`; `None` if it leads out of `config/`.
fn join(directory: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop()?;
            }
            "." | "" => {}
            name => parts.push(name),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn documents(path: &Path) -> Result<Vec<Value>, ManifestError> {
    let text = fs::read(path).map_err(|source| ManifestError::Read {
        path: path.to_owned(),
        source,
    })?;
    let found: Vec<Value> = go_yaml::documents(&text).map_err(|source| ManifestError::Parse {
        path: path.to_owned(),
        source,
    })?;
    Ok(found.into_iter().filter(|value| !value.is_null()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_directory() {
        for (directory, path, wanted) in [
            ("default", "../crd", Some("crd")),
            ("crd", "bases/a.yaml", Some("crd/bases/a.yaml")),
            ("rbac", "./a.yaml", Some("rbac/a.yaml")),
            ("default", "..", None),
            ("default", "../../elsewhere", None),
        ] {
            assert_eq!(join(directory, path).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn what_a_chart_cannot_have_is_refused_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let default = directory.path().join("config/default");
        fs::create_dir_all(&default).unwrap();
        for (text, wanted) in [
            ("patches: [{path: p.yaml}]\n", "has the field patches"),
            ("resources: [../../../x]\n", "names the resource ../../../x"),
            ("resources: [gone.yaml]\n", "names the resource gone.yaml"),
            ("resources: [\n", "is not valid YAML"),
        ] {
            fs::write(default.join("kustomization.yaml"), text).unwrap();
            let error = Manifests::read(directory.path()).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
            assert!(error.contains("default/kustomization.yaml"), "{error}");
        }
    }
}
