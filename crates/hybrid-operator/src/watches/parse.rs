//! Parses a watches file into entries and collects all mistakes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use go_yaml::tree::{self, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{GroupVersionKind, Selector};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::suggest::nearest;
use crate::duration;

use super::{
    ActionPolicy, CrdPolicy, Dependency, DriftDetection, DriftIgnore, DriftMode, Entry,
    OverrideValuesType, Patch, PatchBody, Problem, ReferenceKind, Remediation, RemediationStrategy,
    Target, ValuesFrom, Watch,
};

const ENTRY_FIELDS: &[&str] = &[
    "group",
    "version",
    "kind",
    "chart",
    "watchDependentResources",
    "overrideValues",
    "overrideValuesType",
    "reconcilePeriod",
    "maxConcurrentReconciles",
    "selector",
    "dryRunOption",
    "lookup",
    "values",
    "valuesFrom",
    "install",
    "upgrade",
    "rollback",
    "uninstall",
    "test",
    "driftDetection",
    "patches",
    "serviceAccountName",
    "allowOperatorAccounts",
    "dependsOn",
    "maxHistory",
    "releaseName",
    "releaseNamespace",
    "pauseAnnotation",
    "allowEmpty",
    "crashLogs",
    "crds",
];

/// Parses the entries of a watches file. Relative chart paths are resolved against `base`.
///
/// Returns valid entries along with the mistakes, so that later checks can add more.
pub fn parse(text: &[u8], base: &Path) -> (Vec<Entry>, Vec<Problem>) {
    let mut problems = Vec::new();
    let root = match tree::parse(text) {
        Ok(root) => root,
        Err(error) => {
            problems.push(Problem {
                line: error.line(),
                column: error.column(),
                field: String::new(),
                message: error.message().to_owned(),
            });
            return (Vec::new(), problems);
        }
    };
    let Some(items) = root.as_list() else {
        if !root.is_null() {
            let message = format!(
                "a watches file is a list of entries, each beginning with `- group:`; this is {}",
                root.type_name()
            );
            problems.push(problem(&root, "", message));
        }
        return (Vec::new(), problems);
    };
    let mut entries = Vec::new();
    for (index, node) in items.iter().enumerate() {
        let Some(mut fields) =
            Fields::open(node, &format!("[{index}]"), ENTRY_FIELDS, &mut problems)
        else {
            continue;
        };
        if let Some(entry) = entry(&mut fields, node, index, base) {
            entries.push(entry);
        }
    }
    (entries, problems)
}

/// Reads one entry; `None` when a required field is missing or wrong.
fn entry(fields: &mut Fields<'_>, node: &Node, index: usize, base: &Path) -> Option<Entry> {
    let group = fields.optional("group", string).unwrap_or_default();
    let version = fields.required("version", name);
    let kind = fields.required("kind", name);
    let chart_position = fields.position("chart");
    let chart = fields.required("chart", name);
    let gvk = GroupVersionKind {
        group,
        version: version?,
        kind: kind?,
    };
    let mut watch = Watch::new(gvk, base.join(chart?));

    watch.watch_dependent_resources = fields
        .optional("watchDependentResources", boolean)
        .unwrap_or(true);
    watch.override_values = fields
        .optional("overrideValues", string_map)
        .unwrap_or_default();
    watch.override_values_type = fields
        .optional("overrideValuesType", |node| {
            choice(
                node,
                &[
                    ("typed", OverrideValuesType::Typed),
                    ("string", OverrideValuesType::String),
                ],
            )
        })
        .unwrap_or_default();
    watch.reconcile_period = fields.optional("reconcilePeriod", go_duration);
    watch.max_concurrent_reconciles = fields.optional("maxConcurrentReconciles", positive);
    watch.selector = fields.optional("selector", selector);
    watch.lookup_is_input = fields
        .optional("dryRunOption", |node| {
            choice(node, &[("server", true), ("client", false)])
        })
        .unwrap_or(false);
    watch.lookup_is_trusted = fields
        .optional("lookup", |node| {
            choice(node, &[("confined", false), ("trusted", true)])
        })
        .unwrap_or(false);
    watch.values = fields.optional("values", |node| match decode(node)? {
        value @ Value::Object(_) => Ok(value),
        _ => Err(expected("a map of values", node)),
    });
    watch.values_from = fields.list("valuesFrom", values_from);
    watch.install = fields
        .section("install", |f| policy(f, Extras::REMEDIATION))
        .unwrap_or_default();
    watch.upgrade = fields
        .section("upgrade", |f| policy(f, Extras::UPGRADE))
        .unwrap_or_default();
    watch.rollback = fields
        .section("rollback", |f| policy(f, Extras::NONE))
        .unwrap_or_default();
    watch.uninstall = fields
        .section("uninstall", |f| policy(f, Extras::NONE))
        .unwrap_or_default();
    watch.test = fields.section("test", |f| policy(f, Extras::NONE));
    watch.drift_detection = fields
        .section("driftDetection", drift_detection)
        .unwrap_or_default();
    watch.patches = fields.list("patches", patch);
    watch.service_account_name = fields.optional("serviceAccountName", name);
    watch.depends_on = fields.list("dependsOn", dependency);
    watch.max_history = fields.optional("maxHistory", positive);
    watch.release_name = fields.optional("releaseName", name);
    watch.release_namespace = fields.optional("releaseNamespace", name);
    watch.pause_annotation = fields.optional("pauseAnnotation", name);
    watch.allow_operator_accounts = fields
        .optional("allowOperatorAccounts", boolean)
        .unwrap_or(false);
    watch.crash_logs = fields.optional("crashLogs", boolean).unwrap_or(true);
    watch.allow_empty = fields.optional("allowEmpty", boolean).unwrap_or(false);
    watch.crds = fields
        .optional("crds", |node| {
            choice(
                node,
                &[
                    ("skip", CrdPolicy::Skip),
                    ("create", CrdPolicy::Create),
                    ("createReplace", CrdPolicy::CreateReplace),
                ],
            )
        })
        .unwrap_or_default();
    Some(Entry {
        watch,
        index,
        line: node.line(),
        column: node.column(),
        chart_position,
    })
}

const VALUES_FROM_FIELDS: &[&str] = &["kind", "name", "namespace", "key", "targetPath", "optional"];

fn values_from(fields: &mut Fields<'_>) -> Option<ValuesFrom> {
    fields.allow(VALUES_FROM_FIELDS);
    let kind = fields.required("kind", |node| {
        choice(
            node,
            &[
                ("Secret", ReferenceKind::Secret),
                ("ConfigMap", ReferenceKind::ConfigMap),
            ],
        )
    });
    let reference = fields.required("name", name);
    let namespace = fields.optional("namespace", name);
    let key = fields
        .optional("key", name)
        .unwrap_or_else(|| "values.yaml".to_owned());
    let target_path = fields.optional("targetPath", name);
    let optional = fields.optional("optional", boolean).unwrap_or(false);
    Some(ValuesFrom {
        kind: kind?,
        name: reference?,
        namespace,
        key,
        target_path,
        optional,
    })
}

/// The fields of an action in addition to those that all actions have.
#[derive(Clone, Copy)]
struct Extras {
    remediation: bool,
    recreate: bool,
}

impl Extras {
    const NONE: Self = Self {
        remediation: false,
        recreate: false,
    };
    const REMEDIATION: Self = Self {
        remediation: true,
        recreate: false,
    };
    const UPGRADE: Self = Self {
        remediation: true,
        recreate: true,
    };

    fn fields(self) -> &'static [&'static str] {
        match (self.remediation, self.recreate) {
            (true, true) => &[
                "timeout",
                "wait",
                "waitForJobs",
                "disableHooks",
                "remediation",
                "recreate",
            ],
            (true, false) => &[
                "timeout",
                "wait",
                "waitForJobs",
                "disableHooks",
                "remediation",
            ],
            _ => &["timeout", "wait", "waitForJobs", "disableHooks"],
        }
    }
}

fn policy(fields: &mut Fields<'_>, extras: Extras) -> ActionPolicy {
    fields.allow(extras.fields());
    ActionPolicy {
        timeout: fields.optional("timeout", go_duration),
        wait: fields.optional("wait", boolean).unwrap_or(false),
        wait_for_jobs: fields.optional("waitForJobs", boolean).unwrap_or(false),
        disable_hooks: fields.optional("disableHooks", boolean).unwrap_or(false),
        remediation: fields
            .section("remediation", remediation)
            .unwrap_or_default(),
        recreate: fields.optional("recreate", string_list),
    }
}

fn remediation(fields: &mut Fields<'_>) -> Remediation {
    fields.allow(&["retries", "strategy"]);
    Remediation {
        retries: fields.optional("retries", |node| {
            node.as_i64()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| expected("a count of at least 0", node))
        }),
        strategy: fields.optional("strategy", |node| {
            choice(
                node,
                &[
                    ("rollback", RemediationStrategy::Rollback),
                    ("uninstall", RemediationStrategy::Uninstall),
                    ("none", RemediationStrategy::None),
                ],
            )
        }),
    }
}

fn drift_detection(fields: &mut Fields<'_>) -> DriftDetection {
    fields.allow(&["mode", "ignore"]);
    DriftDetection {
        mode: fields
            .optional("mode", |node| {
                choice(
                    node,
                    &[
                        ("repair", DriftMode::Repair),
                        ("warn", DriftMode::Warn),
                        ("off", DriftMode::Off),
                    ],
                )
            })
            .unwrap_or_default(),
        ignore: fields.list("ignore", |f| {
            f.allow(&["target", "paths"]);
            let target = f.section("target", target).unwrap_or_default();
            let paths = f.required("paths", pointers)?;
            Some(DriftIgnore { target, paths })
        }),
    }
}

fn target(fields: &mut Fields<'_>) -> Target {
    fields.allow(&["group", "version", "kind", "name", "namespace", "labels"]);
    Target {
        group: fields.optional("group", string),
        version: fields.optional("version", name),
        kind: fields.optional("kind", name),
        name: fields.optional("name", name),
        namespace: fields.optional("namespace", name),
        labels: fields.optional("labels", selector),
    }
}

fn patch(fields: &mut Fields<'_>) -> Option<Patch> {
    fields.allow(&["target", "patch"]);
    let target = fields.section("target", target).unwrap_or_default();
    let patch = fields.required("patch", patch_body)?;
    Some(Patch { target, patch })
}

/// Reads a patch, which is a string (as in kustomize) or YAML: a list is a JSON Patch, a map a
/// strategic merge patch.
fn patch_body(node: &Node) -> Result<PatchBody, String> {
    let tree = match node.as_str() {
        Some(text) => {
            go_yaml::from_str(text).map_err(|e| format!("the patch is not valid YAML: {e}"))?
        }
        None => decode(node)?,
    };
    match tree {
        Value::Array(_) => serde_json::from_value(tree)
            .map(PatchBody::Json)
            .map_err(|e| format!("not a JSON Patch: {e}")),
        Value::Object(_) => Ok(PatchBody::StrategicMerge(tree)),
        _ => Err("expected a list of JSON Patch operations, or an object to merge".to_owned()),
    }
}

fn dependency(fields: &mut Fields<'_>) -> Option<Dependency> {
    fields.allow(&["apiVersion", "kind", "name", "namespace"]);
    let api_version = fields.required("apiVersion", name);
    let kind = fields.required("kind", name);
    let reference = fields.required("name", name);
    let namespace = fields.optional("namespace", name);
    Some(Dependency {
        api_version: api_version?,
        kind: kind?,
        name: reference?,
        namespace,
    })
}

/// The fields of a map in the file, and the list of mistakes.
struct Fields<'a> {
    node: &'a Node,
    path: String,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Fields<'a> {
    /// Opens a map whose fields are `allowed`; anything else is a mistake.
    fn open(
        node: &'a Node,
        path: &str,
        allowed: &[&str],
        problems: &'a mut Vec<Problem>,
    ) -> Option<Self> {
        if node.as_map().is_none() {
            problems.push(problem(node, path, expected("a map", node)));
            return None;
        }
        let mut fields = Self {
            node,
            path: path.to_owned(),
            problems,
        };
        if !allowed.is_empty() {
            fields.allow(allowed);
        }
        Some(fields)
    }

    /// Reports unknown and duplicate fields.
    fn allow(&mut self, allowed: &[&str]) {
        let mut seen: Vec<String> = Vec::new();
        for (key, _) in self.node.as_map().into_iter().flatten() {
            let found = key.as_str().unwrap_or("").to_owned();
            let field = join(&self.path, &found);
            if !allowed.contains(&found.as_str()) {
                let hint = nearest(&found, allowed).map_or_else(
                    || format!("; known fields: {}", allowed.join(", ")),
                    |near| format!("; did you mean `{near}`?"),
                );
                self.problems
                    .push(problem(key, &field, format!("unknown field{hint}")));
            } else if seen.contains(&found) {
                self.problems.push(problem(
                    key,
                    &field,
                    "duplicate field; remove one of them".to_owned(),
                ));
            }
            seen.push(found);
        }
    }

    fn get(&self, field: &str) -> Option<&'a Node> {
        let entries = self.node.as_map()?;
        entries
            .iter()
            .find(|(key, _)| key.as_str() == Some(field))
            .map(|(_, value)| value)
    }

    fn position(&self, field: &str) -> (usize, usize) {
        self.get(field)
            .map_or((self.node.line(), self.node.column()), |n| {
                (n.line(), n.column())
            })
    }

    /// Returns the field's value if it is present and valid. Null counts as absent.
    fn optional<T>(&mut self, field: &str, read: impl Fn(&Node) -> Result<T, String>) -> Option<T> {
        let node = self.get(field).filter(|node| !node.is_null())?;
        read(node)
            .map_err(|message| {
                self.problems
                    .push(problem(node, &join(&self.path, field), message));
            })
            .ok()
    }

    fn required<T>(&mut self, field: &str, read: impl Fn(&Node) -> Result<T, String>) -> Option<T> {
        if self.get(field).is_none_or(Node::is_null) {
            let message = format!("`{field}` is required");
            self.problems.push(problem(self.node, &self.path, message));
            return None;
        }
        self.optional(field, read)
    }

    /// Reads a nested map.
    fn section<T>(&mut self, field: &str, read: impl Fn(&mut Fields<'_>) -> T) -> Option<T> {
        let node = self.get(field).filter(|node| !node.is_null())?;
        let path = join(&self.path, field);
        Fields::open(node, &path, &[], self.problems).map(|mut fields| read(&mut fields))
    }

    /// Reads a nested list of maps. Invalid items are reported and skipped.
    fn list<T>(&mut self, field: &str, read: impl Fn(&mut Fields<'_>) -> Option<T>) -> Vec<T> {
        let Some(node) = self.get(field).filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let path = join(&self.path, field);
        let Some(items) = node.as_list() else {
            self.problems
                .push(problem(node, &path, expected("a list", node)));
            return Vec::new();
        };
        let mut out = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let opened = Fields::open(item, &format!("{path}[{i}]"), &[], self.problems);
            out.extend(opened.and_then(|mut fields| read(&mut fields)));
        }
        out
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

fn problem(node: &Node, field: &str, message: String) -> Problem {
    Problem {
        line: node.line(),
        column: node.column(),
        field: field.to_owned(),
        message,
    }
}

fn expected(what: &str, node: &Node) -> String {
    format!("expected {what}, found {}", node.type_name())
}

fn string(node: &Node) -> Result<String, String> {
    node.as_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| expected("a string", node))
}

/// Reads a string that is not empty.
fn name(node: &Node) -> Result<String, String> {
    string(node).and_then(|text| {
        if text.trim().is_empty() {
            Err("must not be empty".to_owned())
        } else {
            Ok(text)
        }
    })
}

fn boolean(node: &Node) -> Result<bool, String> {
    node.as_bool()
        .ok_or_else(|| expected("true or false", node))
}

fn positive(node: &Node) -> Result<NonZeroUsize, String> {
    node.as_i64()
        .and_then(|n| usize::try_from(n).ok())
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| expected("a whole number of at least 1", node))
}

fn go_duration(node: &Node) -> Result<Duration, String> {
    let text = node
        .as_str()
        .ok_or_else(|| expected("a duration such as \"1m30s\"", node))?;
    duration::parse(text)
        .map_err(|e| format!("{e}; durations look like \"300ms\", \"1m30s\" or \"2h\""))
}

fn choice<T: Copy>(node: &Node, choices: &[(&str, T)]) -> Result<T, String> {
    let found = node.as_str();
    choices
        .iter()
        .find(|(text, _)| found == Some(text))
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let names: Vec<_> = choices
                .iter()
                .map(|(text, _)| format!("`{text}`"))
                .collect();
            let hint = found
                .and_then(|f| {
                    nearest(
                        f,
                        &choices.iter().map(|(text, _)| *text).collect::<Vec<_>>(),
                    )
                })
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            format!("must be one of {}{hint}", names.join(", "))
        })
}

fn string_map(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let entries = node
        .as_map()
        .ok_or_else(|| expected("a map of strings", node))?;
    entries
        .iter()
        .map(|(key, value)| {
            let key = string(key)?;
            let text = match decode(value)? {
                Value::String(text) => text,
                Value::Null => String::new(),
                scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
                _ => return Err(format!("`{key}`: {}", expected("a string", value))),
            };
            Ok((key, text))
        })
        .collect()
}

fn string_list(node: &Node) -> Result<Vec<String>, String> {
    let items = node
        .as_list()
        .ok_or_else(|| expected("a list of strings", node))?;
    items.iter().map(name).collect()
}

fn pointers(node: &Node) -> Result<Vec<String>, String> {
    let paths = string_list(node)?;
    match paths.iter().find(|path| !path.starts_with('/')) {
        Some(path) => Err(format!(
            "`{path}` is not a JSON pointer; it must start with `/`, as in `/spec/replicas`"
        )),
        None => Ok(paths),
    }
}

fn selector(node: &Node) -> Result<Selector, String> {
    const FIELDS: &[&str] = &["matchLabels", "matchExpressions"];
    for (key, _) in node
        .as_map()
        .ok_or_else(|| expected("a label selector", node))?
    {
        let found = string(key)?;
        if !FIELDS.contains(&found.as_str()) {
            return Err(format!(
                "unknown field `{found}`; known fields: {}",
                FIELDS.join(", ")
            ));
        }
    }
    let labels: LabelSelector = decode(node)?;
    Selector::try_from(labels).map_err(|e| e.to_string())
}

fn decode<T: DeserializeOwned>(node: &Node) -> Result<T, String> {
    go_yaml::from_node(node).map_err(|e| e.message().to_owned())
}
