//! The comments of `values.yaml`, in the dialects that people use:
//!
//! | dialect | example |
//! |---|---|
//! | plain | `# Number of servers.` above a value, or after it |
//! | helm-docs | `# -- (int) Number of servers.`, `# @default -- one per node`, `# image.tag -- ...` |
//! | Bitnami's readme-generator | `## @param image.tag [string,nullable] The tag` |
//! | helm-values-schema-json | `# @schema type:[string, null]; minLength:1` |
//! | helm-schema | `# @schema`, lines of a JSON schema in YAML, `# @schema` |

mod block;
mod param;

use std::collections::BTreeMap;

use go_yaml::tree::{self, Node as Yaml};

use crate::generate::schema::Node;

/// Facts from the comments about one value.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Comment {
    /// Description, default and, if stated, the schema.
    pub(crate) node: Node,
}

/// The comments of a values file.
#[derive(Debug, Default)]
pub(crate) struct Comments {
    /// Comments at the value that they document.
    placed: BTreeMap<Vec<String>, Comment>,
    /// Comments that name the path of the value.
    named: BTreeMap<Vec<String>, Comment>,
}

impl Comments {
    /// Reads the comments of a values file. A file that is not YAML has none.
    pub(crate) fn read(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let mut comments = Self::default();
        for line in &lines {
            if let Some((path, comment)) = param::read(line) {
                comments.named.insert(path, comment);
            }
        }
        if let Ok(root) = tree::parse(text.as_bytes()) {
            comments.walk(&root, &lines, &mut Vec::new());
        }
        comments
    }

    fn walk(&mut self, node: &Yaml, lines: &[&str], path: &mut Vec<String>) {
        for (key, value) in node.as_map().into_iter().flatten() {
            let Some(name) = key.as_str() else { continue };
            // An alias, whose comments are those of another value.
            if value.line() < key.line() {
                continue;
            }
            path.push(name.to_owned());
            let head = head(lines, key);
            let mut found = block::read(name, &head);
            if let Some(inline) = inline(lines, key, value) {
                found = found.or(block::read(name, &[inline]));
            }
            for (path, comment) in found.named {
                self.named.insert(path, comment);
            }
            if found.comment != Comment::default() {
                self.placed.insert(path.clone(), found.comment);
            }
            self.walk(value, lines, path);
            path.pop();
        }
    }

    /// Returns what is said of a value.
    pub(crate) fn get(&self, path: &[String]) -> Option<&Comment> {
        self.named.get(path).or_else(|| self.placed.get(path))
    }

    /// Returns the comments that name a path, which may have no default.
    pub(crate) fn additional(&self) -> impl Iterator<Item = (&Vec<String>, &Comment)> {
        self.named.iter()
    }
}

/// Returns the lines of comments directly above a key that are indented like it.
fn head<'a>(lines: &[&'a str], key: &Yaml) -> Vec<&'a str> {
    let above = lines.get(..key.line() - 1).unwrap_or_default();
    let is_comment = |line: &&&str| {
        let text = line.trim_start();
        text.starts_with('#') && line.len() - text.len() + 1 == key.column()
    };
    let count = above.iter().rev().take_while(is_comment).count();
    let mut head: Vec<&str> = above.iter().rev().take(count).map(|l| l.trim()).collect();
    head.reverse();
    head
}

/// Returns the comment behind a scalar on the line of its key.
fn inline<'a>(lines: &[&'a str], key: &Yaml, value: &Yaml) -> Option<&'a str> {
    let line = lines.get(key.line() - 1)?;
    let has_children = |node: &Yaml| {
        node.as_map().is_some_and(|map| !map.is_empty())
            || node.as_list().is_some_and(|list| !list.is_empty())
    };
    if has_children(value) && value.line() == key.line() {
        return None;
    }
    let (mut quote, mut before) = (None, ' ');
    for (at, character) in line.char_indices() {
        match quote {
            Some(open) if character == open => quote = None,
            None if matches!(character, '"' | '\'') && matches!(before, ' ' | ':' | '[' | ',') => {
                quote = Some(character);
            }
            None if character == '#' && before == ' ' => {
                // A single word is another value, as in `host: #0.0.0.0`.
                let text = line.get(at..)?.trim_end();
                return text.contains(' ').then_some(text);
            }
            Some(_) | None => {}
        }
        before = character;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::generate::schema::{Kind, structural};

    /// The descriptions of the paths of a values file.
    fn texts(text: &str) -> BTreeMap<String, String> {
        let comments = Comments::read(text);
        let mut texts = BTreeMap::new();
        for (path, comment) in comments.placed.iter().chain(&comments.named) {
            if let Some(text) = &comment.node.text {
                texts.insert(path.join("/"), text.clone());
            }
        }
        texts
    }

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        entries.iter().map(owned).collect()
    }

    #[test]
    fn plain_comments_belong_to_the_key_below_them() {
        let found = texts(
            "# Licence of the file.\n\n# Number of\n# servers.\nreplicas: 3\n\
             image:\n  # The tag.\n  tag: \"#1\" # or a digest\n  pull: Always # When to pull.\n  host: #0.0.0.0\n\
             resources: {}\n  # limits:\n  #   cpu: 1\n\
             # kubernetes.io/os: linux\n# a: b\nnodeSelector: {}\n\
             # ---------\n# Ports\n# ---------\nports: []\n",
        );
        let wanted = map(&[
            ("replicas", "Number of servers."),
            ("image/tag", "The tag."),
            ("image/pull", "When to pull."),
            ("ports", "Ports"),
        ]);
        assert_eq!(found, wanted);
    }

    #[test]
    fn examples_are_not_part_of_a_plain_description() {
        let found = texts(
            "## Extra variables.\n## Example:\n## - name: A\n##   value: b\nextraEnv: []\n\
             # Hosts to serve, such as:\n#   - a.example.com\nhosts: []\n",
        );
        let wanted = map(&[
            ("extraEnv", "Extra variables."),
            ("hosts", "Hosts to serve, such as:"),
        ]);
        assert_eq!(found, wanted);
    }

    #[test]
    fn helm_docs_comments_have_types_and_defaults() {
        let text = "# Section.\n# -- (int) Number of\n# servers\n# @default -- one per node\nreplicas:\n\
             image:\n  tag: x # -- The tag\n# image.pull -- When to pull\nother: 1\n";
        let comments = Comments::read(text);
        let replicas = &comments.get(&["replicas".to_owned()]).unwrap().node;
        assert_eq!(replicas.text.as_deref(), Some("Number of servers"));
        assert_eq!(replicas.default.as_deref(), Some("one per node"));
        assert_eq!(replicas.only_kind(), Some(Kind::Integer));
        let found = texts(text);
        assert_eq!(found["image/tag"], "The tag");
        assert_eq!(found["image/pull"], "When to pull");
    }

    #[test]
    fn params_of_bitnami_name_their_path() {
        let text = "## @section Common\n## @param image.tag [string,nullable] The tag\n\
             ## @param image.registry [default: docker.io] Registry\n## @skip image.x\n\
             ## @extra extra.field A field without default\n\
             image:\n  registry: r\n  ## plain words\n  tag: 1\n";
        let comments = Comments::read(text);
        let of = |path: &str| {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            comments.get(&path).unwrap().node.clone()
        };
        let tag = of("image.tag");
        assert_eq!(tag.text.as_deref(), Some("The tag"));
        assert_eq!(tag.kinds, [Kind::Null, Kind::String].into());
        let registry = of("image.registry").default;
        assert_eq!(registry.as_deref(), Some("docker.io"));
        let field = of("extra.field").text;
        assert_eq!(field.as_deref(), Some("A field without default"));
    }

    #[test]
    fn schemas_in_comments_are_read_in_both_forms() {
        let comments = Comments::read(
            "# @schema\n# type: [string, \"null\"]\n# enum: [a, b]\n# @schema\n# -- The mode\nmode: a\n\
             size: 1 # @schema minimum:1; maximum:9\n\
             # @schema type:array;item:object\nhosts: []\n",
        );
        let schema = |name: &str| {
            let comment = comments.get(&[name.to_owned()]).unwrap();
            let root = Node {
                properties: [("x".to_owned(), comment.node.clone())].into(),
                ..Node::any()
            };
            structural::spec(&root)["properties"]["x"].clone()
        };
        let mode = json!({"description": "The mode. One of: a, b.", "nullable": true, "type": "string",
            "pattern": "^(a|b)$"});
        assert_eq!(schema("mode"), mode);
        let size = &comments.get(&["size".to_owned()]).unwrap().node;
        assert_eq!(size.bounds.minimum, Some((1.into(), false)));
        assert_eq!(size.bounds.maximum, Some((9.into(), false)));
        assert_eq!(schema("hosts")["items"]["type"], "object");
    }
}
