//! The `hybrid-operator` program: everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    hybrid_operator_cli::run(std::env::args_os())
}
