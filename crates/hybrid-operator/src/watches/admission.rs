//! Check of custom resources before they are stored.

use operator_runtime::webhook::FailurePolicy;

use super::fields::{Fields, choice};

/// Check of a custom resource when it is created or its spec is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Extent of the check.
    pub mode: AdmissionMode,
    /// Policy while no replica of the operator answers.
    pub failure_policy: FailurePolicy,
}

/// Extent of the check of a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionMode {
    /// The values are computed, and checked against the schemas of the chart.
    Schema,
    /// The chart is rendered, too.
    Render,
}

const MODES: &[(&str, Option<AdmissionMode>)] = &[
    ("off", None),
    ("schema", Some(AdmissionMode::Schema)),
    ("render", Some(AdmissionMode::Render)),
];

const POLICIES: &[(&str, FailurePolicy)] = &[
    ("Ignore", FailurePolicy::Ignore),
    ("Fail", FailurePolicy::Fail),
];

/// Reads the field `admission` of an entry: a mode, or a map with a mode.
pub(super) fn read(fields: &mut Fields<'_>, skips_schema: bool) -> Option<Admission> {
    let (mode, policy) = if fields.is_map("admission") {
        let read = |section: &mut Fields<'_>| {
            let mode = section.required("mode", |node| choice(node, MODES));
            (mode.flatten(), section.choice("failurePolicy", POLICIES))
        };
        fields.section("admission", read)?
    } else {
        (fields.choice("admission", MODES).flatten(), None)
    };
    let mode = mode?;
    if skips_schema && mode == AdmissionMode::Schema {
        let message = "`admission: schema` checks the values against the schemas that `schema: skip` leaves out; \
                       remove one of them";
        fields.wrong(message.to_owned());
    }
    Some(Admission {
        mode,
        failure_policy: policy.unwrap_or(FailurePolicy::Ignore),
    })
}
