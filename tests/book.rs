//! Checks the documentation without a network: every link between pages and to files of the repository
//! leads somewhere, headings included, and the book has every page once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Adds the Markdown files below a folder, apart from those of test data and dependencies.
fn pages(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let skipped = ["target", "golden", "charts", "scaffold", "operator_sdk"];
            if !name.starts_with('.') && !skipped.contains(&name.as_str()) {
                pages(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
}

/// Returns the lines of a page that are not in blocks of code, without comments.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        let keep = !in_code && !fence;
        in_code ^= fence;
        keep
    });
    lines.collect()
}

/// Returns a line without what is between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Returns the targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // The text of a link may be code, its target is not.
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let is_link = without_code(line).contains(target);
            if is_link && !target.is_empty() {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// Returns the id that GitHub and mdBook give to a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim().to_lowercase();
    let kept = text.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect()
}

/// Returns the text of a heading as it is shown: without the target of links.
fn shown(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.replace('[', "")
}

/// Returns the ids of the headings of a page. Repeated ones are numbered.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for line in prose(text) {
        let level = line.chars().take_while(|c| *c == '#').count();
        if level == 0 || !line[level..].starts_with(' ') {
            continue;
        }
        let id = slug(&shown(&line[level..]));
        let count = counts.entry(id.clone()).or_default();
        found.insert(match *count {
            0 => id,
            more => format!("{id}-{more}"),
        });
        *count += 1;
    }
    found
}

/// Returns a path without `..`; `None` if it leaves the repository.
fn resolved(page: &Path, target: &str) -> Option<PathBuf> {
    let mut path = page.parent().unwrap().to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir if !path.pop() => return None,
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path)
}

/// Returns what is wrong with a link of a page.
fn problem(page: &Path, link: &str) -> Option<String> {
    let is_elsewhere = link.contains("://") || link.starts_with("mailto:");
    if is_elsewhere {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = match target {
        "" => page.to_owned(),
        target => match resolved(page, target) {
            Some(path) => path,
            None => return Some("leaves the repository".to_owned()),
        },
    };
    let file = root().join(&path);
    if !file.exists() {
        return Some("no such file".to_owned());
    }
    if page.starts_with("docs") {
        if !path.starts_with("docs") {
            return Some("leaves docs/, so that the link is broken in the book".to_owned());
        }
        if file.is_dir() {
            return Some("is a directory, which the book has no page for".to_owned());
        }
    }
    if anchor.is_empty() {
        return None;
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let known = anchors(&text);
    (!known.contains(anchor)).then(|| format!("no such heading; there are {known:?}"))
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut found = BTreeSet::new();
    pages(root(), &mut found);
    let mut checked = 0;
    let mut broken = Vec::new();
    for page in &found {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        for link in links(&text) {
            checked += 1;
            let problem = problem(page, &link);
            broken.extend(problem.map(|problem| format!("{}: {link}: {problem}", page.display())));
        }
    }
    assert!(checked > 200, "{checked} links in {found:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let names: BTreeSet<PathBuf> = listed.iter().map(PathBuf::from).collect();
    assert_eq!(names.len(), listed.len(), "a page is listed twice");
    let mut found = BTreeSet::new();
    pages(&root().join("docs"), &mut found);
    let wanted = found.iter().filter_map(|page| {
        let page = page.strip_prefix("docs").unwrap();
        (page != Path::new("SUMMARY.md")).then(|| page.to_owned())
    });
    assert_eq!(names, wanted.collect());
}

#[test]
fn broken_links_are_found() {
    let page = Path::new("docs/tutorial.md");
    for (link, broken) in [
        ("https://example.com/x", false),
        ("tutorial/charts.md", false),
        ("tutorial/charts.md#break-it", false),
        ("#before-you-start", false),
        ("tutorial/none.md", true),
        ("tutorial/charts.md#none", true),
        ("#none", true),
        ("cli/", true),
        ("../README.md", true),
        ("../../README.md", true),
    ] {
        assert_eq!(problem(page, link).is_some(), broken, "{link}");
    }
    assert_eq!(problem(Path::new("README.md"), "docs/"), None);
    let text =
        "# A `b` c?\n## x\n## x\n```\n# no\n[a](no.md)\n```\n`[a](no)` [`a`](yes.md) [b](#x)\n";
    let ids: Vec<String> = anchors(text).into_iter().collect();
    assert_eq!(ids, ["a-b-c", "x", "x-1"]);
    assert_eq!(links(text), ["yes.md", "#x"]);
}
