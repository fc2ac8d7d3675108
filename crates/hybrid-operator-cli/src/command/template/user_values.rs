//! The flags that give values, and how they are laid over each other.

use std::io::{self, Read as _};

use anyhow::{Context as _, bail};
use clap::ArgAction;
use helm_core::values::{self, SetError, Values};

/// Values of files and flags. Whatever the order on the command line, files come first, then
/// `--set-json`, `--set`, `--set-string`, `--set-file` and `--set-literal`, as in Helm.
#[derive(Debug, clap::Args)]
pub(super) struct ValueFlags {
    /// Values of a YAML file, or of standard input (`-`); can be repeated, later ones count more
    #[arg(short = 'f', long = "values", value_name = "FILES", value_delimiter = ',', action = ArgAction::Append, allow_hyphen_values = true)]
    files: Vec<String>,

    /// Values: `a.b=1,c[0]=x,d={y,z}`; can be repeated
    #[arg(long = "set", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set: Vec<String>,

    /// Values that are strings whatever they look like; can be repeated
    #[arg(long = "set-string", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set_string: Vec<String>,

    /// Values in JSON: `a={"b": 1},c=[2]` or `{"a": {"b": 1}}`; can be repeated
    #[arg(long = "set-json", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set_json: Vec<String>,

    /// Values that are the text of files: `a.b=path`; can be repeated
    #[arg(long = "set-file", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set_file: Vec<String>,

    /// One value that is the text after the first `=`, commas and all; can be repeated
    #[arg(long = "set-literal", value_name = "VALUE", action = ArgAction::Append, allow_hyphen_values = true)]
    set_literal: Vec<String>,
}

/// Adds what a flag says to the values.
type Parse<'p> = &'p dyn Fn(&str, &mut Values) -> Result<(), SetError>;

impl ValueFlags {
    /// All values together.
    pub(super) fn merged(&self) -> anyhow::Result<Values> {
        let mut merged = Values::new();
        for path in &self.files {
            if path.contains("://") {
                bail!("--values {path}: values are read from files only; download it first");
            }
            let text = read(path).with_context(|| format!("--values: cannot read {path:?}"))?;
            let above = values::read(&text).with_context(|| format!("failed to parse {path}"))?;
            merged = values::merge(merged, above);
        }
        let from_file = |flag: &str, values: &mut Values| values::set_file(flag, values, read);
        let flags: [(&str, &[String], Parse<'_>); 5] = [
            ("--set-json", &self.set_json, &values::set_json),
            ("--set", &self.set, &values::set),
            ("--set-string", &self.set_string, &values::set_string),
            ("--set-file", &self.set_file, &from_file),
            ("--set-literal", &self.set_literal, &values::set_literal),
        ];
        for (name, given, parse) in flags {
            for flag in given {
                parse(flag, &mut merged)
                    .with_context(|| format!("failed parsing {name} data {flag:?}"))?;
            }
        }
        Ok(merged)
    }
}

/// The content of a file, or of standard input for `-`.
fn read(path: &str) -> io::Result<Vec<u8>> {
    if path.trim() != "-" {
        return std::fs::read(path);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}
