//! Runs the vectors of the conformance folder that use no functions of Helm itself.
//!
//! The folder is `../shared/conformance` beside the workspace, or `$CONFORMANCE`; without it the
//! test is skipped with a message.
#![allow(clippy::print_stdout, reason = "the tally is printed for the reader")]

mod support;

use std::io::Write;
use std::path::PathBuf;

use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, Value, sprig};
use support::{json_to_tree, parse_error, reformat, root};

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
    /// Errors whose text differs from Go's, which is allowed.
    other_words: usize,
}

fn folder() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance");
    let folder = std::env::var_os("CONFORMANCE").map_or_else(|| beside.into(), PathBuf::from);
    folder.join("functions").is_dir().then_some(folder)
}

/// Functions that only charts have, and one that Helm redefines.
const HELM_ONLY: [&str; 6] = [
    ".Files",
    ".Capabilities",
    ".Chart",
    ".Template",
    ".Subcharts",
    "fromJson",
];

/// Parts of a vector that only Helm reads.
const HELM_INPUT: &str = "templates files valuesYaml release kubeVersion apiVersions";

fn run(case: &serde_json::Value, tally: &mut Tally) {
    let needs_helm = |template: &str| {
        HELM_ONLY.iter().any(|name| template.contains(name))
            || HELM_INPUT.split(' ').any(|key| !case[key].is_null())
    };
    let template = case["template"].as_str();
    let Some(template) = template.filter(|template| !needs_helm(template)) else {
        tally.skipped += 1;
        return;
    };
    let mut set = TemplateSet::new("gotpl", Funcs::new().with(&sprig::FUNCS).into());
    let name = "chart/templates/main.yaml";
    let mut out = Buffer::new();
    let error = match set.parse(name, template) {
        Err(error) if error.message().contains("not defined") => {
            tally.skipped += 1;
            return;
        }
        Err(error) => Some(parse_error(&error)),
        Ok(_) => {
            let values = json_to_tree(&case["values"]);
            let root = Value::from(&root(&values));
            let mut session = Session::new(Limits::default());
            session
                .execute(&set, name, &root, &mut out)
                .err()
                .map(|error| error.to_string())
        }
    };
    let id = case["id"].as_str().unwrap_or_default();
    let got = String::from_utf8_lossy(&out).replace("<no value>", "");
    match (case["output"].as_str(), case["error"].as_str(), error) {
        (Some(wanted), _, None) if wanted == got => tally.passed += 1,
        (None, Some(wanted), Some(error)) => {
            tally.passed += 1;
            if wanted != error && wanted != reformat(&error) {
                tally.other_words += 1;
                if std::env::var_os("SHOW_WORDS").is_some() {
                    println!("{id} {template}\n  want {wanted:?}\n  got  {error:?}");
                }
            }
        }
        (None, None, None)
            if case["outputBase64"].as_str()
                == Some(data_encoding::BASE64.encode(&out).as_str()) =>
        {
            tally.passed += 1;
        }
        (output, wanted, error) => tally.failed.push(format!(
            "{id}: {template}\n  want {:?}\n  got  {:?}",
            output.or(wanted).unwrap_or_default(),
            error.unwrap_or(got),
        )),
    }
}

#[test]
fn vectors_render_as_in_helm() {
    let Some(folder) = folder() else {
        // Written past libtest, which hides the output of passing tests.
        let reason = "SKIPPED (1): go-template's comparison with Helm: no conformance folder";
        let _ = writeln!(std::io::stderr(), "{reason}");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(folder.join("functions"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some("jsonl".as_ref()))
        .collect();
    files.sort();
    let mut failed = Vec::new();
    for file in files {
        let mut tally = Tally::default();
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            run(&serde_json::from_str(line).unwrap(), &mut tally);
        }
        println!(
            "{:20} {:5} passed {:4} failed {:5} skipped {:4} with different wording",
            file.file_stem().unwrap_or_default().to_string_lossy(),
            tally.passed,
            tally.failed.len(),
            tally.skipped,
            tally.other_words,
        );
        failed.extend(tally.failed);
    }
    let (count, failed) = (failed.len(), failed.join("\n"));
    assert!(failed.is_empty(), "{count} failed:\n{failed}");
}
