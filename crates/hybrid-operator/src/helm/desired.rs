//! What should be: the inputs of the release with their digest, and, where a new revision would
//! begin, its content.

use std::sync::Arc;

use helm_core::chart::File;
use helm_core::manifest::diff::same_meaning;
use helm_core::manifest::{ManifestObject, first_duplicate, parse_objects};
use helm_core::release::{Release as Record, Revision, Status as ReleaseStatus, StoredFile};
use helm_core::values::CoalesceError;
use helm_core::{Coalesced, Digest, RenderError, Rendered};
use serde_json::Value;

use super::access::Access;
use super::digest::{Inputs, canonical};
use super::events::{Notice, Notices};
use super::extend::ExtensionError;
use super::memory::{Computed, Memory};
use super::observe::Observation;
use super::plan::{self, Step};
use super::references::{self, LastValues};
use super::render::{LOOKUP_ROUNDS, Target, render};
use super::setup::{Setup, timeout};
use super::subject::Subject;
use crate::cluster::DiscoveryError;
use crate::cluster::read::ReadError;
use crate::release::{InputsDigest, RecordMeta, StoreError};
use crate::render_pool::RenderPoolError;
use crate::values::{self, ValuesError};
use crate::watches::{DriftMode, RemediationStrategy};

/// Why it is not known what should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum DesiredError {
    /// The values cannot be computed.
    #[error("cannot compute the values")]
    Values(#[from] ValuesError),
    /// The values cannot be translated.
    #[error("the value translator of this operator failed")]
    Translate(#[source] ExtensionError),
    /// The values do not fit the chart.
    #[error(transparent)]
    Coalesce(#[from] CoalesceError),
    /// The cluster does not say what it is.
    #[error(transparent)]
    Capabilities(#[from] DiscoveryError),
    /// The chart does not render.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The chart was not rendered.
    #[error("cannot render the chart")]
    Pool(#[from] RenderPoolError),
    /// The custom resource was deleted while its chart was rendered.
    #[error("the custom resource was deleted while its chart was rendered")]
    Deleted,
    /// A record that is needed cannot be read.
    #[error("cannot read a release record")]
    Record(#[source] StoreError),
    /// A template looks something up that cannot be read.
    #[error("a template looks up {key}")]
    Lookup {
        /// What it looks up.
        key: String,
        /// Why it cannot be read.
        #[source]
        source: ReadError,
    },
    /// What an optional reference held last cannot be read.
    #[error("cannot read what valuesFrom gave last")]
    Kept(#[from] StoreError),
    /// What `valuesFrom` refers to cannot be read.
    #[error("valuesFrom refers to {key}")]
    Reference {
        /// What it refers to.
        key: String,
        /// Why it cannot be read.
        #[source]
        source: ReadError,
    },
    /// A patch of `watches.yaml` cannot be applied.
    #[error(transparent)]
    Patch(#[from] super::patches::PatchError),
    /// An object is rendered twice.
    #[error("{object} is rendered twice, by {first} and by {second}")]
    Duplicate {
        /// The object.
        object: String,
        /// A template.
        first: String,
        /// Another, or the same.
        second: String,
    },
    /// Each render looks up something else.
    #[error("the templates look up new objects in each of {LOOKUP_ROUNDS} renders")]
    TooManyLookups,
}

impl DesiredError {
    /// The reason of the condition `Irreconcilable`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Values(_)
            | Self::Translate(_)
            | Self::Coalesce(_)
            | Self::Kept(_)
            | Self::Reference { .. } => "ErrorGettingValues",
            Self::Capabilities(_) => "ErrorGettingClient",
            Self::Record(_) => "ErrorGettingReleaseState",
            Self::Render(_)
            | Self::Pool(_)
            | Self::Deleted
            | Self::Patch(_)
            | Self::Lookup { .. }
            | Self::Duplicate { .. }
            | Self::TooManyLookups => "ReconcileError",
        }
    }

    /// Whether the chart failed, and not what it is given.
    pub(super) fn is_render(&self) -> bool {
        self.reason() == "ReconcileError"
    }
}

/// The inputs of a release.
#[derive(Clone)]
pub(super) struct DesiredInputs {
    pub(super) digest: InputsDigest,
    pub(super) coalesced: Arc<Coalesced>,
    /// Paths that `overrideValues` sets.
    pub(super) overridden: Vec<String>,
    /// What optional references hold, for the time after; `None` where there are none.
    pub(super) kept: Option<LastValues>,
}

/// The content of a new revision.
pub(super) enum Content {
    /// The chart, rendered for this revision.
    Rendered(Box<Rendered>),
    /// A record with the same inputs: what it holds was rendered once, with its random values.
    Recorded(Box<Record>),
}

/// What should be.
pub(super) struct Desired {
    pub(super) inputs: DesiredInputs,
    /// The objects that these inputs have, where they were rendered just now.
    pub(super) objects: Option<Vec<ManifestObject>>,
    /// The custom resource of `dependsOn` that is not ready.
    pub(super) dependency: Option<String>,
    /// What a new revision would hold, where one would begin.
    pub(super) content: Option<Content>,
    empty: bool,
    unchanged: bool,
}

impl Desired {
    /// The facts that the plan looks at.
    pub(super) fn facts(setup: &Setup, desired: Option<&Self>) -> plan::Desired {
        let (install, upgrade) = (&setup.watch.install, &setup.watch.upgrade);
        plan::Desired {
            digest: desired.map(|desired| desired.inputs.digest.to_string()),
            empty: desired.is_some_and(|desired| desired.empty),
            unchanged: desired.is_some_and(|desired| desired.unchanged),
            repair: setup.watch.drift_detection.mode == DriftMode::Repair,
            install_retries: install.remediation.retries,
            clean_up: install.remediation.strategy == Some(RemediationStrategy::Uninstall),
            upgrade_retries: upgrade.remediation.retries,
            rollback: upgrade
                .remediation
                .strategy
                .is_none_or(|strategy| strategy == RemediationStrategy::Rollback),
            timeout: timeout(upgrade.timeout),
            test: setup.watch.test.is_some(),
        }
    }
}

/// Computes what should be. The inputs are computed only when something that they are made of has
/// changed, and content is rendered only when a new revision would begin.
pub(super) async fn desired(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    observation: &Observation,
    memory: &mut Memory,
    notices: &Notices,
) -> Result<Desired, DesiredError> {
    let (inputs, objects) = inputs(setup, access, subject, memory, notices).await?;
    let mut desired = Desired {
        dependency: references::missing_dependency(setup, access, subject).await?,
        inputs,
        objects,
        content: None,
        empty: false,
        unchanged: false,
    };
    if desired.dependency.is_some() {
        // No revision begins now.
        return Ok(desired);
    }
    let facts = Desired::facts(setup, Some(&desired));
    let upgrade = match plan::next_step(&observation.facts, &facts) {
        Step::Install => false,
        Step::Upgrade => true,
        _ => return Ok(desired),
    };
    let history = &observation.history;
    let content = content(
        setup,
        access,
        subject,
        &desired.inputs,
        history,
        upgrade,
        notices,
    )
    .await?;
    if let Content::Rendered(rendered) = &content {
        let wanted = rendered
            .objects()
            .map_err(|error| DesiredError::Render(RenderError::Object(error)))?;
        check(&wanted, subject)?;
        let deployed = history
            .iter()
            .rev()
            .find(|meta| meta.status == ReleaseStatus::Deployed);
        if let Some(meta) = deployed
            && (wanted.is_empty() || setup.watch.lookup_is_input)
        {
            let before = access
                .store
                .load(meta)
                .await
                .map_err(DesiredError::Record)?;
            let objects = parse_objects(&before.manifest).unwrap_or_default();
            desired.empty = wanted.is_empty() && !objects.is_empty() && !setup.watch.allow_empty;
            desired.unchanged = setup.watch.lookup_is_input
                && same_inputs(setup, &desired.inputs, &before)
                && same_meaning(&objects, &wanted, &subject.namespace);
        }
    }
    desired.content = Some(content);
    Ok(desired)
}

/// The inputs, and the objects that they have if they were computed anew.
pub(super) async fn inputs(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    notices: &Notices,
) -> Result<(DesiredInputs, Option<Vec<ManifestObject>>), DesiredError> {
    let metadata = metadata_digest(subject);
    if let Some(known) = &memory.computed
        && known.generation == subject.generation
        && known.metadata == metadata
        && references::is_current(access, &known.read)
        && known.epoch.is_none_or(|epoch| epoch == access.cluster.capabilities_epoch())
        // Code may look at more than that.
        && setup.extensions.translator.is_none()
    {
        return Ok((memory.or_equal(known.inputs.clone()), None));
    }
    let epoch = access.cluster.capabilities_epoch();
    let (mut contents, mut read) = references::referenced(setup, access, subject).await?;
    let kept = references::keep_last(setup, access, subject, &mut contents, notices).await?;
    let (held, object) = (Arc::clone(setup), Arc::clone(&subject.object));
    let compute = move |_| {
        let inputs = values::Inputs {
            object: &object,
            env: &|name| std::env::var(name).ok(),
            references: &contents,
        };
        values::compute(&held.watch, &inputs)
    };
    let computed = access.pool.run(compute).await??;
    let values = match &setup.extensions.translator {
        Some(translator) => {
            let translated = translator.translate(&subject.resource, computed.values);
            translated.await.map_err(DesiredError::Translate)?
        }
        None => computed.values,
    };
    let held = Arc::clone(setup);
    let coalesce = move |_| held.chart.coalesce(values);
    let coalesced = Arc::new(access.pool.run(coalesce).await??);
    // What the templates read of the cluster is known when they have run.
    let render = render(setup, access, subject, &coalesced, Target::FIRST).await?;
    read.extend(render.read);
    let reads_capabilities = !render.rendered.capability_reads().is_empty();
    if reads_capabilities {
        access.interests.add_capabilities(&subject.key());
    }
    let reads_kinds = reads_capabilities || render.missing_kind;
    let digest = Inputs {
        coalesced: &coalesced,
        name: subject.name.as_str(),
        namespace: &subject.namespace,
        patches: &setup.watch.patches,
        looked_up: render.looked_up,
        reads: render.rendered.capability_reads(),
    }
    .digest();
    let objects = render.rendered.objects().ok();
    let inputs = DesiredInputs {
        digest,
        coalesced,
        overridden: computed.overridden,
        kept,
    };
    memory.computed = Some(Computed {
        generation: subject.generation,
        metadata,
        read,
        epoch: reads_kinds.then_some(epoch),
        inputs: inputs.clone(),
    });
    Ok((memory.or_equal(inputs), objects))
}

/// The content of a new revision: that of the newest record with the same inputs, unless another
/// revision was deployed in its place since, or somebody wants a new one; else a render.
async fn content(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    inputs: &DesiredInputs,
    history: &[RecordMeta],
    upgrade: bool,
    notices: &Notices,
) -> Result<Content, DesiredError> {
    let same = history
        .iter()
        .rev()
        .find(|meta| meta.digest.as_ref() == Some(&inputs.digest))
        .filter(|meta| meta.status != ReleaseStatus::Superseded && !subject.is_forced());
    if let Some(meta) = same {
        match access.store.load(meta).await {
            Ok(record) => return Ok(Content::Recorded(Box::new(record))),
            Err(error) if error.is_corrupt() => notices.add(corrupt(&error)),
            Err(error) => return Err(DesiredError::Record(error)),
        }
    }
    let target = Target {
        revision: history
            .last()
            .map_or(Revision::FIRST, |latest| latest.revision.next()),
        upgrade,
    };
    let render = render(setup, access, subject, &inputs.coalesced, target).await?;
    Ok(Content::Rendered(Box::new(render.rendered)))
}

/// The objects that these inputs have, rendered anew.
pub(super) async fn objects_of(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    inputs: &DesiredInputs,
) -> Option<Vec<ManifestObject>> {
    let render = render(setup, access, subject, &inputs.coalesced, Target::FIRST).await;
    render.ok()?.rendered.objects().ok()
}

/// A digest of the metadata that templates of `watches.yaml` may read.
fn metadata_digest(subject: &Subject) -> Digest {
    let part = |pointer| subject.object.pointer(pointer).cloned();
    let metadata = serde_json::json!([part("/metadata/labels"), part("/metadata/annotations")]);
    Digest::of(canonical(&metadata))
}

/// Whether a record was made of the wanted chart and values: its own chart and configuration mean
/// the same, whatever random values its manifest holds.
pub(super) fn same_inputs(setup: &Setup, inputs: &DesiredInputs, record: &Record) -> bool {
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
    // Helm records the defaults of a chart with dependencies as they are after their imports.
    let defaults = Value::from(theirs.values.clone().unwrap_or_default());
    let same_defaults = [own.values(), inputs.coalesced.chart().values()]
        .into_iter()
        .any(|values| same_values(&defaults, &Value::from(values.clone())));
    let same_config = || match setup.chart.coalesce(record.config.clone()) {
        Ok(coalesced) => same_values(
            &Value::from(coalesced.values().clone()),
            &Value::from(inputs.coalesced.values().clone()),
        ),
        Err(_) => false,
    };
    same_chart && same_defaults && same_config()
}

/// Whether values are the same, of whatever kind their numbers are: a record writes 1.0 as 1.
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

/// Refuses a manifest that names an object twice: one of the two would be lost.
fn check(wanted: &[ManifestObject], subject: &Subject) -> Result<(), DesiredError> {
    let Some((first, second)) = first_duplicate(wanted, &subject.namespace) else {
        return Ok(());
    };
    let source = |index: usize| {
        let object = wanted.get(index);
        object
            .and_then(ManifestObject::source)
            .unwrap_or("?")
            .to_owned()
    };
    Err(DesiredError::Duplicate {
        object: wanted
            .get(second)
            .map(|object| object.key().to_string())
            .unwrap_or_default(),
        first: source(first),
        second: source(second),
    })
}

/// Says that a record cannot be read.
pub(super) fn corrupt(error: &StoreError) -> Notice {
    Notice::warning(error.reason(), "Load", super::status::chain(error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::same_values;

    #[test]
    fn values_that_went_through_a_record_are_the_same() {
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
