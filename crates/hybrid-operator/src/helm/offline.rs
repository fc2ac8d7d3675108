//! Computes what the operator deploys for a custom resource, without a cluster.
//!
//! The name of the release, the values, the render, the patches and the digest are computed by the
//! functions that the reconciler uses. Code of an operator's own program, such as a
//! [value translator](super::HelmController::value_translator), is not part of it.

use std::collections::BTreeMap;
use std::error::Error;

use helm_core::engine::lookup::{Lookup, NoCluster};
use helm_core::engine::{ReleaseInfo, RenderInput};
use helm_core::release::{Release as Record, ReleaseName};
use helm_core::{Capabilities, Coalesced, RenderError, Rendered};
use kube_objects::Primary;
use serde_json::Value;

use helm_release::engine::{DesiredError, OwnPatches};
use helm_release::preview::{DigestInputs, render_once};

use super::chart::Chart;
use super::environment::environment;
use super::locate::{SubjectError, wanted};
use super::references::{data_of, key_of, references_of};
use crate::values::{self, Contents};
use crate::watches::{ReferenceKind, Watch};

/// Error computing what the operator deploys.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The custom resource cannot have a release.
    #[error("cannot determine the release of the custom resource")]
    Release(#[source] Box<dyn Error + Send + Sync>),
    /// The chart cannot be rendered.
    #[error(transparent)]
    Render(RenderError),
    /// The values, the patches or the rendered objects are invalid.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl From<DesiredError> for PreviewError {
    fn from(error: DesiredError) -> Self {
        match error {
            DesiredError::Render(error) | DesiredError::Limit(error, _) => Self::Render(*error),
            other => Self::Other(Box::new(other)),
        }
    }
}

impl From<SubjectError> for PreviewError {
    fn from(error: SubjectError) -> Self {
        Self::Release(Box::new(error))
    }
}

/// A custom resource, and what `watches.yaml` binds it to.
#[derive(Clone, Copy)]
pub struct PreviewInput<'a> {
    /// Entry of `watches.yaml`.
    pub watch: &'a Watch,
    /// Chart of the entry.
    pub chart: &'a Chart,
    /// The custom resource, with its namespace unless it is cluster-scoped.
    pub object: &'a Value,
    /// Namespace of the operator: that of the release of a cluster-scoped custom resource if the
    /// entry has no `releaseNamespace`.
    pub operator_namespace: Option<&'a str>,
    /// Newest record of the release, if it exists.
    pub latest: Option<&'a Record>,
    /// Whether errors show the contents of values.
    pub values_in_errors: bool,
}

/// Release that the operator deploys for a custom resource.
#[derive(Debug, Clone)]
pub struct Preview {
    /// Name of the release.
    pub name: ReleaseName,
    /// Namespace of the release.
    pub namespace: String,
    /// Values, with and without those of the chart.
    pub values: Coalesced,
    /// Manifest after the patches, hooks and notes.
    pub rendered: Rendered,
    /// Paths where `overrideValues` changed a value.
    pub overridden: Vec<String>,
    /// Digest of the inputs. The operator creates no new revision while it is that of the deployed
    /// one. `None` if objects of the cluster are inputs (`dryRunOption: server`).
    pub digest: Option<String>,
}

/// Computes what the operator deploys for a custom resource, without a cluster: `lookup` finds
/// nothing, and `valuesFrom` refers to the Secrets and `ConfigMap`s in `objects`.
///
/// # Errors
/// If the values cannot be computed, an object of `valuesFrom` is missing, or the chart cannot be
/// rendered.
pub fn offline(
    input: &PreviewInput<'_>,
    capabilities: &Capabilities,
    objects: &[Value],
) -> Result<Preview, PreviewError> {
    let mut contents = Contents::new();
    for (_, reference) in references_of(input.watch, input.object).map_err(DesiredError::from)? {
        let key = key_of(&reference);
        let is_it = |object: &&Value| {
            let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
            text("/kind") == Some(&key.kind)
                && text("/metadata/name") == Some(&reference.name)
                && text("/metadata/namespace").is_none_or(|own| own == reference.namespace)
        };
        if let Some(object) = objects.iter().find(is_it) {
            let data = given_data(reference.kind, object);
            contents.insert(reference, data);
        }
    }
    let prepared = prepare(input, &contents)?;
    finish(input, prepared, capabilities, &NoCluster)
}

/// Computes the values of the release of a custom resource, with those of its chart. There are no objects that
/// `valuesFrom` refers to.
///
/// # Errors
/// If the values cannot be computed, or the schema of the chart refuses them.
pub fn values_of(input: &PreviewInput<'_>) -> Result<Coalesced, PreviewError> {
    Ok(prepare(input, &Contents::new())?.values)
}

/// Returns the data of a manifest, in which a Secret may have `stringData`.
fn given_data(kind: ReferenceKind, object: &Value) -> BTreeMap<String, String> {
    let mut data = data_of(kind, object);
    if kind == ReferenceKind::Secret
        && let Some(texts) = object.get("stringData").and_then(Value::as_object)
    {
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        data.extend(texts.iter().filter_map(text));
    }
    data
}

/// Inputs of a render.
pub(super) struct Prepared {
    name: ReleaseName,
    namespace: String,
    values: Coalesced,
    patches: OwnPatches,
    overridden: Vec<String>,
}

impl Prepared {
    /// Returns the name of the release.
    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the namespace of the release.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the patches of the custom resource.
    pub(super) fn patches(&self) -> &OwnPatches {
        &self.patches
    }

    /// Returns the values, with and without those of the chart.
    pub(super) fn values(&self) -> &Coalesced {
        &self.values
    }
}

/// Computes name, namespace and values of a release.
pub(super) fn prepare(
    input: &PreviewInput<'_>,
    references: &Contents,
) -> Result<Prepared, PreviewError> {
    let object = input.object;
    let (name, namespace) = if let Some(record) = input.latest {
        (record.name.clone(), record.namespace.clone())
    } else {
        let primary = primary(input.watch, object);
        let wanted = wanted(&primary, object, input.watch, input.operator_namespace)?;
        let namespace = wanted.namespace.ok_or(SubjectError::NoNamespace)?;
        (wanted.name, namespace)
    };
    let inputs = values::Inputs {
        object,
        env: environment(),
        references,
    };
    let computed = values::compute(input.watch, &inputs).map_err(DesiredError::from)?;
    let chart = input.chart.used_by(input.watch);
    let values = chart
        .coalesce(computed.values)
        .map_err(DesiredError::Coalesce)?;
    let patches = input.watch.patches_of(object).map_err(DesiredError::from)?;
    Ok(Prepared {
        name,
        namespace,
        values,
        patches,
        overridden: computed.overridden,
    })
}

/// Renders what was prepared.
pub(super) fn finish(
    input: &PreviewInput<'_>,
    prepared: Prepared,
    capabilities: &Capabilities,
    lookup: &(impl Lookup + Clone + 'static),
) -> Result<Preview, PreviewError> {
    let Prepared {
        name,
        namespace,
        values,
        patches: own,
        overridden,
    } = prepared;
    let patches = &input.watch.policy.patches;
    let render = |release: ReleaseInfo| {
        let mut render = RenderInput::new(release, &values)
            .capabilities(capabilities)
            .lookup(lookup.clone());
        render.values_in_errors = input.values_in_errors;
        render.limits = input.watch.policy.limits.of_render();
        render_once(input.chart.compiled(), &render, patches, &own)
    };
    let first = ReleaseInfo::new(name.as_str(), namespace.as_str());
    // As in the reconciler, the digest is that of a first revision.
    let mut rendered = render(first.clone())?;
    let looks_up = input.watch.policy.lookup_is_input && !rendered.lookups().is_empty();
    let inputs = DigestInputs {
        coalesced: &values,
        name: name.as_str(),
        namespace: &namespace,
        patches,
        own_patches: &own.patches,
        looked_up: None,
        reads: rendered.capability_reads(),
    };
    let digest = (!looks_up).then(|| inputs.digest().to_string());
    if let Some(latest) = input.latest {
        rendered = render(first.upgrade_to(latest.revision.next()))?;
    }
    rendered.objects().map_err(PreviewError::Render)?;
    Ok(Preview {
        name,
        namespace,
        values,
        rendered,
        overridden,
        digest,
    })
}

/// Returns the identity of a custom resource.
pub(super) fn primary(watch: &Watch, object: &Value) -> Primary {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    Primary {
        gvk: watch.gvk.clone(),
        namespace: text("/metadata/namespace").map(ToOwned::to_owned),
        name: text("/metadata/name").unwrap_or_default().to_owned(),
        uid: text("/metadata/uid").unwrap_or_default().to_owned(),
        component: None,
    }
}
