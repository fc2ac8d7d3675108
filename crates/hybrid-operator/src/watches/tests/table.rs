//! The table of all fields of a watches file: a right value, a wrong value, and the test that shows the
//! effect. It is compared with what the parser asks for, and with the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tests::reference;
use crate::watches::fields::record::{self, Known};
use crate::watches::{Problem, Watch, parse};

struct Row {
    /// Path of the field: `[]` stands for an item of a list.
    path: &'static str,
    /// A value, in YAML, that is right and differs from the default.
    right: &'static str,
    /// A wrong value, and part of what is said about it.
    wrong: (&'static str, &'static str),
    /// Test that shows the effect.
    shown_by: &'static str,
}

/// Makes rows of lines: path, right value, wrong value, and the test that shows the effect.
macro_rules! rows {
    ($($path:literal: $right:literal, $wrong:expr => $shown_by:expr;)*) => {
        &[$(Row { path: $path, right: $right, wrong: $wrong, shown_by: $shown_by }),*]
    };
}

const BOOLEAN: (&str, &str) = ("maybe", "expected true or false, found a string");
const DURATION: (&str, &str) = ("soon", "durations look like \"300ms\", \"1m30s\" or \"2h\"");
const TEXT: (&str, &str) = ("[a]", "expected a string, found a list");
const PATTERN: (&str, &str) = ("'('", "is not a regular expression: unclosed group");
const MAP: (&str, &str) = ("text", "expected a map, found a string");
const LIST: (&str, &str) = ("{a: b}", "expected a list, found a map");
const TEMPLATE: (&str, &str) = (
    "'{{ .Spec.a | upperr }}'",
    "function \"upperr\" not defined",
);
const NAMESPACE: (&str, &str) = ("'{{ .Spec.a }}'", "is not the name of a namespace");
const LABELS: (&str, &str) = (
    "{matchLables: {a: b}}",
    "unknown field `matchLables`; known fields: matchLabels, matchExpressions",
);

const EXISTS: &str = "custom_resource_becomes_a_release_with_its_values";
const REMOTE: &str =
    "locked_chart_of_a_registry_is_installed_and_needs_no_network_once_it_is_cached";
const REMOTE_FORMS: &str = "charts_are_fetched_as_their_entries_say";
const SIGNED: &str =
    "a_chart_is_used_only_if_it_is_signed_with_the_key_of_its_entry_also_from_the_cache";
const PROVEN: &str = "charts_of_entries_with_a_keyring_need_a_provenance_file";
const IDENTITY: &str = "charts_of_entries_with_an_identity_need_its_signature";
const ADMISSION: &str = "spec_that_the_chart_refuses_is_denied_with_its_place_and_field";
const HOOKS: &str = "hooks_are_disabled_by_the_entry";
const WAITS: &str = "only_a_revision_that_waits_for_jobs_is_pending_until_they_are_complete";
const PATCHES: &str = "patches_change_rendered_objects_and_are_recorded";
const OWN_PATCHES: &str = "patches_of_a_custom_resource_change_what_the_entry_allows";
const TARGETS: &str = "targets_select_objects_by_kind_version_namespace_name_and_labels";
const DRIFT: &str = "drift_of_ignored_fields_is_left_and_can_be_reported_instead_of_repaired";
const DEPENDS: &str = "custom_resource_waits_for_its_dependencies";
const LIMITS: &str =
    "render_beyond_the_limits_of_its_entry_is_refused_with_the_field_that_raises_them";
const RETRIES: &str = "failed_upgrade_is_retried_rolled_back_or_stalled_as_configured";
const SECRET: &str = "values_follow_a_secret_and_its_deletion_changes_nothing";
const API: &str = "spec_with_fields_of_its_own_is_mapped_to_values_and_checked_by_the_api_server";
const OUTPUTS: &str = "status_shows_what_expressions_read_and_is_ready_when_their_conditions_hold";
const REFERENCES: &str = "referenced_objects_are_values_files_or_single_values";

const FIELDS: &[Row] = rows! {
    "group": "other.example.com", ("5", "expected a string, found a number") => EXISTS;
    "version": "v9", ("''", "must not be empty") => EXISTS;
    "kind": "Other", TEXT => EXISTS;
    "chart": "other", TEXT => EXISTS;
    "chart.url": "oci://h/other:1.0.0",
        ("./web", "such as https://HOST/NAME-VERSION.tgz or oci://HOST/PATH") => REMOTE;
    "chart.repo": "'https://h/charts'", ("'oci://h/charts'", "a registry has no index")
        => REMOTE_FORMS;
    "chart.name": "web", ("'https://h/x'", "is not a name of a chart in a repository")
        => REMOTE_FORMS;
    "chart.version": "^1.2", ("newest", "is neither a version nor a range") => REMOTE;
    "chart.digest": "'sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'",
        ("abc", "is not a SHA-256 digest") => REMOTE_FORMS;
    "chart.caFile": "ca.crt", ("''", "must not be empty") => REMOTE_FORMS;
    "chart.credentialsSecret": "system/registry",
        ("a/b/c", "NAME in the namespace of the operator, or NAMESPACE/NAME")
        => "credentials_of_a_registry_come_from_a_secret";
    "chart.plainHttp": "true", BOOLEAN => REMOTE;
    "chart.insecureSkipTlsVerify": "true", BOOLEAN => REMOTE_FORMS;
    "chart.verify": "{cosign: {key: a.pub}}", MAP => SIGNED;
    "chart.verify.cosign": "{key: a.pub}", MAP => SIGNED;
    "chart.verify.cosign.key": "a.pub", TEXT => SIGNED;
    "chart.verify.cosign.identity": "{issuer: 'https://i', subject: s, trustedRoot: r.json}", MAP
        => IDENTITY;
    "chart.verify.cosign.identity.issuer": "'https://j'", TEXT => IDENTITY;
    "chart.verify.cosign.identity.issuerRegExp": "'https://.*'", PATTERN => IDENTITY;
    "chart.verify.cosign.identity.subject": "t@h", TEXT => IDENTITY;
    "chart.verify.cosign.identity.subjectRegExp": ".*@h", PATTERN => IDENTITY;
    "chart.verify.cosign.identity.trustedRoot": "r.json", TEXT => IDENTITY;
    "chart.verify.provenance": "{keyring: a.gpg}", MAP => PROVEN;
    "chart.verify.provenance.keyring": "a.gpg", TEXT => PROVEN;
    "watchDependentResources": "false", BOOLEAN
        => "drift_waits_for_the_next_reconcile_when_dependents_are_not_watched";
    "overrideValues": "{a.b: $X}",
        ("{'a[x]': y}", "`a[x]` is not a path as in Helm's --set, such as `image.tag`")
        => "override_values_expand_the_environment_and_are_typed_by_default";
    "overrideValuesType": "string",
        ("strings", "must be one of `typed`, `string`; did you mean `string`?")
        => "override_values_expand_the_environment_and_are_typed_by_default";
    "reconcilePeriod": "1m30s", DURATION
        => "reconcile_period_comes_from_the_annotation_the_entry_or_the_flag";
    "maxConcurrentReconciles": "4", ("0", "expected a whole number of at least 1")
        => "number_of_concurrent_reconciles_is_limited_by_the_entry_or_the_flag";
    "selector": "{matchLabels: {tier: gold}}", LABELS
        => "custom_resource_that_is_no_longer_watched_is_not_uninstalled";
    "dryRunOption": "server", ("both", "must be one of `server`, `client`")
        => "looked_up_list_is_followed_and_only_a_changed_manifest_makes_a_revision";
    "values": "{a: '{{ .Env.X }}'}",
        ("{a: {b: ['{{ .Spec.c']}}", "invalid template, line 1: unclosed action")
        => "single_template_keeps_the_type_of_its_result";
    "valuesFrom": "[{kind: Secret, name: s}]", LIST => SECRET;
    "valuesFrom[].kind": "ConfigMap", ("Pod", "must be one of `Secret`, `ConfigMap`") => SECRET;
    "valuesFrom[].name": "'{{ .Object.metadata.name }}'", TEMPLATE => SECRET;
    "valuesFrom[].namespace": "other", NAMESPACE => REFERENCES;
    "valuesFrom[].key": "value", ("'a/b'", "is not a key of a Secret") => SECRET;
    "valuesFrom[].targetPath": "a.b", ("'a..b'", "is not a path of names with dots between them")
        => SECRET;
    "valuesFrom[].optional": "true", BOOLEAN => "deleted_optional_reference_keeps_its_last_value";
    "install": "{wait: true}", MAP => WAITS;
    "install.timeout": "2m", DURATION
        => "hanging_hook_blocks_no_other_release_and_fails_at_its_timeout";
    "install.wait": "true", BOOLEAN => WAITS;
    "install.waitForJobs": "true", BOOLEAN => WAITS;
    "install.disableHooks": "true", BOOLEAN => HOOKS;
    "install.remediation": "{retries: 2}", MAP
        => "exhausted_retries_stall_the_release_and_are_reported";
    "install.remediation.retries": "2", ("-1", "expected a count of at least 0")
        => "release_stalls_only_if_another_attempt_could_cause_damage";
    "install.remediation.strategy": "uninstall", ("rollback", "must be one of `uninstall`, `none`")
        => "release_stalls_only_if_another_attempt_could_cause_damage";
    "upgrade": "{wait: true}", MAP => WAITS;
    "upgrade.timeout": "2m", DURATION => WAITS;
    "upgrade.wait": "true", BOOLEAN => WAITS;
    "upgrade.waitForJobs": "true", BOOLEAN => WAITS;
    "upgrade.disableHooks": "true", BOOLEAN => HOOKS;
    "upgrade.remediation": "{retries: 2}", MAP => RETRIES;
    "upgrade.remediation.retries": "2", ("many", "expected a count of at least 0") => RETRIES;
    "upgrade.remediation.strategy": "uninstall",
        ("delete", "must be one of `rollback`, `uninstall`, `none`")
        => "failed_upgrade_is_uninstalled_and_installed_again_where_the_entry_says_so";
    "upgrade.recreate": "[Deployment]",
        ("[PersistentVolumeClaim]", "is never deleted and created again")
        => "changed_job_is_recreated_and_changed_selector_is_reported";
    "upgrade.expandVolumes": "true", BOOLEAN
        => "volumes_of_a_stateful_set_grow_and_its_pods_stay";
    "rollback": "{wait: true}", MAP => WAITS;
    "rollback.timeout": "2m", DURATION => WAITS;
    "rollback.wait": "true", BOOLEAN => WAITS;
    "rollback.waitForJobs": "true", BOOLEAN => WAITS;
    "rollback.disableHooks": "true", BOOLEAN => HOOKS;
    "uninstall": "{wait: true}", MAP => HOOKS;
    "uninstall.timeout": "10s", DURATION => HOOKS;
    "uninstall.wait": "true", BOOLEAN => "waiting_uninstall_polls_rarely_after_a_restart";
    "uninstall.disableHooks": "true", BOOLEAN => HOOKS;
    "test": "{}", MAP => "chart_tests_run_and_set_a_condition";
    "test.timeout": "1m", DURATION => HOOKS;
    "driftDetection": "{mode: 'off'}", MAP => DRIFT;
    "driftDetection.mode": "warn", ("fix", "must be one of `repair`, `warn`, `off`") => DRIFT;
    "driftDetection.ignore": "[{paths: [/spec]}]", LIST => DRIFT;
    "driftDetection.ignore[].paths": "[/spec/replicas]",
        ("[spec.replicas]", "is not a JSON pointer; it must start with `/`") => DRIFT;
    "driftDetection.ignore[].target": "{kind: A}", MAP => DRIFT;
    "driftDetection.ignore[].target.group": "apps", TEXT => TARGETS;
    "driftDetection.ignore[].target.version": "v1", TEXT => TARGETS;
    "driftDetection.ignore[].target.kind": "A", TEXT => TARGETS;
    "driftDetection.ignore[].target.name": "a", TEXT => TARGETS;
    "driftDetection.ignore[].target.namespace": "''", TEXT => TARGETS;
    "driftDetection.ignore[].target.labels": "{matchLabels: {a: b}}", LABELS => TARGETS;
    "patches": "[{patch: {data: {a: b}}}]", LIST => PATCHES;
    "patches[].patch": "[{op: remove, path: /data}]",
        ("[{op: delete, path: /data}]", "not a JSON Patch") => PATCHES;
    "patches[].target": "{kind: A}", MAP => PATCHES;
    "patches[].target.group": "apps", TEXT => TARGETS;
    "patches[].target.version": "v1", TEXT => TARGETS;
    "patches[].target.kind": "A", TEXT => TARGETS;
    "patches[].target.name": "a", TEXT => TARGETS;
    "patches[].target.namespace": "''", TEXT => TARGETS;
    "patches[].target.labels": "{matchLabels: {a: b}}", LABELS => TARGETS;
    "patchesFrom": "{path: spec.a, allow: [A.spec]}", MAP => OWN_PATCHES;
    "patchesFrom.path": "spec.a", ("metadata.a", "is not a path below `spec`, such as `spec.patches`")
        => OWN_PATCHES;
    "patchesFrom.allow": "[A.spec]", ("[A]", "is not a field of a kind") => OWN_PATCHES;
    "serviceAccountName": "'{{ .Object.metadata.name }}'", TEMPLATE
        => "service_account_limits_what_a_release_may_do";
    "allowOperatorAccounts": "true", BOOLEAN
        => "a_custom_resource_picks_no_account_of_the_operators_namespace";
    "lookup": "trusted", ("all", "confined")
        => "a_trusted_text_looks_up_what_the_operator_may_read";
    "crashLogs": "false", BOOLEAN => "without_crash_logs_no_log_is_read";
    "limits": "{time: 1m}", MAP => LIMITS;
    "limits.memory": "1Gi", ("lots", "expected a size of at least 1Mi, such as 512Mi or 1Gi")
        => LIMITS;
    "limits.time": "30s", DURATION => LIMITS;
    "dependsOn": "[{apiVersion: v1, kind: A, name: a}]", LIST => DEPENDS;
    "dependsOn[].apiVersion": "b.com/v1", ("a/b/c", "`a/b/c` is not an API version, such as `v1`")
        => DEPENDS;
    "dependsOn[].kind": "B", TEXT => DEPENDS;
    "dependsOn[].name": "'{{ .Spec.a }}'", TEMPLATE => DEPENDS;
    "dependsOn[].namespace": "b", NAMESPACE => DEPENDS;
    "maxHistory": "3", ("none", "expected a whole number of at least 1")
        => "failures_are_remembered_when_the_history_is_short";
    "releaseName": "'r-{{ .Spec.a }}'", TEMPLATE
        => "release_name_comes_from_its_template_and_does_not_change";
    "releaseNamespace": "apps", NAMESPACE
        => "cluster_scoped_resource_has_its_release_in_the_configured_namespace";
    "pauseAnnotation": "example.com/hold",
        ("'on hold'", "is not the name of an annotation, such as `example.com/paused`")
        => "pause_annotation_name_is_configurable";
    "allowEmpty": "true", BOOLEAN => "empty_render_removes_nothing_unless_allowed";
    "crds": "createReplace", ("replace", "must be one of `skip`, `create`, `createReplace`")
        => "crds_are_applied_before_their_objects_and_upgraded";
    "deletionPolicy": "Orphan", ("Keep", "must be one of `Delete`, `Orphan`")
        => "a_release_outlives_its_custom_resource_and_another_one_takes_it_over";
    "protect": "true", BOOLEAN => "a_protected_custom_resource_keeps_its_release";
    "api": "{fields: {NAME: string}}", MAP => API;
    "api.fields": "{NAME: string}", MAP => API;
    "api.fields.NAME": "integer | default=1", ("text", "`text` is not a type; types are string") => API;
    "api.rules": "['true']", ("['self.a']", "has no field") => API;
    "map": "{NAME: spec.a}", MAP => API;
    "map.NAME": "spec.b", ("specs.b", "specs") => API;
    "objects": "{NAME: {kind: A}}", MAP => OUTPUTS;
    "objects.NAME": "{kind: A}", MAP => OUTPUTS;
    "objects.NAME.group": "apps", TEXT => TARGETS;
    "objects.NAME.version": "v1", TEXT => TARGETS;
    "objects.NAME.kind": "A", TEXT => OUTPUTS;
    "objects.NAME.name": "a", TEXT => TARGETS;
    "objects.NAME.namespace": "''", TEXT => TARGETS;
    "objects.NAME.labels": "{matchLabels: {a: b}}", LABELS => OUTPUTS;
    "status": "{NAME: spec.a}", MAP => OUTPUTS;
    "status.NAME": "spec.b", ("spec.", "1:6: syntax error") => OUTPUTS;
    "status.NAME.value": "spec.c", ("object.a", "object") => OUTPUTS;
    "status.NAME.sensitive": "true", BOOLEAN => OUTPUTS;
    "readyWhen": "['spec.a == 1']", ("['1']", "`1` is int; a condition is true or false") => OUTPUTS;
    "columns": "{URL: .status.url}", ("{URL: url}", "`url` is not a JSON path") => OUTPUTS;
    "admission": "render", ("rendr", "must be one of `off`, `schema`, `render`; did you mean `render`?") => ADMISSION;
    "admission.mode": "schema", ("shcema", "did you mean `schema`?") => ADMISSION;
    "admission.failurePolicy": "Fail", ("fail", "did you mean `Fail`?")
        => "without_an_operator_custom_resources_are_stored_unless_the_entry_says_otherwise";
    "schema": "skip", ("ignore", "must be one of `check`, `skip`")
        => "schemas_are_skipped_by_the_entry";
};

/// The fields without which an entry, or an item of a list, is not complete.
const REQUIRED: &[(&str, &str)] = &[
    ("version", "v1"),
    ("kind", "A"),
    ("chart", "c"),
    ("chart.url", "oci://h/web"),
    ("chart.verify.cosign", "{key: other.pub}"),
    ("chart.verify.cosign.key", "other.pub"),
    ("chart.verify.cosign.identity.issuer", "'https://i'"),
    ("chart.verify.cosign.identity.subject", "s"),
    ("chart.verify.cosign.identity.trustedRoot", "other.json"),
    ("chart.verify.provenance.keyring", "other.gpg"),
    ("valuesFrom[].kind", "Secret"),
    ("valuesFrom[].name", "s"),
    ("driftDetection.ignore[].paths", "[/a]"),
    ("patches[].patch", "{a: b}"),
    ("patchesFrom.path", "spec.b"),
    ("patchesFrom.allow", "[B.spec]"),
    ("dependsOn[].apiVersion", "v1"),
    ("dependsOn[].kind", "D"),
    ("dependsOn[].name", "d"),
    ("objects.NAME.kind", "D"),
    ("admission.mode", "render"),
    ("status.NAME.value", "spec.d"),
];

/// Returns an entry as YAML with these fields, and with those that are required next to them.
fn entry(fields: &[(&str, &str)]) -> String {
    let mut tree: BTreeMap<String, String> = BTreeMap::new();
    // A chart of a repository has both, and no URL.
    let of_repository = [("chart.repo", "'https://h/c'"), ("chart.name", "c")];
    let mut fields = fields.to_vec();
    if let Some(given) = of_repository
        .iter()
        .position(|(path, _)| fields.iter().any(|(field, _)| field == path))
    {
        fields.push(of_repository[1 - given]);
    }
    let is_given = |required: &str| {
        let below = format!("{required}.");
        let has = |start: &str| fields.iter().any(|(path, _)| path.starts_with(start));
        let replaced = match required {
            "chart.url" => has("chart.repo"),
            "chart.verify.cosign" => has("chart.verify.provenance"),
            "chart.verify.cosign.key" => has("chart.verify.cosign.identity"),
            "chart.verify.cosign.identity.issuer" => {
                has("chart.verify.cosign.identity.issuerRegExp")
            }
            "chart.verify.cosign.identity.subject" => {
                has("chart.verify.cosign.identity.subjectRegExp")
            }
            _ => false,
        };
        replaced
            || fields
                .iter()
                .any(|(path, _)| *path == required || path.starts_with(&below))
    };
    for (path, value) in &fields {
        tree.insert((*path).to_owned(), (*value).to_owned());
        let parents = path.match_indices('.').map(|(at, _)| &path[..at]);
        for parent in std::iter::once("").chain(parents) {
            for (required, value) in REQUIRED {
                let sibling = match required.rsplit_once('.') {
                    Some((before, _)) => before == parent,
                    None => parent.is_empty(),
                };
                if sibling && !is_given(required) {
                    tree.insert((*required).to_owned(), (*value).to_owned());
                }
            }
        }
    }
    format!("- {}\n", flow(&tree, ""))
}

/// Returns the fields below a path as a map in YAML's flow style.
fn flow(tree: &BTreeMap<String, String>, below: &str) -> String {
    let names: BTreeSet<&str> = tree
        .keys()
        .filter_map(|path| path.strip_prefix(below))
        .map(|rest| rest.split('.').next().unwrap())
        .collect();
    let fields = names.into_iter().map(|name| {
        let path = format!("{below}{name}");
        match (tree.get(&path), name.strip_suffix("[]")) {
            (Some(value), _) => format!("{name}: {value}"),
            (None, Some(list)) => format!("{list}: [{}]", flow(tree, &format!("{path}."))),
            (None, None) => format!("{name}: {}", flow(tree, &format!("{path}."))),
        }
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}

fn parsed(text: &str) -> (Option<Watch>, Vec<Problem>) {
    let (entries, problems) = parse(text.as_bytes(), Path::new(""));
    (
        entries.into_iter().next().map(|entry| entry.watch),
        problems,
    )
}

#[test]
fn each_field_changes_the_entry_and_its_wrong_value_is_refused_with_its_path() {
    for row in FIELDS {
        let text = entry(&[(row.path, row.right)]);
        let (watch, problems) = parsed(&text);
        assert_eq!(problems, [], "{text}");
        // The same entry without the field, unless it is required: then it has another value.
        let required = REQUIRED.iter().find(|(path, _)| *path == row.path);
        let parent = row.path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let without = match required {
            Some((path, value)) => entry(&[(path, value)]),
            None if parent.is_empty() => entry(&[("kind", "A")]),
            None => match REQUIRED.iter().find(|(path, _)| {
                path.rsplit_once('.')
                    .is_some_and(|(before, _)| before == parent)
            }) {
                Some((path, value)) => entry(&[(path, value)]),
                None => entry(&[(parent, "{}")]),
            },
        };
        let (other, problems) = parsed(&without);
        assert_eq!(problems, [], "{without}");
        // It permits what is refused without it.
        let permits = row.path == "status.NAME.sensitive";
        assert!(
            permits || watch != other,
            "{} has no effect:\n{text}{without}",
            row.path
        );

        let (wrong, wanted) = row.wrong;
        let text = entry(&[(row.path, wrong)]);
        let (_, problems) = parsed(&text);
        let field = format!("[0].{}", row.path.replace("[]", "[0]"));
        let found = problems
            .iter()
            .find(|problem| problem.field.starts_with(&field) && problem.message.contains(wanted));
        let found = found.unwrap_or_else(|| panic!("{text}{problems:#?}"));
        assert_eq!(found.line, 1);
        assert!(found.column > 1, "{text}");
    }
}

#[test]
fn the_table_the_parser_and_the_documentation_have_the_same_fields() {
    // The parser asks for the fields of what a file has.
    for row in FIELDS {
        parsed(&entry(&[(row.path, row.right)]));
    }
    let known = record::fields();
    let unread = known
        .iter()
        .filter(|(_, known)| **known == Known::NestedUnread);
    assert_eq!(unread.count(), 0, "{known:#?}");
    let parser: BTreeSet<String> = known.into_keys().collect();
    let table: BTreeSet<String> = FIELDS.iter().map(|row| row.path.to_owned()).collect();
    assert_eq!(table, parser);
    // All targets have the same fields, which are documented once.
    let target = |path: &String| {
        let named = path
            .split_once("target.")
            .or(path.split_once("objects.NAME."));
        named.map_or_else(|| path.clone(), |(_, field)| format!("target.{field}"))
    };
    let parser: BTreeSet<String> = parser.iter().map(target).collect();
    let documented = reference::names("reference/watches.md", "## Fields");
    assert_eq!(documented, parser);
    reference::assert_tests_exist(FIELDS.iter().map(|row| row.shown_by));
}

#[test]
fn the_examples_of_the_documentation_are_valid() {
    let page = reference::page("guides/watches.md");
    let examples: Vec<&str> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(examples.len() > 5, "{}", examples.len());
    for example in &examples {
        let (_, problems) = parse(example.as_bytes(), Path::new(""));
        assert_eq!(problems, [], "{example}");
    }
    let guides = ["api", "charts", "outputs", "releases"];
    let pages = guides.map(|name| reference::page(&format!("guides/{name}.md")));
    let entries: Vec<&str> = pages
        .iter()
        .flat_map(|page| page.split("```yaml\n").skip(1))
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| block.starts_with("- group:"))
        .collect();
    assert!(entries.len() > 10, "{}", entries.len());
    for entry in entries {
        let (_, problems) = parse(entry.as_bytes(), Path::new(""));
        assert_eq!(problems, [], "{entry}");
    }
    // Each field has an example.
    let all = examples.concat();
    for row in FIELDS {
        let name = row.path.rsplit('.').next().unwrap().trim_end_matches("[]");
        let field = format!("{name}:");
        let is_chosen = name == "NAME";
        assert!(
            is_chosen || all.contains(&field),
            "no example of {}",
            row.path
        );
    }
}
