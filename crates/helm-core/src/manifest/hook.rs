//! Hooks: objects with the annotation `helm.sh/hook`, run at events instead of being installed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::release::{Revision, Time, is_empty, null_is_empty, time};

/// Annotation that makes an object a hook: a comma-separated list of events.
pub const ANNOTATION: &str = "helm.sh/hook";
/// Annotation for the weight of a hook, an integer.
pub const WEIGHT_ANNOTATION: &str = "helm.sh/hook-weight";
/// Annotation for the deletion policies of a hook, comma-separated.
pub const DELETE_POLICY_ANNOTATION: &str = "helm.sh/hook-delete-policy";
/// Annotation for when the logs of a hook are output, comma-separated.
pub const OUTPUT_LOG_POLICY_ANNOTATION: &str = "helm.sh/hook-output-log-policy";

/// Declares an enum of the names that Helm writes, with a variant for unknown names.
macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// An unknown name; it is preserved and never matches.
            Other(String),
        }

        impl $name {
            /// Returns the name that Helm writes.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

names! {
    /// Event at which a hook runs.
    HookEvent {
        /// Before anything is installed.
        PreInstall = "pre-install",
        /// After everything is installed.
        PostInstall = "post-install",
        /// Before anything is deleted.
        PreDelete = "pre-delete",
        /// After everything is deleted.
        PostDelete = "post-delete",
        /// Before an upgrade.
        PreUpgrade = "pre-upgrade",
        /// After an upgrade.
        PostUpgrade = "post-upgrade",
        /// Before a rollback.
        PreRollback = "pre-rollback",
        /// After a rollback.
        PostRollback = "post-rollback",
        /// At a test of the release.
        Test = "test",
    }
}

names! {
    /// Policy for deleting a hook's object.
    DeletePolicy {
        /// After it succeeded.
        HookSucceeded = "hook-succeeded",
        /// After it failed.
        HookFailed = "hook-failed",
        /// Before it is created again.
        BeforeHookCreation = "before-hook-creation",
    }
}

names! {
    /// Policy for the output of a hook's logs.
    OutputLogPolicy {
        /// After it succeeded.
        HookSucceeded = "hook-succeeded",
        /// After it failed.
        HookFailed = "hook-failed",
    }
}

names! {
    /// State of the last run of a hook.
    HookPhase {
        /// The hook never ran.
        None = "",
        /// The state is unknown.
        Unknown = "Unknown",
        /// The hook is running.
        Running = "Running",
        /// The hook succeeded.
        Succeeded = "Succeeded",
        /// The hook failed.
        Failed = "Failed",
    }
}

#[allow(
    clippy::derivable_impls,
    reason = "the macro that declares the enum has no default"
)]
impl Default for HookPhase {
    fn default() -> Self {
        Self::None
    }
}

impl HookEvent {
    /// Returns the event that an annotation names; `test-success` is Helm 2's name for `test`.
    pub fn from_annotation(text: &str) -> Option<Self> {
        match Self::from(text) {
            Self::Other(other) if other == "test-success" => Some(Self::Test),
            Self::Other(_) => None,
            event => Some(event),
        }
    }
}

/// The last run of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HookExecution {
    /// Time at which the run started.
    #[serde(deserialize_with = "time::lenient", skip_serializing_if = "is_empty")]
    pub started_at: Option<Time>,
    /// Time at which the run succeeded or failed.
    #[serde(deserialize_with = "time::lenient", skip_serializing_if = "is_empty")]
    pub completed_at: Option<Time>,
    /// State of the run.
    pub phase: HookPhase,
}

/// The last run of a hook at one of its events.
///
/// Helm stores one last run for all events of a hook, which suffices for a command that never
/// resumes. Its command line ignores this field and drops it when it writes a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRun {
    /// The event.
    pub event: HookEvent,
    /// The revision whose record this was written to; in a copied record it does not apply to
    /// another revision.
    pub revision: Revision,
    /// The number of this attempt at the event, from 1.
    pub attempt: u32,
    /// Times and state of the run.
    #[serde(flatten)]
    pub execution: HookExecution,
}

/// A hook in a release record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hook {
    /// The name of the object.
    #[serde(skip_serializing_if = "is_empty")]
    pub name: String,
    /// The kind of the object.
    #[serde(skip_serializing_if = "is_empty")]
    pub kind: String,
    /// The template that it comes from, prefixed with the chart's name.
    #[serde(skip_serializing_if = "is_empty")]
    pub path: String,
    /// The document.
    #[serde(skip_serializing_if = "is_empty")]
    pub manifest: String,
    /// The events at which it runs.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub events: Vec<HookEvent>,
    /// The last run at any event.
    pub last_run: HookExecution,
    /// Hooks of one event run in order of weight.
    #[serde(skip_serializing_if = "is_empty")]
    pub weight: i64,
    /// Policies for deleting the object; an empty list means [`DeletePolicy::BeforeHookCreation`].
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub delete_policies: Vec<DeletePolicy>,
    /// Policies for the output of the logs.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub output_log_policies: Vec<OutputLogPolicy>,
    /// The last run at each event; see [`EventRun`].
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "is_empty")]
    pub event_runs: Vec<EventRun>,
}

impl Hook {
    /// Returns whether it runs at `event`.
    pub fn runs_at(&self, event: &HookEvent) -> bool {
        self.events.contains(event)
    }

    /// Returns the name for messages: the template if it has none, as most lists do.
    pub fn display_name(&self) -> &str {
        if self.name.is_empty() {
            &self.path
        } else {
            &self.name
        }
    }

    /// Returns whether its object is deleted by `policy`. Without any policy,
    /// [`DeletePolicy::BeforeHookCreation`] applies.
    pub fn has_delete_policy(&self, policy: &DeletePolicy) -> bool {
        if self.delete_policies.is_empty() {
            *policy == DeletePolicy::BeforeHookCreation
        } else {
            self.delete_policies.contains(policy)
        }
    }
}

/// Returns the hooks of `event` in the order in which they run: by weight, then by name. Ties keep
/// the order of `hooks`, which is by kind.
pub fn at_event<'a>(hooks: &'a [Hook], event: &HookEvent) -> Vec<&'a Hook> {
    let mut hooks: Vec<&Hook> = hooks.iter().filter(|hook| hook.runs_at(event)).collect();
    hooks.sort_by(|a, b| a.weight.cmp(&b.weight).then_with(|| a.name.cmp(&b.name)));
    hooks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_of_an_event_run_by_weight_then_name() {
        let hook = |name: &str, weight, event| Hook {
            name: name.to_owned(),
            weight,
            events: vec![event],
            ..Hook::default()
        };
        let hooks = [
            hook("c", 1, HookEvent::PreInstall),
            hook("b", 1, HookEvent::PreInstall),
            hook("x", -5, HookEvent::Test),
            hook("a", -1, HookEvent::PreInstall),
        ];
        let names: Vec<_> = at_event(&hooks, &HookEvent::PreInstall)
            .iter()
            .map(|hook| &hook.name)
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn runs_by_event_are_an_optional_addition_to_helms_fields() {
        let execution = HookExecution {
            started_at: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            completed_at: None,
            phase: HookPhase::Running,
        };
        let hook = Hook {
            name: "h".to_owned(),
            events: vec![HookEvent::PreInstall],
            last_run: execution.clone(),
            event_runs: vec![EventRun {
                event: HookEvent::PreInstall,
                revision: Revision(3),
                attempt: 2,
                execution,
            }],
            ..Hook::default()
        };
        let json = serde_json::to_value(&hook).unwrap();
        let last_run =
            serde_json::json!({"started_at": "2026-01-02T03:04:05Z", "phase": "Running"});
        let event_run = serde_json::json!({"event": "pre-install", "revision": 3, "attempt": 2,
            "started_at": "2026-01-02T03:04:05Z", "phase": "Running"});
        assert_eq!(
            json,
            serde_json::json!({"name": "h", "events": ["pre-install"], "last_run": last_run,
                "event_runs": [event_run]})
        );
        assert_eq!(serde_json::from_value::<Hook>(json).unwrap(), hook);
        // What remains after Helm's command line rewrites the record.
        let json = serde_json::json!({"name": "h", "last_run": last_run});
        let read: Hook = serde_json::from_value(json).unwrap();
        assert!(read.event_runs.is_empty() && read.last_run == hook.last_run);
    }

    #[test]
    fn hook_without_policies_is_deleted_before_it_is_created() {
        let hook = Hook::default();
        assert!(hook.has_delete_policy(&DeletePolicy::BeforeHookCreation));
        assert!(!hook.has_delete_policy(&DeletePolicy::HookSucceeded));
    }
}
