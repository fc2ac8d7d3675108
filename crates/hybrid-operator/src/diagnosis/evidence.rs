//! Reads what explains why an object is not ready. Every read is bounded.

use helm_core::manifest::ObjectKey;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams};
use kube::core::Selector;
use serde_json::Value;

use super::pod::{self, Clue, Symptom};
use super::{Finding, Severity, creation, shortened, times};
use crate::cluster::{Cluster, read};
use crate::reasons::Reason;

/// Maximum number of Pods of a workload that are read.
const MAX_PODS: u32 = 100;
/// Maximum number of events of an object that are read.
const MAX_EVENTS: u32 = 100;
/// Number of lines that are shown of a log.
const LOG_LINES: i64 = 5;
/// Maximum number of bytes that are read of a log.
const LOG_BYTES: i64 = 2 * 1024;

/// What can be read about one object.
pub(super) struct Evidence<'a> {
    cluster: &'a Cluster,
    key: &'a ObjectKey,
    namespace: &'a str,
    /// Whether logs are read.
    logs: bool,
}

/// Returns how often an event happened.
pub(super) fn count_of(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.or(event.count).unwrap_or(1)
}

impl<'a> Evidence<'a> {
    pub(super) fn new(cluster: &'a Cluster, key: &'a ObjectKey, logs: bool) -> Self {
        Self {
            cluster,
            key,
            namespace: key.namespace.as_deref().unwrap_or_default(),
            logs,
        }
    }

    /// Returns what is wrong with the object, as far as it can be read.
    pub(super) async fn finding(&self) -> Option<Finding> {
        match (self.key.group.as_str(), self.key.kind.as_str()) {
            ("", "Pod") => {
                let pods: Api<Pod> = self.api();
                let pod = self.known(pods.get_opt(&self.key.name).await)??;
                self.of_pod(&pod).await
            }
            ("", "PersistentVolumeClaim") => self.of_claim(&self.key.name).await,
            ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job") => self.of_workload().await,
            _ => None,
        }
    }

    async fn of_workload(&self) -> Option<Finding> {
        let workload = match read::get(self.cluster, self.key).await {
            Ok(found) => found?,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::debug!(object = %self.key, error, "cannot read an object that is not ready");
                return None;
            }
        };
        let pods: Api<Pod> = self.api();
        let params = ListParams::default()
            .labels(&selector(&workload)?)
            .limit(MAX_PODS);
        let pods = match pods.list(&params).await {
            Err(kube::Error::Api(status)) if status.is_forbidden() => return Some(unreadable()),
            pods => self.known(pods)?,
        };
        let mut worst: Option<(&Pod, Symptom)> = None;
        for pod in &pods {
            if let Some(symptom) = pod::symptom(pod)
                && worst
                    .as_ref()
                    .is_none_or(|(_, known)| known.finding.severity < symptom.finding.severity)
            {
                worst = Some((pod, symptom));
            }
        }
        if let Some((pod, symptom)) = worst {
            let finding = self.explain(pod, symptom).await;
            return Some(Finding {
                message: format!("Pod {}: {}", pod.name_any(), finding.message),
                ..finding
            });
        }
        let uid = workload.pointer("/metadata/uid").and_then(Value::as_str)?;
        let events = self.events(uid).await;
        creation::finding(&workload, &events)
    }

    async fn of_pod(&self, pod: &Pod) -> Option<Finding> {
        let symptom = pod::symptom(pod)?;
        Some(self.explain(pod, symptom).await)
    }

    /// Adds what the clue of a symptom leads to.
    async fn explain(&self, pod: &Pod, symptom: Symptom) -> Finding {
        let Symptom { finding, clue } = symptom;
        match clue {
            Clue::None => finding,
            Clue::Events(expected) => {
                let events = match pod.uid() {
                    Some(uid) => self.events(&uid).await,
                    None => Vec::new(),
                };
                pod::explained(finding, expected, pod, &events)
            }
            Clue::Claims(names) => {
                for name in names {
                    if let Some(found) = self.of_claim(&name).await {
                        return Finding {
                            message: format!("PersistentVolumeClaim {name}: {}", found.message),
                            ..found
                        };
                    }
                }
                finding
            }
            Clue::Log {
                container,
                previous,
            } => match self.log(&pod.name_any(), &container, previous).await {
                Some(log) => Finding {
                    message: format!("{}; its log ends with:\n{log}", finding.message),
                    ..finding
                },
                None => finding,
            },
        }
    }

    /// Returns why a claim is not bound; `None` if it is, or waits for its Pod to be scheduled.
    async fn of_claim(&self, name: &str) -> Option<Finding> {
        let claims: Api<PersistentVolumeClaim> = self.api();
        let Some(claim) = self.known(claims.get_opt(name).await)? else {
            return Some(Finding {
                severity: Severity::CannotRun,
                reason: Reason::VolumePending,
                message: "it does not exist".to_owned(),
            });
        };
        let phase = claim.status.as_ref()?.phase.as_deref()?;
        if phase == "Bound" {
            return None;
        }
        let events = self.events(&claim.uid()?).await;
        let event = events.iter().find(|event| {
            let reason = event.reason.as_deref();
            matches!(reason, Some("ProvisioningFailed" | "FailedBinding"))
        })?;
        let text = event.message.as_deref().unwrap_or_default();
        Some(Finding {
            severity: Severity::CannotRun,
            reason: Reason::VolumePending,
            message: format!("{}{}", shortened(text), times(count_of(event))),
        })
    }

    /// Returns the events of an object, newest first.
    async fn events(&self, uid: &str) -> Vec<Event> {
        let events: Api<Event> = self.api();
        let params = ListParams::default()
            .fields(&format!("involvedObject.uid={uid}"))
            .limit(MAX_EVENTS);
        let found = self.known(events.list(&params).await);
        let mut events = found.map(|list| list.items).unwrap_or_default();
        events.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        events
    }

    /// Returns the last lines of a container's log.
    async fn log(&self, pod: &str, container: &str, previous: bool) -> Option<String> {
        if !self.logs {
            return None;
        }
        let pods: Api<Pod> = self.api();
        let params = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        let text = self.known(pods.logs(pod, &params).await)?;
        let lines: Vec<String> = text
            .lines()
            .map(|line| shortened(&printable(line)))
            .filter(|line| !line.is_empty())
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client().clone(), self.namespace)
    }

    /// Returns what a request read. A failure is logged: the release is not ready with or without
    /// its explanation.
    fn known<T>(&self, answer: Result<T, kube::Error>) -> Option<T> {
        answer
            .inspect_err(|error| {
                let error: &dyn std::error::Error = error;
                tracing::debug!(object = %self.key, error, "cannot read why an object is not ready");
            })
            .ok()
    }
}

/// What is reported of a workload whose Pods may not be read.
fn unreadable() -> Finding {
    Finding {
        severity: Severity::Starting,
        reason: Reason::ObjectsNotReady,
        message: "not ready; the cause is in its Pods, which this operator may not list".to_owned(),
    }
}

/// Returns the label selector of a workload's Pods.
fn selector(workload: &Value) -> Option<String> {
    let selector = workload.pointer("/spec/selector")?.clone();
    let selector: LabelSelector = serde_json::from_value(selector).ok()?;
    let selector = Selector::try_from(selector).ok()?;
    // An empty selector would select the Pods of others.
    (!selector.selects_all()).then(|| selector.to_string())
}

/// Returns when an event was seen last, in seconds.
fn last_seen(event: &Event) -> i64 {
    let series = event.series.as_ref();
    let micro = series
        .and_then(|series| series.last_observed_time.as_ref())
        .or(event.event_time.as_ref());
    let created = event.metadata.creation_timestamp.as_ref();
    event
        .last_timestamp
        .as_ref()
        .map(|time| time.0.as_second())
        .max(micro.map(|time| time.0.as_second()))
        .or_else(|| created.map(|time| time.0.as_second()))
        .unwrap_or(0)
}

/// Removes control characters, such as those that colour the log on a terminal.
fn printable(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // An escape sequence ends with a letter.
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else if !character.is_control() || character == '\t' {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests;
