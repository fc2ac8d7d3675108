//! `init --with`: parts of a project that not everybody needs.

use serde_json::Value;

use super::kind::list;
use super::template::render;
use super::{Draft, Init, ScaffoldError};
use crate::dashboards::{alerts, dashboard};

/// A part of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Extra {
    /// Dashboard, alerts, `ServiceMonitor` and `NetworkPolicy` for the operator's metrics
    Monitoring,
    /// Targets of make for bundles and catalogs
    Olm,
    /// Tests of bundles for operator-sdk scorecard
    Scorecard,
    /// GitHub workflow, and for charts alone a test with their samples
    Ci,
}

/// Lines of `config/default/kustomization.yaml` for what is not deployed without a decision.
const OFFERED: [(&str, &str); 2] = [
    (
        "../prometheus",
        "# Needs the Prometheus operator's CRDs in the cluster:\n",
    ),
    (
        "../network-policy",
        "# Restricts who reaches the operator; needs a network plugin that enforces NetworkPolicies:\n",
    ),
];

/// Adds the files of a part.
pub(super) fn add(
    draft: &mut Draft,
    init: &Init,
    extra: Extra,
    data: &Value,
) -> Result<(), ScaffoldError> {
    let files: &[(&str, &str)] = match extra {
        Extra::Monitoring => {
            let name = &init.project_name;
            let dashboard = serde_json::to_string_pretty(&dashboard(name)).unwrap_or_default();
            draft.add("config/grafana/operator.json", dashboard + "\n")?;
            draft.add("config/prometheus/alerts.yaml", alerts(name))?;
            add_network_policy(draft, "allow-metrics-traffic.yaml", data)?;
            offer(draft, "../prometheus")?;
            offer(draft, "../network-policy")?;
            &[
                (
                    "config/network-policy/allow-metrics-traffic.yaml",
                    "project/config/network-policy/allow-metrics-traffic.yaml",
                ),
                (
                    "config/prometheus/kustomization.yaml",
                    "project/config/prometheus/kustomization.yaml",
                ),
                (
                    "config/prometheus/monitor.yaml",
                    "project/config/prometheus/monitor.yaml",
                ),
            ]
        }
        Extra::Olm => &[("olm.mk", "project/olm.mk")],
        Extra::Scorecard => &[
            (
                "config/scorecard/config.yaml",
                "project/config/scorecard/config.yaml",
            ),
            (
                "config/scorecard/kustomization.yaml",
                "project/config/scorecard/kustomization.yaml",
            ),
        ],
        Extra::Ci if init.plugin.has_code() => &[(".github/workflows/ci.yml", "project/ci.yml")],
        Extra::Ci => &[
            (".github/workflows/ci.yml", "project/ci.yml"),
            ("ci.mk", "project/ci.mk"),
            ("tests/samples", "project/samples.sh"),
        ],
    };
    for (path, template) in files {
        draft.add(*path, render(template, data)?)?;
    }
    Ok(())
}

/// Lists a `NetworkPolicy`, which is installed if `config/default` names the directory.
pub(super) fn add_network_policy(
    draft: &mut Draft,
    file: &str,
    data: &Value,
) -> Result<(), ScaffoldError> {
    let empty = render("project/resources.yaml", data)?;
    draft.add_shared("config/network-policy/kustomization.yaml", empty)?;
    list(draft, "network-policy", file)
}

/// Adds a directory to `config/default` as a comment, unless it names the directory.
pub(super) fn offer(draft: &mut Draft, directory: &str) -> Result<(), ScaffoldError> {
    let why = OFFERED.iter().find(|(offered, _)| *offered == directory);
    let why = why.map_or("", |(_, why)| why);
    let lines = format!("{why}# - {directory}\n");
    draft.edit("config/default/kustomization.yaml", &lines, |text| {
        if text.contains(directory) {
            return Some(text.to_owned());
        }
        Some(format!("{}\n{lines}", text.trim_end()))
    })
}
