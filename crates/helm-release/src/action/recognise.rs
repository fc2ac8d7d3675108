//! Checks after a restart whether the objects of a release still match the status.

use helm_core::manifest::{ManifestObject, ObjectKey};
use kube_objects::DiscoveryError;
use kube_objects::apply::{ApplyError, is_generated, merged_lists};
use kube_objects::watch::{WatchGuard, WatchState};
use tokio::time::Instant;

use super::context::{ActionContext, generated_run};
use super::error::ActionError;
use super::live::{
    Content, Live, LiveObject, Read, Reading, expires, merged_note, read_one, settled,
};
use super::location::{ObjectLocation, locate};

/// The result of [`recognise`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recognition {
    /// All objects match the status; their state is known from now on.
    Known,
    /// Some objects differ. The status has one hash for all objects, so only missing ones can be
    /// named.
    Differs {
        /// Objects that do not exist.
        missing: Vec<ObjectKey>,
    },
    /// Some objects can neither be watched nor read.
    Unseen,
}

/// Opens the watches of a revision's objects and checks whether the objects match the hash in the
/// status (`baseline`, see [`Live::aggregate`]). Only objects that cannot be watched are read.
///
/// The watches stay open in any case. `live` is updated only for [`Recognition::Known`].
///
/// # Errors
/// When discovery fails. A kind that is not served is [`Recognition::Unseen`], not an error.
pub(crate) async fn recognise(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    manifest: &[ManifestObject],
    baseline: &str,
) -> Result<Recognition, ActionError> {
    let mut locations = Vec::new();
    let mut unseen = false;
    for object in manifest {
        match locate(context, object.key()).await {
            Ok(location) => locations.push((object, location)),
            Err(DiscoveryError::UnknownKind { .. }) => unseen = true,
            Err(error) => return Err(ApplyError::from(error).into()),
        }
    }
    live.hold(locations.iter().map(|(_, location)| location.guard.clone()));
    // The watches start concurrently; those that have not started in time count as unseen below.
    let starting = locations
        .iter()
        .map(|(_, location)| settled(&location.guard));
    futures::future::join_all(starting).await;
    let mut found = Live::default();
    let mut missing = Vec::new();
    for (object, location) in locations {
        match look_up(context, revision, object, location).await {
            Lookup::Found(key, seen) => drop(found.objects.insert(key, *seen)),
            Lookup::Missing(_) if expires(object) => {}
            Lookup::Missing(key) => missing.push(key),
            Lookup::Unseen => unseen = true,
        }
    }
    if unseen {
        return Ok(Recognition::Unseen);
    }
    if !missing.is_empty() || found.aggregate() != baseline {
        return Ok(Recognition::Differs { missing });
    }
    live.begin(revision, context.now);
    live.objects = found.objects;
    // The status tells what was not done as rendered.
    live.complete(manifest, context);
    Ok(Recognition::Known)
}

/// The result of looking up an object of a manifest.
enum Lookup {
    Found(ObjectKey, Box<LiveObject>),
    Missing(ObjectKey),
    Unseen,
}

async fn look_up(
    context: &ActionContext<'_>,
    revision: u32,
    object: &ManifestObject,
    location: ObjectLocation,
) -> Lookup {
    let ObjectLocation { mut key, guard, .. } = location;
    let mut run = None;
    if is_generated(object.object()) {
        // The API server generated the name. If the owner owns exactly one object with
        // this prefix, that is the one.
        let Some(name) = generated_name(context, object, &key, &guard) else {
            return Lookup::Unseen;
        };
        key.name = name;
        run = Some(generated_run(&context.primary.uid, revision, object));
    }
    let (uid, version, ours, reading) = match guard.state() {
        WatchState::Starting => return Lookup::Unseen,
        WatchState::Synced => match guard.get(key.namespace.as_deref(), &key.name) {
            Some(seen) => (seen.uid.as_ref().into(), seen.version, seen.ours, None),
            None => return Lookup::Missing(key),
        },
        WatchState::Forbidden(_) | WatchState::Missing | WatchState::Failing(_) => {
            match read_one(context.cluster, &key).await {
                Ok(Reading::Absent) => return Lookup::Missing(key),
                Ok(
                    ref reading @ Reading::Present {
                        ref uid,
                        version,
                        ours,
                        ..
                    },
                ) => (
                    uid.as_str().into(),
                    version,
                    ours,
                    Some(Box::new(Read {
                        result: reading.clone(),
                        after: None,
                    })),
                ),
                Ok(Reading::Refused { .. }) | Err(_) => return Lookup::Unseen,
            }
        }
    };
    let seen = LiveObject {
        uid,
        ours,
        version,
        content: Content::Recorded,
        unscaled: false,
        replaced: false,
        note: merged_note(&key, &merged_lists(object.object())).map(Into::into),
        run: run.map(Into::into),
        expires: expires(object),
        reapplied: 0,
        guard,
        since: Instant::now(),
        reading,
    };
    Lookup::Found(key, Box::new(seen))
}

/// Returns the name that the API server generated for an object; `None` unless exactly one object
/// matches.
fn generated_name(
    context: &ActionContext<'_>,
    object: &ManifestObject,
    key: &ObjectKey,
    guard: &WatchGuard,
) -> Option<String> {
    let prefix = object
        .object()
        .pointer("/metadata/generateName")?
        .as_str()?;
    let mut names = guard
        .owned_by(&context.primary.identity())
        .into_iter()
        .filter(|(namespace, name, _)| {
            namespace.as_deref() == key.namespace.as_deref() && name.starts_with(prefix)
        });
    let (_, name, _) = names.next()?;
    names.next().is_none().then(|| name.to_string())
}
