//! Tests of valid watches files, and of the messages about invalid ones.

mod table;

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{
    CrdPolicy, DriftMode, OverrideValuesType, PatchBody, ReferenceKind, RemediationStrategy,
};
use super::{load, parse};

fn chart_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("chart")).unwrap();
    std::fs::write(
        dir.path().join("chart/Chart.yaml"),
        "name: chart\nversion: 0.1.0\n",
    )
    .unwrap();
    dir
}

fn error_of(text: &str) -> String {
    let dir = chart_dir();
    let file = dir.path().join("watches.yaml");
    std::fs::write(&file, text).unwrap();
    let error = load(&file).expect_err("a mistake").to_string();
    error.replace(&dir.path().display().to_string(), "DIR")
}

#[test]
fn options_of_a_minimal_entry_have_their_defaults() {
    let (entries, problems) = parse(
        b"- group: cache.example.com\n  version: v1alpha1\n  kind: Memcached\n  chart: charts/m\n",
        Path::new("/base"),
    );
    assert_eq!(problems, []);
    let watch = &entries[0].watch;
    assert_eq!(watch.gvk.api_version(), "cache.example.com/v1alpha1");
    assert_eq!(watch.chart.path(), Some(Path::new("/base/charts/m")));
    assert!(watch.watch_dependent_resources);
    assert_eq!(watch.policy.crds, CrdPolicy::Create);
    assert_eq!(watch.policy.drift_detection.mode, DriftMode::Repair);
    assert_eq!(watch.reconcile_period, None);
    assert!(
        !watch.policy.lookup_is_trusted
            && !watch.allow_operator_accounts
            && watch.policy.crash_logs
    );
}

#[test]
fn all_fields_are_read() {
    let text = r#"
- group: example.com
  version: v1
  kind: App
  chart: chart
  watchDependentResources: false
  overrideValues: {image.tag: $TAG, debug: true, count: 3}
  overrideValuesType: string
  reconcilePeriod: 1m30s
  maxConcurrentReconciles: 4
  selector: {matchLabels: {tier: gold}, matchExpressions: [{key: env, operator: In, values: [a, b]}]}
  dryRunOption: server
  lookup: trusted
  values: {host: "{{ .Object.metadata.name }}"}
  valuesFrom: [{kind: Secret, name: db, key: password, targetPath: auth.password, optional: true}]
  install: {timeout: 2m, wait: true, waitForJobs: true, remediation: {retries: 2, strategy: uninstall}}
  upgrade: {remediation: {strategy: none}, recreate: [Job, StatefulSet]}
  rollback: {disableHooks: true}
  uninstall: {timeout: 10s}
  test: {timeout: 1m}
  driftDetection: {mode: warn, ignore: [{target: {kind: Deployment}, paths: [/spec/replicas]}]}
  patches:
  - target: {kind: Service}
    patch: |
      - op: add
        path: /metadata/labels/x
        value: y
  - patch: {metadata: {annotations: {a: b}}}
  serviceAccountName: deployer
  allowOperatorAccounts: true
  dependsOn: [{apiVersion: v1, kind: Db, name: main}]
  maxHistory: 3
  releaseName: "r-{{ .Object.metadata.name }}"
  releaseNamespace: apps
  pauseAnnotation: example.com/hold
  allowEmpty: true
  crashLogs: false
  limits: {memory: 1Gi, time: 1m}
  crds: createReplace
"#;
    let (entries, problems) = parse(text.as_bytes(), Path::new(""));
    assert_eq!(problems, []);
    let watch = &entries[0].watch;
    assert!(!watch.watch_dependent_resources);
    assert_eq!(watch.override_values["image.tag"], "$TAG");
    assert_eq!(watch.override_values["debug"], "true");
    assert_eq!(watch.override_values["count"], "3");
    assert_eq!(watch.override_values_type, OverrideValuesType::String);
    assert_eq!(watch.reconcile_period, Some(Duration::from_secs(90)));
    assert_eq!(watch.max_concurrent_reconciles.map(usize::from), Some(4));
    let expected = "tier=gold,env in (a,b)";
    assert_eq!(watch.selector.as_ref().unwrap().to_string(), expected);
    assert!(watch.policy.lookup_is_input);
    assert!(
        watch.policy.lookup_is_trusted && watch.allow_operator_accounts && !watch.policy.crash_logs
    );
    assert_eq!(watch.policy.limits.memory, Some(1 << 30));
    assert_eq!(watch.policy.limits.time, Some(Duration::from_mins(1)));
    assert_eq!(watch.values_from[0].kind, ReferenceKind::Secret);
    let expected = Some("auth.password");
    assert_eq!(watch.values_from[0].target_path.as_deref(), expected);
    assert_eq!(watch.policy.install.timeout, Some(Duration::from_mins(2)));
    assert_eq!(watch.policy.install.remediation.retries, Some(2));
    let uninstall = Some(RemediationStrategy::Uninstall);
    assert_eq!(watch.policy.install.remediation.strategy, uninstall);
    assert_eq!(
        watch.policy.upgrade.recreate.as_ref().unwrap(),
        &["Job", "StatefulSet"]
    );
    assert!(watch.policy.rollback.disable_hooks);
    let expected = Some(Duration::from_mins(1));
    assert_eq!(watch.policy.test.as_ref().unwrap().timeout, expected);
    assert_eq!(watch.policy.drift_detection.mode, DriftMode::Warn);
    assert_eq!(
        watch.policy.drift_detection.ignore[0].paths,
        ["/spec/replicas"]
    );
    assert!(matches!(watch.policy.patches[0].patch, PatchBody::Json(_)));
    assert!(matches!(
        watch.policy.patches[1].patch,
        PatchBody::StrategicMerge(_)
    ));
    assert_eq!(watch.depends_on[0].kind, "Db");
    assert_eq!(watch.policy.max_history.map(usize::from), Some(3));
    assert_eq!(watch.release_namespace.as_deref(), Some("apps"));
    assert_eq!(watch.policy.crds, CrdPolicy::CreateReplace);
}

#[test]
fn an_entry_has_what_it_merges_unless_it_says_otherwise() {
    let text = "\
- &first
  group: example.com
  version: v1
  kind: App
  chart: chart
  maxHistory: 3
  overrideValues: &values {image.tag: a, debug: b}
- <<: *first
  kind: Site
  overrideValues: {<<: [*values], debug: c}
";
    let (entries, problems) = parse(text.as_bytes(), Path::new("/base"));
    assert_eq!(problems, []);
    let watch = &entries[1].watch;
    assert_eq!(watch.gvk.kind, "Site");
    assert_eq!(watch.policy.max_history.map(usize::from), Some(3));
    assert_eq!(watch.override_values["image.tag"], "a");
    assert_eq!(watch.override_values["debug"], "c");

    let error = error_of("- {version: v1, kind: App, chart: chart, <<: [3]}\n");
    assert!(error.contains("[0].<<: unknown field"), "{error}");
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_position() {
    let text = "\
- group: example.com
  version: v1
  kind: App
  chart: chart
  overideValues: {a: b}
  reconcilePeriod: soon
  install: {timeout: 5m, retries: 3}
- group: example.com
  version: v1
  kind: App
  chart: nowhere
- version: v1
  chart: chart
";
    insta::assert_snapshot!(error_of(text), @r#"
    DIR/watches.yaml:5:3: [0].overideValues: unknown field; did you mean `overrideValues`?
    DIR/watches.yaml:6:20: [0].reconcilePeriod: time: invalid duration "soon"; durations look like "300ms", "1m30s" or "2h"
    DIR/watches.yaml:7:26: [0].install.retries: unknown field; known fields: timeout, wait, disableHooks, waitForJobs, remediation
    DIR/watches.yaml:8:3: [1]: duplicate entry for example.com/v1, kind App: already in entry [0], line 1; remove one of them
    DIR/watches.yaml:11:10: [1].chart: DIR/nowhere does not exist; relative paths are resolved against the folder of the watches file
    DIR/watches.yaml:12:3: [2]: `kind` is required
    "#);
}

/// Returns the charts of rows `CHART => TEXT`, with the texts. `REPO` and `MINE` stand for fields.
fn rows(text: &str) -> impl Iterator<Item = (String, &str)> {
    let mine = "issuer: 'https://i', subject: me@h, trustedRoot: r.json";
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(move |line| {
        let (chart, expected) = line.split_once(" => ").unwrap();
        let chart = chart.replace("REPO", "repo: 'https://h/c', name: web");
        (chart.replace("MINE", mine), expected)
    })
}

/// Returns the chart of an entry, or the mistakes in it.
fn chart_of(chart: &str) -> String {
    let text = format!("- {{version: v1, kind: App, chart: {chart}}}");
    let (entries, problems) = parse(text.as_bytes(), Path::new("/base"));
    let said = problems
        .iter()
        .map(|p| format!("{}: {}", p.field, p.message))
        .collect::<Vec<_>>()
        .join("\n");
    let chart = entries.first().map(|entry| entry.watch.chart.clone());
    match chart {
        Some(chart) if problems.is_empty() => chart.to_string(),
        _ => said,
    }
}

#[test]
fn charts_are_urls_oci_names_or_maps_and_wrong_ones_are_refused_with_the_form() {
    for (chart, expected) in rows(
        "
        web => /base/web
        oci://h/web:1.0.0 => oci://h/web:1.0.0
        'https://h/web.tgz' => https://h/web.tgz
        {url: 'oci://h/web', version: ^1} => oci://h/web ^1
        {repo: 'https://h/c', name: web, version: ~2} => web in https://h/c ~2
        ",
    ) {
        assert_eq!(chart_of(&chart), expected);
    }
    for (chart, wanted) in rows(
        r#"
        'ftp://h/web.tgz' => [0].chart: "ftp://h/web.tgz" has the scheme
        'https://me:secret@h/web.tgz' => [0].chart: https://h/web.tgz is given with a user
        {url: ./web} => [0].chart.url: `./web` is not a URL, such as https://
        {} => [0].chart: give either `url`
        {url: 'oci://h/web', REPO} => [0].chart: give either `url`
        {repo: 'https://h/c'} => [0].chart: give either `url`
        {REPO, version: newest} => [0].chart.version: "newest" is neither
        {REPO, digest: abc} => [0].chart.digest: "abc" is not a SHA-256
        {REPO, digests: abc} => did you mean `digest`?
        {url: 'https://h/web.tgz', version: ^1} => [0].chart: a version cannot be chosen
        {url: 'oci://h/web:1.0.0', version: ^1} => [0].chart: oci://h/web:1.0.0 names the version
        "#,
    ) {
        let said = chart_of(&chart);
        assert!(said.contains(wanted), "{chart}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn charts_are_verified_with_a_keyring_a_key_or_an_identity_and_other_forms_are_refused() {
    for (chart, wanted) in rows(
        r#"
        {REPO, verify: {}} => [0].chart.verify: give either `cosign` with the file of a public `key` or with an `identity`, or
        {REPO, verify: {cosign: {key: a}, provenance: {keyring: b}}} => [0].chart.verify: give either `cosign`
        {REPO, verify: {provenance: {}}} => [0].chart.verify.provenance: `keyring` is required
        {REPO, verify: {cosign: {}}} => [0].chart.verify.cosign: give either the file of a public `key`, or an `identity`
        {REPO, verify: {cosign: {identity: me@h}}} => [0].chart.verify.cosign.identity: expected a map, found a string
        {REPO, verify: {cosign: {key: a.pub, identity: {MINE}}}} => [0].chart.verify.cosign: give either the file of a public `key`, or an `identity`
        {REPO, verify: {cosign: {identity: {}}}} => [0].chart.verify.cosign.identity: give either `issuer` or `issuerRegExp`
        {REPO, verify: {cosign: {identity: {}}}} => [0].chart.verify.cosign.identity: give either `subject` or `subjectRegExp`
        {REPO, verify: {cosign: {identity: {}}}} => [0].chart.verify.cosign.identity: `trustedRoot` is required
        {REPO, verify: {cosign: {identity: {issuerRegExp: .*, MINE}}}} => [0].chart.verify.cosign.identity: give either `issuer` or `issuerRegExp`
        {url: 'oci://h/web', verify: {cosign: {identity: {issuer: 'https://i', subjectRegExp: '[z-a]', trustedRoot: r.json}}}} => [0].chart.verify.cosign.identity.subjectRegExp: the pattern "[z-a]" for the subject of a signature is not a regular expression: invalid character class range
        {url: 'https://h/web.tgz', verify: {cosign: {identity: {MINE}}}} => [0].chart: `verify.cosign` needs a chart in a registry
        {url: 'https://h/web.tgz', verify: {cosign: {key: a.pub}}} => [0].chart: `verify.cosign` needs a chart in a registry
        "#,
    ) {
        let said = chart_of(&chart);
        assert!(said.contains(wanted), "{chart}: {said}");
    }
}

#[test]
fn a_range_of_versions_needs_a_lock_that_matches() {
    let text = "- {version: v1, kind: App, chart: {url: 'oci://h/web', version: ^1}}\n";
    let dir = chart_dir();
    let file = dir.path().join("watches.yaml");
    std::fs::write(&file, text).unwrap();
    let error = load(&file).unwrap_err().to_string();
    let expected = "[0].chart: oci://h/web ^1 does not say one exact version";
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("`hybrid-operator charts lock`"), "{error}");
    let lock = |reference: &str| {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let text = format!(
            "charts:\n- {{reference: {reference}, version: 1.4.0, url: 'oci://h/web:1.4.0@{digest}', digest: '{digest}'}}\n"
        );
        std::fs::write(dir.path().join("watches.lock"), text).unwrap();
    };
    lock("oci://h/web ^2");
    let error = load(&file).unwrap_err().to_string();
    let expected = "oci://h/web ^1 is not in watches.lock";
    assert!(error.contains(expected), "{error}");
    lock("oci://h/web ^1");
    let watches = load(&file).unwrap();
    let chart = watches[0].chart.remote().unwrap();
    let expected = Some("1.4.0");
    assert_eq!(chart.locked.as_ref().unwrap().version.as_deref(), expected);
    std::fs::write(dir.path().join("watches.lock"), "[]").unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("watches.lock is not a lock"), "{error}");
}

#[test]
fn a_file_that_is_not_a_yaml_list_is_rejected() {
    assert!(error_of("group: x\n").contains("a watches file is a list of entries"));
    assert!(error_of("- a: [\n").starts_with("DIR/watches.yaml:"));
}

#[test]
fn the_error_names_a_missing_file() {
    let error = load(Path::new("/nowhere/watches.yaml")).expect_err("no file");
    assert_eq!(error.to_string(), "cannot read /nowhere/watches.yaml");
}

/// An entry with outputs.
fn outputs(fields: &str) -> (Vec<super::Entry>, Vec<String>) {
    let objects = "objects: {web: {kind: Deployment}, front: {kind: Service, labels: {matchLabels: {a: b}}}, auth: {kind: Secret}}";
    let text = format!("- {{group: g.com, version: v1, kind: A, chart: c, {objects}, {fields}}}\n");
    let (entries, problems) = parse(text.as_bytes(), Path::new(""));
    let messages = problems
        .into_iter()
        .map(|problem| format!("{}: {}", problem.field, problem.message));
    (entries, messages.collect())
}

#[test]
fn watches_keep_the_fields_that_outputs_read() {
    let (entries, problems) = outputs(
        "status: {url: 'objects.front.metadata.name + string(objects.web.status.readyReplicas)'}, \
         readyWhen: [objects.web.spec.replicas == 1]",
    );
    assert_eq!(problems, [""; 0]);
    let named = |paths: &[&[&str]]| {
        let mut fields = kube_objects::watch::Fields::default();
        for path in paths {
            fields.add(path);
        }
        std::sync::Arc::new(fields)
    };
    let expected = [
        (
            "Deployment",
            named(&[&["status", "readyReplicas"], &["spec", "replicas"]]),
        ),
        ("Secret", named(&[])),
        (
            "Service",
            named(&[&["metadata", "labels"], &["metadata", "name"]]),
        ),
    ];
    let expected = expected.map(|(kind, fields)| (kind.to_owned(), fields));
    assert_eq!(entries[0].watch.policy.kept_fields, expected.into());
}

#[test]
fn outputs_that_cannot_work_are_refused_with_their_place() {
    for (fields, expected) in [
        (
            "status: {conditions: spec.a}",
            "[0].status.conditions: `conditions` is a field that the operator sets",
        ),
        (
            "status: {a.b: spec.a}",
            "[0].status.a.b: `a.b` is not a name of letters",
        ),
        (
            "status: {a: objects.auth.metadata.annotations.x}",
            "[0].status.a: the expression reads the data of a Secret",
        ),
        (
            "status: {a-b: spec.a}",
            "[0].status.a-b: `a-b` is not a name of letters",
        ),
        (
            "status: {a: objects.web.status.ready}",
            "[0].status.a: 1:20: ",
        ),
        ("status: {a: objects.other.status}", "[0].status.a: 1:9: "),
        (
            "status: {a: objects.auth.data.password}",
            "[0].status.a: the expression reads the data of a Secret",
        ),
        ("status: {a: 'string(objects.auth)'}", "[0].status.a: "),
        ("status: {a: '[objects]'}", "[0].status.a: "),
        (
            "readyWhen: [objects.auth.data.a == b'']",
            "[0].readyWhen[0]: the expression reads the data of a Secret",
        ),
        (
            "readyWhen: ['true', objects.web.spec.replicas]",
            "[0].readyWhen[1]: `objects.web.spec.replicas` is int",
        ),
        (
            "status: {a: {sensitive: true}}",
            "[0].status.a: `value` is required",
        ),
    ] {
        let (_, problems) = outputs(fields);
        assert!(
            problems.len() == 1 && problems[0].starts_with(expected),
            "{fields}: {problems:#?}"
        );
    }
    let (_, problems) = outputs(
        "status: {a: {value: objects.auth.data.password, sensitive: true}, b: objects.auth.metadata.name}",
    );
    assert_eq!(problems, [""; 0]);
}

#[test]
fn a_spec_of_its_own_is_a_schema_with_defaults_apart() {
    let parsed = |api: &str| {
        let text =
            format!("- {{group: g.com, version: v1, kind: A, chart: c, api: {{fields: {api}}}}}\n");
        let (entries, problems) = parse(text.as_bytes(), Path::new(""));
        let messages = problems
            .into_iter()
            .map(|problem| format!("{}: {}", problem.field, problem.message));
        (
            entries.into_iter().next().and_then(|entry| entry.watch.api),
            messages.collect::<Vec<_>>(),
        )
    };
    let (api, problems) = parsed(
        "{size: 'string | enum=a,b | default=a', zones: '[]string', ports: 'map[string]integer | optional', \
          limits: {memory: string | default=1Gi, cpu: number | minimum=0.1 | optional}, free: any | optional}",
    );
    assert_eq!(problems, [""; 0]);
    let api = api.unwrap();
    assert_eq!(
        api.schema,
        json!({"type": "object", "required": ["zones"], "properties": {
            "size": {"type": "string", "enum": ["a", "b"]},
            "zones": {"type": "array", "items": {"type": "string"}},
            "ports": {"type": "object", "additionalProperties": {"type": "integer"}},
            "limits": {"type": "object", "properties": {
                "memory": {"type": "string"}, "cpu": {"type": "number", "minimum": 0.1}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
        }})
    );
    let spec = api.with_defaults(&json!({"limits": {"cpu": 1}, "size": null}));
    assert_eq!(
        spec,
        json!({"size": "a", "limits": {"memory": "1Gi", "cpu": 1}})
    );
    for (api, expected) in [
        ("{a: text}", "[0].api.fields.a: `text` is not a type"),
        (
            "{a: string | optinal}",
            "[0].api.fields.a: `optinal` is no mark",
        ),
        (
            "{a: integer | default=x}",
            "[0].api.fields.a: `x` is not of the type integer",
        ),
        (
            "{a: 'string | enum=b,c | default=d'}",
            "[0].api.fields.a: the default \"d\" is not one of",
        ),
        (
            "{a: {b: 5}}",
            "[0].api.fields.a.b: expected a type, such as",
        ),
        (
            "{a: integer | minimum=few}",
            "[0].api.fields.a: minimum: `few` is not a number",
        ),
        (
            "{a: {secretRef: false}}",
            "[0].api.fields.a: `secretRef` is true, or",
        ),
        (
            "{a: {secretRef: true, key: b}}",
            "[0].api.fields.a.key: unknown field",
        ),
    ] {
        let (_, problems) = parsed(api);
        assert!(
            problems.len() == 1 && problems[0].starts_with(expected),
            "{api}: {problems:#?}"
        );
    }
}

#[test]
fn values_that_are_mapped_twice_or_from_fields_that_do_not_exist_are_refused() {
    for (map, expected) in [
        (
            "{a.b: spec.size, a: spec.size}",
            "[0].map.a.b: `a.b` and `a` write the same value",
        ),
        (
            "{a..b: spec.size}",
            "[0].map.a..b: `a..b` is not a path of names",
        ),
        (
            "{a: spec.sise}",
            "[0].map.a: 1:6: spec has no field sise; did you mean size?",
        ),
        (
            "{a: [spec.size]}",
            "[0].map.a: expected an expression in CEL",
        ),
        ("{a: spec.login.word}", "[0].map.a: 1:12: "),
        (
            "{'a\\.b': spec.login}",
            "[0].map.a\\.b: `a\\.b`: no name has a dot",
        ),
    ] {
        let text = format!(
            "- {{group: g.com, version: v1, kind: A, chart: c, api: {{fields: {{size: string, login: {{secretRef: true}}}}}}, map: {map}}}\n"
        );
        let (_, problems) = parse(text.as_bytes(), Path::new(""));
        let said = problems
            .iter()
            .map(|problem| format!("{}: {}", problem.field, problem.message));
        let said: Vec<_> = said.collect();
        assert!(
            said.len() == 1 && said[0].starts_with(expected),
            "{map}: {said:#?}"
        );
    }
}

#[test]
fn a_field_for_a_secret_is_its_name_and_key_and_as_a_whole_its_content() {
    let text = b"- {group: g.com, version: v1, kind: A, chart: c, \
        api: {fields: {auth: {login: {secretRef: true, optional: true}}}}, \
        map: {auth.password: (spec.auth).login, auth.secret: spec.auth.login.name}}\n";
    let (entries, problems) = parse(text, Path::new(""));
    assert_eq!(problems, []);
    let watch = &entries[0].watch;
    let names = |path: &str| path.split('.').map(ToOwned::to_owned).collect::<Vec<_>>();
    let expected = [(names("auth.password"), names("auth.login"))];
    assert_eq!(watch.secrets, expected.into());
    assert!(watch.map.keys().eq([&names("auth.secret")]));
    let schema = &watch.api.as_ref().unwrap().schema;
    let required = schema.pointer("/properties/auth/properties/login/required");
    assert_eq!(required, Some(&json!(["key", "name"])));
    assert_eq!(schema.get("required"), None);
}
