//! Splits a stream of YAML documents as Helm does: at lines that begin with `---`.

/// Splits `text` at every line that begins with `---`. The rest of such a line, after blanks,
/// begins the next document, whose leading white space is dropped; blank documents are skipped.
///
/// ```
/// use helm_core::manifest::split;
/// let documents: Vec<_> = split("a: 1\n---\n\n--- # two\nb: 2\n").collect();
/// assert_eq!(documents, ["a: 1\n", "# two\nb: 2\n"]);
/// ```
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    Documents {
        rest: Some(text.trim_start()),
        first: true,
    }
    .map(str::trim_start)
    .filter(|document| !document.is_empty())
}

struct Documents<'a> {
    rest: Option<&'a str>,
    first: bool,
}

impl<'a> Iterator for Documents<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.rest.take()?;
        let at_start = std::mem::take(&mut self.first) && text.starts_with("---");
        let cut = if at_start {
            Some(0)
        } else {
            memchr::memmem::find(text.as_bytes(), b"\n---").map(|at| at + 1)
        };
        let Some((document, after)) = cut.and_then(|at| text.split_at_checked(at)) else {
            return Some(text);
        };
        let after = after.strip_prefix("---").unwrap_or(after);
        self.rest = Some(after.trim_start_matches([' ', '\t']));
        Some(document)
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    fn parts(text: &str) -> Vec<&str> {
        split(text).collect()
    }

    #[test]
    fn text_after_a_separator_begins_the_next_document() {
        assert_eq!(
            parts("---apiVersion: v1\n---\tkind: x"),
            ["apiVersion: v1\n", "kind: x"]
        );
        assert_eq!(parts("----\na"), ["-\na"]);
        assert_eq!(parts("a\n---\n---\nb\n---\n"), ["a\n", "b\n"]);
        assert_eq!(parts("x\n ---\ny"), ["x\n ---\ny"]);
        assert_eq!(parts(" \n\n---\r\na"), ["a"]);
        assert!(parts(" \n\t").is_empty());
        assert!(parts("").is_empty());
    }

    #[test]
    fn trailing_white_space_of_a_document_is_kept() {
        assert_eq!(
            parts("a: 1\n\n\n---\nb: 2  \n\n"),
            ["a: 1\n\n\n", "b: 2  \n\n"]
        );
    }
}
