//! Declares webhooks.

use std::fmt::Display;
use std::time::Duration;

use kube::core::ApiResource;

use super::admission::{self, Answer};
use super::conversion::Conversions;
use super::objects::{self, ObjectWebhooks};
use super::request::{Denied, Request};
use crate::controller::{ObjectScope, TypedObject};

/// Time limit of a function. The API server waits for 10 s.
const DEADLINE: Duration = Duration::from_secs(8);
/// Lifetime of a certificate.
const LIFETIME: Duration = Duration::from_hours(90 * 24);
/// With a shorter life, a certificate would expire while it is being made known.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(10);

/// Policy of the API server for a request if no webhook answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// The request fails.
    #[default]
    Fail,
    /// The request is executed as if there were no webhook.
    Ignore,
}

impl FailurePolicy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// The webhooks of an operator.
#[derive(Default)]
pub struct Webhooks {
    pub(super) hooks: Vec<Hook>,
    pub(super) conversions: Conversions,
    pub(super) failure_policy: FailurePolicy,
    pub(super) lifetime: Option<Duration>,
    /// Validations of kinds that may change.
    pub(super) objects: Option<ObjectWebhooks>,
    /// Declarations that contradict each other.
    pub(super) problems: Vec<String>,
}

/// Begins the declaration of webhooks.
pub fn webhooks() -> Webhooks {
    Webhooks::default()
}

/// A validation or mutation.
pub(super) struct Hook {
    pub(super) verb: Verb,
    pub(super) kind: ApiResource,
    pub(super) namespaced: bool,
    /// Policy while no webhook answers, if it is not that of all webhooks of the process.
    pub(super) failure_policy: Option<FailurePolicy>,
    pub(super) answer: Answer,
}

/// Task of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Validate,
    ValidateDelete,
    Mutate,
    /// Validates objects of kinds that may change.
    Admit,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::ValidateDelete => "validate-delete",
            Self::Mutate => "mutate",
            Self::Admit => "admit",
        }
    }
}

impl Hook {
    fn new<K: TypedObject>(verb: Verb, answer: Answer) -> Self {
        Self {
            verb,
            kind: ApiResource::erase::<K>(&()),
            namespaced: K::Scope::NAMESPACED,
            failure_policy: None,
            answer,
        }
    }

    /// Returns its name, which the message of a denial contains.
    pub(super) fn name(&self) -> String {
        let ApiResource {
            group,
            version,
            plural,
            ..
        } = &self.kind;
        let group = if group.is_empty() { "core" } else { group };
        format!("{}-{version}.{plural}.{group}", self.verb.as_str())
    }

    /// Returns its path, as kubebuilder forms it: `/validate-cache-example-com-v1-memcached`.
    pub(super) fn path(&self) -> String {
        if self.verb == Verb::Admit {
            return objects::PATH.to_owned();
        }
        let group = self.kind.group.replace('.', "-");
        let kind = self.kind.kind.to_lowercase();
        format!(
            "/{}-{group}-{}-{kind}",
            self.verb.as_str(),
            self.kind.version
        )
    }

    pub(super) fn operations(&self) -> &'static [&'static str] {
        match self.verb {
            Verb::Validate | Verb::Mutate | Verb::Admit => &["CREATE", "UPDATE"],
            Verb::ValidateDelete => &["DELETE"],
        }
    }

    pub(super) fn is_mutation(&self) -> bool {
        self.verb == Verb::Mutate
    }
}

impl Webhooks {
    /// Calls a function for every object of type `K` that is created or updated, after all
    /// mutations. An error denies the request. Updates of the status are not passed to it.
    #[must_use]
    pub fn validate<K, F, Fut>(self, function: F) -> Self
    where
        K: TypedObject,
        F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        let answer = admission::validation(function, DEADLINE);
        self.hook(Hook::new::<K>(Verb::Validate, answer))
    }

    /// Calls a function for every object of type `K` that is to be deleted. An error denies the
    /// request.
    #[must_use]
    pub fn validate_delete<K, F, Fut>(self, function: F) -> Self
    where
        K: TypedObject,
        F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        let answer = admission::validation(function, DEADLINE);
        self.hook(Hook::new::<K>(Verb::ValidateDelete, answer))
    }

    /// Calls a function for every object of type `K` that is created or updated; the object that
    /// it returns is stored. An error denies the request.
    ///
    /// The function must be idempotent: the API server calls it for every update.
    #[must_use]
    pub fn mutate<K, F, Fut>(self, function: F) -> Self
    where
        K: TypedObject,
        F: Fn(K, Request<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<K, Denied>> + Send + 'static,
    {
        let answer = admission::mutation(function, DEADLINE);
        self.hook(Hook::new::<K>(Verb::Mutate, answer))
    }

    /// Converts objects between `Hub` and another version of the same kind. All conversions of a
    /// kind have the same hub; versions without one between them are converted through it.
    ///
    /// The name, the namespace, the uid and other metadata are kept. Labels and annotations are
    /// those of the converted object, or the former ones if it has none.
    #[must_use]
    pub fn convert<Hub, Spoke>(mut self) -> Self
    where
        Hub: TypedObject + TryFrom<Spoke, Error: Display>,
        Spoke: TypedObject + TryFrom<Hub, Error: Display>,
    {
        let added = self.conversions.add::<Hub, Spoke>();
        self.problems.extend(added.err());
        self
    }

    /// Sets what happens while no webhook answers. Default: the request fails.
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = policy;
        self
    }

    /// Sets how long a certificate of the operator's own is valid: at least 10 seconds. Default: 90
    /// days.
    #[must_use]
    pub fn certificate_lifetime(mut self, lifetime: Duration) -> Self {
        if lifetime < SHORTEST_LIFETIME {
            self.problems.push(format!(
                "the lifetime of a certificate is {lifetime:?}; set at least {SHORTEST_LIFETIME:?}"
            ));
        }
        self.lifetime = Some(lifetime);
        self
    }

    fn hook(mut self, hook: Hook) -> Self {
        if self.hooks.iter().any(|known| known.path() == hook.path()) {
            let (verb, kind) = (hook.verb.as_str(), &hook.kind);
            self.problems.push(format!(
                "{} {} has two functions to {verb}",
                kind.api_version, kind.kind
            ));
        }
        self.hooks.push(hook);
        self
    }

    /// Adds validations of kinds that may change.
    pub(crate) fn with_objects(mut self, objects: Option<ObjectWebhooks>) -> Self {
        self.objects = objects;
        self
    }

    /// Waits until there are kinds that may change; for ever if there are none.
    pub(crate) async fn expected(&self) {
        match &self.objects {
            Some(objects) => objects.expected().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn lifetime(&self) -> Duration {
        self.lifetime.unwrap_or(LIFETIME)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;

    use super::{Request, webhooks};

    #[test]
    fn declarations_that_cannot_work_are_problems() {
        let fine = webhooks()
            .validate(|_: Request<Pod>| async { Ok(()) })
            .validate_delete(|_: Request<Pod>| async { Ok(()) })
            .mutate(|pod: Pod, _| async { Ok(pod) })
            .certificate_lifetime(Duration::from_secs(10));
        assert_eq!(fine.problems, [] as [&str; 0]);
        let twice = fine.validate(|_: Request<Pod>| async { Ok(()) });
        let short = twice.certificate_lifetime(Duration::from_secs(9));
        assert_eq!(
            short.problems,
            [
                "v1 Pod has two functions to validate",
                "the lifetime of a certificate is 9s; set at least 10s"
            ]
        );
    }
}
