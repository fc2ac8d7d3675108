//! Runs a check: reads the deployed revision, judges the spec on the render pool, and asks the API server about the
//! objects.

use std::sync::Arc;
use std::time::Duration;

use helm_core::release::{Release as Record, Status};
use helm_release::Records;
use helm_release::preview::capabilities;
use kube::Client;
use kube::api::DynamicObject;
use kube_objects::client::impersonate;
use kube_objects::{Cluster, OperatorId, with_causes};
use operator_runtime::manager::{ControllerContext, ControllerError};
use serde_json::Value;

use super::super::custom_resource::account;
use super::super::offline::{PreviewInput, primary};
use super::ask::{Answer, Question};
use super::judge::{Judged, Release, Verdict};
use super::{Entry, Outcome, outcome};
use crate::options::ChartOptions;
use crate::process::Renders;
use crate::watches::{AdmissionMode, ChartLimits};

/// Age of the capabilities of the cluster, as in the reconciler.
const CAPABILITIES_AGE: Duration = Duration::from_mins(10);

/// Parts of the process that a check uses.
pub(super) struct Process {
    client: Client,
    pub(super) cluster: Cluster,
    renders: Renders,
    limits: ChartLimits,
    operator: OperatorId,
    /// Namespace of the operator.
    home: Option<String>,
}

impl Process {
    pub(super) fn of(context: &ControllerContext) -> Self {
        Self {
            client: context.client().clone(),
            cluster: context.connection.cluster.clone(),
            renders: Renders::of(context),
            limits: ChartOptions::of(context).limits(),
            operator: context.identity.operator.clone(),
            home: context.identity.namespace.clone(),
        }
    }

    /// Judges a spec. What keeps it from being judged allows it.
    pub(super) async fn judge(
        &self,
        entry: &Arc<Entry>,
        object: Value,
        old: Option<&Value>,
    ) -> Outcome {
        match self.try_to_judge(entry, object, old).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::NotChecked(with_causes(error.as_ref())),
        }
    }

    /// Judges a spec; an error says why it cannot be judged.
    async fn try_to_judge(
        &self,
        entry: &Arc<Entry>,
        object: Value,
        old: Option<&Value>,
    ) -> Result<Outcome, ControllerError> {
        let deployed = match old {
            Some(old) if entry.mode == AdmissionMode::Render => {
                deployed(&self.client, entry, old).await?
            }
            _ => None,
        };
        let capabilities = capabilities(&self.cluster, CAPABILITIES_AGE).await?;
        let watch = entry.watch.clone().with_limits(self.limits);
        let own = watch.policy.limits.of_render();
        let trial = self.renders.memory.trial(own).await?;
        let (limits, chart) = (trial.limits.clone(), entry.chart.clone());
        let (mode, home) = (entry.mode, self.home.clone());
        let asked = watch.policy.lookup_is_input.then(|| object.clone());
        let job = move |cancel| {
            let preview = PreviewInput {
                watch: &watch,
                chart: &chart,
                object: &object,
                operator_namespace: home.as_deref(),
                latest: deployed.as_ref().map(|deployed| &deployed.record),
                values_in_errors: false,
            };
            let judged = Judged {
                mode,
                preview,
                capabilities: &capabilities,
                limits,
                cancel,
            };
            let verdict = judged.verdict();
            drop(trial);
            let outcome = outcome(&verdict, &watch, &chart, deployed.as_ref());
            (outcome, verdict)
        };
        let (mut outcome, verdict) = self.renders.pool.run(job).await?;
        if let (Some(object), Verdict::Rendered(release)) = (asked, verdict)
            && let Outcome::Allowed(warnings) = &mut outcome
        {
            match self.ask(entry, &object, &release).await? {
                Answer::Accepted => {}
                Answer::Refused(message) => return Ok(Outcome::Denied(message)),
                Answer::Unknown(why) => {
                    warnings.push(format!("not checked by the API server: {why}"));
                }
            }
        }
        Ok(outcome)
    }

    /// Asks the API server about the objects of a release, with its account.
    async fn ask(
        &self,
        entry: &Entry,
        object: &Value,
        release: &Release,
    ) -> Result<Answer, ControllerError> {
        let (watch, chart) = (&entry.watch, &entry.chart);
        let primary = primary(watch, object);
        let account = account(watch, &primary, object, self.home.as_deref())?;
        let cluster = match account {
            None => self.cluster.clone(),
            Some(account) => {
                let client = impersonate(&self.client, account.namespace(), &account.user())?;
                self.cluster.with_client(client)
            }
        };
        let question = Question {
            cluster: &cluster,
            operator: &self.operator,
            primary: &primary,
            chart: chart.name(),
            policy: &watch.policy,
            release,
        };
        Ok(question.ask().await)
    }
}

/// The deployed revision of a release.
pub(super) struct Deployed {
    pub(super) record: Record,
    pub(super) digest: Option<String>,
}

/// Reads the deployed revision of a custom resource, if its status has a release.
async fn deployed(
    client: &Client,
    entry: &Entry,
    resource: &Value,
) -> Result<Option<Deployed>, ControllerError> {
    let namespace = resource
        .pointer("/status/release/namespace")
        .and_then(Value::as_str);
    let own = resource
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    if resource.pointer("/status/release/revision").is_none() {
        return Ok(None);
    }
    let resource: DynamicObject = serde_json::from_value(resource.clone())?;
    let records = Records::new(client.clone(), entry.storage);
    let history = records
        .of(&entry.watch.gvk, &resource, namespace.or(own))
        .await?;
    let mut newest = history.iter().rev();
    let Some(info) = newest.find(|record| record.status() == Status::Deployed) else {
        return Ok(None);
    };
    Ok(Some(Deployed {
        record: records.load(info).await?,
        digest: info.digest(),
    }))
}
