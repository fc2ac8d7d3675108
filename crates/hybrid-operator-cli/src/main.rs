//! The `hybrid-operator` command.

mod command;

use std::process::ExitCode;

use clap::Parser;
use command::Cli;

fn main() -> ExitCode {
    match Cli::parse_from(hybrid_operator::options::double_dashes(std::env::args_os())).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the last words of a program are for people"
)]
fn complain(error: &anyhow::Error) {
    eprintln!("Error: {error:#}");
}
