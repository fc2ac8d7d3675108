//! Reason why a Pod is not ready, judged from its status and its events.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Event, Pod,
    PodCondition, PodStatus,
};

use super::event::count_of;
use super::{Finding, Repeats, Severity, shortened};
use crate::diagnosis::Reason;

/// Finding about a Pod, and what else would tell more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Symptom {
    pub(super) finding: Finding,
    pub(super) clue: Clue,
}

/// Data to read to explain a symptom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Clue {
    /// Nothing; the symptom is the explanation.
    None,
    /// The events of the Pod.
    Events(Expected),
    /// The events of the `PersistentVolumeClaim`s of the Pod.
    Claims(Vec<String>),
    /// The end of a container's log.
    Log {
        container: String,
        /// Whether the log is that of its previous run.
        previous: bool,
        /// The number of its restarts.
        restarts: i32,
    },
}

/// Events that explain a symptom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Expected {
    /// An image cannot be pulled.
    Pull,
    /// A volume or the sandbox cannot be set up.
    Setup,
    /// A probe fails.
    Probe,
}

/// Returns what is wrong with a Pod; `None` for a Pod that is ready, complete or being deleted.
pub(super) fn symptom(pod: &Pod) -> Option<Symptom> {
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some()
        || phase == "Succeeded"
        || condition(status, "Ready").is_some_and(|ready| ready.status == "True")
    {
        return None;
    }
    if let Some(symptom) = unscheduled(pod, status) {
        return Some(symptom);
    }
    let init = status.init_container_statuses.iter().flatten();
    let containers = init.chain(status.container_statuses.iter().flatten());
    let worst = containers
        .filter_map(container)
        // The first of equally severe symptoms: an init container blocks those after it.
        .reduce(|known, next| {
            if known.finding.severity < next.finding.severity {
                next
            } else {
                known
            }
        });
    match worst {
        Some(worst) if phase != "Failed" || worst.finding.severity >= Severity::Crashes => {
            Some(worst)
        }
        _ if phase == "Failed" => Some(failed(status)),
        _ => None,
    }
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_)
}

/// Returns the scheduler's words for a Pod without a node.
fn unscheduled(pod: &Pod, status: &PodStatus) -> Option<Symptom> {
    let scheduled = condition(status, "PodScheduled").filter(|it| it.status == "False")?;
    let reason = match scheduled.reason.as_deref() {
        Some("SchedulingGated") => Reason::SchedulingGated,
        _ => Reason::Unschedulable,
    };
    let claims: Vec<String> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
        .collect();
    let words = scheduled.message.as_deref().unwrap_or("no node fits");
    Some(Symptom {
        finding: Finding::new(Severity::CannotRun, reason, shortened(words)),
        clue: if claims.is_empty() {
            Clue::None
        } else {
            Clue::Claims(claims)
        },
    })
}

/// Returns why a Pod failed as a whole, for example because it was evicted.
fn failed(status: &PodStatus) -> Symptom {
    let reason = status.reason.as_deref().unwrap_or("it failed");
    let message = status.message.as_deref().map(shortened);
    Symptom {
        finding: Finding::new(
            Severity::Crashes,
            Reason::PodFailed,
            match message.filter(|text| !text.is_empty()) {
                Some(message) => format!("{reason}: {message}"),
                None => reason.to_owned(),
            },
        ),
        clue: Clue::None,
    }
}

/// Returns what is wrong with a container.
fn container(container: &ContainerStatus) -> Option<Symptom> {
    let state = container.state.as_ref();
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        return Some(waits(container, waiting));
    }
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        return (ended.exit_code != 0).then(|| crashed(container, ended, false));
    }
    if container.ready {
        return None;
    }
    // It runs again, and its readiness probe has not succeeded since.
    if let Some(ended) = last_end(container).filter(|ended| ended.exit_code != 0) {
        return Some(crashed(container, ended, true));
    }
    let started = state.is_some_and(|state: &ContainerState| state.running.is_some());
    started.then(|| Symptom {
        finding: Finding::new(
            Severity::NotReady,
            Reason::ContainerNotReady,
            format!("container {} is running but not ready", container.name),
        ),
        clue: Clue::Events(Expected::Probe),
    })
}

fn last_end(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.last_state.as_ref()?.terminated.as_ref()
}

/// Returns what a container waits for.
fn waits(container: &ContainerStatus, waiting: &ContainerStateWaiting) -> Symptom {
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let text = waiting.message.as_deref().unwrap_or_default();
    let cannot_run = |reason: Reason, message: String, clue: Clue| Symptom {
        finding: Finding::new(Severity::CannotRun, reason, message),
        clue,
    };
    let image = container.image.as_str();
    match reason {
        "CrashLoopBackOff" => match last_end(container) {
            Some(ended) => crashed(container, ended, true),
            None => Symptom {
                finding: Finding::new(
                    Severity::Crashes,
                    Reason::CrashLoop,
                    format!("container {} crashes", container.name),
                ),
                clue: log(container, true),
            },
        },
        "InvalidImageName" => cannot_run(
            Reason::ImagePullFailed,
            format!("image {image} is not a valid name"),
            Clue::None,
        ),
        "ErrImageNeverPull" => cannot_run(
            Reason::ImagePullFailed,
            format!("image {image} is not on the node, and imagePullPolicy is Never"),
            Clue::None,
        ),
        "ErrImagePull" | "ImagePullBackOff" | "ImageInspectError" | "RegistryUnavailable" => {
            cannot_run(
                Reason::ImagePullFailed,
                pull(image, text),
                Clue::Events(Expected::Pull),
            )
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            let (cause, message) = missing_reference(text).unwrap_or_else(|| {
                let message = format!("container {}: {}", container.name, shortened(text));
                (Reason::ContainerNotStarted, message)
            });
            cannot_run(cause, message, Clue::None)
        }
        _ => Symptom {
            finding: Finding::new(
                Severity::Starting,
                Reason::ContainerCreating,
                format!("container {} is being created", container.name),
            ),
            clue: Clue::Events(Expected::Setup),
        },
    }
}

/// Returns how a container ended, and how often.
fn crashed(
    container: &ContainerStatus,
    ended: &ContainerStateTerminated,
    previous: bool,
) -> Symptom {
    let name = &container.name;
    let (reason, how) = match ended.reason.as_deref() {
        Some("OOMKilled") => (
            Reason::OOMKilled,
            format!("container {name} ran out of memory"),
        ),
        _ => (
            Reason::CrashLoop,
            format!("container {name} exited with code {}", ended.exit_code),
        ),
    };
    Symptom {
        finding: Finding {
            repeats: Repeats::Restarts(container.restart_count),
            ..Finding::new(Severity::Crashes, reason, how)
        },
        clue: log(container, previous),
    }
}

fn log(container: &ContainerStatus, previous: bool) -> Clue {
    Clue::Log {
        container: container.name.clone(),
        previous,
        restarts: container.restart_count,
    }
}

/// Explains why an image was not pulled, from the words of the kubelet or the registry.
fn pull(image: &str, text: &str) -> String {
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if has(&[
        "denied",
        "unauthorized",
        "no basic auth",
        "authentication required",
        "401 Unauthorized",
        "403 Forbidden",
    ]) {
        format!("image {image}: access denied; is an imagePullSecret missing or wrong?")
    } else if has(&["not found", "manifest unknown"]) {
        format!("image {image} not found")
    } else {
        match detail(text) {
            Some(detail) => format!("image {image}: {detail}"),
            None => format!("image {image} cannot be pulled"),
        }
    }
}

/// Returns what a text says beyond that the kubelet waits before its next attempt.
fn detail(text: &str) -> Option<String> {
    let text = shortened(text);
    (!text.is_empty() && !text.starts_with("Back-off pulling image")).then_some(text)
}

/// Names the Secret or `ConfigMap` that a text says is missing, such as `secret "auth" not found`.
fn missing_reference(text: &str) -> Option<(Reason, String)> {
    [
        ("secret \"", Reason::SecretMissing, "Secret"),
        ("configmap \"", Reason::ConfigMapMissing, "ConfigMap"),
    ]
    .into_iter()
    .find_map(|(before, reason, kind)| {
        let (_, rest) = text.split_once(before)?;
        let (name, rest) = rest.split_once('"')?;
        rest.trim_start()
            .starts_with("not found")
            .then(|| (reason, format!("{kind} {name} not found")))
    })
}

/// Explains a symptom with the newest event of the Pod that was expected.
pub(super) fn explained(finding: Finding, expected: Expected, pod: &Pod, event: &Event) -> Finding {
    let text = event.message.as_deref().unwrap_or_default();
    let repeats = Repeats::Times(count_of(event));
    match expected {
        Expected::Pull => {
            let vague = finding.message.ends_with("cannot be pulled");
            let image = image_of(&finding, pod).filter(|_| vague);
            let message = image.map(|image| pull(image, text));
            Finding {
                message: message.unwrap_or_else(|| finding.message.clone()),
                repeats,
                ..finding
            }
        }
        Expected::Setup => {
            let (reason, message) = missing_reference(text).unwrap_or_else(|| {
                let reason = match event.reason.as_deref() {
                    Some("FailedCreatePodSandBox") => Reason::SandboxFailed,
                    _ => Reason::VolumePending,
                };
                (reason, shortened(text))
            });
            Finding {
                repeats,
                ..Finding::new(Severity::CannotRun, reason, message)
            }
        }
        Expected::Probe => Finding {
            repeats,
            ..Finding::new(finding.severity, Reason::ProbeFailed, shortened(text))
        },
    }
}

fn image_of<'a>(finding: &Finding, pod: &'a Pod) -> Option<&'a str> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|container| finding.message.contains(container.image.as_str()))
        .map(|container| container.image.as_str())
}

#[cfg(test)]
mod tests;
