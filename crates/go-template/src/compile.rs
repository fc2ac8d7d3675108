//! Compiles the syntax tree into what the evaluator runs.

use std::sync::Arc;

use crate::error::ParseError;
use crate::func::Funcs;
use crate::set::{Source, Template};

/// The compiled form of a template.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) text: crate::Str,
}

/// Parses a text into the templates that it gives, each with whether it is empty.
pub(crate) fn parse(source: &Arc<Source>, _: &Funcs) -> Result<Vec<(Template, bool)>, ParseError> {
    let code = Code {
        text: source.text.clone(),
    };
    let template = Template {
        name: source.name.clone(),
        source: Arc::clone(source),
        code,
    };
    let is_empty = source.text.as_bytes().trim_ascii().is_empty();
    Ok(vec![(template, is_empty)])
}
