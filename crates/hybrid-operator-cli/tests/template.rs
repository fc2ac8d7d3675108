//! Compares `hybrid-operator template` with Helm: `golden/NAME.args` has the arguments, one per
//! line, and `golden/NAME.out` Helm's standard output; the latter is missing if Helm fails. The
//! golden files are also compared with the pinned Helm. With the environment variable
//! `UPDATE_GOLDEN`, they are updated.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hybrid_operator_test::{helm, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hybrid-operator");

struct Case {
    name: String,
    arguments: Vec<String>,
    golden: PathBuf,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn cases() -> Vec<Case> {
    let entries = std::fs::read_dir(folder().join("golden")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "args")
    });
    paths.sort();
    let case = |path: &PathBuf| Case {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        arguments: std::fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect(),
        golden: path.with_extension("out"),
    };
    paths.iter().map(case).collect()
}

/// Runs `PROGRAM template ARGUMENTS` in the folder of the charts, without a cluster.
fn template(program: impl AsRef<Path>, arguments: &[String]) -> Output {
    Command::new(program.as_ref())
        .arg("template")
        .args(arguments)
        .current_dir(folder())
        .env_remove("HELM_NAMESPACE")
        .env("KUBECONFIG", folder().join("no-kubeconfig"))
        .output()
        .unwrap()
}

#[test]
fn output_is_equal_to_the_golden_files() {
    let mut wrong = Vec::new();
    for case in cases() {
        let found = template(PROGRAM, &case.arguments);
        let (text, stderr) = (
            String::from_utf8_lossy(&found.stdout),
            String::from_utf8_lossy(&found.stderr),
        );
        let expected = std::fs::read_to_string(&case.golden).ok();
        // With `--debug`, the command prints the output and fails.
        let fails = expected.is_none() || case.name.ends_with("-debug");
        let code = if fails { Some(1) } else { Some(0) };
        if text != expected.unwrap_or_default() || found.status.code() != code {
            wrong.push(format!(
                "{}: {:?}\n{text}\n{stderr}",
                case.name, found.status
            ));
        }
        assert_eq!(fails, stderr.contains("Error: "), "{}: {stderr}", case.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn golden_files_are_those_of_the_pinned_helm() {
    let Some(helm) = helm::ensure_or_skip().unwrap() else {
        return;
    };
    for case in cases() {
        let found = template(&helm, &case.arguments);
        let given = found.status.success() || case.name.ends_with("-debug");
        let golden = given.then(|| String::from_utf8(found.stdout).unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            match golden {
                Some(golden) => std::fs::write(&case.golden, golden).unwrap(),
                None => drop(std::fs::remove_file(&case.golden)),
            }
        } else {
            assert_eq!(
                golden,
                std::fs::read_to_string(&case.golden).ok(),
                "{}",
                case.name
            );
        }
    }
}

#[test]
fn charts_of_the_conformance_folder_render_as_with_helm() {
    let charts = match std::env::var_os("CONFORMANCE") {
        Some(folder) => PathBuf::from(folder),
        None => folder().join("../../../../shared/conformance"),
    }
    .join("charts/archives");
    let Ok(entries) = std::fs::read_dir(&charts) else {
        skipped(1, &"comparison of charts with helm: no conformance folder");
        return;
    };
    let Some(helm) = helm::ensure_or_skip().unwrap() else {
        return;
    };
    let mut wrong = Vec::new();
    for entry in entries {
        let chart = entry.unwrap().path().to_string_lossy().into_owned();
        let arguments = [chart, "--include-crds".to_owned()];
        // Helm runs before and after, so that timestamps differ between these two runs as well.
        let (once, ours, twice) = (
            template(&helm, &arguments),
            template(PROGRAM, &arguments),
            template(&helm, &arguments),
        );
        if ours.status.success() != once.status.success()
            || !equal_except_random_lines(&ours.stdout, &once.stdout, &twice.stdout)
        {
            wrong.push(arguments[0].clone());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns whether `ours` has the lines of `once`, except for lines that differ between two runs of
/// Helm.
fn equal_except_random_lines(ours: &[u8], once: &[u8], twice: &[u8]) -> bool {
    let lines = |text: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(text)
            .split('\n')
            .map(str::to_owned)
            .collect()
    };
    let (ours, once, twice) = (lines(ours), lines(once), lines(twice));
    let same = |((a, b), c): ((&String, &String), &String)| a == b || b != c;
    ours.len() == once.len() && ours.iter().zip(&once).zip(&twice).all(same)
}

#[test]
fn errors_say_how_to_fix_them() {
    for (arguments, words) in [
        (
            &["web", "no-such-chart"][..],
            "give a chart directory or a packaged chart",
        ),
        (
            &["web", "charts/shop", "--bogus"],
            "unexpected argument '--bogus'",
        ),
        (&["Web", "charts/shop"], "lower-case letters"),
        (
            &["web", "charts/shop", "--values", "https://example.com/v"],
            "download the file first",
        ),
        (
            &["web", "charts/shop", "-s", "a.yaml"],
            "choose from templates/config.yaml, ",
        ),
        (
            &["web", "charts/shop", "--set", "a"],
            "key \"a\" has no value",
        ),
        (
            &["web", "charts/broken", "--set", "data=["],
            "Use --debug flag",
        ),
        (&[], "required"),
    ] {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let found = template(PROGRAM, &arguments);
        let stderr = String::from_utf8_lossy(&found.stderr);
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
        // A command line that cannot be parsed has a code of its own.
        let code = if stderr.contains("Usage:") { 2 } else { 1 };
        assert_eq!(
            (found.status.code(), found.stdout.len()),
            (Some(code), 0),
            "{arguments:?}"
        );
    }
}

#[test]
fn help_shows_examples() {
    let found = template(PROGRAM, &["--help".to_owned()]);
    assert!(found.status.success());
    assert!(String::from_utf8_lossy(&found.stdout).contains("Examples:"));
}

#[test]
fn renders_beyond_the_limits_are_refused_unless_flags_raise_them() {
    const LONG: &str = "\
{{- range until 1000 }}{{ range until 100 }}{{ $x := . }}{{ end }}{{ end }}
kind: A
x: {{ repeat 3000000 \"x\" | len }}
";
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("templates")).unwrap();
    write("Chart.yaml", "{apiVersion: v2, name: long, version: 0.1.0}");
    write("templates/a.yaml", LONG);
    let run = |command: &str, flags: &[&str]| {
        let found = Command::new(PROGRAM)
            .arg(command)
            .arg(folder.path())
            .args(flags)
            .output()
            .unwrap();
        let text = [found.stdout, found.stderr].concat();
        (found.status.code(), String::from_utf8(text).unwrap())
    };
    for command in ["template", "lint"] {
        for (flags, words) in [
            (
                ["--limit-memory", "2Mi"],
                ["templates/a.yaml:3:", "(limit `memory`)", "--limit-memory"],
            ),
            (
                ["--limit-time", "1ms"],
                ["templates/a.yaml:1:", "(limit `time`)", "--limit-time"],
            ),
        ] {
            let (code, text) = run(command, &flags);
            assert_eq!(code, Some(1), "{command}: {text}");
            assert!(
                words.iter().all(|word| text.contains(word)),
                "{command}: {text}"
            );
        }
    }
    let (code, text) = run("template", &["--limit-memory=20Mi", "--limit-time=0"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run("template", &["--limit-memory=1"]);
    assert!(code == Some(2) && text.contains("at least 1Mi"), "{text}");
}
