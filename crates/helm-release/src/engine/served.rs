//! Wakes owners when the cluster starts or stops serving a kind that they depend on.

use host::{HashMap, HashSet};
use std::sync::Arc;

use kube::core::GroupVersionKind;
use kube_objects::{ApiKind, Cluster, Key};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::access::{Wake, Waking};

/// The kinds that the releases of one controller depend on.
pub(crate) struct ServedKinds {
    cluster: Cluster,
    wake: Wake,
    /// Cancelled when the instance is dropped.
    stop: CancellationToken,
    _stop: DropGuard,
    dependencies: Arc<Mutex<Dependencies>>,
}

/// The dependencies of owners on kinds.
#[derive(Debug, Default)]
struct Dependencies {
    /// For each kind, how it was served when an owner last registered.
    kinds: HashMap<GroupVersionKind, HashMap<Key, Served>>,
    /// Owners that depend on all served kinds.
    capabilities: HashSet<Key>,
    /// Whether the task that waits for changes is running.
    followed: bool,
}

/// The served kind, or `None`.
type Served = Option<Arc<ApiKind>>;

impl Dependencies {
    /// Updates the kinds after a change of discovery, and returns the affected owners.
    fn changed(&mut self, served: impl Fn(&GroupVersionKind) -> Served) -> HashSet<Key> {
        let mut woken = self.capabilities.clone();
        for (gvk, keys) in &mut self.kinds {
            let now = served(gvk);
            for (key, before) in keys {
                if *before != now {
                    before.clone_from(&now);
                    woken.insert(key.clone());
                }
            }
        }
        woken
    }

    fn forget(&mut self, key: &Key) {
        self.capabilities.remove(key);
        self.kinds.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }
}

impl ServedKinds {
    pub(crate) fn new(cluster: Cluster, waking: Waking) -> Self {
        let stop = waking.stop.child_token();
        Self {
            cluster,
            wake: waking.wake,
            _stop: stop.clone().drop_guard(),
            stop,
            dependencies: Arc::default(),
        }
    }

    /// Wakes an owner from now on when this kind is added, removed or served differently.
    /// Must be called before the kind is resolved.
    pub(crate) fn add_kind(&self, gvk: &GroupVersionKind, key: &Key) {
        let mut dependencies = self.dependencies.lock();
        let served = self.cluster.discovery().cached(gvk);
        let keys = dependencies.kinds.entry(gvk.clone()).or_default();
        keys.insert(key.clone(), served);
        self.follow(&mut dependencies);
    }

    /// Wakes an owner from now on when the served kinds change. Must be called before the
    /// capabilities are read.
    pub(crate) fn add_capabilities(&self, key: &Key) {
        let mut dependencies = self.dependencies.lock();
        dependencies.capabilities.insert(key.clone());
        self.follow(&mut dependencies);
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.dependencies.lock().forget(key);
    }

    /// Starts the task that waits for changes, unless it is running.
    fn follow(&self, locked: &mut Dependencies) {
        if std::mem::replace(&mut locked.followed, true) {
            return;
        }
        let (cluster, wake) = (self.cluster.clone(), Arc::clone(&self.wake));
        let dependencies = Arc::downgrade(&self.dependencies);
        let mut changes = cluster.changes();
        let follow = async move {
            while changes.changed().await.is_ok() {
                let Some(dependencies) = dependencies.upgrade() else {
                    return;
                };
                let woken = dependencies
                    .lock()
                    .changed(|gvk| cluster.discovery().cached(gvk));
                for key in woken {
                    wake(&key);
                }
            }
        };
        let stop = self.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(follow).await });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hybrid_operator_test::scripted::Script;
    use serde_json::json;

    use super::*;
    use kube::core::ApiResource;
    use kube_objects::Scope;

    fn gvk(kind: &str) -> GroupVersionKind {
        GroupVersionKind::gvk("example.com", "v1", kind)
    }

    fn key(name: &str) -> Key {
        Key::new(Some("n"), name)
    }

    #[test]
    fn a_change_wakes_dependents_of_the_changed_kind_and_of_the_capabilities() {
        let fixture = |scope| {
            let resource = ApiResource::from_gvk(&gvk("Widget"));
            Some(Arc::new(ApiKind::of_type(resource, scope)))
        };
        let (widget, moved) = (fixture(Scope::Namespaced), fixture(Scope::Cluster));
        let mut dependencies = Dependencies::default();
        dependencies.capabilities.insert(key("reads-all"));
        let widgets = dependencies.kinds.entry(gvk("Widget")).or_default();
        widgets.insert(key("waits"), None);
        widgets.insert(key("knows"), widget.clone());
        let gadgets = dependencies.kinds.entry(gvk("Gadget")).or_default();
        gadgets.insert(key("other"), None);
        for (what, widget, woken) in [
            (
                "the kind is added",
                widget.clone(),
                &["reads-all", "waits"][..],
            ),
            ("another kind changes", widget, &["reads-all"]),
            (
                "the kind is served differently",
                moved,
                &["knows", "reads-all", "waits"],
            ),
            (
                "the kind is removed",
                None,
                &["knows", "reads-all", "waits"],
            ),
        ] {
            let served = |of: &GroupVersionKind| widget.clone().filter(|_| of.kind == "Widget");
            let found = dependencies.changed(served);
            let expected = woken.iter().map(|name| key(name)).collect();
            assert_eq!(found, expected, "{what}");
        }
        dependencies.forget(&key("knows"));
        dependencies.forget(&key("reads-all"));
        let wanted = HashSet::from_iter([key("waits"), key("other")]);
        assert_eq!(dependencies.changed(|_| fixture(Scope::Namespaced)), wanted);
        dependencies.forget(&key("other"));
        assert!(!dependencies.kinds.contains_key(&gvk("Gadget")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_added_kind_puts_custom_resources_into_the_queue() {
        let served = |kinds: &[&str]| {
            let resources: Vec<_> = kinds
                .iter()
                .map(|kind| json!({"resource": kind, "responseKind": {"kind": kind}}))
                .collect();
            json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "example.com"},
                "versions": [{"version": "v1", "resources": resources}]}]})
        };
        let none = served(&[]);
        let script = Script::default()
            .in_any_order()
            .on("GET /api", 200, none.clone())
            .on("GET /apis", 200, served(&["Gadget"]))
            .on("GET /api", 200, none)
            .on("GET /apis", 200, served(&["Gadget", "Widget"]));
        let cluster = Cluster::new(script.client());
        let (waking, woken) = Waking::remembering();
        let kinds = ServedKinds::new(cluster.clone(), waking);
        cluster.discovery().refresh().await.unwrap();
        kinds.add_kind(&gvk("Widget"), &key("waits"));
        kinds.add_kind(&gvk("Gadget"), &key("knows"));
        kinds.add_capabilities(&key("reads-all"));
        kinds.add_capabilities(&key("gone"));
        kinds.forget(&key("gone"));
        cluster.discovery().refresh().await.unwrap();
        // Paused time advances once every task waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*woken.lock(), [key("reads-all"), key("waits")].into());
        assert_eq!(cluster.capabilities_epoch(), 1);
        script.finish();
    }
}
