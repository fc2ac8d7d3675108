//! Checks that the files of a crate import each other in one direction, and that few of them use a Kubernetes
//! client.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree, Visibility};

/// Crates that are checked.
const CRATES: [&str; 2] = ["helm-release", "hybrid-operator"];
/// Number of files that may import each other in a circle.
const CIRCLE: usize = 3;

/// Files that may name [`kube::Client`].
const HOLD_A_CLIENT: &[&str] = &[
    // Holds the connections of the releases of a controller.
    "engine/access.rs",
    "engine/interest.rs",
    // Connects a program.
    "helm.rs",
    // Read releases for the command, which changes nothing.
    "records.rs",
    "release/index.rs",
    // The key of the proofs of records.
    "release/proof.rs",
    "release/records.rs",
    "release/store.rs",
    // Reads the logs of a hook's Pods before they are deleted.
    "action/hook_logs.rs",
    // Writes custom resources.
    "helm/resources.rs",
    // Reads a cluster for the command, which changes nothing.
    "helm/preview.rs",
    // Reads the records of a release for a check.
    "helm/admission/process.rs",
    // Given to the extensions of an operator.
    "helm/extend.rs",
];

#[test]
fn no_import_circle_has_more_than_three_files() {
    for name in CRATES {
        let circles = circles(&sources(name));
        assert!(circles.is_empty(), "{name}: {circles:#?}");
    }
}

#[test]
fn only_named_files_hold_a_client() {
    let sources = CRATES.iter().flat_map(|name| sources(name));
    let wrong: Vec<String> = sources
        .filter(|(path, text)| names_client(text) && !HOLD_A_CLIENT.contains(&&**path))
        .map(|(path, _)| path)
        .collect();
    assert!(wrong.is_empty(), "these files name kube::Client: {wrong:?}");
}

#[test]
fn checks_find_violations() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let mut files = vec![
        file("lib.rs", "mod a; mod b;"),
        file(
            "a/mod.rs",
            "mod c; mod d; pub use c::C; use crate::b::{self as other, B};",
        ),
        file("a/c.rs", "pub struct C; fn f() -> super::d::D { todo!() }"),
        file(
            "a/d.rs",
            "pub struct D; #[cfg(test)] mod tests { use crate::b::B; }",
        ),
        file(
            "b.rs",
            "pub struct B; use crate::{a::C}; #[cfg(test)] use crate::a::f;",
        ),
    ];
    assert_eq!(circles(&files), Vec::<Vec<String>>::new());
    files[3].1 = "impl Into<crate::a::E> for D {}".to_owned();
    files[4].1 = "fn g() { crate::a::C }".to_owned();
    let expected = ["a/c.rs", "a/d.rs", "a/mod.rs", "b.rs"];
    assert_eq!(circles(&files), [expected]);
    assert!(names_client("struct Plan { client: kube::Client }"));
    assert!(!names_client("fn client(kind: HelmClient) {}"));
}

/// Returns the paths below `src` of a crate and the texts of their production code.
fn sources(name: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{name}/src"));
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
                let relative = path.strip_prefix(&root).unwrap().to_str().unwrap();
                let text = fs::read_to_string(&path).unwrap();
                let end = text.find("#[cfg(test)]\nmod tests {");
                let text = text[..end.unwrap_or(text.len())].to_owned();
                found.push((relative.to_owned(), text));
            }
        }
    }
    assert!(
        found.len() > 50,
        "{} has {} files",
        root.display(),
        found.len()
    );
    found
}

/// Names from the root of the crate.
type Names = Vec<String>;

/// Returns the groups of more than [`CIRCLE`] files that reach each other by imports.
fn circles(files: &[(String, String)]) -> Vec<Vec<String>> {
    let modules = files.iter().map(|(path, _)| {
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let names = module.split('/').filter(|name| *name != "lib");
        names.map(ToOwned::to_owned).collect()
    });
    let modules: Vec<Names> = modules.collect();
    let read = |(module, (_, text)): (&Names, &(String, String))| {
        let mut imports = Imports {
            modules: &modules,
            module: module.clone(),
            used: Vec::new(),
            exported: BTreeMap::new(),
        };
        imports.visit_file(&syn::parse_file(text).unwrap());
        (imports.used, imports.exported)
    };
    let (used, exported): (Vec<_>, Vec<_>) = modules.iter().zip(files).map(read).unzip();
    let exported: BTreeMap<Names, Names> = exported.into_iter().flatten().collect();
    let file_of = |mut names: Names| {
        while let Some(original) = exported.get(&names) {
            names.clone_from(original);
        }
        let found = |names: &[String]| modules.iter().position(|module| module[..] == *names);
        (1..=names.len()).rev().find_map(|end| found(&names[..end]))
    };
    let mut reached: Vec<BTreeSet<usize>> = used
        .into_iter()
        .map(|used| used.into_iter().filter_map(file_of).collect())
        .collect();
    for middle in 0..files.len() {
        let beyond = reached[middle].clone();
        for reached in &mut reached {
            if reached.contains(&middle) {
                reached.extend(&beyond);
            }
        }
    }
    let circle = |file: usize| {
        let others = reached[file].iter().copied();
        let members = others.filter(|other| reached[*other].contains(&file));
        members.collect::<BTreeSet<usize>>()
    };
    let circles: BTreeSet<_> = (0..files.len()).map(circle).collect();
    let circles = circles.into_iter().filter(|circle| circle.len() > CIRCLE);
    let named = circles.map(|circle| {
        let mut names: Vec<_> = circle
            .into_iter()
            .map(|file| files[file].0.clone())
            .collect();
        names.sort();
        names
    });
    named.collect()
}

/// Imports of the production code of a file.
struct Imports<'m> {
    modules: &'m [Names],
    module: Names,
    used: Vec<Names>,
    /// Names that it exports for others, and the originals.
    exported: BTreeMap<Names, Names>,
}

impl Imports<'_> {
    /// Returns names from the root of the crate; `None` if they are of another crate.
    fn absolute(&self, names: &[String]) -> Option<Names> {
        let (first, rest) = names.split_first()?;
        let mut base = self.module.clone();
        match first.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                base.pop();
                let more = rest.iter().take_while(|name| *name == "super").count();
                base.truncate(base.len() - more);
                return Some([&base, &rest[more..]].concat());
            }
            _ => {
                base.push(first.clone());
                self.modules.contains(&base).then_some(())?;
            }
        }
        Some([&base, rest].concat())
    }

    fn import(&mut self, tree: &UseTree, before: &[String], exports: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (names, known_as) = match tree {
            UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), exports),
            UseTree::Group(group) => {
                let items = group.items.iter();
                return items.for_each(|tree| self.import(tree, before, exports));
            }
            UseTree::Name(name) if name.ident == "self" => (before.to_vec(), None),
            UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            UseTree::Rename(name) if name.ident == "self" => (before.to_vec(), None),
            UseTree::Rename(name) => (with(&name.ident), Some(name.rename.to_string())),
            UseTree::Glob(_) => (before.to_vec(), None),
        };
        let Some(names) = self.absolute(&names) else {
            return;
        };
        if let Some(known_as) = known_as.filter(|_| exports) {
            let known_as = [&self.module[..], &[known_as]].concat();
            self.exported.insert(known_as, names);
        } else {
            self.used.push(names);
        }
    }
}

impl<'a> Visit<'a> for Imports<'_> {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_for_tests(&item.attrs) {
            let exports = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, &[], exports);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Names = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if names.len() > 1 {
            self.used.extend(self.absolute(&names));
        }
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let mut lists = attributes
        .iter()
        .filter_map(|one| one.meta.require_list().ok());
    lists.any(|list| list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}

fn names_client(text: &str) -> bool {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let mut words = lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| word == "Client")
}
