//! Finds the container images in objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Deployed;

/// Returns the images of all Pod specs in the objects, each with the objects that use it.
pub(crate) fn images(objects: &[Deployed]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for deployed in objects {
        let mut images = BTreeSet::new();
        collect(deployed.object.object(), &mut images);
        for image in images {
            let users = found.entry(image).or_default();
            users.insert(deployed.object.key().to_string());
        }
    }
    found
}

/// Collects the images at any depth, so that Pod templates in the objects of other operators are
/// found too.
fn collect(value: &Value, images: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "containers" | "initContainers" | "ephemeralContainers" => {
                        let containers = value.as_array().into_iter().flatten();
                        images.extend(containers.filter_map(|container| {
                            let image = container.get("image")?.as_str()?;
                            Some(image.to_owned()).filter(|image| !image.is_empty())
                        }));
                    }
                    "volumes" => {
                        let volumes = value.as_array().into_iter().flatten();
                        images.extend(volumes.filter_map(|volume| {
                            let image = volume.pointer("/image/reference")?.as_str()?;
                            Some(image.to_owned())
                        }));
                    }
                    _ => {}
                }
                collect(value, images);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, images)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::parse_objects;

    use super::*;

    #[test]
    fn images_of_containers_init_containers_and_volumes_are_found_in_all_templates() {
        let manifest = "\
apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec: {jobTemplate: {spec: {template: {spec: {
  initContainers: [{name: i, image: init:1}], containers: [{name: m, image: main:2}],
  volumes: [{name: v, image: {reference: data:3}}]}}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: m, image: main:2}, {name: none}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
data: {image: not-one}
";
        let parsed = parse_objects(manifest).unwrap().into_iter();
        let objects: Vec<_> = parsed
            .map(|object| Deployed {
                object,
                hook: false,
            })
            .collect();
        let found = images(&objects);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["data:3", "init:1", "main:2"]);
        let users: Vec<&str> = found["main:2"].iter().map(String::as_str).collect();
        assert_eq!(users, ["CronJob.batch c", "Pod p"]);
    }
}
