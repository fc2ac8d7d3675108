//! After a restart: whether the objects of a release still are as the status says.

use helm_core::manifest::{ManifestObject, ObjectKey};

use super::live::{Live, LiveObject, Place, Reading, expires, place_of, read_one, settled};
use super::{ActionContext, ActionError, generated_run};
use crate::cluster::DiscoveryError;
use crate::cluster::apply::{ApplyError, is_generated};
use crate::controller::{WatchGuard, WatchState};

/// What [`recognise`] has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recognition {
    /// All objects are as the status says: they are known from now on.
    Known,
    /// Something differs. The status keeps one hash for all objects, so that only those that are
    /// gone can be named.
    Differs {
        /// Objects that are gone.
        missing: Vec<ObjectKey>,
    },
    /// Not every object can be seen.
    Unseen,
}

/// After a restart: opens the watches of a revision's objects, and looks whether all of these are
/// as the status says (`baseline`, see [`Live::aggregate`]). Nothing is read of what is watched.
///
/// The watches stay open whatever is found. Where it is not [`Recognition::Known`], what `live`
/// knows stays as it is.
///
/// # Errors
/// When it cannot be found out how a kind is served; a kind that is not served is
/// [`Recognition::Unseen`].
pub async fn recognise(
    context: &ActionContext<'_>,
    live: &mut Live,
    revision: u32,
    manifest: &[ManifestObject],
    baseline: &str,
) -> Result<Recognition, ActionError> {
    let mut places = Vec::new();
    let mut unseen = false;
    for object in manifest {
        match place_of(context, object.key()).await {
            Ok(place) => places.push((object, place)),
            Err(DiscoveryError::UnknownKind { .. }) => unseen = true,
            Err(error) => return Err(ApplyError::from(error).into()),
        }
    }
    live.hold(places.iter().map(|(_, place)| place.guard.clone()));
    // All of them together take as long as one; those that have not begun by then are told of below.
    let begun = places.iter().map(|(_, place)| settled(&place.guard));
    futures::future::join_all(begun).await;
    let mut found = Live::default();
    let mut missing = Vec::new();
    for (object, place) in places {
        match sight(context, revision, object, place).await {
            Sighting::Found(key, seen) => drop(found.objects.insert(key, *seen)),
            Sighting::Missing(_) if expires(object) => {}
            Sighting::Missing(key) => missing.push(key),
            Sighting::Unseen => unseen = true,
        }
    }
    if unseen {
        return Ok(Recognition::Unseen);
    }
    if !missing.is_empty() || found.aggregate() != baseline {
        return Ok(Recognition::Differs { missing });
    }
    live.begin(revision);
    live.objects = found.objects;
    live.finish(manifest, context);
    Ok(Recognition::Known)
}

/// How an object of a manifest is found.
enum Sighting {
    Found(ObjectKey, Box<LiveObject>),
    Missing(ObjectKey),
    Unseen,
}

async fn sight(
    context: &ActionContext<'_>,
    revision: u32,
    object: &ManifestObject,
    place: Place,
) -> Sighting {
    let Place { mut key, guard, .. } = place;
    let mut run = None;
    if is_generated(object.object()) {
        // The name is the API server's. One object of ours that begins like that is the one.
        let Some(name) = generated_name(context, object, &key, &guard) else {
            return Sighting::Unseen;
        };
        key.name = name;
        run = Some(generated_run(&context.primary.uid, revision, object));
    }
    let (uid, version, ours, reading) = match guard.state() {
        WatchState::Starting => return Sighting::Unseen,
        WatchState::Synced => match guard.get(key.namespace.as_deref(), &key.name) {
            Some(seen) => (seen.uid.to_string(), seen.version, seen.ours, None),
            None => return Sighting::Missing(key),
        },
        WatchState::Forbidden(_) | WatchState::Missing | WatchState::Failing(_) => {
            match read_one(context.cluster, &key).await {
                Ok(Reading::Absent) => return Sighting::Missing(key),
                Ok(
                    ref reading @ Reading::Present {
                        ref uid,
                        version,
                        ours,
                        ..
                    },
                ) => (uid.clone(), version, ours, Some(reading.clone())),
                Ok(Reading::Refused(_)) | Err(_) => return Sighting::Unseen,
            }
        }
    };
    let seen = LiveObject {
        uid,
        ours,
        version,
        content: None,
        run,
        expires: expires(object),
        again: 0,
        guard,
        reading,
    };
    Sighting::Found(key, Box::new(seen))
}

/// The name that the API server has given to an object; `None` unless exactly one can be meant.
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
