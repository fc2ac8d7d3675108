//! Places in the templates that rendered objects come from.

use std::collections::BTreeMap;

use super::source::is_random;
use crate::rbac::survey::Found;
use crate::template_source::{ACTION, Action, Document, TemplateFile};

/// The templates of a chart by the path that rendered objects name.
pub(super) struct Places<'a> {
    files: BTreeMap<&'a str, (&'a TemplateFile, Vec<Document>)>,
}

/// Reference to a line of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Kind,
    /// Line of `apiVersion`.
    ApiVersion,
    /// Line of `metadata.name`.
    Name,
    /// First line of the document that contains a text; else that of `kind`.
    With(&'a str),
}

impl<'a> Places<'a> {
    pub(super) fn new(files: &'a [TemplateFile]) -> Self {
        let files = files
            .iter()
            .map(|file| (file.rendered_path.as_str(), (file, file.source.documents())));
        Self {
            files: files.collect(),
        }
    }

    /// Returns whether the template of an object computes random values.
    pub(super) fn is_random(&self, found: &Found) -> bool {
        let file = self.files.get(found.template.as_str());
        file.is_some_and(|(file, _)| {
            let mut calls = file.source.actions.iter().flat_map(Action::calls);
            calls.any(|(call, _)| is_random(&call.text))
        })
    }

    /// Returns the file of an object and the line of it that is meant. If the object's document
    /// cannot be told from others, or is the output of a helper, it is the first that may be it.
    pub(super) fn of(&self, found: &Found, line: Line<'_>) -> (String, usize) {
        let Some((file, documents)) = self.files.get(found.template.as_str()) else {
            return (found.template.clone(), 1);
        };
        let path = file.path.clone();
        let Some(document) = document(documents, found) else {
            return (path, first_action(file));
        };
        let number = match line {
            Line::Kind => document.kind_line,
            Line::ApiVersion => document.api_line,
            Line::Name => document.name_line,
            Line::With(text) => line_with(file, document, text).unwrap_or(document.kind_line),
        };
        (
            path,
            if number == 0 {
                document.kind_line
            } else {
                number
            },
        )
    }

    /// Returns the file of a template and the first line of it that is `wanted`; without one, that of the first action
    /// that gives an object.
    pub(super) fn line(&self, template: &str, wanted: impl Fn(&str) -> bool) -> (String, usize) {
        let Some((file, _)) = self.files.get(template) else {
            return (template.to_owned(), 1);
        };
        let mut lines = file.source.lines.iter();
        let position = lines.position(|line| wanted(line));
        let line = position.map_or_else(|| first_action(file), |index| index + 1);
        (file.path.clone(), line)
    }
}

/// Returns the document that an object comes from: of its kind, and with its name as far as that is
/// constant.
fn document<'d>(documents: &'d [Document], found: &Found) -> Option<&'d Document> {
    let key = found.object.key();
    let of_kind =
        |document: &&Document| document.kinds.is_empty() || document.kinds.contains(&key.kind);
    let has_name = |document: &&Document| {
        let mut rest = key.name.as_str();
        document
            .names
            .iter()
            .all(|part| match rest.split_once(part.as_str()) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
    };
    // The document with most of the name is the most specific one.
    let best = documents
        .iter()
        .filter(of_kind)
        .filter(has_name)
        .rev()
        .max_by_key(|document| document.names.iter().map(String::len).sum::<usize>());
    best.or_else(|| documents.iter().find(of_kind))
}

fn line_with(file: &TemplateFile, document: &Document, text: &str) -> Option<usize> {
    let lines = file.source.lines.iter().enumerate();
    let mut numbers = lines
        .filter(|(_, line)| line.contains(text) && !line.trim_start().starts_with('#'))
        .map(|(index, _)| index + 1);
    numbers.find(|number| (document.first_line..=document.last_line).contains(number))
}

/// Returns the line of the first action on a line of its own, which gives the whole object.
fn first_action(file: &TemplateFile) -> usize {
    let lines = &file.source.lines;
    let found = file.source.actions.iter().find(|action| {
        let line = action
            .line
            .checked_sub(1)
            .and_then(|index| lines.get(index));
        let gives = action
            .calls()
            .any(|(call, _)| matches!(call.text.as_str(), "include" | "tpl" | "toYaml"));
        (gives || action.keyword() == Some("template"))
            && line.is_some_and(|line| line.trim_start().starts_with(ACTION))
    });
    found.map_or(1, |action| action.line)
}
