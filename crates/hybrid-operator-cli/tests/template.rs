//! Compares `hybrid-operator template` with Helm: `golden/NAME.args` has the arguments, one per
//! line, and `golden/NAME.out` Helm's standard output; the latter is missing if Helm fails. The
//! golden files are also compared with the pinned Helm. With the environment variable
//! `UPDATE_GOLDEN`, they are updated.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::{helm, skipped};

use support::{Done, PROGRAM, Project, Text as _, files, or_skip};

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
    paths.retain(|path| path.extension() == Some("args".as_ref()));
    paths.sort();
    let case = |path: &PathBuf| {
        let arguments = std::fs::read_to_string(path).unwrap();
        Case {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            arguments: arguments.lines().map(str::to_owned).collect(),
            golden: path.with_extension("out"),
        }
    };
    paths.iter().map(case).collect()
}

/// Runs `PROGRAM template ARGUMENTS` in the folder of the charts, without a cluster.
fn template(program: impl AsRef<Path>, arguments: &[impl AsRef<OsStr>]) -> Done {
    let output = Command::new(program.as_ref())
        .arg("template")
        .args(arguments)
        .current_dir(folder())
        .env_remove("HELM_NAMESPACE")
        .env("KUBECONFIG", folder().join("no-kubeconfig"))
        .output();
    Done::of(output.unwrap())
}

/// Returns our program and, if there is one, Helm.
fn programs() -> Vec<PathBuf> {
    let mut programs = vec![PathBuf::from(PROGRAM)];
    programs.extend(helm::ensure_or_skip().unwrap());
    programs
}

#[test]
fn output_is_equal_to_the_golden_files() {
    let mut wrong = Vec::new();
    for case in cases() {
        let found = template(PROGRAM, &case.arguments);
        let expected = std::fs::read_to_string(&case.golden).ok();
        // With `--debug`, the command prints the output and fails.
        let fails = expected.is_none() || case.name.ends_with("-debug");
        if found.out != expected.unwrap_or_default() || found.succeeds() == fails {
            wrong.push(format!("{}: {found:#?}", case.name));
        }
        let has_error = found.err.contains("Error: ");
        assert_eq!(fails, has_error, "{}: {}", case.name, found.err);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn golden_files_are_those_of_the_pinned_helm() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    for case in cases() {
        let found = template(&helm, &case.arguments);
        let given = found.code == Some(0) || case.name.ends_with("-debug");
        let golden = given.then_some(found.out);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            match golden {
                Some(golden) => std::fs::write(&case.golden, golden).unwrap(),
                None => drop(std::fs::remove_file(&case.golden)),
            }
        } else {
            let expected = std::fs::read_to_string(&case.golden).ok();
            assert_eq!(golden, expected, "{}", case.name);
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
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let mut wrong = Vec::new();
    for entry in entries {
        let chart = entry.unwrap().path().to_string_lossy().into_owned();
        let arguments = [chart, "--include-crds".to_owned()];
        // Helm runs before and after, so that timestamps differ between these two runs as well.
        let once = template(&helm, &arguments);
        let ours = template(PROGRAM, &arguments);
        let twice = template(&helm, &arguments);
        if ours.succeeds() != once.succeeds()
            || !equal_except_random_lines(&ours.out, &once.out, &twice.out)
        {
            wrong.push(arguments[0].clone());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns whether `ours` has the lines of `once`, except for lines that differ between two runs of
/// Helm.
fn equal_except_random_lines(ours: &str, once: &str, twice: &str) -> bool {
    let [ours, once, twice] = [ours, once, twice].map(|text| text.split('\n'));
    let same = |((a, b), c): ((&str, &str), &str)| a == b || b != c;
    ours.clone().count() == once.clone().count() && ours.zip(once).zip(twice).all(same)
}

#[test]
fn errors_say_how_to_fix_them() {
    let cases = "\
web no-such-chart => give a chart directory, a packaged chart
web charts/shop --bogus => unexpected argument '--bogus'
Web charts/shop => lower-case letters
web charts/shop --values https://example.com/v => download the file first
web charts/shop -s a.yaml => choose from templates/config.yaml,{end}
web charts/shop --set a => key \"a\" has no value
web charts/broken --set data=[ => Use --debug flag
 => required";
    for case in cases.lines() {
        let (arguments, words) = case.split_once(" => ").unwrap();
        let words = words.replace("{end}", " ");
        let words_given: Vec<&str> = arguments.split_whitespace().collect();
        let found = template(PROGRAM, &words_given);
        found.err.must_have(&words);
        let is_usage = !["web no", "web charts/broken", "web charts/shop -s"]
            .iter()
            .any(|start| arguments.starts_with(start));
        let code = if is_usage { 2 } else { 1 };
        assert_eq!(found.code, Some(code), "{arguments}");
        assert_eq!(found.out, "", "{arguments}");
    }
}

/// Flags of `helm template` that are refused, each with a word of the reason.
const REFUSED: [(&str, &str); 2] = [
    ("--post-renderer", "pipe the output"),
    ("--verify", "a directory cannot be verified"),
];

/// Returns the flags in the output of `helm template --help`, each with its type.
fn flags_of_helm(help: &str) -> Vec<(String, String)> {
    let flag = |line: &str| {
        let line = line.trim_start();
        let line = match line.split_once(", --") {
            Some((short, rest)) if short.len() == 2 => format!("--{rest}"),
            _ => line.to_owned(),
        };
        let (name, rest) = line.split_once(' ').filter(|_| line.starts_with("--"))?;
        let kind = rest.split_once("  ").map_or("", |(kind, _)| kind);
        // A flag whose value is optional: `--wait WaitStrategy[=watcher]`.
        let kind = kind.split('[').next().unwrap_or_default();
        Some((name.to_owned(), kind.to_owned()))
    };
    let mut flags: Vec<_> = help.lines().filter_map(flag).collect();
    // These are deprecated and not shown.
    for hidden in ["--validate", "--force", "--atomic", "--hide-notes"] {
        flags.push((hidden.to_owned(), String::new()));
    }
    flags.push(("--render-subchart-notes".to_owned(), String::new()));
    flags
}

/// Returns a value for a flag, but for those that need more than a local chart.
fn example(name: &str, kind: &str) -> Option<String> {
    let value = match (name, kind) {
        ("--help" | "--output-dir" | "--validate" | "--repo" | "--verify", _) => return None,
        ("--post-renderer" | "--ca-file" | "--cert-file" | "--key-file", _) => "",
        ("--api-versions", _) => "v1/Pod,batch/v1",
        ("--color" | "--colour", _) => "never",
        ("--dry-run", _) => "client",
        ("--kube-version", _) => "1.30",
        ("--name-template", _) => "a-{{ upper \"b\" | lower }}",
        ("--show-only", _) => "templates/config.yaml",
        ("--values", _) => "charts/shop/ci/prod-values.yaml",
        ("--set-file", _) => "greeting=charts/shop/files/shop.conf",
        ("--set" | "--set-string" | "--set-literal" | "--labels", _) => "greeting=1",
        ("--set-json", _) => "greeting=\"x\"",
        ("--wait", _) => "legacy",
        (_, "") => "true",
        (_, "duration") => "1m30s",
        (_, "int") => "3",
        (_, "float32") => "2.5",
        _ => "text",
    };
    Some(value.to_owned())
}

#[test]
fn every_flag_of_helm_template_does_the_same_or_is_refused_with_a_reason() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let flags = flags_of_helm(&template(&helm, &["--help"]).out);
    assert!(flags.len() > 60, "{flags:?}");
    let mut wrong = Vec::new();
    for (name, kind) in &flags {
        let Some(value) = example(name, kind) else {
            continue;
        };
        let arguments = ["charts/shop".to_owned(), format!("{name}={value}")];
        let (ours, theirs) = (template(PROGRAM, &arguments), template(&helm, &arguments));
        if ours.out != theirs.out || ours.code != theirs.code {
            wrong.push((arguments, ours.err));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, reason) in REFUSED {
        assert!(flags.iter().any(|(flag, _)| flag == name), "{name}");
        let value = if name == "--verify" { "true" } else { "x" };
        let refused = template(PROGRAM, &["charts/shop", &format!("{name}={value}")]);
        refused.err.must_have(reason);
        let code = if name == "--verify" { 1 } else { 2 };
        assert_eq!((refused.code, refused.out.len()), (Some(code), 0));
    }
}

#[test]
fn values_of_flags_without_an_effect_are_checked_as_in_helm() {
    let valid = "\
        --dry-run; --dry-run=true; --wait; --labels team=a,tier=b; --atomic=f --server-side=T; \
        --description - --devel; --output-dir=; --name-template=a -s templates/config.yaml";
    let invalid = "\
        --dry-run=none; --dry-run=server; --validate; --wait=later; --timeout 5; --qps many; \
        --color blue; --labels team; --labels owner=a; --force --force-conflicts; \
        --server-side=auto; --name-template=A; --name-template={{";
    let cases = |list: &'static str, is_valid| list.split("; ").map(move |flags| (flags, is_valid));
    for (flags, is_valid) in cases(valid, true).chain(cases(invalid, false)) {
        let mut arguments = vec!["charts/shop"];
        arguments.extend(flags.split(' '));
        for program in programs() {
            let found = template(&program, &arguments);
            let what = format!("{} {flags:?}: {}", program.display(), found.err);
            assert_eq!(found.succeeds(), is_valid, "{what}");
        }
    }
}

#[test]
fn the_output_directory_gets_the_files_that_helm_writes() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    for flags in [
        &[][..],
        &["--release-name", "--include-crds"],
        &["--no-hooks", "--include-crds"],
        &["--skip-tests", "--release-name=false"],
    ] {
        let folders = [PROGRAM.into(), helm.clone()].map(|program: PathBuf| {
            let target = tempfile::tempdir().unwrap();
            let charts = folder().join("charts");
            // The second run adds to and replaces files of the first.
            let printed = [(); 2].map(|()| {
                let mut command = Command::new(&program);
                command.args(["template", "web"]).arg(charts.join("shop"));
                command.args(["--output-dir", "out"]).args(flags);
                command.env("KUBECONFIG", charts.join("no-kubeconfig"));
                let found = command.current_dir(target.path()).output();
                Done::of(found.unwrap()).ok()
            });
            let files = files(target.path());
            assert!(files.len() > 2, "{files:?}");
            (printed, files)
        });
        assert_eq!(folders[0], folders[1], "{flags:?}");
    }
}

#[test]
fn an_output_directory_that_cannot_be_written_is_an_error_that_names_the_file() {
    let file = folder().join("charts/shop/Chart.yaml");
    let arguments = ["charts/shop", "--output-dir", file.to_str().unwrap()];
    let found = template(PROGRAM, &arguments);
    found.err.must_have("Chart.yaml/shop/templates/config.yaml");
    assert_eq!(found.code, Some(1));
    let arguments = "charts/shop --output-dir x -s templates/config.yaml";
    let found = template(PROGRAM, &arguments.split(' ').collect::<Vec<_>>());
    found.err.must_have("--show-only");
}

/// Makes a chart with one template.
fn chart(template: &str) -> Project {
    let metadata = "{apiVersion: v2, name: small, version: 1.0.0}";
    Project::with(&[("Chart.yaml", metadata), ("templates/a.yaml", template)])
}

#[test]
fn host_names_are_resolved_only_on_request() {
    let chart = chart("a: {{ getHostByName \"127.0.0.1\" | quote }}");
    let directory = chart.0.path().to_str().unwrap();
    for (arguments, expected) in [
        (&[directory][..], "a: \"\"\n"),
        (&[directory, "--enable-dns"], "a: \"127.0.0.1\"\n"),
    ] {
        for program in programs() {
            let text = template(program, arguments).out;
            assert!(text.ends_with(expected), "{text}");
        }
    }
}

#[test]
fn errors_show_the_contents_of_values_only_with_debug() {
    let chart = chart("a: {{ tpl .Values.text . }}");
    chart.write("values.yaml", "text: 'hunter2 {{ .a.b.c }}'");
    let directory = chart.0.path().to_str().unwrap();
    for (arguments, shown, hidden) in [
        (&[directory][..], "<a string of 20 bytes>", "hunter2"),
        (
            &[directory, "--debug"],
            "1 | hunter2 {{ .a.b.c }}",
            "a string of",
        ),
    ] {
        let found = template(PROGRAM, arguments);
        assert_eq!(found.code, Some(1));
        found.err.must_have(shown);
        found.err.must_lack(hidden);
    }
}

#[test]
fn help_shows_examples() {
    let help = template(PROGRAM, &["--help"]).ok();
    help.must_have("Examples:");
}

#[test]
fn renders_beyond_the_limits_are_refused_unless_flags_raise_them() {
    const LONG: &str = "\
{{- range until 1000 }}{{ range until 100 }}{{ $x := . }}{{ end }}{{ end }}
kind: A
x: {{ repeat 3000000 \"x\" | len }}
";
    let chart = chart(LONG);
    let run = |name: &str, flags: &str| {
        let mut command = Command::new(PROGRAM);
        command.arg(name).arg(chart.0.path()).args(flags.split(' '));
        let done = Done::of(command.output().unwrap());
        (done.code, done.out + &done.err)
    };
    for (command, code) in [("template", 1), ("lint", 3)] {
        for (limit, value, line) in [("memory", "2Mi", 3), ("time", "1ms", 1)] {
            let flag = format!("--limit-{limit}");
            let (ended, text) = run(command, &format!("{flag} {value}"));
            assert_eq!(ended, Some(code), "{command}: {text}");
            text.must_have(&format!("templates/a.yaml:{line}:"));
            text.must_have(&format!("(limit `{limit}`)"));
            text.must_have(&flag);
        }
    }
    let (code, text) = run("template", "--limit-memory=20Mi --limit-time=0");
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run("template", "--limit-memory=1");
    assert!(code == Some(2) && text.contains("at least 1Mi"), "{text}");
}
