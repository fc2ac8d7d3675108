//! The chart cases: a folder with `archives/` and `cases/CHART/CASE`.

use std::path::{Path, PathBuf};

use helm_core::capabilities::KubeVersion;
use helm_core::chart::Limits;
use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::release::Revision;
use helm_core::values::{self, Values};
use helm_core::{Capabilities, CompiledChart, Rendered};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct Case {
    /// The path of the archive.
    pub(crate) chart: String,
    name: String,
    namespace: String,
    is_upgrade: bool,
    kube_version: String,
    api_versions: Vec<String>,
}

impl Case {
    /// Reads the case in a directory, with the user's values.
    pub(crate) fn read(directory: &Path) -> (Self, Values) {
        let text = std::fs::read_to_string(directory.join("case.yaml")).unwrap();
        let user = std::fs::read(directory.join("values.yaml")).unwrap_or_default();
        (
            go_yaml::from_str(&text).unwrap(),
            values::read(&user).unwrap(),
        )
    }

    /// Renders the case with a chart that is compiled.
    pub(crate) fn render(
        &self,
        chart: &CompiledChart,
        capabilities: &Capabilities,
        user: &Values,
    ) -> Rendered {
        let values = chart.coalesce(user.clone()).unwrap();
        let mut release = ReleaseInfo::new(&self.name, &self.namespace);
        if self.is_upgrade {
            release = release.upgrade_to(Revision::FIRST);
        }
        let input = RenderInput::new(release, &values).capabilities(capabilities);
        chart.render(&input).unwrap()
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities {
            kube_version: KubeVersion::parse(&self.kube_version).unwrap(),
            ..Capabilities::default()
        };
        capabilities.api_versions = capabilities.api_versions.with(&self.api_versions);
        capabilities
    }
}

/// Loads a chart from the bytes of its archive, and compiles it.
pub(crate) fn compile(packed: &[u8]) -> CompiledChart {
    CompiledChart::from_archive(packed, &Limits::default()).unwrap()
}

/// Returns the last part of a path.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Returns the directories of the cases that Helm renders, ordered by chart.
pub(crate) fn cases(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| {
        let entries = std::fs::read_dir(path).expect("a folder of cases");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.is_dir());
        paths.sort();
        paths
    };
    let mut cases: Vec<PathBuf> = below(folder.join("cases"))
        .into_iter()
        .flat_map(below)
        .collect();
    let only = std::env::var("ONLY").unwrap_or_default();
    cases.retain(|case| !case.join("error.txt").exists());
    cases.retain(|case| case.to_string_lossy().contains(&only));
    cases
}
