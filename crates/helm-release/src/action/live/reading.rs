//! Reads objects whose watches do not show their state.

use std::time::Duration;

use futures::StreamExt;
use helm_core::manifest::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_objects::Cluster;
use kube_objects::drift::ours_hash;
use kube_objects::ownership::holder_of;
use kube_objects::read::{self, ReadError};
use kube_objects::readiness::{Readiness, depends_on_status, readiness_of};
use serde_json::Value;
use tokio::time::Instant;

use super::{Live, gvk_of};

/// Number of unwatched objects that are read concurrently.
const READS_AT_ONCE: usize = 8;

/// A read of an object that its watch does not show.
#[derive(Clone)]
pub(in crate::action) struct Read {
    pub(in crate::action) result: Reading,
    /// The list of the watch that it follows; `None` if the watch was not synced then.
    pub(in crate::action) after: Option<u64>,
}

/// The result of reading an object that its watch does not show.
#[derive(Clone)]
pub(in crate::action) enum Reading {
    Present {
        uid: String,
        version: u64,
        ours: u64,
        /// Uid of its controller, if it is annotated to be kept.
        holder: Option<String>,
        readiness: Readiness,
    },
    Absent,
    /// The object cannot be read either.
    Refused {
        why: String,
        at: Instant,
    },
}

/// Reads the objects that cannot be watched and records their states. Called once per reconcile
/// period.
///
/// Does not wait for watches that are starting. An object that may not be read stays unknown, and
/// [`Live::unwatched`] returns why.
///
/// # Errors
/// Returns the first transient failure. All other objects have been read. Of those that failed, the
/// state is unknown, or missing if they were missing before.
pub(crate) async fn read_unwatched(cluster: &Cluster, live: &mut Live) -> Result<(), ReadError> {
    let unwatched = live.unwatched().into_iter().map(|(key, _)| (key, None));
    let unwatched = unwatched.collect();
    read_all(cluster, live, unwatched).await
}

/// Reads the objects that their watches have not shown for a while, once, and again as long as that is refused:
/// a kind may be served again, and a permission be given.
///
/// # Errors
/// As [`read_unwatched`].
pub(crate) async fn read_unseen(cluster: &Cluster, live: &mut Live) -> Result<(), ReadError> {
    let unseen = live
        .objects
        .iter()
        .filter(|(key, object)| object.unseen_for(key) == Some(Duration::ZERO));
    let unseen = unseen.map(|(key, object)| (key.clone(), Some(object.guard.lists())));
    let unseen = unseen.collect();
    read_all(cluster, live, unseen).await
}

/// Reads objects, each after this list of its watch.
async fn read_all(
    cluster: &Cluster,
    live: &mut Live,
    keys: Vec<(ObjectKey, Option<u64>)>,
) -> Result<(), ReadError> {
    let mut readings = futures::stream::iter(keys)
        .map(|(key, list)| async move {
            let reading = read_one(cluster, &key).await;
            (key, list, reading)
        })
        .buffer_unordered(READS_AT_ONCE);
    let mut failed = None;
    while let Some((key, list, reading)) = readings.next().await {
        let reading = match reading {
            Ok(reading) => reading,
            Err(error) if error.is_transient() => {
                failed.get_or_insert(error);
                let known = live.objects.get_mut(&key);
                // Readiness is not claimed from an old read.
                if let Some(object) = known {
                    let is_present =
                        |read: &mut Box<Read>| matches!(read.result, Reading::Present { .. });
                    object.reading.take_if(is_present);
                }
                continue;
            }
            Err(error) => Reading::Refused {
                why: error.to_string(),
                at: Instant::now(),
            },
        };
        if let Some(object) = live.objects.get_mut(&key) {
            object.reading = Some(Box::new(Read {
                result: reading,
                after: list,
            }));
        }
    }
    failed.map_or(Ok(()), Err)
}

pub(in crate::action) async fn read_one(
    cluster: &Cluster,
    key: &ObjectKey,
) -> Result<Reading, ReadError> {
    let gvk = gvk_of(key);
    let (metadata, readiness) = if depends_on_status(&gvk) {
        let Some(mut object) = read::get(cluster, key).await? else {
            return Ok(Reading::Absent);
        };
        let readiness = readiness_of(&gvk, &object);
        let metadata = object.get_mut("metadata").map(Value::take);
        let metadata = serde_json::from_value(metadata.unwrap_or_default());
        (metadata.unwrap_or_default(), readiness)
    } else {
        let Some(metadata) = read::get_metadata(cluster, key).await? else {
            return Ok(Reading::Absent);
        };
        let readiness = match metadata.deletion_timestamp {
            Some(_) => Readiness::Terminating,
            None => Readiness::Ready,
        };
        (metadata, readiness)
    };
    let ours = ours_hash(&metadata);
    let holder = holder_of(&metadata).map(ToOwned::to_owned);
    let ObjectMeta {
        uid,
        resource_version,
        ..
    } = metadata;
    Ok(Reading::Present {
        uid: uid.unwrap_or_default(),
        version: resource_version
            .and_then(|version| version.parse().ok())
            .unwrap_or(0),
        ours,
        holder,
        readiness,
    })
}
