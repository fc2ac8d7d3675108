//! Inputs from which a project generates files: its watches file, charts and existing CRDs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use helm_core::chart::Chart;
use hybrid_operator::helm::ChartReader;
use hybrid_operator::watches::{self, Api, Outputs, PatchesFrom};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::ChartApi;
use super::crds::Names;
use super::descriptions::add_comments;
use super::native::Program;
use crate::project::{Project, ProjectError, plural as regular_plural};

/// Directory of the CRDs, relative to the project.
pub(crate) const CRDS: &str = "config/crd/bases";

/// Where a project and its watches file are.
pub(crate) struct Place {
    /// Directory of the project, or the current one.
    root: PathBuf,
    /// The `PROJECT` file, if there is one.
    project: Option<Project>,
    pub(crate) watches_file: PathBuf,
}

impl Place {
    /// Finds the project of the current directory. Without one, the watches file must be given.
    pub(crate) fn find(watches_file: Option<&Path>) -> anyhow::Result<Self> {
        let current = std::env::current_dir().context("cannot find the current directory")?;
        let given = watches_file.map(|path| current.join(path));
        match (Project::find(&current), given) {
            (Ok(project), given) => Ok(Self {
                root: project.root.clone(),
                watches_file: given.unwrap_or_else(|| project.watches_file()),
                project: Some(project),
            }),
            (Err(ProjectError::NotAProject { .. }), Some(watches_file)) => Ok(Self {
                root: current,
                project: None,
                watches_file,
            }),
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// A project, or a directory with a watches file.
pub(crate) struct Inputs {
    /// Directory that generated files are relative to.
    pub(crate) root: PathBuf,
    /// The `PROJECT` file, if there is one.
    pub(crate) project: Option<Project>,
    /// Charts that the watches file names.
    pub(crate) charts: Vec<WatchedChart>,
}

/// A kind and its chart.
pub(crate) struct WatchedChart {
    gvk: GroupVersionKind,
    names: Names,
    chart: Chart,
    directory: String,
    spec: Option<Api>,
    patches: Option<PatchesFrom>,
    outputs: Arc<Outputs>,
    protect: Option<bool>,
}

impl WatchedChart {
    /// Returns the kind as the generators take it.
    pub(crate) fn api(&self) -> ChartApi<'_> {
        ChartApi {
            group: &self.gvk.group,
            version: &self.gvk.version,
            kind: &self.gvk.kind,
            plural: &self.names.plural,
            namespaced: self.names.namespaced,
            chart: &self.chart,
            directory: &self.directory,
        }
    }

    /// Returns the spec of the kind, if it is not the chart's values.
    pub(crate) fn spec(&self) -> Option<&Api> {
        self.spec.as_ref()
    }

    /// Returns where custom resources hold patches.
    pub(crate) fn patches(&self) -> Option<&PatchesFrom> {
        self.patches.as_ref()
    }

    /// Returns what the status of the kind shows.
    pub(crate) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Returns whether custom resources are protected; `None` if the kind knows no protection.
    pub(crate) fn protect(&self) -> Option<bool> {
        self.protect
    }

    /// Returns the names of the kind.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }
}

impl Inputs {
    /// Reads the project of the current directory, or the given watches file.
    pub(crate) fn load(watches_file: Option<&Path>, crds: &Path) -> anyhow::Result<Self> {
        Self::load_with(watches_file, crds, &BTreeMap::new())
    }

    /// Does what [`load`](Self::load) does, with these charts in place of those of the directories, which are relative
    /// to the project.
    pub(crate) fn load_with(
        watches_file: Option<&Path>,
        crds: &Path,
        charts: &BTreeMap<PathBuf, Chart>,
    ) -> anyhow::Result<Self> {
        let place = Place::find(watches_file)?;
        let path = place.watches_file;
        let mut inputs = Self {
            root: place.root,
            project: place.project,
            charts: Vec::new(),
        };
        // A project with native controllers only.
        if watches_file.is_none() && !path.exists() && inputs.is_program() {
            return Ok(inputs);
        }
        let definitions = definitions(&inputs.root.join(crds))?;
        let reader = ChartReader::open_default().in_project(&inputs.root);
        let mut watches = watches::load(&path)?;
        add_comments(&fs::read_to_string(&path).unwrap_or_default(), &mut watches);
        for watch in watches {
            let shown = watch.chart.to_string();
            let inside = |path: &Path| path.strip_prefix(&inputs.root).ok().map(Path::to_owned);
            let replaced = watch.chart.path().and_then(inside);
            let chart = match replaced.and_then(|directory| charts.get(&directory)) {
                Some(chart) => chart.clone(),
                None => reader
                    .read(&watch.chart)
                    .with_context(|| format!("cannot load the chart {shown:?}"))?,
            };
            let chart = watch.with_schema_policy(chart);
            let watch = watch.of_chart(&chart)?;
            let names = inputs.names(&watch.gvk, &definitions);
            let directory = watch.chart.path().map(|path| {
                let inside = path.strip_prefix(&inputs.root);
                inside.unwrap_or(path).display().to_string()
            });
            let directory = directory.unwrap_or(shown);
            inputs.charts.push(WatchedChart {
                gvk: watch.gvk,
                names,
                chart,
                directory,
                spec: watch.api,
                patches: watch.patches_from,
                outputs: watch.outputs,
                protect: watch.protect,
            });
        }
        inputs.check_names()?;
        Ok(inputs)
    }

    /// Returns whether the project is a Rust program.
    pub(crate) fn is_program(&self) -> bool {
        self.project.is_some() && Program::is_in(&self.root)
    }

    /// Finds the names of a kind: those of its existing CRD, else those of `PROJECT`, else the
    /// regular ones.
    fn names(&self, gvk: &GroupVersionKind, definitions: &[Value]) -> Names {
        let existing = definitions
            .iter()
            .find_map(|crd| Names::of_definition(crd, &gvk.group, &gvk.kind));
        if let Some(names) = existing {
            return names;
        }
        let resources = self.project.iter().flat_map(|p| &p.file.resources);
        let resource = resources
            .filter(|resource| resource.kind == gvk.kind && resource.full_group() == gvk.group)
            .max_by_key(|resource| resource.version == gvk.version);
        let plural = resource.and_then(|resource| resource.plural.clone());
        let api = resource.and_then(|resource| resource.api.as_ref());
        Names {
            plural: plural.unwrap_or_else(|| regular_plural(&gvk.kind)),
            namespaced: api.is_none_or(|api| api.namespaced),
            singular: None,
            short_names: Vec::new(),
            categories: Vec::new(),
            stored: None,
        }
    }

    /// Two kinds of a group cannot have the same plural name.
    fn check_names(&self) -> anyhow::Result<()> {
        let mut seen: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        for chart in &self.charts {
            let (group, kind, plural) = (&chart.gvk.group, &chart.gvk.kind, &chart.names.plural);
            if group.is_empty() {
                bail!(
                    "the watches file has the kind {kind} without a group; a CRD needs one, so set 'group'"
                );
            }
            if let Some(other) = seen.insert((group, plural), kind)
                && other != kind
            {
                bail!(
                    "the kinds {other} and {kind} of {group} have the same plural name {plural:?}; set 'plural' of one of them in PROJECT"
                );
            }
        }
        Ok(())
    }
}

/// Reads the CRDs of a directory. Other files are passed over.
fn definitions(directory: &Path) -> anyhow::Result<Vec<Value>> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry =
            entry.with_context(|| format!("cannot read the directory {}", directory.display()))?;
        paths.push(entry.path());
    }
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    paths.sort();
    let mut definitions = Vec::new();
    for path in paths {
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let documents: Vec<Value> = go_yaml::documents(&text).unwrap_or_default();
        definitions.extend(documents);
    }
    Ok(definitions)
}
