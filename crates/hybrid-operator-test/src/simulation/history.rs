//! Histories: what people, faults and deployments do, and when.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::snapshot::text;
use crate::fault::Fault;

/// A history. The same history leads to the same requests.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Seed of the delays and of the names and values that are drawn.
    pub seed: u64,
    /// Number of processes of the program, of which one is elected.
    pub replicas: usize,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The time until the action.
    pub after: After,
    /// The action.
    #[serde(rename = "do")]
    pub action: Action,
}

impl Step {
    pub(super) fn new(after: After, action: Action) -> Self {
        Self { after, action }
    }
}

/// The time between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum After {
    /// Until nothing has changed for some seconds, at most for some minutes.
    Rest,
    /// This number of requests of the program, at most half a minute.
    Requests(u32),
    /// Until the faults that were planned have happened, at most half a minute.
    Fault,
    /// Milliseconds.
    Time(u64),
}

/// An object, as people name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for one of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Named {
    /// Returns the name of an object.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| text(object, pointer).to_owned();
        Self {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }
}

/// The fate of the dependents of an object that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are the names of Kubernetes")]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// A use of the command `helm`. Helm refuses each while a revision is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Helm {
    /// `helm uninstall`.
    Uninstall,
    /// `helm rollback` to the revision before.
    Rollback,
    /// `helm upgrade`, which is killed before it changes objects.
    Interrupted,
    /// An upgrade by an operator in Go, to the same objects: the custom resource owns its record.
    Operator,
}

/// A class of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Requests {
    /// Requests that change something.
    Writes,
    /// Requests that read once.
    Reads,
    /// Watches.
    Watches,
}

/// An action of people, of a fault or of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Somebody creates an object, or changes its specification if it exists.
    Apply(Value),
    /// Somebody replaces an object by a PUT, with all of its metadata.
    Put(Value),
    /// Somebody deletes an object and creates it again as soon as its name is free.
    Recreate(Value),
    /// Somebody creates an object that no program manages.
    Create(Value),
    /// Somebody deletes an object.
    Delete(Named, Propagation),
    /// Somebody changes a text or a number in an object.
    Spoil(Named, u64),
    /// Sets the number of replicas of an object by its subresource `scale`: its autoscaler does, or else somebody.
    Scale(Named, u32),
    /// Somebody adds a finalizer of their own to an object. It is taken away at the end.
    Hold(Named),
    /// Somebody has the program leave a custom resource alone, until they change it or the end.
    Suspend(Named),
    /// Somebody has the release of a custom resource stay when it is deleted, until they change it.
    Orphan(Named),
    /// Somebody asks for another attempt of what failed, by an annotation with this number.
    Retry(Named, u32),
    /// Somebody changes the settings that values refer to, or creates them again.
    Configure(usize),
    /// Somebody uses the command `helm` on the release of a custom resource.
    Helm(Named, Helm),
    /// Another version of the program is deployed. The former one ends before.
    Deploy(usize),
    /// The process that leads is killed, and another one is started in the same Pod.
    Kill,
    /// The process that leads is asked to end, and another one is started.
    Restart,
    /// The process that leads is killed. One in another Pod is started by the next step that starts one, or at the end.
    Crash,
    /// For this number of milliseconds no request of the process that leads, and no answer to it, gets through.
    Pause(u64),
    /// For this number of milliseconds no request and no answer gets through.
    Partition(u64),
    /// The next requests of a class have faults: the one that comes after so many.
    Fault(Requests, u32, Fault),
    /// For this number of milliseconds the program may not list and watch objects of this kind.
    Forbid(Named, u64),
    /// For this number of milliseconds accounts that the program impersonates may not write objects of this kind.
    Deny(Named, u64),
    /// All connections of watches are closed.
    CutWatches,
    /// The server forgets the past.
    Compact,
    /// Nothing more than time passes.
    Wait,
}

impl After {
    /// Returns the time that this takes at most.
    pub(super) fn limit(self) -> Duration {
        match self {
            Self::Rest => Duration::from_mins(10),
            Self::Requests(_) | Self::Fault => Duration::from_secs(30),
            Self::Time(milliseconds) => Duration::from_millis(milliseconds),
        }
    }
}

impl History {
    /// Reads a history as it is written: the seed, the number of processes unless it is one, and a line of JSON per step.
    ///
    /// # Errors
    /// If a line has another form; names it.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut seed = None;
        let mut replicas = 1;
        let mut steps = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(text) = line.strip_prefix("seed ") {
                seed = Some(text.trim().parse()?);
                continue;
            }
            if let Some(text) = line.strip_prefix("replicas ") {
                replicas = text.trim().parse()?;
                continue;
            }
            let step = serde_json::from_str(line);
            steps.push(step.map_err(|error| anyhow::anyhow!("line {number}: {error}"))?);
        }
        let seed = seed.ok_or_else(|| anyhow::anyhow!("a line with the seed is missing"))?;
        Ok(Self {
            seed,
            replicas,
            steps,
        })
    }
}

impl std::fmt::Display for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        if self.replicas > 1 {
            writeln!(f, "replicas {}", self.replicas)?;
        }
        for step in &self.steps {
            let line = serde_json::to_string(step).map_err(|_| std::fmt::Error)?;
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
