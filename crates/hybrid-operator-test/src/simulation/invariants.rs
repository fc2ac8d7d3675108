//! Sentences that hold at each moment of a history, not only at its end.

use std::collections::BTreeSet;

use anyhow::bail;
use data_encoding::BASE64;
use serde_json::{Value, json};

use super::history::Named;
use super::people::{holds, is_held};
use super::permitted::is_kept;
use super::snapshot::{RECORD, text, title, title_of};
use super::world::World;
use crate::api_server::ApiServer;
use crate::request::Recorded;

/// Shortest value of a Secret that other texts do not contain by chance.
const GUESSED: usize = 8;

/// Fails if a sentence does not hold now.
pub(super) fn check(world: &World) -> anyhow::Result<()> {
    let objects = world.server.objects();
    others_are_left_alone(world, &objects)?;
    finalizers_stay(world, &objects)?;
    orphans_stay(world, &objects)?;
    objects_have_a_record(world, &objects)?;
    secrets_are_not_shown(&objects)?;
    hooks_run_once(world)
}

/// Returns the sentence that a request of a program breaks. `leader` is the name of the process if only the
/// elected one may write.
pub(super) fn broken_by(
    server: &ApiServer,
    leader: Option<&str>,
    request: &Recorded,
) -> Option<String> {
    let kind = request.resource.as_str();
    if !request.is_write() || matches!(kind, "leases" | "events") || kind.ends_with("reviews") {
        return None;
    }
    let what = || {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let name = request.name.as_deref().unwrap_or_default();
        format!("{} {namespace}/{name}", request.kind())
    };
    if let Some(process) = leader
        && !leads(server, process)
    {
        return Some(format!("{process}, which does not lead, sent {}", what()));
    }
    // A collection is chosen by its labels.
    if request.verb != "delete" {
        return None;
    }
    if request.json().pointer("/preconditions/uid").is_none() {
        return Some(format!("a deletion without a uid: {}", what()));
    }
    let kept = server.at(&request.path).is_some_and(|live| is_kept(&live));
    kept.then(|| format!("a deletion of an object that is to be kept: {}", what()))
}

/// Returns whether a process holds a lease.
pub(super) fn leads(server: &ApiServer, process: &str) -> bool {
    let leases = server.objects_of("Lease");
    let mut holders = leases
        .iter()
        .map(|lease| text(lease, "/spec/holderIdentity"));
    holders.any(|holder| holder.split('_').next() == Some(process))
}

/// No value that a chart puts into a Secret is in a status or an event.
fn secrets_are_not_shown(objects: &[Value]) -> anyhow::Result<()> {
    let secrets = objects.iter().filter(|object| {
        object.get("kind") == Some(&json!("Secret")) && object.get("type") != Some(&json!(RECORD))
    });
    let data = secrets
        .filter_map(|secret| secret.get("data")?.as_object())
        .flat_map(serde_json::Map::values);
    let decoded = data.filter_map(|value| BASE64.decode(value.as_str()?.as_bytes()).ok());
    let values: Vec<String> = decoded
        .filter_map(|value| String::from_utf8(value).ok())
        .filter(|value| value.len() >= GUESSED)
        .collect();
    if values.is_empty() {
        return Ok(());
    }
    for object in objects {
        let shown = match object.get("kind").and_then(Value::as_str) {
            Some("Event") => Some(object),
            Some("Secret" | "ConfigMap") => None,
            _ => object.get("status"),
        };
        let Some(shown) = shown.map(Value::to_string) else {
            continue;
        };
        if values.iter().any(|value| shown.contains(value)) {
            bail!("{} shows a value of a Secret: {shown}", title(object));
        }
    }
    Ok(())
}

/// The Job of a hook is created once for each run, unless people delete it or a record, after which an earlier
/// revision may run anew.
fn hooks_run_once(world: &World) -> anyhow::Result<()> {
    for job in world.network.repeated_hooks() {
        let title = title_of(&job);
        let namespace = format!("Namespace /{}", job.namespace);
        let mut lost = world.lost.keys();
        let is_lost = lost.any(|(namespace, _)| *namespace == job.namespace);
        let is_hurried = world.hurried.contains("") || world.hurried.contains(&job.namespace);
        let is_touched = world.touched.contains(&title) || world.touched.contains(&namespace);
        if !is_lost && !is_hurried && !is_touched {
            bail!("{title}, which is a hook, was created twice in one run");
        }
    }
    Ok(())
}

/// Objects of others stay as they were made.
fn others_are_left_alone(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    for (title, (made, created)) in &world.others {
        let named = Named::of(made);
        let live = objects.iter().find(|object| Named::of(object) == named);
        let same = |field: &str| live.and_then(|live| live.get(field)) == made.get(field);
        if live.is_none() && world.network.has_raced(&named, *created) {
            continue;
        }
        if live.is_none() || !same("spec") || !same("data") {
            bail!("{title}, which belongs to others, was changed or deleted");
        }
    }
    Ok(())
}

/// Objects that outlive a custom resource stay, unless people delete them or their namespace.
fn orphans_stay(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    for (named, (custom, uid)) in &world.staying {
        let mut same = objects.iter().filter(|object| Named::of(object) == *named);
        let is_touched = |title: &String| {
            *title == title_of(named) || *title == format!("Namespace /{}", named.namespace)
        };
        if !same.any(|object| text(object, "/metadata/uid") == uid)
            && !world.touched.iter().any(is_touched)
        {
            bail!("{} did not outlive {custom}", title_of(named));
        }
    }
    Ok(())
}

/// A finalizer of others stays until they take it away.
fn finalizers_stay(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    let is_live = |object: &&Value| world.held.contains(&Named::of(object));
    for object in objects.iter().filter(is_live) {
        if !is_held(object) {
            bail!("{} has lost a finalizer of others", title(object));
        }
    }
    Ok(())
}

/// Returns whether an object has a generated name and has outlived its custom resource: the one that takes the release
/// over does not know it.
fn is_generated_of_orphan(world: &World, object: &Value, release: &str) -> bool {
    let mut customs = world.orphaned.keys();
    // Releases have the names of their custom resources.
    object.pointer("/metadata/generateName").is_some() && customs.any(|named| named.name == release)
}

/// An object of a release exists only while a record says what else belongs to the release, so that whatever
/// is killed can be continued.
fn objects_have_a_record(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    let mut releases = BTreeSet::new();
    let is_record = |object: &&Value| text(object, "/type") == RECORD;
    for object in objects.iter().filter(is_record) {
        let name = text(object, "/metadata/labels/name").to_owned();
        releases.insert((Named::of(object).namespace, name));
    }
    for object in objects {
        let annotation = |name: &str| text(object, &format!("/metadata/annotations/{name}"));
        let namespace = annotation("meta.helm.sh~1release-namespace").to_owned();
        let name = annotation("meta.helm.sh~1release-name").to_owned();
        let is_excused = name.is_empty()
            || annotation("helm.sh~1resource-policy") == "keep"
            || object.pointer("/metadata/deletionTimestamp").is_some()
            || world.is_disturbed(&namespace, &name)
            || is_generated_of_orphan(world, object, &name)
            || holds_others(world, object);
        if !is_excused && !releases.contains(&(namespace, name)) {
            bail!("{} belongs to a release without a record", title(object));
        }
    }
    Ok(())
}

/// Returns whether a namespace or a definition has, or may have, objects of others in it.
fn holds_others(world: &World, object: &Value) -> bool {
    let named = Named::of(object);
    let is_container = ["Namespace", "CustomResourceDefinition"].contains(&named.kind.as_str());
    world.network.has_forbidden() && is_container
        || world.used_by_others().any(|other| holds(&named, &other))
}
