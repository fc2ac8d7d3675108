//! `completion`: scripts for shells, which call this program for each candidate.
//!
//! ```text
//! shell or kubectl -> answer -> words of the command line -> clap's engine -> candidates
//! ```
//!
//! The engine is the unstable part of `clap_complete`. It is used only here, and only to complete.

mod targets;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::env::{EnvCompleter, Shells};

use super::Cli;
use targets::Targets;

/// Environment variable in which a script names its shell.
const VARIABLE: &str = "HYBRID_OPERATOR_COMPLETE";
/// Name of the command that is completed.
const PROGRAM: &str = "hybrid-operator";
/// Name of the program as the completion of kubectl's plugin. kubectl calls it with the words after
/// `kubectl hybrid`.
const KUBECTL: &str = "kubectl_complete-hybrid";
/// Name that arguments for a custom resource have in the help.
const TARGET: &str = "KIND/NAME";

/// Directive to kubectl about candidates (`ShellCompDirective` of cobra): no names of files.
const NO_FILES: u8 = 4;
/// No space after the candidate.
const NO_SPACE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  # bash and zsh, in ~/.bashrc or ~/.zshrc
  source <(hybrid-operator completion bash)

  # fish
  hybrid-operator completion fish > ~/.config/fish/completions/hybrid-operator.fish

  # kubectl hybrid: a link to the program, on the PATH
  ln -s \"$(command -v hybrid-operator)\" /usr/local/bin/kubectl_complete-hybrid";

/// Arguments of `completion`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let shell: &dyn EnvCompleter = shells
        .completer(&shell)
        .with_context(|| format!("there is no completion for {shell}"))?;
    let mut script = Vec::new();
    let program = program().display().to_string();
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, &program, &mut script)?;
    out.write_all(&script)?;
    Ok(())
}

/// Returns how the script calls this program: by the name or path by which it was called now.
fn program() -> PathBuf {
    let called = env::args_os().next().map(PathBuf::from);
    let called = called.unwrap_or_else(|| PROGRAM.into());
    if called.components().count() < 2 {
        return called;
    }
    env::current_dir().map_or(called.clone(), |directory| directory.join(called))
}

/// Prints candidates if a shell or kubectl asks for them; `None` if this is another call. An error
/// is not shown, because it would appear within the user's command line.
pub(crate) fn answer(arguments: &[OsString], out: &mut dyn Write) -> Option<io::Result<()>> {
    let (program, rest) = arguments.split_first()?;
    if Path::new(program)
        .file_name()
        .is_some_and(|name| name == KUBECTL)
    {
        return Some(answer_kubectl(rest, out));
    }
    let shell = env::var(VARIABLE).ok()?;
    let words = match rest.split_first() {
        Some((first, words)) if first == "--" => words,
        _ => return None,
    };
    let shells = Shells::builtins();
    let shell = shells.completer(&shell)?;
    let directory = env::current_dir().ok();
    let mut command = command(words);
    Some(shell.write_complete(&mut command, words.to_vec(), directory.as_deref(), out))
}

fn answer_kubectl(words: &[OsString], out: &mut dyn Write) -> io::Result<()> {
    let mut all = vec![OsString::from(PROGRAM)];
    all.extend_from_slice(words);
    if words.is_empty() {
        all.push(OsString::new());
    }
    let last = all.len() - 1;
    let directory = env::current_dir().ok();
    let mut command = command(words);
    let found = complete(&mut command, all, last, directory.as_deref())?;
    out.write_all(kubectl_text(&found).as_bytes())
}

/// Formats candidates as kubectl reads them.
fn kubectl_text(found: &[CompletionCandidate]) -> String {
    let mut text = String::new();
    let mut directive = NO_FILES;
    for candidate in found {
        let value = candidate.get_value().to_string_lossy();
        if value.ends_with('/') {
            directive |= NO_SPACE;
        }
        text.push_str(&value);
        if let Some(help) = candidate.get_help() {
            let help = help.to_string();
            text.push('\t');
            text.push_str(help.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    format!("{text}:{directive}\n")
}

/// Returns the program's command line, in which each `KIND/NAME` has candidates for `words`.
fn command(words: &[OsString]) -> Command {
    let targets = Targets::of(words);
    with_targets(Cli::command(), &targets)
}

fn with_targets(command: Command, targets: &Targets) -> Command {
    let command = command.mut_args(|argument: Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        if names.iter().all(|name| name != TARGET) {
            return argument;
        }
        let targets = targets.clone();
        argument.add(ArgValueCompleter::new(move |current: &std::ffi::OsStr| {
            targets.candidates(&current.to_string_lossy())
        }))
    });
    command.mut_subcommands(|command| with_targets(command, targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_for_a_custom_resource_completes_it() {
        fn completing(command: &Command, path: &str, found: &mut Vec<String>) {
            let has = |argument: &Arg| argument.get::<ArgValueCompleter>().is_some();
            if command.get_arguments().any(has) {
                found.push(path.trim().to_owned());
            }
            for sub in command.get_subcommands() {
                completing(sub, &format!("{path} {}", sub.get_name()), found);
            }
        }
        let mut found = Vec::new();
        completing(&command(&[]), "", &mut found);
        let expected = [
            "status",
            "history",
            "rollback",
            "get values",
            "get manifest",
            "get notes",
            "get hooks",
            "events",
            "why",
            "retry",
            "reconcile",
            "force",
            "pause",
            "resume",
            "adopt",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn kubectl_adds_no_space_after_a_kind() {
        let text = |values: &[&str]| {
            let found: Vec<_> = values.iter().map(CompletionCandidate::new).collect();
            kubectl_text(&found)
        };
        assert_eq!(text(&["shop/"]), "shop/\n:6\n");
        assert_eq!(text(&["shop/a", "shop/b"]), "shop/a\nshop/b\n:4\n");
        assert_eq!(text(&[]), ":4\n");
    }
}
