//! Prints differences for terminals and for comments of pull requests.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use similar::TextDiff;

use super::difference::{Kind, ObjectDifference};
use crate::output::Paint;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The differences of one release.
#[derive(Debug, Default)]
pub(crate) struct ReleaseDifference {
    /// Custom resource and release.
    pub(crate) title: String,
    pub(crate) objects: Vec<ObjectDifference>,
    /// Effects of an upgrade on objects that run or hold data.
    pub(crate) effects: Vec<String>,
    /// Remark on the whole release.
    pub(crate) note: Option<String>,
    /// Whether a new revision follows even if no object differs.
    pub(crate) is_converted: bool,
}

/// Number of objects that differ.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    added: usize,
    changed: usize,
    removed: usize,
}

impl Summary {
    pub(crate) fn of(releases: &[ReleaseDifference]) -> Self {
        let count = |kind| {
            let objects = releases.iter().flat_map(|release| &release.objects);
            objects.filter(|object| object.kind == kind).count()
        };
        Self {
            added: count(Kind::Added),
            changed: count(Kind::Changed),
            removed: count(Kind::Removed),
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn text(self) -> String {
        if self.is_empty() {
            return "no differences".to_owned();
        }
        let Self {
            added,
            changed,
            removed,
        } = self;
        format!("{added} added, {changed} changed, {removed} removed")
    }
}

fn sign(kind: Kind) -> (&'static str, AnsiColor, &'static str) {
    match kind {
        Kind::Added => ("+", AnsiColor::Green, "added"),
        Kind::Removed => ("-", AnsiColor::Red, "removed"),
        Kind::Changed => ("~", AnsiColor::Yellow, "changed"),
    }
}

fn name(object: &ObjectDifference) -> String {
    let hook = if object.hook { " (hook)" } else { "" };
    format!("{}{hook}", object.key)
}

/// Returns the changed lines in the unified format, each ending with a line break.
fn hunks(object: &ObjectDifference) -> String {
    let diff = TextDiff::from_lines(&object.before, &object.after);
    let mut unified = diff.unified_diff();
    let unified = unified.context_radius(CONTEXT).missing_newline_hint(false);
    let mut text = String::new();
    for hunk in unified.iter_hunks() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{hunk}");
    }
    text
}

/// Formats differences for a terminal.
pub(crate) fn text(releases: &[ReleaseDifference], paint: Paint) -> String {
    let mut text = String::new();
    for release in releases {
        if release.objects.is_empty() && release.note.is_none() {
            continue;
        }
        let _ = writeln!(text, "{}", paint.bold(&release.title));
        if let Some(note) = &release.note {
            let _ = writeln!(text, "  {note}");
        }
        for effect in &release.effects {
            let line = paint.colored(AnsiColor::Yellow, &format!("! {effect}"));
            let _ = writeln!(text, "{line}");
        }
        for object in &release.objects {
            let (sign, color, _) = sign(object.kind);
            let line = format!("{sign} {}", name(object));
            let _ = writeln!(text, "{}", paint.colored(color, &line));
            for line in hunks(object).lines() {
                let line = match line.as_bytes().first() {
                    Some(b'+') => paint.colored(AnsiColor::Green, line),
                    Some(b'-') => paint.colored(AnsiColor::Red, line),
                    Some(b'@') => paint.colored(AnsiColor::Cyan, line),
                    _ => line.to_owned(),
                };
                let _ = writeln!(text, "    {line}");
            }
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", Summary::of(releases).text());
    text
}

/// Formats differences as Markdown, with a section that can be opened for each object.
pub(crate) fn markdown(releases: &[ReleaseDifference]) -> String {
    let summary = Summary::of(releases);
    let mut text = format!("**{}**\n", summary.text());
    for release in releases {
        if release.objects.is_empty() && release.note.is_none() {
            continue;
        }
        let _ = write!(text, "\n### {}\n", release.title);
        if let Some(note) = &release.note {
            let _ = write!(text, "\n{note}\n");
        }
        if !release.effects.is_empty() {
            let _ = write!(text, "\n- {}\n", release.effects.join("\n- "));
        }
        for object in &release.objects {
            let (sign, _, word) = sign(object.kind);
            let hunks = hunks(object);
            let fence = fence(&hunks);
            let name = escaped(&name(object));
            let _ = write!(
                text,
                "\n<details><summary>{sign} <code>{name}</code> {word}</summary>\n\n\
                 {fence}diff\n{hunks}{fence}\n\n</details>\n"
            );
        }
    }
    text
}

/// Returns a fence that is longer than every row of backticks in a text.
fn fence(text: &str) -> String {
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    "`".repeat(longest.max(2) + 1)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::ObjectKey;

    use super::*;

    fn releases() -> Vec<ReleaseDifference> {
        let key = |name: &str| ObjectKey {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: None,
            name: name.to_owned(),
        };
        let changed = ObjectDifference {
            key: key("a"),
            hook: false,
            kind: Kind::Changed,
            before: "a: 1\nb: 1\n".to_owned(),
            after: "a: 1\nb: '```'\n".to_owned(),
        };
        let added = ObjectDifference {
            key: key("h"),
            hook: true,
            kind: Kind::Added,
            before: String::new(),
            after: "c: 1\n".to_owned(),
        };
        vec![
            ReleaseDifference {
                title: "Shop web".to_owned(),
                effects: vec!["restarts 3 Pods (StatefulSet db)".to_owned()],
                objects: vec![changed, added],
                ..ReleaseDifference::default()
            },
            ReleaseDifference::default(),
        ]
    }

    #[test]
    fn differences_are_printed_by_object_with_a_summary() {
        let expected = "Shop web\n\
                        ! restarts 3 Pods (StatefulSet db)\n\
                        ~ ConfigMap a\n    @@ -1,2 +1,2 @@\n     a: 1\n    -b: 1\n    +b: '```'\n\
                        + ConfigMap h (hook)\n    @@ -0,0 +1 @@\n    +c: 1\n\n\
                        1 added, 1 changed, 0 removed\n";
        assert_eq!(text(&releases(), Paint(false)), expected);
        assert_eq!(text(&[], Paint(false)), "no differences\n");
        assert!(text(&releases(), Paint(true)).contains("\u{1b}[32m+ ConfigMap h"));
    }

    #[test]
    fn markdown_has_a_section_for_each_object() {
        let expected = "**1 added, 1 changed, 0 removed**\n\n### Shop web\n\n\
                        - restarts 3 Pods (StatefulSet db)\n\n\
                        <details><summary>~ <code>ConfigMap a</code> changed</summary>\n\n\
                        ````diff\n@@ -1,2 +1,2 @@\n a: 1\n-b: 1\n+b: '```'\n````\n\n</details>\n\n\
                        <details><summary>+ <code>ConfigMap h (hook)</code> added</summary>\n\n\
                        ```diff\n@@ -0,0 +1 @@\n+c: 1\n```\n\n</details>\n";
        assert_eq!(markdown(&releases()), expected);
    }
}
