//! A block of comments at one value.

use serde_json::{Map, Value, json};

use super::Comment;
use super::param;
use crate::generate::schema::{Kind, Node, convert, default_text};

/// Longest description that is taken from a comment, in characters.
const LONGEST: usize = 1000;

/// Content of a block.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Comment on the value below the block.
    pub(super) comment: Comment,
    /// Comments on values that the block names.
    pub(super) named: Vec<(Vec<String>, Comment)>,
}

impl Block {
    /// Adds what another block says of what this one does not.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.named.extend(other.named);
        let (one, two) = (self.comment.node, other.comment.node);
        let texts = (
            one.text.clone().or_else(|| two.text.clone()),
            one.default.clone().or_else(|| two.default.clone()),
        );
        let has_schema = one.binding;
        let mut node = if has_schema { one } else { two };
        (node.text, node.default) = texts;
        self.comment = Comment { node };
        self
    }
}

/// The text that is being collected.
enum Text {
    Plain,
    HelmDocs,
    /// The path of an older comment of helm-docs, which names the value.
    Named(Vec<String>),
}

/// Reads a block of comments at the value `name`.
pub(super) fn read(name: &str, lines: &[&str]) -> Block {
    let mut block = Block::default();
    let mut schema = Map::new();
    let mut text: Vec<&str> = Vec::new();
    let mut mode = Text::Plain;
    let mut default = None;
    let mut kinds = None;
    let mut rest = lines.iter().copied();
    while let Some(line) = rest.next() {
        let line = content(line);
        let trimmed = line.trim();
        if trimmed == "@schema" {
            let yaml: Vec<&str> = rest
                .by_ref()
                .map(content)
                .take_while(|line| line.trim() != "@schema")
                .collect();
            if let Ok(Value::Object(found)) = go_yaml::from_str(&yaml.join("\n")) {
                schema.extend(found);
            }
        } else if let Some(pairs) = trimmed.strip_prefix("@schema ") {
            schema.extend(pairs_of_schema(pairs));
        } else if let Some(said) = trimmed.strip_prefix("@default -- ") {
            default = Some(said.trim().to_owned());
        } else if let Some(said) = trimmed.strip_prefix("-- ") {
            let (kind, said) = typed(said);
            kinds = kind;
            text = vec![said];
            mode = Text::HelmDocs;
        } else if let Some((path, said)) = named(trimmed) {
            finish_named(&mut block, &mode, &text);
            text = vec![said];
            mode = Text::Named(path);
        } else if !trimmed.starts_with('@') {
            text.push(line);
        }
    }
    if !schema.is_empty() {
        let stated = schema.get("default").and_then(|v| default_text(name, v));
        default = default.or(stated);
        block.comment.node = convert(&Value::Object(schema));
    }
    let node = &mut block.comment.node;
    node.default = default;
    if let Some(kind) = kinds.filter(|_| node.kinds.is_empty()) {
        node.kinds = [kind].into();
    }
    match mode {
        Text::Plain => node.text = plain(&text).or(node.text.take()),
        Text::HelmDocs => node.text = joined(&text).or(node.text.take()),
        Text::Named(_) => finish_named(&mut block, &mode, &text),
    }
    block
}

fn finish_named(block: &mut Block, mode: &Text, text: &[&str]) {
    if let Text::Named(path) = mode {
        let node = Node {
            text: joined(text),
            ..Node::default()
        };
        block.named.push((path.clone(), Comment { node }));
    }
}

/// Removes the marks of a comment, and one space.
fn content(line: &str) -> &str {
    let text = line.trim().trim_start_matches('#');
    text.strip_prefix(' ').unwrap_or(text)
}

/// Reads `(int) text` of helm-docs.
fn typed(text: &str) -> (Option<Kind>, &str) {
    let parts = text
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .filter(|(name, _)| !name.contains(' '));
    match parts {
        Some((name, said)) => (param::kind(name), said.trim()),
        None => (None, text.trim()),
    }
}

/// Reads `path.to.value -- text`, as helm-docs did at first.
fn named(text: &str) -> Option<(Vec<String>, &str)> {
    let (path, said) = text.split_once(" -- ")?;
    let is_path = !path.is_empty()
        && path
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '"' | '/'));
    is_path.then(|| (param::path(path), said.trim()))
}

/// Reads `type:[string, null]; minimum: 0`.
fn pairs_of_schema(text: &str) -> Map<String, Value> {
    let mut schema = Map::new();
    for pair in text.split(';') {
        let Some((key, value)) = pair.split_once(':') else {
            continue;
        };
        let value: Value = go_yaml::from_str(value.trim()).unwrap_or(Value::Null);
        let item = |name: &str| json!({ name: value });
        match key.trim() {
            "item" | "itemType" => {
                schema.insert("items".to_owned(), item("type"));
            }
            "itemEnum" => {
                schema.insert("items".to_owned(), item("enum"));
            }
            "itemProperties" => {
                schema.insert("items".to_owned(), item("properties"));
            }
            // An unquoted null among the names of types.
            "type" => {
                let names = match value {
                    Value::Array(names) => names.into_iter().map(or_null).collect(),
                    name => or_null(name),
                };
                schema.insert("type".to_owned(), names);
            }
            "$ref" | "itemRef" => {}
            key => {
                schema.insert(key.to_owned(), value);
            }
        }
    }
    schema
}

fn or_null(name: Value) -> Value {
    if name.is_null() { json!("null") } else { name }
}

/// Returns the description that a plain comment gives, without commented-out YAML and examples.
fn plain(lines: &[&str]) -> Option<String> {
    let lines: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.chars().any(char::is_alphanumeric))
        .collect();
    // Examples of the value above.
    let is_example = |line: &&&str| {
        let is_key = is_yaml(line) && line.trim().starts_with(|c: char| !c.is_uppercase());
        is_key || line.starts_with("  ")
    };
    let examples = lines.iter().take_while(is_example).count();
    let lines = lines.get(examples..).unwrap_or_default();
    if lines.iter().all(|line| is_yaml(line)) {
        return None;
    }
    let mut text: Vec<&str> = Vec::new();
    for line in lines.iter().copied() {
        let lower = line.trim().to_lowercase();
        let is_labelled = lower.starts_with("example") || lower.starts_with("e.g");
        let before_ends = text
            .last()
            .is_some_and(|before| before.trim_end().ends_with(':'));
        let is_nested = line.starts_with("  ") || line.trim_start().starts_with("- ");
        if is_labelled || before_ends && (is_nested || is_yaml(line)) {
            break;
        }
        text.push(line);
    }
    joined(&text)
}

/// Returns whether a line looks like commented-out YAML.
fn is_yaml(line: &str) -> bool {
    let line = line.trim();
    let line = line.strip_prefix("- ").unwrap_or(line);
    if line.starts_with(['-', '{', '}', '[', ']']) {
        return true;
    }
    line.split_once(':').is_some_and(|(key, value)| {
        let is_key = !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '"' | '\''));
        is_key && (value.is_empty() || value.starts_with(' '))
    })
}

/// Joins lines, with one space for each break.
fn joined(lines: &[&str]) -> Option<String> {
    let words: Vec<&str> = lines
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    let mut text = words.join(" ");
    if let Some((at, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(at);
        text.push_str(" ...");
    }
    text.retain(|c| !c.is_control());
    (!text.is_empty()).then_some(text)
}
