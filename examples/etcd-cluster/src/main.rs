//! The operator of `EtcdCluster`.

use std::process::ExitCode;

use etcd_cluster::controller::controller;
use hybrid_operator::operator::Operator;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .with(controller())
        .main()
}
