//! The program of memcached-operator: what runs in its manager.

use std::process::ExitCode;

use hybrid_operator::operator::Operator;
use memcached_operator::controllers::memcached_backup;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .with_charts()
        .with(memcached_backup::controller())
        .main()
}
