//! Judges the spec of a custom resource: computes its values, checks them, and renders its chart. No I/O.

use helm_core::engine::{BudgetError, Cancel, ReleaseInfo, RenderInput, RenderLimits, Snapshot};
use helm_core::manifest::ManifestObject;
use helm_core::{Capabilities, RenderError};
use helm_release::engine::DesiredError;
use helm_release::preview::{DigestInputs, render_once};

use super::super::offline::{PreviewError, PreviewInput, prepare};
use super::super::references::references_of;
use crate::values::Contents;
use crate::watches::AdmissionMode;

/// Result of a check.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing is wrong with the values.
    Valid,
    /// Nothing is wrong with the values or the chart.
    Rendered(Release),
    /// The release would fail.
    Wrong(PreviewError),
    /// The check would need more than there is, for this reason.
    Unknown(String),
}

/// Release that the operator would deploy.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) objects: Vec<ManifestObject>,
    /// Digest of the inputs, if there is a revision to compare with.
    pub(super) digest: Option<String>,
}

/// Inputs of a check.
pub(super) struct Judged<'a> {
    pub(super) mode: AdmissionMode,
    pub(super) preview: PreviewInput<'a>,
    pub(super) capabilities: &'a Capabilities,
    pub(super) limits: RenderLimits,
    pub(super) cancel: Cancel,
}

impl Judged<'_> {
    pub(super) fn verdict(self) -> Verdict {
        self.judge().unwrap_or_else(Verdict::Wrong)
    }

    fn judge(self) -> Result<Verdict, PreviewError> {
        let input = &self.preview;
        let references = references_of(input.watch, input.object).map_err(DesiredError::from)?;
        if let Some((_, reference)) = references.first() {
            return Ok(Verdict::Unknown(format!(
                "its values come from {reference}"
            )));
        }
        let prepared = prepare(input, &Contents::new())?;
        if self.mode == AdmissionMode::Schema {
            return Ok(Verdict::Valid);
        }
        let (name, namespace) = (prepared.name(), prepared.namespace());
        let mut release = ReleaseInfo::new(name, namespace);
        if let Some(latest) = input.latest {
            release = release.upgrade_to(latest.revision.next());
        }
        // What a template looks up is not known, and ends the render.
        let mut render = RenderInput::new(release, prepared.values())
            .capabilities(self.capabilities)
            .lookup(Snapshot::default())
            .cancel(self.cancel.clone());
        // As in the reconciler.
        render.incomplete = true;
        render.weak_secrets = true;
        render.limits = self.limits.clone();
        let patches = &input.watch.policy.patches;
        let own = prepared.patches();
        let rendered = match render_once(input.chart.compiled(), &render, patches, own) {
            Ok(rendered) => rendered,
            Err(DesiredError::Render(error) | DesiredError::Limit(error, _)) => {
                return self.failed(*error);
            }
            Err(error) => return Err(error.into()),
        };
        let inputs = DigestInputs {
            coalesced: prepared.values(),
            name,
            namespace,
            patches,
            own_patches: &own.patches,
            looked_up: None,
            reads: rendered.capability_reads(),
        };
        Ok(Verdict::Rendered(Release {
            digest: input.latest.map(|_| inputs.digest().to_string()),
            objects: match rendered.objects_within(&self.limits) {
                Ok((objects, _)) => objects,
                Err(error) => return self.failed(error),
            },
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }))
    }

    /// Returns what an error of a render says about the spec.
    fn failed(&self, error: RenderError) -> Result<Verdict, PreviewError> {
        let own = self.preview.watch.policy.limits.of_render().memory;
        let why = match &error {
            RenderError::NeedsLookup(keys) => match keys.first() {
                Some(key) => format!("the chart looks up {key} in the cluster"),
                None => "the chart looks up objects of the cluster".to_owned(),
            },
            RenderError::TooManyLookups => "the chart looks up objects of the cluster".to_owned(),
            RenderError::Cancelled => "the check was cancelled".to_owned(),
            error if matches!(error.limit(), Some(BudgetError::Memory { limit }) if *limit < own) => {
                "the render needs more memory than a check gets".to_owned()
            }
            _ => return Err(PreviewError::Render(error)),
        };
        Ok(Verdict::Unknown(why))
    }
}
