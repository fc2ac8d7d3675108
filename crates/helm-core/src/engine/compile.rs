//! Links the templates of a chart and its dependencies.

use std::collections::HashMap;
use std::sync::Arc;

use go_template::{Str, Template, TemplateSet, Tree};

use super::include::names_version;
use super::source::{self, Source};
use super::{RenderError, context, files_object};
use crate::chart::{Chart, dependency};
use crate::slots::Slots;
use crate::values::Resolved;

/// The templates of a chart and all its dependencies, by path.
pub(super) struct Templates {
    /// The chart's own, in the order in which they are linked.
    own: Vec<Arc<Source>>,
    sources: HashMap<String, Arc<Source>>,
    linked: Slots<String, Linked>,
}

/// Number of texts with the same name and length that a further one is compared with.
const MAX_COMPARED: usize = 8;

/// The templates that take part in a render, with the constant data of their charts.
pub(super) struct Linked {
    pub(super) set: TemplateSet,
    /// The files to execute, in Helm's order.
    pub(super) files: Vec<FileTemplate>,
    /// The charts; each comes after its parent.
    pub(super) charts: Vec<LinkedChart>,
    /// Whether a template may read the version of Kubernetes.
    pub(super) reads_version: bool,
}

/// A file to execute.
pub(super) struct FileTemplate {
    pub(super) path: String,
    /// The length of its text, a size hint for the output.
    pub(super) length: usize,
    /// The value of `.Template`.
    pub(super) about: Tree,
    /// Index of its chart in [`Linked::charts`].
    pub(super) chart: usize,
    pub(super) template: Arc<Template>,
}

/// A chart that takes part in a render.
pub(super) struct LinkedChart {
    pub(super) name: Str,
    /// Index of its parent in [`Linked::charts`].
    pub(super) parent: Option<usize>,
    pub(super) metadata: Tree,
    pub(super) files: Tree,
}

impl Templates {
    /// Finds the templates of `chart` under every name that its dependencies can have, and starts to parse the
    /// chart's own, which take part in every render.
    pub(super) fn start(chart: &Chart) -> Self {
        let mut sources = HashMap::new();
        let mut own = Vec::new();
        let mut by_name: HashMap<_, Vec<Arc<Source>>> = HashMap::new();
        walk(&dependency::with_all(chart), &mut |chart, path, parent| {
            for file in templates_of(chart) {
                let path = format!("{path}/{}", file.name());
                let known = by_name
                    .entry((file.shared_name(), file.data().len()))
                    .or_default();
                let same = known
                    .iter()
                    .find(|known| known.text().as_bytes() == file.data());
                let text = file.shared_data().into();
                let source = Arc::new(Source::new(path.clone(), text, same.cloned()));
                if same.is_none() && known.len() < MAX_COMPARED {
                    known.push(Arc::clone(&source));
                }
                if parent.is_none() {
                    own.push(Arc::clone(&source));
                }
                sources.insert(path, source);
            }
        });
        own.sort_by(|a, b| order(b.path()).cmp(&order(a.path())));
        source::start(&own);
        Self {
            own,
            sources,
            linked: Slots::new(),
        }
    }

    /// Starts to parse the templates of the dependencies that the chart's own values enable.
    pub(super) fn start_dependencies(&self, chart: &Chart) {
        let mut likely = Vec::new();
        walk(
            &dependency::with_likely(chart),
            &mut |chart, path, parent| {
                if parent.is_some() {
                    let paths = templates_of(chart).map(|file| format!("{path}/{}", file.name()));
                    likely.extend(paths.filter_map(|path| self.sources.get(&path).cloned()));
                }
            },
        );
        source::start(&likely);
    }

    /// Waits until the chart's own templates are parsed.
    pub(super) fn finish(&self) -> Result<(), RenderError> {
        source::parse_all(&self.own);
        match self.own.iter().find_map(|source| source.parsed().err()) {
            Some(error) => Err(RenderError::from_parse(error)),
            None => Ok(()),
        }
    }

    /// Links the templates of the charts that take part.
    pub(super) fn link(&self, resolved: &Resolved) -> Result<Arc<Linked>, RenderError> {
        self.linked
            .get_or_make(resolved.shape.clone(), || self.link_anew(&resolved.chart))
    }

    fn link_anew(&self, chart: &Chart) -> Result<Linked, RenderError> {
        let mut charts = Vec::new();
        let mut paths: HashMap<String, (usize, String)> = HashMap::new();
        let mut reads_version = false;
        walk(chart, &mut |chart, path, parent| {
            for file in templates_of(chart) {
                reads_version |= names_version(file.data());
                let base_path = format!("{path}/templates");
                paths.insert(format!("{path}/{}", file.name()), (charts.len(), base_path));
            }
            charts.push(LinkedChart {
                name: Str::from(chart.name()),
                parent,
                metadata: context::chart(chart, parent.is_none()),
                files: files_object::tree(chart.files()),
            });
        });
        let mut paths: Vec<_> = paths.into_iter().collect();
        paths.sort_by(|(a, _), (b, _)| order(b).cmp(&order(a)));
        let sources = paths.iter().filter_map(|(path, _)| self.sources.get(path));
        source::parse_all(&sources.cloned().collect::<Vec<_>>());
        let mut set = source::empty_set();
        let mut files = Vec::new();
        for (path, (chart, base_path)) in paths {
            // All names that a dependency can have are known.
            let Some(source) = self.sources.get(&path) else {
                continue;
            };
            set.add(source.parsed().map_err(RenderError::from_parse)?);
            if !path
                .rsplit('/')
                .next()
                .is_some_and(|base| base.starts_with('_'))
            {
                files.push((path, base_path, chart));
            }
        }
        let files = files.into_iter().filter_map(|(path, base_path, chart)| {
            let template = Arc::clone(set.get(&path)?);
            Some(FileTemplate {
                about: context::template(&path, &base_path),
                length: template.text().len(),
                path,
                chart,
                template,
            })
        });
        let files = files.collect();
        Ok(Linked {
            set,
            files,
            charts,
            reads_version,
        })
    }
}

/// Returns the sort key of a path in Helm: depth, then path. Templates are parsed in reverse order,
/// so that the first file's definition of a name wins.
fn order(path: &str) -> (usize, &str) {
    (path.bytes().filter(|byte| *byte == b'/').count(), path)
}

/// Returns the files that are parsed: only the partials of a library chart.
fn templates_of(chart: &Chart) -> impl Iterator<Item = &crate::chart::File> {
    let is_library = chart.metadata().is_library();
    chart.templates().iter().filter(move |file| {
        !is_library
            || file
                .name()
                .rsplit('/')
                .next()
                .is_some_and(|base| base.starts_with('_'))
    })
}

/// Visits a chart and its dependencies with their paths and the index of their parent in the order
/// of the visits.
fn walk(chart: &Chart, visit: &mut impl FnMut(&Chart, &str, Option<usize>)) {
    fn below(
        chart: &Chart,
        path: &str,
        parent: Option<usize>,
        next: &mut usize,
        visit: &mut impl FnMut(&Chart, &str, Option<usize>),
    ) {
        let own = *next;
        *next += 1;
        visit(chart, path, parent);
        for dependency in chart.dependencies() {
            let path = format!("{path}/charts/{}", dependency.name());
            below(dependency, &path, Some(own), next, visit);
        }
    }
    below(chart, chart.name(), None, &mut 0, visit);
}
