//! Checks the documentation without a network: every link between pages and to files of the repository
//! leads somewhere, headings included, and the book has every page once.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

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

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the texts of the blocks of code in a language.
fn code<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let begin = format!("```{language}\n");
    let blocks = text.split(begin.as_str()).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_first_screen_shows_files_of_the_repository_and_what_the_demo_prints() {
    let yaml = |text: &str| -> serde_json::Value { go_yaml::from_str(text).unwrap() };
    let readme = read("README.md");
    let blocks = code(&readme, "yaml");
    assert_eq!(yaml(blocks[0]), yaml(&read("watches.yaml")));
    let sample = read("config/samples/cache_v1alpha1_memcached.yaml");
    assert_eq!(yaml(blocks[1]), yaml(&sample));
    let demo = read("docs/start/demo.md");
    for line in code(&readme, "console")[0].lines() {
        assert!(demo.contains(line), "{line}");
    }
}

#[test]
fn the_speed_on_other_pages_is_that_of_the_benchmark() {
    let benchmarks = read("docs/contributing/benchmarks.md");
    let row = |name: &str| -> Vec<String> {
        let mut lines = benchmarks.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("| {name} |")));
        let cells = line
            .unwrap()
            .split('|')
            .map(|cell| cell.trim().trim_matches('*').to_owned());
        cells.collect()
    };
    let (render, load) = (
        row("render, chart compiled"),
        row("load, compile and render"),
    );
    let (comparison, status) = (read("docs/comparison.md"), read("docs/contributing/limits.md"));
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (comparison, status) = (flat(&comparison), flat(&status));
    for text in [
        format!(
            "is {} times as fast as Helm's engine when the chart is compiled",
            render[2]
        ),
        format!("and {} times with loading", load[2]),
        format!(
            "the slowest chart, which generates keys, is {} times as fast",
            render[3]
        ),
    ] {
        assert!(comparison.contains(&text), "{text}");
    }
    let slowest = format!("The slowest chart renders {} times as fast", render[3]);
    assert!(status.contains(&slowest), "{slowest}");
    // The allocator of the benchmark is not that of images.
    let allocator = "with which a render takes 1.7 times as long";
    assert!(comparison.contains(allocator) && benchmarks.contains(allocator));
    let memory = row("`memcached-operator run`, one chart and one native controller");
    for (text, form) in [
        (
            &comparison,
            "one chart and one native controller answered its readiness probe after {ready} ms (median) and used {memory} MiB",
        ),
        (
            &status,
            "With its one chart and one native controller it uses {memory} MiB",
        ),
    ] {
        let wanted = form
            .replace("{ready}", &memory[2])
            .replace("{memory}", &memory[5]);
        assert!(text.contains(&wanted), "{wanted}");
    }
}

#[test]
fn the_numbers_of_the_readme_are_those_of_the_comparison() {
    let (readme, comparison) = (read("README.md"), read("docs/comparison.md"));
    for (number, there) in [
        (
            "| 111 MiB | 36 MiB |",
            "| 111 MiB, 203 MiB at most | 36 MiB, 36 MiB at most |",
        ),
        (
            "| 1,683 a minute | 3 a minute |",
            "1,683 requests and 56 s of processor time a minute | 3 requests",
        ),
        (
            "complete 0.2 s after the restart",
            "complete 0.2 s after the restart",
        ),
        ("26 of 29", "in place of theirs: 26 do"),
    ] {
        assert!(readme.contains(number), "{number}");
        assert!(comparison.contains(there), "{there}");
    }
}

#[test]
fn every_generator_is_in_the_table_of_generators() {
    let page = read("docs/cli/generate.md");
    let commands = read("docs/reference/commands.md");
    let headings = commands.lines().filter_map(|line| {
        let (_, name) = line.split_once("hybrid-operator generate ")?;
        line.starts_with('#').then(|| name.trim_end_matches('`'))
    });
    let names: BTreeSet<&str> = headings.collect();
    assert!(names.len() > 7, "{names:?}");
    for name in names {
        let is_there = page.contains(&format!("`generate {name}`"));
        assert!(is_there, "docs/cli/generate.md has no `generate {name}`");
    }
}

#[test]
fn targets_of_make_in_the_documentation_exist() {
    let templates = "crates/hybrid-operator-cli/templates/project";
    let makefiles = ["Makefile", "targets.mk", "olm.mk"].map(read).join("\n")
        + &read(&format!("{templates}/Makefile.helm"))
        + &read(&format!("{templates}/Makefile.native"))
        + &read(&format!("{templates}/ci.mk"));
    let targets: BTreeSet<&str> = makefiles
        .lines()
        .filter(|line| !line.starts_with(['\t', '#', '.']))
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, rest)| !name.contains(['=', '$', ' ']) && !rest.starts_with('='))
        .map(|(name, _)| name)
        .collect();
    let mut found = BTreeSet::new();
    pages(root(), &mut found);
    let mut named = 0;
    for page in found
        .iter()
        .filter(|page| page.starts_with("docs") || page.parent() == Some(Path::new("")))
    {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        for part in text.split(['\n', '`', '(', '&', ';']) {
            let Some(words) = part.trim_start_matches(['$', ' ']).strip_prefix("make ") else {
                continue;
            };
            let is_target = |word: &&str| {
                let mut letters = word.chars();
                letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            };
            // In prose, `make` is a word.
            let in_code = text.contains(&format!("`make {words}"))
                || text.contains(&format!("\nmake {words}"))
                || text.contains(&format!("$ make {words}"));
            for target in words
                .split(' ')
                .take_while(is_target)
                .filter(|word| in_code && !word.is_empty())
            {
                named += 1;
                assert!(
                    targets.contains(target),
                    "{}: make {target}",
                    page.display()
                );
            }
        }
    }
    assert!(named > 20, "{named}");
}
