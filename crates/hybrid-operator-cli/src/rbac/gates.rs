//! Values that decide whether a template contains an object, from the text of the templates.
//!
//! A condition counts if it encloses a `kind:` at the start of a line, or an include on a line of its
//! own, which may give a whole object. Variables and helpers in a condition count as what they read.

use std::collections::{BTreeMap, BTreeSet};

use crate::template_source::{ACTION, Action, TemplateFile, Token, TokenKind};

/// A path of values.
pub(super) type Path = Vec<String>;

/// Values that conditions of objects read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gates {
    /// Paths below the values of the whole chart.
    paths: BTreeSet<Path>,
    /// Names of fields of something else than `.Values`, as in `with .Values.a` and then `.enabled`.
    names: BTreeSet<String>,
    /// Constants that paths are compared with.
    pub(super) compared: BTreeMap<Path, BTreeSet<String>>,
    /// Constants that one condition compares several paths with.
    pub(super) together: BTreeSet<Vec<(Path, String)>>,
}

/// Reads of the text between the start and the end of a definition or a variable.
#[derive(Debug, Default, Clone)]
struct Reads {
    tokens: Vec<(Token, Path)>,
    includes: BTreeSet<String>,
}

/// A condition or definition whose end is not reached yet.
struct Open<'a> {
    start: usize,
    conditions: Vec<&'a Action>,
    definition: Option<String>,
}

impl Gates {
    /// Finds the gates in the templates of a chart.
    pub(super) fn of(templates: &[TemplateFile]) -> Self {
        let definitions = definitions(templates);
        let mut gates = Self::default();
        for file in templates {
            gates.add_file(file, &definitions);
        }
        gates
    }

    /// Returns whether a value may decide whether there is an object.
    pub(super) fn contain(&self, path: &[String]) -> bool {
        let by_name = path.last().is_some_and(|name| self.names.contains(name));
        by_name || self.paths.contains(path) || self.compared.contains_key(path)
    }

    fn add_file(&mut self, file: &TemplateFile, definitions: &BTreeMap<String, Reads>) {
        let variables = variables(file);
        let objects = object_lines(file);
        let mut added = BTreeSet::new();
        for (condition, start, end) in conditions(file) {
            if objects.iter().any(|line| (start..=end).contains(line)) {
                let reads = Reads::of(condition, &file.values_path);
                self.add(&reads, &variables, definitions, &mut added);
                let compared = compared(condition, &file.values_path);
                if compared.len() > 1 {
                    self.together.insert(compared);
                }
            }
        }
        // A helper that computes a kind compares too.
        for action in &file.source.actions {
            for (path, constant) in compared(action, &file.values_path) {
                self.compared.entry(path).or_default().insert(constant);
            }
        }
    }

    fn add(
        &mut self,
        reads: &Reads,
        variables: &BTreeMap<String, Reads>,
        definitions: &BTreeMap<String, Reads>,
        added: &mut BTreeSet<String>,
    ) {
        for (token, prefix) in &reads.tokens {
            match token.values_path() {
                Some(path) => {
                    self.paths
                        .insert(prefix.iter().cloned().chain(path).collect());
                }
                None => {
                    if let Some(last) = token.fields().last() {
                        self.names.insert(last.to_owned());
                    } else if let Some(value) = variables.get(&token.text)
                        && added.insert(token.text.clone())
                    {
                        self.add(value, variables, definitions, added);
                    }
                }
            }
        }
        for name in &reads.includes {
            if let Some(definition) = definitions.get(name)
                && added.insert(name.clone())
            {
                self.add(definition, variables, definitions, added);
            }
        }
    }
}

/// Returns the paths that an action compares with constants.
fn compared(action: &Action, prefix: &[String]) -> Vec<(Path, String)> {
    let mut found = Vec::new();
    for (call, arguments) in action.calls() {
        if !matches!(call.text.as_str(), "eq" | "ne" | "has" | "contains") {
            continue;
        }
        let near = arguments.iter().take(4);
        let path = near.clone().find_map(Token::values_path);
        let text = near.clone().find(|token| token.kind == TokenKind::Text);
        if let (Some(path), Some(text)) = (path, text) {
            let path = prefix.iter().cloned().chain(path).collect();
            found.push((path, text.text.clone()));
        }
    }
    found
}

impl Reads {
    fn of(action: &Action, prefix: &[String]) -> Self {
        let mut reads = Self::default();
        reads.add(action, prefix);
        reads
    }

    fn add(&mut self, action: &Action, prefix: &[String]) {
        for token in &action.tokens {
            if matches!(token.kind, TokenKind::Field | TokenKind::Variable) {
                self.tokens.push((token.clone(), prefix.to_vec()));
            }
        }
        for (call, arguments) in action.calls() {
            if call.text == "include"
                && let Some(name) = arguments.first()
            {
                self.includes.insert(name.text.clone());
            }
        }
    }
}

/// Returns what each named template reads.
fn definitions(templates: &[TemplateFile]) -> BTreeMap<String, Reads> {
    let mut found: BTreeMap<String, Reads> = BTreeMap::new();
    for file in templates {
        let mut open: Vec<Option<String>> = Vec::new();
        for action in &file.source.actions {
            match action.keyword() {
                Some("define" | "block") => {
                    open.push(action.tokens.get(1).map(|name| name.text.clone()));
                }
                Some("end") => {
                    open.pop();
                }
                keyword => {
                    let name = open.iter().rev().find_map(Clone::clone);
                    if let Some(name) = name {
                        found
                            .entry(name)
                            .or_default()
                            .add(action, &file.values_path);
                    }
                    if matches!(keyword, Some("if" | "with" | "range")) {
                        open.push(None);
                    }
                }
            }
        }
    }
    found
}

/// Returns what each variable of a file is computed from.
fn variables(file: &TemplateFile) -> BTreeMap<String, Reads> {
    let mut found: BTreeMap<String, Reads> = BTreeMap::new();
    for action in &file.source.actions {
        let assigns = action.tokens.iter().take(6).any(|token| token.text == "=");
        let name = action
            .tokens
            .iter()
            .find(|token| token.kind == TokenKind::Variable);
        if let (true, Some(name)) = (assigns, name) {
            let reads = found.entry(name.text.clone()).or_default();
            reads.add(action, &file.values_path);
            // The name itself is not what it is computed from.
            reads.tokens.retain(|(token, _)| token.text != name.text);
        }
    }
    found
}

/// Returns the conditions of a file with the first and last line that depend on each.
fn conditions(file: &TemplateFile) -> Vec<(&Action, usize, usize)> {
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut found = Vec::new();
    for action in &file.source.actions {
        match action.keyword() {
            Some("if" | "with" | "range") => open.push(Open {
                start: action.line,
                conditions: vec![action],
                definition: None,
            }),
            Some("define" | "block") => open.push(Open {
                start: action.line,
                conditions: Vec::new(),
                definition: action.tokens.get(1).map(|name| name.text.clone()),
            }),
            Some("else") if action.is_condition() => {
                if let Some(open) = open.last_mut() {
                    open.conditions.push(action);
                }
            }
            Some("end") => {
                if let Some(Open {
                    start,
                    conditions,
                    definition: None,
                }) = open.pop()
                {
                    let ended = conditions.into_iter();
                    found.extend(ended.map(|condition| (condition, start, action.line)));
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the lines of a file on which an object may begin.
fn object_lines(file: &TemplateFile) -> Vec<usize> {
    let documents = file.source.documents().into_iter();
    let mut lines: Vec<usize> = documents.map(|document| document.kind_line).collect();
    for action in &file.source.actions {
        let includes = action.keyword() == Some("template")
            || action
                .calls()
                .any(|(call, _)| matches!(call.text.as_str(), "include" | "tpl"));
        let index = action.line.checked_sub(1);
        let line = index.and_then(|index| file.source.lines.get(index));
        if includes && line.is_some_and(|line| line.starts_with(ACTION)) {
            lines.push(action.line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template_source::TemplateSource;

    fn gates(texts: &[&str]) -> Gates {
        let files: Vec<TemplateFile> = texts
            .iter()
            .map(|text| TemplateFile {
                is_rendered: true,
                path: "templates/a.yaml".to_owned(),
                rendered_path: "templates/a.yaml".to_owned(),
                values_path: Vec::new(),
                source: TemplateSource::read(text),
            })
            .collect();
        Gates::of(&files)
    }

    #[test]
    fn only_conditions_around_objects_count() {
        let found = gates(&[
            "{{ if .Values.a.enabled }}\nkind: Service\nspec:\n  {{ if .Values.probe.enabled }}\n  x: y\n  {{ end }}\n{{ end }}\n\
             {{ with .Values.b }}{{ if .on }}\nkind: Secret\n{{ end }}{{ end }}\n\
             {{ $c := or .Values.c (include \"d\" .) }}\n{{ if $c }}\n{{ include \"object\" . }}\n{{ end }}\n",
            "{{ define \"d\" }}{{ if .Values.d.deep }}true{{ end }}{{ end }}",
        ]);
        let is = |path: &str| {
            let path: Path = path.split('.').map(ToOwned::to_owned).collect();
            found.contain(&path)
        };
        for gate in ["a.enabled", "b", "b.on", "c", "d.deep"] {
            assert!(is(gate), "{gate}: {found:?}");
        }
        for other in ["probe.enabled", "x"] {
            assert!(!is(other), "{other}: {found:?}");
        }
    }

    #[test]
    fn constants_of_one_condition_are_found_together() {
        let found = gates(&[
            "{{ if and (eq .Values.a \"x\") (eq .Values.b \"y\") }}\nkind: Service\n{{ end }}\n",
        ]);
        let pair = |path: &str, text: &str| (vec![path.to_owned()], text.to_owned());
        let expected = BTreeSet::from([vec![pair("a", "x"), pair("b", "y")]]);
        assert_eq!(found.together, expected);
    }

    #[test]
    fn constants_in_comparisons_are_found() {
        let found = gates(&[
            "kind: {{ if eq .Values.kind \"DaemonSet\" }}DaemonSet{{ else }}Deployment{{ end }}\n",
        ]);
        let expected = BTreeMap::from([(
            vec!["kind".to_owned()],
            BTreeSet::from(["DaemonSet".to_owned()]),
        )]);
        assert_eq!(found.compared, expected);
    }
}
