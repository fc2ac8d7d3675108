//! Judges objects of a release, for programs that show them.

use kube::core::GroupVersionKind;
use kube_objects::readiness::{self, Readiness};
use serde_json::Value;

/// Whether an object is ready, by the rules by which the operator judges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHealth {
    /// Whether it is ready.
    pub ready: bool,
    /// One word: `Ready`, `InProgress`, `Failed`, `Terminating` or `Unknown`.
    pub state: &'static str,
    /// Description of what is missing or has failed.
    pub message: Option<String>,
}

impl ObjectHealth {
    pub(crate) fn of(readiness: &Readiness) -> Self {
        Self {
            ready: readiness.is_ready(),
            state: match readiness {
                Readiness::Ready | Readiness::Started => "Ready",
                Readiness::InProgress(_) => "InProgress",
                Readiness::Failed(_) => "Failed",
                Readiness::Terminating => "Terminating",
                Readiness::Unknown => "Unknown",
            },
            message: readiness.message().map(ToOwned::to_owned),
        }
    }
}

/// Returns whether an object is ready.
pub fn health(object: &Value) -> ObjectHealth {
    let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, text("kind"));
    ObjectHealth::of(&readiness::readiness_of(&gvk, object))
}
