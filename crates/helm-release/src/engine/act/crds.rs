//! Installs what is in a chart's `crds/` before the rest of the release, and waits until the CRDs among
//! it are served. As in Helm, it may be of any kind, and is never deleted: deleting a CRD would delete
//! all its custom resources.
//!
//! As in Helm, the templates see the cluster as it is afterwards: the inputs are computed anew, because
//! they depend on the capabilities that the templates read. If the chart does not render without its
//! definitions, the missing ones are created first.
//!
//! Nothing is recorded before they are served: after a crash the next reconcile finds them, checks
//! them again, and continues.
//!
//! RBAC: `get` and, depending on the policy, `create` or `patch` on `customresourcedefinitions` and on
//! what else is in `crds/`.

use std::time::Duration;

use helm_core::chart::CrdFile;
use helm_core::manifest::{ManifestObject, parse_definitions};
use host::phases;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube_objects::{ApiError, Cluster, DiscoveryError, FIELD_MANAGER, Scope, Target};
use serde_json::Value;

use super::super::definitions::{CrdError, InstalledCrds, PendingCrd, PendingCrds};
use super::super::desired_error::DesiredError;
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::super::setup::timeout;
use super::context::ActContext;
use super::error::ActError;
use crate::policy::CrdPolicy;

/// Shortest and longest time between two checks of a CRD.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Time within which a CRD that is served is expected in the discovery documents.
const DISCOVERED_WITHIN: Duration = Duration::from_secs(10);

/// The CRD to wait for, and when to check again.
#[derive(Debug, PartialEq, Eq)]
struct NotServed {
    why: String,
    delay: Duration,
}

impl PendingCrds {
    /// Returns what is still pending. The delay between checks grows with the time waited; past the
    /// timeout it is an error.
    fn not_served(&self, now: Timestamp, timeout: Duration) -> Result<Option<NotServed>, CrdError> {
        let Some(first) = self.pending.first() else {
            return Ok(None);
        };
        let waited = now.duration_since(self.since).unsigned_abs();
        if waited > timeout {
            let what = first.to_string();
            return Err(CrdError::Late { what, timeout });
        }
        let (soonest, latest) = POLL_INTERVALS;
        Ok(Some(NotServed {
            why: format!("{first} to be served"),
            delay: waited.clamp(soonest, latest),
        }))
    }
}

/// Installs what is missing or, with `createReplace`, applies all of it. CRDs that are not served yet
/// are remembered, and the next call only checks them.
pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    upgrade: bool,
) -> Result<Report, ActError> {
    let (setup, now) = (context.setup, context.target.now);
    let desired = context.desired();
    let chart = memory.rendered.as_deref();
    let files = chart.map(|chart| chart.chart().crds()).unwrap_or_default();
    // A chart that does not render replaces nothing.
    let replace = setup.policy.crds == CrdPolicy::CreateReplace && desired.is_some();
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    let installer = Installer::of(&context.target.cluster, &context.target.namespace);
    let mut changed = replace || memory.pending_crds.is_some();
    if memory.pending_crds.is_none() {
        count(context, &files).await?;
    }
    memory.pending_crds = if let Some(known) = &memory.pending_crds {
        installer.poll(known).await?
    } else {
        let made = installer.install(&files, replace).await?;
        changed |= made.changed;
        Some(PendingCrds {
            since: now,
            pending: made.pending,
        })
    };
    let Some(known) = &memory.pending_crds else {
        // One of them was deleted, or the kind of an object is served now: install all again.
        return Ok(Report::wait("its CRDs", POLL_INTERVALS.0));
    };
    let kind = if upgrade {
        ActionKind::Upgrade
    } else {
        ActionKind::Install
    };
    let limit = timeout(setup.policy(kind).timeout);
    if let Some(NotServed { why, delay }) = known.not_served(now, limit)? {
        phases::waits_for("CRD", "");
        return Ok(Report::wait(why, delay));
    }
    // What is established is in the discovery documents a moment later.
    if changed
        && now.duration_since(known.since).unsigned_abs() < DISCOVERED_WITHIN
        && let Some(missing) = installer.undiscovered(&files).await?
    {
        return Ok(Report::wait(
            format!("CRD {missing} to be discovered"),
            POLL_INTERVALS.0,
        ));
    }
    memory.pending_crds = None;
    let unchanged = desired.filter(|_| !changed);
    memory.installed_crds = Some(InstalledCrds {
        generation: context.subject.generation,
        digest: unchanged.map(|desired| desired.inputs.digest.clone()),
        replaced: replace,
    });
    if changed {
        memory.cached_inputs = None;
    }
    Ok(Report::replan())
}

/// Counts the memory that the files of `crds/` take while they are read, one after the other.
async fn count(context: &ActContext<'_>, files: &[CrdFile]) -> Result<(), ActError> {
    let counted = context.target.share.read(largest(files)).await;
    Ok(counted.map_err(DesiredError::from)?)
}

/// Returns the size of the largest file, in bytes.
fn largest(files: &[CrdFile]) -> usize {
    let sizes = files.iter().map(|file| file.file().data().len());
    sizes.max().unwrap_or(0)
}

/// The result of [`Installer::install`].
#[derive(Debug, PartialEq, Eq)]
struct Installed {
    pending: Vec<PendingCrd>,
    /// Whether something was created.
    changed: bool,
}

/// Installs CRDs and other objects, and checks the status of CRDs.
struct Installer<'a> {
    cluster: &'a Cluster,
    /// Namespace of objects without one.
    namespace: &'a str,
}

/// An object of `crds/`, and where it is in the cluster.
struct Place<'o> {
    path: &'o str,
    name: String,
    resource: ApiResource,
    api: Api<DynamicObject>,
}

impl<'a> Installer<'a> {
    fn of(cluster: &'a Cluster, namespace: &'a str) -> Self {
        Self { cluster, namespace }
    }

    /// Installs the objects of `files`, and returns what is not served yet.
    async fn install(&self, files: &[CrdFile], replace: bool) -> Result<Installed, CrdError> {
        let mut installed = Installed {
            pending: Vec::new(),
            changed: false,
        };
        for file in files {
            let path = file.path();
            for object in parse(file)? {
                let Some(place) = self.place(path, &object).await? else {
                    installed.pending.push(PendingCrd {
                        path: path.to_owned(),
                        name: None,
                        kind: object.key().kind.clone(),
                        names_conflict: None,
                    });
                    continue;
                };
                let body = serde_json::from_value(object.object().clone());
                let body: DynamicObject = body.map_err(|_| CrdError::Unreadable {
                    path: path.to_owned(),
                    source: None,
                })?;
                let (live, changed) = if replace {
                    (self.replace(&place, &body).await?, false)
                } else {
                    self.create(&place, &body).await?
                };
                installed.changed |= changed;
                if is_definition(&object) {
                    if replace && is_served(&live) {
                        self.changed(&place.name);
                    }
                    installed
                        .pending
                        .extend(unless_served(path, place.name, &live));
                }
            }
        }
        Ok(installed)
    }

    /// Finds the place of an object in the cluster; `None` if its kind is not served.
    async fn place<'o>(
        &self,
        path: &'o str,
        object: &ManifestObject,
    ) -> Result<Option<Place<'o>>, CrdError> {
        if is_definition(object) {
            return Ok(Some(self.definition(path, &object.key().name)));
        }
        let key = object.key();
        let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
        let kind = match self.cluster.resolve(&gvk).await {
            Ok(kind) => kind,
            Err(DiscoveryError::UnknownKind { .. }) => return Ok(None),
            Err(source) => {
                let path = path.to_owned();
                return Err(CrdError::Discovery { path, source });
            }
        };
        let client = self.cluster.client().clone();
        let resource = kind.resource.clone();
        let namespace = key.namespace.as_deref().unwrap_or(self.namespace);
        Ok(Some(Place {
            path,
            name: key.name.clone(),
            api: match kind.scope {
                Scope::Cluster => Api::all_with(client, &resource),
                Scope::Namespaced => Api::namespaced_with(client, namespace, &resource),
            },
            resource,
        }))
    }

    /// Returns the place of a CRD.
    fn definition<'o>(&self, path: &'o str, name: &str) -> Place<'o> {
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk(&gvk);
        Place {
            path,
            name: name.to_owned(),
            api: Api::all_with(self.cluster.client().clone(), &resource),
            resource,
        }
    }

    async fn replace(
        &self,
        place: &Place<'_>,
        object: &DynamicObject,
    ) -> Result<DynamicObject, CrdError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(object);
        let answer = place.api.patch(&place.name, &params, &patch).await;
        phases::changed();
        answer.map_err(|error| place.error("patch", error))
    }

    /// Creates an object. As in Helm, an existing one is left unchanged. Returns the live one, and
    /// whether it was created.
    async fn create(
        &self,
        place: &Place<'_>,
        object: &DynamicObject,
    ) -> Result<(DynamicObject, bool), CrdError> {
        if let Some(live) = place.get().await? {
            return Ok((live, false));
        }
        match place.api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let live = place.get().await?;
                Ok((live.unwrap_or_else(|| object.clone()), false))
            }
            answer => {
                phases::changed();
                let live = answer.map_err(|error| place.error("create", error))?;
                Ok((live, true))
            }
        }
    }

    /// Checks what is pending. Returns `None` if one of the CRDs was deleted, or if what is left are
    /// objects whose kinds may be served now.
    async fn poll(&self, known: &PendingCrds) -> Result<Option<PendingCrds>, CrdError> {
        let mut pending = Vec::new();
        for crd in &known.pending {
            let Some(name) = &crd.name else {
                continue;
            };
            let Some(live) = self.definition(&crd.path, name).get().await? else {
                return Ok(None);
            };
            if is_served(&live) {
                self.changed(name);
            }
            pending.extend(unless_served(&crd.path, name.clone(), &live));
        }
        let objects = known.pending.iter().filter(|crd| crd.name.is_none());
        if pending.is_empty() && objects.clone().count() > 0 {
            return Ok(None);
        }
        pending.extend(objects.cloned());
        let since = known.since;
        Ok(Some(PendingCrds { since, pending }))
    }

    /// Returns a CRD of these files that is not in the discovery documents.
    async fn undiscovered(&self, files: &[CrdFile]) -> Result<Option<String>, CrdError> {
        for file in files {
            for object in parse(file)?.iter().filter(|object| is_definition(object)) {
                let text = |pointer| object.object().pointer(pointer).and_then(Value::as_str);
                let (Some(group), Some(kind)) = (text("/spec/group"), text("/spec/names/kind"))
                else {
                    continue;
                };
                let name = &object.key().name;
                let version = served_version(object.object()).unwrap_or_default();
                let gvk = GroupVersionKind::gvk(group, version, kind);
                let found = self.cluster.discovery().scope(&gvk).await;
                let found = found.map_err(|source| CrdError::Discovery {
                    path: file.path().to_owned(),
                    source,
                })?;
                if found.is_none() {
                    self.changed(name);
                    return Ok(Some(name.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Invalidates the discovery cache for the group of a CRD.
    fn changed(&self, name: &str) {
        if let Some((_, group)) = name.split_once('.') {
            self.cluster.group_changed(group);
        }
    }
}

/// Returns the first version that a CRD serves.
fn served_version(definition: &Value) -> Option<&str> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let served = versions.iter().find(|version| version["served"] == true)?;
    served["name"].as_str()
}

impl Place<'_> {
    async fn get(&self) -> Result<Option<DynamicObject>, CrdError> {
        let answer = self.api.get_opt(&self.name).await;
        answer.map_err(|error| self.error("get", error))
    }

    fn error(&self, verb: &'static str, error: kube::Error) -> CrdError {
        CrdError::Api {
            path: self.path.to_owned(),
            source: ApiError::of(
                Target::of(verb, &self.resource, None, Some(&self.name)),
                error,
            ),
        }
    }
}

fn is_definition(object: &ManifestObject) -> bool {
    let key = object.key();
    key.group == "apiextensions.k8s.io" && key.kind == "CustomResourceDefinition"
}

/// Parses the objects of a file, and those of lists in it.
fn parse(file: &CrdFile) -> Result<Vec<ManifestObject>, CrdError> {
    let unreadable = |source| CrdError::Unreadable {
        path: file.path().to_owned(),
        source,
    };
    let text = std::str::from_utf8(file.file().data()).map_err(|_| unreadable(None))?;
    let objects = parse_definitions(text).map_err(|source| unreadable(Some(Box::new(source))))?;
    match objects.iter().find(|object| object.key().name.is_empty()) {
        None => Ok(objects),
        Some(nameless) => Err(CrdError::Nameless {
            path: file.path().to_owned(),
            kind: nameless.key().kind.clone(),
        }),
    }
}

fn conditions(live: &DynamicObject) -> impl Iterator<Item = &Value> {
    let conditions = live.data.pointer("/status/conditions");
    conditions.and_then(Value::as_array).into_iter().flatten()
}

fn unless_served(path: &str, name: String, live: &DynamicObject) -> Option<PendingCrd> {
    (!is_served(live)).then(|| PendingCrd {
        path: path.to_owned(),
        name: Some(name),
        kind: "CustomResourceDefinition".to_owned(),
        names_conflict: names_conflict(live),
    })
}

fn is_served(live: &DynamicObject) -> bool {
    conditions(live).any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Returns why the names of a CRD are not accepted: another CRD may use them.
fn names_conflict(live: &DynamicObject) -> Option<String> {
    conditions(live)
        .find(|c| c["type"] == "NamesAccepted" && c["status"] == "False")
        .and_then(|c| Some(c["message"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helm_core::chart::{Chart, CrdFile, File};
    use hybrid_operator_test::scripted::{Script, failure};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Installer, PendingCrd, PendingCrds};
    use crate::tests::fixtures::scripted_cluster;

    const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const NAME: &str = "things.example.com";

    /// Returns the definitions of a chart with this file.
    fn files(name: &str, text: &str) -> Vec<CrdFile> {
        let chart = "apiVersion: v2\nname: chart\nversion: 0.1.0\n";
        let files = [("Chart.yaml", chart), (name, text)];
        let files = files.map(|(name, text)| File::new(name, text));
        Chart::from_files(files).unwrap().crds()
    }

    fn live(conditions: &Value) -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": NAME}, "status": {"conditions": conditions}})
    }

    fn served() -> Value {
        live(&json!([{"type": "Established", "status": "True"}]))
    }

    fn one(verb: &str) -> String {
        format!("{verb} {ALL}/{NAME}")
    }

    fn pending(names_conflict: Option<&str>) -> PendingCrd {
        PendingCrd {
            path: "chart/crds/things.yaml".to_owned(),
            name: Some(NAME.to_owned()),
            kind: "CustomResourceDefinition".to_owned(),
            names_conflict: names_conflict.map(ToOwned::to_owned),
        }
    }

    #[tokio::test]
    async fn crds_are_installed_without_waiting_for_them() {
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n";
        let files = files("crds/things.yaml", definition);
        let (get, post, patch) = (one("GET"), format!("POST {ALL}"), one("PATCH"));
        let absent = || failure(404, "NotFound", "", &json!({}));
        let exists = || failure(409, "AlreadyExists", "", &json!({}));
        let fresh = || live(&json!([]));
        for (what, replace, answers, expected) in [
            ("exists", false, vec![(&get, 200, served())], vec![]),
            (
                "missing",
                false,
                vec![(&get, 404, absent()), (&post, 201, fresh())],
                vec![pending(None)],
            ),
            (
                "created concurrently",
                false,
                vec![
                    (&get, 404, absent()),
                    (&post, 409, exists()),
                    (&get, 200, served()),
                ],
                vec![],
            ),
            // As after a crash between creating the CRD and writing the record.
            (
                "exists, not served",
                false,
                vec![(&get, 200, fresh())],
                vec![pending(None)],
            ),
            ("replaced", true, vec![(&patch, 200, served())], vec![]),
            (
                "applied",
                true,
                vec![(&patch, 201, fresh())],
                vec![pending(None)],
            ),
        ] {
            let script = answers
                .into_iter()
                .fold(Script::default(), |script, (request, status, answer)| {
                    script.on(request, status, answer)
                });
            let cluster = scripted_cluster(&script);
            let pending = Installer::of(&cluster, "prod")
                .install(&files, replace)
                .await;
            assert_eq!(pending.unwrap().pending, expected, "{what}");
            script.finish();
        }
    }

    #[test]
    fn files_are_read_as_manifests() {
        let read = |text: &str| {
            let definitions = files("crds/all.yaml", text);
            let names = |objects: Vec<super::ManifestObject>| {
                let keys = objects.iter().map(super::ManifestObject::key);
                keys.map(|key| format!("{} {}", key.kind, key.name))
                    .collect::<Vec<_>>()
            };
            super::parse(&definitions[0])
                .map(names)
                .map_err(|error| error.to_string())
        };
        assert_eq!(super::largest(&[]), 0);
        let list = "# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n---\n";
        let found = vec!["Secret a".to_owned(), "ConfigMap b".to_owned()];
        assert_eq!(read(list), Ok(found));
        assert_eq!(read("# nothing\n"), Ok(Vec::new()));
        let nameless = "apiVersion: v1\nkind: Secret\nmetadata: {}\n";
        let error = read(nameless).unwrap_err();
        assert_eq!(error, "the Secret in chart/crds/all.yaml has no name");
        let nested =
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n";
        let null = "apiVersion: v1\nkind: List\nitems: [null]\n";
        for broken in ["kind: [", "metadata: {name: a}\n", nested, null] {
            let error = read(broken).unwrap_err();
            assert_eq!(error, "cannot read the objects in chart/crds/all.yaml");
        }
    }

    #[tokio::test]
    async fn pending_crds_are_only_read() {
        let taken =
            json!([{"type": "NamesAccepted", "status": "False", "message": "Thing is in use"}]);
        let gone = failure(404, "NotFound", "", &json!({}));
        for (status, answer, left) in [
            (200, served(), Some(vec![])),
            (
                200,
                live(&taken),
                Some(vec![pending(Some("Thing is in use"))]),
            ),
            (404, gone, None),
        ] {
            let script = Script::default().on(&one("GET"), status, answer);
            let cluster = scripted_cluster(&script);
            let since = Timestamp::UNIX_EPOCH;
            let known = PendingCrds {
                since,
                pending: vec![pending(None)],
            };
            let seen = Installer::of(&cluster, "prod").poll(&known).await.unwrap();
            assert_eq!(seen.map(|seen| seen.pending), left);
            script.finish();
        }
    }

    #[test]
    fn poll_delay_grows_until_the_timeout_error_names_the_crd() {
        let timeout = Duration::from_mins(1);
        let known = PendingCrds {
            since: Timestamp::UNIX_EPOCH,
            pending: vec![pending(Some("Thing is in use"))],
        };
        let after = |seconds| {
            let now = Timestamp::from_second(seconds).unwrap();
            known.not_served(now, timeout)
        };
        for (seconds, delay) in [(0, 250), (1, 1_000), (5, 5_000), (60, 10_000)] {
            let not_served = after(seconds).unwrap().unwrap();
            assert_eq!(not_served.delay, Duration::from_millis(delay));
            assert!(not_served.why.contains(NAME), "{}", not_served.why);
        }
        assert_eq!(
            after(61).unwrap_err().to_string(),
            "CRD things.example.com of chart/crds/things.yaml (Thing is in use) is not served after 60s"
        );
    }
}
