//! The `hybrid-operator` command as a library: [`run`] is the whole program.
//!
//! ```
//! use std::process::ExitCode;
//! let code = hybrid_operator_cli::run(["hybrid-operator", "template", "web", "./no-such-chart"]);
//! assert_eq!(code, ExitCode::FAILURE);
//! ```

mod command;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::Parser as _;

use command::Cli;

/// Runs the command line `arguments`, of which the first is the program's name. Results go to
/// standard output, messages to standard error; the exit code is 1 on any error, like Helm's.
pub fn run<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> ExitCode {
    let arguments = arguments.into_iter().map(Into::into).collect();
    let cli = match Cli::try_parse_from(command::as_in_go(arguments)) {
        Ok(cli) => cli,
        Err(message) => {
            // This includes --help and --version. A failure to print them cannot be reported.
            let _ = message.print();
            return ExitCode::from(u8::from(message.use_stderr()));
        }
    };
    match cli.run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed the pipe, like `head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Prints a message that is not a result.
#[expect(clippy::print_stderr, reason = "messages of a command")]
fn say(text: &str) {
    eprintln!("{text}");
}
