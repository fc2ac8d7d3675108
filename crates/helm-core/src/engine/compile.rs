//! Parses the templates of a chart once, when they first take part in a render, and links them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
#[cfg(feature = "parallel")]
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
    thread::available_parallelism,
};

use go_template::{Funcs, ParseError, ParsedTemplates, Str, Template, TemplateSet, Tree};

use super::include::names_version;
use super::{
    RenderError, context, files_object, funcs_duration, funcs_json, funcs_toml, funcs_yaml, include,
};
use crate::chart::{Chart, dependency};
use crate::slots::Slots;
use crate::values::Resolved;

/// The name of the template set, which Go's errors show for `tpl`.
const SET: &str = "gotpl";

/// The functions of Go, Sprig and Helm.
static FUNCS: LazyLock<Arc<Funcs>> = LazyLock::new(|| {
    let mut funcs = Funcs::new().with(&go_template::sprig::FUNCS);
    // Templates cannot read the environment of the process.
    funcs.remove("env");
    funcs.remove("expandenv");
    for helm in [
        include::FUNCS,
        funcs_yaml::FUNCS,
        funcs_json::FUNCS,
        funcs_toml::FUNCS,
        funcs_duration::FUNCS,
    ] {
        funcs.extend(helm);
    }
    Arc::new(funcs)
});

/// The templates of a chart and all its dependencies, by path.
pub(super) struct Templates {
    sources: HashMap<String, Arc<Source>>,
    linked: Slots<String, Linked>,
}

/// A file with templates.
struct Source {
    path: String,
    text: Str,
    parsed: OnceLock<Result<ParsedTemplates, ParseError>>,
}

impl Source {
    /// Returns its templates, which are parsed by the first call.
    fn parsed(&self) -> Result<&ParsedTemplates, &ParseError> {
        static PARSER: LazyLock<TemplateSet> =
            LazyLock::new(|| TemplateSet::new(SET, Arc::clone(&FUNCS)));
        let parse = || PARSER.parse_detached(self.path.as_str(), self.text.clone());
        self.parsed.get_or_init(parse).as_ref()
    }
}

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
    /// Finds the templates of `chart` under every name that its dependencies can have, and parses the chart's
    /// own, which take part in every render.
    pub(super) fn parse(chart: &Chart) -> Result<Self, RenderError> {
        let mut sources = HashMap::new();
        let mut own = Vec::new();
        walk(&dependency::with_all(chart), &mut |chart, path, parent| {
            for file in templates_of(chart) {
                let source = Arc::new(Source {
                    path: format!("{path}/{}", file.name()),
                    text: Str::from(file.shared_data()),
                    parsed: OnceLock::new(),
                });
                if parent.is_none() {
                    own.push(Arc::clone(&source));
                }
                sources.insert(source.path.clone(), source);
            }
        });
        own.sort_by(|a, b| order(&b.path).cmp(&order(&a.path)));
        parse_all(&own);
        match own.iter().find_map(|source| source.parsed().err()) {
            Some(error) => Err(RenderError::from_parse(error)),
            None => Ok(Self {
                sources,
                linked: Slots::new(),
            }),
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
        let missing = sources.filter(|source| source.parsed.get().is_none());
        parse_all(&missing.cloned().collect::<Vec<_>>());
        let mut set = TemplateSet::new(SET, Arc::clone(&FUNCS));
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

/// The threads that parse beside the one that needs the templates: one for each further processor, because each
/// thread keeps memory of its own. There are none if they cannot be started.
#[cfg(feature = "parallel")]
static POOL: LazyLock<Option<rayon::ThreadPool>> = LazyLock::new(|| {
    let helpers = available_parallelism().map_or(0, |processors| processors.get() - 1);
    if helpers == 0 {
        return None;
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(helpers)
        .build()
        .ok()
});

/// Minimum size of all templates, in bytes, for parsing them on several threads.
#[cfg(feature = "parallel")]
const MIN_PARALLEL_SIZE: usize = 24 << 10;

/// Parses files.
#[cfg(not(feature = "parallel"))]
fn parse_all(sources: &[Arc<Source>]) {
    for source in sources {
        let _ = source.parsed();
    }
}

/// Parses files, on the threads of a pool if they are large. On two processors, the large charts of
/// `docs/benchmarks.md` are loaded, compiled and rendered 1.1 to 1.2 times as fast with it.
#[cfg(feature = "parallel")]
fn parse_all(sources: &[Arc<Source>]) {
    let total: usize = sources.iter().map(|source| source.text.len()).sum();
    let queue = Arc::new(ParseQueue {
        sources: sources.to_vec(),
        next: AtomicUsize::new(0),
    });
    // Using the pool starts its threads.
    if total >= MIN_PARALLEL_SIZE
        && let Some(pool) = &*POOL
    {
        for _ in 0..pool.current_num_threads() {
            let queue = Arc::clone(&queue);
            // A file that a helper fails to parse is parsed by whoever needs it.
            pool.spawn(move || drop(catch_unwind(AssertUnwindSafe(|| queue.work()))));
        }
    }
    queue.work();
}

/// Files to parse, which the threads take one by one.
#[cfg(feature = "parallel")]
struct ParseQueue {
    sources: Vec<Arc<Source>>,
    next: AtomicUsize,
}

#[cfg(feature = "parallel")]
impl ParseQueue {
    fn work(&self) {
        while let Some(source) = self.sources.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let _ = source.parsed();
        }
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
