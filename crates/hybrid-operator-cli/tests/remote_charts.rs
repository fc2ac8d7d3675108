//! Charts of repositories and registries in `template`, `lint` and `create api`. The charts are packaged,
//! indexed and pushed by Helm's command, whose output is compared.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::BASE64;
use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::{HttpServer, Registry, helm, packaged_chart, shared_or_skip};
use sha2::{Digest as _, Sha256};

use support::{Done, PROGRAM, Text as _, alone, or_skip};

/// The user `me` with the password `hidden`.
const HTPASSWD: &str = "me:$2a$10$NQA4HuFFf3Bg3BFeGanQO.Beph0quhOf.OgOtT5sKwqYp9sCBgcXi\n";

/// The header of the user `me` with this password.
const ME: &str = "Basic bWU6aGlkZGVu";

/// A directory with the charts of the tests, and Helm's command.
struct Fixture {
    helm: PathBuf,
    directory: tempfile::TempDir,
}

impl Fixture {
    /// Packages the chart `shop` in three versions. Returns `None` if the machine cannot build Helm.
    fn new() -> Option<Self> {
        let fixture = Self {
            helm: helm::ensure_or_skip().unwrap()?,
            directory: tempfile::tempdir().unwrap(),
        };
        for version in ["1.2.3", "1.10.0", "2.0.0-rc.1"] {
            fixture.package(version, "");
        }
        fixture.helm("repo index repo");
        Some(fixture)
    }

    /// Packages a version of the chart `shop` into `repo`.
    fn package(&self, version: &str, flags: &str) {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charts/shop");
        let versions = format!("--version {version} --app-version {version}");
        self.helm(&format!(
            "package {} -d repo {versions} {flags}",
            chart.display()
        ));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        support::write(&self.path(name), text);
    }

    /// Writes a custom resource of the kind `Shop` to `cr.yaml`.
    fn write_cr(&self) {
        let metadata = "{name: web, namespace: default}";
        let cr =
            format!("apiVersion: example.com/v1\nkind: Shop\nmetadata: {metadata}\nspec: {{}}\n");
        self.write("cr.yaml", &cr);
    }

    fn run(&self, program: &Path, arguments: &str) -> Done {
        let mut command = alone(program, self.directory.path(), arguments);
        Done::of(command.output().unwrap())
    }

    /// Runs Helm's command, which must succeed, and returns what it prints.
    #[track_caller]
    fn helm(&self, arguments: &str) -> String {
        self.run(&self.helm, arguments).ok()
    }

    /// Runs our command, which must succeed, and returns what it prints.
    #[track_caller]
    fn ours(&self, arguments: &str) -> String {
        self.run(Path::new(PROGRAM), arguments).ok()
    }

    /// Fetches what a chart depends on, and returns the messages about it.
    #[track_caller]
    fn fetches(&self, chart: &str) -> String {
        let arguments = format!("template web {chart} --dependency-update --plain-http");
        let done = self.run(Path::new(PROGRAM), &arguments);
        assert_eq!(done.code, Some(0), "{}", done.err);
        done.err
    }

    /// Runs our command, which must fail, and returns its message.
    #[track_caller]
    fn error(&self, arguments: &str) -> String {
        let done = self.run(Path::new(PROGRAM), arguments);
        assert_eq!(done.code, Some(1), "{arguments}");
        done.err
    }

    /// Serves the packaged charts and their index.
    fn repository(&self) -> HttpServer {
        self.repository_for(None)
    }

    /// Serves the packaged charts and their index to requests with this header `Authorization`.
    fn repository_for(&self, authorization: Option<&'static str>) -> HttpServer {
        let folder = self.path("repo");
        HttpServer::start(move |request| {
            if authorization.is_some()
                && request.headers.get("authorization").map(String::as_str) != authorization
            {
                return Reply::status(401);
            }
            let name = request.target.trim_start_matches("/charts/");
            match fs::read(folder.join(name)) {
                Ok(body) => Reply::body(body),
                Err(_) => Reply::status(404),
            }
        })
        .unwrap()
    }

    /// Adds a repository, which wants a password, as `shops`.
    fn added_repository(&self) -> HttpServer {
        let server = self.repository_for(Some(ME));
        let repo = server.url("/charts");
        self.helm(&format!(
            "repo add shops {repo} --username me --password hidden"
        ));
        server
    }

    /// Makes a fixture, and a registry with all versions. Returns `None` if the machine has not what they need.
    fn with_registry() -> Option<(Self, Registry)> {
        let fixture = Self::new()?;
        let registry = Registry::start_or_skip(None).unwrap()?;
        fixture.push(&registry, "");
        Some((fixture, registry))
    }

    /// Pushes all versions to a registry.
    fn push(&self, registry: &Registry, flags: &str) {
        for version in ["1.2.3", "1.10.0", "2.0.0-rc.1"] {
            let target = format!("oci://{}/charts", registry.address());
            self.helm(&format!(
                "push repo/shop-{version}.tgz {target} --plain-http {flags}"
            ));
        }
    }
}

/// Reads a lock without its time.
fn lock(path: PathBuf) -> serde_json::Value {
    let text = fs::read(path).unwrap();
    let mut lock: serde_json::Value = go_yaml::from_slice(&text).unwrap();
    assert!(lock["generated"].take().is_string());
    lock
}

#[test]
fn charts_of_a_repository_render_as_with_helm() {
    let fixture = or_skip!(Fixture::new());
    let server = fixture.repository();
    let repo = server.url("/charts");
    for (version, expected) in [
        ("", "1.10.0"),
        ("--version 1.2.3", "1.2.3"),
        ("--version ~1.2", "1.2.3"),
        ("--version >1.0.0-0", "2.0.0-rc.1"),
        ("--devel", "2.0.0-rc.1"),
        ("--devel --version 1.2.3", "1.2.3"),
        ("--version ^1,<1.10", "1.2.3"),
    ] {
        let arguments = format!("template web shop --repo {repo} {version}");
        let text = fixture.ours(&arguments);
        text.must_have(&format!(":{expected}\""));
        assert_eq!(text, fixture.helm(&arguments), "{version}");
    }
    let arguments = format!("template web {repo}/shop-1.2.3.tgz --set a=b");
    assert_eq!(fixture.ours(&arguments), fixture.helm(&arguments));
    let cached = fs::read_dir(fixture.path(".cache/hybrid-operator/charts")).unwrap();
    assert_eq!(cached.count(), 3, "one archive for each version");

    let message = fixture.error(&format!("template shpo --repo {repo}"));
    message.must_have("did you mean \"shop\"?");
    let message = fixture.error(&format!("lint shop --repo {repo} --version ^3"));
    message.must_have("has no version \"^3\"; the newest is 2.0.0-rc.1");
    fixture.write("repo/shop-1.2.3.tgz", "changed");
    let flags = "--version 1.2.3 --chart-cache other";
    let message = fixture.error(&format!("template shop --repo {repo} {flags}"));
    message.must_have("but the index says sha256:");
}

#[test]
fn charts_of_a_registry_render_as_with_helm() {
    let (fixture, registry) = or_skip!(Fixture::with_registry());
    let chart = format!("oci://{}/charts/shop", registry.address());
    for (reference, expected) in [
        (chart.clone(), "1.10.0"),
        (format!("{chart}:1.2.3"), "1.2.3"),
        (format!("{chart} --version 1.2.3"), "1.2.3"),
        (format!("{chart} --version ~1.2"), "1.2.3"),
        (format!("{chart} --version >1.0.0-0"), "2.0.0-rc.1"),
    ] {
        let arguments = format!("template web {reference} --plain-http");
        let text = fixture.ours(&arguments);
        text.must_have(&format!(":{expected}\""));
        assert_eq!(text, fixture.helm(&arguments), "{reference}");
    }
    let message = fixture.error(&format!("template {chart} --version ^3 --plain-http"));
    message.must_have("has no version \"^3\"; the newest is 2.0.0-rc.1");
    let message = fixture.error(&format!("template {chart}:9.9.9 --plain-http"));
    message.must_have("does not exist (status 404)");
}

#[test]
fn login_of_helm_opens_a_registry_that_wants_credentials() {
    let fixture = or_skip!(Fixture::new());
    let users = fixture.path("htpasswd");
    fs::write(&users, HTPASSWD).unwrap();
    let registry = or_skip!(Registry::start_or_skip(Some(&users)).unwrap());
    let host = registry.address();
    let arguments = format!("template web oci://{host}/charts/shop --plain-http");
    let message = fixture.error(&arguments);
    message.must_have(&format!("helm registry login {host}"));
    fixture.helm(&format!(
        "registry login {host} -u me -p hidden --plain-http"
    ));
    fixture.push(&registry, "");
    // Helm's login is found where Helm keeps it.
    assert_eq!(fixture.ours(&arguments), fixture.helm(&arguments));
    let given = format!("{arguments} --registry-config none --username me --password");
    let ours = fixture.ours(&format!("{given} hidden"));
    assert_eq!(ours, fixture.helm(&arguments));
    let message = fixture.error(&format!("{given} wrong"));
    message.must_have("rejects the credentials that were given");
    message.must_lack("wrong");
}

#[test]
fn chart_of_a_registry_becomes_part_of_a_project_and_is_upgraded() {
    let (fixture, registry) = or_skip!(Fixture::with_registry());
    let chart = format!("oci://{}/charts/shop", registry.address());
    fixture.ours("init --plugins helm --domain example.com --project-name p");
    fixture.ours(&format!(
        "create api --helm-chart {chart} --helm-chart-version ~1.2 --plain-http"
    ));
    let metadata = fixture.read("helm-charts/shop/Chart.yaml");
    metadata.must_have("version: 1.2.3");
    let watches = fixture.read("watches.yaml");
    watches.must_have("chart: helm-charts/shop");

    fixture.package("1.2.4", "");
    let target = format!("oci://{}/charts", registry.address());
    fixture.helm(&format!("push repo/shop-1.2.4.tgz {target} --plain-http"));
    // What was copied is in the cache, and comes from the registry without it.
    for (cache, version, said) in [
        ("", "", "from 1.2.3 to 1.2.4\n"),
        (
            "--chart-cache other",
            "--version 1.10.0",
            "from 1.2.4 to 1.10.0\n",
        ),
    ] {
        let upgrade = format!("charts upgrade --plain-http {cache} {version}");
        fixture.ours(&upgrade).must_have(said);
    }
    let metadata = fixture.read("helm-charts/shop/Chart.yaml");
    metadata.must_have("version: 1.10.0");
    let project = fixture.read("PROJECT");
    project.must_have(&format!("reference: {chart} 1.10.0\n"));
    project.must_have(&format!("url: {chart}:1.10.0@sha256:"));
}

/// Writes a watches file with the chart of the kind `Shop`.
fn watch(fixture: &Fixture, chart: &str) {
    let entry = format!("- {{group: example.com, version: v1, kind: Shop, chart: {chart}}}\n");
    fixture.write("watches.yaml", &entry);
}

#[test]
fn charts_of_a_watches_file_are_locked_and_rendered_as_locked() {
    let (fixture, registry) = or_skip!(Fixture::with_registry());
    let url = format!("oci://{}/charts/shop", registry.address());
    let range = |range: &str| format!("{{url: '{url}', version: {range}, plainHttp: true}}");
    watch(&fixture, &range("~1.2"));
    for arguments in ["lint", "charts lock --check"] {
        let message = fixture.error(arguments);
        message.must_have("[0].chart: ");
        message.must_have("there is no watches.lock; write it with `hybrid-operator charts lock`");
    }
    let key = format!("{url} ~1.2");
    let locked = format!("locked {key} at 1.2.3\n");
    let kept = format!("kept {key} at 1.2.3\n");
    assert_eq!(fixture.ours("charts lock"), locked);
    let lock = fixture.read("watches.lock");
    for part in [
        format!("reference: {key}\n"),
        "version: 1.2.3\n".to_owned(),
        format!("url: {url}:1.2.3@sha256:"),
        "digest: sha256:".to_owned(),
    ] {
        lock.must_have(&part);
    }
    assert_eq!(fixture.ours("charts lock"), kept);
    assert_eq!(fixture.ours("charts lock --check"), "1 charts are locked\n");

    // A newer version is taken when it is asked for.
    fixture.package("1.2.4", "");
    let target = format!("oci://{}/charts", registry.address());
    fixture.helm(&format!("push repo/shop-1.2.4.tgz {target} --plain-http"));
    assert_eq!(fixture.ours("charts lock"), kept);
    fixture.write_cr();
    let text = fixture.ours("template --cr cr.yaml");
    text.must_have(":1.2.3\"");
    let expected = format!("updated {key} from 1.2.3 to 1.2.4\n");
    assert_eq!(fixture.ours("charts lock --update"), expected);
    let text = fixture.ours("template --cr cr.yaml");
    text.must_have(":1.2.4\"");
    let linted = fixture.run(Path::new(PROGRAM), "lint --output json").out;
    linted.must_have(&format!("{key} (locked: 1.2.4)"));

    // A lock of other charts is an error that names the entry and the command.
    watch(&fixture, &range("^1"));
    for arguments in ["template --cr cr.yaml", "charts lock --check"] {
        let message = fixture.error(arguments);
        let expected = format!(
            "[0].chart: {url} ^1 is not in watches.lock; add it with `hybrid-operator charts lock`"
        );
        message.must_have(&expected);
    }
    let said = fixture.ours("charts lock");
    assert_eq!(said, format!("locked {url} ^1 at 1.10.0\nremoved {key}\n"));

    // What is locked and cached needs no registry.
    drop(registry);
    let text = fixture.ours("template --cr cr.yaml");
    text.must_have(":1.10.0\"");
    watch(&fixture, "{url: 'oci://h/web', version: ^1, digset: a}");
    let message = fixture.error("charts lock");
    message.must_have("did you mean `digest`?");
    watch(&fixture, "repo");
    let message = fixture.error("charts lock");
    message.must_have("repo has no Chart.yaml");
}

#[test]
fn charts_of_a_watches_file_are_copied_into_the_project() {
    let fixture = or_skip!(Fixture::new());
    let server = fixture.repository();
    let repo = server.url("/charts");
    let chart = format!("{{repo: '{repo}', name: shop, version: 1.2.3}}");
    watch(&fixture, &chart);
    let said = fixture.ours("charts vendor");
    let copied = "copied ./helm-charts/shop\n\nTo use them, change ./watches.yaml:\n  line 1, Shop: chart: helm-charts/shop\n";
    assert_eq!(said, copied);
    let vendored = fixture.ours("template web helm-charts/shop");
    let expected = fixture.ours(&format!("template web shop --repo {repo} --version 1.2.3"));
    assert_eq!(vendored, expected);
    // Files of another version do not remain.
    fixture.write("helm-charts/shop/templates/old.yaml", "a: b");
    let message = fixture.error("charts vendor");
    message.must_have("replace it with --force");
    fixture.ours("charts vendor --force");
    assert!(!fixture.path("helm-charts/shop/templates/old.yaml").exists());
    watch(&fixture, "helm-charts/shop");
    assert!(fixture.ours("charts vendor").contains("fetches no charts"));
}

/// Writes a chart that depends on charts of a repository, a registry, this machine and its own directory.
fn write_parent(fixture: &Fixture, parent: &str, repo: &str, host: &str) {
    let metadata = format!(
        "apiVersion: v2\nname: parent\nversion: 0.1.0\ndependencies:\n\
         - {{name: shop, version: '>=1.2.0 <2', repository: '{repo}'}}\n\
         - {{name: other, version: ~1.2, repository: 'oci://{host}/charts', alias: second, condition: second.enabled}}\n\
         - {{name: lib, version: 0.x.x, repository: 'file://../lib', tags: [a], import-values: [data, {{child: a, parent: b}}]}}\n\
         - {{name: own, version: '>0.9'}}\n"
    );
    let files = [
        ("parent/Chart.yaml", metadata.as_str()),
        (
            "parent/charts/own/Chart.yaml",
            "apiVersion: v2\nname: own\nversion: 1.0.0\n",
        ),
        (
            "lib/Chart.yaml",
            "apiVersion: v2\nname: lib\nversion: 0.3.0\ntype: library\n",
        ),
        ("lib/values.yaml", "a: {c: 1}\nexports: {data: {d: 2}}\n"),
    ];
    for (name, text) in files {
        fixture.write(&format!("{parent}/{name}"), text);
    }
    // An archive of a former version.
    let archive = "shop-2.0.0-rc.1.tgz";
    let former = fixture.path(parent).join("parent/charts").join(archive);
    fs::copy(fixture.path("repo").join(archive), former).unwrap();
}

#[test]
fn dependencies_of_a_chart_are_those_that_helm_fetches() {
    let (fixture, registry) = or_skip!(Fixture::with_registry());
    let server = fixture.repository();
    let (repo, host) = (server.url("/charts"), registry.address());
    for version in ["1.2.3", "1.2.5", "1.3.0"] {
        let archive = packaged_chart("other", version, &[("templates/a.yaml", "a: b")]);
        let file = format!("other-{version}.tgz");
        fs::write(fixture.path(&file), archive).unwrap();
        fixture.helm(&format!("push {file} oci://{host}/charts --plain-http"));
    }
    for parent in ["ours", "helms"] {
        write_parent(&fixture, parent, &repo, host);
    }
    let files = |parent: &str| {
        let entries = fs::read_dir(fixture.path(parent).join("parent/charts")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<String>>()
    };
    let lock = |parent: &str| lock(fixture.path(parent).join("parent/Chart.lock"));
    fixture.helm("dependency update helms/parent --plain-http");
    let said = fixture.fetches("ours/parent");
    said.must_have("shop 1.10.0\nother 1.2.5\nlib 0.3.0\n");
    let expected = ["lib-0.3.0.tgz", "other-1.2.5.tgz", "own", "shop-1.10.0.tgz"];
    let expected: BTreeSet<String> = expected.map(String::from).into();
    assert_eq!(files("helms"), expected);
    assert_eq!(files("ours"), expected);
    assert_eq!(lock("ours"), lock("helms"), "with the same digest");
    for name in ["shop-1.10.0.tgz", "other-1.2.5.tgz"] {
        let path = |parent: &str| fixture.path(parent).join("parent/charts").join(name);
        let of = |parent: &str| fs::read(path(parent)).unwrap();
        assert_eq!(of("ours"), of("helms"));
    }
    let rendered = fixture.helm("template web helms/parent");
    assert_eq!(fixture.helm("template web ours/parent"), rendered);
    assert_eq!(fixture.ours("template web ours/parent"), rendered);

    // What is there already stays, also the lock that Helm has written.
    let locked = fixture.path("ours/parent/Chart.lock");
    fs::copy(fixture.path("helms/parent/Chart.lock"), &locked).unwrap();
    let before = fs::read(&locked).unwrap();
    for name in ["shop-1.10.0.tgz", "lib-0.3.0.tgz"] {
        fs::remove_file(fixture.path("ours/parent/charts").join(name)).unwrap();
    }
    let message = fixture.error("template web ours/parent");
    let missing = "missing in charts/ directory: shop, lib; fetch them with --dependency-update";
    message.must_have(missing);
    let updated = fixture.ours("template web ours/parent --dependency-update --plain-http");
    assert_eq!((files("ours"), updated), (expected, rendered));
    let after = fs::read(&locked).unwrap();
    assert_eq!(after, before, "nothing has changed");
    let text = fixture.read("ours/parent/Chart.yaml");
    fixture.write("ours/parent/Chart.yaml", &text.replace("~1.2", "~1.4"));
    fs::remove_file(fixture.path("ours/parent/charts/lib-0.3.0.tgz")).unwrap();
    let message = fixture.error("template web ours/parent --dependency-update --plain-http");
    message.must_have("cannot get other ~1.4, which Chart.yaml depends on");
    message.must_have("has no version \"~1.4\"; the newest is");
}

#[test]
fn repositories_of_helm_repo_add_are_known_by_name_with_their_credentials() {
    let fixture = or_skip!(Fixture::new());
    let server = fixture.added_repository();
    let repo = server.url("/charts");
    for version in ["", "--version ~1.2", "--devel"] {
        let arguments = format!("template web shops/shop {version}");
        let text = fixture.ours(&arguments);
        assert_eq!(text, fixture.helm(&arguments), "{version}");
    }
    let moved = fixture.path("moved.yaml");
    fs::rename(fixture.path(".config/helm/repositories.yaml"), &moved).unwrap();
    let given = "--repository-config moved.yaml";
    fixture.ours(&format!("template web shops/shop {given}"));
    let arguments = format!("lint shops/shop --version 1.2.3 {given}");
    let linted = fixture.run(Path::new(PROGRAM), &arguments).out;
    linted.must_have(&format!("{repo}/shop-1.2.3.tgz"));
    fixture.ours("init --plugins helm --domain example.com --project-name p");
    fixture.ours(&format!(
        "create api --helm-chart shops/shop --helm-chart-version ~1.2 {given}"
    ));
    let metadata = fixture.read("helm-charts/shop/Chart.yaml");
    metadata.must_have("version: 1.2.3");
    let archive = fs::read(fixture.path("repo/shop-1.2.3.tgz")).unwrap();
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&archive));
    let expected = format!(
        "  chart: helm-charts/shop\n  chartSource:\n    digest: sha256:{digest}\n    reference: shop in {repo} ~1.2\n    \
         url: {repo}/shop-1.2.3.tgz\n    version: 1.2.3\n"
    );
    fixture.read("PROJECT").must_have(&expected);
    let upgrade = format!("charts upgrade {given}");
    fixture
        .ours(&upgrade)
        .must_have("has the newest version already: 1.2.3 of shop in");

    let message = fixture.error(&format!("template web shosp/shop {given}"));
    let expected = "Error: there is no chart at shosp/shop: moved.yaml has no repository \"shosp\", only shops; \
                    add it with 'helm repo add shosp URL', or give the URL of the repository\n";
    assert_eq!(message, expected);
    let other = "--username me --password wrong";
    let message = fixture.error(&format!("template web shops/shop {given} {other}"));
    message.must_have("credentials");
    message.must_lack("wrong");

    // A path goes before a name.
    let message = fixture.error(&format!("template web ./shops/shop {given}"));
    message.must_have("chart \"./shops/shop\" not found");
    let requests = server.received().len();
    let text = "apiVersion: v2\nname: shop\nversion: 1.0.0\n";
    fixture.write("shops/shop/Chart.yaml", text);
    assert_eq!(fixture.ours("template web shops/shop").trim(), "");
    assert_eq!(server.received().len(), requests);
}

#[test]
fn dependencies_name_repositories_of_helm_repo_add() {
    let fixture = or_skip!(Fixture::new());
    let server = fixture.added_repository();
    let repo = server.url("/charts");
    for (index, repository) in ["@shops", "alias:shops", &repo].into_iter().enumerate() {
        let path = |parent: &str, file: &str| fixture.path(&format!("{parent}{index}")).join(file);
        for parent in ["ours", "helms"] {
            let text = format!(
                "apiVersion: v2\nname: parent\nversion: 0.1.0\n\
                 dependencies: [{{name: shop, version: ~1.2, repository: '{repository}'}}]\n"
            );
            support::write(&path(parent, "Chart.yaml"), &text);
        }
        let lock = |parent: &str| lock(path(parent, "Chart.lock"));
        let archive = |parent: &str| fs::read(path(parent, "charts/shop-1.2.3.tgz")).unwrap();
        fixture.helm(&format!("dependency update helms{index}"));
        fixture.fetches(&format!("ours{index}"));
        assert_eq!(lock("ours"), lock("helms"), "{repository}");
        assert_eq!(archive("ours"), archive("helms"), "{repository}");
    }
    fs::remove_dir_all(fixture.path("ours0/charts")).unwrap();
    let unknown = "template web ours0 --dependency-update --repository-config none.yaml";
    let message = fixture.error(unknown);
    let way_out = "none.yaml has no repository \"shops\"; add it with 'helm repo add shops URL'";
    message.must_have(way_out);
}

#[test]
fn requirements_of_a_chart_are_those_that_helm_fetches() {
    let fixture = or_skip!(Fixture::new());
    let server = fixture.repository();
    let repo = server.url("/charts");
    for parent in ["ours", "helms"] {
        let write =
            |file: &str, text: &str| fixture.write(&format!("{parent}/legacy/{file}"), text);
        let metadata = "apiVersion: v1\nname: legacy\nversion: 0.1.0\n";
        write("Chart.yaml", metadata);
        let wanted = format!(
            "dependencies:\n- {{name: shop, version: ^1, repository: \"{repo}\", condition: shop.enabled}}\n"
        );
        write("requirements.yaml", &wanted);
    }
    let path = |parent: &str, file: &str| fixture.path(parent).join("legacy").join(file);
    let lock = |parent: &str| lock(path(parent, "requirements.lock"));
    fixture.helm("dependency update helms/legacy --plain-http");
    let said = fixture.fetches("ours/legacy");
    said.must_have("shop 1.10.0\nwrote ours/legacy/requirements.lock");
    assert_eq!(lock("ours"), lock("helms"), "with the same digest");
    assert!(!path("ours", "Chart.lock").exists());
}

#[test]
fn proxies_of_the_environment_are_used() {
    let proxy = HttpServer::start(|request| match request.target.as_str() {
        "http://charts.example.com/index.yaml" => Reply::body("apiVersion: v1"),
        _ => Reply::status(403),
    })
    .unwrap();
    let address = format!("http://me:hidden@{}", proxy.address());
    let ask = |url: &str| {
        let output = Command::new(PROGRAM)
            .args(["template", "web", "--repo", url])
            .envs([("HTTP_PROXY", &address), ("HTTPS_PROXY", &address)])
            .env("NO_PROXY", "direct.invalid")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let message = ask("http://charts.example.com");
    message.must_have("has no chart \"web\"");
    let message = ask("https://charts.example.com");
    message.must_have("cannot reach https://charts.example.com/index.yaml");
    message.must_lack("hidden");
    let received = proxy.received();
    for one in &received {
        assert_eq!(one.headers["proxy-authorization"], ME);
    }
    assert_eq!(received[0].method, "GET");
    assert_eq!(received[1].method, "CONNECT");
    assert_eq!(received[1].target, "charts.example.com:443");
    // Reached without the proxy.
    ask("http://direct.invalid");
    assert_eq!(proxy.received().len(), received.len());
}

#[tokio::test]
async fn certificates_of_servers_are_verified_unless_a_flag_says_otherwise() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    // The API server stands for a repository with TLS: it has nothing for strangers, and no charts.
    let text = fs::read(plane.kubeconfig_path()).unwrap();
    let config: serde_json::Value = go_yaml::from_slice(&text).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let authority = config.pointer("/clusters/0/cluster/certificate-authority-data");
    let authority = authority.and_then(serde_json::Value::as_str).unwrap();
    let authority = BASE64.decode(authority.as_bytes()).unwrap();
    fs::write(directory.path().join("ca"), authority).unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let ask = |flags: &str| {
        let output = Command::new(PROGRAM)
            .arg("template")
            .arg(format!("{server}/charts/web.tgz"))
            .args(flags.split_whitespace())
            .current_dir(directory.path())
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    for (flags, expected) in [
        (
            "",
            "is not trusted; if it is that of your own authority, give its certificate with --ca-file",
        ),
        ("--ca-file ca", "needs credentials (status 40"),
        ("--insecure-skip-tls-verify", "needs credentials (status 40"),
        (
            "--ca-file empty",
            "cannot use empty for TLS: it has no certificate",
        ),
        ("--cert-file none --key-file ca", "cannot use none for TLS"),
    ] {
        ask(flags).must_have(expected);
    }
}

/// Returns a file that the tests of provenance files share.
fn shared(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.join("chart-source/tests/provenance").join(name)
}

impl Fixture {
    /// Packages and signs the chart `shop` into `repo`, and copies the keyrings.
    fn sign(&self) {
        for name in ["signer.secret.gpg", "signer.gpg", "signer.kbx", "other.gpg"] {
            fs::copy(shared(name), self.path(name)).unwrap();
        }
        for version in ["1.2.3", "1.10.0"] {
            self.package(version, "--sign --key Signer --keyring signer.secret.gpg");
        }
        self.helm("repo index repo");
    }

    /// Renders a chart with both programs, which must agree, and returns our message if they fail.
    fn both(&self, arguments: &str) -> Result<(), String> {
        let ours = self.run(Path::new(PROGRAM), arguments);
        let theirs = self.run(&self.helm, arguments);
        let succeeds = [&ours, &theirs].map(|done| done.code == Some(0));
        let messages = [&ours.err, &theirs.err];
        assert_eq!(succeeds[0], succeeds[1], "{arguments}: {messages:?}");
        assert_eq!(ours.out, theirs.out, "{arguments}");
        if succeeds[0] { Ok(()) } else { Err(ours.err) }
    }
}

#[test]
fn signed_charts_are_verified_as_with_helm() {
    let fixture = or_skip!(Fixture::new());
    let registry = or_skip!(Registry::start_or_skip(None).unwrap());
    fixture.sign();
    let server = fixture.repository();
    fixture.push(&registry, "");
    let copy = |from: &str, to: &str| {
        fs::copy(fixture.path(from), fixture.path(to)).unwrap();
    };
    fs::create_dir(fixture.path("changed")).unwrap();
    copy("repo/shop-1.10.0.tgz", "changed/shop-1.2.3.tgz");
    copy("repo/shop-1.2.3.tgz.prov", "changed/shop-1.2.3.tgz.prov");
    copy("repo/shop-1.2.3.tgz", "changed/shop-1.10.0.tgz");
    copy("repo/shop-1.2.3.tgz.prov", "changed/shop-1.10.0.tgz.prov");
    let repo = format!("shop --repo {}", server.url("/charts"));
    let oci = format!("oci://{}/charts/shop --plain-http", registry.address());
    let cases = "\
signer.gpg: repo/shop-1.2.3.tgz
signer.kbx: repo/shop-1.2.3.tgz
other.gpg: repo/shop-1.2.3.tgz => which is not in {end}
none.gpg: repo/shop-1.2.3.tgz => cannot read none.gpg
signer.gpg: repo/shop-2.0.0-rc.1.tgz => it is not signed
signer.gpg: repo => a directory cannot be verified
signer.gpg: changed/shop-1.2.3.tgz => its signature is for
signer.gpg: changed/shop-1.10.0.tgz => not for shop-1.10.0.tgz
signer.gpg: {repo} --version 1.2.3
signer.gpg: {repo} --version ~1.10
other.gpg: {repo} --version 1.2.3 => which is not in {end}
signer.gpg: {repo} --version 2.0.0-rc.1 => it is not signed
signer.gpg: {oci} --version 1.2.3
other.gpg: {oci} --version 1.2.3 => which is not in {end}
signer.gpg: {oci} --version 2.0.0-rc.1 => it is not signed"
        .replace("{repo}", &repo)
        .replace("{oci}", &oci)
        .replace("{end}", "");
    for case in cases.lines() {
        let (case, expected) = case.split_once(" => ").unwrap_or((case, ""));
        let (keyring, chart) = case.split_once(": ").unwrap();
        let said = fixture.both(&format!(
            "template web {chart} --verify --keyring {keyring}"
        ));
        if expected.is_empty() {
            assert_eq!(said, Ok(()), "{chart}");
        } else {
            let said = said.unwrap_err();
            assert!(said.contains(expected), "{chart}: {said}");
        }
    }

    // Without --keyring, it is that of GnuPG.
    let signed = "repo/shop-1.2.3.tgz --verify";
    fs::create_dir(fixture.path(".gnupg")).unwrap();
    copy("signer.kbx", ".gnupg/pubring.kbx");
    assert_eq!(fixture.both(&format!("template web {signed}")), Ok(()));
    copy("other.gpg", ".gnupg/pubring.gpg");
    let said = fixture.both(&format!("template web {signed}")).unwrap_err();
    said.must_have("which is not in ");
}

#[test]
fn lint_and_create_verify_signed_charts() {
    let fixture = or_skip!(Fixture::new());
    fixture.sign();
    let lint = |flags: &str| {
        let arguments = format!("lint repo/shop-1.2.3.tgz {flags}");
        fixture.run(Path::new(PROGRAM), &arguments).out
    };
    assert!(!lint("").is_empty());
    assert_eq!(lint("--verify --keyring signer.gpg"), lint(""));
    let refused = fixture.error("lint repo/shop-1.2.3.tgz --verify --keyring other.gpg");
    refused.must_have("which is not in ");
    fixture.ours("init --plugins helm --domain example.com --project-name p");
    let create = "create api --helm-chart repo/shop-1.2.3.tgz";
    let refused = fixture.error(&format!("{create} --verify --keyring other.gpg"));
    refused.must_have("which is not in ");
    assert!(!fixture.path("helm-charts/shop").exists());
    fixture.ours(&format!("{create} --verify --keyring signer.gpg"));
    assert!(fixture.path("helm-charts/shop/Chart.yaml").exists());
}

#[test]
fn charts_of_entries_with_a_keyring_need_a_provenance_file() {
    let fixture = or_skip!(Fixture::new());
    fixture.sign();
    let server = fixture.repository();
    let entry = |range: &str, keyring: &str| {
        let url = server.url("/charts");
        let verify = format!("verify: {{provenance: {{keyring: {keyring}}}}}");
        let chart = format!("{{repo: '{url}', name: shop, version: '{range}', {verify}}}");
        watch(&fixture, &chart);
    };
    fixture.write_cr();
    let refused = |why: &str| {
        for command in ["charts lock", "charts vendor", "template --cr cr.yaml"] {
            fixture.error(command).must_have(why);
        }
    };
    entry("2.0.0-rc.1", "signer.gpg");
    refused("it is not signed");
    entry("~1.2", "signer.gpg");
    let said = fixture.ours("charts lock");
    said.must_have("at 1.2.3");
    let text = fixture.ours("template --cr cr.yaml");
    text.must_have(":1.2.3\"");
    // What is locked and cached is verified with the key that the entry has now.
    entry("~1.2", "other.gpg");
    refused("which is not in ");
    entry("~1.2", "none.gpg");
    let said = fixture.error("template --cr cr.yaml");
    said.must_have("cannot read ");
    said.must_have("none.gpg");
    // It needs no network.
    entry("~1.2", "signer.gpg");
    drop(server);
    fixture.ours("charts lock");
    let text = fixture.ours("template --cr cr.yaml");
    text.must_have(":1.2.3\"");
    fixture.ours("charts vendor");
    assert!(fixture.path("helm-charts/shop/Chart.yaml").exists());
}
