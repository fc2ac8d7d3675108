//! Asks on the terminal for answers that no flag gave.

use std::io::{self, IsTerminal as _, Write};

use anyhow::{Context as _, bail};
use inquire::Text;
use inquire::validator::Validation;

use super::UsageError;

/// Asks a question that is answered with yes or no. `unchanged` says that nothing has happened after another
/// answer, or without a terminal.
pub(crate) fn confirm(question: &str, unchanged: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() {
        bail!("{unchanged}: confirm with --yes, since there is no terminal to ask");
    }
    out.flush()?;
    let answer = inquire::Confirm::new(question).with_default(false).prompt();
    if answer.context("no answer")? {
        Ok(())
    } else {
        bail!("{unchanged}");
    }
}

type Check = fn(&str) -> Result<(), crate::scaffold::NameError>;

/// Returns `given`, or asks for the value of `--flag`. Without a terminal, its absence is an error of
/// usage.
pub(super) fn answer(
    flag: &'static str,
    question: &str,
    example: &str,
    given: Option<String>,
    check: Check,
) -> anyhow::Result<String> {
    if let Some(given) = given {
        check(&given)?;
        return Ok(given);
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let message = format!("--{flag} is required, for example --{flag} {example}");
        return Err(UsageError(message).into());
    }
    let validator = move |answer: &str| {
        Ok(match check(answer) {
            Ok(()) => Validation::Valid,
            Err(error) => Validation::Invalid(error.into()),
        })
    };
    Text::new(question)
        .with_placeholder(example)
        .with_validator(validator)
        .prompt()
        .with_context(|| format!("cannot ask for --{flag}; pass it instead"))
}
