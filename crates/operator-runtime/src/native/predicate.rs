//! Changes of a custom resource that are worth a reconcile.

use std::sync::Arc;

use kube::Resource;

/// Decides whether a change of a custom resource triggers a reconcile.
///
/// The creation of an object triggers one unless a predicate of [`new`](Self::new) refuses it; its
/// deletion always does.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap as MyKind;
/// use operator_runtime::native::Predicate;
///
/// let predicate = Predicate::<MyKind>::generation()
///     .or(Predicate::annotations())
///     .and(Predicate::new(|_, object: &MyKind| object.immutable != Some(true)));
/// ```
pub struct Predicate<K>(Arc<Accept<K>>);

/// Decides on the object before the change, if it was known, and after it.
type Accept<K> = dyn Fn(Option<&K>, &K) -> bool + Send + Sync;

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource + 'static> Predicate<K> {
    /// Uses a function of the object before the change, if it was known, and after it.
    pub fn new(accept: impl Fn(Option<&K>, &K) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accept))
    }

    /// Accepts changes of the spec: the API server counts these in `metadata.generation`.
    pub fn generation() -> Self {
        Self::changed(|object| object.meta().generation)
    }

    /// Accepts changes of labels.
    pub fn labels() -> Self {
        Self::changed(|object| object.meta().labels.clone())
    }

    /// Accepts changes of annotations.
    pub fn annotations() -> Self {
        Self::changed(|object| object.meta().annotations.clone())
    }

    /// Accepts only objects that were not known before.
    pub fn created() -> Self {
        Self::new(|before, _| before.is_none())
    }

    /// Accepts every change, also those of the status.
    pub fn any() -> Self {
        Self::new(|_, _| true)
    }

    /// Accepts objects that were not known before, and those where this value changes.
    pub fn changed<V: PartialEq>(value: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        Self::new(move |before, after| before.is_none_or(|before| value(before) != value(after)))
    }

    /// Accepts what both accept.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |before, after| self.accepts(before, after) && other.accepts(before, after))
    }

    /// Accepts what at least one of them accepts.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |before, after| self.accepts(before, after) || other.accepts(before, after))
    }

    /// Accepts what this one refuses.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "reads like `and` and `or`")]
    pub fn not(self) -> Self {
        Self::new(move |before, after| !self.accepts(before, after))
    }

    /// Reports whether a change triggers a reconcile.
    pub fn accepts(&self, before: Option<&K>, after: &K) -> bool {
        (self.0)(before, after)
    }
}

impl<K: Resource + 'static> Default for Predicate<K> {
    /// Accepts changes of the spec, of labels and of annotations.
    fn default() -> Self {
        Self::generation()
            .or(Self::labels())
            .or(Self::annotations())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::Predicate;

    fn map(metadata: &Value) -> ConfigMap {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn predicates_accept_the_changes_they_name_and_combine() {
        type P = Predicate<ConfigMap>;
        let old = map(&json!({"generation": 1, "labels": {"a": "1"}, "annotations": {"b": "1"}}));
        let status = map(
            &json!({"generation": 1, "labels": {"a": "1"}, "annotations": {"b": "1"}, "resourceVersion": "2"}),
        );
        let spec = map(&json!({"generation": 2, "labels": {"a": "1"}, "annotations": {"b": "1"}}));
        let label = map(&json!({"generation": 1, "labels": {"a": "2"}, "annotations": {"b": "1"}}));
        let annotated = map(&json!({"generation": 1, "labels": {"a": "1"}}));
        let changes = [&status, &spec, &label, &annotated];
        for (name, predicate, expected, created) in [
            ("default", P::default(), [false, true, true, true], true),
            (
                "generation",
                P::generation(),
                [false, true, false, false],
                true,
            ),
            ("labels", P::labels(), [false, false, true, false], true),
            (
                "annotations",
                P::annotations(),
                [false, false, false, true],
                true,
            ),
            ("created", P::created(), [false; 4], true),
            ("any", P::any(), [true; 4], true),
            (
                "not",
                P::generation().not(),
                [true, false, true, true],
                false,
            ),
            (
                "or",
                P::labels().or(P::generation()),
                [false, true, true, false],
                true,
            ),
            ("and", P::labels().and(P::generation()), [false; 4], true),
        ] {
            let found = changes.map(|after| predicate.accepts(Some(&old), after));
            assert_eq!(found, expected, "{name}");
            assert_eq!(predicate.accepts(None, &old), created, "{name}");
        }
    }
}
