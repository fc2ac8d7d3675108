//! For each rule a chart that breaks it, with the line, and one that does not.

use helm_core::chart::File;

use super::*;

const METADATA: &str = "apiVersion: v2\nname: c\nversion: 1.2.3\nappVersion: '7'\n";

/// Lints a chart of these files.
fn findings(files: &[(&str, &str)]) -> Vec<Finding> {
    let files = files.iter().chain(&[("Chart.yaml", METADATA)]);
    let chart = Chart::from_files(files.map(|(name, text)| File::new(*name, text))).unwrap();
    lint(&Input {
        chart: &chart,
        given: &[],
        kube_minor: 36,
        limits: ChartLimits::default(),
        values_in_errors: false,
    })
}

/// Returns `SEVERITY FILE:LINE` of the findings of a rule.
fn found(id: &str, files: &[(&str, &str)]) -> Vec<String> {
    let findings = findings(files)
        .into_iter()
        .filter(|finding| finding.id == id);
    findings
        .map(|finding| {
            assert!(!finding.help.is_empty(), "{finding:?}");
            let severity = finding.severity.name();
            format!("{severity} {}:{}", finding.file, finding.line)
        })
        .collect()
}

/// Checks that a rule finds something in the first chart, and nothing in the second.
fn rule(id: &str, bad: &[(&str, &str)], place: &str, good: &[(&str, &str)]) {
    assert!(rules().any(|(known, _)| known == id), "{id} is not listed");
    assert_eq!(found(id, bad), [place], "{id}");
    assert_eq!(found(id, good), [""; 0], "{id}");
}

/// Checks a rule with one template each; the place is a severity and a line of the bad one.
fn template(id: &str, bad: &str, place: &str, good: &str) {
    let (bad, good) = (("templates/a.yaml", bad), ("templates/a.yaml", good));
    rule(
        id,
        &[bad],
        &place.replace(' ', " templates/a.yaml:"),
        &[good],
    );
}

/// Checks rules with templates that differ in one part. A line of the table has the rule, the part of the bad
/// template, its place, and the part of the good one.
fn templates(table: &str, with: impl Fn(&str) -> String) {
    for line in table.lines() {
        let columns: Vec<&str> = line.split(" | ").collect();
        let [id, bad, place, good]: [&str; 4] = columns.try_into().unwrap();
        template(id, &with(bad), place, &with(good));
    }
}

const NAME: &str = "metadata:\n  name: {{ .Release.Name }}\n";

#[test]
fn calls_are_found_on_their_line_but_not_in_comments_and_strings() {
    for (id, call, severity) in [
        ("random-value", "randAlphaNum 5", "warning"),
        ("certificate", "(genCA \"a\" 1).Cert | b64enc", "warning"),
        ("clock", "now", "warning"),
        ("lookup", "lookup \"v1\" \"Secret\" \"\" \"\"", "note"),
    ] {
        let word = call.trim_start_matches('(').split(' ').next().unwrap();
        let bad =
            format!("apiVersion: v1\nkind: Secret\n{NAME}data:\n  a: {{{{\n    {call} }}}}\n");
        let good = format!(
            "apiVersion: v1\nkind: Secret\n{NAME}data: # {word}\n  {{{{/* {word} */}}}}\n  a: {{{{ \"{word}\" }}}} {word}\n"
        );
        template(id, &bad, &format!("{severity} 7"), &good);
    }
}

#[test]
fn notes_may_be_random() {
    rule(
        "clock",
        &[("templates/a.txt", "# {{ now }}")],
        "warning templates/a.txt:1",
        &[("templates/NOTES.txt", "{{ now }}")],
    );
}

#[test]
fn schema_and_definitions() {
    rule(
        "missing-schema",
        &[("values.yaml", "a: 1\n")],
        "warning values.yaml:1",
        &[("values.yaml", "a: 1\n"), ("values.schema.json", "{}")],
    );
    rule(
        "crds-directory",
        &[("crds/a.yaml", "kind: CustomResourceDefinition\n")],
        "note crds/a.yaml:1",
        &[("crds/README.md", "")],
    );
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n";
    rule(
        "crd-in-templates",
        &[("templates/a.yaml", definition)],
        "warning templates/a.yaml:2",
        &[("crds/a.yaml", definition)],
    );
}

#[test]
fn hooks() {
    let hook = |kind: &str, annotations: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {{{{ .Release.Name }}}}\n  annotations:\n    helm.sh/hook: pre-install\n{annotations}spec:\n{spec}"
        )
    };
    let policy = "    helm.sh/hook-delete-policy: hook-succeeded\n";
    let job = |annotations: &str| hook("Job", annotations, "  a: b\n");
    template("hook-delete-policy", &job(""), "warning 6", &job(policy));
    let pod = |policy: &str| hook("Pod", "", &format!("  restartPolicy: {policy}\n"));
    let (always, never) = (pod("Always"), pod("Never"));
    template("hook-never-ends", &always, "error 8", &never);
    let test = never.replace("pre-install", "test");
    template("test-hook", &test, "note 6", &never);
    let job = |deadline: &str| {
        hook(
            "Job",
            "",
            &format!("{deadline}  template: {{spec: {{}}}}\n"),
        )
    };
    let limited = job("  activeDeadlineSeconds: 60\n");
    template("hook-never-ends", &job(""), "note 2", &limited);
    // Of a list, the annotations of the list count.
    let list = |annotations: &str| {
        format!(
            "apiVersion: v1\nkind: List\nmetadata:\n  annotations:\n    helm.sh/hook: pre-install\n{annotations}\
             items:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: \"{{{{ .Release.Name }}}}\"}}}}\n"
        )
    };
    let good = list(policy);
    template("hook-delete-policy", &list(""), "warning 5", &good);
    let test = good.replace("pre-install", "test");
    template("test-hook", &test, "note 5", &good);
}

#[test]
fn scopes_and_namespaces() {
    let object = |kind: &str, metadata: &str| {
        format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {{{{ .Release.Name }}}}\n{metadata}"
        )
    };
    templates("cluster-scoped | Namespace | warning 2 | Service", |kind| {
        object(kind, "")
    });
    let elsewhere = object("Service", "  namespace: monitoring\n");
    let own = object("Service", "  namespace: {{ .Release.Namespace }}\n");
    template("foreign-namespace", &elsewhere, "warning 5", &own);
    let created = format!(
        "{elsewhere}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: monitoring}}\n"
    );
    template("missing-namespace", &elsewhere, "warning 5", &created);
}

#[test]
fn names() {
    let named = |name: &str| format!("apiVersion: v1\nkind: Service\nmetadata:\n  {name}\n");
    let table = "\
fixed-name | name: web | warning 4 | name: {{ .Release.Name }}-web
missing-name | labels: {} | error 2 | name: a
generate-name | generateName: a- | warning 4 | name: a";
    templates(table, named);
    templates("duplicate-object | a | warning 4 | b", |other| {
        let named = |suffix: &str| named(&format!("name: {{{{ .Release.Name }}}}-{suffix}"));
        format!("{}---\n{}", named("a"), named(other))
    });
}

#[test]
fn the_line_is_that_of_the_document_with_the_name() {
    let two = "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}-one\n---\n\
               apiVersion: v1\nkind: Service\nmetadata:\n  name: two\n";
    let expected = ["warning templates/a.yaml:9"];
    assert_eq!(found("fixed-name", &[("templates/a.yaml", two)]), expected);
}

#[test]
fn an_object_of_a_helper_is_found_where_it_is_included() {
    let files = [
        (
            "templates/_a.tpl",
            "{{ define \"service\" }}\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n{{ end }}",
        ),
        ("templates/a.yaml", "# a\n\n{{ include \"service\" . }}\n"),
    ];
    assert_eq!(found("fixed-name", &files), ["warning templates/a.yaml:3"]);
}

#[test]
fn roles_with_wildcards() {
    templates("wide-rbac | \"*\" | warning 8 | get", |verbs| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n{NAME}rules:\n- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [{verbs}]\n"
        )
    });
}

#[test]
fn images() {
    let table = "image-tag | redis:latest | warning 8 | redis:{{ .Chart.AppVersion }}";
    templates(table, |image| {
        format!(
            "apiVersion: v1\nkind: Pod\n{NAME}spec:\n  containers:\n  - name: a\n    image: {image}\n"
        )
    });
}

#[test]
fn api_versions() {
    let table = "\
removed-api | policy/v1beta1 PodDisruptionBudget | error 3 | policy/v1 PodDisruptionBudget
deprecated-api | v1 Endpoints | warning 3 | v1 Service";
    templates(table, |types| {
        let (version, kind) = types.split_once(' ').unwrap();
        format!("{NAME}apiVersion: {version}\nkind: {kind}\n")
    });
}

#[test]
fn fields_that_cannot_be_changed() {
    let workload = |label: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\n{NAME}spec:\n  selector:\n    matchLabels:\n      {label}\n"
        )
    };
    let table = "immutable-field | helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }} | error 7 | app: {{ .Chart.Name }}";
    templates(table, workload);
    let sometimes = format!(
        "{}\n      {{{{ if .Values.tier.enabled }}}}tier: a{{{{ end }}}}\n{{{{ if .Values.tier.enabled }}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{{{{ end }}}}\n",
        workload("app: a")
    );
    let values = ("values.yaml", "tier: {enabled: false}\n");
    let bad = [values, ("templates/a.yaml", sometimes.as_str())];
    rule("immutable-field", &bad, "warning templates/a.yaml:7", &[]);
    let table = "immutable-field | v: {{ .Chart.Version }} | error 6 | v: a";
    templates(table, |label| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\n{NAME}spec:\n  volumeClaimTemplates:\n  - metadata:\n      name: a\n      labels: {{{label}}}\n"
        )
    });
}

#[test]
fn objects_that_are_kept() {
    let table = "resource-policy-keep | helm.sh/resource-policy: keep | note 6 | a: b";
    templates(table, |annotations| {
        format!("apiVersion: v1\nkind: Secret\n{NAME}  annotations:\n    {annotations}\n")
    });
}

#[test]
fn documents_that_a_chart_drops_without_a_word() {
    let hook = |events: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\n{NAME}  annotations:\n    helm.sh/hook-weight: '1'\n    helm.sh/hook: {events}\n"
        )
    };
    let id = "dropped-document";
    for bad in ["pre-instal", "post-install, Crd-Install", "''"] {
        let good = hook("Pre-Install,test-success");
        template(id, &hook(bad), "warning 7", &good);
    }
    let object = format!("apiVersion: v1\nkind: ConfigMap\n{NAME}");
    let ended = format!("{object}...\n{object}");
    let good = format!("{object}---\n{object}...\n# The end.\n");
    template(id, &ended, "warning 5", &good);
    // A helper prints the hook.
    let helper = format!("{{{{ define \"a\" }}}}\n{}{{{{ end }}}}", hook("x"));
    rule(
        id,
        &[
            ("templates/_a.tpl", &helper),
            ("templates/a.yaml", "\n{{ include \"a\" . }}"),
        ],
        "warning templates/a.yaml:2",
        &[("templates/a.yaml", &object)],
    );
    let defined =
        format!("{{{{ define \"a\" }}}}{{{{ if .x }}}}\n{object}{{{{ end }}}}{{{{ end }}}}\n");
    rule(
        id,
        &[("templates/_a.yaml", &format!("{defined}{object}"))],
        "warning templates/_a.yaml:8",
        &[
            ("templates/_a.yaml", &defined),
            ("templates/_b.yaml", &object),
            (
                "templates/c.yaml",
                "{{ include (print $.Template.BasePath \"/_b.yaml\") . }}",
            ),
        ],
    );
    let library = |kind| format!("apiVersion: v2\nname: l\nversion: 1.0.0\ntype: {kind}\n");
    rule(
        id,
        &[
            ("charts/l/Chart.yaml", &library("library")),
            ("charts/l/templates/a.yaml", &object),
        ],
        "warning charts/l/templates/a.yaml:2",
        &[
            ("charts/l/Chart.yaml", &library("application")),
            ("charts/l/templates/a.yaml", &object),
        ],
    );
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n";
    rule(
        id,
        &[("crds/a.yaml.tpl", definition)],
        "warning crds/a.yaml.tpl:2",
        &[
            ("crds/README.md", definition),
            ("crds/LICENSE", "free"),
            ("crds/a.YAML", definition),
        ],
    );
}

#[test]
fn lists_that_are_refused() {
    let list = |items: &str| {
        format!(
            "# A list.\napiVersion: v1\nkind: List\n{{{{- if .Values.enabled }}}}\nitems:\n{items}{{{{- end }}}}\n"
        )
    };
    let map = "- {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}'}}\n";
    for bad in [
        "- null\n",
        "- abc\n",
        "- {apiVersion: v1, kind: List, items: []}\n",
    ] {
        let (bad, good) = (list(bad), list(map));
        let values = ("values.yaml", "enabled: true\n");
        rule(
            "refused-list",
            &[("templates/a.yaml", &bad), values],
            "error templates/a.yaml:3",
            &[("templates/a.yaml", &good), values],
        );
    }
}

#[test]
fn a_chart_that_cannot_be_rendered() {
    let fails = "{{ fail \"no\" }}";
    let good = format!("{{{{ if .Values.a }}}}{fails}{{{{ end }}}}");
    rule(
        "render",
        &[("templates/a.yaml", fails)],
        "error Chart.yaml:1",
        &[("templates/a.yaml", &good)],
    );
}

#[test]
fn ignored_rules_are_left_out_and_strict_makes_errors() {
    let finding = |id, severity| Finding {
        file: "a".to_owned(),
        line: 1,
        id,
        severity,
        message: String::new(),
        help: String::new(),
    };
    let all = vec![
        finding("clock", Severity::Warning),
        finding("lookup", Severity::Note),
        finding("render", Severity::Error),
    ];
    let severities = |findings: Vec<Finding>| -> Vec<Severity> {
        findings.iter().map(|finding| finding.severity).collect()
    };
    let strict = judge(all.clone(), &["render".to_owned()], true);
    assert_eq!(severities(strict), [Severity::Error, Severity::Note]);
    assert_eq!(judge(all.clone(), &[], false), all);
}

#[test]
fn objects_with_random_names_are_found_once_and_without_their_name() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ randAlpha 5 }}\n  annotations: {helm.sh/hook: test}\n\
                spec: {restartPolicy: Never}\n{{ if .Values.a.enabled }}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: b}\n{{ end }}\n";
    let values = ("values.yaml", "a: {enabled: false}\n");
    let files = [values, ("templates/a.yaml", text)];
    let mut tests = findings(&files);
    assert_eq!(findings(&files), tests);
    tests.retain(|found| found.id == "test-hook");
    assert_eq!(tests.len(), 1, "{tests:#?}");
    assert!(tests[0].message.starts_with("Pod is a test"), "{tests:#?}");
}

#[test]
fn rules_are_sorted() {
    assert!(rules().is_sorted_by_key(|(id, _)| id));
}
