//! Applies the CRDs and samples of a project.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hybrid_operator::native::AnyObject;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

const FIELD_MANAGER: &str = "hybrid-operator-dev";
/// Namespace of samples that name none.
const NAMESPACE: &str = "default";
/// Time for a CRD to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Error applying a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a YAML file with Kubernetes objects", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: go_yaml::Error,
    },
    #[error("an object in {} has no {what}; add it", path.display())]
    Incomplete {
        path: PathBuf,
        /// The missing field.
        what: &'static str,
    },
    #[error("cannot apply {object} of {}", path.display())]
    Refused {
        path: PathBuf,
        /// Kind and name.
        object: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(
        "the API server does not serve the CRD {0} after 30 s; see its status with 'kubectl describe crd {0}'"
    )]
    NotServed(String),
}

/// A kind that a CRD of the project defines.
#[expect(clippy::struct_field_names, reason = "Kubernetes' own names")]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
}

impl Kind {
    /// Reads the stored version of a CRD.
    fn of(definition: &Value) -> Option<Self> {
        let text = |pointer: &str| Some(definition.pointer(pointer)?.as_str()?.to_owned());
        let versions = definition.pointer("/spec/versions")?.as_array()?;
        let stored = versions.iter().find(|version| version["storage"] == true)?;
        Some(Self {
            kind: text("/spec/names/kind")?,
            group: text("/spec/group")?,
            version: stored.get("name")?.as_str()?.to_owned(),
            plural: text("/spec/names/plural")?,
            namespaced: text("/spec/scope")? == "Namespaced",
        })
    }

    /// Returns the API of all namespaces.
    pub(super) fn api(&self, client: Client) -> Api<AnyObject> {
        Api::all_with(client, &self.resource())
    }

    fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&gvk, &self.plural)
    }
}

/// An object in a file.
#[derive(Debug)]
pub(super) struct Object {
    gvk: GroupVersionKind,
    name: String,
    content: DynamicObject,
}

/// Reads the objects of a file, without those of kustomize.
fn read(path: &Path) -> Result<Vec<Object>, ApplyError> {
    let text = std::fs::read(path).map_err(|source| ApplyError::Read {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |source| ApplyError::Parse {
        path: path.to_owned(),
        source,
    };
    let documents: Vec<Value> = go_yaml::documents(&text).map_err(wrong)?;
    let mut objects = Vec::new();
    for document in documents {
        let of_kustomize = document
            .get("apiVersion")
            .and_then(Value::as_str)
            .is_some_and(|version| version.starts_with("kustomize.config.k8s.io/"));
        if document.is_null() || of_kustomize || is_kustomization(path) {
            continue;
        }
        let incomplete = |what| ApplyError::Incomplete {
            path: path.to_owned(),
            what,
        };
        let content: DynamicObject =
            serde_json::from_value(document).map_err(|_| incomplete("metadata"))?;
        let types = content.types.as_ref().map(GroupVersionKind::try_from);
        let gvk = types.and_then(Result::ok);
        let name = content.metadata.name.clone();
        objects.push(Object {
            gvk: gvk.ok_or_else(|| incomplete("apiVersion and kind"))?,
            name: name.ok_or_else(|| incomplete("metadata.name"))?,
            content,
        });
    }
    Ok(objects)
}

fn is_kustomization(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name == "kustomization")
}

/// Returns whether a file contains YAML.
pub(super) fn is_yaml(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Applies the CRDs of a file and waits until they are served. Returns their kinds.
pub(super) async fn apply_definitions(
    client: &Client,
    path: &Path,
) -> Result<Vec<Kind>, ApplyError> {
    let mut kinds = Vec::new();
    for object in read(path)? {
        if object.gvk.kind != "CustomResourceDefinition" {
            continue;
        }
        let api = Api::all_with(client.clone(), &ApiResource::from_gvk(&object.gvk));
        patch(&api, &object, path).await?;
        served(&api, &object.name).await?;
        kinds.extend(Kind::of(&object.content.data));
    }
    Ok(kinds)
}

/// Waits until a CRD is served.
async fn served(api: &Api<DynamicObject>, name: &str) -> Result<(), ApplyError> {
    let established = async {
        loop {
            if let Ok(definition) = api.get(name).await
                && condition(&definition.data, "Established").is_some_and(|c| c["status"] == "True")
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(SERVED_WITHIN, established).await;
    in_time.map_err(|_| ApplyError::NotServed(name.to_owned()))
}

/// Applies the samples of a file whose kinds are among `kinds`, and objects of the core API such as
/// Secrets. Returns what was applied.
pub(super) async fn apply_samples(
    client: &Client,
    path: &Path,
    kinds: &[Kind],
) -> Result<Vec<String>, ApplyError> {
    let mut applied = Vec::new();
    for object in read(path)? {
        let gvk = &object.gvk;
        let own = kinds
            .iter()
            .find(|kind| kind.kind == gvk.kind && kind.group == gvk.group);
        let resource = match own {
            Some(kind) => ApiResource::from_gvk_with_plural(gvk, &kind.plural),
            None => ApiResource::from_gvk(gvk),
        };
        let cluster_scoped = own.is_some_and(|kind| !kind.namespaced) || gvk.kind == "Namespace";
        let namespace = object.content.metadata.namespace.as_deref();
        let api = if cluster_scoped {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), namespace.unwrap_or(NAMESPACE), &resource)
        };
        patch(&api, &object, path).await?;
        applied.push(format!("{}/{}", gvk.kind, object.name));
    }
    Ok(applied)
}

async fn patch(api: &Api<DynamicObject>, object: &Object, path: &Path) -> Result<(), ApplyError> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let content = Patch::Apply(&object.content);
    let applied = api.patch(&object.name, &params, &content).await;
    applied.map_err(|source| ApplyError::Refused {
        path: path.to_owned(),
        object: format!("{}/{}", object.gvk.kind, object.name),
        source: Box::new(source),
    })?;
    Ok(())
}

pub(super) fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(name: &str, text: &str) -> Result<Vec<Object>, ApplyError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn objects_are_read_and_files_of_kustomize_are_not() {
        let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n";
        let names: Vec<String> = read_text("a.yaml", text)
            .unwrap()
            .iter()
            .map(|object| object.name.clone())
            .collect();
        assert_eq!(names, ["a", "b"]);
        let list = read_text("kustomization.yaml", "resources: [a.yaml]\n");
        assert!(list.unwrap().is_empty());
    }

    #[test]
    fn an_object_without_kind_or_name_is_an_error_with_its_file() {
        for (text, what) in [
            ("spec: {}\n", "apiVersion and kind"),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {}\n",
                "metadata.name",
            ),
        ] {
            let error = read_text("sample.yaml", text).unwrap_err().to_string();
            assert!(
                error.contains(what) && error.contains("sample.yaml"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_kind_of_a_definition_is_that_of_its_stored_version() {
        let definition = serde_json::json!({"spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Shop", "plural": "shops"},
            "versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}],
        }});
        let kind = Kind::of(&definition).unwrap();
        assert_eq!((kind.version.as_str(), kind.namespaced), ("v2", true));
        assert_eq!(Kind::of(&serde_json::json!({})), None);
    }
}
