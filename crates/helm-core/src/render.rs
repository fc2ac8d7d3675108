//! `Rendered`: the output of a render, sorted into manifest, hooks and notes as in Helm
//! (`release/v1/util/manifest_sorter.go`, `action/action.go`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bounded::memory::Held;
use bounded::{Budget, BudgetError, Limits};
use go_template::Stop;
use serde_json::Value;

use crate::capabilities::CapabilityReads;
use crate::chart::{Chart, CrdFile};
use crate::engine::{LookupKey, Output, RenderError};
use crate::manifest::{
    self, DeletePolicy, DropCause, Dropped, Head, HeadError, Hook, HookEvent, HookExecution,
    KindOrder, ListProblem, ManifestError, ManifestObject, OutputLogPolicy, hook,
};
use crate::place;
use crate::yaml::{self, YamlError};

const NOTES: &str = "NOTES.txt";

/// The result of a render.
#[derive(Clone, Debug)]
pub struct Rendered {
    manifest: String,
    documents: Vec<ManifestDocument>,
    hooks: Vec<Hook>,
    hook_places: Vec<Place>,
    dropped: Vec<Dropped>,
    notes: String,
    crds: Vec<CrdFile>,
    capability_reads: CapabilityReads,
    lookups: Vec<LookupKey>,
}

/// Position of a document in the output of its template; both numbers are from 1.
#[derive(Clone, Copy, Debug)]
struct Place {
    document: usize,
    /// Line of its beginning.
    line: usize,
}

#[derive(Clone, Debug)]
struct ManifestDocument {
    path: Arc<str>,
    place: Place,
    text: String,
    kind: String,
    /// Whether it contains only comments.
    is_blank: bool,
}

impl ManifestDocument {
    /// Returns the object and the bytes that it holds. Although the head was parsed, it may be one that JSON cannot
    /// express: infinity is the text `+Inf` as a name in the head.
    fn object(&self, budget: &Budget) -> Result<(Value, usize), RenderError> {
        let read = read_within(&self.path, &self.text, budget)?;
        read.map_err(|error| {
            RenderError::Object(ManifestError::Yaml {
                document: self.place.document,
                template: Some(self.path.to_string()),
                error,
            })
        })
    }

    /// Adds the objects of the document.
    fn push(&self, object: Value, objects: &mut Vec<ManifestObject>) -> Result<(), ManifestError> {
        let known = objects.len();
        if let Some(problem) = manifest::problem_of_list(&object) {
            return Err(self.place.refused(&self.path, problem));
        }
        manifest::push_object(object, self.place.document, Some(&self.path), objects)
            .map_err(|error| self.place.locate(error, &self.kind))?;
        let mut new = objects.iter().skip(known);
        match new.find(|object| !is_named(object)) {
            Some(nameless) => Err(self.place.nameless(&self.path, &nameless.key().kind)),
            None => Ok(()),
        }
    }
}

/// The bytes that the result of a render holds.
struct Size<'b> {
    budget: &'b Budget,
    held: Held,
    bytes: usize,
}

impl<'b> Size<'b> {
    fn of(budget: &'b Budget) -> Self {
        Self {
            budget,
            held: Held::default(),
            bytes: 0,
        }
    }

    /// Counts what a template adds.
    fn add(&mut self, template: &str, bytes: usize) -> Result<(), RenderError> {
        self.held.add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        let fits = self.budget.memory(0);
        fits.map_err(|error| RenderError::from_sorting(template, error))
    }
}

/// Reads a document of a template, and returns it with the bytes that it holds.
fn read_within(
    template: &str,
    text: &str,
    budget: &Budget,
) -> Result<Result<(Value, usize), YamlError>, RenderError> {
    let read = yaml::parse_within(text, budget);
    match read.as_ref().err().and_then(YamlError::limit) {
        Some(limit @ BudgetError::Memory { .. }) => {
            Err(RenderError::from_sorting(template, limit.clone()))
        }
        _ => Ok(read),
    }
}

impl Rendered {
    /// Returns the manifest exactly as Helm stores it: the documents in install order, each after
    /// `---` and `# Source: PATH`, without hooks.
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// Returns template and text of each document of [`Rendered::manifest`].
    pub fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        let documents = self.documents.iter();
        documents.map(|document| (&*document.path, document.text.as_str()))
    }

    /// Returns the objects of the manifest in install order; lists are flattened.
    ///
    /// # Errors
    /// [`RenderError::Object`] if an object or a hook lacks what every object must have: `apiVersion`, `kind`, and a
    /// name or `generateName`.
    pub fn objects(&self) -> Result<Vec<ManifestObject>, RenderError> {
        Ok(self.objects_within(&Limits::NESTING_ONLY)?.0)
    }

    /// Returns the objects like [`Rendered::objects`], and the bytes that they, the hooks and the texts hold.
    ///
    /// # Errors
    /// Those of [`Rendered::objects`], and [`RenderError::Limit`] if the bytes are more than the limit of memory.
    pub fn objects_within(
        &self,
        limits: &Limits,
    ) -> Result<(Vec<ManifestObject>, usize), RenderError> {
        let budget = Budget::new(limits.clone().for_json());
        let mut size = Size::of(&budget);
        for document in &self.documents {
            // The manifest is a copy.
            size.add(&document.path, 2 * document.text.len())?;
        }
        let mut objects = Vec::with_capacity(self.documents.len());
        for document in &self.documents {
            let (object, held) = document.object(&budget)?;
            size.add(&document.path, held)?;
            document.push(object, &mut objects)?;
        }
        for (hook, place) in self.hooks.iter().zip(&self.hook_places) {
            size.add(&hook.path, hook.manifest.len())?;
            // A hook that is no object fails when it is to run, as in Helm.
            let Ok((object, held)) = read_within(&hook.path, &hook.manifest, &budget)? else {
                continue;
            };
            size.add(&hook.path, held)?;
            if hook.events.iter().any(is_of_deployment)
                && let Some(problem) = manifest::problem_of_list(&object)
            {
                return Err(place.refused(&hook.path, problem).into());
            }
            let mut of_hook = Vec::new();
            if manifest::push_object(object, place.document, None, &mut of_hook).is_err() {
                continue;
            }
            if let Some(nameless) = of_hook.iter().find(|object| !is_named(object)) {
                return Err(place.nameless(&hook.path, &nameless.key().kind).into());
            }
        }
        Ok((objects, size.bytes))
    }

    /// Returns the hooks in Helm's order.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Returns the documents that are neither in the manifest nor among the hooks.
    pub fn dropped(&self) -> &[Dropped] {
        &self.dropped
    }

    /// Returns the rendered `NOTES.txt`.
    pub fn notes(&self) -> &str {
        &self.notes
    }

    /// Returns the files of `crds/` of the chart and its enabled dependencies.
    pub fn crds(&self) -> &[CrdFile] {
        &self.crds
    }

    /// Returns the capabilities that the templates read.
    pub fn capability_reads(&self) -> &CapabilityReads {
        &self.capability_reads
    }

    /// Returns the objects that the templates looked up.
    pub fn lookups(&self) -> &[LookupKey] {
        &self.lookups
    }

    /// Modifies objects of the manifest like a post-renderer; `change` returns whether it changed
    /// the object. Unchanged documents keep their bytes.
    ///
    /// # Errors
    /// If a document is not a Kubernetes object, and those of `change`.
    pub fn change_objects<E>(
        &mut self,
        mut change: impl FnMut(&mut Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut any = false;
        for document in &mut self.documents {
            // `objects` reports it.
            let Ok(mut object) = yaml::parse(&document.text) else {
                continue;
            };
            let changed = change_each(&mut object, &mut change)?;
            if changed {
                // What was read from YAML can be written as YAML.
                document.text = go_yaml::to_string(&object).unwrap_or_default();
                document.is_blank = object.is_null();
                any = true;
            }
        }
        if any {
            self.manifest = joined(&self.documents);
        }
        Ok(())
    }

    /// Modifies the objects of hooks; `change` returns whether it changed the object. What makes them hooks must stay as it
    /// is.
    ///
    /// # Errors
    /// Errors of `change`.
    pub fn change_hooks<E>(
        &mut self,
        mut change: impl FnMut(&mut Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        for hook in &mut self.hooks {
            // Whoever runs it reports it.
            let Ok(mut object) = yaml::parse(&hook.manifest) else {
                continue;
            };
            if change_each(&mut object, &mut change)? {
                hook.manifest = go_yaml::to_string(&object).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Returns whether the manifest contains no objects.
    pub fn is_empty(&self) -> bool {
        self.documents.iter().all(|document| document.is_blank)
    }

    /// Sorts rendered files into notes, hooks and manifest.
    pub(crate) fn assemble(
        output: Output,
        chart: &Chart,
        subchart_notes: bool,
        limits: &Limits,
        stop: &Stop,
    ) -> Result<Self, RenderError> {
        // The render's clock has started.
        let limits = Limits {
            time: None,
            ..limits.clone().for_json()
        };
        let mut budget = Budget::new(limits);
        budget.set_stop(stop.clone());
        // The texts are copied into documents, and these into the manifest.
        let length: usize = output.files.iter().map(|(_, text)| text.len()).sum();
        budget.memory(length.saturating_mul(3)).map_err(|error| {
            let longest = output.files.iter().max_by_key(|(_, text)| text.len());
            RenderError::from_sorting(longest.map_or("", |(path, _)| path), error)
        })?;
        let _held = Held::new(length.saturating_mul(3));
        let mut files: BTreeMap<String, Vec<u8>> = output.files.into_iter().collect();
        let notes = take_notes(&mut files, chart, subchart_notes);
        let mut documents = Vec::new();
        let mut hooks = Vec::new();
        let mut dropped = Vec::new();
        for (path, content) in files {
            let content = text(&path, &content)?;
            let path: Arc<str> = path.into();
            let mut place = Place {
                document: 0,
                line: 1,
            };
            let mut counted = 0;
            for text in manifest::split(&content) {
                // Reading 64 bytes takes about as long as a step.
                budget
                    .step(1 + text.len() as u64 / 64)
                    .map_err(|error| RenderError::from_sorting(&path, error))?;
                manifest::check_count(documents.len() + hooks.len())?;
                let start = text.as_ptr().addr() - content.as_ptr().addr();
                place.document += 1;
                place.line += lines(&content, counted, start);
                counted = start;
                let lost = sort_document(&path, place, text, &budget, &mut documents, &mut hooks)?;
                dropped.extend(lost);
                dropped.extend(manifest::after_end(text).map(|rest| Dropped {
                    template: path.to_string(),
                    kind: manifest::kind_in(rest),
                    cause: DropCause::AfterEnd,
                }));
            }
        }
        KindOrder::Install.sort(&mut documents, |document| &document.kind);
        KindOrder::Install.sort(&mut hooks, |(hook, _)| &hook.kind);
        let (hooks, hook_places) = hooks.into_iter().unzip();
        Ok(Self {
            manifest: joined(&documents),
            documents,
            hooks,
            hook_places,
            dropped,
            notes,
            crds: chart.crds(),
            capability_reads: output.capability_reads,
            lookups: output.lookups,
        })
    }
}

/// Checks that a file is UTF-8, which YAML, and therefore every object, must be.
fn text<'c>(path: &str, content: &'c [u8]) -> Result<Cow<'c, str>, RenderError> {
    match std::str::from_utf8(content) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(error) => {
            let valid = content.get(..error.valid_up_to()).unwrap_or_default();
            let valid = String::from_utf8_lossy(valid);
            let place = place::Place::of_utf8(path, content, error);
            Err(RenderError::Yaml {
                template: path.to_owned(),
                document: manifest::split(&valid).count().max(1),
                line: place.line(),
                column: place.column(),
                message: error.to_string(),
                excerpt: place.excerpt().into(),
                limit: None,
            })
        }
    }
}

/// Counts the line breaks between two positions.
fn lines(text: &str, from: usize, to: usize) -> usize {
    let part = text.as_bytes().get(from..to).unwrap_or_default();
    memchr::memchr_iter(b'\n', part).count()
}

/// Changes an object, or each item of a list and of lists in it. Returns whether anything was changed.
fn change_each<E>(
    object: &mut Value,
    change: &mut impl FnMut(&mut Value) -> Result<bool, E>,
) -> Result<bool, E> {
    if object.is_null() {
        return Ok(false);
    }
    let Some(items) = manifest::list_items(object) else {
        return change(object);
    };
    let mut changed = false;
    for item in items {
        changed |= change_each(item, change)?;
    }
    Ok(changed)
}

/// Returns whether a hook of this event runs in an install, an upgrade or a rollback.
fn is_of_deployment(event: &HookEvent) -> bool {
    match event {
        HookEvent::PreInstall
        | HookEvent::PostInstall
        | HookEvent::PreUpgrade
        | HookEvent::PostUpgrade
        | HookEvent::PreRollback
        | HookEvent::PostRollback => true,
        HookEvent::PreDelete | HookEvent::PostDelete | HookEvent::Test | HookEvent::Other(_) => {
            false
        }
    }
}

fn is_named(object: &ManifestObject) -> bool {
    let generated = object.object().pointer("/metadata/generateName");
    let is_generated = generated
        .and_then(Value::as_str)
        .is_some_and(|prefix| !prefix.is_empty());
    !object.key().name.is_empty() || is_generated
}

impl Place {
    fn nameless(self, path: &str, kind: &str) -> ManifestError {
        self.incomplete(path, kind, "metadata.name")
    }

    fn incomplete(self, path: &str, kind: &str, missing: &'static str) -> ManifestError {
        ManifestError::Rendered {
            kind: if kind.is_empty() { "the object" } else { kind }.to_owned(),
            template: path.to_owned(),
            document: self.document,
            line: self.line,
            missing,
        }
    }

    fn refused(self, path: &str, problem: ListProblem) -> ManifestError {
        ManifestError::RenderedList {
            template: path.to_owned(),
            document: self.document,
            line: self.line,
            problem,
        }
    }

    /// Adds the line to an error about this document.
    fn locate(self, error: ManifestError, kind: &str) -> ManifestError {
        match error {
            ManifestError::NoObject {
                template, missing, ..
            } => self.incomplete(&template.unwrap_or_default(), kind, missing),
            error => error,
        }
    }
}

/// Removes the notes from the files and returns the chart's own; those of its dependencies are
/// included on request.
fn take_notes(files: &mut BTreeMap<String, Vec<u8>>, chart: &Chart, subcharts: bool) -> String {
    let own = format!("{}/templates/{NOTES}", chart.name());
    let mut notes = String::new();
    files.retain(|path, content| {
        if !path.ends_with(NOTES) {
            return true;
        }
        if subcharts || *path == own {
            if !notes.is_empty() {
                notes.push('\n');
            }
            notes.push_str(&String::from_utf8_lossy(content));
        }
        false
    });
    notes
}

fn joined(documents: &[ManifestDocument]) -> String {
    let length = documents
        .iter()
        .map(|document| document.text.len() + document.path.len() + 16);
    let mut manifest = String::with_capacity(length.sum());
    for document in documents {
        let ManifestDocument { path, text, .. } = document;
        for part in ["---\n# Source: ", path, "\n", text, "\n"] {
            manifest.push_str(part);
        }
    }
    manifest
}

/// Adds a document to the manifest or to the hooks. Returns it if it goes nowhere: a hook with an event that does
/// not exist.
fn sort_document(
    path: &Arc<str>,
    place: Place,
    text: &str,
    budget: &Budget,
    documents: &mut Vec<ManifestDocument>,
    hooks: &mut Vec<(Hook, Place)>,
) -> Result<Option<Dropped>, RenderError> {
    let failed = |error: HeadError| {
        if budget.check() == Err(BudgetError::Cancelled) {
            return RenderError::Cancelled;
        }
        let line = place.line + error.line - 1;
        let source = text.lines().nth(error.line - 1).unwrap_or_default();
        RenderError::Yaml {
            template: path.to_string(),
            document: place.document,
            line,
            column: error.column,
            message: error.message,
            excerpt: place::excerpt(source, line, error.column).into(),
            limit: error.limit,
        }
    };
    let head = Head::read(text, budget).map_err(failed)?;
    let annotation = |name| head.annotations.get(name).map(String::as_str);
    let Some(events) = annotation(hook::ANNOTATION) else {
        documents.push(ManifestDocument {
            path: Arc::clone(path),
            place,
            text: text.to_owned(),
            kind: head.kind,
            is_blank: head.is_blank,
        });
        return Ok(None);
    };
    let names = |list: &str| -> Vec<String> {
        list.split(',')
            .map(|name| name.trim().to_lowercase())
            .collect()
    };
    let known = |name: String| HookEvent::from_annotation(&name).ok_or(name);
    // A hook with an unknown event is neither run nor installed.
    let events = match names(events).into_iter().map(known).collect() {
        Ok(events) => events,
        Err(event) => {
            return Ok(Some(Dropped {
                template: path.to_string(),
                kind: head.kind,
                cause: DropCause::UnknownEvent(event),
            }));
        }
    };
    let weight = annotation(hook::WEIGHT_ANNOTATION).and_then(|weight| weight.parse().ok());
    let policies = |name| annotation(name).map(names).unwrap_or_default();
    let hook = Hook {
        name: head.name,
        path: path.to_string(),
        manifest: text.to_owned(),
        events,
        last_run: HookExecution::default(),
        event_runs: Vec::new(),
        weight: weight.unwrap_or(0),
        delete_policies: policies(hook::DELETE_POLICY_ANNOTATION)
            .into_iter()
            .map(DeletePolicy::from)
            .collect(),
        output_log_policies: policies(hook::OUTPUT_LOG_POLICY_ANNOTATION)
            .into_iter()
            .map(OutputLogPolicy::from)
            .collect(),
        kind: head.kind,
    };
    hooks.push((hook, place));
    Ok(None)
}

#[cfg(test)]
mod tests;
