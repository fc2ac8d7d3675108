//! Definitions of custom resources: from their creation until their names are accepted, and from their
//! deletion until their objects are gone.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/{registry/customresourcedefinition,controller}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::controllers::Task;
use super::fields::scale::Replicas;
use super::fields::{ApplyError, TypeRef, Types};
use super::garbage;
use super::kinds::{Kind, Names, Rules, Scale, Version, api_version};
use super::object::{
    at, finalizers, has_finalizer, is_deleting, items, meta, set, set_at, set_finalizers, set_meta,
    text_at, texts,
};
use super::schema::Schema;
use super::server::Server;
use super::status::{Cause, Failure};
use super::store::{Change, Key, Resource};

/// Finalizer of definitions whose objects are deleted first.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The program whose controllers care for definitions.
const PROGRAM: &str = "kube-apiserver";

fn is_definition(kind: &Kind) -> bool {
    kind.kind == "CustomResourceDefinition"
}

/// Sets the first status of a new definition.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value) {
    if !is_definition(kind) {
        return;
    }
    let version = stored_version(object);
    let stored = version.map_or(Value::Null, |version| json!([text_at(version, "/name")]));
    let names = json!({"plural": "", "kind": ""});
    let status = json!({"conditions": null, "acceptedNames": names, "storedVersions": stored});
    set(object, "status", status);
}

/// Sets the defaults of a definition.
pub(super) fn fill_defaults(kind: &Kind, object: &mut Value) {
    if !is_definition(kind) {
        return;
    }
    let name = text_at(object, "/spec/names/kind").to_owned();
    for (field, default) in [
        ("singular", name.to_lowercase()),
        ("listKind", format!("{name}List")),
    ] {
        let path = ["spec", "names", field];
        if !name.is_empty() && at(object, &path).is_none() {
            set_at(object, &path, default.into());
        }
    }
    if at(object, &["spec", "conversion"]).is_none() {
        set_at(object, &["spec", "conversion"], json!({"strategy": "None"}));
    }
}

/// Records a new version in which objects are stored.
pub(super) fn prepare_update(kind: &Kind, object: &mut Value, _before: &Value) {
    if !is_definition(kind) {
        return;
    }
    let stored = stored_version(object).map(|version| Value::from(text_at(version, "/name")));
    let mut versions = items(at(object, &["status", "storedVersions"])).to_vec();
    if let Some(stored) = stored
        && !versions.contains(&stored)
    {
        versions.push(stored);
        set_at(object, &["status", "storedVersions"], versions.into());
    }
}

fn stored_version(object: &Value) -> Option<&Value> {
    let mut versions = items(at(object, &["spec", "versions"])).iter();
    versions.find(|version| version.get("storage") == Some(&Value::Bool(true)))
}

/// Returns what is invalid in a definition.
pub(super) fn validate(
    kind: &Kind,
    object: &Value,
    before: Option<&Value>,
) -> Result<Vec<Cause>, Failure> {
    let mut causes = Vec::new();
    if !is_definition(kind) {
        return Ok(causes);
    }
    if text_at(object, "/spec/conversion/strategy") != "None" {
        return Err(Failure::unmodelled("conversion webhooks"));
    }
    let plural = text_at(object, "/spec/names/plural");
    let expected = format!("{plural}.{}", text_at(object, "/spec/group"));
    if meta(object, "name") != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        let name = meta(object, "name").into();
        causes.push(Cause::invalid("metadata.name", &name, detail));
    }
    let versions = items(at(object, &["spec", "versions"]));
    let is_stored = |version: &&Value| version.get("storage") == Some(&json!(true));
    if versions.iter().filter(is_stored).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        let shown = versions.to_vec().into();
        causes.push(Cause::invalid("spec.versions", &shown, detail));
    }
    causes.extend(stored_versions(object, versions));
    for version in versions {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            Schema::parse(schema).map_err(Failure::unmodelled)?;
        }
    }
    types_of(object)?;
    let Some(before) = before else {
        return Ok(causes);
    };
    for path in ["/spec/group", "/spec/names/plural"] {
        causes.extend(unchanged(object, before, path));
    }
    if is_true(before, "Established") {
        causes.extend(unchanged(object, before, "/spec/scope"));
        causes.extend(unchanged(object, before, "/spec/names/kind"));
    }
    Ok(causes)
}

/// Returns what is wrong with the record of the versions in which objects may be stored.
fn stored_versions(object: &Value, versions: &[Value]) -> Vec<Cause> {
    let stored = items(at(object, &["status", "storedVersions"])).iter();
    let missing = stored.enumerate().filter_map(|(index, stored)| {
        let name = stored.as_str().unwrap_or_default();
        if versions.iter().any(|version| text_at(version, "/name") == name) {
            return None;
        }
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        Some(Cause::invalid(format!("status.storedVersions[{index}]"), stored, &detail))
    });
    missing.collect()
}

fn unchanged(object: &Value, before: &Value, path: &str) -> Option<Cause> {
    let (old, new) = (before.pointer(path), object.pointer(path));
    let field = path.trim_start_matches('/').replace('/', ".");
    let shown = new.cloned().unwrap_or_default();
    (old != new).then(|| Cause::invalid(field, &shown, "field is immutable"))
}

/// Returns a definition as its deletion leaves it, if it waits for its objects.
pub(super) fn marked(kind: &Kind, existing: &Value, now: &str) -> Option<Value> {
    if !is_definition(kind) || is_deleting(existing) {
        return None;
    }
    let mut marked = existing.clone();
    set_meta(&mut marked, "deletionTimestamp", now);
    let mut held = finalizers(existing);
    if !has_finalizer(existing, CLEANUP) {
        held.push(CLEANUP.to_owned());
    }
    set_finalizers(&mut marked, &held);
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let terminating = ["Terminating", "True", "InstanceDeletionPending", message];
    set_condition(&mut marked, now, terminating);
    Some(marked)
}

/// Sets a condition: its type, status, reason and message.
fn set_condition(object: &mut Value, now: &str, condition: [&str; 4]) {
    let [kind, status, reason, message] = condition;
    let mut conditions = items(at(object, &["status", "conditions"])).to_vec();
    let mut new = json!({
        "type": kind, "status": status, "lastTransitionTime": now, "reason": reason,
        "message": message,
    });
    let mut formers = conditions.iter_mut();
    match formers.find(|former| former.get("type") == Some(&json!(kind))) {
        Some(former) => {
            if former.get("status") == Some(&json!(status)) {
                let since = former.get("lastTransitionTime").cloned();
                set(&mut new, "lastTransitionTime", since.unwrap_or_default());
            }
            *former = new;
        }
        None => conditions.push(new),
    }
    set_at(object, &["status", "conditions"], conditions.into());
}

fn is_true(object: &Value, condition: &str) -> bool {
    let mut conditions = items(at(object, &["status", "conditions"])).iter();
    conditions.any(|found| {
        found.get("type") == Some(&json!(condition)) && found.get("status") == Some(&json!("True"))
    })
}

/// Serves what a changed definition says, and makes the tasks that follow.
pub(super) fn react(server: &mut Server, change: &Change) {
    let Some(last) = change.last() else { return };
    let resource = resource_of(&last);
    match &change.after {
        Some(after) => {
            if is_true(after, "Established")
                && let Some(kind) = kind_of(after)
            {
                let former = server.kinds.of(&resource).cloned();
                let versions = kind.versions.clone();
                let before = change.before().and_then(|before| before.get("spec"));
                let same = before == after.get("spec");
                let since = match &former {
                    // Only another specification closes watches.
                    Some(former) if same => former.since,
                    _ => change.version,
                };
                server.kinds.add(Kind { since, ..kind });
                if former.is_none() {
                    garbage::react_to_kind(server);
                }
                register(server, &resource.group, &versions, former.as_ref());
            }
            server.schedule(Task::Definition(meta(after, "name").to_owned()));
        }
        None => {
            if let Some(kind) = server.kinds.of(&resource).cloned()
                && server.kinds.remove(&resource)
            {
                register(server, &resource.group, &[], Some(&kind));
            }
        }
    }
}

/// Creates and deletes the API services of a group.
fn register(server: &mut Server, group: &str, versions: &[Version], former: Option<&Arc<Kind>>) {
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    for version in versions {
        let name = format!("{}.{group}", version.name);
        let key = Key::new("", &name);
        if server.store.get(&api_services(), &key).is_some() {
            continue;
        }
        let service = json!({
            "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}},
            "spec": {"group": group, "version": version.name, "groupPriorityMinimum": 1000, "versionPriority": 100},
        });
        drop(server.act_as(PROGRAM, Method::POST, path.to_owned(), &service.to_string()));
    }
    for version in former.iter().flat_map(|former| &former.versions) {
        let is_served = |kind: &Arc<Kind>| {
            kind.resource.group == group && kind.version(&version.name).is_some()
        };
        if !server.kinds.custom().any(is_served) {
            let path = format!("{path}/{}.{group}", version.name);
            drop(server.act_as(PROGRAM, Method::DELETE, path, ""));
        }
    }
}

fn api_services() -> Resource {
    Resource::new("apiregistration.k8s.io", "apiservices")
}

/// Makes the tasks that follow from the deletion of a custom resource.
pub(super) fn react_to_instance(server: &mut Server, change: &Change) {
    let kind = server.kinds.of(&change.resource);
    if change.after.is_none() && kind.is_some_and(|kind| kind.terminating) {
        let Resource { group, plural } = &*change.resource;
        server.schedule(Task::Definition(format!("{plural}.{group}")));
    }
}

fn definitions() -> Resource {
    Resource::new("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Accepts the names of a definition, or deletes the objects of one that is being deleted.
pub(super) fn advance(server: &mut Server, name: &str) {
    let key = Key::new("", name);
    let Some(live) = server.store.get(&definitions(), &key) else {
        return;
    };
    let now = server.now();
    let mut changed = (*live).clone();
    if !is_deleting(&live) {
        accept(server, &mut changed, &now);
        write_status(server, &live, &changed);
        return;
    }
    if !has_finalizer(&live, CLEANUP) {
        return;
    }
    let message = "CustomResource deletion is in progress";
    let terminating = ["Terminating", "True", "InstanceDeletionInProgress", message];
    set_condition(&mut changed, &now, terminating);
    write_status(server, &live, &changed);
    let resource = resource_of(&live);
    if let Some(kind) = server.kinds.of(&resource).cloned() {
        server.delete_all(&kind);
    }
    if server.objects(&resource, None).is_empty()
        && let Some(latest) = server.store.get(&definitions(), &key)
    {
        let mut held = finalizers(&latest);
        held.retain(|finalizer| finalizer != CLEANUP);
        let mut released = (*latest).clone();
        set_finalizers(&mut released, &held);
        write_status(server, &latest, &released);
    }
}

/// Writes what the controllers change in a definition, which is its status and its finalizers.
fn write_status(server: &mut Server, live: &Value, changed: &Value) {
    if live != changed {
        let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let path = format!("{collection}/{}/status", meta(live, "name"));
        drop(server.act_as(PROGRAM, Method::PUT, path, &changed.to_string()));
    }
}

/// Sets the conditions of a definition by whether its names are free.
fn accept(server: &Server, definition: &mut Value, now: &str) {
    let names = at(definition, &["spec", "names"]).cloned();
    let names = names.unwrap_or_default();
    let group = text_at(definition, "/spec/group");
    let own = meta(definition, "name").to_owned();
    let taken = |field: &str| {
        let name = text_at(&names, &format!("/{field}"));
        let mut others = server.objects(&definitions(), None).into_iter();
        let taken = others.any(|(key, other)| {
            key.name != own
                && text_at(&other, "/spec/group") == group
                && text_at(&other, &format!("/status/acceptedNames/{field}")) == name
        });
        (taken && !name.is_empty()).then_some(name)
    };
    let conflict = [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ]
    .into_iter()
    .filter_map(|(field, reason)| Some((taken(field)?, reason)))
    .next_back();
    if let Some((name, reason)) = conflict {
        let used = format!("{name:?} is already in use");
        let refused = ["NamesAccepted", "False", reason, used.as_str()];
        set_condition(definition, now, refused);
        if !is_true(definition, "Established") {
            let message = "not all names are accepted";
            let waiting = ["Established", "False", "NotAccepted", message];
            set_condition(definition, now, waiting);
        }
        return;
    }
    set_at(definition, &["status", "acceptedNames"], names);
    let accepted = ["NamesAccepted", "True", "NoConflicts", "no conflicts found"];
    set_condition(definition, now, accepted);
    if !is_true(definition, "Established") {
        let message = "the initial names have been accepted";
        let established = ["Established", "True", "InitialNamesAccepted", message];
        set_condition(definition, now, established);
    }
}

fn resource_of(definition: &Value) -> Resource {
    let group = text_at(definition, "/spec/group");
    Resource::new(group, text_at(definition, "/spec/names/plural"))
}

/// Returns the kind that a definition makes.
fn kind_of(definition: &Value) -> Option<Kind> {
    let accepted = |name: &str| text_at(definition, &format!("/status/acceptedNames/{name}"));
    let terminating = is_true(definition, "Terminating");
    let stored = stored_version(definition)?;
    let all = items(at(definition, &["spec", "versions"]));
    let is_served = |version: &&Value| version.get("served") == Some(&json!(true));
    let served = all.iter().filter(is_served);
    let group = text_at(definition, "/spec/group");
    let types = types_of(definition).unwrap_or_default().into_iter();
    let types = types.map(|(version, type_)| (version, Arc::new(type_)));
    let types = types.collect();
    let versions = served.map(|version| version_of(group, version, &types));
    let mut versions: Vec<Version> = versions.collect();
    versions.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
    let schemas = all.iter().filter_map(|version| {
        let version = version_of(group, version, &types);
        Some((version.api_version, version.schema?))
    });
    let verbs = "delete deletecollection get list patch create update watch".split(' ');
    let verbs =
        verbs.filter(|verb| !terminating || !matches!(*verb, "patch" | "create" | "update"));
    Some(Kind {
        resource: resource_of(definition),
        singular: accepted("singular").to_owned(),
        kind: accepted("kind").to_owned(),
        list_kind: accepted("listKind").to_owned(),
        namespaced: text_at(definition, "/spec/scope") == "Namespaced",
        short_names: texts(definition.pointer("/status/acceptedNames/shortNames")),
        categories: texts(definition.pointer("/status/acceptedNames/categories")),
        verbs: verbs.map(ToOwned::to_owned).collect(),
        versions,
        stored: version_of(group, stored, &types),
        schemas: schemas.collect(),
        since: 0,
        replicas: replicas_of(definition),
        rules: Rules {
            custom: true,
            generation: true,
            conditional: true,
            creates_on_update: false,
            returns_deleted: false,
            names: Names::Subdomain,
        },
        terminating,
    })
}

/// Returns the types for merging of all versions of a definition.
///
/// # Errors
/// A schema is not modelled.
fn types_of(definition: &Value) -> Result<BTreeMap<String, TypeRef>, ApplyError> {
    let group = text_at(definition, "/spec/group");
    let kind = text_at(definition, "/spec/names/kind");
    let versions = items(at(definition, &["spec", "versions"])).iter();
    let versions = versions.filter_map(|version| {
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        let has_status = version.pointer("/subresources/status").is_some();
        let api_version = api_version(group, text_at(version, "/name"));
        Some((api_version, schema, has_status))
    });
    Types::of_definition(kind, versions)
}

/// Returns where objects have their number of replicas.
fn replicas_of(definition: &Value) -> Replicas {
    let group = text_at(definition, "/spec/group");
    let versions = items(at(definition, &["spec", "versions"])).iter();
    let paths = versions.map(|version| {
        let path = version.pointer("/subresources/scale/specReplicasPath");
        let fields = path.and_then(Value::as_str).map(|path| {
            let path = path.strip_prefix('.').unwrap_or(path);
            path.split('.').map(ToOwned::to_owned).collect()
        });
        (api_version(group, text_at(version, "/name")), fields)
    });
    paths.collect()
}

fn version_of(group: &str, version: &Value, types: &BTreeMap<String, Arc<TypeRef>>) -> Version {
    let has = |name: &str| version.pointer(&format!("/subresources/{name}")).is_some();
    let subresources = ["status", "scale"].iter().filter(|name| has(name));
    let scale = |field: &str| {
        let path = text_at(version, &format!("/subresources/scale/{field}"));
        path.to_owned()
    };
    let schema = version.pointer("/schema/openAPIV3Schema");
    let name = text_at(version, "/name");
    let api_version = api_version(group, name);
    Version {
        name: name.to_owned(),
        subresources: subresources.map(|name| (*name).to_owned()).collect(),
        scale: Scale {
            replicas: scale("specReplicasPath"),
            status: scale("statusReplicasPath"),
            selector: Some(scale("labelSelectorPath")).filter(|path| !path.is_empty()),
        },
        schema: schema
            .and_then(|schema| Schema::parse(schema).ok())
            .map(Arc::new),
        fields: types.get(&api_version).cloned(),
        api_version,
    }
}

/// Returns the order of versions: stable before beta before alpha, higher numbers first, others last.
pub(super) fn priority(version: &str) -> (u8, u32, u32) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let major: u32 = digits.parse().ok()?;
        let rest = rest.get(digits.len()..)?;
        let stage = |name: &str| rest.strip_prefix(name)?.parse::<u32>().ok();
        match (rest, stage("beta"), stage("alpha")) {
            ("", _, _) => Some((3, major, 0)),
            (_, Some(minor), _) => Some((2, major, minor)),
            (_, _, Some(minor)) => Some((1, major, minor)),
            _ => None,
        }
    };
    parsed().unwrap_or((0, 0, 0))
}
