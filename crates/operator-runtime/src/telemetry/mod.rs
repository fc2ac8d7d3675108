//! Logs, metrics, traces and profiles.

pub(crate) mod exposition;
pub mod logs;
pub mod metrics;
mod process;
pub(crate) mod profiles;
pub(crate) mod queues;
pub mod reloads;
pub mod resources;
pub mod traces;
pub(crate) mod webhooks;
mod zap;

pub use prometheus_client;
/// The allocator that takes samples for profiles of the heap, for `#[global_allocator]` of a program with the
/// feature `profiling`.
#[cfg(feature = "profiling")]
pub use tikv_jemallocator::Jemalloc;
pub use traces::TraceError;

/// The names of all metrics of a manager, as scrapers see them. Histograms have the suffixes
/// `_bucket`, `_count` and `_sum` in addition. Those of the process, `process_*`, exist on Linux.
pub const METRICS: &[&str] = &[
    "controller_runtime_active_workers",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_time_seconds",
    "controller_runtime_reconcile_timeouts_total",
    "controller_runtime_reconcile_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "controller_runtime_webhook_latency_seconds",
    "controller_runtime_webhook_requests_in_flight",
    "controller_runtime_webhook_requests_total",
    "helm_operator_build_info",
    "hybrid_operator_blocked_reconciles_total",
    "hybrid_operator_charts_missing",
    "hybrid_operator_output",
    "hybrid_operator_reload_last_success_timestamp_seconds",
    "hybrid_operator_reload_total",
    "hybrid_operator_rollout_waiting",
    "hybrid_operator_unassigned_custom_resources",
    "hybrid_operator_watch_restarts_total",
    "leader_election_master_status",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "resource_created_at_seconds",
    "rest_client_requests_total",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds",
];
