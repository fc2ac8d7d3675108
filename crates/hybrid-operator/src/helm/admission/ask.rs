//! Asks the API server whether it accepts rendered objects, by applies that store nothing.

use futures::future::join_all;
use helm_core::manifest::ManifestObject;
use helm_release::policy::ReleasePolicy;
use kube::core::GroupVersionKind;
use kube_objects::apply::{Apply, ApplyError, ApplyPolicy, Claim, apply};
use kube_objects::ownership::mark;
use kube_objects::{Cluster, Marks, OperatorId, Primary, with_causes};

use super::super::effects::is_recreated;
use super::judge::Release;
use super::message::in_chart;

/// Number of requests at the same time.
const AT_ONCE: usize = 8;

/// Words of the API server about a webhook that it may not call in a dry run.
const NO_DRY_RUN: &str = "does not support dry run";

/// Answer of the API server.
pub(super) enum Answer {
    /// All objects are accepted.
    Accepted,
    /// An object is refused, as it would be in the upgrade.
    Refused(String),
    /// Nothing is known of an object, for this reason.
    Unknown(String),
}

/// A question about the objects of a release.
pub(super) struct Question<'a> {
    /// Cluster, as the account of the release.
    pub(super) cluster: &'a Cluster,
    pub(super) operator: &'a OperatorId,
    pub(super) primary: &'a Primary,
    pub(super) chart: &'a str,
    pub(super) policy: &'a ReleasePolicy,
    pub(super) release: &'a Release,
}

impl Question<'_> {
    pub(super) async fn ask(&self) -> Answer {
        let objects = self.release.objects.iter();
        // The name of the others is generated.
        let named: Vec<_> = objects.filter(|o| !o.key().name.is_empty()).collect();
        let mut unknown = None;
        for some in named.chunks(AT_ONCE) {
            for answer in join_all(some.iter().map(|object| self.about(object))).await {
                match answer {
                    Answer::Accepted => {}
                    Answer::Refused(_) => return answer,
                    Answer::Unknown(why) => unknown = unknown.or(Some(why)),
                }
            }
        }
        unknown.map_or(Answer::Accepted, Answer::Unknown)
    }

    async fn about(&self, object: &ManifestObject) -> Answer {
        let error = match self.apply(object).await {
            Ok(()) => return Answer::Accepted,
            Err(error) => error,
        };
        let kind = &object.key().kind;
        match &error {
            ApplyError::Immutable { .. } if is_recreated(kind, self.policy) => Answer::Accepted,
            // Of a webhook with side effects. The API has no code for this reason.
            ApplyError::Invalid { message, .. } if message.contains(NO_DRY_RUN) => {
                Answer::Unknown(error.to_string())
            }
            ApplyError::Invalid { .. } | ApplyError::Immutable { .. } => {
                let place = object.source().map(|path| in_chart(path, self.chart));
                let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
                Answer::Refused(format!("{place}{error}"))
            }
            error => Answer::Unknown(with_causes(error)),
        }
    }

    async fn apply(&self, object: &ManifestObject) -> Result<(), ApplyError> {
        let key = object.key();
        let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
        let scope = self.cluster.resolve(&gvk).await?.scope;
        let marks = Marks {
            primary: self.primary,
            operator: self.operator,
            chart: self.chart,
            release_name: &self.release.name,
            release_namespace: &self.release.namespace,
            run: None,
            hook: false,
            // A new custom resource may have no uid yet.
            unowned: self.primary.uid.is_empty(),
        };
        let mut body = object.object().clone();
        mark(&mut body, &marks, scope);
        let policy = ApplyPolicy {
            dry_run: true,
            ..ApplyPolicy::default()
        };
        let request = Apply {
            object: body,
            claim: Claim::Unproven,
            claimant: marks.claimant(),
            policy: &policy,
        };
        apply(self.cluster, request).await.map(drop)
    }
}
