//! `man [DIR]`: manual pages.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::Cli;
use crate::files::FileSet;

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hybrid-operator man | man -l -\n  hybrid-operator man /usr/local/share/man/man1"
)]
pub(crate) struct Args {
    /// Directory to which the pages of all commands are written; without it, the page of the program
    /// is printed
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = &args.directory else {
        let page = page(&command, "hybrid-operator")?;
        out.write_all(&page)?;
        return Ok(());
    };
    let mut files = FileSet::default();
    add(&command, "hybrid-operator", &mut files)?;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    files.write(directory)?;
    Ok(())
}

/// Adds the pages of a command and its subcommands.
fn add(command: &Command, name: &str, files: &mut FileSet) -> anyhow::Result<()> {
    files.add(format!("{name}.1"), page(command, name)?)?;
    for subcommand in command.get_subcommands() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            add(
                subcommand,
                &format!("{name}-{}", subcommand.get_name()),
                files,
            )?;
        }
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    let command = command.clone().display_name(name.to_owned());
    Man::new(command)
        .render(&mut page)
        .with_context(|| format!("cannot write the page of {name}"))?;
    Ok(page)
}
