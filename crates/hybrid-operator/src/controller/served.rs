//! Wakes custom resources when the cluster begins or ceases to serve a kind that they depend on.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::core::GroupVersionKind;
use tokio_util::sync::CancellationToken;

use super::{Key, Priority, QueueHandle};
use crate::cluster::{ApiKind, Cluster};

/// The kinds that the custom resources of one controller depend on.
pub(crate) struct ServedKinds {
    cluster: Cluster,
    queue: QueueHandle,
    stop: CancellationToken,
    wanted: Arc<Mutex<Wanted>>,
}

/// Who depends on what.
#[derive(Debug, Default)]
struct Wanted {
    /// How each kind was served when a custom resource asked last.
    kinds: HashMap<GroupVersionKind, HashMap<Key, Served>>,
    /// Those that depend on everything that is served.
    capabilities: HashSet<Key>,
    /// Whether the task runs that waits for changes.
    followed: bool,
}

/// How a kind is served, if it is.
type Served = Option<Arc<ApiKind>>;

impl Wanted {
    /// Takes in that something else is served than before; the custom resources that it concerns.
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
    /// Nobody depends on anything yet.
    pub(crate) fn new(cluster: Cluster, queue: QueueHandle, stop: CancellationToken) -> Self {
        Self {
            cluster,
            queue,
            stop,
            wanted: Arc::default(),
        }
    }

    /// Wakes a custom resource from now on when this kind comes, goes or is served in another way.
    /// To be called before the kind is resolved.
    pub(crate) fn add_kind(&self, gvk: &GroupVersionKind, key: &Key) {
        let mut wanted = self.lock();
        let served = self.cluster.discovery().served(gvk);
        let keys = wanted.kinds.entry(gvk.clone()).or_default();
        keys.insert(key.clone(), served);
        self.follow(&mut wanted);
    }

    /// Wakes a custom resource from now on when anything else is served than before. To be called
    /// before the capabilities are read.
    pub(crate) fn add_capabilities(&self, key: &Key) {
        let mut wanted = self.lock();
        wanted.capabilities.insert(key.clone());
        self.follow(&mut wanted);
    }

    /// Forgets a custom resource.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().forget(key);
    }

    /// Starts to wait for changes, once.
    fn follow(&self, wanted: &mut Wanted) {
        if std::mem::replace(&mut wanted.followed, true) {
            return;
        }
        let (cluster, queue) = (self.cluster.clone(), self.queue.clone());
        let wanted = Arc::downgrade(&self.wanted);
        let mut changes = cluster.changes();
        let follow = async move {
            while changes.changed().await.is_ok() {
                let Some(wanted) = wanted.upgrade() else {
                    return;
                };
                let woken = lock(&wanted).changed(|gvk| cluster.discovery().served(gvk));
                for key in woken {
                    queue.add(key, Priority::Event);
                }
            }
        };
        let stop = self.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(follow).await });
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        lock(&self.wanted)
    }
}

fn lock(wanted: &Mutex<Wanted>) -> MutexGuard<'_, Wanted> {
    wanted.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::cluster::Scope;
    use crate::cluster::scripted::Script;
    use crate::telemetry::metrics::ControllerMetrics;

    fn gvk(kind: &str) -> GroupVersionKind {
        GroupVersionKind::gvk("example.com", "v1", kind)
    }

    fn key(name: &str) -> Key {
        Key::new(Some("n"), name)
    }

    #[test]
    fn a_change_wakes_those_who_saw_the_kind_otherwise_and_those_who_read_the_capabilities() {
        let fixture = |scope| {
            let kind = ApiKind::fixture("example.com", "v1", "Widget", "widgets", scope);
            Some(Arc::new(kind))
        };
        let (widget, moved) = (fixture(Scope::Namespaced), fixture(Scope::Cluster));
        let mut wanted = Wanted::default();
        wanted.capabilities.insert(key("reads-all"));
        let widgets = wanted.kinds.entry(gvk("Widget")).or_default();
        widgets.insert(key("waits"), None);
        widgets.insert(key("knows"), widget.clone());
        let gadgets = wanted.kinds.entry(gvk("Gadget")).or_default();
        gadgets.insert(key("other"), None);
        for (what, widget, woken) in [
            ("it comes", widget.clone(), &["reads-all", "waits"][..]),
            ("something else changes", widget, &["reads-all"]),
            (
                "it is served in another way",
                moved,
                &["knows", "reads-all", "waits"],
            ),
            ("it goes", None, &["knows", "reads-all", "waits"]),
        ] {
            let served = |of: &GroupVersionKind| widget.clone().filter(|_| of.kind == "Widget");
            let found = wanted.changed(served);
            let expected = woken.iter().map(|name| key(name)).collect();
            assert_eq!(found, expected, "{what}");
        }
        wanted.forget(&key("knows"));
        wanted.forget(&key("reads-all"));
        assert_eq!(
            wanted.changed(|_| fixture(Scope::Namespaced)),
            HashSet::from([key("waits"), key("other")])
        );
        wanted.forget(&key("other"));
        assert!(!wanted.kinds.contains_key(&gvk("Gadget")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_comes_puts_custom_resources_into_the_queue() {
        let served = |kinds: &[&str]| {
            let resources: Vec<_> = kinds
                .iter()
                .map(|kind| json!({"resource": kind, "responseKind": {"kind": kind}}))
                .collect();
            json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "example.com"},
                "versions": [{"version": "v1", "resources": resources}]}]})
        };
        let none = json!({"kind": "APIGroupDiscoveryList", "items": []});
        let script = Script::default()
            .in_any_order()
            .on("GET /api", 200, none.clone())
            .on("GET /apis", 200, served(&["Gadget"]))
            .on("GET /api", 200, none)
            .on("GET /apis", 200, served(&["Gadget", "Widget"]));
        let cluster = Cluster::new(script.client(false));
        let queue = QueueHandle::new(ControllerMetrics::detached("served"));
        let kinds = ServedKinds::new(cluster.clone(), queue.clone(), CancellationToken::new());
        cluster.discovery().refresh().await.unwrap();
        kinds.add_kind(&gvk("Widget"), &key("waits"));
        kinds.add_kind(&gvk("Gadget"), &key("knows"));
        kinds.add_capabilities(&key("reads-all"));
        kinds.add_capabilities(&key("gone"));
        kinds.forget(&key("gone"));
        cluster.discovery().refresh().await.unwrap();
        // Time passes when every task waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let ready = queue.ready();
        assert_eq!(ready, [key("reads-all"), key("waits")].into());
        assert_eq!(cluster.capabilities_epoch(), 1);
        script.finish();
    }
}
