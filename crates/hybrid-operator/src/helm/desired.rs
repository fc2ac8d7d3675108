//! What should be: values, the digest of all inputs, and the manifest when the digest is new.

use std::collections::BTreeMap;
use std::time::Duration;

use helm_core::engine::{LookupAnswer, LookupKey, ReleaseInfo, RenderInput, Snapshot};
use helm_core::release::Revision;
use helm_core::values::CoalesceError;
use helm_core::{Capabilities, Coalesced, DigestBuilder, RenderError, Rendered, Values};

use super::observe::Facts;
use super::plan;
use super::{HelmReconciler, Release};
use crate::action::live::{Live, place};
use crate::cluster::read::{self, ReadError};
use crate::cluster::{ApiError, DiscoveryError};
use crate::release::InputsDigest;
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
    /// Each render looks up something else.
    #[error("the templates look up new objects in each of {LOOKUP_ROUNDS} renders")]
    TooManyLookups,
}

impl DesiredError {
    /// The reason of the condition `Irreconcilable`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Values(_) | Self::Coalesce(_) => "ErrorGettingValues",
            Self::Capabilities(_) => "ErrorGettingClient",
            Self::Render(_) | Self::Lookup { .. } | Self::TooManyLookups => "ReconcileError",
        }
    }
}

/// What was computed for one state of the custom resource.
#[derive(Clone)]
pub(super) struct Desires {
    generation: Option<i64>,
    desired: Desired,
}

/// What should be.
#[derive(Clone)]
pub(super) struct Desired {
    pub(super) digest: InputsDigest,
    pub(super) coalesced: Coalesced,
    pub(super) overridden: Vec<String>,
    policy: (bool, usize, bool, Duration),
}

impl Desired {
    /// The part that the plan looks at.
    pub(super) fn plan(&self, _facts: &Facts) -> plan::Desired {
        let (repair, upgrade_retries, rollback, timeout) = self.policy;
        plan::Desired {
            digest: self.digest.to_string(),
            repair,
            upgrade_retries,
            rollback,
            timeout,
        }
    }
}

impl HelmReconciler {
    /// Computes what should be, unless it is known for this generation.
    pub(super) async fn desire(
        &self,
        facts: &Facts,
        release: &mut Release,
    ) -> Result<Desired, DesiredError> {
        if let Some(known) = &release.desires
            && known.generation == facts.generation
            && self.watch.values_from.is_empty()
        {
            return Ok(known.desired.clone());
        }
        let computed = {
            let env = |name: &str| std::env::var(name).ok();
            let references = BTreeMap::new();
            let inputs = values::Inputs {
                object: &facts.object,
                env: &env,
                references: &references,
            };
            values::compute(&self.watch, &inputs)?
        };
        let coalesced = self.chart.coalesce(computed.values)?;
        // What the templates read of the cluster is known when they have run.
        let rendered = self
            .render(facts, &coalesced, Revision::FIRST, false)
            .await?;
        let mut digest = DigestBuilder::new()
            .part(coalesced.digest().as_bytes())
            .part(&facts.namespace)
            .part(facts.name.as_str());
        rendered.capability_reads().digest_into(&mut digest);
        let digest = InputsDigest::from(&digest.finish());
        let upgrade = self.watch.upgrade.remediation;
        let desired = Desired {
            digest,
            coalesced,
            overridden: computed.overridden,
            policy: (
                self.watch.drift_detection.mode == DriftMode::Repair,
                upgrade
                    .retries
                    .map_or(0, |n| usize::try_from(n).unwrap_or(0)),
                upgrade
                    .strategy
                    .is_none_or(|s| s == RemediationStrategy::Rollback),
                timeout(self.watch.upgrade.timeout),
            ),
        };
        release.desires = Some(Desires {
            generation: facts.generation,
            desired: desired.clone(),
        });
        Ok(desired)
    }

    async fn capabilities(&self) -> Result<Capabilities, DiscoveryError> {
        self.manager.cluster.capabilities(CAPABILITIES_AGE).await
    }

    /// Renders a revision, fetching what the templates look up.
    pub(super) async fn render(
        &self,
        facts: &Facts,
        coalesced: &Coalesced,
        revision: Revision,
        upgrade: bool,
    ) -> Result<Rendered, DesiredError> {
        let capabilities = self.capabilities().await?;
        let mut info = ReleaseInfo::new(facts.name.as_str(), facts.namespace.as_str());
        info.revision = revision;
        (info.is_install, info.is_upgrade) = (!upgrade, upgrade);
        let mut snapshot = Snapshot::default();
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
                        let answer = self.look_up(&key).await?;
                        snapshot.insert(key, answer);
                    }
                }
                rendered => return Ok(rendered?),
            }
        }
        Err(DesiredError::TooManyLookups)
    }

    /// Reads what a template looks up. What cannot be read fails the render: an empty answer would
    /// shrink the release.
    async fn look_up(&self, key: &LookupKey) -> Result<LookupAnswer, DesiredError> {
        let (group, version) = key
            .api_version
            .split_once('/')
            .unwrap_or(("", &key.api_version));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, &key.kind);
        let namespace = Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let cluster = &self.manager.cluster;
        let answer = if key.is_list() {
            read::list(cluster, &gvk, namespace, None).await.map(Some)
        } else {
            let object = helm_core::manifest::ObjectKey {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: key.kind.clone(),
                namespace: namespace.map(ToOwned::to_owned),
                name: key.name.clone(),
            };
            read::get(cluster, &object).await
        };
        match answer {
            Ok(Some(value)) => Ok(LookupAnswer::Found(value)),
            Ok(None) => Ok(LookupAnswer::Absent),
            // A kind that is not served has no objects, as in Helm.
            Err(ReadError::Discovery(DiscoveryError::UnknownKind { .. })) => {
                Ok(LookupAnswer::Absent)
            }
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
            .ok()?;
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

/// The user's values of a record, which are what was computed from the custom resource.
pub(super) fn config(desired: &Desired) -> Values {
    desired.coalesced.user().clone()
}

/// How long hooks and waits may take: 5 minutes unless said otherwise, as in Helm.
pub(super) fn timeout(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(Duration::from_mins(5))
}
