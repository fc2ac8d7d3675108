//! The `hybrid-operator` command as a library: [`run`] is the whole program.
//!
//! ```
//! use std::process::ExitCode;
//! let code = hybrid_operator_cli::run(["hybrid-operator", "template", "web", "./no-such-chart"]);
//! assert_eq!(code, ExitCode::FAILURE);
//! ```

mod command;
mod files;
mod generate;
mod project;
mod scaffold;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::Parser as _;

use command::{Cli, UsageError};

/// Runs the command line `arguments`, whose first element is the program's name. Results go to
/// standard output, messages to standard error. The exit code is 2 for wrong usage and 1 for any other
/// error; that of `template` is always 1, as in Helm.
pub fn run<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let wrong_usage = match arguments.get(1) {
        Some(command) if command == "template" => 1,
        _ => 2,
    };
    let cli = match Cli::try_parse_from(command::normalize_flags(arguments)) {
        Ok(cli) => cli,
        Err(message) => {
            // This includes --help and --version. A failure to print them cannot be reported.
            let _ = message.print();
            return ExitCode::from(if message.use_stderr() { wrong_usage } else { 0 });
        }
    };
    match cli.run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output, such as `head`, has closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(&format!("Error: {error:#}"));
            ExitCode::from(if error.is::<UsageError>() {
                wrong_usage
            } else {
                1
            })
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Prints a message to standard error.
#[expect(clippy::print_stderr, reason = "messages go to standard error")]
fn print_message(text: &str) {
    eprintln!("{text}");
}
