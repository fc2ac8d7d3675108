//! `--show-only`: selects the documents of the named templates.

use anyhow::bail;
use helm_core::chart::path_match;
use helm_core::manifest::split;

/// Returns the documents of `manifest` whose template matches a pattern: those that match the first
/// pattern, then those that match the second, and so on. A pattern without a match is an error.
pub(super) fn pick(manifest: &str, patterns: &[String]) -> anyhow::Result<String> {
    let documents: Vec<(&str, &str)> = split(manifest)
        .filter_map(|document| Some((template_of(document)?, document)))
        .collect();
    let mut text = String::new();
    for pattern in patterns {
        let before = text.len();
        for (template, document) in &documents {
            if path_match::matches(pattern, template) == Ok(true) {
                for part in ["---\n", document, "\n"] {
                    text.push_str(part);
                }
            }
        }
        if text.len() == before {
            let mut known: Vec<&str> = documents.iter().map(|(template, _)| *template).collect();
            known.sort_unstable();
            known.dedup();
            bail!(
                "could not find template {pattern} in chart; choose from {}",
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            );
        }
    }
    Ok(text)
}

/// Returns the path of a document's template, without the chart's name.
fn template_of(document: &str) -> Option<&str> {
    let mut rest = document;
    loop {
        let (_, after) = rest.split_once("# Source: ")?;
        let below = after.split_once('/').filter(|(chart, _)| !chart.is_empty());
        let line = below.and_then(|(_, below)| below.split('\n').next());
        if let Some(template) = line.filter(|template| !template.is_empty()) {
            return Some(template);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::pick;

    const MANIFEST: &str = "---\n# Source: web/templates/a.yaml\na: 1\n\n---\n\
                            # Source: web/charts/sub/templates/b.yaml\nb: 1\n---\n\
                            # Source: web/templates/a.yaml\na: 2\n";

    fn picked(patterns: &[&str]) -> anyhow::Result<String> {
        let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
        pick(MANIFEST, &patterns)
    }

    #[test]
    fn documents_are_in_the_order_of_the_patterns() {
        assert_eq!(
            picked(&["charts/sub/*/*.yaml", "templates/a.yaml"]).unwrap(),
            "---\n# Source: web/charts/sub/templates/b.yaml\nb: 1\n\n\
             ---\n# Source: web/templates/a.yaml\na: 1\n\n\n\
             ---\n# Source: web/templates/a.yaml\na: 2\n\n"
        );
    }

    #[test]
    fn a_pattern_without_a_match_is_an_error_that_lists_the_templates() {
        assert_eq!(
            picked(&["templates/a.yaml", "templates/x.yaml"])
                .unwrap_err()
                .to_string(),
            "could not find template templates/x.yaml in chart; choose from \
             charts/sub/templates/b.yaml, templates/a.yaml"
        );
    }
}
