//! The files of a bundle. Pure.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::csv::BUILDER;
use super::parts::Parts;
use super::{group_version, kind, name, text};
use crate::files::FileSet;

/// Prefix of the annotations of a bundle's files.
pub(crate) const ANNOTATION: &str = "operators.operatorframework.io.bundle.";

/// The tests that scorecard runs unless a project has its own.
const SCORECARD: &str = include_str!("../../templates/project/config/scorecard/config.yaml");

/// The package and channels of a bundle.
#[derive(Debug)]
pub(crate) struct Metadata<'a> {
    pub(crate) package: &'a str,
    pub(crate) channels: &'a [String],
    /// Channel for users who do not choose one.
    pub(crate) default_channel: &'a str,
    pub(crate) layout: &'a str,
}

/// Returns the files of a bundle in the directory `name`, and the Dockerfile beside it.
pub(crate) fn files(
    directory: &Path,
    parts: &Parts,
    csv: &Value,
    metadata: &Metadata,
) -> anyhow::Result<FileSet> {
    let mut files = FileSet::default();
    let manifests = directory.join("manifests");
    let yaml = |object: &Value| {
        go_yaml::to_string(object)
            .with_context(|| format!("cannot write {} {}", kind(object), name(object)))
    };
    let csv_file = format!("{}.clusterserviceversion.yaml", metadata.package);
    files.add(manifests.join(csv_file), yaml(csv)?)?;
    for crd in &parts.crds {
        let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
        let file = format!("{group}_{plural}.yaml");
        files.add(manifests.join(file), yaml(crd)?)?;
    }
    for object in &parts.others {
        let (group, version) = group_version(object);
        let mut file = name(object).to_owned();
        for part in [group, version, kind(object)] {
            if !part.is_empty() {
                let _ = write!(file, "_{}", part.to_ascii_lowercase());
            }
        }
        // A name of an object may have a colon, which is awkward in the name of a file.
        let file = file.replace(':', "-") + ".yaml";
        files.add(manifests.join(file), yaml(object)?)?;
    }
    let scorecard = match &parts.scorecard {
        Some(configuration) => yaml(configuration)?,
        None => SCORECARD.to_owned(),
    };
    files.add(directory.join("tests/scorecard/config.yaml"), scorecard)?;
    let annotations = annotations(metadata);
    let file = directory.join("metadata/annotations.yaml");
    files.add(file, annotations_file(&annotations))?;
    let shown = directory.display().to_string();
    files.add("bundle.Dockerfile", dockerfile(&annotations, &shown))?;
    Ok(files)
}

type Annotations = Vec<(&'static str, Vec<(String, String)>)>;

/// Returns the annotations with the comment of each group.
fn annotations(metadata: &Metadata) -> Annotations {
    let core = |name: &str, value: &str| (format!("{ANNOTATION}{name}"), value.to_owned());
    let other = |name: &str, value: &str| {
        let name = format!("operators.operatorframework.io.{name}");
        (name, value.to_owned())
    };
    vec![
        (
            "The files and channels of the bundle.",
            vec![
                core("mediatype.v1", "registry+v1"),
                core("manifests.v1", "manifests/"),
                core("metadata.v1", "metadata/"),
                core("package.v1", metadata.package),
                core("channels.v1", &metadata.channels.join(",")),
                core("channel.default.v1", metadata.default_channel),
            ],
        ),
        (
            "What made it.",
            vec![
                other("metrics.builder", BUILDER),
                other("metrics.mediatype.v1", "metrics+v1"),
                other("metrics.project_layout", metadata.layout),
            ],
        ),
        (
            "The tests of scorecard.",
            vec![
                other("test.mediatype.v1", "scorecard+v1"),
                other("test.config.v1", "tests/scorecard/"),
            ],
        ),
    ]
}

fn annotations_file(annotations: &Annotations) -> String {
    let mut file = "annotations:\n".to_owned();
    for (comment, annotations) in annotations {
        let _ = writeln!(file, "  # {comment}");
        for (name, value) in annotations {
            let _ = writeln!(file, "  {name}: {value}");
        }
    }
    file
}

fn dockerfile(annotations: &Annotations, directory: &str) -> String {
    let mut file =
        "# An image without a program: OLM reads the files in it.\nFROM scratch\n".to_owned();
    for (comment, annotations) in annotations {
        let _ = writeln!(file, "\n# {comment}");
        for (name, value) in annotations {
            let _ = writeln!(file, "LABEL {name}={value}");
        }
    }
    let _ = write!(
        file,
        "\nCOPY {directory}/manifests /manifests/\nCOPY {directory}/metadata /metadata/\nCOPY {directory}/tests/scorecard /tests/scorecard/\n"
    );
    file
}
