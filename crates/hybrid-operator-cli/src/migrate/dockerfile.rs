//! The image: its base is replaced.

use std::path::Path;

use super::{Kind, Origin, Tree};
use crate::project::{BASE_IMAGE, base_image_is_local};

/// Names of the base images of Helm operators, without registry and tag.
const GO_IMAGES: &[&str] = &[
    "helm-operator",
    "ose-helm-operator",
    "ose-helm-rhel9-operator",
];

pub(super) fn check(tree: &mut Tree) {
    let files = tree.matching(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| {
            name == "Dockerfile"
                || name == "Containerfile"
                || (name.ends_with(".Dockerfile") && name != "bundle.Dockerfile")
        })
    });
    let mut found = false;
    for (path, text) in files {
        found |= replace_base(tree, &path, &text);
    }
    if !found && tree.origin == Origin::Sdk {
        let base = base_image();
        let text =
            format!("no Dockerfile begins with a helm-operator image; build the image from {base}");
        tree.add(Kind::ByHand, Path::new("Dockerfile"), None, text);
    }
}

/// Returns the base image, and where it comes from if it is not published.
fn base_image() -> String {
    let image = &*BASE_IMAGE;
    if base_image_is_local() {
        format!("{image}, which 'make base-image' builds in a checkout of hybrid-operator")
    } else {
        image.clone()
    }
}

/// Replaces the base image. Returns whether the file has one.
fn replace_base(tree: &mut Tree, path: &Path, text: &str) -> bool {
    let mut lines = Vec::new();
    let mut changes = Vec::new();
    let mut known = false;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let image = image_of(line);
        known |= image == Some(&**BASE_IMAGE);
        match image.filter(|image| is_go_operator(image)) {
            Some(image) => {
                lines.push(line.replacen(image, &BASE_IMAGE, 1));
                let change = format!("base image {image} becomes {}", base_image());
                changes.push((index + 1, change));
            }
            None => lines.push(line.to_owned()),
        }
    }
    if changes.is_empty() {
        return known;
    }
    for (line, text) in changes {
        tree.add(Kind::Change, path, Some(line), text);
    }
    tree.change(path, lines.concat());
    true
}

/// Returns the image of a FROM line.
fn image_of(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let first = words.next();
    first.filter(|word| word.eq_ignore_ascii_case("FROM"))?;
    words.find(|word| !word.starts_with("--"))
}

/// Returns whether an image is the base of the Go operators.
fn is_go_operator(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    let name = last.split(['@', ':']).next().unwrap_or(last);
    GO_IMAGES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_images_are_recognised_with_any_registry_tag_and_digest() {
        for line in [
            "FROM quay.io/operator-framework/helm-operator:v1.42.3",
            "from --platform=linux/amd64 helm-operator AS base",
            "FROM registry.redhat.io/openshift4/ose-helm-operator@sha256:24fb",
        ] {
            assert!(image_of(line).is_some_and(is_go_operator), "{line}");
        }
        for line in [
            "FROM example.com/my-helm-operator:v1",
            "FROM golang:1.26 AS builder",
            "RUN echo FROM helm-operator",
        ] {
            assert!(!image_of(line).is_some_and(is_go_operator), "{line}");
        }
    }
}
