//! One custom resource in a table.

use anstyle::AnsiColor;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::condition;
use crate::output::{Named, Table, age, one_line};

/// Fields of a custom resource that are shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) namespace: Option<String>,
    pub(super) kind: String,
    #[serde(skip)]
    group: String,
    pub(super) name: String,
    /// Status of the condition `Ready`: `True`, `False` or `Unknown`.
    pub(super) ready: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) release: Option<String>,
    pub(super) revision: Option<u64>,
    pub(super) status: Option<String>,
    pub(super) chart: Option<String>,
    pub(super) app_version: Option<String>,
    pub(super) created: Option<Timestamp>,
}

impl Row {
    pub(super) fn of(gvk: &GroupVersionKind, object: &DynamicObject) -> Self {
        let at = |pointer: &str| object.data.pointer(pointer);
        let text = |pointer: &str| at(pointer).and_then(Value::as_str).map(ToOwned::to_owned);
        let ready = condition(object, "Ready");
        let of_ready = |field: &str| {
            let value = ready
                .and_then(|ready| ready.get(field))
                .and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        // An operator of operator-sdk sets no condition Ready.
        let status = of_ready("status");
        Self {
            namespace: object.namespace(),
            kind: gvk.kind.clone(),
            group: gvk.group.clone(),
            name: object.name_any(),
            ready: if status.is_empty() {
                "Unknown".to_owned()
            } else {
                status
            },
            reason: of_ready("reason"),
            message: of_ready("message"),
            release: text("/status/release/name").or_else(|| text("/status/deployedRelease/name")),
            revision: at("/status/release/revision").and_then(Value::as_u64),
            status: text("/status/release/status"),
            chart: text("/status/release/chartVersion"),
            app_version: text("/status/release/appVersion"),
            created: object.creation_timestamp().map(|time| time.0),
        }
    }

    /// Returns what rows are sorted by.
    pub(super) fn key(&self) -> (Option<String>, String, String) {
        (self.namespace.clone(), self.kind.clone(), self.name.clone())
    }
}

impl Named for Row {
    fn name(&self) -> String {
        format!("{}.{}/{}", self.kind.to_lowercase(), self.group, self.name)
    }
}

/// Returns the colour of a condition's status.
pub(super) fn color(status: &str) -> AnsiColor {
    match status {
        "True" => AnsiColor::Green,
        "False" => AnsiColor::Red,
        _ => AnsiColor::Yellow,
    }
}

pub(super) fn table(rows: &[Row], wide: bool, now: Timestamp) -> Table {
    let mut columns = vec![
        "NAMESPACE",
        "KIND",
        "NAME",
        "READY",
        "REASON",
        "RELEASE",
        "REVISION",
    ];
    if wide {
        columns.push("STATUS");
    }
    columns.push("CHART");
    if wide {
        columns.push("APP VERSION");
    }
    columns.push("AGE");
    if wide {
        columns.push("MESSAGE");
    }
    let mut table = Table::new(&columns);
    for row in rows {
        table.colored(cells(row, wide, now));
    }
    table
}

fn cells(row: &Row, wide: bool, now: Timestamp) -> Vec<(String, Option<AnsiColor>)> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let revision = row.revision.map(|number| number.to_string());
    let mut cells = vec![
        (optional(&row.namespace), None),
        (row.kind.clone(), None),
        (row.name.clone(), None),
        (row.ready.clone(), Some(color(&row.ready))),
        (row.reason.clone(), None),
        (optional(&row.release), None),
        (revision.unwrap_or_default(), None),
    ];
    if wide {
        cells.push((optional(&row.status), None));
    }
    cells.push((optional(&row.chart), None));
    if wide {
        cells.push((optional(&row.app_version), None));
    }
    let created = row.created.map(|created| age(created, now));
    cells.push((created.unwrap_or_default(), None));
    if wide {
        cells.push((one_line(&row.message), None));
    }
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Paint;

    fn row(status: &Value) -> Row {
        let gvk = GroupVersionKind::gvk("g", "v1", "Shop");
        let object = json!({"apiVersion": "g/v1", "kind": "Shop", "metadata": {"name": "main",
            "namespace": "prod", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status});
        Row::of(&gvk, &serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_row_shows_readiness_and_release_as_the_status_has_them() {
        let status = json!({
            "conditions": [{"type": "Ready", "status": "False", "reason": "ImagePullFailed",
                "message": "Deployment/db:\nno image"}],
            "release": {"name": "main", "revision": 3, "status": "deployed",
                "chartVersion": "shop-1.2.3", "appVersion": "9"}});
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let text = |wide| table(&[row(&status)], wide, now).text(Paint(false));
        let expected = "NAMESPACE   KIND   NAME   READY   REASON            RELEASE   REVISION   CHART        AGE\n\
                        prod        Shop   main   False   ImagePullFailed   main      3          shop-1.2.3   60m\n";
        assert_eq!(text(false), expected);
        let wide = text(true);
        assert!(
            wide.contains("deployed") && wide.contains("Deployment/db: no image"),
            "{wide}"
        );
    }

    #[test]
    fn a_custom_resource_that_no_operator_has_seen_is_unknown() {
        let row = row(&Value::Null);
        assert_eq!((row.ready.as_str(), row.release), ("Unknown", None));
    }
}
