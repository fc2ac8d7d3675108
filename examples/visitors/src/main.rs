//! The operator of `VisitorsApp`.

use std::process::ExitCode;

use hybrid_operator::operator::Operator;
use hybrid_operator::telemetry::Jemalloc;
use visitors::controller::controller;

/// Takes samples for profiles of the heap.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .with(controller())
        .main()
}
