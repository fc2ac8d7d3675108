//! Asks on the terminal for answers that no flag gave.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use inquire::Text;
use inquire::validator::Validation;

use super::UsageError;

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
