//! `admission`: checks a custom resource before it is stored, by computing its values and rendering its chart.
//!
//! # Flow
//! Every replica follows the entries of the watches file, and the API server asks any of them when a custom
//! resource of such an entry is created or its spec is changed. The check runs on the render pool.
//!
//! # Guarantees
//! * Only a new spec can be denied: see [`ObjectWebhooks`].
//! * What cannot be known in time is allowed, with a warning that says so: a chart that takes longer than
//!   [`WITHIN`], looks up objects, or gets values from Secrets and `ConfigMap`s.
//! * A check changes nothing. It reads at most the records of the release, to say what the change does, and with
//!   `dryRunOption: server` asks the API server about the objects, with the account of the release.
//!
//! [`ObjectWebhooks`]: operator_runtime::webhook::ObjectWebhooks

mod ask;
mod judge;
mod message;
mod process;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use helm_core::manifest::parse_objects;
use helm_release::Storage;
use host::watch;
use kube::core::{GroupVersionKind, SelectorExt as _};
use kube_objects::{Cluster, Scope};
use operator_runtime::manager::{Controller, ControllerContext, ControllerError};
use operator_runtime::webhook::{Denied, ObjectWebhook, ObjectWebhooks, Request};
use serde_json::Value;

use super::builder::HelmController;
use super::chart::Chart;
use super::effects::effects;
use crate::watches::{AdmissionMode, Problem, Watch, WatchesError};
use judge::Verdict;
pub use message::refusal;
use process::{Deployed, Process};

/// Time limit of a check.
const WITHIN: Duration = Duration::from_secs(2);
/// Time between two attempts to find a kind that is not served yet.
const RETRY: Duration = Duration::from_secs(2);

/// The admission of custom resources. Clones share it.
#[derive(Clone)]
pub(crate) struct Admission {
    state: Arc<State>,
    webhooks: ObjectWebhooks,
}

/// State of the checks.
struct State {
    /// The entries with `admission`.
    entries: watch::Sender<Vec<Arc<Entry>>>,
    process: OnceLock<Process>,
}

/// An entry with `admission`.
struct Entry {
    watch: Watch,
    mode: AdmissionMode,
    chart: Chart,
    storage: Storage,
}

impl Default for Admission {
    fn default() -> Self {
        let state = Arc::new(State {
            entries: watch::Sender::new(Vec::new()),
            process: OnceLock::new(),
        });
        let checks = Arc::clone(&state);
        let webhooks = ObjectWebhooks::new(move |request| {
            let checks = Arc::clone(&checks);
            async move { checks.check(request).await }
        });
        Self { state, webhooks }
    }
}

/// Refuses entries whose admission would not know the values.
pub(super) fn checked(
    file: &Path,
    controllers: Vec<HelmController>,
) -> Result<Vec<HelmController>, WatchesError> {
    let unknown = |controller: &HelmController| {
        let wrong = controller.watch().admission.is_some() && controller.has_translator();
        let kind = controller.kind();
        wrong.then(|| Problem {
            line: 0,
            column: 0,
            field: String::new(),
            message: format!(
                "{kind} has `admission`, which does not know the values that the value translator of this program \
                 computes; remove `admission`"
            ),
        })
    };
    let problems: Vec<Problem> = controllers.iter().filter_map(unknown).collect();
    if problems.is_empty() {
        return Ok(controllers);
    }
    Err(WatchesError::Invalid {
        path: file.to_owned(),
        problems,
    })
}

impl Admission {
    /// Returns the webhooks, for the manager.
    pub(crate) fn webhooks(&self) -> ObjectWebhooks {
        self.webhooks.clone()
    }

    /// Checks custom resources as the newest entries say.
    pub(super) fn follow(&self, controllers: &[HelmController]) {
        let entry = |controller: &HelmController| {
            let watch = controller.watch();
            Some(Arc::new(Entry {
                mode: watch.admission?.mode,
                watch: watch.clone(),
                chart: controller.chart().clone(),
                storage: controller.records_in(),
            }))
        };
        let entries: Vec<_> = controllers.iter().filter_map(entry).collect();
        if !entries.is_empty() {
            self.webhooks.expect_kinds();
        }
        self.state.entries.send_replace(entries);
    }

    /// Registers the kinds of the entries, and those that are not served yet once they are.
    async fn register(&self, cluster: &Cluster) {
        let mut entries = self.state.entries.subscribe();
        let mut known: Vec<(GroupVersionKind, ObjectWebhook)> = Vec::new();
        loop {
            let newest = entries.borrow_and_update().clone();
            let found = join_all(newest.iter().map(|entry| entry.webhook(cluster, &known))).await;
            let is_complete = found.iter().all(Option::is_some);
            let had_some = !known.is_empty();
            known = found.into_iter().flatten().collect();
            // A process without admission never has webhooks.
            if had_some || !newest.is_empty() {
                let webhooks = known.iter().map(|(_, webhook)| webhook.clone());
                self.webhooks.set(webhooks.collect());
            }
            let retry = async {
                if is_complete {
                    std::future::pending::<()>().await;
                } else {
                    tokio::time::sleep(RETRY).await;
                }
            };
            tokio::select! {
                biased;
                Ok(()) = entries.changed() => {}
                () = retry => {}
            }
        }
    }
}

impl Controller for Admission {
    fn name(&self) -> &'static str {
        "admission"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move {
            let process = self.state.process.get_or_init(|| Process::of(&context));
            let registered = self.register(&process.cluster);
            context.stop.run_until_cancelled(registered).await;
            Ok(())
        })
    }
}

impl Entry {
    /// Returns the webhook of the kind; that in `known` while discovery fails.
    async fn webhook(
        &self,
        cluster: &Cluster,
        known: &[(GroupVersionKind, ObjectWebhook)],
    ) -> Option<(GroupVersionKind, ObjectWebhook)> {
        let gvk = &self.watch.gvk;
        let former = || known.iter().find(|(kind, _)| kind == gvk);
        let (kind, namespaced) = match cluster.resolve(gvk).await {
            Ok(kind) => (kind.resource.clone(), kind.scope == Scope::Namespaced),
            Err(_) => former().map(|(_, known)| (known.kind.clone(), known.namespaced))?,
        };
        let webhook = ObjectWebhook {
            kind,
            namespaced,
            failure_policy: self.watch.admission?.failure_policy,
        };
        Some((gvk.clone(), webhook))
    }

    /// Returns whether the operator manages a custom resource.
    fn selects(&self, object: &Value) -> bool {
        let Some(selector) = &self.watch.selector else {
            return true;
        };
        let labels = object.pointer("/metadata/labels").cloned();
        let labels: BTreeMap<String, String> = labels
            .and_then(|labels| serde_json::from_value(labels).ok())
            .unwrap_or_default();
        selector.matches(&labels)
    }
}

impl State {
    /// Checks the custom resource of a request, whose spec is new.
    async fn check(&self, request: Request<Value>) -> Result<(), Denied> {
        let kind = &request.review().kind;
        let entries = self.entries.subscribe().borrow().clone();
        let is_of = |entry: &&Arc<Entry>| {
            let gvk = &entry.watch.gvk;
            gvk.group == kind.group && gvk.version == kind.version && gvk.kind == kind.kind
        };
        let entry = entries.iter().find(is_of);
        let Some(entry) = entry.filter(|entry| entry.selects(request.object())) else {
            return Ok(());
        };
        let object = named(request.object());
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let subject = format!("{} {:?}", kind.kind, name.unwrap_or_default());
        let not_checked = |why: &str| request.warn(format!("{subject} was not checked: {why}"));
        let Some(process) = self.process.get() else {
            not_checked("the operator is starting");
            return Ok(());
        };
        let judged = process.judge(entry, object, request.old());
        match tokio::time::timeout(WITHIN, judged).await {
            Err(_) => not_checked(&format!("it takes longer than {} s", WITHIN.as_secs())),
            Ok(Outcome::NotChecked(why)) => not_checked(&why),
            Ok(Outcome::Allowed(effects)) => effects
                .into_iter()
                .for_each(|effect| request.warn(format!("{subject}: {effect}"))),
            Ok(Outcome::Denied(message)) => {
                return Err(Denied::new(format!("{subject}: {message}")));
            }
        }
        Ok(())
    }
}

/// Returns a custom resource with a name, as the API server generates one.
fn named(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("name").is_none()
    {
        let prefix = metadata.get("generateName").and_then(Value::as_str);
        let name = format!("{}00000", prefix.unwrap_or_default());
        metadata.insert("name".to_owned(), name.into());
    }
    object
}

/// Outcome of a check.
#[derive(Debug)]
enum Outcome {
    /// With what the change does.
    Allowed(Vec<String>),
    Denied(String),
    /// The reason why it is allowed nevertheless.
    NotChecked(String),
}

/// Returns what a verdict means for a request.
fn outcome(
    verdict: &Verdict,
    watch: &Watch,
    chart: &Chart,
    deployed: Option<&Deployed>,
) -> Outcome {
    let release = match verdict {
        Verdict::Valid => return Outcome::Allowed(Vec::new()),
        Verdict::Unknown(why) => return Outcome::NotChecked(why.clone()),
        Verdict::Wrong(error) => {
            return Outcome::Denied(refusal(error, chart.name(), watch, false));
        }
        Verdict::Rendered(release) => release,
    };
    let Some(deployed) = deployed.filter(|deployed| deployed.digest != release.digest) else {
        return Outcome::Allowed(Vec::new());
    };
    // A manifest that cannot be read says nothing about the new spec.
    let former = parse_objects(&deployed.record.manifest).unwrap_or_default();
    let (objects, namespace) = (&release.objects, &release.namespace);
    Outcome::Allowed(effects(&former, objects, namespace, &watch.policy))
}
