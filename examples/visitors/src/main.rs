//! The operator of `VisitorsApp`.

use std::process::ExitCode;

use hybrid_operator::operator::Operator;
use visitors::controller::controller;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .with(controller())
        .main()
}
