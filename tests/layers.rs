//! Checks that the modules of the framework depend on each other in one direction only, and that
//! few of them use a Kubernetes client.
//!
//! The tables below are the architecture that `docs/architecture.md` describes. They are compared
//! with what production code in `crates/hybrid-operator/src` uses; tests may use anything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Modules from top to bottom, each with the modules it may use, which are all in later rows.
const MAY_USE: &str = "\
operator: helm options
helm: action options process release_memory render_pool release values watches reasons
options: watches
process: release release_memory render_pool
action: release watches reasons
release:
release_memory:
render_pool:
values: watches
watches:
reasons:
";

/// Exceptions to that direction, each with its reason.
const EXCEPTIONS: &str = "\
helm tests: in tests, a condition that is set must be in the reference
";

fn may_use() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = MAY_USE.lines().map(|row| row.split_once(':').unwrap());
    rows.map(|(module, used)| (module, used.split_whitespace().collect()))
        .collect()
}

fn exceptions() -> Vec<(&'static str, &'static str, &'static str)> {
    let rows = EXCEPTIONS.lines().map(|row| {
        let (modules, reason) = row.split_once(": ").unwrap();
        let (from, to) = modules.split_once(' ').unwrap();
        (from, to, reason)
    });
    rows.collect()
}

/// Files that may name [`kube::Client`].
const HOLD_A_CLIENT: &[&str] = &[
    "release/index.rs",
    // The key of the proofs of records.
    "release/proof.rs",
    "release/records.rs",
    "release/store.rs",
    // Reads the logs of a hook's Pods before they are deleted.
    "action/hook_logs.rs",
    // Holds the connections of a chart controller and publishes its events.
    "helm/access.rs",
    "helm/events.rs",
    "helm/interest.rs",
    // Writes custom resources.
    "helm/resources.rs",
    // Read a cluster for the command, which shows releases and changes nothing.
    "helm/preview.rs",
    "helm/records.rs",
    // Given to the extensions of an operator.
    "helm/extend.rs",
];

#[test]
fn modules_use_only_modules_below_them() {
    let (may_use, exceptions) = (may_use(), exceptions());
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for (path, text) in sources() {
        let module = top_module(&path);
        let Some((_, allowed)) = may_use.iter().find(|(name, _)| *name == module) else {
            assert_eq!(module, "lib", "{path}: the module is not in the table");
            continue;
        };
        for used in used_modules(&path, &text) {
            let exception = exceptions
                .iter()
                .position(|(from, to, _)| *from == module && *to == used);
            needed.extend(exception);
            if used != module && exception.is_none() && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{path}: {module} may not use {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unneeded: Vec<_> = (0..exceptions.len())
        .filter(|i| !needed.contains(i))
        .map(|i| exceptions[i])
        .collect();
    assert!(unneeded.is_empty(), "no longer needed: {unneeded:#?}");
}

#[test]
fn module_table_has_no_cycle() {
    let may_use = may_use();
    for (row, (module, used)) in may_use.iter().enumerate() {
        let below: Vec<&str> = may_use[row + 1..].iter().map(|(name, _)| *name).collect();
        for other in used {
            assert!(below.contains(other), "{module} uses {other}");
        }
    }
}

#[test]
fn only_named_files_hold_a_client() {
    let wrong: Vec<String> = sources()
        .into_iter()
        .filter(|(path, text)| names_client(text) && !may_hold_a_client(path))
        .map(|(path, _)| path)
        .collect();
    assert!(wrong.is_empty(), "these files name kube::Client: {wrong:?}");
}

#[test]
fn checks_find_violations() {
    let text = "\
//! See [`crate::options`].
use crate::manager::{Controller, ControllerContext};
use crate::{action::deploy, cluster};
use super::super::release;
use super::error; // crate::native

fn client(kind: HelmClient) -> crate::client::Counts {}

#[cfg(test)]
mod tests {
    use crate::values;
    use kube::Client;
}
";
    let production = production_code(text);
    let used = used_modules("helm/observe.rs", &production);
    assert_eq!(
        used.iter().map(String::as_str).collect::<Vec<_>>(),
        ["action", "client", "cluster", "manager", "release"]
    );
    assert_eq!(
        used_modules("helm/mod.rs", "use super::options::Options;"),
        BTreeSet::from(["options".to_owned()])
    );
    assert!(!names_client(&production));
    assert!(names_client("struct Plan { client: kube::Client }"));
    assert!(may_hold_a_client("release/proof.rs") && !may_hold_a_client("helm/plan.rs"));
}

/// Returns the paths below `src` and their production code.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/hybrid-operator/src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    folders.push(path);
                }
            } else if !path.ends_with("tests.rs") {
                let relative = path.strip_prefix(&root).unwrap().to_str().unwrap();
                let text = production_code(&fs::read_to_string(&path).unwrap());
                found.push((relative.to_owned(), text));
            }
        }
    }
    assert!(
        found.len() > 50,
        "only {} files in {}",
        found.len(),
        root.display()
    );
    found
}

/// Returns a file without its comments and without the tests at its end.
fn production_code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end]
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

fn top_module(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or(path)
}

/// Returns the top-level modules that the code names, in paths from `crate` or via `super`.
fn used_modules(path: &str, text: &str) -> BTreeSet<String> {
    let depth = path.trim_end_matches("/mod.rs").split('/').count();
    let root = "super::".repeat(depth);
    let mut used = BTreeSet::new();
    for prefix in ["crate::", root.as_str()] {
        for (at, _) in text.match_indices(prefix) {
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
                continue;
            }
            let rest = &text[at + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(group) => used.extend(group_heads(group)),
                None => used.extend(identifier(rest)),
            }
        }
    }
    used
}

/// Returns the first names of the paths in `{a::b, c}`, given the text after the brace.
fn group_heads(group: &str) -> Vec<String> {
    let (mut heads, mut nested, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => nested += 1,
            ',' | '}' if nested == 0 => {
                heads.extend(identifier(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => nested -= 1,
            _ => {}
        }
    }
    heads
}

/// Returns the module name at the start of a path. A capitalised name is a type of the crate root.
fn identifier(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let name = &text[..end];
    name.starts_with(char::is_lowercase)
        .then(|| name.to_owned())
        .filter(|name| name != "super")
}

fn names_client(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == "Client")
}

fn may_hold_a_client(path: &str) -> bool {
    HOLD_A_CLIENT.contains(&path)
}
