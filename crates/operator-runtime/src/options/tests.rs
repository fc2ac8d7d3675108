//! Tests of the options of `run`, from flags and the environment.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::{Options, ProcessArgs, double_dashes, with_pod_namespace};
use crate::telemetry::logs::{Encoder, LogOptions};

fn options(args: &[&str], env: &[(&str, &str)]) -> Options {
    let args = ["run"].iter().chain(args).map(OsString::from);
    let args = ProcessArgs::try_parse_from(double_dashes(args)).unwrap();
    args.options(|name| {
        env.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn flags_of_the_go_operators_are_accepted_with_one_or_two_dashes() {
    let flags = "-sync-period=5s --leader-elect -leader-election-id op --metrics-addr=:1 \
        --enable-http2=false --zap-devel";
    let flags: Vec<&str> = flags.split(' ').collect();
    let pod = [("POD_NAMESPACE", "ns"), ("POD_NAME", "p"), ("POD_UID", "u")];
    let env = [&pod[..], &[("WATCH_NAMESPACE", "a, b")]].concat();
    let options = options(&flags, &env);
    assert_eq!(options.sync_period, Some(Duration::from_secs(5)));
    assert!(options.leader_elect);
    assert_eq!(options.operator_name, "op");
    assert_eq!(options.leader_election_namespace.as_deref(), Some("ns"));
    assert_eq!(options.metrics_bind_address, ":1");
    assert_eq!(options.watch_namespaces, ["a", "b"]);
    assert_eq!(options.instance, "p_u");
    assert_eq!(options.logs, LogOptions::development());
}

#[test]
fn namespace_of_the_service_account_stands_in_for_pod_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("namespace");
    let of = |name: &str, value: Option<&str>| {
        with_pod_namespace(name, value.map(ToOwned::to_owned), &file)
    };
    assert_eq!(of("POD_NAMESPACE", None), None, "outside of a cluster");
    std::fs::write(&file, "operators\n").unwrap();
    for (name, value, expected) in [
        ("POD_NAMESPACE", None, Some("operators")),
        ("POD_NAMESPACE", Some(""), Some("operators")),
        ("POD_NAMESPACE", Some("mine"), Some("mine")),
        ("POD_NAME", None, None),
    ] {
        assert_eq!(of(name, value).as_deref(), expected, "{name} {value:?}");
    }
}

#[test]
fn options_that_cannot_hold_are_refused() {
    let refused = |flags: &[&str]| options(flags, &[]).validate().map_err(|e| e.to_string());
    assert_eq!(refused(&[]), Ok(()));
    for (flags, text) in [
        (&["--leader-elect"][..], "$POD_NAMESPACE"),
        (&["--metrics-require-rbac"], "needs --metrics-secure"),
    ] {
        let error = refused(flags).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn flags_about_logs_override_the_defaults_of_development() {
    let flags = ["--zap-devel", "--zap-encoder=json", "--zap-log-level=info"];
    let logs = options(&flags, &[]).logs;
    let expected = LogOptions {
        level: LogOptions::default().level,
        encoder: Encoder::Json,
        ..LogOptions::development()
    };
    assert_eq!(logs, expected);
}

#[test]
fn unknown_values_of_flags_about_logs_are_refused() {
    for (flag, known) in [
        ("--zap-log-level=loud", "debug, info, warn"),
        ("--zap-encoder=xml", "json or console"),
        ("--zap-time-encoding=unix", "iso8601"),
        ("--zap-stacktrace-level=2", "warn, error or panic"),
    ] {
        let refused = ProcessArgs::try_parse_from(["run", flag]).unwrap_err();
        assert!(refused.to_string().contains(known), "{refused}");
    }
}

#[test]
fn defaults_apply_without_flags() {
    let name = ("OPERATOR_NAME", "memcached-operator");
    let options = options(&[], &[("WATCH_NAMESPACE", ""), name]);
    assert_eq!(options.sync_period, None);
    assert_eq!(options.metrics_bind_address, ":8080");
    assert_eq!(options.operator_name, "memcached-operator");
    assert!(options.watch_namespaces.is_empty() && !options.leader_elect);
    assert!(options.lease().unwrap().is_none());
}
