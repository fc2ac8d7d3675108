//! The `hybrid-operator` command as a library: [`run`] is the whole program.
//!
//! ```
//! use std::process::ExitCode;
//! let code = hybrid_operator_cli::run(["hybrid-operator", "template", "web", "./no-such-chart"]);
//! assert_eq!(code, ExitCode::FAILURE);
//! ```

mod cluster;
mod command;
mod dashboards;
mod dev;
mod files;
mod generate;
mod lint;
mod migrate;
mod olm;
mod operator_chart;
mod output;
mod plugin;
mod preview;
mod project;
mod rbac;
mod scaffold;
mod template_source;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use command::UsageError;

/// Exit code for wrong usage.
const USAGE: u8 = 2;

/// Runs the command line `arguments`, whose first element is the program's name. Results go to
/// standard output, messages to standard error. The exit code is 1 on any error, and 2 for wrong usage.
/// `diff` has 1 for differences and 2 for errors.
pub fn run<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if let Some(answered) = command::completion::answer(&arguments, &mut io::stdout().lock()) {
        return ExitCode::from(u8::from(answered.is_err()));
    }
    let is_plugin = plugin::is_plugin(&arguments);
    let cli = match plugin::parse(command::normalize_flags(arguments), is_plugin) {
        Ok(cli) => cli,
        Err(message) => {
            // This includes --help and --version. A failure to print them cannot be reported.
            let _ = plugin::print(&message, is_plugin);
            return ExitCode::from(if message.use_stderr() { USAGE } else { 0 });
        }
    };
    match cli.run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output, such as `head`, has closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<Exit>() {
            Ok(Exit::Reported) => ExitCode::FAILURE,
            Ok(Exit::Failed(code, error)) => {
                print_message(&format!("Error: {error:#}"));
                ExitCode::from(code)
            }
            Err(error) => {
                print_message(&format!("Error: {error:#}"));
                ExitCode::from(if error.is::<UsageError>() { USAGE } else { 1 })
            }
        },
    }
}

/// An end of a command that is not simply an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Exit {
    /// The command has printed what is wrong, such as differences; its exit code is 1.
    #[error("see the output")]
    Reported,
    /// An error with an exit code of its own, because 1 means something else for the command.
    #[error("{1:#}")]
    Failed(u8, anyhow::Error),
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
