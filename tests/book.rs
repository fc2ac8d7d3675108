//! Checks the documentation without a network: every link between pages and to files of the repository
//! leads somewhere, headings included; the book has every page once and stays short; and its numbers are those of
//! `docs/numbers.toml`.

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
    let page = Path::new("docs/tutorial/native.md");
    for (link, broken) in [
        ("https://example.com/x", false),
        ("charts.md", false),
        ("charts.md#break-it", false),
        ("#a-kind-in-rust", false),
        ("none.md", true),
        ("charts.md#none", true),
        ("#none", true),
        ("../reference/", true),
        ("../../README.md", true),
        ("../../../README.md", true),
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
    let demo = read("docs/tutorial/start.md");
    for line in code(&readme, "console")[0].lines() {
        assert!(demo.contains(line), "{line}");
    }
}

/// Returns the words of a text without blocks of code.
fn words(text: &str) -> Vec<&str> {
    let lines = prose(text).into_iter();
    lines.flat_map(str::split_whitespace).collect()
}

/// Returns the pages of the book by the part in which `SUMMARY.md` lists them. Those for contributors follow the
/// book, and do not belong to it.
fn parts_of_the_book() -> BTreeMap<String, Vec<String>> {
    let summary = read("docs/SUMMARY.md");
    let parts = summary.split("\n# ").skip(1);
    let parts = parts.map(|part| {
        let (heading, pages) = part.split_once('\n').unwrap();
        let pages = links(pages).into_iter().map(|page| format!("docs/{page}"));
        (heading.to_owned(), pages.collect())
    });
    let mut parts: BTreeMap<String, Vec<String>> = parts.collect();
    parts.remove("For contributors").unwrap();
    let names: Vec<&str> = parts.keys().map(String::as_str).collect();
    assert_eq!(names, ["Explanation", "Guides", "Reference", "Tutorial"]);
    parts
}

/// Pages are looked up in the reference and read elsewhere.
#[test]
fn the_book_has_at_most_24_pages_of_fewer_than_1500_words() {
    let mut parts = parts_of_the_book();
    let count: usize = parts.values().map(Vec::len).sum();
    assert!(count <= 24, "{count} pages");
    parts.remove("Reference").unwrap();
    let pages = parts.values().flatten();
    let counted = pages.map(|page| (words(&read(page)).len(), page));
    let long: Vec<_> = counted.filter(|(count, _)| *count >= 1500).collect();
    assert!(long.is_empty(), "{long:?}");
}

/// Returns the numbers of a text that have a unit, such as `36.8 times`.
fn numbers(text: &str) -> BTreeSet<String> {
    let units = ["times", "KiB", "MiB", "GiB", "MB", "GB", "ms", "requests"];
    let words: Vec<&str> = words(text)
        .into_iter()
        .map(|word| word.trim_matches(['(', ')', '*', '|', ',', '.', ';', ':']))
        .collect();
    let pairs = words.windows(2).filter(|pair| {
        let is_number = pair[0].starts_with(|c: char| c.is_ascii_digit())
            && pair[0].ends_with(|c: char| c.is_ascii_digit())
            && !pair[0].contains(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        // Seconds without fractions are times that somebody has chosen.
        is_number && (units.contains(&pair[1]) || pair[1] == "s" && pair[0].contains('.'))
    });
    pairs.map(|pair| pair.join(" ")).collect()
}

/// Returns the numbers of `docs/numbers.toml`, each with its table and its key.
fn known_numbers() -> Vec<(String, String, String)> {
    let mut table = String::new();
    let mut found = Vec::new();
    for line in read("docs/numbers.toml").lines() {
        if let Some(name) = line.strip_prefix('[') {
            name.trim_matches(['"', ']']).clone_into(&mut table);
        } else if let Some((key, value)) = line.split_once(" = ") {
            found.push((table.clone(), key.to_owned(), value.replace('"', "")));
        }
    }
    found
}

#[test]
fn numbers_in_prose_are_those_of_the_file_of_numbers() {
    assert_eq!(
        numbers("| 1,683 requests | (36.8 times) 2 s 0.2 s. 3 KiB\n```\n4 MiB\n```\n"),
        ["0.2 s", "1,683 requests", "3 KiB", "36.8 times"]
            .map(str::to_owned)
            .into()
    );
    let mut parts = parts_of_the_book();
    parts.remove("Reference").unwrap();
    let pages = parts.into_values().flatten();
    let pages: Vec<String> = pages.chain(["README.md".to_owned()]).collect();
    let known = known_numbers();
    let is_known = |number: &String| known.iter().any(|(_, _, value)| value == number);
    let mut prose = String::new();
    for page in &pages {
        let text = read(page);
        let unknown: Vec<String> = numbers(&text)
            .into_iter()
            .filter(|found| !is_known(found))
            .collect();
        assert!(unknown.is_empty(), "{page}: {unknown:?}");
        prose += &words(&text).join(" ");
    }
    let operators = known.iter().find(|(_, key, _)| key == "public_operators");
    for page in ["README.md", "docs/explanation/comparison.md"] {
        let (_, _, operators) = operators.unwrap();
        assert!(read(page).contains(operators), "{page}: {operators}");
    }
    for (table, key, value) in &known {
        assert!(prose.contains(value), "no page has {key}: {value}");
        let number = value.split(' ').next().unwrap();
        let has_it = |page: &str| {
            let text = read(page);
            let mut words = text.split_whitespace();
            words.any(|word| word.trim_matches(['*', '|', '(', ')', ',']) == number)
        };
        assert!(table == "other" || has_it(table), "{table} has no {key}");
    }
}

#[test]
fn measured_numbers_are_those_of_the_benchmarks() {
    let benchmarks = read("docs/contributing/benchmarks.md");
    let cell = |name: &str, column: usize| {
        let mut lines = benchmarks.lines();
        let row = lines.find_map(|line| line.strip_prefix(&format!("| {name} |")));
        let cell = row.unwrap().split('|').nth(column).unwrap();
        cell.trim().trim_matches('*').to_owned()
    };
    let known = known_numbers();
    let manager = "bare manager, Go with controller-runtime";
    let example = "`memcached-operator run`, one chart and one native controller";
    for (key, row, column) in [
        ("render", "render, chart compiled", 2),
        ("render_least", "render, chart compiled", 3),
        ("load", "load, compile and render", 2),
        ("ready", example, 2),
        ("memory", example, 5),
        ("manager_ready", manager, 2),
        ("manager_memory", manager, 5),
        ("pod_1000", "1000", 4),
        ("pod_1000_most", "1000", 5),
        ("pod_10000", "10000", 4),
        ("pod_10000_most", "10000", 5),
    ] {
        let (_, _, value) = known.iter().find(|(_, name, _)| name == key).unwrap();
        assert_eq!(value.split(' ').next(), Some(&*cell(row, column)), "{key}");
    }
    // The allocator of the benchmark is not that of images.
    let text = words(&benchmarks).join(" ");
    assert!(text.contains("a render takes 1.7 times as long, and loading and rendering 2.3 times"));
}

#[test]
fn every_generator_is_in_the_table_of_generators() {
    let page = read("docs/reference/cli.md");
    let commands = read("docs/reference/commands.md");
    let headings = commands.lines().filter_map(|line| {
        let (_, name) = line.split_once("hybrid-operator generate ")?;
        line.starts_with('#').then(|| name.trim_end_matches('`'))
    });
    let names: BTreeSet<&str> = headings.collect();
    assert!(names.len() > 7, "{names:?}");
    for name in names {
        let is_there = page.contains(&format!("`generate {name}`"));
        assert!(is_there, "docs/reference/cli.md has no `generate {name}`");
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
