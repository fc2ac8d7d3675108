//! Flags and environment variables of `run`, with the names and defaults of the Go operators.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use crate::controller::WorkerOptions;
use crate::leader::{LeaseOptions, LockOptions, ShardOptions};
use crate::ring::Ring;
use crate::telemetry::logs::{Encoder, LogLevel, LogOptions, TimeEncoding};
use crate::telemetry::traces::AVAILABLE;

mod forms;
mod loopback;
mod profiling;
mod traces;

pub use crate::leader::ShardId;
pub use crate::webhook::WebhookOptions;
pub use kube_objects::client::Deadlines;
pub use loopback::loopback;
pub use traces::{OtlpEndpoint, OtlpSource};

/// The settings of an operator process.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Options {
    /// Maximum number of concurrent reconciles per kind.
    pub max_concurrent_reconciles: usize,
    /// Largest part of these, in percent, that one namespace has while others wait.
    pub max_share: u8,
    /// Address of `/metrics`; `0` disables it.
    pub metrics_bind_address: String,
    /// Whether `/metrics` is served over TLS.
    pub metrics_secure: bool,
    /// Whether clients of `/metrics` need a token whose user may `get` the path `/metrics`.
    pub metrics_require_rbac: bool,
    /// Certificate of `/metrics`; `None` means one that the process makes and signs itself.
    pub metrics_certificate: Option<CertificateFiles>,
    /// Whether webhooks and metrics are also served over HTTP/2, if they are served over TLS.
    pub enable_http2: bool,
    /// Address of `/healthz` and `/readyz`; `0` disables them.
    pub health_probe_bind_address: String,
    /// Address of profiles, which is one of the loopback interface; `0` disables them.
    pub profiling_bind_address: String,
    /// Whether leader election is enabled.
    pub leader_elect: bool,
    /// Mode of leader election.
    pub leader_election_mode: LeaderElectionMode,
    /// Namespace of the leader election lease.
    pub leader_election_namespace: Option<String>,
    /// Ranges of namespaces that the replicas share; `None` means that the leader has all.
    pub shards: Option<ShardRanges>,
    /// Ring of controllers whose sharder assigns custom resources to the replicas.
    pub ring: Option<Ring>,
    /// Path of the kubeconfig; `None` means `$KUBECONFIG`, else ~/.kube/config, else the Pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Whether a program that asks before it changes a cluster elsewhere does not.
    pub assume_yes: bool,
    /// Namespaces to watch; empty means all. From `$WATCH_NAMESPACE`.
    pub watch_namespaces: Vec<String>,
    /// Label selector of the namespaces whose custom resources are reconciled.
    pub namespace_selector: Option<String>,
    /// Time between two reconciles of an unchanged custom resource of a native controller; `None`
    /// means never.
    pub sync_period: Option<Duration>,
    /// Longest time that reconciles in progress hold up the exit.
    pub graceful_shutdown_timeout: Duration,
    /// Namespace of the operator. From `$POD_NAMESPACE`.
    pub operator_namespace: Option<String>,
    /// Name of the operator and of its leader election lease.
    pub operator_name: String,
    /// Name of this process, unique among its replicas.
    pub instance: String,
    /// Name of the Pod, if the process runs in one. From `$POD_NAME`.
    pub pod: Option<String>,
    /// UID of the Pod. From `$POD_UID`.
    pub pod_uid: Option<String>,
    /// Time limits of requests to the API server.
    pub deadlines: Deadlines,
    /// Options of webhooks: where they are served, and how the API server reaches them.
    pub webhooks: WebhookOptions,
    /// Level and format of logs.
    pub logs: LogOptions,
    /// Endpoint for traces of releases; `None` disables them. From `$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
    /// `$OTEL_EXPORTER_OTLP_ENDPOINT` if the flag is not given.
    pub otlp_endpoint: Option<OtlpEndpoint>,
    /// Settings of controllers of other crates, see
    /// [`ControllerContext::settings`](crate::manager::ControllerContext::settings).
    pub extensions: http::Extensions,
}

/// Files with a certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, with the certificates of its issuers.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Ranges of the hash of namespaces, which the replicas of an operator share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardRanges {
    /// Number of ranges.
    pub count: u32,
    /// First range of this replica.
    pub id: ShardId,
}

/// Mode of leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LeaderElectionMode {
    /// By a lease that the leader renews: another replica takes over within 15 s.
    #[default]
    Lease,
    /// By a `ConfigMap` that the leader's Pod owns: the leader stays until its Pod is gone.
    ForLife,
}

/// The options contradict each other or lack something.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// Leader election needs a namespace for its lease.
    #[error(
        "leader election needs a namespace for its lease; set --leader-election-namespace or $POD_NAMESPACE (in a Pod, the namespace of its service account is used)"
    )]
    NoLeaseNamespace,
    /// A name or a selector has a wrong form.
    #[error("{name}: {value:?} is not {wanted}")]
    Form {
        /// The flag or environment variable.
        name: &'static str,
        /// Value of the flag or variable.
        value: String,
        /// The form that it must have.
        wanted: &'static str,
    },
    /// There is no range of this number.
    #[error("--shard-id {id} is none of the {count} shards, which are 0 to {}", count - 1)]
    NoSuchShard {
        /// The number.
        id: u32,
        /// Number of ranges.
        count: u32,
    },
    /// Shards are elected by leases.
    #[error(
        "{0} cannot be combined with --leader-election-mode=for-life, because another replica takes over a shard by its lease; use one of them"
    )]
    ShardsForLife(&'static str),
    /// Custom resources are assigned both by ranges and by a sharder.
    #[error(
        "--shards cannot be combined with --shard-ring: ranges assign whole namespaces, and a ring assigns object by object; use one of them"
    )]
    ShardsTwice,
    /// Namespaces are both listed and selected.
    #[error("--namespace-selector cannot be combined with $WATCH_NAMESPACE; use one of them")]
    NamespacesTwice,
    /// A flag needs a feature that the program was built without.
    #[error(
        "{flag}: this program was built without the feature {feature}; build it with `--features hybrid-operator/{feature}`, or leave the flag out"
    )]
    NotBuilt {
        /// The flag.
        flag: &'static str,
        /// The feature of the crate `hybrid-operator`.
        feature: &'static str,
    },
    /// Tokens would be sent in plain text.
    #[error(
        "--metrics-require-rbac needs --metrics-secure, because tokens must not be sent in plain text; set both or neither"
    )]
    InsecureAuthorization,
}

/// File with the namespace of a Pod, which Kubernetes mounts beside the token of its service account.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Returns an environment variable of this process. Without `$POD_NAMESPACE`, which the manifests of
/// the Go operators do not set, the namespace is that of the Pod's service account.
pub fn environment(name: &str) -> Option<String> {
    with_pod_namespace(
        name,
        std::env::var(name).ok(),
        Path::new(POD_NAMESPACE_FILE),
    )
}

fn with_pod_namespace(name: &str, value: Option<String>, file: &Path) -> Option<String> {
    let value = value.filter(|value| !value.is_empty());
    if name != "POD_NAMESPACE" || value.is_some() {
        return value;
    }
    let namespace = std::fs::read_to_string(file).ok()?;
    Some(namespace.trim().to_owned())
}

/// The flags of every operator.
#[derive(Parser, Debug, Clone)]
#[command(rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ProcessArgs {
    /// Reconcile each custom resource of a native controller at least this often, unless the
    /// controller has its own period (0 disables it).
    #[arg(long, default_value = "0", value_name = "DURATION", value_parser = crate::duration::parse)]
    pub sync_period: Duration,
    /// Reconcile only in namespaces that this label selector selects, such as `team=a`; labels may
    /// change at any time.
    #[arg(long, value_name = "SELECTOR", value_parser = forms::selector)]
    pub namespace_selector: Option<String>,
    /// Longest time that reconciles in progress hold up the exit.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = crate::duration::parse)]
    pub graceful_shutdown_timeout: Duration,
    /// Maximum number of concurrent reconciles per kind [default: number of CPUs, at least 2].
    #[arg(long, value_name = "N", value_parser = forms::positive)]
    pub max_concurrent_reconciles: Option<usize>,
    /// Largest part of the concurrent reconciles of a kind that one namespace has while others wait.
    #[arg(long, default_value = "50%", value_name = "PERCENT", value_parser = forms::percent)]
    pub max_share: u8,
    /// Address to serve /metrics on (0 disables it).
    #[arg(
        long,
        alias = "metrics-addr",
        default_value = ":8080",
        value_name = "ADDRESS"
    )]
    pub metrics_bind_address: String,
    /// Address to serve /healthz and /readyz on (0 disables them).
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub health_probe_bind_address: String,
    /// Address of the loopback interface to serve profiles of the heap on, under the paths of Go's
    /// net/http/pprof (0 disables them); needs a program that was built with the feature `profiling`.
    #[arg(long, default_value = "0", value_name = "ADDRESS", value_parser = profiling::form)]
    pub profiling_bind_address: String,
    /// Address to serve webhooks on, if the operator has any.
    #[arg(long, default_value = ":9443", value_name = "ADDRESS")]
    pub webhook_bind_address: String,
    /// Name of the Service through which the API server reaches the webhooks [default: OPERATOR-webhook in a cluster].
    #[arg(long, value_name = "NAME", value_parser = forms::service, conflicts_with = "webhook_url")]
    pub webhook_service_name: Option<String>,
    /// URL under which the API server reaches the webhooks [default: the bind address outside of a cluster].
    #[arg(long, value_name = "URL", value_parser = forms::https_url)]
    pub webhook_url: Option<String>,
    /// Serve webhooks with tls.crt and tls.key in this directory, instead of a certificate of the operator's own.
    #[arg(long, value_name = "DIR")]
    pub webhook_cert_dir: Option<PathBuf>,
    /// Certificate of cert-manager that made the files of --webhook-cert-dir.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = forms::namespaced_name, requires = "webhook_cert_dir")]
    pub webhook_inject_ca_from: Option<String>,
    /// Enable leader election, so that only one of several replicas makes changes.
    #[arg(long, alias = "enable-leader-election", num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Mode of leader election.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub leader_election_mode: LeaderElectionMode,
    /// Name of the leader election lease, and of the operator [default: `$OPERATOR_NAME`].
    #[arg(long, value_name = "NAME", value_parser = forms::operator_name)]
    pub leader_election_id: Option<String>,
    /// Namespace of the leader election lease [default: `$POD_NAMESPACE`].
    #[arg(long, value_name = "NAMESPACE", value_parser = forms::namespace)]
    pub leader_election_namespace: Option<String>,
    /// Number of shards, which the replicas share: each is a range of the hash of namespaces and has a Lease, in place of
    /// that of --leader-elect.
    #[arg(long, value_name = "N", value_parser = forms::shards)]
    pub shards: Option<u32>,
    /// Shard that this replica takes first: a number, or `auto` for any.
    #[arg(long, default_value = "auto", value_name = "ID", value_parser = forms::shard_id, requires = "shards")]
    pub shard_id: ShardId,
    /// `ControllerRing` of kubernetes-controller-sharding that this replica joins: its sharder assigns custom resources to the
    /// replicas, in place of --leader-elect.
    #[arg(long, value_name = "NAME", value_parser = forms::ring)]
    pub shard_ring: Option<String>,
    /// Path of the kubeconfig [default: $KUBECONFIG, else ~/.kube/config, else the Pod's service account].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Do not ask before a cluster that is not of this machine is changed. In a Pod, nobody is asked.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub yes: bool,
    /// Log level: debug, info, warn, error, panic, or a number (higher logs more) [default: info, with --zap-devel debug].
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<LogLevel>,
    /// Log format: json or console [default: json, with --zap-devel console].
    #[arg(long, value_name = "FORMAT")]
    pub zap_encoder: Option<Encoder>,
    /// Format of times in logs: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano [default: rfc3339].
    #[arg(long, value_name = "FORMAT")]
    pub zap_time_encoding: Option<TimeEncoding>,
    /// Level from which log lines tell the place in the code: info, warn, error or panic [default: error, with --zap-devel warn].
    #[arg(long, value_name = "LEVEL", value_parser = LogLevel::of_stacktraces)]
    pub zap_stacktrace_level: Option<LogLevel>,
    /// Development logging: changes the defaults of the other flags about logs.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub zap_devel: bool,
    /// Serve webhooks and, with --metrics-secure, metrics over HTTP/2 as well.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub enable_http2: bool,
    /// Serve /metrics over TLS.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub metrics_secure: bool,
    /// Directory with the certificate and the key of /metrics, which may be replaced at any time [default: a self-signed certificate].
    #[arg(long, value_name = "DIR")]
    pub metrics_cert_path: Option<PathBuf>,
    /// Name of the file with the certificate, in the directory of --metrics-cert-path.
    #[arg(long, default_value = "tls.crt", value_name = "NAME")]
    pub metrics_cert_name: String,
    /// Name of the file with the key, in the directory of --metrics-cert-path.
    #[arg(long, default_value = "tls.key", value_name = "NAME")]
    pub metrics_cert_key: String,
    /// Require a token whose user may get the non-resource URL /metrics; needs --metrics-secure.
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub metrics_require_rbac: bool,
    /// URL to which traces of releases are sent over OTLP, as HTTP with protobuf; needs a program that was
    /// built with the feature `otlp` [default: `$OTEL_EXPORTER_OTLP_ENDPOINT`].
    #[arg(long, value_name = "URL", value_parser = forms::otlp_url)]
    pub otlp_endpoint: Option<String>,
}

/// Converts Go's `-flag` to `--flag`.
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

impl ProcessArgs {
    /// Combines the flags with the environment variables that `env` returns.
    pub fn options(self, env: impl Fn(&str) -> Option<String>) -> Options {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let operator_name = self
            .leader_election_id
            .filter(|name| !name.is_empty())
            .or_else(|| env("OPERATOR_NAME"))
            .unwrap_or_else(|| "hybrid-operator".to_owned());
        // The Pod's name is stable across restarts of its container; the uid distinguishes Pods
        // with the same name.
        let host = || {
            env("HOSTNAME")
                .or_else(hostname)
                .unwrap_or_else(|| "localhost".to_owned())
        };
        let instance = match (env("POD_NAME"), env("POD_UID")) {
            (Some(name), Some(uid)) => format!("{name}_{uid}"),
            (Some(name), None) => name,
            (None, Some(uid)) => format!("{}_{uid}", host()),
            (None, None) => host(),
        };
        let namespaces = env("WATCH_NAMESPACE").unwrap_or_default();
        let operator_namespace = env("POD_NAMESPACE");
        let logs = if self.zap_devel {
            LogOptions::development()
        } else {
            LogOptions::default()
        };
        Options {
            max_concurrent_reconciles: self
                .max_concurrent_reconciles
                .unwrap_or_else(|| WorkerOptions::default().concurrency),
            max_share: self.max_share,
            metrics_bind_address: self.metrics_bind_address,
            metrics_secure: self.metrics_secure,
            metrics_require_rbac: self.metrics_require_rbac,
            metrics_certificate: self
                .metrics_cert_path
                .filter(|directory| !directory.as_os_str().is_empty())
                .map(|directory| CertificateFiles {
                    certificate: directory.join(self.metrics_cert_name),
                    key: directory.join(self.metrics_cert_key),
                }),
            enable_http2: self.enable_http2,
            health_probe_bind_address: self.health_probe_bind_address,
            profiling_bind_address: self.profiling_bind_address,
            leader_elect: self.leader_elect,
            leader_election_mode: self.leader_election_mode,
            leader_election_namespace: self
                .leader_election_namespace
                .filter(|namespace| !namespace.is_empty())
                .or_else(|| operator_namespace.clone()),
            shards: (self.shards).map(|count| ShardRanges {
                count,
                id: self.shard_id,
            }),
            ring: (self.shard_ring).map(|name| Ring {
                name,
                shard: env("POD_NAME").unwrap_or_else(host),
            }),
            kubeconfig: self.kubeconfig,
            assume_yes: self.yes,
            watch_namespaces: namespaces
                .split(',')
                .map(|namespace| namespace.trim().to_owned())
                .filter(|namespace| !namespace.is_empty())
                .collect(),
            namespace_selector: self
                .namespace_selector
                .filter(|selector| !selector.is_empty()),
            sync_period: Some(self.sync_period).filter(|period| !period.is_zero()),
            graceful_shutdown_timeout: self.graceful_shutdown_timeout,
            operator_namespace,
            operator_name,
            instance,
            pod: env("POD_NAME"),
            pod_uid: env("POD_UID"),
            deadlines: Deadlines::default(),
            webhooks: WebhookOptions {
                bind_address: self.webhook_bind_address,
                service_name: self.webhook_service_name,
                url: self.webhook_url,
                certificate_directory: self.webhook_cert_dir,
                inject_ca_from: self.webhook_inject_ca_from,
                http2: self.enable_http2,
                in_cluster: env("KUBERNETES_SERVICE_HOST").is_some(),
            },
            logs: LogOptions {
                level: self.zap_log_level.unwrap_or(logs.level),
                encoder: self.zap_encoder.unwrap_or(logs.encoder),
                time: self.zap_time_encoding.unwrap_or(logs.time),
                stacktrace: self.zap_stacktrace_level.unwrap_or(logs.stacktrace),
            },
            otlp_endpoint: OtlpEndpoint::of(self.otlp_endpoint, env),
            extensions: http::Extensions::new(),
        }
    }
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

impl Options {
    /// Refuses options that contradict each other.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.namespace_selector.is_some() && !self.watch_namespaces.is_empty() {
            return Err(OptionsError::NamespacesTwice);
        }
        if self.metrics_require_rbac && !self.metrics_secure {
            return Err(OptionsError::InsecureAuthorization);
        }
        forms::check(self)?;
        if let Some(endpoint) = &self.otlp_endpoint {
            endpoint.check(AVAILABLE)?;
        }
        self.profiling_address()?;
        self.lease()?;
        self.shards()?;
        self.member()?;
        Ok(())
    }

    /// Returns the lock of leader-for-life, or `None` if the mode is another one or the process does
    /// not run in a Pod.
    pub(crate) fn lock(&self) -> Option<LockOptions> {
        if !self.leader_elect || self.leader_election_mode != LeaderElectionMode::ForLife {
            return None;
        }
        let (Some(pod), Some(namespace)) = (&self.pod, &self.operator_namespace) else {
            tracing::info!("leader-for-life is skipped: $POD_NAME and $POD_NAMESPACE name no Pod");
            return None;
        };
        Some(LockOptions {
            namespace: namespace.clone(),
            name: self.operator_name.clone(),
            pod: pod.clone(),
        })
    }

    /// Returns the settings of the leader election lease, or `None` if there is none.
    pub(crate) fn lease(&self) -> Result<Option<LeaseOptions>, OptionsError> {
        if !self.leader_elect || self.leader_election_mode != LeaderElectionMode::Lease {
            return Ok(None);
        }
        self.lease_options().map(Some)
    }

    /// Returns the settings of the leases of shards, or `None` if there are none.
    pub(crate) fn shards(&self) -> Result<Option<ShardOptions>, OptionsError> {
        let Some(ShardRanges { count, id }) = self.shards else {
            return Ok(None);
        };
        self.refuse_for_life("--shards")?;
        if let ShardId::Index(id) = id
            && id >= count
        {
            return Err(OptionsError::NoSuchShard { id, count });
        }
        let lease = self.lease_options()?;
        Ok(Some(ShardOptions { lease, count, id }))
    }

    /// Returns the settings of the lease of a member of a ring, or `None` without one.
    pub(crate) fn member(&self) -> Result<Option<LeaseOptions>, OptionsError> {
        let Some(ring) = &self.ring else {
            return Ok(None);
        };
        self.refuse_for_life("--shard-ring")?;
        if self.shards.is_some() {
            return Err(OptionsError::ShardsTwice);
        }
        let of = self.lease_options()?;
        let labels = ring.lease_labels();
        Ok(Some(LeaseOptions::of_shard(
            &of.namespace,
            &ring.shard,
            labels,
        )))
    }

    fn refuse_for_life(&self, flag: &'static str) -> Result<(), OptionsError> {
        if self.leader_elect && self.leader_election_mode == LeaderElectionMode::ForLife {
            return Err(OptionsError::ShardsForLife(flag));
        }
        Ok(())
    }

    fn lease_options(&self) -> Result<LeaseOptions, OptionsError> {
        let namespace = self
            .leader_election_namespace
            .as_deref()
            .ok_or(OptionsError::NoLeaseNamespace)?;
        // Two processes with the same Pod name must not both believe that they hold the lease.
        let mut noise = [0_u8; 4];
        let _ = host::fill(&mut noise);
        let identity = format!("{}_{:08x}", self.instance, u32::from_ne_bytes(noise));
        Ok(LeaseOptions::new(namespace, &self.operator_name, &identity))
    }
}

#[cfg(test)]
mod tests;
