//! For each rule a chart that breaks it, with the line, and one that does not.

use helm_core::chart::File;

use super::*;

/// Returns `RULE severity FILE:LINE` of the findings of a rule.
fn found(id: &str, files: &[(&str, &str)]) -> Vec<String> {
    let metadata = File::new(
        "Chart.yaml",
        "apiVersion: v2\nname: c\nversion: 1.2.3\nappVersion: '7'\n",
    );
    let files = files.iter().map(|(name, text)| File::new(*name, text));
    let chart = Chart::from_files(files.chain([metadata])).unwrap();
    let input = Input {
        chart: &chart,
        given: &[],
        kube_minor: 36,
        limits: ChartLimits::default(),
        values_in_errors: false,
    };
    let findings = lint(&input).into_iter().filter(|finding| finding.id == id);
    findings
        .map(|finding| {
            assert!(!finding.help.is_empty(), "{finding:?}");
            format!(
                "{} {}:{}",
                finding.severity.name(),
                finding.file,
                finding.line
            )
        })
        .collect()
}

/// Checks that a rule finds something in the first chart, and nothing in the second.
fn rule(id: &str, bad: &[(&str, &str)], places: &[&str], good: &[(&str, &str)]) {
    assert!(rules().any(|(known, _)| known == id), "{id} is not listed");
    assert_eq!(found(id, bad), places, "{id}");
    assert_eq!(found(id, good), [""; 0], "{id}");
}

/// Checks a rule with one template each.
fn template(id: &str, bad: &str, places: &[&str], good: &str) {
    rule(
        id,
        &[("templates/a.yaml", bad)],
        places,
        &[("templates/a.yaml", good)],
    );
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
        template(
            id,
            &bad,
            &[&format!("{severity} templates/a.yaml:7")],
            &good,
        );
    }
}

#[test]
fn notes_may_be_random() {
    rule(
        "clock",
        &[("templates/a.txt", "# {{ now }}")],
        &["warning templates/a.txt:1"],
        &[("templates/NOTES.txt", "{{ now }}")],
    );
}

#[test]
fn schema_and_definitions() {
    rule(
        "missing-schema",
        &[("values.yaml", "a: 1\n")],
        &["warning values.yaml:1"],
        &[("values.yaml", "a: 1\n"), ("values.schema.json", "{}")],
    );
    rule(
        "crds-directory",
        &[("crds/a.yaml", "kind: CustomResourceDefinition\n")],
        &["note crds/a.yaml:1"],
        &[("crds/README.md", "")],
    );
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n";
    rule(
        "crd-in-templates",
        &[("templates/a.yaml", definition)],
        &["warning templates/a.yaml:2"],
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
    template(
        "hook-delete-policy",
        &hook("Job", "", "  a: b\n"),
        &["warning templates/a.yaml:6"],
        &hook("Job", policy, "  a: b\n"),
    );
    template(
        "hook-never-ends",
        &hook("Pod", "", "  restartPolicy: Always\n"),
        &["error templates/a.yaml:8"],
        &hook("Pod", "", "  restartPolicy: Never\n"),
    );
    template(
        "hook-never-ends",
        &hook("Job", "", "  template: {spec: {}}\n"),
        &["note templates/a.yaml:2"],
        &hook(
            "Job",
            "",
            "  activeDeadlineSeconds: 60\n  template: {spec: {}}\n",
        ),
    );
    template(
        "test-hook",
        &hook("Pod", "", "  restartPolicy: Never\n").replace("pre-install", "test"),
        &["note templates/a.yaml:6"],
        &hook("Pod", "", "  restartPolicy: Never\n"),
    );
    // Of a list, the annotations of the list count.
    let list = |annotations: &str| {
        format!(
            "apiVersion: v1\nkind: List\nmetadata:\n  annotations:\n    helm.sh/hook: pre-install\n{annotations}\
             items:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: \"{{{{ .Release.Name }}}}\"}}}}\n"
        )
    };
    template(
        "hook-delete-policy",
        &list(""),
        &["warning templates/a.yaml:5"],
        &list(policy),
    );
    template(
        "test-hook",
        &list(policy).replace("pre-install", "test"),
        &["note templates/a.yaml:5"],
        &list(policy),
    );
}

#[test]
fn scopes_and_namespaces() {
    let object = |kind: &str, metadata: &str| {
        format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {{{{ .Release.Name }}}}\n{metadata}"
        )
    };
    template(
        "cluster-scoped",
        &object("Namespace", ""),
        &["warning templates/a.yaml:2"],
        &object("Service", ""),
    );
    let elsewhere = object("Service", "  namespace: monitoring\n");
    template(
        "foreign-namespace",
        &elsewhere,
        &["warning templates/a.yaml:5"],
        &object("Service", "  namespace: {{ .Release.Namespace }}\n"),
    );
    let created = format!(
        "{elsewhere}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: monitoring}}\n"
    );
    template(
        "missing-namespace",
        &elsewhere,
        &["warning templates/a.yaml:5"],
        &created,
    );
}

#[test]
fn names() {
    let named = |name: &str| format!("apiVersion: v1\nkind: Service\nmetadata:\n  {name}\n");
    template(
        "fixed-name",
        &named("name: web"),
        &["warning templates/a.yaml:4"],
        &named("name: {{ .Release.Name }}-web"),
    );
    template(
        "missing-name",
        &named("labels: {}"),
        &["error templates/a.yaml:2"],
        &named("name: a"),
    );
    template(
        "generate-name",
        &named("generateName: a-"),
        &["warning templates/a.yaml:4"],
        &named("name: a"),
    );
    let twice = |other: &str| {
        format!(
            "{}---\n{}",
            named("name: {{ .Release.Name }}-a"),
            named(&format!("name: {{{{ .Release.Name }}}}-{other}"))
        )
    };
    template(
        "duplicate-object",
        &twice("a"),
        &["warning templates/a.yaml:4"],
        &twice("b"),
    );
}

#[test]
fn the_line_is_that_of_the_document_with_the_name() {
    let two = "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}-one\n---\n\
               apiVersion: v1\nkind: Service\nmetadata:\n  name: two\n";
    assert_eq!(
        found("fixed-name", &[("templates/a.yaml", two)]),
        ["warning templates/a.yaml:9"]
    );
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
    let role = |verbs: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n{NAME}rules:\n- apiGroups: [\"\"]\n  resources: [pods]\n  verbs: [{verbs}]\n"
        )
    };
    template(
        "wide-rbac",
        &role("\"*\""),
        &["warning templates/a.yaml:8"],
        &role("get"),
    );
}

#[test]
fn images() {
    let pod = |image: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\n{NAME}spec:\n  containers:\n  - name: a\n    image: {image}\n"
        )
    };
    template(
        "image-tag",
        &pod("redis:latest"),
        &["warning templates/a.yaml:8"],
        &pod("redis:{{ .Chart.AppVersion }}"),
    );
}

#[test]
fn api_versions() {
    let object = |version: &str, kind: &str| format!("{NAME}apiVersion: {version}\nkind: {kind}\n");
    template(
        "removed-api",
        &object("policy/v1beta1", "PodDisruptionBudget"),
        &["error templates/a.yaml:3"],
        &object("policy/v1", "PodDisruptionBudget"),
    );
    template(
        "deprecated-api",
        &object("v1", "Endpoints"),
        &["warning templates/a.yaml:3"],
        &object("v1", "Service"),
    );
}

#[test]
fn fields_that_cannot_be_changed() {
    let workload = |label: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\n{NAME}spec:\n  selector:\n    matchLabels:\n      {label}\n"
        )
    };
    template(
        "immutable-field",
        &workload("helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}"),
        &["error templates/a.yaml:7"],
        &workload("app: {{ .Chart.Name }}"),
    );
    rule(
        "immutable-field",
        &[
            ("values.yaml", "tier: {enabled: false}\n"),
            (
                "templates/a.yaml",
                &format!(
                    "{}\n      {{{{ if .Values.tier.enabled }}}}tier: a{{{{ end }}}}\n{{{{ if .Values.tier.enabled }}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{{{{ end }}}}\n",
                    workload("app: a")
                ),
            ),
        ],
        &["warning templates/a.yaml:7"],
        &[],
    );
    let set = |label: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\n{NAME}spec:\n  volumeClaimTemplates:\n  - metadata:\n      name: a\n      labels: {{{label}}}\n"
        )
    };
    template(
        "immutable-field",
        &set("v: {{ .Chart.Version }}"),
        &["error templates/a.yaml:6"],
        &set("v: a"),
    );
}

#[test]
fn objects_that_are_kept() {
    let object = |annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{{{ .Release.Name }}}}\n  annotations:\n    {annotations}\n"
        )
    };
    template(
        "resource-policy-keep",
        &object("helm.sh/resource-policy: keep"),
        &["note templates/a.yaml:6"],
        &object("a: b"),
    );
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
        template(
            id,
            &hook(bad),
            &["warning templates/a.yaml:7"],
            &hook("Pre-Install,test-success"),
        );
    }
    let object = format!("apiVersion: v1\nkind: ConfigMap\n{NAME}");
    template(
        id,
        &format!("{object}...\n{object}"),
        &["warning templates/a.yaml:5"],
        &format!("{object}---\n{object}...\n# The end.\n"),
    );
    // A helper prints the hook.
    rule(
        id,
        &[
            (
                "templates/_a.tpl",
                &format!("{{{{ define \"a\" }}}}\n{}{{{{ end }}}}", hook("x")),
            ),
            ("templates/a.yaml", "\n{{ include \"a\" . }}"),
        ],
        &["warning templates/a.yaml:2"],
        &[("templates/a.yaml", &object)],
    );
    let defined =
        format!("{{{{ define \"a\" }}}}{{{{ if .x }}}}\n{object}{{{{ end }}}}{{{{ end }}}}\n");
    rule(
        id,
        &[("templates/_a.yaml", &format!("{defined}{object}"))],
        &["warning templates/_a.yaml:8"],
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
        &["warning charts/l/templates/a.yaml:2"],
        &[
            ("charts/l/Chart.yaml", &library("application")),
            ("charts/l/templates/a.yaml", &object),
        ],
    );
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n";
    rule(
        id,
        &[("crds/a.yaml.tpl", definition)],
        &["warning crds/a.yaml.tpl:2"],
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
            &["error templates/a.yaml:3"],
            &[("templates/a.yaml", &good), values],
        );
    }
}

#[test]
fn a_chart_that_cannot_be_rendered() {
    template(
        "render",
        "{{ fail \"no\" }}",
        &["error Chart.yaml:1"],
        "{{ if .Values.a }}{{ fail \"no\" }}{{ end }}",
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
    let files = [
        File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.2.3\n"),
        File::new("values.yaml", "a: {enabled: false}\n"),
        File::new("templates/a.yaml", text),
    ];
    let chart = Chart::from_files(files).unwrap();
    let input = Input {
        chart: &chart,
        given: &[],
        kube_minor: 36,
        limits: ChartLimits::default(),
        values_in_errors: false,
    };
    let findings = lint(&input);
    let tests: Vec<&Finding> = findings
        .iter()
        .filter(|found| found.id == "test-hook")
        .collect();
    assert_eq!(tests.len(), 1, "{tests:#?}");
    assert!(tests[0].message.starts_with("Pod is a test"), "{tests:#?}");
    assert_eq!(lint(&input), findings);
}

#[test]
fn rules_are_sorted() {
    assert!(rules().is_sorted_by_key(|(id, _)| id));
}
