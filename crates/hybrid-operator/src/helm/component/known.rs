//! The components of one name, each of another custom resource.

use std::collections::hash_map::Entry;
use std::time::Duration;

use helm_core::release::ReleaseName;
use helm_release::engine::Memories;
use helm_release::{Advanced, ReleaseLocation, Releases, Wanted};
use host::HashMap;
use kube::core::ObjectMeta;
use kube_objects::{Key, Primary};
use operator_runtime::controller::Backoff;
use operator_runtime::manager::ControllerContext;
use operator_runtime::telemetry::traces::History;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::super::access::Access;
use super::super::chart::Chart;
use super::super::events::event;
use super::super::locate::{Locator, Place, SubjectError, wanted};
use crate::watches::Watch;

/// The components of one name, of all custom resources.
pub(super) struct KnownComponent {
    access: Access,
    releases: Releases,
    charts: Mutex<HashMap<Key, State>>,
    /// Attempts as last traced.
    traced: Memories<History>,
    /// Pauses after failures.
    pauses: Mutex<Backoff>,
}

/// Chart and values of the component of a custom resource.
struct State {
    /// Uid of the custom resource.
    uid: String,
    chart: Chart,
    values: Value,
    /// Increases with each change of chart or values.
    generation: i64,
}

impl KnownComponent {
    pub(super) fn new(access: Access, releases: Releases) -> Self {
        Self {
            access,
            releases,
            charts: Mutex::default(),
            traced: Memories::default(),
            pauses: Mutex::default(),
        }
    }

    /// Records chart and values of a component. Returns their generation.
    pub(super) fn wants(&self, key: &Key, uid: &str, chart: &Chart, values: &Value) -> i64 {
        let new = |generation| State {
            uid: uid.to_owned(),
            chart: chart.clone(),
            values: values.clone(),
            generation,
        };
        match self.charts.lock().entry(key.clone()) {
            Entry::Vacant(entry) => entry.insert(new(1)).generation,
            Entry::Occupied(mut entry) => {
                let known = entry.get();
                if known.uid != uid {
                    entry.insert(new(1));
                } else if !chart.is_same(&known.chart) || *values != known.values {
                    let next = known.generation + 1;
                    entry.insert(new(next));
                }
                entry.get().generation
            }
        }
    }

    /// Returns whether this process has installed the component.
    pub(super) fn is_installed(&self, key: &Key, uid: &str) -> bool {
        let charts = self.charts.lock();
        charts.get(key).is_some_and(|known| known.uid == uid)
    }

    /// Records that a call has succeeded.
    pub(super) fn succeeded(&self, key: &Key) {
        self.pauses.lock().reset(key);
    }

    /// Returns the pause after a failed call.
    pub(super) fn failed(&self, key: &Key) -> Duration {
        self.pauses.lock().failed(key, 0)
    }

    /// Forgets the component of a custom resource. Returns whether there are others.
    pub(super) fn forget(&self, key: &Key) -> bool {
        self.traced.forget(key);
        self.pauses.lock().reset(key);
        let mut charts = self.charts.lock();
        charts.remove(key);
        self.releases.forget(key) || !charts.is_empty()
    }

    /// Finds the release of a component. `name` is its name, if one is chosen.
    pub(super) fn place(
        &self,
        primary: &Primary,
        name: Option<&str>,
        deleting: bool,
        context: &ControllerContext,
    ) -> Result<Place, SubjectError> {
        let (watch, home) = (
            Watch::new(primary.gvk.clone(), ""),
            context.identity.namespace.as_deref(),
        );
        let locator = Locator {
            watch: &watch,
            home,
            namespaces: &context.namespaces,
            store: &self.access.releases.store,
            others: &self.access.other_records,
        };
        locator.place(primary, deleting, || {
            let mut wanted = wanted(primary, &Value::Null, &watch, home)?;
            if let Some(name) = name {
                wanted.name = ReleaseName::new(name)?;
            }
            Ok(wanted)
        })
    }

    /// Advances the release of a component, and sends its events.
    pub(super) async fn advance(
        &self,
        primary: &Primary,
        location: &ReleaseLocation,
        wanted: Option<&Wanted>,
        until: Instant,
    ) -> Advanced {
        let key = Key::from(primary);
        let metadata = ObjectMeta {
            name: Some(primary.name.clone()),
            namespace: primary.namespace.clone(),
            uid: Some(primary.uid.clone()),
            generation: wanted.map(|wanted| wanted.generation),
            ..ObjectMeta::default()
        };
        let mut history = self.traced.take(&key, &primary.uid, || {
            self.pauses.lock().reset(&key);
        });
        let pause = self.pauses.lock().next(&key);
        let call = async {
            let releases = &self.releases;
            let advanced = releases.advance(primary, location, wanted, pause, until);
            let advanced = advanced.await;
            match &advanced.next {
                Ok(_) => Ok(advanced),
                Err(_) => Err(advanced),
            }
        };
        let tracer = &self.access.tracer;
        let attempt = tracer.attempt(&mut history, &metadata, Box::pin(call));
        let mut advanced = attempt.await.unwrap_or_else(|advanced| advanced);
        let events = &self.access.events;
        for notice in advanced.events.drain(..) {
            match &notice.namespace {
                Some(namespace) => {
                    let event = event(&notice);
                    events.publish_about_namespace(namespace, event).await;
                }
                None => events.publish(primary, event(&notice)).await,
            }
        }
        advanced
    }
}
