//! `olm validate`: checks a bundle for OLM.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::ValueEnum;

use crate::ToDo;
use crate::command::UsageError;
use crate::olm::validate::{self, ALL, Optional};

const EXAMPLES: &str = "\
Examples:
  # What OLM would refuse
  hybrid-operator olm validate bundle

  # What OperatorHub.io expects, too, and good practice
  hybrid-operator olm validate bundle --select-optional suite=operatorframework \\
    --select-optional name=good-practices";

/// Arguments of `olm validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of the bundle, with manifests and metadata
    #[arg(value_name = "DIR", required_unless_present = "list_optional")]
    directory: Option<PathBuf>,

    /// Also run the checks with a name or suite, such as name=good-practices; can be repeated
    #[arg(long, value_name = "SELECTOR")]
    select_optional: Vec<String>,

    /// List the optional checks
    #[arg(long)]
    list_optional: bool,

    /// Format of the findings
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line per finding
    Text,
    /// A JSON object
    Json,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.list_optional {
        for (_, name, suite, purpose) in ALL {
            let suite = if suite.is_empty() {
                String::new()
            } else {
                format!("suite={suite}")
            };
            writeln!(out, "name={name:<22} {suite:<24} {purpose}")?;
        }
        return Ok(());
    }
    let mut optional = BTreeSet::new();
    for selector in &args.select_optional {
        let chosen = Optional::select(selector);
        if chosen.is_empty() {
            return Err(UsageError(format!(
                "--select-optional {selector:?} selects no check; --list-optional lists them"
            ))
            .into());
        }
        optional.extend(chosen);
    }
    let directory = args.directory.clone().unwrap_or_default();
    if !directory.is_dir() {
        bail!("{} is not the directory of a bundle", directory.display());
    }
    let findings = validate::bundle(&directory, &optional);
    let passed = !findings.iter().any(validate::Finding::is_error);
    match args.output {
        Format::Json => {
            let result = serde_json::json!({"passed": passed, "findings": findings});
            writeln!(out, "{result:#}")?;
        }
        Format::Text => {
            for finding in &findings {
                writeln!(out, "{finding}")?;
            }
            if passed {
                writeln!(out, "{} is valid", directory.display())?;
            }
        }
    }
    if passed {
        Ok(())
    } else {
        Err(ToDo::Printed.into())
    }
}
