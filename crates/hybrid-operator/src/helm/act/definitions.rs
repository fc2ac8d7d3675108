//! The definitions of a chart's `crds/`: installed before anything else of the release, and
//! awaited. They are never deleted: with a definition go all custom resources of its kind.
//!
//! Nothing is recorded before they are served: whoever comes after a crash finds them, looks at
//! them once more, and goes on.
//!
//! RBAC: `get` and, by the policy, `create` or `patch` on `customresourcedefinitions`.

use std::fmt;
use std::time::Duration;

use helm_core::chart::CrdFile;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::super::desired::Desired;
use super::super::kind::Kind;
use super::super::memory::Memory;
use super::super::report::Report;
use super::super::setup::{Setup, timeout};
use super::{ActContext, ActError};
use crate::cluster::{ApiError, Cluster, FIELD_MANAGER, Target};
use crate::watches::CrdPolicy;

/// The shortest and the longest time between two looks at a definition.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Why a definition is not there.
#[derive(Debug, thiserror::Error)]
pub(in crate::helm) enum DefinitionError {
    /// A file of `crds/` is not one.
    #[error("{path} holds no CustomResourceDefinition that can be read")]
    Unreadable {
        /// The file.
        path: String,
    },
    /// A definition is not installed.
    #[error("{path} cannot be installed")]
    Api {
        /// The file.
        path: String,
        /// Why.
        source: ApiError,
    },
    /// A definition is not served for a long time.
    #[error("{what} is not served after {timeout:?}")]
    Late {
        /// The definition, and what the API server objects to.
        what: String,
        /// The time.
        timeout: Duration,
    },
}

impl DefinitionError {
    /// Whether the same may succeed in a moment.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => source.is_transient(),
            Self::Unreadable { .. } | Self::Late { .. } => false,
        }
    }
}

/// Definitions that were installed and are not served yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::helm) struct Definitions {
    since: Timestamp,
    awaited: Vec<Awaited>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Awaited {
    path: String,
    name: String,
    /// What the API server objects to.
    objection: Option<String>,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the definition {} of {}", self.name, self.path)?;
        match &self.objection {
            Some(objection) => write!(f, " ({objection})"),
            None => Ok(()),
        }
    }
}

/// What is waited for, and when to look again.
#[derive(Debug, PartialEq, Eq)]
struct NotServed {
    why: String,
    delay: Duration,
}

impl Definitions {
    /// What is still waited for: the longer it takes the rarer are the looks, and in the end it
    /// is an error.
    fn not_served(
        &self,
        now: Timestamp,
        timeout: Duration,
    ) -> Result<Option<NotServed>, DefinitionError> {
        let Some(first) = self.awaited.first() else {
            return Ok(None);
        };
        let waited = now.duration_since(self.since).unsigned_abs();
        if waited > timeout {
            let what = first.to_string();
            return Err(DefinitionError::Late { what, timeout });
        }
        let (soonest, latest) = LOOKS;
        Ok(Some(NotServed {
            why: format!("{first} to be served"),
            delay: waited.clamp(soonest, latest),
        }))
    }
}

/// Whether definitions come before a new revision. As in Helm, an upgrade does not create
/// definitions unless it replaces them.
pub(in crate::helm) fn are_wanted(setup: &Setup, desired: &Desired, upgrade: bool) -> bool {
    let policy = match setup.watch.crds {
        CrdPolicy::Skip => false,
        CrdPolicy::Create => !upgrade,
        CrdPolicy::CreateReplace => true,
    };
    policy && !desired.inputs.coalesced.chart().crds().is_empty()
}

/// Installs what is missing, or, with `createReplace`, makes all of them the chart's. What is not
/// served yet is remembered, and the next call only looks.
pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    upgrade: bool,
) -> Result<Report, ActError> {
    let desired = context.wanted("install definitions")?;
    let (setup, now) = (context.setup, context.subject.now);
    if !context.add_finalizer().await? {
        return Ok(Report::gone());
    }
    let installer = Installer::of(&context.subject.cluster);
    memory.definitions = match &memory.definitions {
        Some(known) => installer.look(known).await?,
        None => Some(Definitions {
            since: now,
            awaited: installer
                .install(
                    &desired.inputs.coalesced.chart().crds(),
                    setup.watch.crds == CrdPolicy::CreateReplace,
                )
                .await?,
        }),
    };
    let Some(known) = &memory.definitions else {
        // Somebody has deleted one of them: all are installed again.
        return Ok(Report::wait("its definitions", LOOKS.0));
    };
    let kind = if upgrade {
        Kind::Upgrade
    } else {
        Kind::Install
    };
    let limit = timeout(setup.policy(kind).timeout);
    if let Some(NotServed { why, delay }) = known.not_served(now, limit)? {
        return Ok(Report::wait(why, delay));
    }
    memory.definitions = None;
    memory.definitions_served = Some(desired.inputs.digest.clone());
    Ok(Report::go_on())
}

/// Installs definitions and looks at them.
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

    /// Installs the definitions of these files; answers those that are not served yet.
    async fn install(
        &self,
        files: &[CrdFile],
        replace: bool,
    ) -> Result<Vec<Awaited>, DefinitionError> {
        let mut awaited = Vec::new();
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
                awaited.extend(unless_served(path, name, &live));
            }
        }
        Ok(awaited)
    }

    async fn replace(
        &self,
        path: &str,
        name: &str,
        object: &DynamicObject,
    ) -> Result<DynamicObject, DefinitionError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer = self.api.patch(name, &params, &Patch::Apply(object)).await;
        answer.map_err(|error| self.error("patch", path, name, error))
    }

    /// As in Helm, one that exists stays as it is.
    async fn create(
        &self,
        path: &str,
        name: &str,
        object: &DynamicObject,
    ) -> Result<DynamicObject, DefinitionError> {
        if let Some(live) = self.get(path, name).await? {
            return Ok(live);
        }
        match self.api.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let live = self.get(path, name).await?;
                Ok(live.unwrap_or_else(|| object.clone()))
            }
            answer => answer.map_err(|error| self.error("create", path, name, error)),
        }
    }

    /// Looks at what is waited for; `None` if one of them is gone.
    async fn look(&self, known: &Definitions) -> Result<Option<Definitions>, DefinitionError> {
        let mut awaited = Vec::new();
        for Awaited { path, name, .. } in &known.awaited {
            let Some(live) = self.get(path, name).await? else {
                return Ok(None);
            };
            if is_served(&live) {
                self.changed(name);
            }
            awaited.extend(unless_served(path, name.clone(), &live));
        }
        let since = known.since;
        Ok(Some(Definitions { since, awaited }))
    }

    async fn get(&self, path: &str, name: &str) -> Result<Option<DynamicObject>, DefinitionError> {
        let answer = self.api.get_opt(name).await;
        answer.map_err(|error| self.error("get", path, name, error))
    }

    /// Has the kinds of a definition's group asked for anew.
    fn changed(&self, name: &str) {
        if let Some((_, group)) = name.split_once('.') {
            self.cluster.group_changed(group);
        }
    }

    fn error(
        &self,
        verb: &'static str,
        path: &str,
        name: &str,
        error: kube::Error,
    ) -> DefinitionError {
        DefinitionError::Api {
            path: path.to_owned(),
            source: ApiError::of(Target::of(verb, &self.resource, None, Some(name)), error),
        }
    }
}

/// The definitions of a file.
fn parse(file: &CrdFile) -> Result<Vec<DynamicObject>, DefinitionError> {
    let unreadable = || DefinitionError::Unreadable {
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

fn unless_served(path: &str, name: String, live: &DynamicObject) -> Option<Awaited> {
    (!is_served(live)).then(|| Awaited {
        path: path.to_owned(),
        name,
        objection: objection(live),
    })
}

fn is_served(live: &DynamicObject) -> bool {
    conditions(live).any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Why a definition is not accepted: its names may be those of another one.
fn objection(live: &DynamicObject) -> Option<String> {
    conditions(live)
        .find(|c| c["type"] == "NamesAccepted" && c["status"] == "False")
        .and_then(|c| Some(c["message"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helm_core::chart::{Chart, CrdFile, File};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{Awaited, Definitions, Installer};
    use crate::cluster::scripted::{Script, failure};

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

    fn awaited(objection: Option<&str>) -> Awaited {
        Awaited {
            path: "chart/crds/things.yaml".to_owned(),
            name: NAME.to_owned(),
            objection: objection.map(ToOwned::to_owned),
        }
    }

    #[tokio::test]
    async fn a_definition_is_installed_without_waiting_for_it() {
        let (get, post, patch) = (one("GET"), format!("POST {ALL}"), one("PATCH"));
        let absent = || failure(404, "NotFound", "", &json!({}));
        let exists = || failure(409, "AlreadyExists", "", &json!({}));
        let fresh = || live(&json!([]));
        for (what, replace, answers, expected) in [
            ("there", false, vec![(&get, 200, served())], vec![]),
            (
                "missing",
                false,
                vec![(&get, 404, absent()), (&post, 201, fresh())],
                vec![awaited(None)],
            ),
            (
                "made by somebody else meanwhile",
                false,
                vec![
                    (&get, 404, absent()),
                    (&post, 409, exists()),
                    (&get, 200, served()),
                ],
                vec![],
            ),
            // As after a crash between its creation and the record.
            (
                "there, not served",
                false,
                vec![(&get, 200, fresh())],
                vec![awaited(None)],
            ),
            ("replaced", true, vec![(&patch, 200, served())], vec![]),
            (
                "applied",
                true,
                vec![(&patch, 201, fresh())],
                vec![awaited(None)],
            ),
        ] {
            let script = answers
                .into_iter()
                .fold(Script::default(), |script, (request, status, answer)| {
                    script.on(request, status, answer)
                });
            let cluster = script.cluster();
            let awaited = Installer::of(&cluster).install(&files(), replace).await;
            assert_eq!(awaited.unwrap(), expected, "{what}");
            script.finish();
        }
    }

    #[tokio::test]
    async fn a_later_look_sends_nothing_but_reads() {
        let taken =
            json!([{"type": "NamesAccepted", "status": "False", "message": "Thing is in use"}]);
        let gone = failure(404, "NotFound", "", &json!({}));
        for (status, answer, left) in [
            (200, served(), Some(vec![])),
            (
                200,
                live(&taken),
                Some(vec![awaited(Some("Thing is in use"))]),
            ),
            (404, gone, None),
        ] {
            let script = Script::default().on(&one("GET"), status, answer);
            let cluster = script.cluster();
            let since = Timestamp::UNIX_EPOCH;
            let known = Definitions {
                since,
                awaited: vec![awaited(None)],
            };
            let seen = Installer::of(&cluster).look(&known).await.unwrap();
            assert_eq!(seen.map(|seen| seen.awaited), left);
            script.finish();
        }
    }

    #[test]
    fn looks_become_rarer_and_in_the_end_the_definition_is_named() {
        let timeout = Duration::from_mins(1);
        let known = Definitions {
            since: Timestamp::UNIX_EPOCH,
            awaited: vec![awaited(Some("Thing is in use"))],
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
            "the definition things.example.com of chart/crds/things.yaml (Thing is in use) is not served after 60s"
        );
    }
}
