//! The memcached operator: the charts of `watches.yaml` and the controller of `MemcachedBackup` in
//! one manager. See `crates/hybrid-operator/src/helm/mod.rs` for how charts are run.

use std::process::ExitCode;

use hybrid_operator::operator::Operator;
use memcached_operator::controllers::memcached_backup;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about("Runs memcached on Kubernetes: a chart and a Rust controller in one manager")
        .with_charts()
        .with(memcached_backup::controller())
        .main()
}
