//! Generates the page of the reference about the commands from their help texts.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory};

use super::Cli;

/// Characters in a line of a help text, whatever the width of the terminal is.
const WIDTH: usize = 100;

/// Adds a command, and then its subcommands.
fn add(command: &mut Command, page: &mut String) {
    let name = command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"));
    for subcommand in command.get_subcommands_mut() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            add(subcommand, page);
        }
    }
}

#[test]
fn page_of_commands_is_up_to_date() {
    let mut page = "# Commands\n\n\
        <!-- Generated from the code by `make generate`; do not edit. -->\n\n\
        What `hybrid-operator COMMAND --help` prints. [Working with the command](cli.md) explains the \
        commands with examples.\n"
        .to_owned();
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    add(&mut command, &mut page);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == page,
        "docs/reference/commands.md is out of date; run `make generate`"
    );
}
