//! Answers to the lookups of templates: what they see of the cluster.
//!
//! The text of a `tpl` call may come from an owner, whose author must not read what only
//! the operator may read. During such a call, and in the templates that it includes, only objects of
//! the release's namespace are visible, and no Secrets.

use host::HashSet;
use std::sync::Arc;

use helm_core::engine::{Lookup, LookupAnswer, LookupKey};

/// Maximum number of renders until all `lookup` calls are resolved.
pub const LOOKUP_ROUNDS: usize = 8;

/// Answers to lookups, of which texts given to `tpl` see a part. Cheap to clone.
#[derive(Clone)]
pub struct VisibleObjects<L> {
    answers: L,
    /// The namespace whose objects `tpl` sees; `None` if it sees everything.
    confined_to: Option<Arc<str>>,
    /// The keys of cluster-scoped kinds.
    cluster_scoped: Arc<HashSet<LookupKey>>,
}

impl<L: Lookup> VisibleObjects<L> {
    /// Shows `tpl` the objects of a namespace, or all objects if the lookups of the entry are
    /// trusted.
    pub fn new(
        answers: L,
        namespace: &str,
        trusted: bool,
        cluster_scoped: Arc<HashSet<LookupKey>>,
    ) -> Self {
        Self {
            answers,
            confined_to: (!trusted).then(|| namespace.into()),
            cluster_scoped,
        }
    }

    fn is_visible(&self, key: &LookupKey, namespace: &str) -> bool {
        let holds_secrets = ["secret", "secretlist"]
            .iter()
            .any(|kind| key.kind.trim().eq_ignore_ascii_case(kind));
        key.namespace == namespace && !holds_secrets && !self.cluster_scoped.contains(key)
    }
}

impl<L: Lookup> Lookup for VisibleObjects<L> {
    fn get(&self, key: &LookupKey) -> LookupAnswer {
        self.answers.get(key)
    }

    fn get_in_tpl(&self, key: &LookupKey) -> LookupAnswer {
        match &self.confined_to {
            Some(namespace) if !self.is_visible(key, namespace) => {
                LookupAnswer::Failed(refusal(key, namespace))
            }
            _ => self.answers.get(key),
        }
    }

    fn fetched(&self) -> usize {
        self.answers.fetched()
    }
}

fn refusal(key: &LookupKey, namespace: &str) -> String {
    format!(
        "cannot look up {key}: the text given to tpl may come from a custom resource, so it sees only objects of namespace {namespace} and no Secrets; to let it see everything that the operator may read, set 'lookup: trusted' in watches.yaml"
    )
}

#[cfg(test)]
mod tests {
    use helm_core::engine::Snapshot;

    use super::*;

    fn key(kind: &str, namespace: &str, name: &str) -> LookupKey {
        LookupKey {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn tpl_sees_objects_of_the_release_namespace_and_no_secrets_unless_lookups_are_trusted() {
        let table = [
            ("an object", key("ConfigMap", "prod", "a"), true),
            ("a list", key("ConfigMap", "prod", ""), true),
            ("a Secret", key("Secret", "prod", "a"), false),
            ("Secrets", key("Secret", "prod", ""), false),
            ("a list of Secrets", key("SecretList", "prod", ""), false),
            (
                "a Secret in other letters",
                key("secret ", "prod", "a"),
                false,
            ),
            ("another namespace", key("ConfigMap", "other", "a"), false),
            ("all namespaces", key("ConfigMap", "", ""), false),
            ("a cluster-scoped object", key("Node", "", "a"), false),
            (
                "a cluster-scoped object with a namespace",
                key("Node", "prod", "a"),
                false,
            ),
        ];
        let cluster_scoped = Arc::new(HashSet::from_iter([key("Node", "prod", "a")]));
        for (what, key, visible) in table {
            let mut answers = Snapshot::default();
            answers.insert(key.clone(), LookupAnswer::Found("object".into()));
            let seen = |trusted| {
                let cluster_scoped = Arc::clone(&cluster_scoped);
                let objects = VisibleObjects::new(answers.clone(), "prod", trusted, cluster_scoped);
                assert_eq!(objects.get(&key), answers.get(&key), "{what}");
                objects.get_in_tpl(&key)
            };
            assert_eq!(seen(true), answers.get(&key), "{what}");
            match seen(false) {
                LookupAnswer::Failed(message) => {
                    assert!(!visible, "{what}");
                    assert!(message.contains("lookup: trusted"), "{message}");
                }
                answer => {
                    assert!(visible, "{what}");
                    assert_eq!(answer, answers.get(&key), "{what}");
                }
            }
        }
    }

    #[test]
    fn what_tpl_may_not_see_is_not_fetched() {
        let objects = VisibleObjects::new(Snapshot::default(), "prod", false, Arc::default());
        let secret = key("Secret", "prod", "a");
        assert_eq!(objects.get(&secret), LookupAnswer::Unknown);
        let refused = objects.get_in_tpl(&secret);
        assert!(matches!(refused, LookupAnswer::Failed(_)), "{refused:?}");
    }
}
