//! Limits the controllers to namespaces that a label selector selects, while labels change.
//!
//! A key whose namespace is not selected is set aside when its turn comes, and put back into its queue
//! when the namespace is selected.

use host::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Key, ObjectCache};

/// Told of a namespace that is selected.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// The selected namespaces. The default selects all.
#[derive(Clone, Default)]
pub(crate) struct NamespaceFilter(Option<Arc<Mutex<Selected>>>);

#[derive(Default)]
struct Selected {
    names: HashSet<String>,
    listeners: Vec<Listener>,
}

impl NamespaceFilter {
    /// Selects the namespaces in a cache, which holds those that the selector selects.
    pub(crate) fn of<O>(cache: &ObjectCache<O>) -> Self
    where
        O: Send + Sync + 'static,
    {
        let selected: Arc<Mutex<Selected>> = Arc::default();
        let updated = Arc::clone(&selected);
        cache.subscribe(Box::new(move |key, _, after| {
            let mut selected = updated.lock();
            if after.is_none() {
                selected.names.remove(&*key.name);
            } else if selected.names.insert(key.name.to_string()) {
                for listener in &selected.listeners {
                    listener(&key.name);
                }
            }
        }));
        Self(Some(selected))
    }

    /// Returns whether the objects of a namespace are reconciled. Cluster-scoped objects always are.
    pub(crate) fn accepts(&self, key: &Key) -> bool {
        match (&self.0, &key.namespace) {
            (Some(selected), Some(namespace)) => selected.lock().names.contains(&**namespace),
            _ => true,
        }
    }

    /// Calls `listener` for each namespace that is selected from now on. It must not call the filter.
    pub(super) fn on_selected(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        if let Some(selected) = &self.0 {
            selected.lock().listeners.push(Box::new(listener));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;

    use super::NamespaceFilter;
    use crate::controller::{Backoff, Cached, Key, ObjectCache, Priority, QueueHandle};
    use crate::telemetry::metrics::ControllerMetrics;
    use kube_objects::shards::Shards;

    fn namespace(name: &str) -> Namespace {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    #[test]
    fn keys_of_other_namespaces_wait_until_theirs_is_selected() {
        let cache = ObjectCache::of([namespace("a")]);
        let filter = NamespaceFilter::of(&cache);
        let metrics = ControllerMetrics::detached("filtered");
        let queue = QueueHandle::filtered(metrics, Backoff::default(), &filter, &Shards::default());
        let key = |namespace| Key::new(Some(namespace), "x");
        for key in [key("a"), key("b"), Key::new(None, "x")] {
            queue.add(key, Priority::Event);
        }
        let expected = BTreeSet::from([key("a"), Key::new(None, "x")]);
        assert_eq!(queue.ready(), expected);
        assert_eq!(queue.ready(), BTreeSet::new());
        let found = Cached::Object(Arc::new(namespace("b")));
        cache.store(&Key::new(None, "b"), &found);
        assert_eq!(queue.ready(), BTreeSet::from([key("b")]));
        cache.remove(&Key::new(None, "b"));
        queue.add(key("b"), Priority::Event);
        assert_eq!(queue.ready(), BTreeSet::new());
    }
}
