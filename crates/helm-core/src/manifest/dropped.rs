//! `Dropped`: a document that a chart renders, and that Helm neither installs nor runs. Helm does not say so.

/// A document, or the end of one, that is neither installed nor run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The template.
    pub template: String,
    /// The kind; empty if it is not known.
    pub kind: String,
    /// The cause.
    pub cause: DropCause,
}

/// The cause of [`Dropped`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// The annotation `helm.sh/hook` has this event, which does not exist.
    UnknownEvent(String),
    /// The text follows the line `...`, which ends a document: only the first document between two lines `---` is
    /// read.
    AfterEnd,
}

/// Returns what follows the end of the first document of a text, unless it has only comments.
pub(crate) fn after_end(text: &str) -> Option<&str> {
    let mut rest = text;
    let end = loop {
        let at = if rest.starts_with("...") {
            0
        } else {
            memchr::memmem::find(rest.as_bytes(), b"\n...")? + 1
        };
        rest = rest.get(at + 3..)?;
        if rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']) {
            break rest;
        }
    };
    let mut lines = end.lines().skip(1).map(str::trim);
    let is_text = |line: &str| !line.is_empty() && line != "..." && !line.starts_with('#');
    lines.any(is_text).then_some(end)
}

/// Returns the kind that a text names at the beginning of a line.
pub(crate) fn kind_in(text: &str) -> String {
    let mut kinds = text.lines().filter_map(|line| line.strip_prefix("kind:"));
    let kind = kinds.next().unwrap_or_default();
    kind.trim().trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_documents_after_the_end_of_the_first_are_dropped() {
        for (text, kind) in [
            ("kind: A\n...\nkind: B\n", Some("B")),
            ("kind: A\n... # end\n# two\nx: 1\nkind: 'B'\n", Some("B")),
            ("kind: A\r\n...\r\nkind: B\r\n", Some("B")),
            ("...\nkind: B\n", Some("B")),
            ("kind: A\n...\n# the end\n\n...\n", None),
            ("kind: A\n...", None),
            ("kind: A\na: |\n  ...\n  kind: B\n", None),
            ("kind: A\n....: 1\nb: 2\n", None),
            ("kind: A\n", None),
        ] {
            let found = after_end(text).map(kind_in);
            assert_eq!(found.as_deref(), kind, "{text:?}");
        }
    }
}
