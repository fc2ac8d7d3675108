//! Sentences that hold at each moment of a history, not only at its end.

use std::collections::BTreeSet;

use anyhow::bail;
use serde_json::{Value, json};

use super::history::Named;
use super::snapshot::{RECORD, title, title_of};
use super::world::World;

/// Fails if a sentence does not hold now.
pub(super) fn check(world: &World) -> anyhow::Result<()> {
    let objects = world.server.objects();
    others_are_left_alone(world, &objects)?;
    objects_have_a_record(world, &objects)?;
    hooks_run_once(world)
}

/// The Job of a hook is created once for each run, unless people delete it.
fn hooks_run_once(world: &World) -> anyhow::Result<()> {
    for job in world.network.repeated_hooks() {
        let title = title_of(&job);
        if !world.touched.contains(&title) && !world.is_disturbed(&job.namespace, "") {
            bail!("{title}, which is a hook, was created twice in one run");
        }
    }
    Ok(())
}

/// Objects of others stay as they were made.
fn others_are_left_alone(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    for (title, made) in &world.others {
        let named = Named::of(made);
        let live = objects.iter().find(|object| Named::of(object) == named);
        let same = |field: &str| live.and_then(|live| live.get(field)) == made.get(field);
        if live.is_none() || !same("spec") || !same("data") {
            bail!("{title}, which belongs to others, was changed or deleted");
        }
    }
    Ok(())
}

/// An object of a release exists only while a record says what else belongs to the release, so that whatever
/// is killed can be continued.
fn objects_have_a_record(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    let mut releases = BTreeSet::new();
    for object in objects
        .iter()
        .filter(|object| object.get("type") == Some(&json!(RECORD)))
    {
        let name = object
            .pointer("/metadata/labels/name")
            .and_then(Value::as_str);
        releases.insert((
            Named::of(object).namespace,
            name.unwrap_or_default().to_owned(),
        ));
    }
    for object in objects {
        let annotation = |name: &str| {
            let path = format!("/metadata/annotations/{name}");
            object
                .pointer(&path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let namespace = annotation("meta.helm.sh~1release-namespace").to_owned();
        let name = annotation("meta.helm.sh~1release-name").to_owned();
        let is_excused = name.is_empty()
            || annotation("helm.sh~1resource-policy") == "keep"
            || object.pointer("/metadata/deletionTimestamp").is_some()
            || world.is_disturbed(&namespace, &name)
            || holds_others(world, object);
        if !is_excused && !releases.contains(&(namespace, name)) {
            bail!("{} belongs to a release without a record", title(object));
        }
    }
    Ok(())
}

/// Returns whether a namespace or a definition has objects of others in it.
fn holds_others(world: &World, object: &Value) -> bool {
    let named = Named::of(object);
    let mut others = world.others.values().map(Named::of);
    others.any(|other| super::people::holds(&named, &other))
}
