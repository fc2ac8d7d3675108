//! Infers what is known of a chart's values from `values.yaml` and its comments.

use std::collections::BTreeMap;

use serde_json::Value;

use super::description;
use super::node::{Kind, Node, Others};
use crate::generate::comments::Comments;

/// Depth below which defaults are not described.
const DEPTH: usize = 12;

/// Describes the values of a chart. `strict` makes what is inferred binding: the kinds of defaults,
/// and what the comments say.
pub(crate) fn infer(values: &helm_core::Values, comments: &Comments, strict: bool) -> Node {
    let mut path = Vec::new();
    let mut root = Node {
        kinds: [Kind::Object].into(),
        binding: strict,
        ..Node::default()
    };
    for (name, value) in values {
        path.push(name.clone());
        let node = node(name, value, comments, &mut path, strict);
        root.properties.insert(name.clone(), node);
        path.pop();
    }
    for (path, comment) in comments.additional() {
        add(&mut root, path, &comment.node, strict);
    }
    root
}

fn node(
    name: &str,
    value: &Value,
    comments: &Comments,
    path: &mut Vec<String>,
    strict: bool,
) -> Node {
    let mut node = match value {
        // A list of anything, or a map of anything.
        Value::Null => Node::default(),
        Value::Object(map) if path.len() < DEPTH => {
            let mut properties = BTreeMap::new();
            for (name, value) in map {
                path.push(name.clone());
                let node = self::node(name, value, comments, path, strict);
                properties.insert(name.clone(), node);
                path.pop();
            }
            Node {
                kinds: [Kind::Object].into(),
                properties,
                ..Node::default()
            }
        }
        value => Node {
            kinds: [Kind::of(value)].into(),
            ..Node::default()
        },
    };
    node.default = description::default(name, value);
    if let Some(comment) = comments.get(path) {
        let said = comment.node.clone();
        node.text = said.text.or(node.text);
        node.default = said.default.or(node.default);
        if !said.kinds.is_empty() {
            node.kinds = said.kinds;
        }
        for (name, field) in said.properties {
            node.properties.entry(name).or_insert(field);
        }
        if said.others != Others::Any {
            node.others = said.others;
        }
        node.items = said.items;
        node.required = said.required;
        node.allowed = said.allowed;
        node.bounds = said.bounds;
        node.format = said.format;
    }
    if strict {
        node.binding = true;
        node
    } else {
        node.relaxed()
    }
}

/// Adds a value that only comments document.
fn add(root: &mut Node, path: &[String], said: &Node, strict: bool) {
    let mut node = root;
    for name in path {
        if !node.may_be(Kind::Object) {
            return;
        }
        node = node.properties.entry(name.clone()).or_default();
    }
    if *node == Node::default() {
        *node = if strict {
            said.clone()
        } else {
            said.clone().relaxed()
        };
    }
}
