//! What should be: values, the digest of all inputs, and the manifest when the digest is new.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use helm_core::engine::{LookupAnswer, LookupKey, ReleaseInfo, RenderInput, Snapshot};
use helm_core::manifest::ManifestObject;
use helm_core::release::Revision;
use helm_core::values::CoalesceError;
use helm_core::{Capabilities, Coalesced, DigestBuilder, RenderError, Rendered, Values};

use kube::core::GroupVersionKind;
use serde_json::Value;

use super::extend::ExtensionError;
use super::interest::Named;
use super::observe::Facts;
use super::plan;
use super::references::{LastValues, Read, key_of};
use super::{HelmReconciler, Release};
use crate::action::live::{Live, place};
use crate::cluster::ownership::CR_LABEL;
use crate::cluster::read::{self, ReadError};
use crate::cluster::{ApiError, DiscoveryError};
use crate::release::{InputsDigest, StoreError};
use crate::values::{self, ValuesError};
use crate::watches::{DriftMode, RemediationStrategy};

/// How often a render is begun anew because a template looked something up.
const LOOKUP_ROUNDS: usize = 8;
/// How old what is known of the cluster's kinds may be.
const CAPABILITIES_AGE: Duration = Duration::from_mins(10);

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
    /// Nothing is rendered where there was something.
    #[error(
        "the chart renders no object, and the release has some; if that is meant, set allowEmpty in watches.yaml"
    )]
    Empty,
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
            Self::Render(_)
            | Self::Patch(_)
            | Self::Lookup { .. }
            | Self::Empty
            | Self::Duplicate { .. }
            | Self::TooManyLookups => "ReconcileError",
        }
    }

    /// Whether the chart failed, and not what it is given.
    pub(super) fn is_render(&self) -> bool {
        self.reason() == "ReconcileError"
    }
}

/// What was computed for one state of the custom resource and of what it refers to.
#[derive(Clone)]
pub(super) struct Desires {
    generation: Option<i64>,
    metadata: u64,
    read: Read,
    desired: Desired,
}

/// What should be.
#[derive(Clone)]
pub(super) struct Desired {
    pub(super) digest: InputsDigest,
    pub(super) coalesced: Coalesced,
    pub(super) overridden: Vec<String>,
    /// What optional references hold, for the time after; `None` where there are none.
    pub(super) kept: Option<LastValues>,
    policy: plan::Desired,
}

impl Desired {
    /// The part that the plan looks at.
    pub(super) fn plan(&self) -> plan::Desired {
        self.policy.clone()
    }

    /// With the digest of what is deployed, where that is known to mean the same.
    fn or_equal(mut self, equal: Option<&(InputsDigest, InputsDigest)>) -> Self {
        if let Some((wanted, deployed)) = equal
            && *wanted == self.digest
        {
            self.digest = deployed.clone();
            self.policy.digest = deployed.to_string();
        }
        self
    }
}

/// A render, and what it has looked up.
pub(super) struct Render {
    pub(super) rendered: Rendered,
    /// Hash of the objects that were looked up, where they count as inputs.
    looked_up: Option<u64>,
    read: Read,
}

impl HelmReconciler {
    /// Computes what should be, unless it is known already.
    pub(super) async fn desire(
        &self,
        facts: &Facts,
        release: &mut Release,
    ) -> Result<Desired, DesiredError> {
        let metadata = Self::metadata_hash(facts);
        if let Some(known) = &release.desires
            && known.generation == facts.generation
            && known.metadata == metadata
            && self.is_current(&known.read)
            // Code may look at more than that.
            && self.extensions.translator.is_none()
        {
            return Ok(known.desired.clone().or_equal(release.equal.as_ref()));
        }
        let (mut contents, mut read) = self.referenced(facts).await?;
        let kept = self.keep_last(facts, &mut contents).await?;
        let computed = {
            let env = |name: &str| std::env::var(name).ok();
            let inputs = values::Inputs {
                object: &facts.object,
                env: &env,
                references: &contents,
            };
            values::compute(&self.watch, &inputs)?
        };
        let values = match &self.extensions.translator {
            Some(translator) => {
                let translated = translator.translate(&facts.resource, computed.values);
                translated.await.map_err(DesiredError::Translate)?
            }
            None => computed.values,
        };
        let coalesced = self.chart.coalesce(values)?;
        // What the templates read of the cluster is known when they have run.
        let render = self
            .render(facts, &coalesced, Revision::FIRST, false)
            .await?;
        read.extend(render.read);
        let mut digest = DigestBuilder::new()
            .part(coalesced.digest().as_bytes())
            .part(&facts.namespace)
            .part(facts.name.as_str());
        if !self.watch.patches.is_empty() {
            digest = digest.part(format!("{:?}", self.watch.patches));
        }
        if let Some(hash) = render.looked_up {
            digest = digest.part(hash.to_be_bytes());
        }
        render.rendered.capability_reads().digest_into(&mut digest);
        let digest = InputsDigest::from(&digest.finish());
        let desired = Desired {
            policy: self.policy_of(&digest),
            digest,
            coalesced,
            overridden: computed.overridden,
            kept,
        };
        release.desires = Some(Desires {
            generation: facts.generation,
            metadata,
            read,
            desired: desired.clone(),
        });
        Ok(desired.or_equal(release.equal.as_ref()))
    }

    /// What `watches.yaml` says about retries, drift and tests, as the plan reads it.
    fn policy_of(&self, digest: &InputsDigest) -> plan::Desired {
        let (install, upgrade) = (&self.watch.install, &self.watch.upgrade);
        let times = |retries: Option<u32>, otherwise: usize| {
            retries.map_or(otherwise, |n| usize::try_from(n).unwrap_or(otherwise))
        };
        plan::Desired {
            digest: digest.to_string(),
            repair: self.watch.drift_detection.mode == DriftMode::Repair,
            install_retries: times(install.remediation.retries, plan::ATTEMPTS - 1),
            clean_up: install.remediation.strategy == Some(RemediationStrategy::Uninstall),
            upgrade_retries: times(upgrade.remediation.retries, 0),
            rollback: upgrade
                .remediation
                .strategy
                .is_none_or(|s| s == RemediationStrategy::Rollback),
            timeout: timeout(upgrade.timeout),
            test: self.watch.test.is_some(),
        }
    }

    /// A hash of the metadata that templates of `watches.yaml` may read.
    fn metadata_hash(facts: &Facts) -> u64 {
        let mut hasher = DefaultHasher::new();
        for part in ["/metadata/labels", "/metadata/annotations"] {
            facts.object.pointer(part).hash(&mut hasher);
        }
        hasher.finish()
    }

    async fn capabilities(&self) -> Result<Capabilities, DiscoveryError> {
        self.manager.cluster.capabilities(CAPABILITIES_AGE).await
    }

    /// Renders a revision, fetching what the templates look up, and applies the patches of
    /// `watches.yaml`.
    pub(super) async fn render(
        &self,
        facts: &Facts,
        coalesced: &Coalesced,
        revision: Revision,
        upgrade: bool,
    ) -> Result<Render, DesiredError> {
        let capabilities = self.capabilities().await?;
        let mut info = ReleaseInfo::new(facts.name.as_str(), facts.namespace.as_str());
        info.revision = revision;
        (info.is_install, info.is_upgrade) = (!upgrade, upgrade);
        let mut snapshot = Snapshot::default();
        let mut read = Read::new();
        let mut hasher = DefaultHasher::new();
        for _ in 0..LOOKUP_ROUNDS {
            let rendered = {
                let input = RenderInput::new(info.clone(), coalesced)
                    .capabilities(&capabilities)
                    .lookup(snapshot.clone());
                self.chart.render(&input)
            };
            match rendered {
                Err(RenderError::NeedsLookup(keys)) => {
                    for key in keys {
                        let answer = self.look_up(facts, &key, &mut read, &mut hasher).await?;
                        snapshot.insert(key, answer);
                    }
                }
                rendered => {
                    let rendered = super::patches::apply(rendered?, &self.watch.patches)?;
                    let inputs = self.watch.lookup_is_input && !rendered.lookups().is_empty();
                    return Ok(Render {
                        rendered,
                        looked_up: inputs.then(|| hasher.finish()),
                        read,
                    });
                }
            }
        }
        Err(DesiredError::TooManyLookups)
    }

    /// Reads what a template looks up. What cannot be read fails the render: an empty answer would
    /// shrink the release.
    async fn look_up(
        &self,
        facts: &Facts,
        key: &LookupKey,
        read: &mut Read,
        hasher: &mut DefaultHasher,
    ) -> Result<LookupAnswer, DesiredError> {
        let (group, version) = key
            .api_version
            .split_once('/')
            .unwrap_or(("", &key.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &key.kind);
        let namespace = Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let cluster = &facts.cluster;
        let kind = match cluster.resolve(&gvk).await {
            Ok(kind) => kind,
            // A kind that is not served has no objects, as in Helm.
            Err(DiscoveryError::UnknownKind { .. }) => return Ok(LookupAnswer::Absent),
            Err(error) => return Err(error.into()),
        };
        let named = Named {
            resource: kind.resource.clone(),
            namespace: namespace.map(ToOwned::to_owned),
            name: (!key.is_list()).then(|| key.name.clone()),
        };
        let is_input = self.watch.lookup_is_input;
        let seen = is_input.then(|| self.interests.add(&named, &key_of(facts)));
        let answer = if key.is_list() {
            read::list(cluster, &gvk, namespace, None).await.map(Some)
        } else {
            let object = helm_core::manifest::ObjectKey {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: key.kind.clone(),
                namespace: named.namespace.clone(),
                name: key.name.clone(),
            };
            read::get(cluster, &object).await
        };
        if let (Some(seen), Ok(found)) = (seen, &answer) {
            read.push((named, seen.read(found.as_ref())));
        }
        match answer {
            Ok(Some(value)) => {
                key.to_string().hash(hasher);
                let items = value.get("items").and_then(Value::as_array);
                for object in items.map_or(std::slice::from_ref(&value), Vec::as_slice) {
                    if !is_of(object, facts) {
                        without_bookkeeping(object).hash(hasher);
                    }
                }
                Ok(LookupAnswer::Found(value))
            }
            Ok(None) => Ok(LookupAnswer::Absent),
            Err(ReadError::Api(error)) if ApiError::is_not_found(&error) => {
                Ok(LookupAnswer::Absent)
            }
            Err(source) => Err(DesiredError::Lookup {
                key: key.to_string(),
                source,
            }),
        }
    }

    /// The objects that the wanted inputs have, as the watches show them; `None` when one of them
    /// is not seen, or the chart does not render.
    pub(super) async fn live_of(&self, facts: &Facts, desired: &Desired) -> Option<Live> {
        let rendered = self
            .render(facts, &desired.coalesced, Revision::FIRST, false)
            .await
            .ok()?
            .rendered;
        let mut live = Live::default();
        for object in rendered.objects().ok()? {
            let place = place(
                &self.manager.cluster,
                &self.manager.registry,
                &self.manager.operator,
                &self.manager.namespaces,
                object.key(),
                &facts.namespace,
            )
            .await
            .ok()?;
            place.guard.settled().await;
            let seen = place
                .guard
                .get(place.key.namespace.as_deref(), &place.key.name)?;
            live.adopt(place.key, &seen, place.guard);
        }
        Some(live)
    }
}

/// Refuses a manifest that names an object twice: one of the two would be lost.
pub(super) fn check(wanted: &[ManifestObject], facts: &Facts) -> Result<(), DesiredError> {
    for (index, object) in wanted.iter().enumerate() {
        let key = object.key();
        let twin = wanted.iter().take(index).find(|other| {
            !key.name.is_empty() && other.key().is_same_object(key, &facts.namespace)
        });
        if let Some(twin) = twin {
            let source = |object: &ManifestObject| object.source().unwrap_or("?").to_owned();
            return Err(DesiredError::Duplicate {
                object: key.to_string(),
                first: source(twin),
                second: source(object),
            });
        }
    }
    Ok(())
}

/// Whether an object belongs to the release itself, is one of its records, or is the custom resource.
fn is_of(object: &Value, facts: &Facts) -> bool {
    if object.pointer("/metadata/uid").and_then(Value::as_str) == Some(&facts.primary.uid) {
        return true;
    }
    let label = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(CR_LABEL))
        .and_then(Value::as_str);
    label == Some(facts.primary.identity().as_str())
}

/// An object without what changes although nobody changed it.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

/// The user's values of a record, which are what was computed from the custom resource.
pub(super) fn config(desired: &Desired) -> Values {
    desired.coalesced.user().clone()
}

/// How long hooks and waits may take: 5 minutes unless said otherwise, as in Helm.
pub(super) fn timeout(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(Duration::from_mins(5))
}
