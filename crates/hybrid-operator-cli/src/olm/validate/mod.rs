//! Checks a bundle as `operator-sdk bundle validate` does: what the packages of Operator Framework
//! refuse is an error here. Pure, but for reading the bundle.
//!
//! The test `olm` of this crate compares the findings with those of the Go packages.

mod content;
mod csv;
mod format;
pub(crate) mod names;
mod optional;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;

use super::{CRD, CSV, kind};
pub(super) use format::{annotations, metadata};
pub(crate) use optional::{ALL, Optional};

/// Kinds of objects that a bundle may have.
const SUPPORTED_KINDS: &str = "\
    ClusterRole ClusterRoleBinding ClusterServiceVersion ConfigMap ConsoleCLIDownload \
    ConsoleLink ConsolePlugin ConsoleQuickStart ConsoleYAMLSample CustomResourceDefinition \
    NetworkPolicy PodDisruptionBudget PodMonitor PriorityClass PrometheusRule Role RoleBinding \
    Secret Service ServiceAccount ServiceMonitor VerticalPodAutoscaler";

/// Returns whether a bundle may have objects of a kind.
pub(crate) fn is_supported(kind: &str) -> bool {
    SUPPORTED_KINDS
        .split_whitespace()
        .any(|known| known == kind)
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// OLM would refuse the bundle.
    Error,
    /// OLM takes the bundle.
    Warning,
}

/// A problem of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// A stable name of the rule.
    pub(crate) rule: &'static str,
    /// The problem, and what to do.
    pub(crate) message: String,
}

impl Finding {
    fn error(rule: &'static str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            rule,
            message: message.into(),
        }
    }

    fn warning(rule: &'static str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            rule,
            message: message.into(),
        }
    }

    /// Returns whether OLM would refuse the bundle.
    pub(crate) fn is_error(&self) -> bool {
        self.level == Level::Error
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = match self.level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        write!(f, "{level} [{}]: {}", self.rule, self.message)
    }
}

/// A bundle as it was read.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    /// The `ClusterServiceVersion`.
    pub(super) csv: Value,
    /// All objects, with their files.
    pub(super) objects: Vec<(String, Value)>,
    /// Channels of the annotations, with the default one.
    pub(super) channels: Vec<String>,
    /// Size of the files as OLM keeps them: compressed, in base64.
    size: usize,
}

impl Bundle {
    /// Returns the definitions.
    pub(super) fn crds(&self) -> impl Iterator<Item = &Value> {
        let objects = self.objects.iter().map(|(_, object)| object);
        objects.filter(|object| kind(object) == CRD)
    }
}

/// Checks the bundle in a directory.
pub(crate) fn bundle(directory: &Path, optional: &BTreeSet<Optional>) -> Vec<Finding> {
    let mut findings = format::check(directory);
    match load(directory) {
        Ok(bundle) => {
            content::check(&bundle, &mut findings);
            csv::check(&bundle.csv, &mut findings);
            for chosen in optional {
                chosen.check(&bundle, &mut findings);
            }
        }
        Err(finding) => findings.push(finding),
    }
    findings.sort();
    findings.dedup();
    findings
}

pub(super) fn load_bundle(directory: &Path) -> Result<(Value, Vec<(String, Value)>), Finding> {
    let bundle = load(directory)?;
    Ok((bundle.csv, bundle.objects))
}

fn load(directory: &Path) -> Result<Bundle, Finding> {
    let manifests = directory.join("manifests");
    let unreadable = |what: &Path, error: &dyn std::fmt::Display| {
        Finding::error(
            "manifests",
            format!("cannot read {}: {error}", what.display()),
        )
    };
    let entries = fs::read_dir(&manifests).map_err(|error| unreadable(&manifests, &error))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(
            entry
                .map_err(|error| unreadable(&manifests, &error))?
                .path(),
        );
    }
    paths.sort();
    let mut bundle = Bundle {
        channels: format::channels(directory),
        ..Bundle::default()
    };
    for path in paths {
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() || file.starts_with('.') {
            return Err(Finding::error(
                "manifests",
                format!(
                    "manifests has {file}; it may only have files with one object each, so remove it"
                ),
            ));
        }
        let text = fs::read(&path).map_err(|error| unreadable(&path, &error))?;
        bundle.size += compressed(&text);
        let mut documents: Vec<Value> =
            go_yaml::documents(&text).map_err(|error| unreadable(&path, &error))?;
        if documents.is_empty() || kind(documents.first().unwrap_or(&Value::Null)).is_empty() {
            return Err(Finding::error(
                "manifests",
                format!("manifests/{file} has no object with a kind"),
            ));
        }
        // OLM reads the first document of a file.
        let object = documents.swap_remove(0);
        if kind(&object) == CSV {
            if !bundle.csv.is_null() {
                return Err(Finding::error(
                    "manifests",
                    format!("manifests has more than one {CSV}, also {file}; remove one of them"),
                ));
            }
            csv::check_shape(&object)?;
            bundle.csv = object.clone();
        }
        bundle.objects.push((file, object));
    }
    if bundle.csv.is_null() {
        return Err(Finding::error(
            "manifests",
            format!("manifests has no {CSV}"),
        ));
    }
    Ok(bundle)
}

/// Returns the size of a file as OLM keeps it.
fn compressed(text: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.map_or(text.len(), |data| data.len()).div_ceil(3) * 4
}
