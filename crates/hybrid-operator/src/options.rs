//! The flags and environment of `run`, as the Go operators have them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::client::Deadlines;
use crate::leader::LeaseOptions;
use crate::manager::ManagerError;
use crate::telemetry::logs::{Encoder, LogOptions};

/// What an operator is told at its start.
#[derive(Debug, Clone)]
pub struct Options {
    /// The watches file.
    pub watches_file: PathBuf,
    /// Time between two looks at an unchanged custom resource; zero means never.
    pub reconcile_period: Duration,
    /// How many custom resources of a kind are worked on at once.
    pub max_concurrent_reconciles: usize,
    /// Address of `/metrics`; `0` for none.
    pub metrics_bind_address: String,
    /// Address of `/healthz` and `/readyz`; `0` for none.
    pub health_probe_bind_address: String,
    /// Whether replicas elect a leader.
    pub leader_elect: bool,
    /// Namespace of the leader's lease.
    pub leader_election_namespace: Option<String>,
    /// The kubeconfig to use.
    pub kubeconfig: Option<PathBuf>,
    /// Whether events about overridden values leave the values out.
    pub suppress_override_values: bool,
    /// Namespaces that are watched; all when empty. From `$WATCH_NAMESPACE`.
    pub watch_namespaces: Vec<String>,
    /// Namespace of the operator. From `$POD_NAMESPACE`.
    pub operator_namespace: Option<String>,
    /// Name of the operator and of its lease.
    pub operator_name: String,
    /// Name of this process among its replicas.
    pub instance: String,
    /// How long the API server may take to answer.
    pub deadlines: Deadlines,
    /// How logs look.
    pub logs: LogOptions,
}

/// The flags of `run`.
#[derive(Parser, Debug, Clone)]
#[command(rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct RunArgs {
    /// The file that binds kinds to charts.
    #[arg(long, default_value = "./watches.yaml", value_name = "FILE")]
    pub watches_file: PathBuf,
    /// Time between two looks at an unchanged custom resource (0 = never).
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = crate::duration::parse)]
    pub reconcile_period: Duration,
    /// How many custom resources of a kind are worked on at once [default: number of CPUs].
    #[arg(long, value_name = "N")]
    pub max_concurrent_reconciles: Option<usize>,
    /// Address of /metrics (0 = none).
    #[arg(
        long,
        alias = "metrics-addr",
        default_value = ":8080",
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: String,
    /// Address of /healthz and /readyz (0 = none).
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub health_probe_bind_address: String,
    /// Let replicas elect a leader, of which there is one.
    #[arg(long, alias = "enable-leader-election", num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Name of the leader's lease [default: $`OPERATOR_NAME`].
    #[arg(long, value_name = "NAME")]
    pub leader_election_id: Option<String>,
    /// Namespace of the leader's lease [default: $`POD_NAMESPACE`].
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// The kubeconfig to use [default: $KUBECONFIG, else the Pod's service account].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Leave overriding values out of events.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub suppress_override_values: bool,
    /// debug, info, error, or a number: the higher the more.
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    pub zap_log_level: String,
    /// json or console.
    #[arg(long, default_value = "json", value_name = "FORM")]
    pub zap_encoder: String,
    /// Logs for developers: console, debug.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub zap_devel: bool,
    /// Accepted for the sake of existing manifests.
    #[arg(long, hide = true)]
    pub zap_stacktrace_level: Option<String>,
    /// Accepted for the sake of existing manifests.
    #[arg(long, hide = true)]
    pub zap_time_encoding: Option<String>,
    /// Accepted for the sake of existing manifests.
    #[arg(long, hide = true, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub enable_http2: bool,
    /// Accepted for the sake of existing manifests.
    #[arg(long, hide = true, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub metrics_secure: bool,
    /// Accepted for the sake of existing manifests.
    #[arg(long, hide = true, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub metrics_require_rbac: bool,
}

/// Turns Go's `-flag` into `--flag`.
pub fn double_dashes(args: impl IntoIterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    args.into_iter().map(|arg| match arg.to_str() {
        Some(text) if text.len() > 2 && text.starts_with('-') && !text.starts_with("--") => {
            let mut double = OsString::from("-");
            double.push(&arg);
            double
        }
        _ => arg,
    })
}

impl RunArgs {
    /// The options that these flags and the environment mean.
    pub fn options(self, env: impl Fn(&str) -> Option<String>) -> Options {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let operator_name = self
            .leader_election_id
            .or_else(|| env("OPERATOR_NAME"))
            .unwrap_or_else(|| "hybrid-operator".to_owned());
        // A Pod's name survives the restart of its container, its uid the reuse of its name.
        let host = || {
            env("HOSTNAME")
                .or_else(hostname)
                .unwrap_or_else(|| "localhost".to_owned())
        };
        let instance = match (env("POD_NAME"), env("POD_UID")) {
            (Some(name), Some(uid)) => format!("{name}_{uid}"),
            (Some(name), None) => name,
            (None, _) => host(),
        };
        let namespaces = env("WATCH_NAMESPACE").unwrap_or_default();
        let operator_namespace = env("POD_NAMESPACE");
        Options {
            watches_file: self.watches_file,
            reconcile_period: self.reconcile_period,
            max_concurrent_reconciles: self
                .max_concurrent_reconciles
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            metrics_bind_address: self.metrics_bind_address,
            health_probe_bind_address: self.health_probe_bind_address,
            leader_elect: self.leader_elect,
            leader_election_namespace: self
                .leader_election_namespace
                .or_else(|| operator_namespace.clone()),
            kubeconfig: self.kubeconfig,
            suppress_override_values: self.suppress_override_values,
            watch_namespaces: namespaces
                .split(',')
                .map(|namespace| namespace.trim().to_owned())
                .filter(|namespace| !namespace.is_empty())
                .collect(),
            operator_namespace,
            operator_name,
            instance,
            deadlines: Deadlines::default(),
            logs: LogOptions {
                level: if self.zap_devel {
                    "debug".to_owned()
                } else {
                    self.zap_log_level
                },
                encoder: if self.zap_devel || self.zap_encoder == "console" {
                    Encoder::Console
                } else {
                    Encoder::Json
                },
            },
        }
    }
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

impl Options {
    /// The lease to elect a leader by, if one is to be elected.
    pub(crate) fn lease(&self) -> Result<Option<LeaseOptions>, ManagerError> {
        if !self.leader_elect {
            return Ok(None);
        }
        let namespace = self
            .leader_election_namespace
            .as_deref()
            .ok_or(ManagerError::NoLeaseNamespace)?;
        // Two processes of one Pod name would both be the leader.
        let mut noise = [0_u8; 4];
        let _ = getrandom::fill(&mut noise);
        let identity = format!("{}_{:08x}", self.instance, u32::from_ne_bytes(noise));
        Ok(Some(LeaseOptions::new(
            namespace,
            &self.operator_name,
            &identity,
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use clap::Parser;

    use super::{Options, RunArgs, double_dashes};

    fn options(args: &[&str], env: &[(&str, &str)]) -> Options {
        let args = ["run"].iter().chain(args).map(OsString::from);
        let args = RunArgs::try_parse_from(double_dashes(args)).unwrap();
        args.options(|name| {
            env.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn flags_of_the_go_operators_are_understood_in_both_spellings() {
        let options = options(
            &[
                "-reconcile-period=5s",
                "--leader-elect",
                "-leader-election-id",
                "op",
                "--metrics-addr=:1",
                "--enable-http2=false",
                "--zap-devel",
            ],
            &[
                ("WATCH_NAMESPACE", "a, b"),
                ("POD_NAMESPACE", "ns"),
                ("POD_NAME", "p"),
                ("POD_UID", "u"),
            ],
        );
        assert_eq!(options.reconcile_period, Duration::from_secs(5));
        assert!(options.leader_elect);
        assert_eq!(options.operator_name, "op");
        assert_eq!(options.leader_election_namespace.as_deref(), Some("ns"));
        assert_eq!(options.metrics_bind_address, ":1");
        assert_eq!(options.watch_namespaces, ["a", "b"]);
        assert_eq!(options.instance, "p_u");
        assert_eq!(options.logs.level, "debug");
    }

    #[test]
    fn without_flags_there_are_the_defaults() {
        let options = options(
            &[],
            &[
                ("WATCH_NAMESPACE", ""),
                ("OPERATOR_NAME", "memcached-operator"),
            ],
        );
        assert_eq!(options.reconcile_period, Duration::from_mins(1));
        assert_eq!(options.metrics_bind_address, ":8080");
        assert_eq!(options.operator_name, "memcached-operator");
        assert!(options.watch_namespaces.is_empty() && !options.leader_elect);
        assert!(options.lease().unwrap().is_none());
    }
}
