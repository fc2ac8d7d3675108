//! The operator's Deployment: what values of the chart replace, and what stays. Pure.

use serde_json::{Value, json};

use super::manifests::Manifests;
use super::{Context, OperatorChartError, kind, marks, objects, text_at, yaml};

/// Name of the operator's container.
const CONTAINER: &str = "manager";

/// Fields of the Deployment in `config/manager`; the defaults of the chart's values.
pub(super) struct Manager {
    pub(super) image: String,
    pub(super) replicas: u64,
    pub(super) args: Value,
    pub(super) resources: Value,
}

impl Manager {
    /// Reads the Deployment, with the image of `images` in a kustomization.
    pub(super) fn of(manifests: &Manifests) -> Option<Self> {
        let deployment = manifests.objects().find(|object| is_manager(object))?;
        let container = containers(deployment).find(|container| is_operator(container))?;
        let image = text_at(container, "/image");
        let replicas = deployment.pointer("/spec/replicas").and_then(Value::as_u64);
        let field = |name: &str| container.get(name).cloned();
        Some(Self {
            image: replaced(image, &manifests.images),
            replicas: replicas.unwrap_or(1),
            args: field("args").unwrap_or_else(|| json!([])),
            resources: field("resources").unwrap_or_else(|| json!({})),
        })
    }
}

/// Returns whether an object is the operator's Deployment.
pub(super) fn is_manager(object: &Value) -> bool {
    let labels = object.pointer("/spec/template/metadata/labels");
    let label = labels.and_then(|labels| labels.get("control-plane"));
    kind(object) == "Deployment" && label.and_then(Value::as_str) == Some("controller-manager")
}

fn containers(deployment: &Value) -> impl Iterator<Item = &Value> {
    let containers = deployment.pointer("/spec/template/spec/containers");
    containers.and_then(Value::as_array).into_iter().flatten()
}

fn is_operator(container: &Value) -> bool {
    text_at(container, "/name") == CONTAINER
}

/// Returns the image as the `images` of kustomizations change it.
fn replaced(image: &str, images: &[Value]) -> String {
    let name = image.split(['@', ':']).next().unwrap_or(image);
    let entry = images.iter().find(|entry| text_at(entry, "/name") == name);
    let Some(entry) = entry else {
        return image.to_owned();
    };
    let field = |field: &str| entry.get(field).and_then(Value::as_str);
    let rest = image.strip_prefix(name).unwrap_or_default();
    let version = match (field("digest"), field("newTag")) {
        (Some(digest), _) => format!("@{digest}"),
        (None, Some(tag)) => format!(":{tag}"),
        (None, None) => rest.to_owned(),
    };
    format!("{}{version}", field("newName").unwrap_or(name))
}

pub(super) fn template(
    deployment: &Value,
    file: &str,
    context: &Context,
) -> Result<String, OperatorChartError> {
    let mut deployment = deployment.clone();
    objects::localise(&mut deployment, context);
    if let Some(spec) = objects::field(&mut deployment, "spec") {
        spec.insert("replicas".to_owned(), marks::REPLICAS.into());
    }
    if let Some(pod) = deployment.pointer_mut("/spec/template/spec") {
        if let Some(pod) = pod.as_object_mut() {
            pod.insert("serviceAccountName".to_owned(), marks::ACCOUNT.into());
            for field in [
                "imagePullSecrets",
                "nodeSelector",
                "tolerations",
                "affinity",
                "priorityClassName",
            ] {
                pod.insert(field.to_owned(), marks::with(field).into());
            }
        }
        let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
        let operator = containers
            .into_iter()
            .flatten()
            .find(|container| is_operator(container))
            .and_then(Value::as_object_mut);
        if let Some(operator) = operator {
            operator.insert("image".to_owned(), marks::IMAGE.into());
            operator.insert("imagePullPolicy".to_owned(), marks::PULL_POLICY.into());
            operator.insert("args".to_owned(), marks::ARGS.into());
            operator.insert("resources".to_owned(), marks::with("resources").into());
            let env = operator.entry("env").or_insert_with(|| json!([]));
            if let Some(env) = env.as_array_mut() {
                env.push(marks::ENVIRONMENT.into());
            }
        }
    }
    let text = context.marks.template(&yaml(file, &deployment)?);
    if context.has_webhooks {
        return Ok(text);
    }
    // Only operators with webhooks know the flag.
    let lines = text
        .lines()
        .filter(|line| !line.contains("--webhook-service-name="));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_that_of_the_kustomization() {
        for (images, wanted) in [
            (json!([]), "controller:latest"),
            (
                json!([{"name": "other", "newTag": "v1"}]),
                "controller:latest",
            ),
            (
                json!([{"name": "controller", "newTag": "v1"}]),
                "controller:v1",
            ),
            (
                json!([{"name": "controller", "newName": "r:5000/o", "digest": "sha256:1"}]),
                "r:5000/o@sha256:1",
            ),
            (
                json!([{"name": "controller", "newName": "r/o"}]),
                "r/o:latest",
            ),
        ] {
            let images = images.as_array().unwrap();
            assert_eq!(replaced("controller:latest", images), wanted);
        }
    }
}
