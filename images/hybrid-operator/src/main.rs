//! The program of the base image: `hybrid-operator run` without the other commands.

use std::process::ExitCode;

use hybrid_operator::operator::Operator;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about("Runs Helm charts as operators")
        .with_charts()
        .main()
}
