//! The objects of a kustomization, for the fields that the kustomizations of a project have.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use super::{kind, name, text};

const FILE: &str = "kustomization.yaml";

/// Kinds whose names get no prefix, as in kustomize.
const KEEP_NAME: &[&str] = &["CustomResourceDefinition", "Namespace", "APIService"];

/// Kinds that are in no namespace.
const CLUSTER_SCOPED: &[&str] = &[
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "Namespace",
    "PriorityClass",
    "ValidatingWebhookConfiguration",
];

/// Fields of a Pod that name an object, and the kind of that object. A field with a slash is a name
/// inside of an object.
const REFERENCES: &[(&str, &str)] = &[
    ("serviceAccountName", "ServiceAccount"),
    ("secretName", "Secret"),
    ("secret/name", "Secret"),
    ("secretRef/name", "Secret"),
    ("secretKeyRef/name", "Secret"),
    ("configMap/name", "ConfigMap"),
    ("configMapRef/name", "ConfigMap"),
    ("configMapKeyRef/name", "ConfigMap"),
];

/// Returns the objects of the kustomization in a directory, in the order of its resources.
pub(crate) fn build(directory: &Path) -> anyhow::Result<Vec<Value>> {
    objects(directory, true)
}

fn objects(directory: &Path, is_top: bool) -> anyhow::Result<Vec<Value>> {
    let path = directory.join(FILE);
    let shown = path.display();
    let file = fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
    let file: Map<String, Value> =
        go_yaml::from_slice(&file).with_context(|| format!("{shown} is not valid YAML"))?;
    let mut objects = Vec::new();
    for resource in file
        .get("resources")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let resource = resource.as_str().unwrap_or_default();
        let target = directory.join(resource);
        if target.is_dir() {
            objects.append(&mut self::objects(&target, false)?);
            continue;
        }
        let text = fs::read(&target)
            .with_context(|| format!("cannot read {}, a resource of {shown}", target.display()))?;
        let documents: Vec<Value> = go_yaml::documents(&text)
            .with_context(|| format!("{} is not valid YAML", target.display()))?;
        objects.extend(documents.into_iter().filter(|object| !object.is_null()));
    }
    for (field, value) in &file {
        match field.as_str() {
            "apiVersion" | "kind" | "resources" => {}
            "namePrefix" if is_top => prefix(&mut objects, value.as_str().unwrap_or_default()),
            "namespace" if is_top => {
                set_namespace(&mut objects, value.as_str().unwrap_or_default());
            }
            "images" => set_images(&mut objects, value),
            other => bail!(
                "{shown} has {other:?}, which this command does not apply; pass it what kustomize makes of it: kubectl kustomize DIR | hybrid-operator olm bundle --manifests -"
            ),
        }
    }
    Ok(objects)
}

/// Adds a prefix to the names of objects, and to the references to them.
fn prefix(objects: &mut [Value], prefix: &str) {
    let renamed: BTreeSet<(String, String)> = objects
        .iter()
        .filter(|object| !KEEP_NAME.contains(&kind(object)))
        .map(|object| (kind(object).to_owned(), name(object).to_owned()))
        .collect();
    let refer = |kind: &str, reference: &mut Value| {
        if let Value::String(name) = reference
            && renamed.contains(&(kind.to_owned(), name.clone()))
        {
            name.insert_str(0, prefix);
        }
    };
    for object in objects {
        let own = kind(object).to_owned();
        if let Some(name) = object.pointer_mut("/metadata/name") {
            refer(&own, name);
        }
        let role = text(object, "/roleRef/kind").to_owned();
        if let Some(name) = object.pointer_mut("/roleRef/name") {
            refer(&role, name);
        }
        let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            let kind = kind(subject).to_owned();
            if let Some(name) = subject.get_mut("name") {
                refer(&kind, name);
            }
        }
        if let Some(pod) = object.pointer_mut("/spec/template/spec") {
            references(pod, "", &refer);
        }
    }
}

/// Visits the references of a Pod.
fn references(value: &mut Value, parent: &str, visit: &dyn Fn(&str, &mut Value)) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let path = format!("{parent}/{field}");
                let known = REFERENCES
                    .iter()
                    .find(|(reference, _)| reference == field || *reference == path);
                if let (Some((_, kind)), Value::String(_)) = (known, &*value) {
                    visit(kind, value);
                }
                references(value, field, visit);
            }
        }
        Value::Array(items) => {
            for item in items {
                references(item, parent, visit);
            }
        }
        _ => {}
    }
}

/// Puts namespaced objects, and the accounts that bindings name, into a namespace.
fn set_namespace(objects: &mut [Value], namespace: &str) {
    for object in objects {
        let is_cluster_scoped = CLUSTER_SCOPED.contains(&kind(object));
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        if let (false, Some(metadata)) = (is_cluster_scoped, metadata) {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            if let Some(of_subject) = subject.get_mut("namespace") {
                *of_subject = namespace.into();
            }
        }
    }
}

/// Replaces images of containers by those of `images`.
fn set_images(objects: &mut [Value], images: &Value) {
    for image in images.as_array().into_iter().flatten() {
        let field = |field: &str| image.get(field).and_then(Value::as_str);
        let Some(wanted) = field("name") else {
            continue;
        };
        for object in &mut *objects {
            for container in containers(object) {
                let Some(Value::String(present)) = container.get_mut("image") else {
                    continue;
                };
                let (repository, rest) = split(present);
                if repository == wanted {
                    let rest = match (field("newTag"), field("digest")) {
                        (_, Some(digest)) => format!("@{digest}"),
                        (Some(tag), None) => format!(":{tag}"),
                        (None, None) => rest.to_owned(),
                    };
                    *present = format!("{}{rest}", field("newName").unwrap_or(wanted));
                }
            }
        }
    }
}

/// Returns the containers of an object with a Pod template.
pub(crate) fn containers(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let pod = object.pointer_mut("/spec/template/spec");
    let lists = pod.and_then(Value::as_object_mut).into_iter().flatten();
    lists
        .filter(|(field, _)| *field == "containers" || *field == "initContainers")
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
}

/// Splits an image into its repository, and its tag or digest with the separator.
fn split(image: &str) -> (&str, &str) {
    let end = match image.split_once('@') {
        Some((repository, _)) => repository.len(),
        None => match image.rsplit_once(':') {
            // Otherwise the colon is before a port.
            Some((repository, tag)) if !tag.contains('/') => repository.len(),
            _ => image.len(),
        },
    };
    image.split_at_checked(end).unwrap_or((image, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, path: &str, text: &str) {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const MANAGER: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: system}
spec:
  template:
    spec:
      serviceAccountName: manager
      volumes:
      - {name: a, configMap: {name: settings}}
      - {name: b, secret: {secretName: theirs}}
      containers:
      - {name: manager, image: 'controller:latest'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: manager, namespace: system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {kind: ServiceAccount, name: manager, namespace: system}
";

    #[test]
    fn prefix_namespace_and_images_reach_objects_and_the_references_to_them() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let prefix = "namespace: shop\nnamePrefix: shop-\nresources: [../manager]\n";
        write(root, "default/kustomization.yaml", prefix);
        let images = "resources: [manager.yaml]\nimages:\n- {name: controller, newName: 'localhost:5000/shop', newTag: v1}\n";
        write(root, "manager/kustomization.yaml", images);
        write(root, "manager/manager.yaml", MANAGER);
        let objects = build(&root.join("default")).unwrap();
        let names: Vec<&str> = objects.iter().map(name).collect();
        let expected = "system shop-manager shop-settings shop-manager shop-all";
        assert_eq!(names.join(" "), expected);
        let pod = &objects[1]["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], "shop-manager");
        assert_eq!(pod["containers"][0]["image"], "localhost:5000/shop:v1");
        assert_eq!(pod["volumes"][0]["configMap"]["name"], "shop-settings");
        // It is not among the objects.
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "theirs");
        assert_eq!(objects[1]["metadata"]["namespace"], "shop");
        let binding = &objects[4];
        assert_eq!(binding["roleRef"]["name"], "admin");
        assert_eq!(binding["subjects"][0]["name"], "shop-manager");
        assert_eq!(binding["subjects"][0]["namespace"], "shop");
        assert_eq!(binding["metadata"].get("namespace"), None);
    }

    #[test]
    fn a_field_that_is_not_applied_is_refused_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "other/kustomization.yaml", "namePrefix: b-\n");
        for text in ["patches: []\n", "resources: [../other]\n"] {
            write(root, "a/kustomization.yaml", text);
            let error = build(&root.join("a")).unwrap_err().to_string();
            assert!(error.contains("kubectl kustomize DIR |"), "{error}");
        }
    }

    #[test]
    fn an_image_is_split_before_its_tag_or_digest() {
        for (image, parts) in [
            ("a", ("a", "")),
            ("a:1", ("a", ":1")),
            ("h:5000/a", ("h:5000/a", "")),
            ("h:5000/a:1", ("h:5000/a", ":1")),
            ("h/a@sha256:0", ("h/a", "@sha256:0")),
        ] {
            assert_eq!(split(image), parts, "{image}");
        }
    }
}
