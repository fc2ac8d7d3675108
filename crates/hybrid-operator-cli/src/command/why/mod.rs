//! `why KIND/NAME`: why a custom resource is not ready, what the operator does next, and what helps.
//!
//! ```text
//! conditions --cause--> Cause --remedies--> help and commands, beside the tree of what is not ready
//! ```

mod cause;
mod remedies;

use std::fmt::Write as _;
use std::io::Write;

use anstyle::AnsiColor;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::target::TargetArgs;
use super::tree::{self, Tree};
use crate::cluster::Selected;
use crate::output::{self, ColorArgs, Format, Paint, age};
use cause::Cause;
use remedies::remedy;

/// Longest part of a message that is shown, in lines.
const LINES: usize = 8;

const EXAMPLES: &str = "\
Examples:
  hybrid-operator why shop/main --namespace prod
  hybrid-operator why shop/main --output json";

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// Format of the output; `table` is a text for people
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    color: ColorArgs,
}

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(flatten)]
    tree: Tree,
    cause: Cause,
    failed_attempts: u32,
    next: String,
    help: Vec<String>,
    commands: Vec<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let answer = args.target.run(async |cluster, selected| {
        let tree = tree::read(&cluster, &selected).await?;
        Ok(Answer::of(tree, &selected))
    })?;
    if output::print_data(args.output, &answer, out)? {
        return Ok(());
    }
    let text = answer.text(args.color.paint(), Timestamp::now());
    out.write_all(text.as_bytes())?;
    Ok(())
}

impl Answer {
    fn of(tree: Tree, selected: &Selected) -> Self {
        let cause = cause::of(&selected.resource, &tree.conditions);
        let found = remedy(&cause.reason);
        let mut help = cause.hints.clone();
        help.extend(found.map(|found| found.help.to_owned()));
        if found.is_none() && cause.is_problem {
            help.push("The reason is one of the controller's own: its documentation and its log say more.".to_owned());
        }
        let commands = commands(&tree, &cause, selected);
        let latest = selected.history.last();
        Self {
            failed_attempts: latest.map_or(0, hybrid_operator::helm::RecordInfo::failed_attempts),
            next: cause.next.to_string(),
            cause,
            help,
            commands,
            tree,
        }
    }

    fn text(&self, paint: Paint, now: Timestamp) -> String {
        let cause = &self.cause;
        let ago = cause
            .since
            .map(|since| format!(", for {}", age(since, now)));
        let ago = ago.unwrap_or_default();
        let color = if cause.is_problem {
            AnsiColor::Red
        } else {
            AnsiColor::Green
        };
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {}{ago}",
            paint.bold(&self.tree.title),
            paint.colored(color, &cause.headline)
        );
        let mut part = |title: &str, body: &str| {
            let mut lines = body.lines();
            let _ = writeln!(text, "{title:<8}{}", lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(text, "        {line}");
            }
        };
        if !cause.message.is_empty() {
            part("Cause:", &beginning(&cause.message));
        }
        if let Some(since) = cause.since {
            part("Since:", &since.strftime("%F %T UTC").to_string());
        }
        if self.failed_attempts > 0 {
            part(
                "Tried:",
                &format!(
                    "{} failed attempts of the newest revision",
                    self.failed_attempts
                ),
            );
        }
        part("Next:", &self.next);
        for help in &self.help {
            part("Help:", help);
        }
        text.push('\n');
        text.push_str(&self.tree.unready(paint, now));
        if !self.commands.is_empty() {
            text.push_str("\nCommands:\n");
            for command in &self.commands {
                let _ = writeln!(text, "  {command}");
            }
        }
        text
    }
}

/// Returns the first lines of a message, which may have the log of a Pod.
fn beginning(message: &str) -> String {
    let lines: Vec<&str> = message.trim().lines().collect();
    let mut text = lines.get(..LINES).unwrap_or(&lines).join("\n");
    if lines.len() > LINES {
        text.push_str("\n…");
    }
    text
}

/// Returns the commands that help, with the names filled in.
fn commands(tree: &Tree, cause: &Cause, selected: &Selected) -> Vec<String> {
    if !cause.is_problem {
        return Vec::new();
    }
    let resource = &selected.resource;
    let place =
        |namespace: Option<&str>| namespace.map_or_else(String::new, |name| format!(" -n {name}"));
    let namespace = resource.namespace();
    let kind = selected.kind.gvk.kind.to_lowercase();
    let target = format!(
        "{kind}/{}{}",
        resource.name_any(),
        place(namespace.as_deref())
    );
    let unready = tree.objects.iter().find_map(|object| {
        let pod = object.pods.iter().find(|pod| !pod.ready)?;
        Some(format!(
            "{}{}",
            pod.name,
            place(object.namespace.as_deref())
        ))
    });
    let mut templates: Vec<&str> =
        remedy(&cause.reason).map_or_else(Vec::new, |found| found.commands.to_vec());
    templates.extend(cause.next.command());
    templates.push("hybrid-operator events {target}");
    let mut commands: Vec<String> = Vec::new();
    for template in templates {
        let filled = template.replace("{target}", &target);
        let filled = match &unready {
            Some(pod) => filled.replace("{pod}", pod),
            None if filled.contains("{pod}") => continue,
            None => filled,
        };
        if !commands.contains(&filled) {
            commands.push(filled);
        }
    }
    commands
}
