//! The program as a plugin of kubectl: a link to it named `kubectl-hybrid` on the PATH is called by
//! `kubectl hybrid`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use anstream::AutoStream;
use clap::{CommandFactory as _, Error, FromArgMatches as _};

use crate::command::Cli;

/// Name of the program as a plugin.
const FILE: &str = "kubectl-hybrid";
/// Command that calls the plugin.
const CALLED: &str = "kubectl hybrid";
/// Command that calls the program otherwise.
const PROGRAM: &str = "hybrid-operator ";

/// Returns whether the program was called as a plugin.
pub(crate) fn is_plugin(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(Path::new);
    program
        .and_then(Path::file_stem)
        .is_some_and(|name| name == FILE)
}

/// Parses the command line.
pub(crate) fn parse(arguments: Vec<OsString>, is_plugin: bool) -> Result<Cli, Error> {
    let mut command = Cli::command();
    if is_plugin {
        command = command.bin_name(CALLED);
    }
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Prints help or a usage error, in which a plugin is called through kubectl.
pub(crate) fn print(message: &Error, is_plugin: bool) -> io::Result<()> {
    if !is_plugin {
        return message.print();
    }
    let text = message.render().ansi().to_string();
    let text = text.replace(PROGRAM, &format!("{CALLED} "));
    if message.use_stderr() {
        AutoStream::auto(io::stderr()).write_all(text.as_bytes())
    } else {
        AutoStream::auto(io::stdout()).write_all(text.as_bytes())
    }
}
