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
    self, DeletePolicy, Head, Hook, HookEvent, HookExecution, KindOrder, ManifestError,
    ManifestObject, OutputLogPolicy, hook,
};
use crate::yaml;

const NOTES: &str = "NOTES.txt";

/// The result of a render.
#[derive(Clone, Debug)]
pub struct Rendered {
    manifest: String,
    documents: Vec<ManifestDocument>,
    hooks: Vec<Hook>,
    notes: String,
    crds: Vec<CrdFile>,
    capability_reads: CapabilityReads,
    lookups: Vec<LookupKey>,
}

/// A document of the manifest.
#[derive(Clone, Debug)]
struct ManifestDocument {
    path: Arc<str>,
    text: String,
    kind: String,
    /// Whether it contains only comments.
    is_blank: bool,
    /// The object, if it was changed after rendering.
    changed: Option<Value>,
}

impl ManifestDocument {
    fn object(&self) -> Value {
        // The head was parsed, so the rest parses too.
        let read = || yaml::parse(&self.text).unwrap_or_default();
        self.changed.clone().unwrap_or_else(read)
    }
}

impl Rendered {
    /// Returns the manifest exactly as Helm stores it: the documents in install order, each after
    /// `---` and `# Source: PATH`, without hooks.
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// Returns the objects of the manifest in install order; lists are flattened.
    pub fn objects(&self) -> Result<Vec<ManifestObject>, ManifestError> {
        let mut objects = Vec::with_capacity(self.documents.len());
        for (index, document) in self.documents.iter().enumerate() {
            manifest::push_object(
                document.object(),
                index + 1,
                Some(&document.path),
                &mut objects,
            )?;
        }
        Ok(objects)
    }

    /// Returns the hooks in Helm's order.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
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
    pub fn change_objects<E>(
        &mut self,
        mut change: impl FnMut(&mut Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut any = false;
        for document in &mut self.documents {
            let mut object = document.object();
            let is_list =
                document.kind.ends_with("List") && object.get("items").is_some_and(Value::is_array);
            let changed = if is_list {
                let items = object.get_mut("items");
                let mut changed = false;
                for item in items.and_then(Value::as_array_mut).into_iter().flatten() {
                    changed |= change(item)?;
                }
                changed
            } else {
                !object.is_null() && change(&mut object)?
            };
            if changed {
                // What was read from YAML can be written as YAML.
                document.text = go_yaml::to_string(&object).unwrap_or_default();
                document.is_blank = object.is_null();
                document.changed = Some(object);
                any = true;
            }
        }
        if any {
            self.manifest = joined(&self.documents);
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
        let mut budget = Budget::new(limits.clone());
        budget.set_stop(stop.clone());
        // The texts are copied into documents, and these into the manifest.
        let length: usize = output.files.iter().map(|(_, text)| text.len()).sum();
        budget.memory(length.saturating_mul(3))?;
        let _held = Held::new(length.saturating_mul(3));
        let mut files: BTreeMap<String, Vec<u8>> = output.files.into_iter().collect();
        let notes = take_notes(&mut files, chart, subchart_notes);
        let mut documents = Vec::new();
        let mut hooks = Vec::new();
        for (path, content) in files {
            let content = text(&path, &content)?;
            let path: Arc<str> = path.into();
            for text in manifest::split(&content) {
                stop.check()?;
                manifest::check_count(documents.len() + hooks.len())?;
                sort_document(&path, text, &budget, &mut documents, &mut hooks)?;
            }
        }
        KindOrder::Install.sort(&mut documents, |document| &document.kind);
        KindOrder::Install.sort(&mut hooks, |hook| &hook.kind);
        Ok(Self {
            manifest: joined(&documents),
            documents,
            hooks,
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
        Err(error) => Err(RenderError::Yaml {
            template: path.to_owned(),
            message: error.to_string(),
        }),
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
        for part in [
            "---\n# Source: ",
            &document.path,
            "\n",
            &document.text,
            "\n",
        ] {
            manifest.push_str(part);
        }
    }
    manifest
}

fn sort_document(
    path: &Arc<str>,
    text: &str,
    budget: &Budget,
    documents: &mut Vec<ManifestDocument>,
    hooks: &mut Vec<Hook>,
) -> Result<(), RenderError> {
    let failed = |message| match budget.check() {
        Err(BudgetError::Cancelled) => RenderError::Cancelled,
        _ => RenderError::Yaml {
            template: path.to_string(),
            message,
        },
    };
    let head = Head::read(text, budget).map_err(failed)?;
    let annotation = |name| head.annotations.get(name).map(String::as_str);
    let Some(events) = annotation(hook::ANNOTATION) else {
        documents.push(ManifestDocument {
            path: Arc::clone(path),
            text: text.to_owned(),
            kind: head.kind,
            is_blank: head.is_blank,
            changed: None,
        });
        return Ok(());
    };
    let names = |list: &str| -> Vec<String> {
        list.split(',')
            .map(|name| name.trim().to_lowercase())
            .collect()
    };
    let events = names(events)
        .iter()
        .map(|name| HookEvent::from_annotation(name))
        .collect();
    // A hook with an unknown event is neither run nor installed.
    let Some(events) = events else { return Ok(()) };
    let weight = annotation(hook::WEIGHT_ANNOTATION).and_then(|weight| weight.parse().ok());
    let policies = |name| annotation(name).map(names).unwrap_or_default();
    hooks.push(Hook {
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
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::File;

    fn rendered(files: &[(&str, &str)]) -> Result<Rendered, RenderError> {
        let chart = Chart::from_files([File::new(
            "Chart.yaml",
            "apiVersion: v2\nname: c\nversion: 0.1.0\n",
        )])
        .unwrap();
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        let output = Output {
            files: files.collect(),
            ..Output::default()
        };
        Rendered::assemble(output, &chart, false, &Limits::default(), &Stop::default())
    }

    #[test]
    fn documents_are_sorted_by_kind_and_keep_their_white_space() {
        let rendered = rendered(&[
            (
                "c/templates/b.yaml",
                "kind: Service\n\n---\n# only a comment\n---\nkind: Secret\n",
            ),
            ("c/templates/a.yaml", "\n\nkind: Zebra"),
            ("c/templates/empty.yaml", " \n"),
        ])
        .unwrap();
        assert_eq!(
            rendered.manifest(),
            "---\n# Source: c/templates/b.yaml\nkind: Secret\n\n\
             ---\n# Source: c/templates/b.yaml\nkind: Service\n\n\n\
             ---\n# Source: c/templates/b.yaml\n# only a comment\n\n\
             ---\n# Source: c/templates/a.yaml\nkind: Zebra\n"
        );
    }

    #[test]
    fn hooks_are_extracted_with_their_annotations() {
        let hook = "kind: Job\nmetadata:\n  name: 7\n  annotations:\n    helm.sh/hook: Pre-Install, \
                    test-success\n    helm.sh/hook-weight: -5\n    \
                    helm.sh/hook-delete-policy: hook-succeeded,x\n";
        let unknown = "kind: Job\nmetadata:\n  annotations:\n    helm.sh/hook: crd-install\n";
        let rendered = rendered(&[
            ("c/templates/h.yaml", hook),
            ("c/templates/u.yaml", unknown),
        ]);
        let rendered = rendered.unwrap();
        assert_eq!(rendered.manifest(), "");
        let [found] = rendered.hooks() else {
            panic!("{:?}", rendered.hooks())
        };
        assert_eq!((found.name.as_str(), found.weight), ("7", -5));
        assert_eq!(found.events, [HookEvent::PreInstall, HookEvent::Test]);
        assert_eq!(
            found.delete_policies,
            [
                DeletePolicy::HookSucceeded,
                DeletePolicy::Other("x".to_owned())
            ]
        );
        assert_eq!(found.manifest, hook);
    }

    #[test]
    fn notes_are_the_charts_own() {
        let rendered = rendered(&[
            ("c/templates/NOTES.txt", "hello"),
            ("c/charts/d/templates/NOTES.txt", "not me"),
        ]);
        assert_eq!(rendered.unwrap().notes(), "hello");
    }

    #[test]
    fn malformed_documents_are_errors_that_name_the_template() {
        for text in [
            "a: b: c",
            "- a",
            "text",
            "metadata: x",
            "kind: {}",
            "metadata: {name: []}",
        ] {
            let error = rendered(&[("c/templates/x.yaml", text)]).unwrap_err();
            let message = error.to_string();
            assert!(
                message.starts_with("YAML parse error on c/templates/x.yaml: "),
                "{message}"
            );
        }
        assert!(rendered(&[("c/templates/x.yaml", "Kind: 3\nmetadata: null")]).is_ok());
    }
}
