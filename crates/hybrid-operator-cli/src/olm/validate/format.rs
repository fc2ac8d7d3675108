//! The directories and metadata of a bundle.

use std::fs;
use std::path::Path;

use semver::VersionReq;
use serde_json::Value;

use super::Finding;
use crate::olm::bundle::ANNOTATION;
use crate::olm::{items, text};

/// Checks the directories, the annotations and the dependencies.
pub(super) fn check(directory: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in ["manifests", "metadata"] {
        if !directory.join(part).is_dir() {
            let message = format!(
                "{} has no directory {part}; name the directory of a bundle",
                directory.display()
            );
            findings.push(Finding::error("directory", message));
        }
    }
    if !findings.is_empty() {
        return findings;
    }
    match annotations(directory) {
        Some(annotations) => check_annotations(&annotations, &mut findings),
        None => findings.push(Finding::error(
            "annotations-file",
            "metadata has no file with annotations; 'hybrid-operator olm bundle' writes annotations.yaml",
        )),
    }
    for file in metadata(directory) {
        for dependency in items(&file, "/dependencies") {
            check_dependency(dependency, &mut findings);
        }
    }
    findings
}

/// Returns the channels of the annotations.
pub(super) fn channels(directory: &Path) -> Vec<String> {
    let annotations = annotations(directory).unwrap_or_default();
    let value = |name: &str| {
        annotations
            .get(format!("{ANNOTATION}{name}"))
            .and_then(Value::as_str)
    };
    let channels = value("channels.v1").unwrap_or_default().split(',');
    let all = channels.chain(value("channel.default.v1"));
    all.map(|channel| channel.trim().to_owned())
        .filter(|channel| !channel.is_empty())
        .collect()
}

/// Returns the annotations of a bundle.
pub(in crate::olm) fn annotations(directory: &Path) -> Option<Value> {
    metadata(directory).into_iter().find_map(|mut file| {
        let annotations = file
            .get_mut("annotations")
            .filter(|annotations| annotations.is_object());
        annotations.map(Value::take)
    })
}

/// Reads the files of the metadata that are YAML.
pub(in crate::olm) fn metadata(directory: &Path) -> Vec<Value> {
    let entries = fs::read_dir(directory.join("metadata"))
        .into_iter()
        .flatten();
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| go_yaml::from_slice(&fs::read(path).ok()?).ok();
    paths.iter().filter_map(read).collect()
}

fn check_annotations(annotations: &Value, findings: &mut Vec<Finding>) {
    let value = |name: &str| {
        annotations
            .get(format!("{ANNOTATION}{name}"))
            .and_then(Value::as_str)
    };
    for (name, wanted) in [
        ("mediatype.v1", Some("registry+v1")),
        ("manifests.v1", Some("manifests/")),
        ("metadata.v1", Some("metadata/")),
        ("package.v1", None),
        ("channels.v1", None),
    ] {
        match (value(name), wanted) {
            (None, _) => findings.push(Finding::error(
                "annotation-missing",
                format!("metadata/annotations.yaml has no {ANNOTATION}{name}"),
            )),
            (Some(present), Some(wanted)) if present != wanted => findings.push(Finding::error(
                "annotation-value",
                format!("metadata/annotations.yaml has {ANNOTATION}{name}: {present:?}; it must be {wanted:?}"),
            )),
            _ => {}
        }
    }
    for name in ["channels.v1", "channel.default.v1"] {
        if value(name) == Some("") || (name == "channels.v1" && value(name).is_none()) {
            let message = format!("metadata/annotations.yaml has an empty {ANNOTATION}{name}");
            findings.push(Finding::error("annotation-empty", message));
        }
    }
}

fn check_dependency(dependency: &Value, findings: &mut Vec<Finding>) {
    let mut add = |message: String| findings.push(Finding::error("dependency", message));
    let kind = text(dependency, "/type");
    let needed: &[&str] = match kind {
        "olm.gvk" => &["group", "version", "kind"],
        "olm.package" => &["packageName", "version"],
        "olm.label" => &["label"],
        "olm.constraint" => &[],
        other => {
            let message = format!("metadata/dependencies.yaml has the unknown type {other:?}");
            return add(message);
        }
    };
    for field in needed {
        if text(dependency, &format!("/value/{field}")).is_empty() {
            add(format!("a dependency of the type {kind} has no {field}"));
        }
    }
    let range = text(dependency, "/value/version");
    if kind == "olm.package" && !range.is_empty() && !is_range(range) {
        add(format!(
            "the version {range:?} of a dependency is not a range such as '>=1.0.0 <2.0.0'"
        ));
    }
}

/// Returns whether a text is a range of versions: comparisons, with `||` between alternatives.
pub(in crate::olm) fn is_range(range: &str) -> bool {
    range.split("||").all(|alternative| {
        let mut parts = alternative.split_whitespace().peekable();
        parts.peek().is_some()
            && parts.all(|part| {
                // A version alone is compared for equality; `!` excludes one.
                let part = part.strip_prefix('!').unwrap_or(part);
                let bare = part.trim_start_matches(['<', '>', '=']);
                VersionReq::parse(&format!("={}", bare.trim_end_matches(".x"))).is_ok()
            })
    })
}
