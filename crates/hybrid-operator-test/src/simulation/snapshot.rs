//! The content of a cluster at rest, without uids, times and other things that no two runs have in common.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::helm::decode;
use super::history::Named;
use super::permitted::is_kept;

/// Type of the Secrets in which Helm keeps a revision.
pub(super) const RECORD: &str = "helm.sh/release.v1";

/// Begin of their names.
pub(super) const RECORDS: &str = "sh.helm.release.v1.";

/// Objects by kind, namespace and name, and releases by namespace and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Snapshot {
    pub(super) objects: BTreeMap<String, Value>,
}

/// Places where two snapshots differ: an object, and a path in it.
pub(super) type Places = BTreeSet<(String, String)>;

impl Snapshot {
    /// Reduces objects to what counts.
    pub(super) fn of(objects: &[Value], customs: &BTreeSet<String>) -> Self {
        let uids: BTreeMap<&str, String> = objects
            .iter()
            .filter_map(|object| Some((object.pointer("/metadata/uid")?.as_str()?, title(object))))
            .collect();
        let mut reduced = BTreeMap::new();
        let mut generated: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut records: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for object in objects {
            let kind = text(object, "/kind");
            if matches!(kind, "Event" | "Lease") {
                continue;
            }
            if text(object, "/type") == RECORD {
                let record = Record::of(object);
                let revisions = records.entry(record.title.clone()).or_default();
                revisions.push(record);
                continue;
            }
            let value = reduce(object, &uids, customs.contains(kind));
            let prefix = object.pointer("/metadata/generateName");
            if let Some(prefix) = prefix.and_then(Value::as_str) {
                let mut named = Named::of(object);
                let kept = if is_kept(object) { "kept-" } else { "" };
                named.name = format!("{prefix}*{kept}");
                generated.entry(title_of(&named)).or_default().push(value);
            } else {
                reduced.insert(title(object), value);
            }
        }
        for (title, mut values) in generated {
            values.sort_by_key(Value::to_string);
            for (number, value) in values.into_iter().enumerate() {
                reduced.insert(format!("{title}{number}"), value);
            }
        }
        for (title, revisions) in records {
            reduced.insert(title, latest(revisions));
        }
        Self { objects: reduced }
    }

    /// Returns where another snapshot differs.
    pub(super) fn places_of_differences(&self, other: &Self) -> Places {
        let differences = self.differences(other, &Places::new()).into_iter();
        differences.map(|one| (one.object, one.path)).collect()
    }

    /// Returns how another snapshot differs, without the differences at some places.
    pub(super) fn differences(&self, other: &Self, except: &Places) -> Vec<Difference> {
        let mut found = Vec::new();
        let titles: BTreeSet<_> = self.objects.keys().chain(other.objects.keys()).collect();
        for title in titles {
            let (left, right) = (self.objects.get(title), other.objects.get(title));
            let mut report = |path: &str, left: Option<&Value>, right: Option<&Value>| {
                let place = (title.clone(), path.to_owned());
                if !except.contains(&place) {
                    found.push(Difference::of(title, path, left, right));
                }
            };
            compare("", left, right, &mut report);
        }
        found
    }
}

/// A difference between what is and what should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    pub(super) object: String,
    pub(super) path: String,
    pub(super) expected: Option<Value>,
    pub(super) found: Option<Value>,
}

impl Snapshot {
    /// Returns whether all releases are deployed, and nothing is tried again because of another failure.
    pub(super) fn is_deployed(&self) -> bool {
        self.objects.iter().all(|(title, object)| {
            if title.starts_with("Release ") {
                return object.get("last") == Some(&json!("deployed"));
            }
            let condition =
                |name: &str| object.pointer(&format!("/status/conditions/{name}/status"));
            let is = |name: &str| condition(name) == Some(&json!("True"));
            !is("Irreconcilable") || is("Stalled")
        })
    }
}

impl Difference {
    pub(super) fn of(
        object: &str,
        path: &str,
        expected: Option<&Value>,
        found: Option<&Value>,
    ) -> Self {
        Self {
            object: object.to_owned(),
            path: path.to_owned(),
            expected: expected.cloned(),
            found: found.cloned(),
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |value: &Option<Value>| {
            let value = value.as_ref();
            let text = value.map_or("nothing".to_owned(), Value::to_string);
            let cut: String = text.chars().take(300).collect();
            if cut.len() < text.len() {
                format!("{cut}…")
            } else {
                cut
            }
        };
        let (expected, found) = (short(&self.expected), short(&self.found));
        let Self { object, path, .. } = self;
        write!(f, "{object}{path}: expected {expected}, found {found}")
    }
}

/// Called with a path and the values that differ there.
type Report<'a> = dyn FnMut(&str, Option<&Value>, Option<&Value>) + 'a;

fn compare(path: &str, left: Option<&Value>, right: Option<&Value>, report: &mut Report<'_>) {
    match (left, right) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for name in names {
                let path = format!("{path}/{name}");
                compare(&path, one.get(name), other.get(name), report);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (index, pair) in one.iter().zip(other).enumerate() {
                let path = format!("{path}/{index}");
                compare(&path, Some(pair.0), Some(pair.1), report);
            }
        }
        (left, right) if left != right => report(path, left, right),
        _ => {}
    }
}

/// Returns the text at a JSON pointer; the empty text if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Returns the items of the list at a JSON pointer, none if there is none.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let items = object.pointer(pointer).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

/// Returns kind, namespace and name.
pub(super) fn title(object: &Value) -> String {
    title_of(&Named::of(object))
}

pub(super) fn title_of(named: &Named) -> String {
    let group = named.api_version.rsplit_once('/');
    let group = group.map_or(String::new(), |(group, _)| format!(".{group}"));
    format!("{}{group} {}/{}", named.kind, named.namespace, named.name)
}

/// Drops times, numbers of versions, and what the cluster's own controllers say.
fn reduce(object: &Value, uids: &BTreeMap<&str, String>, is_custom: bool) -> Value {
    let mut object = object.clone();
    let generation = object.pointer("/metadata/generation").cloned();
    let metadata = object.pointer_mut("/metadata");
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        let dropped = "uid resourceVersion creationTimestamp generation managedFields name";
        for field in dropped.split(' ') {
            metadata.remove(field);
        }
        let owners = metadata.get_mut("ownerReferences");
        for owner in owners.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(uid) = owner.get_mut("uid") {
                let owned_by = uid.as_str().and_then(|uid| uids.get(uid)).cloned();
                *uid = owned_by.unwrap_or_else(|| "nobody".to_owned()).into();
            }
        }
    }
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    if !is_custom {
        fields.remove("status");
        // The model of the API server sets no defaults there.
        drop_empty(&mut object);
        return object;
    }
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        // What is handled depends on when it was asked for.
        for field in ["history", "release", "handled"] {
            status.remove(field);
        }
        let current =
            |value: &mut Value| *value = Value::Bool(Some(&*value) == generation.as_ref());
        status.get_mut("observedGeneration").map(current);
        if let Some(conditions) = status.get_mut("conditions") {
            *conditions = by_type(conditions, &current);
        }
        status.values_mut().for_each(drop_times);
    }
    object
}

/// Replaces points in time.
fn drop_times(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(drop_times),
        Value::Array(items) => items.iter_mut().for_each(drop_times),
        Value::String(text) if text.parse::<Timestamp>().is_ok() => *value = json!("a time"),
        _ => {}
    }
}

/// Removes fields that are empty objects.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| value != &json!({}));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Returns conditions by their type, without times and numbers. An install and an upgrade end alike.
fn by_type(conditions: &Value, current: &impl Fn(&mut Value)) -> Value {
    let mut reduced = Map::new();
    for condition in conditions.as_array().into_iter().flatten() {
        let mut condition = condition.clone();
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
        condition.get_mut("observedGeneration").map(current);
        for text in ["reason", "message"] {
            if let Some(text) = condition.get_mut(text) {
                let said = without_numbers(text.as_str().unwrap_or_default());
                let said = said.replace("UpgradeSuccessful", "InstallSuccessful");
                *text = said
                    .replace("successfully upgraded", "successfully installed")
                    .into();
            }
        }
        reduced.insert(text(&condition, "/type").to_owned(), condition);
    }
    let failed = reduced.get("ReleaseFailed");
    if failed.is_some_and(|failed| text(failed, "/status") == "True")
        && let Some(deployed) = reduced.get_mut("Deployed").and_then(Value::as_object_mut)
    {
        // The generation of the revision that runs, whose values may be the present ones.
        deployed.remove("observedGeneration");
    }
    let unknown = reduced.get("Irreconcilable");
    if unknown.is_some_and(|unknown| text(unknown, "/status") == "True")
        && let Some(tested) = reduced
            .get_mut("TestSuccess")
            .and_then(Value::as_object_mut)
    {
        // The generation whose tests have run: those of one that cannot be computed do not run.
        tested.remove("observedGeneration");
    }
    Value::Object(reduced)
}

/// Replaces numbers, such as those of revisions.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if !character.is_ascii_digit() {
            out.push(character);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

/// A revision of a release.
#[derive(Debug)]
struct Record {
    title: String,
    revision: u64,
    status: String,
    content: Value,
}

impl Record {
    fn of(secret: &Value) -> Self {
        let release = decode(secret).unwrap_or_default();
        let namespace = text(secret, "/metadata/namespace");
        let label = |name: &str| text(secret, &format!("/metadata/labels/{name}")).to_owned();
        let lines = |value: Option<&Value>| {
            let text = value.and_then(Value::as_str).unwrap_or_default();
            Value::from(text.lines().collect::<Vec<_>>())
        };
        let hooks = items(&release, "/hooks").iter();
        let manifests = hooks.map(|hook| lines(hook.get("manifest")));
        let mut manifests: Vec<Value> = manifests.collect();
        manifests.sort_by_key(Value::to_string);
        Self {
            title: format!("Release {namespace}/{}", label("name")),
            revision: label("version").parse().unwrap_or_default(),
            status: label("status"),
            content: json!({
                "manifest": lines(release.get("manifest")),
                "hooks": manifests,
                "config": release.get("config"),
                "chart": release.pointer("/chart/metadata"),
            }),
        }
    }
}

/// Returns the deployed revision of a release, or else the last one, and whether one has to be finished.
fn latest(mut revisions: Vec<Record>) -> Value {
    revisions.sort_by_key(|record| record.revision);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &revisions {
        if !matches!(record.status.as_str(), "superseded" | "failed") {
            *counts.entry(&record.status).or_default() += 1;
        }
    }
    let deployed = revisions.iter().rfind(|record| record.status == "deployed");
    let record = deployed.or(revisions.last());
    json!({
        "statuses": counts,
        "last": revisions.last().map(|record| &record.status),
        "content": record.map(|record| &record.content),
    })
}
