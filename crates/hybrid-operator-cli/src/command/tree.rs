//! One custom resource as a tree: conditions, release, objects, and the Pods of those that are not
//! ready.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::row::{Row, color};
use crate::cluster::{Cluster, Found, Owned, Selected, owned_by, pods_of};
use crate::output::{Named, Paint, age};

/// Characters of a message in a tree beside which the cause has the whole text.
const SHORT: usize = 70;

/// Objects that are shown.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    All,
    Unready,
}

impl Named for Tree {
    fn name(&self) -> String {
        self.row.name()
    }
}

/// A custom resource with its release.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tree {
    #[serde(flatten)]
    pub(super) row: Row,
    pub(super) conditions: Vec<ConditionLine>,
    pub(super) objects: Vec<ObjectLine>,
    #[serde(skip)]
    pub(super) title: String,
}

/// A condition of the custom resource.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConditionLine {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) last_transition_time: Option<Timestamp>,
}

/// An object of the release.
#[derive(Debug, Serialize)]
pub(super) struct ObjectLine {
    object: String,
    #[serde(skip)]
    pub(super) namespace: Option<String>,
    pub(super) ready: bool,
    state: String,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pods: Vec<PodLine>,
}

/// A Pod of a workload.
#[derive(Debug, Serialize)]
pub(super) struct PodLine {
    pub(super) name: String,
    pub(super) ready: bool,
    state: String,
    message: String,
}

/// Reads the objects of the newest revision, and the Pods of those that are not ready.
pub(super) async fn read(cluster: &Cluster, selected: &Selected) -> anyhow::Result<Tree> {
    let mut row = Row::of(&selected.kind.gvk, &selected.resource);
    let mut objects = Vec::new();
    let (record, owned) = owned_by(cluster, selected).await?;
    if let Some(record) = record {
        row.release.get_or_insert_with(|| record.name.to_string());
        row.revision.get_or_insert(u64::from(record.revision.0));
        row.status
            .get_or_insert_with(|| record.info.status.to_string());
    }
    for object in owned {
        let pods = if object.is_ready() {
            Vec::new()
        } else {
            pods_of(cluster, &object).await?
        };
        let lines = pods.into_iter().map(|pod| PodLine {
            name: pod.name,
            ready: pod.ready,
            state: pod.state,
            message: pod.message,
        });
        objects.push(line(&object, lines.collect()));
    }
    Ok(Tree {
        row,
        conditions: conditions(selected),
        objects,
        title: selected.name(),
    })
}

fn conditions(selected: &Selected) -> Vec<ConditionLine> {
    let conditions = selected.resource.data.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let line = |condition: &Value| {
        let text = |field: &str| {
            let text = condition.get(field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        ConditionLine {
            type_: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            last_transition_time: text("lastTransitionTime").parse().ok(),
        }
    };
    conditions.map(line).collect()
}

fn line(object: &Owned, pods: Vec<PodLine>) -> ObjectLine {
    let (ready, state, message) = match &object.found {
        Found::Present { health, .. } => (
            health.ready,
            health.state,
            health.message.clone().unwrap_or_default(),
        ),
        Found::Missing => (false, "Missing", "it does not exist".to_owned()),
        Found::Unreadable(problem) => (false, "Unknown", problem.clone()),
    };
    ObjectLine {
        object: object.key.to_string(),
        namespace: object.key.namespace.clone(),
        ready,
        state: state.to_owned(),
        message,
        pods,
    }
}

impl Tree {
    /// Formats the tree for a terminal.
    pub(super) fn text(&self, paint: Paint, now: Timestamp) -> String {
        let conditions = self.condition_lines(paint);
        self.draw(conditions, Shown::All, paint, now)
    }

    /// Formats the tree without conditions and without objects that are ready.
    pub(super) fn unready(&self, paint: Paint, now: Timestamp) -> String {
        self.draw(Vec::new(), Shown::Unready, paint, now)
    }

    fn draw(
        &self,
        conditions: Vec<(usize, String)>,
        only: Shown,
        paint: Paint,
        now: Timestamp,
    ) -> String {
        let row = &self.row;
        let mut text = String::new();
        let created = row.created.map(|at| format!(", {} old", age(at, now)));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}{}",
            paint.bold(&self.title),
            created.unwrap_or_default()
        );
        let mut branches = vec![conditions];
        branches.push(match &row.release {
            Some(release) => {
                let optional = |text: &Option<String>, before: &str| {
                    let text = text.as_ref().filter(|text| !text.is_empty());
                    text.map(|text| format!("{before}{text}"))
                        .unwrap_or_default()
                };
                let head = format!(
                    "Release {release}{}{}{}{}",
                    row.revision
                        .map(|number| format!(", revision {number}"))
                        .unwrap_or_default(),
                    optional(&row.status, ", "),
                    optional(&row.chart, ", chart "),
                    optional(&row.app_version, ", app version "),
                );
                let mut lines = vec![(0, head)];
                lines.extend(self.object_lines(paint, only));
                lines
            }
            None if self.objects.is_empty() => vec![(0, "no release".to_owned())],
            None => {
                let mut lines = vec![(0, "Objects of its controller".to_owned())];
                lines.extend(self.object_lines(paint, only));
                lines
            }
        });
        let lines: Vec<(usize, String)> = branches.into_iter().flatten().collect();
        draw(&lines, &mut text);
        text
    }

    fn condition_lines(&self, paint: Paint) -> Vec<(usize, String)> {
        if self.conditions.is_empty() {
            return vec![(0, "no conditions: the operator has not seen it".to_owned())];
        }
        let mut lines = vec![(0, "Conditions".to_owned())];
        for condition in &self.conditions {
            let ok = Self::is_good(condition);
            let shown = match ok {
                Some(true) => paint.colored(AnsiColor::Green, &condition.status),
                Some(false) => paint.colored(AnsiColor::Red, &condition.status),
                None => condition.status.clone(),
            };
            let mut line = format!("{}={shown} {}", condition.type_, condition.reason);
            // The message of Deployed is the whole notes of the chart.
            let first = condition
                .message
                .lines()
                .find(|line| !line.trim().is_empty());
            let hidden = condition.message.lines().count() > 1;
            if let Some(first) = first {
                let _ = write!(line, ": {}", first.trim());
                if hidden {
                    line.push_str(" …");
                }
            }
            lines.push((1, line));
        }
        lines
    }

    /// Returns whether a condition is as it should be; `None` if it does not matter.
    fn is_good(condition: &ConditionLine) -> Option<bool> {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Ready" | "Deployed" | "TestSuccess", status) => Some(status == "True"),
            ("Irreconcilable" | "ReleaseFailed" | "Stalled" | "Drifted", "True") => Some(false),
            _ => None,
        }
    }

    fn object_lines(&self, paint: Paint, only: Shown) -> Vec<(usize, String)> {
        let state = |ready: bool, state: &str, message: &str| {
            let color = color(if ready { "True" } else { "False" });
            let shown = paint.colored(color, state);
            match message.char_indices().nth(SHORT) {
                _ if message.is_empty() => shown,
                Some((end, _)) if only == Shown::Unready => {
                    format!("{shown}: {} …", message.get(..end).unwrap_or(message))
                }
                _ => format!("{shown}: {message}"),
            }
        };
        let mut lines = Vec::new();
        let mut left_out = 0_usize;
        for object in &self.objects {
            if only == Shown::Unready && object.ready {
                left_out += 1;
                continue;
            }
            let found = state(object.ready, &object.state, &object.message);
            lines.push((1, format!("{} {found}", object.object)));
            for pod in &object.pods {
                let of_pod = state(pod.ready, &pod.state, &pod.message);
                lines.push((2, format!("Pod {} {of_pod}", pod.name)));
            }
        }
        match left_out {
            0 => {}
            1 => lines.push((1, "1 object is ready".to_owned())),
            count => lines.push((1, format!("{count} objects are ready"))),
        }
        lines
    }
}

/// Draws lines, each with its depth, as a tree.
fn draw(lines: &[(usize, String)], text: &mut String) {
    for (index, (depth, line)) in lines.iter().enumerate() {
        let below = lines.get(index + 1..).unwrap_or_default();
        for level in 0..=*depth {
            // Whether another line of this level follows in the same branch.
            let branch = below.iter().take_while(|(other, _)| *other >= level);
            let continues = branch.into_iter().any(|(other, _)| *other == level);
            text.push_str(match (level == *depth, continues) {
                (true, true) => "├─ ",
                (true, false) => "└─ ",
                (false, true) => "│  ",
                (false, false) => "   ",
            });
        }
        text.push_str(line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_as_a_tree() {
        let lines = [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e"), (1, "f")];
        let lines = lines.map(|(depth, text)| (depth, text.to_owned()));
        let mut text = String::new();
        draw(&lines, &mut text);
        assert_eq!(text, "├─ a\n│  ├─ b\n│  │  └─ c\n│  └─ d\n└─ e\n   └─ f\n");
    }
}
