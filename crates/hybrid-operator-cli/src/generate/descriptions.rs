//! Descriptions of the fields of a spec of its own, from the comments above them. Pure.

use go_yaml::tree::{self, Node};
use hybrid_operator::watches::Watch;
use serde_json::{Value, json};

/// Adds the comments in a watches file to the schemas of its entries, in order. A mark `description=` comes first.
pub(crate) fn add_comments(text: &str, watches: &mut [Watch]) {
    let Ok(root) = tree::parse(text.as_bytes()) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    for (watch, entry) in watches.iter_mut().zip(root.as_list().unwrap_or_default()) {
        let fields = below(entry, "api").and_then(|api| below(api, "fields"));
        if let (Some(api), Some(fields)) = (&mut watch.api, fields) {
            describe(&mut api.schema, fields, &lines);
        }
    }
}

fn below<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let mut entries = node.as_map()?.iter();
    let found = entries.find(|(key, _)| key.as_str() == Some(name));
    found.map(|(_, value)| value)
}

fn describe(schema: &mut Value, fields: &Node, lines: &[&str]) {
    for (key, value) in fields.as_map().unwrap_or_default() {
        let properties = schema.get_mut("properties");
        let name = key.as_str().unwrap_or_default();
        let Some(schema) = properties.and_then(|properties| properties.get_mut(name)) else {
            continue;
        };
        let comment = comment_above(key, lines);
        if let Value::Object(schema) = &mut *schema
            && !comment.is_empty()
        {
            schema
                .entry("description")
                .or_insert_with(|| json!(comment));
        }
        describe(schema, value, lines);
    }
}

/// Returns the comment directly above a key that begins its line.
fn comment_above(key: &Node, lines: &[&str]) -> String {
    let index = key.line().saturating_sub(1);
    let is_first = |line: &&str| line.len() - line.trim_start().len() + 1 == key.column();
    if !lines.get(index).is_some_and(is_first) {
        return String::new();
    }
    let above = lines.get(..index).unwrap_or_default();
    let comment = above
        .iter()
        .rev()
        .map_while(|line| line.trim_start().strip_prefix('#'));
    let mut comment: Vec<&str> = comment.map(str::trim).collect();
    comment.reverse();
    comment.join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hybrid_operator::watches::parse;

    use super::*;

    #[test]
    fn comments_above_fields_describe_them() {
        let text = "\
# The kind.
- group: a.com
  version: v1
  kind: A
  chart: c
  api:
    # All fields.
    fields:
      # How much it holds.
      # In rows.
      size: string
      host: string | optional
      # Not this.
      team: string | description=The team.
      # Limits of all Pods.
      limits:
        # Like 1Gi.
        memory: string
      # Nothing of its own.
      pair: {one: string, two: string}
";
        let (entries, problems) = parse(text.as_bytes(), Path::new("."));
        assert_eq!(problems, []);
        let mut watches: Vec<Watch> = entries.into_iter().map(|entry| entry.watch).collect();
        add_comments(text, &mut watches);
        let schema = &watches[0].api.as_ref().unwrap().schema["properties"];
        let of = |pointer: &str| schema.pointer(&format!("/{pointer}/description")).cloned();
        assert_eq!(of("size"), Some(json!("How much it holds. In rows.")));
        assert_eq!(of("host"), None);
        assert_eq!(of("team"), Some(json!("The team.")));
        assert_eq!(of("limits"), Some(json!("Limits of all Pods.")));
        assert_eq!(of("limits/properties/memory"), Some(json!("Like 1Gi.")));
        assert_eq!(of("pair"), Some(json!("Nothing of its own.")));
        assert_eq!(of("pair/properties/one"), None);
    }
}
