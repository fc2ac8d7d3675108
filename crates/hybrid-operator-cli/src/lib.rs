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
mod image;
mod lint;
mod migrate;
mod olm;
mod operator_chart;
mod output;
mod pins;
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
use command::renamed::{self, Current};
use helm_core::RenderError;
use helm_core::chart::LoadError;
use helm_core::values::{CoalesceError, ValuesError};
use scaffold::{NameError, ScaffoldError};

/// Exit code of an error that is not one of the next two.
const ERROR: u8 = 1;
/// Exit code of a command line that is wrong whatever files and clusters contain.
const USAGE: u8 = 2;
/// Exit code of a command that did what it was asked for, and found something to do.
const TO_DO: u8 = 3;

/// Runs the command line `arguments`, whose first element is the program's name. Results go to
/// standard output, messages to standard error. The exit code is 2 for wrong usage, 3 if a command found
/// something to do, such as differences, and 1 for all other errors.
pub fn run<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if let Some(answered) = command::completion::answer(&arguments, &mut io::stdout().lock()) {
        return ExitCode::from(u8::from(answered.is_err()));
    }
    let is_plugin = plugin::is_plugin(&arguments);
    let arguments = match renamed::current(command::normalize_flags(arguments)) {
        Ok(Current { arguments, note }) => {
            if let Some(note) = note {
                print_message(&note);
            }
            arguments
        }
        Err(gone) => {
            print_error(&gone.into());
            return ExitCode::from(USAGE);
        }
    };
    let cli = match plugin::parse(arguments, is_plugin) {
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
        Err(error) => {
            if !matches!(error.downcast_ref(), Some(ToDo::Printed)) {
                print_error(&error);
            }
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    let has_wrong_name =
        || matches!(error.downcast_ref(), Some(ScaffoldError::Name(_))) || error.is::<NameError>();
    if error.is::<ToDo>() {
        TO_DO
    } else if error.is::<UsageError>() || has_wrong_name() {
        USAGE
    } else {
        ERROR
    }
}

/// Prints an error, and the line of a chart's file that it is about.
fn print_error(error: &anyhow::Error) {
    let mut excerpts = error.chain().map(|cause| {
        let of_load = cause.downcast_ref::<LoadError>().map(LoadError::excerpt);
        let of_values = || {
            cause
                .downcast_ref::<ValuesError>()
                .map(ValuesError::excerpt)
        };
        let of_schema = || {
            cause
                .downcast_ref::<CoalesceError>()
                .map(CoalesceError::excerpt)
        };
        let of_render = || {
            cause
                .downcast_ref::<RenderError>()
                .map(RenderError::excerpt)
        };
        let found = of_load.or_else(of_values).or_else(of_schema);
        found.or_else(of_render).unwrap_or_default().trim_end()
    });
    let first = excerpts.find(|excerpt| !excerpt.is_empty());
    let excerpt = first.map(|excerpt| format!("\n\n{excerpt}"));
    let message = format!("{error:#}");
    let message = message.trim_end();
    print_message(&format!("Error: {message}{}", excerpt.unwrap_or_default()));
}

/// What a command found to be done: differences, findings, files that are out of date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToDo {
    /// The output says it.
    #[error("see the output")]
    Printed,
    /// The output says it, and this message what to do.
    #[error("{0}")]
    Message(String),
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
