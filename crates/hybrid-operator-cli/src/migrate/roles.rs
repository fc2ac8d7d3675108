//! Permissions: what this operator needs beyond the Go operators is added to the role.

use std::path::PathBuf;

use helm_core::chart::{Chart, SchemaRoots};
use serde::Deserialize;
use serde_json::Value;

use super::watches_file::WatchedKind;
use super::{Kind, Tree, definitions, is_yaml_in};
use crate::generate::ChartApi;
use crate::rbac::chart_role;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// A permission that the operator needs.
struct Need {
    group: String,
    resource: String,
    verbs: Vec<String>,
    why: String,
}

/// Permissions of the operator regardless of its charts: resource and group, verbs, and why.
const FIXED: &str = "
    events.events.k8s.io create,patch publishes events; the Go operators use the older API
    leases.coordination.k8s.io create,get,patch,update elects the leader
    customresourcedefinitions.apiextensions.k8s.io list,watch detects new kinds immediately
    apiservices.apiregistration.k8s.io list,watch detects new kinds immediately
    resourcequotas. list,watch retries a release that exceeded a quota when the quota changes
    pods. list finds why a release is not ready
    events. list finds why a release is not ready
    pods/log. get shows the log of a crashed container";

pub(super) fn check(tree: &mut Tree, kinds: &[WatchedKind]) {
    let files = tree.matching(|path| is_yaml_in(path, &["config/rbac", "deploy"]));
    let mut rules = Vec::new();
    let mut role: Option<(PathBuf, String)> = None;
    let mut named = None;
    for (path, text) in files {
        let documents: Vec<Value> = go_yaml::documents(text.as_bytes()).unwrap_or_default();
        let single = documents.len() == 1;
        for document in documents {
            let is_role = document
                .get("kind")
                .and_then(Value::as_str)
                .is_some_and(|kind| kind == "Role" || kind == "ClusterRole");
            let name = document.pointer("/metadata/name").and_then(Value::as_str);
            let operators = name.is_some_and(|name| !is_users(name, kinds));
            if !is_role || !operators {
                continue;
            }
            let found: Vec<Rule> = document
                .get("rules")
                .and_then(|rules| serde_json::from_value(rules.clone()).ok())
                .unwrap_or_default();
            rules.extend(found);
            let main = path.file_name().is_some_and(|name| name == "role.yaml");
            if main {
                named = Some(path.clone());
            }
            if main && (single || text.contains("+kubebuilder:scaffold:rules")) {
                role = Some((path.clone(), text.clone()));
            }
        }
    }
    let needs = needs(tree, kinds);
    let missing: Vec<(&Need, Vec<&str>)> = needs
        .iter()
        .map(|need| (need, missing_verbs(&rules, need)))
        .filter(|(_, verbs)| !verbs.is_empty())
        .collect();
    if missing.is_empty() {
        return;
    }
    let changed = role.and_then(|(path, text)| {
        let added: String = missing
            .iter()
            .map(|(need, verbs)| rule(need, verbs))
            .collect();
        Some((insert(&text, &added)?, path))
    });
    let (kind, path) = match &changed {
        Some((_, path)) => (Kind::Change, path.clone()),
        None => (Kind::ByHand, named.unwrap_or_else(|| "config/rbac".into())),
    };
    for (need, verbs) in missing {
        let group = if need.group.is_empty() {
            "core"
        } else {
            need.group.as_str()
        };
        let adds = if kind == Kind::Change { "adds" } else { "add" };
        let text = format!(
            "{adds} {} on {group}/{}: {}",
            verbs.join(", "),
            need.resource,
            need.why
        );
        tree.add(kind, &path, None, text);
    }
    if let Some((text, path)) = changed {
        tree.change(&path, text);
    }
}

/// Returns what the operator needs: for the charts, then regardless of them.
fn needs(tree: &Tree, kinds: &[WatchedKind]) -> Vec<Need> {
    let charts = kinds.iter().filter_map(|kind| of_chart(tree, kind));
    let fixed = FIXED.lines().filter_map(|line| {
        let mut words = line.trim_start().splitn(3, ' ');
        let (resource, group) = words.next()?.split_once('.')?;
        Some(Need {
            group: group.to_owned(),
            resource: resource.to_owned(),
            verbs: words.next()?.split(',').map(str::to_owned).collect(),
            why: words.next()?.to_owned(),
        })
    });
    charts.flatten().chain(fixed).collect()
}

/// Returns what the operator needs for the custom resources and releases of a chart, as
/// `generate rbac` computes it. `None` for a chart that cannot be loaded or rendered, which the
/// findings about the watches file say.
fn of_chart(tree: &Tree, kind: &WatchedKind) -> Option<Vec<Need>> {
    let path = kind.chart.as_ref()?;
    let chart = Chart::load(tree.root.join(path)).ok()?;
    let chart = chart.with_schema_roots(SchemaRoots::of_project(&tree.root));
    let plural = definitions::plural(tree, kind);
    let api = ChartApi {
        group: &kind.group,
        version: &kind.version,
        kind: &kind.kind,
        plural: &plural,
        namespaced: true,
        chart: &chart,
        directory: path,
    };
    let role: Value = go_yaml::from_str(&chart_role(&api).ok()?).ok()?;
    let rules: Vec<Rule> = serde_json::from_value(role.get("rules")?.clone()).ok()?;
    let mut needs = Vec::new();
    for rule in rules {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                needs.push(Need {
                    group: group.clone(),
                    resource: resource.clone(),
                    verbs: rule.verbs.clone(),
                    why: format!("serves {} with the chart {path}", kind.kind),
                });
            }
        }
    }
    Some(needs)
}

/// Returns whether a role is for the users of the custom resources or of the metrics.
fn is_users(name: &str, kinds: &[WatchedKind]) -> bool {
    let name = name.to_lowercase();
    let about_kind = kinds
        .iter()
        .any(|kind| name.starts_with(&kind.kind.to_lowercase()));
    let suffix = ["-admin-role", "-editor-role", "-viewer-role"];
    (about_kind && suffix.iter().any(|suffix| name.ends_with(suffix)))
        || name.contains("metrics")
        || name.contains("proxy-role")
}

/// Returns the verbs that no rule grants.
fn missing_verbs<'a>(rules: &[Rule], need: &'a Need) -> Vec<&'a str> {
    let has = |list: &[String], item: &str| list.iter().any(|it| it == "*" || it == item);
    let granted = |verb: &str| {
        rules.iter().any(|rule| {
            rule.resource_names.is_empty()
                && has(&rule.api_groups, &need.group)
                && has(&rule.resources, &need.resource)
                && has(&rule.verbs, verb)
        })
    };
    need.verbs
        .iter()
        .map(String::as_str)
        .filter(|verb| !granted(verb))
        .collect()
}

fn rule(need: &Need, verbs: &[&str]) -> String {
    let why = need.why.split(';').next().unwrap_or(&need.why);
    let (first, rest) = why.split_at_checked(1).unwrap_or_default();
    format!(
        "# {}{rest}.\n- apiGroups: [{:?}]\n  resources: [{}]\n  verbs: [{}]\n",
        first.to_uppercase(),
        need.group,
        need.resource,
        verbs.join(", ")
    )
}

/// Adds rules before kubebuilder's marker, else at the end of a file whose last field is `rules`.
/// Returns `None` if the place of the rules is not clear.
fn insert(text: &str, added: &str) -> Option<String> {
    let marker = text
        .lines()
        .position(|line| line.trim_start_matches(['#', ' ']) == "+kubebuilder:scaffold:rules");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = marker.unwrap_or(lines.len());
    let (before, after) = lines.split_at_checked(at)?;
    let rules = before
        .iter()
        .rposition(|line| line.trim_end() == "rules:")?;
    let list = before.get(rules + 1..)?;
    let in_list = |line: &&str| !line.starts_with("---") && line.starts_with([' ', '-', '#', '\n']);
    if !list.iter().all(in_list) {
        return None;
    }
    let first = list.iter().find(|line| line.trim_start().starts_with('-'));
    let width = first.map_or(0, |line| line.len() - line.trim_start().len());
    let indent = " ".repeat(width);
    let added: String = added
        .split_inclusive('\n')
        .flat_map(|line| [indent.as_str(), line])
        .collect();
    let before = before.concat();
    let newline = if before.ends_with('\n') { "" } else { "\n" };
    Some(format!("{before}{newline}{added}{}", after.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_added_before_the_marker_and_with_the_lists_indentation() {
        let text =
            "kind: ClusterRole\nrules:\n  - apiGroups: [a]\n\n#+kubebuilder:scaffold:rules\n";
        let found = insert(text, "- apiGroups: [b]\n  verbs: [get]\n").unwrap();
        assert_eq!(
            found,
            "kind: ClusterRole\nrules:\n  - apiGroups: [a]\n\n  - apiGroups: [b]\n    verbs: [get]\n#+kubebuilder:scaffold:rules\n"
        );
        assert_eq!(
            insert("rules:\n- a\n", "- b\n").unwrap(),
            "rules:\n- a\n- b\n"
        );
        assert_eq!(insert("rules:\n- a\nmetadata: {}\n", "- b\n"), None);
        // A second role follows.
        let text = "rules:\n- a\n#+kubebuilder:scaffold:rules\n---\nrules:\n- c\n";
        let expected = "rules:\n- a\n- b\n#+kubebuilder:scaffold:rules\n---\nrules:\n- c\n";
        assert_eq!(insert(text, "- b\n").unwrap(), expected);
        assert_eq!(insert("rules:\n- a\n---\nkind: X\n", "- b\n"), None);
    }

    #[test]
    fn wildcards_grant_and_resource_names_do_not() {
        let need = &Need {
            group: String::new(),
            resource: "secrets".to_owned(),
            verbs: ["get", "deletecollection"].map(ToOwned::to_owned).to_vec(),
            why: String::new(),
        };
        let rule = |value: serde_json::Value| serde_json::from_value::<Rule>(value).unwrap();
        let all =
            rule(serde_json::json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}));
        assert!(missing_verbs(&[all], need).is_empty());
        let named = rule(serde_json::json!({
            "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"],
        }));
        assert_eq!(missing_verbs(&[named], need), ["get", "deletecollection"]);
    }

    #[test]
    fn roles_of_users_are_not_the_operators() {
        let kinds = [WatchedKind {
            group: String::new(),
            version: String::new(),
            kind: "Memcached".to_owned(),
            chart: None,
        }];
        for (name, expected) in [
            ("memcached-editor-role", true),
            ("metrics-reader", true),
            ("proxy-role", true),
            ("manager-role", false),
            ("memcached-operator", false),
        ] {
            assert_eq!(is_users(name, &kinds), expected, "{name}");
        }
    }
}
