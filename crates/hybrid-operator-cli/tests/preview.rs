//! Runs the commands that need no cluster on small projects: `template --cr`, `template --images`,
//! `diff --base`, `man`, and the program as a plugin of kubectl.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use hybrid_operator_test::skipped;

use support::{Done, PROGRAM, Project, Text as _, or_skip, text};

/// Chart with a Deployment, a Secret, a `ConfigMap` that looks something up, and a hook.
const CHART: &[(&str, &str)] = &[
    (
        "Chart.yaml",
        "apiVersion: v2\nname: shop\nversion: 1.2.3\nappVersion: '9'\n",
    ),
    (
        "values.yaml",
        "replicas: 1\nimage: {repository: shop, tag: '9'}\npassword: none\n",
    ),
    (
        "templates/deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  \
         replicas: {{ .Values.replicas }}\n  template:\n    spec:\n      initContainers:\n      \
         - {name: init, image: busybox:1}\n      containers:\n      - name: shop\n        \
         image: {{ .Values.image.repository }}:{{ .Values.image.tag }}\n",
    ),
    (
        "templates/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}\n  namespace: \
         {{ .Release.Namespace }}\ndata:\n  password: {{ .Values.password | b64enc }}\n",
    ),
    (
        "templates/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  \
         found: {{ len (lookup \"v1\" \"Secret\" \"\" \"\") | quote }}\n  \
         version: {{ .Capabilities.KubeVersion.Version }}\n",
    ),
    (
        "templates/hook.yaml",
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{ .Release.Name }}-hook\n  \
         annotations:\n    helm.sh/hook: post-install\nspec:\n  template:\n    spec:\n      \
         containers:\n      - {name: hook, image: hook:2}\n",
    ),
];

const WATCHES: &str = "\
- group: example.com
  version: v1
  kind: Shop
  chart: helm-charts/shop
";

const CR: &str = "\
apiVersion: example.com/v1
kind: Shop
metadata: {name: main, namespace: prod}
spec: {replicas: 3}
";

impl Project {
    fn new() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        for (name, text) in CHART {
            project.write(&format!("helm-charts/shop/{name}"), text);
        }
        project.write("watches.yaml", WATCHES);
        let file = "domain: example.com\nlayout:\n- helm.sdk.operatorframework.io/v1\nprojectName: \
                    shop\nversion: \"3\"\n";
        project.write("PROJECT", file);
        project.write("config/samples/shop.yaml", CR);
        project
    }

    /// Makes a project in a repository. Returns `None` if there is no git.
    fn committed() -> Option<Self> {
        let project = Self::new();
        project.git("init --quiet")?;
        project.commit()?;
        Some(project)
    }

    fn run(&self, args: &str) -> Done {
        self.run_with(args, "")
    }

    fn run_with(&self, args: &str, input: &str) -> Done {
        run(Path::new(PROGRAM), self.0.path(), args, input)
    }

    /// Runs git. Returns `None` if there is none.
    fn git(&self, args: &str) -> Option<String> {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(args.split(' '))
            .current_dir(self.0.path())
            .output();
        let Ok(output) = output else {
            skipped(1, &"there is no git");
            return None;
        };
        let error = text(&output.stderr);
        assert!(output.status.success(), "git {args}: {error}");
        Some(text(&output.stdout))
    }

    fn commit(&self) -> Option<()> {
        self.git("add --all")?;
        self.git("commit --quiet --message a")?;
        Some(())
    }
}

impl Done {
    fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert_eq!(self.out, "", "an error prints no result");
        self.err
    }
}

/// Runs a program with arguments that are separated by spaces.
fn run(program: &Path, directory: &Path, args: &str, input: &str) -> Done {
    let mut child = Command::new(program)
        .args(args.split_whitespace())
        .current_dir(directory)
        .env_remove("HELM_NAMESPACE")
        .env_remove("POD_NAMESPACE")
        .env("KUBECONFIG", directory.join("no-kubeconfig"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads no input may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Done::of(child.wait_with_output().unwrap())
}

/// The schema of the chart is neither readable nor right; that of its dependency rejects everything.
#[test]
fn schemas_are_skipped_by_the_entry_in_every_command() {
    let project = Project::new();
    let schema = r#"{"properties": {"replicas": {"type": "string", "$ref": "https://schemas.invalid/a.json"}}}"#;
    project.write("helm-charts/shop/values.schema.json", schema);
    let metadata = "apiVersion: v2\nname: db\nversion: 1.0.0\n";
    project.write("helm-charts/shop/charts/db/Chart.yaml", metadata);
    project.write("helm-charts/shop/charts/db/values.schema.json", "false");
    project.write("helm-charts/shop/charts/db/values.yaml", "a: 1\n");
    let template = "template --cr config/samples/shop.yaml";
    let commands = [template, "lint", "generate rbac", "generate crds"];
    for command in &commands[..3] {
        let done = project.run(command);
        let said = done.out + &done.err;
        assert_ne!(done.code, Some(0), "{command}");
        said.must_have("https://schemas.invalid/a.json");
    }
    project.write("watches.yaml", &format!("{WATCHES}  schema: skip\n"));
    for command in commands {
        let done = project.run(command);
        assert_eq!(done.code, Some(0), "{command}: {}{}", done.out, done.err);
    }
    // The definition restricts nothing either.
    let definition = std::fs::read(project.path("config/crd/bases/example.com_shops.yaml"));
    let definition: serde_json::Value = go_yaml::from_slice(&definition.unwrap()).unwrap();
    let spec =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(spec["properties"]["replicas"]["type"].is_null(), "{spec}");
    assert!(project.run(template).ok().contains("replicas: 3"));
}

#[test]
fn a_custom_resource_renders_as_its_chart_with_the_same_values() {
    let project = Project::new();
    let with = |first: &str| {
        let arguments = format!("{first} --kube-version 1.30 --include-crds");
        project.run(&arguments).ok()
    };
    let expected = with("template main helm-charts/shop -n prod --set replicas=3");
    assert!(expected.contains("replicas: 3") && expected.contains("version: v1.30"));
    let cr = "config/samples/shop.yaml";
    assert_eq!(with(&format!("template --cr {cr}")), expected);
    let args = "template --cr - --kube-version 1.30";
    assert_eq!(project.run_with(args, CR).ok(), expected);
    let shown = with(&format!(
        "template --cr {cr} --show-only templates/map.yaml"
    ));
    shown.must_have("found: \"0\"");
    shown.must_lack("kind: Secret");
    // The project is found from inside of it.
    let inside = project.path("helm-charts/shop");
    let args = "template --cr ../../config/samples/shop.yaml --kube-version 1.30";
    assert_eq!(run(Path::new(PROGRAM), &inside, args, "").ok(), expected);
    let watches = project.path("watches.yaml");
    let args = format!(
        "template --cr - --watches-file {} --kube-version 1.30",
        watches.display()
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let done = run(Path::new(PROGRAM), elsewhere.path(), &args, CR);
    assert_eq!(done.ok(), expected);
}

#[test]
fn all_custom_resources_of_a_file_are_rendered_in_their_order() {
    let project = Project::new();
    let text =
        format!("{CR}---\napiVersion: example.com/v1\nkind: Shop\nmetadata: {{name: other}}\n");
    let out = project.run_with("template --cr -", &text).ok();
    let names: Vec<&str> = out
        .lines()
        .filter_map(|line| line.strip_prefix("  name: "))
        .collect();
    let expected = "main main main main-hook other other other other-hook";
    assert_eq!(names.join(" "), expected);
    // Without a kubeconfig, the namespace is `default`.
    out.must_have("namespace: default");
    out.must_have("namespace: prod");
    let args = "template --cr - -n mine";
    let other = text.split("---\n").nth(1).unwrap();
    let out = project.run_with(args, other).ok();
    out.must_have("namespace: mine");
}

#[test]
fn values_from_other_objects_patches_and_overrides_are_applied() {
    let project = Project::new();
    let more = "  overrideValues: {image.tag: '10'}\n  patches:\n  - target: {kind: Deployment}\n    \
                patch: |\n      spec: {paused: true}\n  valuesFrom:\n  - {kind: Secret, name: \
                '{{ .Object.metadata.name }}-auth', key: p, targetPath: password}\n  - {kind: \
                ConfigMap, name: more, optional: true}\n";
    project.write("watches.yaml", &format!("{WATCHES}{more}"));
    let template = "template --cr config/samples/shop.yaml";
    let err = project.run(template).failed();
    err.must_have("Shop prod/main");
    err.must_have("Secret main-auth does not exist");
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: main-auth}\nstringData: {p: hidden}\n";
    project.write("auth.yaml", secret);
    let done = project.run(&format!("{template} --from auth.yaml"));
    let overrides = "Shop prod/main: the watches file overrides image.tag";
    done.err.must_have(overrides);
    let out = done.ok();
    for part in ["password: aGlkZGVu", "image: shop:10", "paused: true"] {
        out.must_have(part);
    }
    // Objects beside the custom resource count too, but not those of another namespace.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more, namespace: NS}\ndata: \
               {values.yaml: 'replicas: 7'}\n";
    for (namespace, replicas) in [("prod", 7), ("else", 3)] {
        let map = map.replace("NS", namespace);
        let text = format!("{secret}---\n{map}---\n{CR}");
        let out = project.run_with("template --cr -", &text).ok();
        out.must_have(&format!("replicas: {replicas}"));
    }
}

#[test]
fn mistakes_are_named_with_the_way_out() {
    let project = Project::new();
    let refused = |cr: &str, args: &str, expected: &str| {
        let args = format!("template --cr - {args}");
        let err = project.run_with(&args, cr).failed();
        err.must_have(expected);
        assert!(err.starts_with("Error: "), "{err}");
    };
    let changes = "\
kind: Shop => kind: Shp => no entry of watches.yaml binds Shp to a chart; did you mean Shop?
com/v1 => com/v2 => Shop prod/main has apiVersion example.com/v2, but watches.yaml binds Shop of example.com/v1 to a chart
spec: {replicas: 3} => spec: [1] => spec must be a map of values for the chart, but it is a list
name: main => name: 'a b' => Shop prod/a b: cannot determine the release";
    for change in changes.lines() {
        let (old, rest) = change.split_once(" => ").unwrap();
        let (new, expected) = rest.split_once(" => ").unwrap();
        refused(&CR.replace(old, new), "", expected);
    }
    refused("kind: Shop\n", "", "document 1 is not a Kubernetes object");
    refused("", "", "-: no custom resource in it");
    let flags = "\
-n dev => Shop prod/main is in namespace prod, not in dev
--from none.yaml => cannot read none.yaml
--show-only x => could not find template x in chart";
    for flag in flags.lines() {
        let (args, expected) = flag.split_once(" => ").unwrap();
        refused(CR, args, expected);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let args = "template --cr -";
    let err = run(Path::new(PROGRAM), elsewhere.path(), args, CR).failed();
    err.must_have("is not in a project");
    err.must_have("--watches-file");
    // The chart of the entry is used, as it is fetched and verified there.
    for of_chart in "helm-charts/shop --verify --keyring=x --cosign-key=x".split(' ') {
        let done = project.run(&format!("template --cr x {of_chart}"));
        done.err.must_have("cannot be used with");
    }
}

#[test]
fn errors_are_in_the_words_of_admission() {
    let project = Project::new();
    project.write(
        "helm-charts/shop/templates/odd.yaml",
        "{{ if eq (mod .Values.replicas 2) 0 }}{{ fail \"replicas must be odd\" }}{{ end }}",
    );
    let entry = WATCHES.replace(
        "  kind",
        "  api: {fields: {size: integer}}\n  map: {replicas: spec.size}\n  kind",
    );
    project.write("watches.yaml", &entry);
    let of_size = |size: &str| CR.replace("replicas: 3", &format!("size: {size}"));
    let err = project.run_with("template --cr -", &of_size("2")).failed();
    // The same words as in `spec_that_the_chart_refuses_is_denied_with_its_place_and_field` of the operator.
    err.must_have(
        "Error: Shop prod/main: templates/odd.yaml:1: replicas must be odd (from spec.size)\n",
    );
    // The line of the template follows.
    err.must_have("  1 | {{ if eq");
    project.write(
        "helm-charts/shop/values.schema.json",
        r#"{"properties": {"replicas": {"maximum": 9}}}"#,
    );
    let err = project.run_with("template --cr -", &of_size("11")).failed();
    err.must_have("at '/replicas': must be <= 9");
    err.must_have("(from spec.size)");
    let done = project.run_with("template --cr -", &of_size("3"));
    done.out.must_have("replicas: 3");
}

#[test]
fn images_of_objects_and_hooks_are_listed_once_and_sorted() {
    let project = Project::new();
    let args = "template --images --cr config/samples/shop.yaml";
    assert_eq!(project.run(args).ok(), "busybox:1\nhook:2\nshop:9\n");
    let json = project.run(&format!("{args} -o json")).ok();
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list[1]["image"], "hook:2");
    let objects = serde_json::json!(["Job.batch main-hook"]);
    assert_eq!(list[1]["objects"], objects);
    let wide = project.run(&format!("{args} -o wide")).ok();
    let start = "IMAGE       OBJECTS\nbusybox:1   Deployment.apps main\n";
    assert!(wide.starts_with(start), "{wide}");
    let chart = "template helm-charts/shop --images --no-hooks --set image.tag=10";
    assert_eq!(project.run(chart).ok(), "busybox:1\nshop:10\n");
    let refused = project.run("template helm-charts/shop -o json");
    assert_eq!(refused.code, Some(2));
    refused.err.must_have("--images");
}

#[test]
fn former_spellings_do_what_they_did_and_say_what_they_are_now() {
    let project = or_skip!(Project::committed());
    for (former, now) in [
        (
            "images --cr config/samples/shop.yaml",
            "template --images --cr config/samples/shop.yaml",
        ),
        (
            "diff --base HEAD --cr config/samples/shop.yaml",
            "diff --base HEAD config/samples/shop.yaml",
        ),
        (
            "bundle validate --list-optional",
            "olm validate --list-optional",
        ),
    ] {
        let (former, now) = (project.run(former), project.run(now));
        let lines: Vec<&str> = former.err.lines().collect();
        assert_eq!(lines.len(), 1, "{}", former.err);
        lines[0].must_have("is now 'hybrid-operator");
        assert_eq!(former.ok(), now.ok());
    }
    let gone = project.run("charts dependency build helm-charts/shop");
    assert_eq!(gone.code, Some(2));
    let expected =
        "Error: 'hybrid-operator charts dependency build' is gone: use 'helm dependency build'\n";
    assert_eq!(gone.err, expected);
}

#[test]
fn errors_show_the_contents_of_values_only_with_debug() {
    let project = Project::new();
    let chart = "helm-charts/shop";
    let values = format!("{}text: '{{{{ .hunter2.b.c }}}}'\n", CHART[1].1);
    project.write(&format!("{chart}/values.yaml"), &values);
    let fails = "a: {{ tpl .Values.text . }}";
    project.write(&format!("{chart}/templates/fails.yaml"), fails);
    or_skip!(project.git("init --quiet"));
    project.commit().unwrap();
    for command in [
        "template --images --cr config/samples/shop.yaml",
        "diff --base HEAD",
        "template --cr config/samples/shop.yaml",
        "lint",
    ] {
        let run = |flags: &str| {
            let done = project.run(&format!("{command} {flags}"));
            assert_ne!(done.code, Some(0), "{command}");
            done.out + &done.err
        };
        let (without, with) = (run(""), run("--debug"));
        assert!(!without.contains("hunter2"), "{command}: {without}");
        assert!(with.contains("hunter2"), "{command}: {with}");
    }
}

#[test]
fn a_change_of_the_project_is_compared_with_a_revision_of_the_repository() {
    let project = or_skip!(Project::committed());
    let diff = |args: &str| project.run(&format!("diff --base HEAD {args}"));
    let same = diff("");
    assert_eq!(same.ok(), "no differences\n");
    let original = CHART
        .iter()
        .find(|(name, _)| *name == "values.yaml")
        .unwrap()
        .1;
    let changed = original
        .replace("tag: '9'", "tag: '10'")
        .replace("none", "other");
    project.write("helm-charts/shop/values.yaml", &changed);
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: new}\n";
    project.write("helm-charts/shop/templates/service.yaml", service);
    std::fs::remove_file(project.path("helm-charts/shop/templates/map.yaml")).unwrap();
    let done = diff("");
    assert_eq!(done.code, Some(3), "{}", done.err);
    let expected = "\
Shop prod/main
! restarts 3 Pods (Deployment main)
~ Secret prod/main
    @@ -1,6 +1,6 @@
     apiVersion: v1
     data:
    -  password: '*** (before)'
    +  password: '*** (after)'
     kind: Secret
     metadata:
       name: main
+ Service new
    @@ -0,0 +1,4 @@
    +apiVersion: v1
    +kind: Service
    +metadata:
    +  name: new
~ Deployment.apps main
    @@ -7,7 +7,7 @@
       template:
         spec:
           containers:
    -      - image: shop:9
    +      - image: shop:10
             name: shop
           initContainers:
           - image: busybox:1
- ConfigMap main
    @@ -1,7 +0,0 @@
    -apiVersion: v1
    -data:
    -  found: \"0\"
";
    assert!(done.out.starts_with(expected), "{}", done.out);
    let end = "\n1 added, 2 changed, 1 removed\n";
    assert!(done.out.ends_with(end), "{}", done.out);
    assert!(!done.out.contains('\u{1b}'), "there is no terminal");
    let markdown = diff("--format markdown");
    assert_eq!(markdown.code, Some(3));
    let start = "**1 added, 2 changed, 1 removed**\n\n### Shop prod/main\n\n- restarts 3 Pods \
                 (Deployment main)\n\n<details><summary>~ \
                 <code>Secret prod/main</code> changed</summary>\n\n```diff\n@@ -1,6 +1,6 @@\n";
    assert!(markdown.out.starts_with(start), "{}", markdown.out);
    // Neither the index nor the work tree has changed.
    let status = project.git("status --porcelain").unwrap();
    let expected = " M helm-charts/shop/values.yaml\n D helm-charts/shop/templates/map.yaml\n\
                    ?? helm-charts/shop/templates/service.yaml\n";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&status), sorted(expected));
}

#[test]
fn a_sample_that_the_base_does_not_have_is_added_as_a_whole() {
    let project = or_skip!(Project::committed());
    let native = "apiVersion: example.com/v1\nkind: Native\nmetadata: {name: x}\n";
    project.write("config/samples/native.yaml", native);
    let kustomization = "resources: [shop.yaml]\n";
    project.write("config/samples/kustomization.yaml", kustomization);
    project.write("config/samples/new.yaml", &CR.replace("main", "second"));
    let done = project.run("diff --base HEAD");
    assert_eq!(done.code, Some(3), "{}", done.err);
    let end = "4 added, 0 changed, 0 removed\n";
    assert!(done.out.ends_with(end), "{}", done.out);
    let done = project.run("diff --base HEAD config/samples/new.yaml");
    assert_eq!(done.ok(), "no differences\n");
}

#[test]
fn tests_of_a_chart_are_compared_if_the_operator_runs_them() {
    let project = or_skip!(Project::committed());
    let test = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: check\n  annotations: \
                {helm.sh/hook: test}\n";
    project.write("helm-charts/shop/templates/check.yaml", test);
    let diff = "diff --base HEAD";
    assert_eq!(project.run(diff).out, "no differences\n");
    project.write("watches.yaml", &format!("{WATCHES}  test: {{}}\n"));
    let run = project.run(diff).out;
    run.must_have("+ Pod check (hook)\n");
}

#[test]
fn code_is_pointed_out_if_it_names_a_value_translator() {
    let project = Project::new();
    project.write("Cargo.toml", "");
    project.write("src/main.rs", "fn main() {}\n");
    let template = "template --cr config/samples/shop.yaml";
    assert_eq!(project.run(template).err, "");
    project.write("src/charts/mod.rs", "chart.value_translator(f)\n");
    let note = "note: this project has a value translator in Rust, which is not applied\n";
    assert_eq!(project.run(template).err, note);
}

#[test]
fn errors_of_diff_are_told_from_wrong_usage() {
    let project = or_skip!(Project::committed());
    let failed = |args: &str, code: i32, expected: &str| {
        let done = project.run(args);
        assert_eq!(done.code, Some(code), "{}{}", done.out, done.err);
        done.err.must_have(expected);
    };
    let cases = "\
1 diff --base none => \"none\" is not a revision of this repository
2 diff --base --all => unexpected argument '--all'
1 diff --base=--all => \"--all\" is not a revision of this repository
2 diff --base HEAD - => --base cannot read standard input
1 diff config/samples/shop.yaml => kubeconfig
2 diff config/samples/shop.yaml --kube-version 1.30 => --kube-version and --api-versions are for --base";
    for case in cases.lines() {
        let (args, expected) = case.split_once(" => ").unwrap();
        let (code, args) = args.split_once(' ').unwrap();
        failed(args, code.parse().unwrap(), expected);
    }
    project.write("helm-charts/shop/templates/map.yaml", "{{ fail \"no\" }}");
    failed("diff --base HEAD", 1, "Shop prod/main: ");
    let outside = Project::new();
    let done = outside.run("diff --base HEAD");
    done.err.must_have("is not in a git repository");
}

#[test]
fn a_link_named_as_a_plugin_is_called_through_kubectl() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-hybrid");
    std::os::unix::fs::symlink(PROGRAM, &plugin).unwrap();
    let help = |args: &str| run(&plugin, directory.path(), args, "").ok();
    let whole = help("--help");
    whole.must_have("Usage: kubectl hybrid <COMMAND>");
    let template = help("template --help");
    template.must_have("kubectl hybrid template --cr config/samples/");
    for text in [whole, template, help("diff --help")] {
        text.must_lack("hybrid-operator ");
    }
    let wrong = run(&plugin, directory.path(), "history", "");
    wrong.err.must_have("Usage: kubectl hybrid history");
    let program = Path::new(PROGRAM);
    let own = run(program, directory.path(), "history --help", "").ok();
    own.must_have("Usage: hybrid-operator history");
}

#[test]
fn completion_and_manual_pages_cover_all_commands() {
    let project = Project::new();
    let output = Command::new(PROGRAM)
        .args(["--", "hybrid-operator", ""])
        .env("HYBRID_OPERATOR_COMPLETE", "fish")
        .output();
    let candidates = String::from_utf8(output.unwrap().stdout).unwrap();
    for shell in "bash elvish fish powershell zsh".split(' ') {
        let script = project.run(&format!("completion {shell}")).ok();
        script.must_have("HYBRID_OPERATOR_COMPLETE");
    }
    let page = project.run("man").ok();
    page.must_have(".TH hybrid-operator 1");
    project.run("man out/man1").ok();
    for command in "diff status history rollback get events template".split(' ') {
        let start = format!("{command}\t");
        let is_candidate = candidates.lines().any(|line| line.starts_with(&start));
        assert!(is_candidate, "{candidates}");
        let path = project.path(&format!("out/man1/hybrid-operator-{command}.1"));
        let page = std::fs::read_to_string(path).unwrap();
        page.must_have(&format!(".TH hybrid-operator-{command} 1"));
    }
    let values = project.read("out/man1/hybrid-operator-get-values.1");
    values.must_have("revision");
    project.write("file", "");
    let error = project.run("man file").failed();
    error.must_have("cannot create file");
}

#[test]
fn commands_of_a_cluster_say_why_they_cannot_reach_it() {
    let project = Project::new();
    let err = project.run("status").failed();
    err.must_have("no cluster: give --kubeconfig or $KUBECONFIG");
    let err = project.run("status --kubeconfig none").failed();
    err.must_have("cannot use the kubeconfig none");
    // Nothing listens on port 1.
    let config = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                  contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n\
                  current-context: c\n";
    project.write("kubeconfig", config);
    let failed = |command: &str| {
        let arguments = format!("{command} --kubeconfig kubeconfig");
        project.run(&arguments).failed()
    };
    for command in ["status", "history shop/main", "rollback shop/main"] {
        let err = failed(command);
        err.must_have("cannot reach the cluster at https://127.0.0.1:1");
        err.must_have("check --kubeconfig and --context");
    }
    let err = failed("status --context other");
    err.must_have("other");
    for (target, expected) in [
        ("shp/main", "did you mean Shop?"),
        ("pod/main", "its kinds are Shop"),
    ] {
        let err = failed(&format!("get values {target}"));
        err.must_have(expected);
    }
    // No cluster is asked.
    let done = project.run("get values main");
    assert_eq!(done.code, Some(2));
    done.err.must_have("write KIND/NAME");
}

#[test]
fn a_schema_refers_to_files_of_the_project_wherever_the_command_runs() {
    let project = Project::new();
    let schema = r#"{"properties": {"replicas": {"$ref": "file://./helm-charts/common.json#/definitions/few"}}}"#;
    project.write("helm-charts/shop/values.schema.json", schema);
    let inside = project.path("helm-charts");
    let commands = [
        "template --cr ../config/samples/shop.yaml",
        "template --images --cr ../config/samples/shop.yaml",
        "lint ..",
    ];
    let run = |arguments: &str| run(Path::new(PROGRAM), &inside, arguments, "");
    for command in commands {
        let done = run(command);
        let said = done.out + &done.err;
        said.must_have("is not in /helm-charts, nor below");
    }
    let common = r#"{"definitions": {"few": {"maximum": 3}}}"#;
    project.write("helm-charts/common.json", common);
    for command in commands {
        let done = run(command);
        let said = done.out + &done.err;
        said.must_lack("common.json");
    }
    let out = run(commands[0]).ok();
    out.must_have("replicas: 3");
    let more = CR.replace("replicas: 3", "replicas: 4");
    project.write("config/samples/shop.yaml", &more);
    let error = run(commands[0]).failed();
    let expected = "'/replicas': violates maximum (required by file://./helm-charts/common.json)";
    error.must_have(expected);
    // Without a project, the directory of the process counts.
    let chart = "template helm-charts/shop --set replicas=4";
    let error = project.run(chart).failed();
    error.must_have("violates maximum");
}
