//! Pins images with `olm bundle --pin`: of an umbrella chart, and of public Helm operators.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::{HttpServer, skipped};
use serde_json::Value;

use support::{Done, PROGRAM, Project, Text as _, alone};

/// No registry answers behind it.
const NO_PROXY: &str = "http://127.0.0.1:9";

fn command(directory: &Path, arguments: &str) -> Command {
    let mut command = alone(Path::new(PROGRAM), directory, arguments);
    command.env("HTTPS_PROXY", NO_PROXY).env_remove("NO_PROXY");
    command
}

fn run(directory: &Path, arguments: &str) -> Done {
    Done::of(command(directory, arguments).output().unwrap())
}

/// Returns the only `ClusterServiceVersion` of a bundle.
fn csv(bundle: &Path) -> Value {
    let mut entries = fs::read_dir(bundle.join("manifests")).unwrap();
    let is_csv = |path: &PathBuf| {
        path.to_str()
            .unwrap()
            .ends_with("clusterserviceversion.yaml")
    };
    let path = entries.find_map(|entry| Some(entry.unwrap().path()).filter(is_csv));
    go_yaml::from_slice(&fs::read(path.unwrap()).unwrap()).unwrap()
}

/// Returns the variables with images of the operator, and its related images.
fn pins(bundle: &Path) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let csv = csv(bundle);
    let container = "/spec/install/spec/deployments/0/spec/template/spec/containers/0/env";
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let variables = csv.pointer(container).and_then(Value::as_array);
    let variables = variables.into_iter().flatten();
    let variables = variables.map(|one| (text(&one["name"]), text(&one["value"])));
    let images = csv["spec"]["relatedImages"].as_array().unwrap().iter();
    (
        variables
            .filter(|(name, _)| name.starts_with("RELATED_IMAGE_"))
            .collect(),
        images.map(|one| text(&one["image"])).collect(),
    )
}

/// Returns the images that the operator deploys for a custom resource, or none if its chart refuses it.
fn deployed(
    directory: &Path,
    file: &str,
    variables: &BTreeMap<String, String>,
) -> Option<Vec<String>> {
    let mut command = command(
        directory,
        &format!("template --images --namespace default --cr {file}"),
    );
    let done = Done::of(command.envs(variables).output().unwrap());
    done.succeeds()
        .then(|| done.out.lines().map(str::to_owned).collect())
}

/// An umbrella chart, and the project of an operator for it. `REGISTRY` stands for a registry that answers.
const UMBRELLA: &[(&str, &str)] = &[
    (
        "chart/Chart.yaml",
        "apiVersion: v2\nname: shop\nversion: 1.0.0\nappVersion: 1.4.0\ndependencies:\n\
         - {name: cache, version: 0.1.0, condition: cache.enabled}\n\
         - {name: db, version: 0.1.0, alias: store}\n",
    ),
    (
        "chart/values.yaml",
        "global: {imageRegistry: ''}\n\
         image: {registry: REGISTRY, repository: shop/web, tag: '', digest: ''}\n\
         metrics: {enabled: false, image: 'REGISTRY/shop/exporter:0.9'}\n\
         backup: {repository: REGISTRY/shop/backup, tag: 2.10}\n\
         tools: {prefix: REGISTRY/tools, tag: '5'}\n\
         cache: {enabled: false}\n",
    ),
    (
        "chart/templates/_image.tpl",
        "{{- define \"image\" -}}\n\
         {{- $registry := .root.Values.global.imageRegistry | default .image.registry -}}\n\
         {{- if .image.digest -}}\n{{ $registry }}/{{ .image.repository }}@{{ .image.digest }}\n\
         {{- else -}}\n{{ $registry }}/{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}\n\
         {{- end }}{{- end }}\n",
    ),
    (
        "chart/templates/web.yaml",
        "apiVersion: apps/v1\nkind: Deployment\n\
         metadata: {name: web, labels: {version: \"{{ .Values.image.tag | default .Chart.AppVersion }}\"}}\n\
         spec: {template: {spec: {\n\
         \x20 initContainers: [{name: wait, image: busybox:1.36}],\n\
         \x20 containers: [{name: web, image: '{{ include \"image\" (dict \"image\" .Values.image \"root\" .) }}'}\n\
         \x20 {{ if .Values.metrics.enabled }}, {name: metrics, image: '{{ .Values.metrics.image }}'}{{ end }}]}}}\n\
         ---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: backup}\n\
         spec: {jobTemplate: {spec: {template: {spec: {containers: [\n\
         \x20 {name: backup, image: '{{ .Values.backup.repository }}:{{ .Values.backup.tag }}'}]}}}}}\n\
         ---\napiVersion: example.com/v1\nkind: Tool\nmetadata: {name: one}\n\
         spec: {image: '{{ .Values.tools.prefix }}/one:{{ .Values.tools.tag }}'}\n\
         ---\napiVersion: example.com/v1\nkind: Tool\nmetadata: {name: two}\n\
         spec: {image: '{{ .Values.tools.prefix }}/two:{{ .Values.tools.tag }}'}\n",
    ),
    (
        "chart/charts/cache/Chart.yaml",
        "apiVersion: v2\nname: cache\nversion: 0.1.0\n",
    ),
    (
        "chart/charts/cache/values.yaml",
        "image: {repository: docker.io/library/redis, tag: '7'}\n",
    ),
    (
        "chart/charts/cache/templates/cache.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: cache}\n\
         spec: {containers: [{name: cache, image: '{{ .Values.image.repository }}:{{ .Values.image.tag }}'}]}\n",
    ),
    (
        "chart/charts/db/Chart.yaml",
        "apiVersion: v2\nname: db\nversion: 0.1.0\n",
    ),
    (
        "chart/charts/db/values.yaml",
        "image: {registry: REGISTRY, name: postgres, tag: '16', sha: ''}\n",
    ),
    (
        "chart/charts/db/templates/db.yaml",
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n\
         spec: {template: {spec: {containers: [{name: db, image: '{{ .Values.image.registry }}/{{ .Values.image.name }}:\
         {{ .Values.image.tag }}{{ with .Values.image.sha }}@sha256:{{ . }}{{ end }}'}]}}}\n",
    ),
];

/// Starts a registry in which every tag has a manifest of its own.
fn registry() -> HttpServer {
    HttpServer::start(|request| {
        if request.target.contains("/manifests/") {
            let body = format!("{{\"schemaVersion\": 2, \"of\": {:?}}}", request.target);
            let index = "application/vnd.oci.image.index.v1+json";
            return Reply::body(body).header("content-type", index);
        }
        Reply::status(404)
    })
    .unwrap()
}

/// Makes a project of the umbrella chart.
fn umbrella(registry: &HttpServer) -> Project {
    let project = Project::with(&[]);
    let address = registry.address();
    for (name, text) in UMBRELLA {
        project.write(name, &text.replace("REGISTRY", &address));
    }
    let root = project.0.path();
    for arguments in [
        "init --domain example.com --project-name shop-operator --plugins helm --with olm",
        "create api --group shop --version v1 --kind Shop --helm-chart chart",
    ] {
        run(root, arguments).ok();
    }
    let watches = project.read("watches.yaml");
    project.write(
        "watches.yaml",
        &format!("# Of the shop.\n{watches}\n# The end.\n"),
    );
    project
}

const BUNDLE: &str = "olm bundle --version 0.1.0 --image 127.0.0.1:1/shop-operator:v1 --pin";

#[test]
fn every_image_of_an_umbrella_chart_is_pinned_or_listed() {
    let registry = registry();
    let project = umbrella(&registry);
    let root = project.0.path();
    let address = registry.address();
    let out = run(root, BUNDLE).ok();
    // What no value leads to, what two images share, and what a silent registry has.
    out.must_have("busybox:1.36 of Deployment.apps web (templates/web.yaml) is not pinned: no value of the chart leads to it; write image: {{ .Values.images.busybox | quote }} in templates/web.yaml, and images.busybox: busybox:1.36 in the values.yaml of its chart\n");
    out.must_have(&format!(
        "{address}/tools/one:5 is pinned by its tag only: "
    ));
    out.must_have("docker.io/library/redis:7 is pinned by its tag only: docker.io does not answer");
    let (variables, related) = pins(&project.path("bundle"));
    let by_digest = ["WEB", "EXPORTER", "BACKUP", "POSTGRES"];
    for name in by_digest {
        let image = &variables[&format!("RELATED_IMAGE_{name}")];
        image.must_have("@sha256:");
        assert!(related.contains(image), "{image}\n{related:?}");
    }
    assert_eq!(variables.len(), by_digest.len() + 3, "{variables:?}");

    // The files that people edit keep what they had.
    let watches = project.read("watches.yaml");
    assert!(
        watches.starts_with("# Of the shop.\n") && watches.ends_with("\n# The end.\n"),
        "{watches}"
    );
    watches.must_have(
        "    image.digest: '{{ regexFind \"sha256:[0-9a-f]+\" \"$RELATED_IMAGE_WEB\" }}'\n",
    );
    watches.must_have("    metrics.image: $RELATED_IMAGE_EXPORTER\n");
    let manager = project.read("config/manager/manager.yaml");
    manager.must_have("      # Reconciles in progress may take");
    manager.must_have(&format!(
        "        - name: RELATED_IMAGE_BACKUP\n          value: '{}'\n",
        variables["RELATED_IMAGE_BACKUP"]
    ));

    // What is deployed is what the variables say, also those of a mirror.
    project.write("cr.yaml", "apiVersion: shop.example.com/v1\nkind: Shop\nmetadata: {name: a}\nspec: {metrics: {enabled: true}, cache: {enabled: true}}\n");
    let images = deployed(root, "cr.yaml", &variables).unwrap();
    for image in &images {
        let is_pinned = related.contains(image) || related.iter().any(|one| is_same(one, image));
        assert!(is_pinned || image == "busybox:1.36", "{image}\n{related:?}");
    }
    let mirror = variables.iter().map(|(name, image)| {
        let (repository, digest) = image.split_once('@').unwrap_or((image, ""));
        let last = repository
            .rsplit('/')
            .next()
            .unwrap()
            .split(':')
            .next()
            .unwrap();
        let mirrored = format!("mirror.example.com:5000/a/b/{last}@{digest}");
        (
            name.clone(),
            if digest.is_empty() {
                image.clone()
            } else {
                mirrored
            },
        )
    });
    let mirrored = deployed(root, "cr.yaml", &mirror.collect()).unwrap();
    for name in ["web", "exporter", "backup", "postgres"] {
        let start = format!("mirror.example.com:5000/a/b/{name}");
        assert!(
            mirrored.iter().any(|image| image.starts_with(&start)),
            "{name}: {mirrored:?}"
        );
    }
}

/// Returns whether two references name the same image, one of them without a tag.
fn is_same(one: &str, other: &str) -> bool {
    let parts = |text: &str| {
        let (name, digest) = text.split_once('@')?;
        let name = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name,
            _ => name,
        };
        Some((name.to_owned(), digest.to_owned()))
    };
    parts(one).is_some() && parts(one) == parts(other)
}

#[test]
fn what_is_pinned_stays_as_it_is_and_no_registry_is_asked() {
    let registry = registry();
    let project = umbrella(&registry);
    let root = project.0.path();
    run(root, BUNDLE).ok();
    let written = support::files(root);
    let asked = registry.received().len();
    assert!(asked > 0);
    run(root, BUNDLE).ok();
    assert_eq!(support::files(root), written);
    run(root, &format!("{BUNDLE} --check")).ok();
    let more = &registry.received()[asked..];
    let is_of_tools = |path: &str| path.contains("/tools/");
    assert!(
        more.iter().all(|request| is_of_tools(&request.target)),
        "{more:?}"
    );
    // A new version of the chart has another image.
    let values = project.read("helm-charts/shop/values.yaml");
    project.write(
        "helm-charts/shop/values.yaml",
        &values.replace("exporter:0.9", "exporter:1.0"),
    );
    run(root, BUNDLE).ok();
    let (variables, _) = pins(&project.path("bundle"));
    variables["RELATED_IMAGE_EXPORTER"].must_have("/shop/exporter:1.0@sha256:");
}

#[test]
fn lines_of_an_author_are_kept_and_what_to_write_instead_is_said() {
    let registry = registry();
    let project = umbrella(&registry);
    let root = project.0.path();
    let split = "\n  overrideValues:\n    # By hand.\n    backup.repository: '{{ (\"$RELATED_IMAGE_B\" | split \":\")._0 }}'\n    backup.tag: '{{ (\"$RELATED_IMAGE_B\" | split \":\")._1 }}'\n";
    let watches = project
        .read("watches.yaml")
        .replace("\n\n# The end", &format!("{split}\n# The end"));
    project.write("watches.yaml", &watches);
    let out = run(root, BUNDLE).ok();
    out.must_have("instead of backup.repository: ");
    out.must_have("write backup.repository: '{{ regexReplaceAll \":[^/]*\\\\z\" \"$RELATED_IMAGE_B\" \"\" }}', backup.tag: '{{ regexReplaceAll \"^(.*/)?[^/:]*:\" \"$RELATED_IMAGE_B\" \"\" }}'");
    project.read("watches.yaml").must_have(
        "    # By hand.\n    backup.repository: '{{ (\"$RELATED_IMAGE_B\" | split \":\")._0 }}'\n",
    );
}

/// Returns the folder of the public operators.
fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("OPERATORS")
        .map_or_else(|| root.join("../shared/operators"), PathBuf::from);
    fs::canonicalize(folder).ok()
}

/// An operator without a chart.
const NO_CHART: &str = "SumoLogic_sumologic-kubernetes-collection-helm-operator";

const MANAGER: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: manager}\n\
    spec: {template: {spec: {serviceAccountName: manager, containers: [{name: manager, image: 'a.example.com/operator:v1'}]}}}\n";

#[test]
fn every_image_of_public_operators_is_pinned_or_listed() {
    let Some(folder) = folder() else {
        skipped(
            1,
            &"there are no public operators in ../shared/operators or OPERATORS",
        );
        return;
    };
    let entries = fs::read_dir(folder.join("archives")).unwrap();
    let archives: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let check = |archives: &[PathBuf]| -> usize {
        let named = archives
            .iter()
            .map(|archive| (archive.file_stem().unwrap().to_str().unwrap(), archive));
        named
            .filter(|(name, _)| *name != NO_CHART)
            .map(|(name, archive)| check_operator(name, archive))
            .sum()
    };
    let (first, second) = archives.split_at(archives.len() / 2);
    let checked = thread::scope(|scope| {
        let other = scope.spawn(|| check(first));
        check(second) + other.join().unwrap()
    });
    assert!(checked >= 25, "{checked} custom resources");
}

/// Checks the images of the samples of an operator; returns how many could be rendered.
fn check_operator(name: &str, archive: &Path) -> usize {
    let project = Project::with(&[("manager.yaml", MANAGER)]);
    let root = project.0.path();
    let unpacked = Command::new("tar")
        .arg("xzC")
        .arg(root)
        .stdin(File::open(archive).unwrap())
        .status();
    assert!(unpacked.unwrap().success(), "{name}");
    let watches = project.read("watches.yaml").replace("/opt/helm/", "");
    project.write("watches.yaml", &watches);
    let project_file = project
        .read("PROJECT")
        .replace("3-alpha", "3")
        .replace("version: 3\n", "version: \"3\"\n");
    project.write("PROJECT", &project_file);
    // All samples, whatever their kustomization lists.
    let samples: Vec<PathBuf> = fs::read_dir(project.path("config/samples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension().is_some_and(|end| end == "yaml")
                && !path.ends_with("kustomization.yaml")
        })
        .collect();
    let names = samples
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap());
    let list = format!("resources: [{}]\n", names.collect::<Vec<_>>().join(", "));
    project.write("config/samples/kustomization.yaml", &list);
    let done = run(
        root,
        "olm bundle --version 0.1.0 --manifests manager.yaml --pin --package operator",
    );
    assert!(matches!(done.code, Some(0 | 3)), "{name}: {done:?}");
    let (variables, related) = pins(&project.path("bundle"));
    let mut checked = 0;
    for file in samples {
        let Some(images) = deployed(root, file.to_str().unwrap(), &variables) else {
            continue;
        };
        checked += 1;
        // Those of variables that only the author's cluster sets have no name.
        for image in images.into_iter().filter(|image| !image.starts_with(':')) {
            let is_pinned =
                related.contains(&image) || related.iter().any(|one| is_tagged(one, &image));
            let is_listed = done.out.contains(&format!("{image} of "));
            assert!(
                is_pinned || is_listed,
                "{name}: {image}\n{related:?}\n{}",
                done.out
            );
        }
    }
    checked
}

/// Returns whether a qualified reference names an image as charts write it.
fn is_tagged(qualified: &str, image: &str) -> bool {
    let short = qualified.strip_prefix("docker.io/").unwrap_or(qualified);
    short == image || short.strip_prefix("library/") == Some(image)
}
