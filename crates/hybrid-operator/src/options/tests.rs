//! The table of all flags and environment variables of `run`: a right value, a wrong value, and the test
//! that shows the effect. It is compared with what the program parses, and with the documentation.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::{CommandFactory, Parser};

use crate::options::{ChartOptions, Options, RunArgs, double_dashes};
use crate::tests::reference;

/// Result of a wrong value.
#[derive(Clone, Copy)]
enum Wrong {
    /// The command line is refused, with this text.
    Usage(&'static str, &'static str),
    /// The options are refused before anything is started, with this text.
    Options(&'static str, &'static str),
    /// The process ends at the start, as this test shows.
    AtStart(&'static str),
    /// Every value is right.
    None,
}

struct Row {
    name: &'static str,
    /// A value that is right and differs from the default.
    right: &'static str,
    wrong: Wrong,
    /// Test that shows the effect.
    shown_by: &'static str,
}

/// Makes rows of lines: name, right value, wrong value, and the test that shows the effect.
macro_rules! rows {
    ($($name:literal: $right:literal, $wrong:expr => $shown_by:expr;)*) => {
        &[$(Row { name: $name, right: $right, wrong: $wrong, shown_by: $shown_by }),*]
    };
}

const BOOLEAN: Wrong = Wrong::Usage("maybe", "possible values: true, false");
const DURATION: Wrong = Wrong::Usage("soon", "time: invalid duration \"soon\"");

const CACHED: &str =
    "locked_chart_of_a_registry_is_installed_and_needs_no_network_once_it_is_cached";
const LIMITS: &str = "limits_of_the_operator_apply_to_entries_that_have_none";

const FLAGS: &[Row] = rows! {
    "--profiling-bind-address": "127.0.0.1:6060",
        Wrong::Usage(":6060", "not an address of the loopback interface")
        => "a_program_shows_where_its_memory_goes";
    "--otlp-endpoint": "http://collector:4318",
        Wrong::Usage("collector:4318", "not an http or https URL")
        => "each_generation_is_a_trace_with_its_render_its_objects_and_its_wait";
    "--watches-file": "other.yaml",
        Wrong::AtStart("watches_file_errors_are_reported_together_without_contacting_the_cluster")
        => "watches_file_errors_are_reported_together_without_contacting_the_cluster";
    "--watch-files": "false", BOOLEAN => "changed_files_are_looked_for_unless_that_is_turned_off";
    "--chart-cache": "/cache", Wrong::None => CACHED;
    "--reload-pace": "1h", DURATION => "edited_custom_resource_does_not_wait_for_its_turn";
    "--reconcile-period": "5s", DURATION
        => "reconcile_period_comes_from_the_annotation_the_entry_or_the_flag";
    "--sync-period": "1h", DURATION
        => "sync_period_reconciles_native_resources_that_nothing_changes";
    "--namespace-selector": "team=a", Wrong::Usage("team:a", "not a label selector, such as team=a")
        => "only_namespaces_with_the_label_are_reconciled_while_they_have_it";
    "--graceful-shutdown-timeout": "1s", DURATION
        => "checks_metrics_and_tasks_of_an_operator_are_run_by_its_manager";
    "--max-concurrent-reconciles": "77", Wrong::Usage("0", "expected a whole number of at least 1")
        => "number_of_concurrent_reconciles_is_limited_by_the_entry_or_the_flag";
    "--max-share": "30%", Wrong::Usage("0%", "expected a percentage from 1% to 100%")
        => "one_namespace_does_not_hold_up_others_beyond_its_share";
    "--limit-memory": "1Gi",
        Wrong::Usage("5M", "expected a size of at least 1Mi, such as 512Mi or 1Gi") => LIMITS;
    "--limit-time": "1m", DURATION => LIMITS;
    "--metrics-bind-address": ":1",
        Wrong::AtStart("wrong_names_end_the_process_at_the_start_and_are_named")
        => "checks_metrics_and_tasks_of_an_operator_are_run_by_its_manager";
    "--metrics-addr": ":1", Wrong::AtStart("wrong_names_end_the_process_at_the_start_and_are_named")
        => "flags_of_the_go_operators_are_accepted_with_one_or_two_dashes";
    "--health-probe-bind-address": ":1",
        Wrong::AtStart("wrong_names_end_the_process_at_the_start_and_are_named")
        => "checks_metrics_and_tasks_of_an_operator_are_run_by_its_manager";
    "--webhook-bind-address": ":1",
        Wrong::AtStart("address_that_cannot_be_bound_is_named_with_the_flag")
        => "api_server_reaches_webhooks_through_a_service_or_a_url";
    "--webhook-service-name": "hooks", Wrong::Usage("Hooks", "not the name of a Service")
        => "api_server_reaches_webhooks_through_a_service_or_a_url";
    "--webhook-url": "https://example.com",
        Wrong::Usage("http://example.com", "not an https URL without a path")
        => "api_server_reaches_webhooks_through_a_service_or_a_url";
    "--webhook-cert-dir": "/certs", Wrong::AtStart("certificate_for_another_key_is_refused")
        => "certificate_of_a_directory_is_served_and_its_bundle_left_to_others";
    "--webhook-inject-ca-from": "certs/webhooks", Wrong::Usage("webhooks", "not NAMESPACE/NAME")
        => "certificate_of_a_directory_is_served_and_its_bundle_left_to_others";
    "--leader-elect": "true", BOOLEAN => "second_replica_takes_over_when_the_leader_exits";
    "--enable-leader-election": "true", BOOLEAN
        => "second_replica_takes_over_when_the_leader_exits";
    "--leader-election-mode": "for-life", Wrong::Usage("often", "possible values: lease, for-life")
        => "a_leader_for_life_leads_until_its_pod_is_gone";
    "--leader-election-id": "other-operator",
        Wrong::Usage("Not A Name", "not the name of an operator")
        => "second_replica_takes_over_when_the_leader_exits";
    "--leader-election-namespace": "leases", Wrong::Usage("a,b", "not the name of a namespace")
        => "an_expensive_chart_holds_up_neither_the_lease_nor_probes_nor_other_resources";
    "--shards": "4", Wrong::Usage("1", "expected a number of shards from 2 to 64")
        => "replicas_share_the_namespaces_and_take_over_from_one_that_dies_or_hangs";
    "--shard-id": "1", Wrong::Usage("first", "expected auto, or the number of a shard, from 0")
        => "replicas_that_ask_for_a_shard_of_their_own_get_it";
    "--shard-ring": "plots", Wrong::Usage("Plots", "not the name of a ControllerRing")
        => "members_of_a_ring_serve_what_its_sharder_assigns_to_them";
    "--kubeconfig": "/kubeconfig",
        Wrong::AtStart("wrong_names_end_the_process_at_the_start_and_are_named")
        => "operator_waits_for_the_api_server_and_resumes_when_it_returns";
    "--yes": "true", BOOLEAN
        => "an_operator_outside_of_a_pod_asks_before_it_changes_a_cluster_elsewhere";
    "--suppress-override-values": "false", BOOLEAN
        => "event_about_overridden_values_shows_them_only_on_request_and_never_the_environment";
    "--ui-bind-address": "127.0.0.1:8082",
        Wrong::Usage(":8082", "not an address of the loopback interface")
        => "page_follows_releases_without_requests_of_its_own";
    "--status-manifest": "false", BOOLEAN
        => "manifest_is_left_out_of_the_status_and_removed_from_it_on_request";
    "--zap-log-level": "debug", Wrong::Usage("loud", "debug, info, warn")
        => "levels_are_those_of_zap_and_others_are_refused";
    "--zap-encoder": "console", Wrong::Usage("xml", "json or console")
        => "console_lines_are_separated_by_tabs";
    "--zap-devel": "true", BOOLEAN => "flags_about_logs_override_the_defaults_of_development";
    "--zap-stacktrace-level": "panic", Wrong::Usage("2", "warn, error or panic")
        => "json_lines_have_the_fields_of_zap_in_its_order";
    "--zap-time-encoding": "iso8601", Wrong::Usage("unix", "iso8601")
        => "times_are_encoded_as_the_flag_says";
    "--enable-http2": "true", BOOLEAN
        => "flags_of_the_go_operators_are_accepted_with_one_or_two_dashes";
    "--metrics-secure": "true", BOOLEAN => "metrics_over_tls_are_for_those_who_may_get_them";
    "--metrics-require-rbac": "true", BOOLEAN => "metrics_over_tls_are_for_those_who_may_get_them";
    "--metrics-cert-path": "/certs",
        Wrong::AtStart("renewed_files_are_served_and_broken_ones_are_not")
        => "renewed_files_are_served_and_broken_ones_are_not";
    "--metrics-cert-name": "other.crt",
        Wrong::AtStart("renewed_files_are_served_and_broken_ones_are_not")
        => "renewed_files_are_served_and_broken_ones_are_not";
    "--metrics-cert-key": "other.key",
        Wrong::AtStart("renewed_files_are_served_and_broken_ones_are_not")
        => "renewed_files_are_served_and_broken_ones_are_not";
};

/// A program that cannot send traces ignores the variables, whatever they are.
const NO_URL: (Wrong, Wrong) = if cfg!(feature = "otlp") {
    (
        Wrong::Options(
            "ftp://collector",
            "$OTEL_EXPORTER_OTLP_ENDPOINT: \"ftp://collector\" is not an http or https URL",
        ),
        Wrong::Options(
            "collector",
            "$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: \"collector\" is not an http or https URL",
        ),
    )
} else {
    (Wrong::None, Wrong::None)
};

const VARIABLES: &[Row] = rows! {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", NO_URL.0
        => "endpoints_of_traces_come_from_the_flag_or_a_variable";
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces", NO_URL.1
        => "endpoints_of_traces_come_from_the_flag_or_a_variable";
    "CHART_CACHE": "/cache", Wrong::None => CACHED;
    "WATCH_NAMESPACE": "a,b",
        Wrong::Options("a,B b", "$WATCH_NAMESPACE: \"B b\" is not the name of a namespace")
        => "two_namespaces_are_watched_and_a_third_is_not";
    "POD_NAMESPACE": "system",
        Wrong::Options("a/b", "$POD_NAMESPACE: \"a/b\" is not the name of a namespace")
        => "second_replica_takes_over_when_the_leader_exits";
    "OPERATOR_NAME": "memcached-operator",
        Wrong::Options("My Operator", "$OPERATOR_NAME: \"My Operator\" is not the name of an operator")
        => "two_operators_do_not_overwrite_each_others_changes";
    "POD_NAME": "pod-1", Wrong::Options("Pod 1", "$POD_NAME: \"Pod 1\" is not the name of a Pod")
        => "a_leader_for_life_leads_until_its_pod_is_gone";
    "POD_UID": "2c8e", Wrong::Options("no uid", "$POD_UID: \"no uid\" is not the UID of a Pod")
        => "flags_of_the_go_operators_are_accepted_with_one_or_two_dashes";
    "HOSTNAME": "host", Wrong::None => "environment_variables_name_the_process_and_its_pod";
    "KUBERNETES_SERVICE_HOST": "10.0.0.1", Wrong::None
        => "api_server_reaches_webhooks_through_a_service_or_a_url";
};

/// Descriptions of environment variables in the reference.
const DOCUMENTED_VARIABLES: &[(&str, &str)] = &[
    (
        "WATCH_NAMESPACE",
        "Namespaces to watch, separated by commas; empty or absent means all. See [namespaces](#namespaces-and-cluster-scoped-kinds).",
    ),
    (
        "POD_NAMESPACE",
        "Namespace of the operator: of its lease, and of the releases of cluster-scoped custom resources. In a Pod, the namespace of its service account stands in for it.",
    ),
    (
        "POD_NAME",
        "Name of the Pod. It marks the records that this process writes, so that its restarted container continues them at once.",
    ),
    ("POD_UID", "UID of the Pod, for the same purpose."),
    (
        "HOSTNAME",
        "Stands in for `POD_NAME`, which it is in a Pod.",
    ),
    (
        "OPERATOR_NAME",
        "Name of the operator, and of its lease if `--leader-election-id` is not given. Operators with different names share a cluster.",
    ),
    (
        "CHART_CACHE",
        "Directory in which fetched charts are kept, if `--chart-cache` is not given. See [charts](../guides/charts.md#the-cache).",
    ),
    (
        "KUBERNETES_SERVICE_HOST",
        "Set in every Pod: the API server reaches webhooks through a Service.",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "URL to which [traces](#traces) are sent, if `--otlp-endpoint` is not given. Without the feature `otlp` it is ignored, and the log says so.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "The same, with the whole path; it takes precedence over `OTEL_EXPORTER_OTLP_ENDPOINT`.",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "Headers of the requests with traces, as in `authorization=Bearer%20TOKEN`, or `OTEL_EXPORTER_OTLP_TRACES_HEADERS`.",
    ),
    (
        "OTEL_SERVICE_NAME",
        "Name of the service in traces, if it is not `OPERATOR_NAME`.",
    ),
    (
        "OTEL_RESOURCE_ATTRIBUTES",
        "Further attributes of the service in traces, as in `deployment.environment.name=test`.",
    ),
    (
        "KUBECONFIG",
        "Path of the kubeconfig, if `--kubeconfig` is not given.",
    ),
    (
        "RUST_LOG",
        "Filter of the log by module, as in `hybrid_operator=debug`; takes the place of `--zap-log-level`.",
    ),
];

/// Environment variables that libraries read, and not through the options.
const READ_BY_LIBRARIES: &[&str] = &[
    "KUBECONFIG",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SERVICE_NAME",
    "RUST_LOG",
];

fn parse(args: &[&str]) -> Result<RunArgs, clap::Error> {
    let args = ["run"].iter().chain(args).map(OsString::from);
    RunArgs::try_parse_from(double_dashes(args))
}

fn options(args: &[&str], env: &[(&str, &str)]) -> Options {
    parse(args).unwrap().options(|name| {
        let known = env.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| (*value).to_owned())
    })
}

/// Returns the other flags that `flag` needs.
fn needed(flag: &str) -> &'static [&'static str] {
    match flag {
        "--webhook-inject-ca-from" => &["--webhook-cert-dir=/certs"],
        "--shard-id" => &["--shards=4"],
        "--metrics-cert-name" | "--metrics-cert-key" => &["--metrics-cert-path=/certs"],
        _ => &[],
    }
}

/// The flags that the command line knows, with their aliases.
fn parsed_flags() -> BTreeSet<String> {
    let command = RunArgs::command();
    let names = command.get_arguments().flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases)
    });
    names.map(|name| format!("--{name}")).collect()
}

/// The environment variables that the options ask for.
fn read_variables() -> BTreeSet<String> {
    let asked = RefCell::new(BTreeSet::new());
    parse(&[]).unwrap().options(|name| {
        asked.borrow_mut().insert(name.to_owned());
        None
    });
    asked.into_inner()
}

fn set(rows: &[Row]) -> BTreeSet<String> {
    rows.iter().map(|row| row.name.to_owned()).collect()
}

/// Returns the default that a help text names, and the rest of the text.
fn default_of(help: &str) -> (&str, &str) {
    let default = help.rsplit_once(" [default: ");
    default.map_or(("", help), |(text, default)| {
        (default.trim_end_matches(['.', ']']), text)
    })
}

fn sentence(text: &str) -> String {
    let text = reference::coded(text.trim_end_matches('.'));
    format!("{text}.")
}

/// Returns the row of a flag in the reference.
fn documented_flag(flag: &clap::Arg) -> Vec<String> {
    let aliases = flag.get_all_aliases().unwrap_or_default();
    let names = flag.get_long().into_iter().chain(aliases);
    let names: Vec<String> = names.map(|name| format!("`--{name}`")).collect();
    let help = flag.get_long_help().or(flag.get_help()).unwrap_or_default();
    let help = help.to_string();
    let (default, help) = default_of(&help);
    let mut text = sentence(help);
    let choices = flag.get_possible_values();
    for choice in choices.iter().filter(|choice| choice.get_help().is_some()) {
        let help = choice.get_help().unwrap_or_default().to_string();
        let _ = write!(text, " `{}`: {}", choice.get_name(), sentence(&help));
    }
    let values = flag.get_default_values().iter();
    let values: Vec<String> = values
        .map(|value| format!("`{}`", value.display()))
        .collect();
    let default = match values.as_slice() {
        [] => reference::coded(default),
        values => values.join(", "),
    };
    vec![names.join(" or "), default, text]
}

#[test]
fn the_pages_about_flags_and_variables_are_up_to_date() {
    let command = RunArgs::command();
    let mut flags: Vec<Vec<String>> = command.get_arguments().map(documented_flag).collect();
    flags.sort();
    let text = format!(
        "The flags of `run`. One dash or two are accepted, and a boolean flag needs no value: `--leader-elect` \
         is `--leader-elect=true`.\n\n{}",
        reference::table(&["flag", "default", "meaning"], flags)
    );
    reference::assert_generated("run.md", "Flags", &text);
    let rows = DOCUMENTED_VARIABLES
        .iter()
        .map(|(name, meaning)| vec![format!("`{name}`"), (*meaning).to_owned()]);
    let text = format!(
        "The environment variables that `run` reads. Templates and `overrideValues` of the \
         [watches file](../guides/watches.md#templates) can read all others, too.\n\n{}",
        reference::table(&["variable", "meaning"], rows)
    );
    reference::assert_generated("run.md", "Environment variables", &text);
}

#[test]
fn the_table_the_code_and_the_documentation_have_the_same_flags_and_variables() {
    let flags = parsed_flags();
    assert_eq!(flags, set(FLAGS));
    let variables = read_variables();
    assert_eq!(variables, set(VARIABLES));
    let documented = DOCUMENTED_VARIABLES
        .iter()
        .filter(|(name, _)| !READ_BY_LIBRARIES.contains(name));
    let documented: BTreeSet<_> = documented.map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(documented, variables);
    let rows = FLAGS.iter().chain(VARIABLES);
    reference::assert_tests_exist(rows.flat_map(|row| {
        let at_start = match row.wrong {
            Wrong::AtStart(test) => Some(test),
            _ => None,
        };
        at_start.into_iter().chain([row.shown_by])
    }));
}

#[test]
fn the_flag_goes_before_the_variable_and_an_empty_variable_is_absent() {
    for (args, variable, expected) in [
        (&["--chart-cache=/flag"][..], "/variable", Some("/flag")),
        (&[], "/variable", Some("/variable")),
        (&[], "", None),
    ] {
        let options = options(args, &[("CHART_CACHE", variable)]);
        let charts = options.extensions.get::<ChartOptions>().unwrap();
        assert_eq!(charts.chart_cache.as_deref(), expected.map(Path::new));
    }
}

/// Returns all settings as a text.
fn shown(options: &Options) -> String {
    let charts = options.extensions.get::<ChartOptions>().unwrap();
    format!("{options:?} {charts:?}")
}

#[test]
fn each_flag_changes_the_options_and_its_wrong_value_is_refused_with_the_form_that_is_wanted() {
    for row in FLAGS {
        let set = |value: &str| {
            let flag = format!("{}={value}", row.name);
            let mut args = vec![flag.as_str()];
            args.extend(needed(row.name));
            parse(&args)
        };
        let flag = format!("{}={}", row.name, row.right);
        let mut args = vec![flag.as_str()];
        args.extend(needed(row.name));
        let changed = shown(&options(&args, &[]));
        let unchanged = shown(&options(needed(row.name), &[]));
        assert!(changed != unchanged, "{} has no effect", row.name);
        if let Wrong::Usage(value, wanted) = row.wrong {
            let refused = set(value).unwrap_err();
            assert_eq!(refused.exit_code(), 2);
            let text = refused.to_string();
            // clap names the flag, also for an alias.
            assert!(text.contains(wanted) && text.contains("--"), "{text}");
            assert!(text.contains(value), "{text}");
        }
    }
}

#[test]
fn each_variable_changes_the_options_and_its_wrong_value_is_refused_with_its_name() {
    for row in VARIABLES {
        let env = [(row.name, row.right)];
        let changed = shown(&options(&[], &env));
        assert_ne!(changed, shown(&options(&[], &[])), "{}", row.name);
        options(&[], &env).validate().unwrap();
        if let Wrong::Options(value, wanted) = row.wrong {
            let env = [(row.name, value), ("POD_NAME", "pod")];
            let refused = options(&[], &env).validate().unwrap_err().to_string();
            assert!(refused.starts_with(wanted), "{refused}");
        }
    }
}

#[test]
fn environment_variables_name_the_process_and_its_pod() {
    for (env, instance) in [
        (&[("HOSTNAME", "host")][..], "host"),
        (&[("HOSTNAME", "host"), ("POD_NAME", "pod")], "pod"),
        (&[("POD_NAME", "pod"), ("POD_UID", "u")], "pod_u"),
        (&[("HOSTNAME", "host"), ("POD_UID", "u")], "host_u"),
    ] {
        assert_eq!(options(&[], env).instance, instance, "{env:?}");
    }
}
