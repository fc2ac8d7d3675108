//! `Rendered`: what a render gives, sorted as Helm sorts it.

use std::collections::BTreeMap;

use crate::capabilities::CapabilityReads;
use crate::chart::{Chart, CrdFile};
use crate::engine::{LookupKey, RenderError};
use crate::manifest::{self, Hook, KindOrder, ManifestError, ManifestObject};

/// The outcome of a render.
#[derive(Clone, Debug)]
pub struct Rendered {
    manifest: String,
    documents: Vec<Document>,
    hooks: Vec<Hook>,
    notes: String,
    crds: Vec<CrdFile>,
    capability_reads: CapabilityReads,
    lookups: Vec<LookupKey>,
}

/// A document of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Document {
    path: String,
    text: String,
    kind: String,
}

impl Rendered {
    /// The manifest exactly as Helm stores it: the documents in install order, each after `---`
    /// and `# Source: PATH`, without hooks.
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// The objects of the manifest in install order; lists are flattened.
    pub fn objects(&self) -> Result<Vec<ManifestObject>, ManifestError> {
        manifest::parse_objects(&self.manifest)
    }

    /// The hooks in Helm's order.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// The rendered `NOTES.txt`.
    pub fn notes(&self) -> &str {
        &self.notes
    }

    /// The files of `crds/`, of the chart and of the dependencies that are switched on.
    pub fn crds(&self) -> &[CrdFile] {
        &self.crds
    }

    /// What the templates read of the capabilities.
    pub fn capability_reads(&self) -> &CapabilityReads {
        &self.capability_reads
    }

    /// What the templates looked up.
    pub fn lookups(&self) -> &[LookupKey] {
        &self.lookups
    }

    /// Whether the manifest holds no object.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Sorts rendered files into manifest and hooks.
    pub(crate) fn assemble(
        files: BTreeMap<String, String>,
        chart: &Chart,
    ) -> Result<Self, RenderError> {
        let mut documents = Vec::new();
        for (path, content) in files {
            for text in manifest::split(&content) {
                let object = crate::yaml::parse(text).map_err(|error| RenderError::Yaml {
                    template: path.clone(),
                    message: error.to_string(),
                })?;
                let kind = object
                    .get("kind")
                    .and_then(|kind| kind.as_str())
                    .unwrap_or_default();
                documents.push(Document {
                    path: path.clone(),
                    text: text.to_owned(),
                    kind: kind.to_owned(),
                });
            }
        }
        KindOrder::Install.sort(&mut documents, |document| &document.kind);
        let mut manifest = String::new();
        for document in &documents {
            manifest.push_str("---\n# Source: ");
            manifest.push_str(&document.path);
            manifest.push('\n');
            manifest.push_str(&document.text);
            manifest.push('\n');
        }
        Ok(Self {
            manifest,
            documents,
            hooks: Vec::new(),
            notes: String::new(),
            crds: chart.crds(),
            capability_reads: CapabilityReads::default(),
            lookups: Vec::new(),
        })
    }
}
