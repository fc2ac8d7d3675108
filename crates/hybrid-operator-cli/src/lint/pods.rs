//! Pods within objects.

use serde_json::Value;

/// Returns the spec of the Pods that an object makes.
pub(super) fn pod_spec(object: &Value) -> Option<&Value> {
    let kind = object.get("kind")?.as_str()?;
    let pointer = match kind {
        "Pod" => "/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "Job"
        | "ReplicationController" => "/spec/template/spec",
        _ => return None,
    };
    object.pointer(pointer)
}

/// Returns the images of the Pods that an object makes.
pub(super) fn images(object: &Value) -> Vec<&str> {
    let spec = pod_spec(object);
    let lists = ["initContainers", "containers"]
        .into_iter()
        .filter_map(|name| spec?.get(name)?.as_array());
    let images = lists
        .flatten()
        .filter_map(|container| container.get("image")?.as_str());
    images.collect()
}

/// Returns whether an image is a fixed version: it has a digest, or a tag other than `latest`.
pub(super) fn is_pinned(image: &str) -> bool {
    if image.contains('@') {
        return true;
    }
    let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
    name.split_once(':')
        .is_some_and(|(_, tag)| !tag.is_empty() && tag != "latest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_digests_pin_images() {
        for (image, pinned) in [
            ("redis:7.2", true),
            ("localhost:5000/redis", false),
            ("localhost:5000/redis:7", true),
            ("redis:latest", false),
            ("redis:", false),
            ("redis@sha256:00", true),
        ] {
            assert_eq!(is_pinned(image), pinned, "{image}");
        }
    }
}
