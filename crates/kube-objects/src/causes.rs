//! The text of an error with its causes, for everything that people read.

use std::error::Error;

/// Returns the text of an error and those of its causes. A cause that the text has
/// already, as those of the client do, appears once.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::with_causes;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    #[test]
    fn a_cause_that_is_part_of_the_text_is_not_repeated() {
        let chain = |texts: &[&'static str]| {
            let mut error = None;
            for text in texts.iter().rev() {
                let source = error.map(Box::new);
                error = Some(Failure { text, source });
            }
            with_causes(&error.unwrap())
        };
        for (texts, wanted) in [
            (
                &["cannot read a file", "no such file"][..],
                "cannot read a file: no such file",
            ),
            (
                &["no cluster", "config (a: gone)", "a: gone", "gone"],
                "no cluster: config (a: gone)",
            ),
            (
                &["config: gone", "gone", "the disk is off"],
                "config: gone: the disk is off",
            ),
            (&["alone"], "alone"),
        ] {
            assert_eq!(chain(texts), wanted);
        }
    }
}
