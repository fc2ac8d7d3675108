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

/// Does what `arguments`, the first of which is the program, ask for. Results go to standard
/// output, everything else to standard error; the code is 1 on any error, as Helm's is.
pub fn run<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> ExitCode {
    let arguments = arguments.into_iter().map(Into::into).collect();
    let cli = match Cli::try_parse_from(command::as_in_go(arguments)) {
        Ok(cli) => cli,
        Err(message) => {
            // Help and version are no errors, and there is nobody to tell when printing fails.
            let _ = message.print();
            return ExitCode::from(u8::from(message.use_stderr()));
        }
    };
    match cli.run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has read enough.
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

/// Tells the user something that is no result.
#[expect(clippy::print_stderr, reason = "what a program tells people")]
fn say(text: &str) {
    eprintln!("{text}");
}
