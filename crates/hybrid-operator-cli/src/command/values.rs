//! The flags that give values, in Helm's order: files, then `--set-json`, `--set`,
//! `--set-string`, `--set-file` and `--set-literal`.

use std::io::Read;

use anyhow::Context;
use helm_core::Values;
use helm_core::values::{self, merge};

const HEADING: &str = "Values";

/// Values for a chart.
#[derive(clap::Args)]
pub(crate) struct ValueArgs {
    /// A YAML file with values, or - for standard input (can be given several times).
    #[arg(
        short = 'f',
        long = "values",
        value_name = "FILE",
        value_delimiter = ','
    )]
    files: Vec<String>,
    /// Set values: key1=val1,key2.inner=val2,list[0]=val3.
    #[arg(long, help_heading = HEADING, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// As --set, but every value stays a string.
    #[arg(long, help_heading = HEADING, value_name = "KEY=VALUE")]
    set_string: Vec<String>,
    /// Set JSON values: key=JSON, or one JSON object.
    #[arg(long, help_heading = HEADING, value_name = "KEY=JSON")]
    set_json: Vec<String>,
    /// Set values to the content of files.
    #[arg(long, help_heading = HEADING, value_name = "KEY=FILE")]
    set_file: Vec<String>,
    /// Set one value to everything after the first equals sign.
    #[arg(long, help_heading = HEADING, value_name = "KEY=TEXT")]
    set_literal: Vec<String>,
}

impl ValueArgs {
    /// What the flags say together.
    pub(crate) fn read(&self) -> anyhow::Result<Values> {
        let mut all = Values::new();
        for file in &self.files {
            let text = content(file).with_context(|| format!("cannot read {file}"))?;
            let more = values::read(&text).with_context(|| format!("failed to parse {file}"))?;
            all = merge(all, more);
        }
        for flag in &self.set_json {
            values::set_json(flag, &mut all)
                .with_context(|| format!("failed parsing --set-json data {flag}"))?;
        }
        for flag in &self.set {
            values::set(flag, &mut all).context("failed parsing --set data")?;
        }
        for flag in &self.set_string {
            values::set_string(flag, &mut all).context("failed parsing --set-string data")?;
        }
        for flag in &self.set_file {
            values::set_file(flag, &mut all, content).context("failed parsing --set-file data")?;
        }
        for flag in &self.set_literal {
            values::set_literal(flag, &mut all).context("failed parsing --set-literal data")?;
        }
        Ok(all)
    }
}

fn content(file: &str) -> std::io::Result<Vec<u8>> {
    if file.trim() == "-" {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text)?;
        return Ok(text);
    }
    std::fs::read(file)
}
