//! The flags that set values.

use std::io::{self, Read as _};

use anyhow::Context as _;
use clap::ArgAction;
use helm_core::values::{self, SetError, UserValues, Values};

use crate::command::UsageError;

/// Values from files and flags. Regardless of their order on the command line, files are merged
/// first, then `--set-json`, `--set`, `--set-string`, `--set-file` and `--set-literal`, as in Helm.
#[derive(Debug, clap::Args)]
pub(super) struct ValueFlags {
    /// Set values from a YAML file, or from standard input (`-`); can be repeated, the last one wins
    #[arg(short = 'f', long = "values", value_name = "FILES", action = ArgAction::Append, allow_hyphen_values = true)]
    files: Vec<String>,

    /// Set values: `a.b=1,c[0]=x,d={y,z}`; can be repeated
    #[arg(long = "set", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set: Vec<String>,

    /// Set values as strings, even if they look like numbers; can be repeated
    #[arg(long = "set-string", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set_string: Vec<String>,

    /// Set values in JSON: `a={"b": 1},c=[2]` or `{"a": {"b": 1}}`; can be repeated
    #[arg(long = "set-json", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set_json: Vec<String>,

    /// Set values to the content of files: `a.b=path`; can be repeated
    #[arg(long = "set-file", value_name = "VALUES", action = ArgAction::Append, allow_hyphen_values = true)]
    set_file: Vec<String>,

    /// Set one value to all text after the first `=`, commas included; can be repeated
    #[arg(long = "set-literal", value_name = "VALUE", action = ArgAction::Append, allow_hyphen_values = true)]
    set_literal: Vec<String>,
}

/// Adds the values of a flag.
type Parse = fn(&str, &mut UserValues) -> Result<(), SetError>;

impl ValueFlags {
    pub(super) fn merged(&self) -> anyhow::Result<UserValues> {
        let mut merged = Values::new();
        // An empty argument is an empty list; an empty path in a list is an error.
        let lists = self.files.iter().filter(|list| !list.is_empty());
        for path in lists.flat_map(|list| list.split(',')) {
            if path.contains("://") {
                let message =
                    format!("--values {path}: URLs are not supported; download the file first");
                return Err(UsageError(message).into());
            }
            let text = read(path).with_context(|| format!("--values: cannot read {path:?}"))?;
            let above = values::read(&text).with_context(|| format!("failed to parse {path}"))?;
            merged = values::merge(merged, above);
        }
        let mut merged = UserValues::from(merged);
        let flags: [(&str, &[String], Parse); 5] = [
            ("--set-json", &self.set_json, |flag, user| {
                values::set_json(flag, user.values_mut())
            }),
            ("--set", &self.set, |flag, user| {
                values::set(flag, user.values_mut())
            }),
            ("--set-string", &self.set_string, |flag, user| {
                values::set_string(flag, user.values_mut())
            }),
            ("--set-file", &self.set_file, |flag, user| {
                values::set_file(flag, user, read)
            }),
            ("--set-literal", &self.set_literal, |flag, user| {
                values::set_literal(flag, user.values_mut())
            }),
        ];
        for (name, given, parse) in flags {
            for flag in given {
                let parsed = parse(flag, &mut merged)
                    .with_context(|| format!("failed parsing {name} data {flag:?}"));
                if name == "--set-file" {
                    // The file may be what is wrong.
                    parsed?;
                } else {
                    parsed.map_err(UsageError::of)?;
                }
            }
        }
        Ok(merged)
    }
}

/// Returns the content of a file, or of standard input for `-`.
fn read(path: &str) -> io::Result<Vec<u8>> {
    if path.trim() != "-" {
        return std::fs::read(path);
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    Ok(text)
}
