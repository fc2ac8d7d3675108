//! Parses the templates of a chart once, and links those that take part in a render.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
#[cfg(feature = "parallel")]
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
    sync::mpsc,
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

/// The parsed templates of a chart and all its dependencies, by path.
pub(super) struct Templates {
    parsed: HashMap<String, Result<ParsedTemplates, ParseError>>,
    linked: Slots<String, Linked>,
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
    /// Parses the templates of `chart` under every name that its dependencies can have.
    pub(super) fn parse(chart: &Chart) -> Result<Self, RenderError> {
        let mut texts = Vec::new();
        walk(&dependency::with_all(chart), &mut |chart, path, _| {
            let files = templates_of(chart);
            texts.extend(files.map(|file| {
                let path = format!("{path}/{}", file.name());
                (path, Str::from(file.shared_data()))
            }));
        });
        let parsed = parse_all(texts);
        // The chart's own templates take part in every render.
        let root = format!("{}/templates/", chart.name());
        let own = parsed.iter().filter(|(path, _)| path.starts_with(&root));
        let mut broken: Vec<_> = own
            .filter_map(|(path, result)| Some((path, result.as_ref().err()?)))
            .collect();
        broken.sort_by_key(|(path, _)| std::cmp::Reverse(order(path)));
        match broken.first() {
            Some((_, error)) => Err(RenderError::from_parse(error)),
            None => Ok(Self {
                parsed,
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
        let mut set = TemplateSet::new(SET, Arc::clone(&FUNCS));
        let mut files = Vec::new();
        for (path, (chart, base_path)) in paths {
            match self.parsed.get(&path) {
                Some(Ok(parsed)) => set.add(parsed),
                Some(Err(error)) => return Err(RenderError::from_parse(error)),
                // The templates were parsed under every name that a dependency can have.
                None => continue,
            };
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

/// The threads that parse. There are none if they cannot be started.
#[cfg(feature = "parallel")]
static POOL: LazyLock<Option<rayon::ThreadPool>> =
    LazyLock::new(|| rayon::ThreadPoolBuilder::new().build().ok());

/// Minimum size of all templates, in bytes, for parsing them on several threads.
#[cfg(feature = "parallel")]
const MIN_PARALLEL_SIZE: usize = 24 << 10;

/// Parses texts.
#[cfg(not(feature = "parallel"))]
fn parse_all(texts: Vec<(String, Str)>) -> HashMap<String, Result<ParsedTemplates, ParseError>> {
    let set = TemplateSet::new(SET, Arc::clone(&FUNCS));
    let parsed = texts.into_iter().map(|(path, text)| {
        let parsed = set.parse_detached(path.as_str(), text);
        (path, parsed)
    });
    parsed.collect()
}

/// Parses texts, on the threads of a pool if they are large.
#[cfg(feature = "parallel")]
fn parse_all(texts: Vec<(String, Str)>) -> HashMap<String, Result<ParsedTemplates, ParseError>> {
    let total: usize = texts.iter().map(|(_, text)| text.len()).sum();
    // Asking for the number of threads starts the pool.
    let helpers = if total < MIN_PARALLEL_SIZE {
        0
    } else {
        POOL.as_ref()
            .map_or(0, |pool| pool.current_num_threads().saturating_sub(1))
    };
    let work = Arc::new(ParseQueue {
        set: TemplateSet::new(SET, Arc::clone(&FUNCS)),
        texts,
        next: AtomicUsize::new(0),
    });
    let (done, parsed) = mpsc::channel();
    for _ in 0..helpers {
        let (work, done) = (Arc::clone(&work), done.clone());
        let Some(pool) = &*POOL else { break };
        pool.spawn(move || {
            // Texts that a helper fails to parse are parsed below.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                while let Some(one) = work.one() {
                    let _ = done.send(one);
                }
            }));
        });
    }
    drop(done);
    let own: Vec<_> = std::iter::from_fn(|| work.one()).collect();
    // Do not wait for helpers that start late: there is nothing left for them.
    let others = work.texts.len() - own.len();
    let mut all: HashMap<_, _> = own.into_iter().chain(parsed.iter().take(others)).collect();
    for (path, text) in &work.texts {
        if !all.contains_key(path) {
            let parsed = work.set.parse_detached(path.as_str(), text.clone());
            all.insert(path.clone(), parsed);
        }
    }
    all
}

/// Texts to parse, which the threads take one by one.
#[cfg(feature = "parallel")]
struct ParseQueue {
    set: TemplateSet,
    texts: Vec<(String, Str)>,
    next: AtomicUsize,
}

#[cfg(feature = "parallel")]
impl ParseQueue {
    fn one(&self) -> Option<(String, Result<ParsedTemplates, ParseError>)> {
        let (path, text) = self.texts.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        let parsed = self.set.parse_detached(path.as_str(), text.clone());
        Some((path.clone(), parsed))
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
