//! Messages about errors of a custom resource, for whoever applies it. Pure.

use helm_core::RenderError;
use helm_release::engine::DesiredError;
use kube_objects::with_causes;

use super::super::offline::PreviewError;
use crate::watches::Watch;

/// Returns what `admission` says about an error: first the place in the chart `chart`, then the error, then the fields of
/// the spec that the values it names come from, as far as `map` says so. With `contents`, it may quote what the values are
/// made of.
pub fn refusal(error: &PreviewError, chart: &str, watch: &Watch, contents: bool) -> String {
    let text = match error {
        PreviewError::Render(error) => rendering(error, chart),
        PreviewError::Other(error) => match error.downcast_ref::<DesiredError>() {
            Some(DesiredError::Values {
                hidden: Some(hidden),
                ..
            }) if !contents => hidden.clone(),
            _ => with_causes(error.as_ref()),
        },
        PreviewError::Release(_) => with_causes(error),
    };
    let text = text.trim_end();
    let fields = fields_of(text, watch);
    if fields.is_empty() {
        return text.to_owned();
    }
    format!("{text} (from {})", fields.join(", "))
}

/// Moves the place to the front of Helm's message: `templates/a.yaml:14: message`.
fn rendering(error: &RenderError, chart: &str) -> String {
    let text = error.to_string();
    let parts = if let Some(by_author) = text.strip_prefix("execution error at (") {
        by_author.split_once("): ")
    } else {
        // The templates that include each other, outermost first, and then the error.
        let first = text.lines().next().unwrap_or_default();
        let last = text.lines().next_back().unwrap_or_default();
        matches!(error, RenderError::Execution { .. }).then_some((first, last.trim()))
    };
    let place = parts.and_then(|(place, message)| {
        // Without the column.
        let (place, _) = place.rsplit_once(':')?;
        Some((in_chart(place, chart), message))
    });
    match place {
        Some((place, message)) => format!("{place}: {message}"),
        None => text,
    }
}

/// Returns a path in a chart without the name of the chart.
pub(super) fn in_chart<'a>(path: &'a str, chart: &str) -> &'a str {
    path.strip_prefix(chart)
        .unwrap_or(path)
        .trim_start_matches('/')
}

/// Returns the fields of the spec that the values come from which a message names, in order, as far as `map` of the
/// entry says so.
fn fields_of(message: &str, watch: &Watch) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    let words: Vec<&str> = message
        .split(|c| !is_part(c))
        .map(|word| word.trim_matches(['.', '/']).trim_start_matches("Values."))
        .collect();
    let mut fields = Vec::new();
    for (path, expression) in &watch.map {
        let is_named = |separator| words.contains(&path.join(separator).as_str());
        if is_named(".") || is_named("/") {
            let reads = expression
                .reads()
                .filter(|path| path.first().is_some_and(|first| first == "spec"));
            fields.extend(reads.map(|path| path.join(".")));
        }
    }
    fields.sort_unstable();
    fields.dedup();
    fields
}
