//! Preview of what the operator would deploy for custom resources: reads them, finds their charts
//! through a watches file, and renders.

pub(crate) mod difference;
pub(crate) mod images;
pub(crate) mod limits;
pub(crate) mod print;
mod resources;
pub(crate) mod revision;
pub(crate) mod source;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use helm_core::manifest::{Hook, HookEvent, ManifestObject, parse_objects};
use helm_core::{Capabilities, RenderError};
use hybrid_operator::helm::{self, Chart, ChartReader, Preview, PreviewError, PreviewInput};
use hybrid_operator::watches::{self, Watch};
use kube::core::SelectorExt as _;
use serde_json::Value;

pub(crate) use limits::LimitArgs;
pub(crate) use resources::{Given, Resource};
pub(crate) use source::{Source, SourceArgs, SourceError};

/// The entries of a watches file, with the charts that were needed so far.
pub(crate) struct Bindings {
    source: Source,
    watches: Vec<Watch>,
    charts: HashMap<usize, Chart>,
    reader: ChartReader,
    values_in_errors: bool,
}

/// A custom resource and what binds it to a chart.
pub(crate) struct Bound<'a> {
    pub(crate) watch: &'a Watch,
    pub(crate) chart: &'a Chart,
}

impl Bindings {
    /// Reads the watches file, but no chart.
    pub(crate) fn load(source: Source) -> anyhow::Result<Self> {
        Ok(Self {
            watches: source.watches()?,
            charts: HashMap::new(),
            reader: ChartReader::open_default().in_project(&source.root),
            source,
            values_in_errors: false,
        })
    }

    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// Changes the entries.
    pub(crate) fn change(&mut self, change: impl FnMut(&mut Watch)) {
        self.watches.iter_mut().for_each(change);
    }

    /// Sets whether errors show the contents of values.
    pub(crate) fn show_values_in_errors(&mut self, shown: bool) {
        self.values_in_errors = shown;
    }

    /// Returns whether errors show the contents of values.
    pub(crate) fn shows_values_in_errors(&self) -> bool {
        self.values_in_errors
    }

    /// Sets the limits that entries do not set.
    pub(crate) fn limit(&mut self, limits: LimitArgs) {
        self.change(|watch| watch.policy.limits = watch.policy.limits.or(limits.limits()));
    }

    /// Returns whether a kind is in the watches file.
    pub(crate) fn has(&self, resource: &Resource) -> bool {
        self.position(resource).is_some()
    }

    fn position(&self, resource: &Resource) -> Option<usize> {
        let gvk = resource.gvk();
        self.watches.iter().position(|watch| watch.gvk == gvk)
    }

    /// Returns the entry and the chart of a custom resource.
    pub(crate) fn bind(&mut self, resource: &Resource) -> anyhow::Result<Bound<'_>> {
        let Some(index) = self.position(resource) else {
            bail!("{}", self.unknown(resource));
        };
        let watch = self.watches.get(index).context("the entry has vanished")?;
        let chart = match self.charts.entry(index) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(self.reader.load(&watch.chart)?)
            }
        };
        Ok(Bound { watch, chart })
    }

    fn unknown(&self, resource: &Resource) -> String {
        let file = self.source.watches_file.display();
        let kinds: Vec<&str> = self.watches.iter().map(|w| w.gvk.kind.as_str()).collect();
        let gvk = resource.gvk();
        let same = self.watches.iter().find(|watch| watch.gvk.kind == gvk.kind);
        if let Some(watch) = same {
            let known = api_version(watch);
            return format!(
                "{resource} has apiVersion {}, but {file} binds {} of {known} to a chart",
                resource.api_version(),
                gvk.kind
            );
        }
        let hint = match watches::nearest(&gvk.kind, &kinds) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("its kinds are {}", listed(&kinds)),
        };
        format!("no entry of {file} binds {} to a chart; {hint}", gvk.kind)
    }

    /// Fills in the namespace of a custom resource, as applying it would.
    pub(crate) fn place(
        &self,
        resource: &mut Resource,
        namespace: &Namespace,
    ) -> anyhow::Result<()> {
        let index = self.position(resource);
        let watch = index.and_then(|index| self.watches.get(index));
        if watch.is_some_and(|watch| self.source.is_cluster_scoped(watch)) {
            resource.set_namespace(None);
            return Ok(());
        }
        match (resource.namespace(), namespace) {
            (Some(own), Namespace::Given(given)) if own != given => bail!(
                "{resource} is in namespace {own}, not in {given}; leave --namespace out, or change \
                 the file"
            ),
            (Some(_), _) => {}
            (None, Namespace::Given(name) | Namespace::Default(name)) => {
                resource.set_namespace(Some(name));
            }
        }
        Ok(())
    }
}

/// Returns the `apiVersion` of the custom resources of an entry.
pub(crate) fn api_version(watch: &Watch) -> String {
    if watch.gvk.group.is_empty() {
        watch.gvk.version.clone()
    } else {
        format!("{}/{}", watch.gvk.group, watch.gvk.version)
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// Namespace of custom resources.
#[derive(Debug, Clone)]
pub(crate) enum Namespace {
    /// Namespace that was asked for.
    Given(String),
    /// Namespace of custom resources that name none.
    Default(String),
}

/// Custom resources and the objects that `valuesFrom` refers to, from files.
pub(crate) struct Request {
    pub(crate) resources: Vec<Resource>,
    pub(crate) objects: Vec<Value>,
}

impl Request {
    /// Reads the custom resources of `files`, with the Secrets and `ConfigMap`s in them and in
    /// `from`.
    pub(crate) fn read(
        files: &[String],
        from: &[String],
        bindings: &Bindings,
        namespace: &Namespace,
    ) -> anyhow::Result<Self> {
        let mut resources = Vec::new();
        let mut objects = Vec::new();
        for file in files {
            let given = Given::read(file)?;
            for mut resource in given.objects {
                if resource.is_source() && !bindings.has(&resource) {
                    objects.push(resource.object);
                } else {
                    bindings.place(&mut resource, namespace)?;
                    resources.push(resource);
                }
            }
        }
        for file in from {
            let given = Given::read(file)?;
            for resource in given.objects {
                if !resource.is_source() {
                    bail!("{file}: {resource} is neither a Secret nor a ConfigMap");
                }
                objects.push(resource.object);
            }
        }
        if resources.is_empty() {
            bail!("{}: no custom resource in it", files.join(", "));
        }
        Ok(Self { resources, objects })
    }
}

/// Computes what the operator would deploy for a custom resource, without a cluster.
pub(crate) fn offline(
    bindings: &mut Bindings,
    resource: &Resource,
    objects: &[Value],
    capabilities: &Capabilities,
) -> anyhow::Result<Preview> {
    let own = std::env::var("POD_NAMESPACE").ok();
    let values_in_errors = bindings.values_in_errors;
    let bound = bindings.bind(resource)?;
    warn_selector(bound.watch, resource);
    let input = PreviewInput {
        watch: bound.watch,
        chart: bound.chart,
        object: &resource.object,
        operator_namespace: own.as_deref(),
        latest: None,
        values_in_errors,
    };
    helm::offline(&input, capabilities, objects)
        .map_err(|error| explain(error, resource, &bound, values_in_errors))
}

/// Prints a message if the operator ignores a custom resource because of its labels.
pub(crate) fn warn_selector(watch: &Watch, resource: &Resource) {
    let labels = resource.labels();
    if let Some(selector) = watch.selector.as_ref().filter(|s| !s.matches(&labels)) {
        crate::print_message(&format!(
            "warning: the operator ignores {resource}: its labels do not match the selector \
             {selector} of its entry in the watches file"
        ));
    }
}

/// Returns an error in the words of `admission`, with the custom resource, Helm's trace if it has several lines, and the
/// excerpt of the template.
pub(crate) fn explain(
    error: PreviewError,
    resource: &Resource,
    bound: &Bound<'_>,
    contents: bool,
) -> anyhow::Error {
    let words = helm::refusal(&error, bound.chart.name(), bound.watch, contents);
    let details = match error {
        PreviewError::Render(error) => {
            let trace = Some(error.to_string()).filter(|text| text.contains('\n'));
            let excerpt = error.excerpt().trim_end().to_owned();
            let parts = [Some(way_to_raise(&error)), trace, Some(excerpt)];
            let parts = parts.into_iter().flatten().enumerate();
            let parts = parts.filter(|(at, part)| *at == 0 || !part.is_empty());
            parts.map(|(_, part)| part).collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    };
    anyhow::anyhow!("{resource}: {words}{details}")
}

/// Adds to an error how an exceeded limit is raised, and the excerpt of the template.
pub(crate) fn with_excerpt(error: RenderError) -> anyhow::Error {
    let way = way_to_raise(&error);
    let excerpt = error.excerpt().trim_end().to_owned();
    match (way.is_empty(), excerpt.is_empty()) {
        (true, true) => error.into(),
        (false, true) => anyhow::anyhow!("{error}{way}"),
        (_, false) => anyhow::anyhow!("{error}{way}\n\n{excerpt}"),
    }
}

/// Returns how the limit is raised that an error says was exceeded, to be added to it.
fn way_to_raise(error: &RenderError) -> String {
    let way = error.limit().and_then(watches::way_to_raise);
    way.map(|way| format!("; {way}")).unwrap_or_default()
}

/// An object that would be deployed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Deployed {
    pub(crate) object: ManifestObject,
    pub(crate) hook: bool,
}

pub(crate) fn deployed(
    objects: Vec<ManifestObject>,
    hooks: &[&Hook],
) -> anyhow::Result<Vec<Deployed>> {
    let is = |hook| move |object| Deployed { object, hook };
    let mut all: Vec<Deployed> = objects.into_iter().map(is(false)).collect();
    for hook in hooks {
        let parsed = parse_objects(&hook.manifest);
        let parsed =
            parsed.with_context(|| format!("cannot read the hook {}", hook.display_name()))?;
        all.extend(parsed.into_iter().map(is(true)));
    }
    Ok(all)
}

/// Returns the hooks that the operator runs: tests only if the entry has `test`.
pub(crate) fn hooks_run<'a>(hooks: &'a [Hook], watch: &Watch) -> Vec<&'a Hook> {
    let is_test = |hook: &Hook| hook.events.iter().all(|event| *event == HookEvent::Test);
    let hooks = hooks.iter();
    hooks
        .filter(|hook| watch.policy.test.is_some() || !is_test(hook))
        .collect()
}

/// Says what is not applied without running the project's code, if the code names it.
pub(crate) fn note_about_code(root: &Path) {
    if root.join("Cargo.toml").is_file() && names_translator(&root.join("src"), 0) {
        crate::print_message(
            "note: this project has a value translator in Rust, which is not applied",
        );
    }
}

/// Returns whether a file of Rust in a directory, or below it, names value translators.
fn names_translator(directory: &Path, depth: usize) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return depth < 32 && names_translator(&path, depth + 1);
        }
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let text = std::fs::read(&path).unwrap_or_default();
        is_rust && String::from_utf8_lossy(&text).contains("value_translator")
    })
}
