//! Parses a watches file into entries and collects all mistakes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use go_yaml::tree::{self, Node};
use helm_core::Values;
use helm_core::values::{SetText, set_one};
use helm_release::policy::{
    ActionPolicy, ChartLimits, CrdPolicy, DeletionPolicy, DriftDetection, DriftIgnore, DriftMode,
    NEVER_RECREATED, Remediation, RemediationStrategy,
};
use kube::core::GroupVersionKind;
use object_cel::Type;
use operator_runtime::naming;
use serde_json::Value;

use super::api::Api;
use super::entry::{Dependency, Entry, OverrideValuesType, ReferenceKind, ValuesFrom, Watch};
use super::fields::{
    Fields, boolean, byte_size, choice, decode, expected, go_duration, name, namespace, pointers,
    positive, problem, selector, string, string_list, string_map,
};
use super::outputs::Outputs;
use super::patch::patch;
use super::patches_from::PatchesFrom;
use super::problem::Problem;
use super::target::target;
use super::{admission, chart, mapping, template};

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
        let read = |fields: &mut Fields<'_>| entry(fields, node, index, base);
        let entry = Fields::read(node, &format!("[{index}]"), &mut problems, read);
        entries.extend(entry.flatten());
    }
    (entries, problems)
}

/// Reads one entry; `None` when a required field is missing or wrong.
fn entry(fields: &mut Fields<'_>, node: &Node, index: usize, base: &Path) -> Option<Entry> {
    let group = fields.or_default("group", string);
    let version = fields.required("version", name);
    let kind = fields.required("kind", name);
    let chart_position = fields.position("chart");
    let chart = chart::chart(fields, base);
    let gvk = GroupVersionKind {
        group,
        version: version.clone().unwrap_or_default(),
        kind: kind.clone().unwrap_or_default(),
    };
    let mut watch = Watch::new(gvk, PathBuf::new());

    watch.watch_dependent_resources = fields
        .optional("watchDependentResources", boolean)
        .unwrap_or(true);
    watch.override_values = fields.or_default("overrideValues", override_values);
    fields.check_strings("overrideValues", template::check_override);
    let types = &[
        ("typed", OverrideValuesType::Typed),
        ("string", OverrideValuesType::String),
    ];
    watch.override_values_type = fields
        .choice("overrideValuesType", types)
        .unwrap_or_default();
    watch.reconcile_period = fields.optional("reconcilePeriod", go_duration);
    watch.max_concurrent_reconciles = fields.optional("maxConcurrentReconciles", positive);
    watch.selector = fields.optional("selector", selector);
    let is_input = fields.choice("dryRunOption", &[("server", true), ("client", false)]);
    watch.policy.lookup_is_input = is_input.unwrap_or(false);
    let is_trusted = fields.choice("lookup", &[("confined", false), ("trusted", true)]);
    watch.policy.lookup_is_trusted = is_trusted.unwrap_or(false);
    watch.values = fields.optional("values", |node| match decode(node)? {
        value @ Value::Object(_) => Ok(value),
        _ => Err(expected("a map of values", node)),
    });
    fields.check_strings("values", template::check);
    watch.values_from = fields.list("valuesFrom", values_from);
    watch.policy.install = fields.section("install", install).unwrap_or_default();
    watch.policy.upgrade = fields.section("upgrade", upgrade).unwrap_or_default();
    watch.policy.rollback = fields.section("rollback", rollback).unwrap_or_default();
    watch.policy.uninstall = fields.section("uninstall", uninstall).unwrap_or_default();
    watch.policy.test = fields.section("test", |f| ActionPolicy {
        timeout: f.optional("timeout", go_duration),
        ..ActionPolicy::default()
    });
    watch.policy.drift_detection = fields
        .section("driftDetection", drift_detection)
        .unwrap_or_default();
    watch.policy.patches = fields.list("patches", patch);
    watch.service_account_name = fields.optional("serviceAccountName", template_text);
    watch.depends_on = fields.list("dependsOn", dependency);
    watch.policy.max_history = fields.optional("maxHistory", positive);
    watch.release_name = fields.optional("releaseName", template_text);
    watch.release_namespace = fields.optional("releaseNamespace", namespace);
    watch.pause_annotation = fields.optional("pauseAnnotation", annotation);
    watch.allow_operator_accounts = fields.flag("allowOperatorAccounts");
    watch.policy.crash_logs = fields.optional("crashLogs", boolean).unwrap_or(true);
    watch.policy.limits = fields
        .section("limits", |f| ChartLimits {
            memory: f.optional("memory", byte_size),
            time: f.optional("time", go_duration),
        })
        .unwrap_or_default();
    watch.policy.allow_empty = fields.flag("allowEmpty");
    let policies = &[
        ("skip", CrdPolicy::Skip),
        ("create", CrdPolicy::Create),
        ("createReplace", CrdPolicy::CreateReplace),
    ];
    watch.policy.crds = fields.choice("crds", policies).unwrap_or_default();
    watch.policy.deletion = deletion_policy(fields);
    watch.protect = fields.optional("protect", boolean);
    watch.policy.protected = watch.protect == Some(true);
    let skip_schema = fields.choice("schema", &[("check", false), ("skip", true)]);
    watch.skip_schema = skip_schema.unwrap_or(false);
    watch.admission = admission::read(fields, watch.skip_schema);
    watch.api = Api::read(fields);
    watch.patches_from = PatchesFrom::read(fields, watch.api.as_ref());
    let spec = watch.api.as_ref().map_or(Type::Dyn, Api::spec);
    let no_secrets = BTreeSet::new();
    let secrets = watch.api.as_ref().map_or(&no_secrets, |api| &api.secrets);
    let mapping = mapping::read(fields, &spec, secrets);
    (watch.map, watch.secrets) = (mapping.expressions, mapping.secrets);
    watch.outputs = Arc::new(Outputs::read(fields, spec));
    watch.policy.kept_fields = watch.outputs.kept_fields();
    let positions = fields.positions(&["patchesFrom", "readyWhen", "status"]);
    // Only now, so that the mistakes in all fields are reported.
    let (Some(_), Some(_), Some(chart)) = (version, kind, chart) else {
        return None;
    };
    watch.chart = chart;
    Some(Entry {
        watch,
        index,
        line: node.line(),
        column: node.column(),
        chart_position,
        positions,
    })
}

fn values_from(fields: &mut Fields<'_>) -> Option<ValuesFrom> {
    let kinds = &[
        ("Secret", ReferenceKind::Secret),
        ("ConfigMap", ReferenceKind::ConfigMap),
    ];
    let kind = fields.required("kind", |node| choice(node, kinds));
    let reference = fields.required("name", template_text);
    let namespace = fields.optional("namespace", namespace);
    let key = fields
        .optional("key", data_key)
        .unwrap_or_else(|| "values.yaml".to_owned());
    let target_path = fields.optional("targetPath", dotted_path);
    let optional = fields.flag("optional");
    Some(ValuesFrom {
        kind: kind?,
        name: reference?,
        namespace,
        key,
        target_path,
        optional,
    })
}

fn deletion_policy(fields: &mut Fields<'_>) -> DeletionPolicy {
    let policies = &[
        ("Delete", DeletionPolicy::Delete),
        ("Orphan", DeletionPolicy::Orphan),
    ];
    let chosen = fields.choice("deletionPolicy", policies);
    chosen.unwrap_or_default()
}

fn install(fields: &mut Fields<'_>) -> ActionPolicy {
    let strategies = &[
        ("uninstall", RemediationStrategy::Uninstall),
        ("none", RemediationStrategy::None),
    ];
    remediated(fields, strategies)
}

fn upgrade(fields: &mut Fields<'_>) -> ActionPolicy {
    let strategies = &[
        ("rollback", RemediationStrategy::Rollback),
        ("uninstall", RemediationStrategy::Uninstall),
        ("none", RemediationStrategy::None),
    ];
    let common = remediated(fields, strategies);
    ActionPolicy {
        recreate: fields.optional("recreate", recreated_kinds),
        expand_volumes: fields.flag("expandVolumes"),
        ..common
    }
}

fn remediated(fields: &mut Fields<'_>, strategies: &[(&str, RemediationStrategy)]) -> ActionPolicy {
    let common = rollback(fields);
    let remediation = fields.section("remediation", |f| remediation(f, strategies));
    ActionPolicy {
        remediation: remediation.unwrap_or_default(),
        ..common
    }
}

fn rollback(fields: &mut Fields<'_>) -> ActionPolicy {
    let common = uninstall(fields);
    ActionPolicy {
        wait_for_jobs: fields.flag("waitForJobs"),
        ..common
    }
}

/// Reads the fields that all actions have.
fn uninstall(fields: &mut Fields<'_>) -> ActionPolicy {
    ActionPolicy {
        timeout: fields.optional("timeout", go_duration),
        wait: fields.flag("wait"),
        disable_hooks: fields.flag("disableHooks"),
        ..ActionPolicy::default()
    }
}

fn remediation(fields: &mut Fields<'_>, strategies: &[(&str, RemediationStrategy)]) -> Remediation {
    Remediation {
        retries: fields.optional("retries", |node| {
            node.as_i64()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| expected("a count of at least 0", node))
        }),
        strategy: fields.choice("strategy", strategies),
    }
}

fn drift_detection(fields: &mut Fields<'_>) -> DriftDetection {
    let modes = &[
        ("repair", DriftMode::Repair),
        ("warn", DriftMode::Warn),
        ("off", DriftMode::Off),
    ];
    DriftDetection {
        mode: fields.choice("mode", modes).unwrap_or_default(),
        ignore: fields.list("ignore", |f| {
            let target = f.section("target", target).unwrap_or_default();
            let paths = f.required("paths", pointers);
            Some(DriftIgnore {
                target,
                paths: paths?,
            })
        }),
    }
}

fn dependency(fields: &mut Fields<'_>) -> Option<Dependency> {
    let api_version = fields.required("apiVersion", api_version);
    let kind = fields.required("kind", name);
    let reference = fields.required("name", template_text);
    let namespace = fields.optional("namespace", namespace);
    Some(Dependency {
        api_version: api_version?,
        kind: kind?,
        name: reference?,
        namespace,
    })
}

/// Reads a text that is not empty and may contain templates.
fn template_text(node: &Node) -> Result<String, String> {
    let text = name(node)?;
    template::check(&text, "template")?;
    Ok(text)
}

/// Reads the paths and texts of `overrideValues`.
fn override_values(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let values = string_map(node)?;
    for path in values.keys() {
        let mut set_values = Values::new();
        let why = match set_one(path, &SetText::from("x"), true, &mut set_values) {
            Err(error) => format!(": {error}"),
            // An unclosed bracket.
            Ok(()) if set_values.is_empty() => String::new(),
            Ok(()) => continue,
        };
        return Err(format!(
            "`{path}` is not a path as in Helm's --set, such as `image.tag` or `hosts[0].name`{why}"
        ));
    }
    Ok(values)
}

/// Reads a text of a form, or says what it is not.
fn formed(node: &Node, is_right: impl Fn(&str) -> bool, form: &str) -> Result<String, String> {
    let text = name(node)?;
    if is_right(&text) {
        Ok(text)
    } else {
        Err(format!("`{text}` is not {form}"))
    }
}

fn annotation(node: &Node) -> Result<String, String> {
    let form = "the name of an annotation, such as `example.com/paused`";
    formed(node, naming::is_qualified, form)
}

fn data_key(node: &Node) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let form = "a key of a Secret or ConfigMap: letters, digits, `-`, `_` and `.`";
    formed(node, |text| text.chars().all(allowed), form)
}

/// Reads a path of names that are separated by dots.
fn dotted_path(node: &Node) -> Result<String, String> {
    let right = |part: &str| !part.is_empty() && !part.contains(['[', ']', '{', '}']);
    let form = "a path of names with dots between them, such as `auth.password`";
    formed(node, |text| text.split('.').all(right), form)
}

fn api_version(node: &Node) -> Result<String, String> {
    let is_right = |text: &str| {
        let (group, version) = text.split_once('/').unwrap_or(("none", text));
        naming::is_subdomain(group) && naming::is_label(version)
    };
    let form = "an API version, such as `v1` or `example.com/v1alpha1`";
    formed(node, is_right, form)
}

/// Reads the kinds that may be deleted and created again.
fn recreated_kinds(node: &Node) -> Result<Vec<String>, String> {
    let kinds = string_list(node)?;
    match kinds
        .iter()
        .find(|kind| NEVER_RECREATED.contains(&kind.as_str()))
    {
        Some(kind) => Err(format!(
            "{kind} is never deleted and created again, because data would be lost; remove it"
        )),
        None => Ok(kinds),
    }
}
