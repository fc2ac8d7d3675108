//! Computes the desired state: the inputs of the release with their digest, and the content of its next
//! revision.

use std::sync::Arc;

use helm_core::chart::File;
use helm_core::manifest::diff::same_meaning;
use helm_core::manifest::{ManifestObject, ObjectKey, parse_objects};
use helm_core::release::{Release as Record, Revision, Status as ReleaseStatus, StoredFile};
use helm_core::{RenderError, Rendered};
use serde_json::Value;

use super::access::Access;
use super::desired_error::DesiredError;
use super::digest::DigestInputs;
use super::inputs::{CachedInputs, Inputs, Sources};
use super::memory::KnownRelease;
use super::message::Redactor;
use super::owner::OwnValues;
use super::plan;
use super::render::{RenderTarget, render};
use super::setup::{Setup, timeout};
use super::subject::Subject;
use crate::event::{Notices, corrupt_record_event};
use crate::policy::{DriftMode, RemediationStrategy};
use crate::release::RecordMeta;

/// Desired state of a release.
pub(super) struct Desired {
    pub(super) inputs: Inputs,
    /// Objects rendered from these inputs, if they were rendered in this reconcile.
    pub(super) objects: Option<Vec<ManifestObject>>,
    /// First custom resource of `dependsOn` that is not ready.
    pub(super) dependency: Option<String>,
}

/// Returns the facts that the plan depends on. `content` is that of the next revision if it was rendered.
pub(super) fn facts(
    setup: &Setup,
    wanted: &Wanted,
    content: Option<plan::Content<Prepared>>,
) -> plan::DesiredFacts<Prepared> {
    let (install, upgrade) = (&setup.policy.install, &setup.policy.upgrade);
    plan::DesiredFacts {
        digest: (wanted.as_ref().ok()).map(|desired| desired.inputs.digest.to_string()),
        awaits_inputs: (wanted.as_ref().err()).is_some_and(DesiredError::is_transient),
        content,
        repair: setup.policy.drift_detection.mode == DriftMode::Repair,
        install_retries: install.remediation.retries,
        clean_up: install.remediation.strategy == Some(RemediationStrategy::Uninstall),
        upgrade_retries: upgrade.remediation.retries,
        rollback: upgrade
            .remediation
            .strategy
            .is_none_or(|strategy| strategy == RemediationStrategy::Rollback),
        reinstall: upgrade.remediation.strategy == Some(RemediationStrategy::Uninstall),
        timeout: timeout(upgrade.timeout),
        test: setup.policy.test.is_some(),
    }
}

/// Computes the desired state. Inputs are recomputed only if one of their sources has changed.
pub(super) async fn desired(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    memory: &mut KnownRelease,
    notices: &Notices,
) -> Result<Desired, DesiredError> {
    let (inputs, objects) = inputs(setup, access, subject, memory, notices).await?;
    Ok(Desired {
        dependency: subject.owner.dependency(&subject.target).await?,
        inputs,
        objects,
    })
}

/// The desired state, or why it cannot be computed.
pub(super) type Wanted = Result<Arc<Desired>, DesiredError>;

/// Inputs and content of a new revision.
#[derive(Clone)]
pub struct Prepared {
    pub(super) desired: Arc<Desired>,
    pub(super) content: Arc<Content>,
}

/// Content of a new revision.
pub(super) enum Content {
    /// Chart rendered for this revision.
    Rendered(Box<Rendered>),
    /// Existing record with the same inputs, reused to keep its random values.
    Recorded(Box<Record>),
}

/// The next revision of a release.
pub(super) struct NextRevision<'a> {
    pub(super) desired: &'a Arc<Desired>,
    /// Records of the release, oldest first.
    pub(super) history: &'a [RecordMeta],
    pub(super) upgrade: bool,
}

impl NextRevision<'_> {
    /// Returns its content, compared with that of the deployed one.
    pub(super) async fn content(
        &self,
        setup: &Arc<Setup>,
        access: &Access,
        subject: &Subject,
        redactor: &mut Redactor,
        notices: &Notices,
    ) -> Result<plan::Content<Prepared>, DesiredError> {
        let Self {
            desired, history, ..
        } = *self;
        let inputs = &desired.inputs;
        let next = |content| Prepared {
            desired: Arc::clone(desired),
            content: Arc::new(content),
        };
        if let Some(record) = recorded(access, subject, inputs, history, notices).await? {
            return Ok(plan::Content::Due(next(Content::Recorded(record))));
        }
        let target = RenderTarget {
            revision: history
                .last()
                .map_or(Revision::FIRST, |latest| latest.revision.next()),
            upgrade: self.upgrade,
        };
        let render = render(setup, access, subject, &inputs.sources, target, redactor).await?;
        let objects = render.objects.map_err(RenderError::Object)?;
        let mut deployed = history.iter().rev();
        let deployed = deployed.find(|meta| meta.status == ReleaseStatus::Deployed);
        let compared = match deployed {
            Some(deployed) => compare(setup, access, subject, deployed, inputs, &objects).await?,
            None => plan::Content::Due(()),
        };
        let rendered = Content::Rendered(Box::new(render.rendered));
        Ok(compared.with(|| next(rendered)))
    }
}

/// Compares rendered objects with those of the deployed revision, as far as that matters.
async fn compare(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    deployed: &RecordMeta,
    inputs: &Inputs,
    rendered: &[ManifestObject],
) -> Result<plan::Content, DesiredError> {
    let is_empty = rendered.is_empty() && !setup.policy.allow_empty;
    // An unproven revision is replaced, so that drift can be repaired.
    let may_be_equal = setup.policy.lookup_is_input && deployed.proof.is_some();
    if !is_empty && !may_be_equal {
        return Ok(plan::Content::Due(()));
    }
    let record = access.store.load(deployed).await;
    let record = record.map_err(DesiredError::Record)?;
    subject.target.share.read(record.manifest.len()).await?;
    let objects = parse_objects(&record.manifest).unwrap_or_default();
    if is_empty && !objects.is_empty() {
        return Ok(plan::Content::Empty);
    }
    if !may_be_equal || !same_inputs(setup, inputs, &record) {
        return Ok(plan::Content::Due(()));
    }
    let both = objects.iter().chain(rendered);
    let both: Vec<_> = both.map(|object| (object.key(), object.object())).collect();
    let scopes = subject.target.cluster.scopes(&both).await?;
    let is_cluster_scoped = |key: &ObjectKey| scopes.is_cluster_scoped(key);
    let is_same = same_meaning(
        &objects,
        rendered,
        &subject.target.namespace,
        &is_cluster_scoped,
    );
    Ok(if is_same {
        plan::Content::Unchanged(())
    } else {
        plan::Content::Due(())
    })
}

/// Returns the inputs and, if they were recomputed, the rendered objects.
pub(super) async fn inputs(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    memory: &mut KnownRelease,
    notices: &Notices,
) -> Result<(Inputs, Option<Vec<ManifestObject>>), DesiredError> {
    let state = subject.owner.state();
    if let Some(known) = &memory.cached_inputs
        && known.generation == subject.generation
        && state.is_some()
        && known.state == state
        && subject.target.is_current(&known.read)
        && known
            .epoch
            .is_none_or(|epoch| epoch == access.cluster.capabilities_epoch())
    {
        // Others may have failed since.
        memory.rendered = Some(Arc::clone(&known.inputs.sources.coalesced));
        return Ok((memory.with_known_equal(known.inputs.clone()), None));
    }
    let epoch = access.cluster.capabilities_epoch();
    let (owner, target) = (&subject.owner, &subject.target);
    let computed = owner.values(access, target, &mut memory.redactor, notices);
    let OwnValues {
        values,
        patches,
        note,
        kept,
        mut read,
    } = computed.await?;
    let held = Arc::clone(setup);
    let coalesce = move |_| held.chart.coalesce(values);
    let coalesced = Arc::new(access.pool.run(coalesce).await??);
    memory.rendered = Some(Arc::clone(&coalesced));
    // What the templates read from the cluster is known only after rendering.
    let redactor = &mut memory.redactor;
    let first = RenderTarget::FIRST;
    let sources = Sources {
        coalesced,
        patches: Arc::new(patches),
    };
    let render = render(setup, access, subject, &sources, first, redactor).await?;
    read.extend(render.read);
    let reads_capabilities = !render.rendered.capability_reads().is_empty();
    if reads_capabilities {
        access.interests.add_capabilities(&subject.target.key());
    }
    let reads_kinds = reads_capabilities || render.missing_kind;
    let digest = DigestInputs {
        coalesced: &sources.coalesced,
        name: subject.target.name.as_str(),
        namespace: &subject.target.namespace,
        patches: &setup.policy.patches,
        own_patches: &sources.patches.patches,
        looked_up: render.looked_up,
        reads: render.rendered.capability_reads(),
    }
    .digest();
    let objects = render.objects.ok();
    let inputs = Inputs {
        digest,
        sources,
        note,
        kept,
    };
    memory.cached_inputs = Some(CachedInputs {
        generation: subject.generation,
        state,
        read,
        epoch: reads_kinds.then_some(epoch),
        inputs: inputs.clone(),
    });
    Ok((memory.with_known_equal(inputs), objects))
}

/// Returns the newest record with the same inputs, whose content is that of a new revision, unless it was
/// superseded or a new revision is forced.
async fn recorded(
    access: &Access,
    subject: &Subject,
    inputs: &Inputs,
    history: &[RecordMeta],
    notices: &Notices,
) -> Result<Option<Box<Record>>, DesiredError> {
    let same = history
        .iter()
        .rev()
        .find(|meta| meta.digest.as_ref() == Some(&inputs.digest))
        .filter(|meta| meta.status != ReleaseStatus::Superseded && !subject.is_forced(history));
    let Some(meta) = same else {
        return Ok(None);
    };
    match access.store.load_with_proof(meta).await {
        Ok(content) if content.proven => Ok(Some(Box::new(content.release))),
        Ok(_) => Ok(None),
        Err(error) if error.is_corrupt() => {
            notices.add(corrupt_record_event(&error));
            Ok(None)
        }
        Err(error) => Err(DesiredError::Record(error)),
    }
}

/// Renders the objects of these inputs. Returns `None` if rendering fails.
pub(super) async fn objects_of(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    inputs: &Inputs,
) -> Option<Vec<ManifestObject>> {
    let render = render(
        setup,
        access,
        subject,
        &inputs.sources,
        RenderTarget::FIRST,
        &mut Redactor::default(),
    )
    .await;
    render.ok()?.objects.ok()
}

/// Returns whether a record has the desired chart and values. Ignores its manifest, which may
/// contain random values.
pub(super) fn same_inputs(setup: &Setup, inputs: &Inputs, record: &Record) -> bool {
    let own = setup.chart.chart();
    let Some(theirs) = &record.chart else {
        return false;
    };
    let same_files = |theirs: &Option<Vec<StoredFile>>, own: &[File]| {
        let theirs = theirs.as_deref().unwrap_or_default();
        theirs.len() == own.len()
            && own.iter().all(|file| {
                let same = |stored: &StoredFile| {
                    stored.name == file.name() && *stored.data == *file.data()
                };
                theirs.iter().any(same)
            })
    };
    let same_chart = theirs.metadata.as_ref() == Some(own.metadata())
        && theirs.schema.as_deref() == own.schema().map(File::data)
        && same_files(&theirs.templates, own.templates())
        && same_files(&theirs.files, own.files());
    // Helm records the default values of a chart with dependencies after importing theirs.
    let defaults = Value::from(theirs.values.clone().unwrap_or_default());
    let same_defaults = [own.values(), inputs.sources.coalesced.chart().values()]
        .into_iter()
        .any(|values| same_values(&defaults, &Value::from(values.clone())));
    let same_config = || match setup.chart.coalesce(record.config.clone()) {
        Ok(coalesced) => same_values(
            &Value::from(coalesced.values().clone()),
            &Value::from(inputs.sources.coalesced.values().clone()),
        ),
        Err(_) => false,
    };
    same_chart && same_defaults && same_config()
}

/// Returns whether values are equal, comparing numbers by value: a record stores 1.0 as 1.
fn same_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_values(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| same_values(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::same_values;

    #[test]
    fn numbers_in_records_are_compared_by_value() {
        let given = json!({"a": 1.0, "b": [{"c": 2}], "d": null});
        for (recorded, same) in [
            (json!({"a": 1, "b": [{"c": 2.0}], "d": null}), true),
            (json!({"a": 1, "b": [{"c": 2}]}), false),
            (json!({"a": 1, "b": [{"c": 3}], "d": null}), false),
            (json!({"a": 1, "b": [], "d": null}), false),
            (json!({"a": "1", "b": [{"c": 2}], "d": null}), false),
        ] {
            assert_eq!(same_values(&recorded, &given), same, "{recorded}");
        }
    }
}
