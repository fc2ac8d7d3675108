//! Compares `hybrid-operator template` with Helm: `golden/NAME.args` has the arguments, one per
//! line, and `golden/NAME.out` Helm's standard output; the latter is missing if Helm fails. The
//! golden files are also compared with the pinned Helm. With the environment variable
//! `UPDATE_GOLDEN`, they are updated.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hybrid_operator_test::{helm, skipped};

use support::{PROGRAM, Text as _, or_skip};

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
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
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
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
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
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let found = template(PROGRAM, &arguments);
        let stderr = String::from_utf8_lossy(&found.stderr);
        assert!(stderr.contains(&words), "{arguments:?}: {stderr}");
        // A command line that cannot be parsed has a code of its own.
        let code = if stderr.contains("Usage:") { 2 } else { 1 };
        assert_eq!(
            (found.status.code(), found.stdout.len()),
            (Some(code), 0),
            "{arguments:?}"
        );
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
    let usage = template(&helm, &["--help".to_owned()]);
    let flags = flags_of_helm(&String::from_utf8(usage.stdout).unwrap());
    assert!(flags.len() > 60, "{flags:?}");
    let mut wrong = Vec::new();
    for (name, kind) in &flags {
        let Some(value) = example(name, kind) else {
            continue;
        };
        let arguments = ["charts/shop".to_owned(), format!("{name}={value}")];
        let (ours, theirs) = (template(PROGRAM, &arguments), template(&helm, &arguments));
        if ours.stdout != theirs.stdout || ours.status.code() != theirs.status.code() {
            let stderr = String::from_utf8_lossy(&ours.stderr).into_owned();
            wrong.push((arguments, stderr));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, reason) in REFUSED {
        assert!(flags.iter().any(|(flag, _)| flag == name), "{name}");
        let value = if name == "--verify" { "true" } else { "x" };
        let refused = template(
            PROGRAM,
            &["charts/shop".to_owned(), format!("{name}={value}")],
        );
        let stderr = String::from_utf8_lossy(&refused.stderr);
        stderr.must_have(reason);
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
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
        let mut arguments = vec!["charts/shop".to_owned()];
        arguments.extend(flags.split(' ').map(str::to_owned));
        let mut programs = vec![PathBuf::from(PROGRAM)];
        programs.extend(helm::ensure_or_skip().unwrap());
        for program in programs {
            let found = template(&program, &arguments);
            let stderr = String::from_utf8_lossy(&found.stderr);
            assert_eq!(
                found.status.success(),
                is_valid,
                "{} {flags:?}: {stderr}",
                program.display()
            );
        }
    }
}

/// Returns the files below a directory with their contents.
fn files_below(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    files.sort();
    files
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
                let found = command.current_dir(target.path()).output().unwrap();
                assert!(found.status.success(), "{found:?}");
                String::from_utf8(found.stdout).unwrap()
            });
            let files = files_below(target.path()).into_iter();
            let files: Vec<_> = files
                .map(|(path, text)| (path.strip_prefix(target.path()).unwrap().to_owned(), text))
                .collect();
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
    let found = template(PROGRAM, &arguments.map(str::to_owned));
    let stderr = String::from_utf8_lossy(&found.stderr);
    stderr.must_have("Chart.yaml/shop/templates/config.yaml");
    assert_eq!(found.status.code(), Some(1));
    let arguments = [
        "charts/shop",
        "--output-dir",
        "x",
        "-s",
        "templates/config.yaml",
    ];
    let found = template(PROGRAM, &arguments.map(str::to_owned));
    assert!(String::from_utf8_lossy(&found.stderr).contains("--show-only"));
}

#[test]
fn host_names_are_resolved_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path();
    std::fs::create_dir(chart.join("templates")).unwrap();
    std::fs::write(
        chart.join("Chart.yaml"),
        "{apiVersion: v2, name: dns, version: 1.0.0}",
    )
    .unwrap();
    let text = "a: {{ getHostByName \"127.0.0.1\" | quote }}";
    std::fs::write(chart.join("templates/a.yaml"), text).unwrap();
    for (flags, expected) in [
        (&[][..], "a: \"\"\n"),
        (&["--enable-dns"], "a: \"127.0.0.1\"\n"),
    ] {
        let mut arguments = vec![chart.to_string_lossy().into_owned()];
        arguments.extend(flags.iter().map(ToString::to_string));
        let mut programs = vec![PathBuf::from(PROGRAM)];
        programs.extend(helm::ensure_or_skip().unwrap());
        for program in programs {
            let found = template(program, &arguments);
            let text = String::from_utf8(found.stdout).unwrap();
            assert!(text.ends_with(expected), "{text}");
        }
    }
}

#[test]
fn errors_show_the_contents_of_values_only_with_debug() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path();
    std::fs::create_dir(chart.join("templates")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(chart.join(name), text).unwrap();
    write("Chart.yaml", "{apiVersion: v2, name: tpl, version: 1.0.0}");
    write("values.yaml", "text: 'hunter2 {{ .a.b.c }}'");
    write("templates/a.yaml", "a: {{ tpl .Values.text . }}");
    for (flags, shown, hidden) in [
        (&[][..], "<a string of 20 bytes>", "hunter2"),
        (&["--debug"], "1 | hunter2 {{ .a.b.c }}", "a string of"),
    ] {
        let mut arguments = vec![chart.to_string_lossy().into_owned()];
        arguments.extend(flags.iter().map(ToString::to_string));
        let found = template(PROGRAM, &arguments);
        let text = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(1));
        assert!(text.contains(shown) && !text.contains(hidden), "{text}");
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
