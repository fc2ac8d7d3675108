//! `charts upgrade`: newer versions of charts that `create api` has fetched, and changes in their copies.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::{HttpServer, packaged_chart};

use support::{Done, PROGRAM, Project, Text as _, alone, files};

const VALUES: &str = "replicas: 1\nname: web\nport: 80\nsize: small\nhost: a\n";

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\n\
                        data: {size: '{{ .Values.size }}', replicas: '{{ .Values.replicas }}'}\n";

const COPY: &str = "helm-charts/shop";

/// A repository with versions of the chart `shop`, and a project.
struct Fixture {
    project: Project,
    server: HttpServer,
    /// The archives by their versions.
    published: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Fixture {
    /// Makes a project with the newest version of the chart in a range, of which 1.0.0 is published.
    fn new(range: &str) -> Self {
        let published = Arc::new(Mutex::new(BTreeMap::<String, Vec<u8>>::new()));
        let charts = Arc::clone(&published);
        let server = HttpServer::start(move |request| {
            let charts = charts.lock().unwrap();
            match &*request.target {
                "/index.yaml" => {
                    let mut index = "apiVersion: v1\nentries:\n  shop:\n".to_owned();
                    for version in charts.keys() {
                        let entry = format!("version: {version}, urls: [shop-{version}.tgz]");
                        writeln!(index, "  - {{name: shop, {entry}}}").unwrap();
                    }
                    Reply::body(index)
                }
                "/size.json" => Reply::body(r#"{"enum": ["small", "large"]}"#),
                path => {
                    let version = path.trim_start_matches("/shop-").trim_end_matches(".tgz");
                    let found = charts.get(version);
                    found.map_or_else(|| Reply::status(404), |body| Reply::body(body.clone()))
                }
            }
        });
        let fixture = Self {
            project: Project::with(&[]),
            server: server.unwrap(),
            published,
        };
        let chart = [
            ("values.yaml", VALUES),
            ("templates/map.yaml", TEMPLATE),
            ("templates/old.yaml", ""),
            ("files/logo", "\u{0}"),
        ];
        fixture.publish("1.0.0", &chart);
        let repo = fixture.server.url("");
        for arguments in [
            "init --plugins helm --domain example.com --project-name p".to_owned(),
            format!(
                "create api --helm-chart shop --helm-chart-repo {repo} --helm-chart-version {range}"
            ),
        ] {
            fixture.run(&arguments).ok();
        }
        fixture
    }

    fn publish(&self, version: &str, files: &[(&str, &str)]) {
        let archive = packaged_chart("shop", version, files);
        let mut published = self.published.lock().unwrap();
        published.insert(version.to_owned(), archive);
    }

    fn run(&self, arguments: &str) -> Done {
        let mut command = alone(Path::new(PROGRAM), self.project.0.path(), arguments);
        Done::of(command.output().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        self.project.write(&format!("{COPY}/{name}"), text);
    }

    fn read(&self, name: &str) -> String {
        self.project.read(&format!("{COPY}/{name}"))
    }

    /// Runs the command, which must fail and change nothing, and returns what it prints.
    #[track_caller]
    fn refused(&self, arguments: &str, code: i32) -> String {
        let before = self.files();
        let done = self.run(arguments);
        assert_eq!(done.code, Some(code), "{}{}", done.out, done.err);
        assert!(self.files() == before, "{arguments} has written something");
        done.out + &done.err
    }

    /// Returns the files of the project, without the cache of charts.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = files(self.project.0.path());
        files.retain(|name, _| !name.starts_with(".cache"));
        files
    }
}

#[test]
fn newer_version_is_merged_with_what_was_changed_in_the_copy() {
    let fixture = Fixture::new("~1.0");
    let newest = "helm-charts/shop has the newest version already: 1.0.0 of shop in ";
    fixture.run("charts upgrade").ok().must_have(newest);

    let schema = fixture.server.url("/size.json");
    let schema = format!(r#"{{"properties": {{"size": {{"$ref": "{schema}"}}}}}}"#);
    let values = VALUES.replace("small", "large");
    let new = [
        ("values.yaml", &*values),
        ("values.schema.json", &schema),
        ("templates/map.yaml", TEMPLATE),
        ("templates/new.yaml", TEMPLATE),
        ("files/logo", "\u{1}"),
    ];
    fixture.publish("1.0.1", &new);
    fixture.publish("1.1.0", &new);
    fixture.write("values.yaml", &VALUES.replace("replicas: 1", "replicas: 2"));
    fixture.write("templates/own.yaml", "");
    fixture.write("templates/map.yaml", &format!("# Ours\n{TEMPLATE}"));
    // CRD and sample are as they are generated.
    for generate in ["generate crds", "generate samples --force"] {
        fixture.run(generate).ok();
    }
    let former = fixture.project.read("PROJECT");
    let said = fixture.run("charts upgrade shop").ok();
    for part in [
        "helm-charts/shop: from 1.0.0 to 1.0.1\n",
        "merge     helm-charts/shop/values.yaml\n",
        "create    helm-charts/shop/templates/new.yaml\n",
        "delete    helm-charts/shop/templates/old.yaml\n",
        "update    helm-charts/shop/files/logo\n",
        "update    PROJECT\n",
        "update    config/crd/bases/charts.example.com_shops.yaml\n",
        "update    config/samples/charts_v1alpha1_shop.yaml\n",
        "~ ConfigMap shop-sample\n",
        "+  size: large\n",
        "\nNext:\n  hybrid-operator generate rbac\n",
    ] {
        said.must_have(part);
    }
    said.must_lack("templates/map.yaml");
    let merged = values.replace("replicas: 1", "replicas: 2");
    assert_eq!(fixture.read("values.yaml"), merged);
    assert_eq!(fixture.read("templates/new.yaml"), TEMPLATE);
    assert_eq!(fixture.read("files/logo"), "\u{1}");
    fixture.read("templates/map.yaml").must_have("# Ours");
    fixture
        .read("values.schema/index.json")
        .must_have("/size.json");
    let left = fixture.files();
    assert!(!left.contains_key("helm-charts/shop/templates/old.yaml"));
    assert!(left.contains_key("helm-charts/shop/templates/own.yaml"));
    let project = fixture.project.read("PROJECT");
    let repo = fixture.server.url("");
    for part in [
        format!("reference: shop in {repo}/ ~1.0\n"),
        format!("url: {repo}/shop-1.0.1.tgz\n    version: 1.0.1\n"),
    ] {
        project.must_have(&part);
    }
    let crd = fixture
        .project
        .read("config/crd/bases/charts.example.com_shops.yaml");
    crd.must_have("the chart shop 1.0.1");
    let sample = fixture
        .project
        .read("config/samples/charts_v1alpha1_shop.yaml");
    sample.must_have("replicas: 2\n");
    sample.must_have("size: large\n");
    fixture.run("lint").ok();

    let again = fixture.run("charts upgrade helm-charts/shop/").ok();
    again.must_have("has the newest version already: 1.0.1 of shop in ");
    assert!(fixture.files() == left, "a second run writes nothing");

    // What an interrupted command has left is completed.
    fixture.write("templates/old.yaml", "");
    fixture.project.write("PROJECT", &former);
    fixture
        .run("charts upgrade")
        .ok()
        .must_have("from 1.0.0 to 1.0.1");
    assert!(fixture.files() == left);

    // The range that is given counts from then on.
    let said = fixture.run("charts upgrade --version ^1").ok();
    said.must_have("from 1.0.1 to 1.1.0\n");
    said.must_have("no differences\n");
    assert_eq!(fixture.read("values.yaml"), merged);
    fixture.project.read("PROJECT").must_have("/ ^1\n");
}

#[test]
fn places_that_both_have_changed_are_named_and_nothing_is_written() {
    let fixture = Fixture::new("^1");
    let values = VALUES.replace("small", "large");
    let new = [
        ("values.yaml", &*values),
        ("templates/map.yaml", "# Theirs\n"),
        ("templates/new.yaml", "# Theirs\n"),
        ("files/logo", "\u{1}"),
    ];
    fixture.publish("1.1.0", &new);
    fixture.write(
        "values.yaml",
        &format!("# Ours\n{}", VALUES.replace("small", "medium")),
    );
    fixture.write("templates/old.yaml", "# Ours\n");
    fixture.write("templates/new.yaml", "# Ours\n");
    std::fs::remove_file(fixture.project.path("helm-charts/shop/templates/map.yaml")).unwrap();
    let message = fixture.refused("charts upgrade", 1);
    for part in [
        "helm-charts/shop/values.yaml:5\n<<<<<<< here\nsize: medium\n||||||| 1.0.0\nsize: small\n=======\nsize: large\n>>>>>>> 1.1.0\n",
        "nothing was written",
        "helm-charts/shop/templates/map.yaml (removed here, and changed there), \
         helm-charts/shop/templates/new.yaml (added here and there), \
         helm-charts/shop/templates/old.yaml (changed here, and removed there), \
         helm-charts/shop/values.yaml:5;",
    ] {
        message.must_have(part);
    }
    // What the message says.
    fixture.write("values.yaml", &format!("# Ours\n{VALUES}"));
    fixture.write("templates/old.yaml", "");
    fixture.write("templates/new.yaml", "# Theirs\n");
    fixture.write("templates/map.yaml", TEMPLATE);
    fixture.run("charts upgrade").ok();
    assert_eq!(fixture.read("values.yaml"), format!("# Ours\n{values}"));
}

#[test]
fn edited_samples_and_crds_are_kept() {
    let fixture = Fixture::new("^1");
    fixture.publish(
        "1.1.0",
        &[
            ("values.yaml", "size: large\n"),
            ("templates/map.yaml", TEMPLATE),
        ],
    );
    let edited = [
        "config/samples/charts_v1alpha1_shop.yaml",
        "config/crd/bases/charts.example.com_shops.yaml",
    ];
    let texts = edited.map(|path| {
        let text = fixture.project.read(path) + "# Ours\n";
        fixture.project.write(path, &text);
        text
    });
    let said = fixture.run("charts upgrade").ok();
    let kept = "which is not what was generated before; 'hybrid-operator generate";
    said.must_have(&format!("keep      {}, {kept} samples --force'", edited[0]));
    said.must_have(&format!("keep      {}, {kept} crds'", edited[1]));
    assert_eq!(edited.map(|path| fixture.project.read(path)), texts);
    assert_eq!(fixture.read("values.yaml"), "size: large\n");
}

#[test]
fn charts_that_cannot_be_upgraded_are_refused_with_a_way_out() {
    let fixture = Fixture::new("^1");
    let upgrade = "charts upgrade";
    let unknown = fixture.refused("charts upgrade Cart", 1);
    unknown.must_have("PROJECT has no kind Cart with a chart");
    let wrong = fixture.refused("charts upgrade --version newest", 2);
    wrong.must_have("\"newest\" is neither a version nor a range");

    // The chart that was copied is not to be had.
    fixture.publish("1.1.0", &[("values.yaml", "")]);
    let project = fixture.project.read("PROJECT");
    let digest = project.split_once("digest: sha256:").unwrap().1;
    let digest = digest.split_once('\n').unwrap().0;
    let other = "ab".repeat(32);
    fixture
        .project
        .write("PROJECT", &project.replace(digest, &other));
    let message = fixture.refused(upgrade, 1);
    for part in [
        digest,
        &other,
        "'hybrid-operator create api --force' replaces it whole",
    ] {
        message.must_have(part);
    }

    let exact = project.replace("^1", "1.0.0");
    fixture.project.write("PROJECT", &exact);
    let message = fixture.refused(upgrade, 1);
    message.must_have("helm-charts/shop was asked for in one version, shop in ");
    message.must_have("with --version");
    fixture.run("charts upgrade --version 1.1.0").ok();

    // A chart of this machine beside it.
    fixture
        .run("create api --group apps --version v1 --kind Cart")
        .ok();
    let message = fixture.refused("charts upgrade cart", 1);
    message.must_have("PROJECT does not say where helm-charts/cart was fetched");
    message.must_have("'hybrid-operator create api --force --helm-chart CHART'");
    let url = fixture.server.url("/shop-1.0.0.tgz");
    fixture
        .run(&format!(
            "create api --kind Shop --force --helm-chart {url}"
        ))
        .ok();
    let message = fixture.refused(upgrade, 1);
    message.must_have("helm-charts/shop was asked for as one archive, http");
}
