//! Inserts lines into files that users also edit. Everything else in the file stays as it is. Pure.

use go_yaml::tree::{self, Node};

/// Returns the text with `item` at the end of the list `key` of a map, or unchanged if the list has
/// it; `None` if there is no such list to append to.
pub(super) fn append_to_list(text: &str, key: &str, item: &str) -> Option<String> {
    let root = tree::parse(text.as_bytes()).ok()?;
    let (name, list) = root
        .as_map()?
        .iter()
        .find(|(name, _)| name.as_str() == Some(key))?;
    let lines: Vec<&str> = text.lines().collect();
    let items = list.as_list().unwrap_or_default();
    if items.iter().any(|present| present.as_str() == Some(item)) {
        return Some(text.to_owned());
    }
    let Some(final_item) = items.last() else {
        // `resources: []` or `resources:`
        let line = lines.get(name.line().checked_sub(1)?)?;
        let value = line.split_once(':')?.1.trim();
        if !(list.is_null() || list.as_list().is_some()) || !["", "[]"].contains(&value) {
            return None;
        }
        let new = [format!("{key}:"), format!("- {item}")];
        return Some(replace(&lines, name.line() - 1, 1, &new));
    };
    let end = final_item.line();
    let indent = block_indent(lines.get(end.checked_sub(1)?)?)?;
    // Comments at the end of the file, or of the paragraph, belong to the list.
    let comments = lines
        .iter()
        .skip(end)
        .take_while(|line| line.trim_start().starts_with('#'))
        .count();
    let after = lines.get(end + comments);
    let at = if after.is_none_or(|line| line.trim().is_empty()) {
        end + comments
    } else {
        end
    };
    Some(replace(&lines, at, 0, &[format!("{indent}- {item}")]))
}

/// Returns the watches file with one more entry, or unchanged if it has an entry for the kind; `None`
/// if it is not a list in YAML's block style.
pub(super) fn append_watch(
    text: &str,
    (group, version, kind): (&str, &str, &str),
    chart: &str,
) -> Option<String> {
    let root = tree::parse(text.as_bytes()).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let indent = match root.as_list() {
        None if root.is_null() => "",
        None => return None,
        Some(items) => {
            let is_kind = |entry: &Node| {
                let field = |name: &str| {
                    let fields = entry.as_map()?;
                    let (_, value) = fields.iter().find(|(key, _)| key.as_str() == Some(name))?;
                    value.as_str()
                };
                (field("group"), field("version"), field("kind"))
                    == (Some(group), Some(version), Some(kind))
            };
            if items.iter().any(is_kind) {
                return Some(text.to_owned());
            }
            match items.last() {
                None => return None,
                Some(last) => block_indent(lines.get(last.line().checked_sub(1)?)?)?,
            }
        }
    };
    let entry = [
        format!("{indent}- group: {group}"),
        format!("{indent}  version: {version}"),
        format!("{indent}  kind: {kind}"),
        format!("{indent}  chart: {chart}"),
    ];
    // An entry may have fields of many lines; the list is the whole document.
    let used = lines.iter().rposition(|line| !line.trim().is_empty());
    let end = used.map_or(0, |last| last + 1);
    let end_mark = lines.iter().any(|line| line.trim_end() == "...");
    (!end_mark).then(|| replace(&lines, end, 0, &entry))
}

/// Returns the space before the `-` of a list item.
fn block_indent(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let indent = line.get(..line.len() - item.len())?;
    (item.starts_with("- ")).then_some(indent)
}

/// Returns the text with a line such as `pub mod a;` among those that begin alike, sorted; at the end
/// if there are none.
pub(super) fn insert_sorted(text: &str, prefix: &str, line: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.contains(&line) {
        return text.to_owned();
    }
    let alike = |candidate: &&str| candidate.starts_with(prefix);
    let after = lines
        .iter()
        .rposition(|candidate| alike(candidate) && *candidate < line);
    if let Some(after) = after {
        return replace(&lines, after + 1, 0, &[line.to_owned()]);
    }
    if let Some(first) = lines.iter().position(alike) {
        return replace(&lines, first, 0, &[line.to_owned()]);
    }
    replace(&lines, lines.len(), 0, &[String::new(), line.to_owned()])
}

/// Returns Rust code with a `use` declaration in the paragraph of those of other crates; `None` if
/// there is no such paragraph.
pub(super) fn insert_use(text: &str, path: &str) -> Option<String> {
    let wanted = format!("use {path};");
    let lines: Vec<&str> = text.lines().collect();
    if lines.contains(&wanted.as_str()) {
        return Some(text.to_owned());
    }
    let is_foreign = |line: &str| line.starts_with("use ") && !line.starts_with("use std::");
    let first = lines.iter().position(|line| is_foreign(line))?;
    let paragraph = lines
        .iter()
        .skip(first)
        .take_while(|line| !line.trim().is_empty());
    let before = paragraph
        .enumerate()
        .filter(|(_, line)| is_foreign(line))
        .find(|(_, line)| **line > wanted.as_str());
    let at = match before {
        Some((offset, _)) => first + offset,
        None => lines
            .iter()
            .skip(first)
            .position(|line| line.trim().is_empty())
            .map_or(lines.len(), |length| first + length),
    };
    Some(replace(&lines, at, 0, &[wanted]))
}

/// Returns the text with a line before the only line that consists of `marker`, with its indentation;
/// unchanged if the text has the line; `None` without such a marker.
pub(super) fn insert_before(text: &str, marker: &str, line: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    if lines.iter().any(|present| present.trim() == line) {
        return Some(text.to_owned());
    }
    let mut places = lines
        .iter()
        .enumerate()
        .filter(|(_, present)| present.trim() == marker);
    let (at, found) = places.next()?;
    if places.next().is_some() {
        return None;
    }
    let indent = found.get(..found.len() - found.trim_start().len())?;
    Some(replace(&lines, at, 0, &[format!("{indent}{line}")]))
}

/// Returns the lines with `count` of them replaced by others.
fn replace(lines: &[&str], at: usize, count: usize, new: &[String]) -> String {
    let mut text = String::new();
    let before = lines.iter().take(at).copied();
    let after = lines.iter().skip(at + count).copied();
    for line in before.chain(new.iter().map(String::as_str)).chain(after) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_appended_and_comments_stay() {
        for (text, wanted) in [
            ("resources: []\n", Some("resources:\n- b\n")),
            ("resources:\n", Some("resources:\n- b\n")),
            (
                "resources:\n- a # why\n",
                Some("resources:\n- a # why\n- b\n"),
            ),
            (
                "# x\nresources:\n  - a\n  # - c\n\npatches: []\n",
                Some("# x\nresources:\n  - a\n  # - c\n  - b\n\npatches: []\n"),
            ),
            (
                "resources:\n- a\n# of the patches\npatches: []\n",
                Some("resources:\n- a\n- b\n# of the patches\npatches: []\n"),
            ),
            ("resources:\n- b\n", Some("resources:\n- b\n")),
            ("resources: [a]\n", None),
            ("resources: a\n", None),
            ("patches: []\n", None),
            ("resources: [\n", None),
        ] {
            let found = append_to_list(text, "resources", "b");
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn entries_of_the_watches_file_are_appended_and_comments_stay() {
        let entry = "- group: g\n  version: v1\n  kind: K\n  chart: helm-charts/k\n";
        let other = "- group: g\n  version: v1\n  kind: Other\n  chart: o\n  values: |\n    a: b\n";
        let indented = "# x\n  - {group: g, version: v1, kind: A, chart: a}\n";
        for (text, wanted) in [
            ("# x\n", Some(format!("# x\n{entry}"))),
            (other, Some(format!("{other}{entry}"))),
            (entry, Some(entry.to_owned())),
            (
                indented,
                Some(format!(
                    "{indented}  - group: g\n    version: v1\n    kind: K\n    chart: helm-charts/k\n"
                )),
            ),
            ("[{kind: a}]\n", None),
            ("kind: a\n", None),
        ] {
            let found = append_watch(text, ("g", "v1", "K"), "helm-charts/k");
            assert_eq!(found, wanted, "{text}");
        }
    }

    #[test]
    fn modules_are_kept_sorted() {
        let with = |text: &str, line: &str| insert_sorted(text, "pub mod ", line);
        let one = with("//! Doc.\n", "pub mod b;");
        assert_eq!(one, "//! Doc.\n\npub mod b;\n");
        let three = with(&with(&one, "pub mod a;"), "pub mod c;");
        assert_eq!(three, "//! Doc.\n\npub mod a;\npub mod b;\npub mod c;\n");
        assert_eq!(with(&three, "pub mod b;"), three);
    }

    #[test]
    fn lines_are_inserted_where_the_program_is_put_together() {
        let text = "use std::a;\n\nuse kube::b;\n\nfn main() {\n    new()\n        .main()\n}\n";
        let text = insert_use(text, "shop::c").unwrap();
        let text = insert_use(&text, "abc::d").unwrap();
        let text = insert_before(&text, ".main()", ".with(c())").unwrap();
        let expected = "use std::a;\n\nuse abc::d;\nuse kube::b;\nuse shop::c;\n\nfn main() {\n    new()\n        .with(c())\n        .main()\n}\n";
        assert_eq!(text, expected);
        assert_eq!(insert_before(&text, ".main()", ".with(c())").unwrap(), text);
        assert_eq!(insert_before("fn main() {}\n", ".main()", "x"), None);
        assert_eq!(insert_use("fn main() {}\n", "a::b"), None);
    }
}
