//! Installs the CRDs of a chart's `crds/` before the rest of the release and waits until they are
//! served. CRDs are never deleted, as that would delete all their custom resources.
//!
//! Nothing is recorded before they are served: after a crash the next reconcile finds them, checks
//! them again, and continues.
//!
//! RBAC: `get` and, depending on the policy, `create` or `patch` on `customresourcedefinitions`.

use std::fmt;
use std::time::Duration;

use helm_core::chart::CrdFile;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::super::desired::Desired;
use super::super::kind::ActionKind;
use super::super::memory::Memory;
use super::super::report::Report;
use super::super::setup::{Setup, timeout};
use super::{ActContext, ActError};
use crate::cluster::{ApiError, Cluster, FIELD_MANAGER, Target};
use crate::telemetry::traces;
use crate::watches::CrdPolicy;

/// Shortest and longest time between two checks of a CRD.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Error installing a CRD.
#[derive(Debug, thiserror::Error)]
pub(in crate::helm) enum CrdError {
    /// A file of `crds/` cannot be parsed.
    #[error("{path} is not a readable CustomResourceDefinition")]
    Unreadable {
        /// The file.
        path: String,
    },
    /// A request to the API server failed.
    #[error("cannot install {path}")]
    Api {
        /// The file.
        path: String,
        /// The API error.
        source: ApiError,
    },
    /// A CRD was not served before the timeout.
    #[error("{what} is not served after {timeout:?}")]
    Late {
        /// The CRD, and its name conflict if there is one.
        what: String,
        /// The timeout.
        timeout: Duration,
    },
}

impl CrdError {
    /// Names the cause, for traces.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "UnreadableCrd",
            Self::Api { source, .. } => source.reason(),
            Self::Late { .. } => "Timeout",
        }
    }

    /// Returns whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => source.is_transient(),
            Self::Unreadable { .. } | Self::Late { .. } => false,
        }
    }
}

/// CRDs that were installed and are not served yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::helm) struct PendingCrds {
    since: Timestamp,
    pending: Vec<PendingCrd>,
}

/// A CRD that is not served yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PendingCrd {
    path: String,
    name: String,
    /// Message of its `NamesAccepted` condition if that is false.
    names_conflict: Option<String>,
}

impl fmt::Display for PendingCrd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CRD {} of {}", self.name, self.path)?;
        match &self.names_conflict {
            Some(names_conflict) => write!(f, " ({names_conflict})"),
            None => Ok(()),
        }
    }
}

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

/// Returns whether CRDs must be installed before a new revision. As in Helm, an upgrade does not
/// create CRDs unless it replaces them.
pub(in crate::helm) fn are_needed(setup: &Setup, desired: &Desired, upgrade: bool) -> bool {
    let policy = match setup.watch.crds {
        CrdPolicy::Skip => false,
        CrdPolicy::Create => !upgrade,
        CrdPolicy::CreateReplace => true,
    };
    policy && !desired.inputs.coalesced.chart().crds().is_empty()
}

/// Installs missing CRDs or, with `createReplace`, applies all of them. CRDs that are not served
/// yet are remembered, and the next call only checks them.
pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    upgrade: bool,
) -> Result<Report, ActError> {
    let desired = context.require_desired("install CRDs")?;
    let (setup, now) = (context.setup, context.subject.now);
    if !context.add_finalizer().await? {
        return Ok(Report::gone());
    }
    let installer = Installer::of(&context.subject.cluster);
    memory.pending_crds = match &memory.pending_crds {
        Some(known) => installer.poll(known).await?,
        None => Some(PendingCrds {
            since: now,
            pending: installer
                .install(
                    &desired.inputs.coalesced.chart().crds(),
                    setup.watch.crds == CrdPolicy::CreateReplace,
                )
                .await?,
        }),
    };
    let Some(known) = &memory.pending_crds else {
        // One of them was deleted: install all again.
        return Ok(Report::wait("its CRDs", POLL_INTERVALS.0));
    };
    let kind = if upgrade {
        ActionKind::Upgrade
    } else {
        ActionKind::Install
    };
    let limit = timeout(setup.policy(kind).timeout);
    if let Some(NotServed { why, delay }) = known.not_served(now, limit)? {
        traces::waits_for("CRD", "");
        return Ok(Report::wait(why, delay));
    }
    memory.pending_crds = None;
    memory.crds_served = Some(desired.inputs.digest.clone());
    Ok(Report::replan())
}

/// Installs CRDs and checks their status.
struct Installer<'a> {
    cluster: &'a Cluster,
    resource: ApiResource,
    api: Api<DynamicObject>,
}

impl<'a> Installer<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk(&gvk);
        Self {
            cluster,
            api: Api::all_with(cluster.client().clone(), &resource),
            resource,
        }
    }

    /// Installs the CRDs of `files`. Returns those that are not served yet.
    async fn install(&self, files: &[CrdFile], replace: bool) -> Result<Vec<PendingCrd>, CrdError> {
        let mut pending = Vec::new();
        for file in files {
            let path = file.path();
            for object in parse(file)? {
                let name = object.metadata.name.clone().unwrap_or_default();
                let live = if replace {
                    self.replace(path, &name, &object).await?
                } else {
                    self.create(path, &name, &object).await?
                };
                if replace && is_served(&live) {
                    self.changed(&name);
                }
                pending.extend(unless_served(path, name, &live));
            }
        }
        Ok(pending)
    }

    async fn replace(
        &self,
        path: &str,
        name: &str,
        object: &DynamicObject,
    ) -> Result<DynamicObject, CrdError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer = self.api.patch(name, &params, &Patch::Apply(object)).await;
        traces::changed();
        answer.map_err(|error| self.error("patch", path, name, error))
    }

    /// Creates a CRD. As in Helm, an existing one is left unchanged.
    async fn create(
        &self,
        path: &str,
        name: &str,
        object: &DynamicObject,
    ) -> Result<DynamicObject, CrdError> {
        if let Some(live) = self.get(path, name).await? {
            return Ok(live);
        }
        match self.api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let live = self.get(path, name).await?;
                Ok(live.unwrap_or_else(|| object.clone()))
            }
            answer => {
                traces::changed();
                answer.map_err(|error| self.error("create", path, name, error))
            }
        }
    }

    /// Checks the pending CRDs. Returns `None` if one of them was deleted.
    async fn poll(&self, known: &PendingCrds) -> Result<Option<PendingCrds>, CrdError> {
        let mut pending = Vec::new();
        for PendingCrd { path, name, .. } in &known.pending {
            let Some(live) = self.get(path, name).await? else {
                return Ok(None);
            };
            if is_served(&live) {
                self.changed(name);
            }
            pending.extend(unless_served(path, name.clone(), &live));
        }
        let since = known.since;
        Ok(Some(PendingCrds { since, pending }))
    }

    async fn get(&self, path: &str, name: &str) -> Result<Option<DynamicObject>, CrdError> {
        let answer = self.api.get_opt(name).await;
        answer.map_err(|error| self.error("get", path, name, error))
    }

    /// Invalidates the discovery cache for the group of a CRD.
    fn changed(&self, name: &str) {
        if let Some((_, group)) = name.split_once('.') {
            self.cluster.group_changed(group);
        }
    }

    fn error(&self, verb: &'static str, path: &str, name: &str, error: kube::Error) -> CrdError {
        CrdError::Api {
            path: path.to_owned(),
            source: ApiError::of(Target::of(verb, &self.resource, None, Some(name)), error),
        }
    }
}

/// Parses the CRDs of a file.
fn parse(file: &CrdFile) -> Result<Vec<DynamicObject>, CrdError> {
    let unreadable = || CrdError::Unreadable {
        path: file.path().to_owned(),
    };
    let objects: Vec<Value> = go_yaml::documents(file.file().data()).map_err(|_| unreadable())?;
    objects
        .into_iter()
        .filter(|object| !object.is_null())
        .map(|object| serde_json::from_value(object).map_err(|_| unreadable()))
        .collect()
}

fn conditions(live: &DynamicObject) -> impl Iterator<Item = &Value> {
    let conditions = live.data.pointer("/status/conditions");
    conditions.and_then(Value::as_array).into_iter().flatten()
}

fn unless_served(path: &str, name: String, live: &DynamicObject) -> Option<PendingCrd> {
    (!is_served(live)).then(|| PendingCrd {
        path: path.to_owned(),
        name,
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

    use super::{Cluster, Installer, PendingCrd, PendingCrds};

    const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const NAME: &str = "things.example.com";

    fn files() -> Vec<CrdFile> {
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n";
        let chart = "apiVersion: v2\nname: chart\nversion: 0.1.0\n";
        let files = [("Chart.yaml", chart), ("crds/things.yaml", definition)];
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
            name: NAME.to_owned(),
            names_conflict: names_conflict.map(ToOwned::to_owned),
        }
    }

    #[tokio::test]
    async fn crds_are_installed_without_waiting_for_them() {
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
            let cluster = Cluster::scripted(&script);
            let pending = Installer::of(&cluster).install(&files(), replace).await;
            assert_eq!(pending.unwrap(), expected, "{what}");
            script.finish();
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
            let cluster = Cluster::scripted(&script);
            let since = Timestamp::UNIX_EPOCH;
            let known = PendingCrds {
                since,
                pending: vec![pending(None)],
            };
            let seen = Installer::of(&cluster).poll(&known).await.unwrap();
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
