//! The page in Chromium, with a whole operator and an API server in memory.
//!
//! With `PICTURES=DIR` the tests write pictures of the page to that folder.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use hybrid_operator_test::api_server::{ApiServer, Options};
use hybrid_operator_test::browser::{Browser, Screen};
use hybrid_operator_test::{skipped, wait};
use jiff::Timestamp;
use kube::{Client, CustomResource};
use operator_runtime::manager::Manager;
use operator_runtime::native::{self, Action, Condition, Context, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::helm::Charts;
use crate::helm::view::{RecentEvents, Views};
use crate::options::RunArgs;
use crate::page::Page;

const LIMIT: Duration = Duration::from_mins(4);
/// Number of releases of a large operator.
const MANY: usize = 3000;
/// Name of a Shop with an object that somebody changes.
const DRIFTED: &str = "cache-65";
/// Layout shifts that may be seen: those of the text that says whether the page is connected.
const MAX_SHIFT: f64 = 0.01;

const DESKTOP: Screen = Screen {
    width: 1440,
    height: 900,
    dark: false,
};
const PHONE: Screen = Screen {
    width: 360,
    height: 780,
    dark: false,
};
const WALL: Screen = Screen {
    width: 3840,
    height: 2160,
    dark: true,
};

/// Counts layout shifts, and calls of what a hostile text would call.
const OBSERVE: &str = "
    window.shift = 0; window.hacked = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
    }).observe({type: 'layout-shift', buffered: true});
";

/// Waits until the page is painted, and returns when, in milliseconds.
const PAINTED: &str = "new Promise((resolve) => {
    const first = () => performance.getEntriesByName('first-contentful-paint')[0];
    const look = () => { if (first()) resolve(Math.round(first().startTime)); else requestAnimationFrame(look); };
    look();
})";

/// Names and messages as somebody hostile writes them.
const HOSTILE: &str = "\"><img src=x onerror=\"hacked++\"><script>hacked++</script>";

/// Program of axe-core, below the folder of this crate.
const AXE: &str = "../../target/axe/node_modules/axe-core/axe.min.js";

/// The kinds of charts, with the versions of these.
const KINDS: [(&str, &str); 3] = [
    ("Redis", "20.1.4"),
    ("Memcached", "7.5.2"),
    ("Shop", "1.8.0"),
];

const TEMPLATE: &str = "\
{{- if .Values.broken }}{{ fail .Values.broken }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data: {size: {{ .Values.size | default 1 | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ .Values.password | default \"hush\" | quote }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: example.com/main:{{ .Values.size | default 1 }}}]}
{{- if .Values.pending }}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-public}
spec: {type: LoadBalancer, ports: [{port: 80}]}
{{- end }}
";

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "shops.example.com",
    version = "v1",
    kind = "Backup",
    namespaced,
    status = "BackupStatus",
    schema = "disabled"
)]
struct BackupSpec {
    broken: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct BackupStatus {
    conditions: Vec<Condition>,
}

async fn back_up(backup: Arc<Backup>, context: Context<Backup>) -> Result<Action, Error> {
    let present = backup.status.clone().unwrap_or_default();
    let conditions = context.conditions(Some(&present.conditions));
    let conditions = match &backup.spec.broken {
        Some(message) => conditions.set("Ready", false, "NoSpace", message),
        None => conditions.set("Ready", true, "Done", ""),
    };
    let status = BackupStatus {
        conditions: conditions.into_vec(),
    };
    context.patch_status(&status).await?;
    Ok(Action::after(Duration::from_hours(1)))
}

/// An operator with its page, until it is dropped.
struct World {
    people: Client,
    address: SocketAddr,
    _stop: DropGuard,
    _project: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let server = ApiServer::new(&Options {
            epoch: Timestamp::now(),
            delays: Duration::ZERO..=Duration::ZERO,
            ..Options::default()
        });
        let people = Client::new(server.service(), "default");
        for kind in KINDS.map(|(kind, _)| kind).into_iter().chain(["Backup"]) {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            create(&people, path, &definition(kind)).await;
        }
        for name in ["shops", "payments", "checkout", "search"] {
            create(
                &people,
                "/api/v1/namespaces",
                &json!({"metadata": {"name": name}}),
            )
            .await;
        }
        let project = project();
        let (views, events) = (Views::default(), RecentEvents::default());
        let arguments = [
            "run",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--max-concurrent-reconciles=16",
        ];
        let mut options = RunArgs::try_parse_from(arguments)
            .unwrap()
            .options(|name| match name {
                "POD_NAMESPACE" => Some("shops".to_owned()),
                "OPERATOR_NAME" => Some("shop-operator".to_owned()),
                "POD_NAME" => Some("shop-operator-6f7d9c5b8-x2kfp".to_owned()),
                _ => None,
            });
        options.extensions.insert(views.for_native());
        options.extensions.insert(views.clone());
        options.extensions.insert(events.clone());
        let page = Page::listen(([127, 0, 0, 1], 0).into(), views, events).unwrap();
        let address = page.listener.local_addr().unwrap();
        let charts = Charts::load(&project.path().join("watches.yaml"), |chart| chart).unwrap();
        let manager = Manager::new(options).network(server.client("shops"));
        let manager = charts
            .watch_files(false)
            .add_to(manager)
            .with(native::controller("backup").reconcile(back_up))
            .with(page.server());
        let stop = CancellationToken::new();
        tokio::spawn(manager.run_until(stop.clone()));
        Self {
            people,
            address,
            _stop: stop.drop_guard(),
            _project: project,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://localhost:{}/{path}", self.address.port())
    }

    async fn create(&self, kind: &str, namespace: &str, name: &str, spec: Value) {
        let path = resource_path(kind, namespace);
        let object = json!({"apiVersion": "shops.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        create(&self.people, &path, &object).await;
    }

    async fn patch(&self, kind: &str, namespace: &str, name: &str, change: Value) {
        let path = format!("{}/{name}", resource_path(kind, namespace));
        self.patch_at(&path, &change).await;
    }

    async fn patch_at(&self, path: &str, change: &Value) {
        let request =
            http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let request = request.body(serde_json::to_vec(change).unwrap()).unwrap();
        self.people.request::<Value>(request).await.unwrap();
    }

    /// Waits until a condition of a custom resource has this status.
    async fn until(&self, kind: &str, namespace: &str, name: &str, condition: &str, status: &str) {
        let path = format!("{}/{name}", resource_path(kind, namespace));
        let found = wait::until(
            LIMIT,
            format!("{condition}={status} of {name}"),
            async || {
                let object = get(&self.people, &path).await;
                let conditions = object["status"]["conditions"].as_array().cloned();
                let conditions = conditions.unwrap_or_default();
                conditions.iter().any(|one| {
                    one["type"] == condition
                        && one["status"] == status
                        && one["observedGeneration"] == object["metadata"]["generation"]
                })
            },
        );
        found.await.unwrap();
    }
}

fn resource_path(kind: &str, namespace: &str) -> String {
    let name = kind.to_lowercase();
    format!("/apis/shops.example.com/v1/namespaces/{namespace}/{name}s")
}

fn definition(kind: &str) -> Value {
    let name = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.shops.example.com")},
        "spec": {
            "group": "shops.example.com", "scope": "Namespaced",
            "names": {"plural": format!("{name}s"), "singular": name, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Writes a chart for each kind.
fn project() -> tempfile::TempDir {
    let project = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = project.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let mut watches = String::new();
    for (kind, version) in KINDS {
        let name = kind.to_lowercase();
        let chart =
            format!("apiVersion: v2\nname: {name}\nversion: {version}\nappVersion: {version}\n");
        write(format!("{name}/Chart.yaml"), &chart);
        write(format!("{name}/templates/all.yaml"), TEMPLATE);
        write!(watches, "- group: shops.example.com\n  version: v1\n  kind: {kind}\n  chart: {name}\n  driftDetection: {{mode: warn}}\n").unwrap();
    }
    write("watches.yaml".to_owned(), &watches);
    project
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = http::Request::post(path).body(serde_json::to_vec(object).unwrap());
    client.request::<Value>(request.unwrap()).await.unwrap();
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

/// A browser, and what its pages are checked with.
struct Viewer {
    browser: Browser,
    /// The program of axe-core, if it is installed.
    axe: Option<String>,
}

impl Viewer {
    /// Starts a browser, or says that a test is skipped.
    async fn start_or_skip() -> Option<Self> {
        let mut browser = Browser::start_or_skip(DESKTOP).await.unwrap()?;
        browser.before_pages(OBSERVE).await.unwrap();
        let axe = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(AXE)).ok();
        if axe.is_none() {
            skipped(
                1,
                &"pages are not checked for accessibility; run `make axe`, which needs npm",
            );
        }
        Some(Self { browser, axe })
    }

    async fn open(&mut self, url: &str) {
        self.browser.open(url).await.unwrap();
    }

    /// Waits until an expression is true in the page, and returns when it was.
    async fn until(&mut self, condition: &str) -> Value {
        self.browser.wait_for(condition).await.unwrap()
    }

    async fn evaluate(&mut self, expression: &str) -> Value {
        self.browser.evaluate(expression).await.unwrap()
    }

    async fn click(&mut self, selector: &str) {
        self.evaluate(&format!("document.querySelector({selector:?}).click()"))
            .await;
    }

    /// Opens a page on each kind of screen, and checks it.
    async fn look(&mut self, url: &str, name: &str, there: &str) {
        for (screen, size) in [(DESKTOP, "1440"), (PHONE, "360"), (WALL, "3840")] {
            for dark in [false, true] {
                self.browser
                    .set_screen(Screen { dark, ..screen })
                    .await
                    .unwrap();
                self.open(url).await;
                let what = format!("{name}-{size}-{}", if dark { "dark" } else { "light" });
                let complete = self.until(there).await;
                eprintln!("{what}: complete after {complete} ms");
                self.check(&what).await;
                self.picture(&what).await;
            }
        }
        self.browser.set_screen(DESKTOP).await.unwrap();
    }

    /// Checks the page that is open: it complains of nothing, nothing has moved, runs, or is too wide, and axe accepts it.
    async fn check(&mut self, what: &str) {
        let painted = self.evaluate(PAINTED).await;
        eprintln!("{what}: first paint after {painted} ms");
        assert_eq!(
            self.browser.take_complaints(),
            Vec::<String>::new(),
            "{what}"
        );
        let seen = "[shift, hacked, document.documentElement.scrollWidth - innerWidth]";
        let seen = self.evaluate(seen).await;
        assert!(
            seen[0].as_f64().unwrap() < MAX_SHIFT,
            "{what} moves: {seen}"
        );
        assert_eq!((&seen[1], &seen[2]), (&json!(0), &json!(0)), "{what}");
        let Some(axe) = &self.axe else { return };
        let run = "axe.run().then(({violations, passes}) => [passes.length, violations.map(({id, nodes}) => \
            `${id}: ${nodes.map(({target}) => target).join(' ')}`)])";
        let found = self.evaluate(&format!("{axe}; {run}")).await;
        assert!(found[0].as_u64().unwrap() > 20, "{what}: {found}");
        assert_eq!(found[1], json!([]), "{what}");
    }

    /// Writes a picture if somebody has asked for pictures.
    async fn picture(&mut self, name: &str) {
        let Some(folder) = env::var_os("PICTURES") else {
            return;
        };
        fs::create_dir_all(&folder).unwrap();
        let picture = self.browser.picture().await.unwrap();
        fs::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }
}

const ROWS: &str = "document.querySelectorAll('main tbody tr').length";
const TEXT: &str = "(document.querySelector('main')?.textContent ?? '')";

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_a_release_as_it_changes_and_why_it_is_not_ready() {
    let Some(mut viewer) = Viewer::start_or_skip().await else {
        return;
    };
    let world = World::start().await;
    world
        .create(
            "Redis",
            "payments",
            "sessions",
            json!({"password": "first-hush"}),
        )
        .await;
    world
        .until("Redis", "payments", "sessions", "Ready", "True")
        .await;
    viewer
        .look(&world.url(""), "one", &format!("{ROWS} === 1"))
        .await;

    // What happens is shown without a reload, in the list …
    viewer.open(&world.url("")).await;
    viewer
        .until("document.querySelector('tbody [data-state=ready]')")
        .await;
    world
        .create("Redis", "payments", "cart", json!({"broken": HOSTILE}))
        .await;
    viewer
        .until("document.querySelector('tbody [data-state=failed]')")
        .await;
    // … and on the page of a custom resource, to which a click leads.
    viewer.click("tbody [data-state=ready] a").await;
    viewer
        .until("document.querySelectorAll('.tree ul > li').length === 3")
        .await;
    let change = json!({"spec": {"password": "second-hush", "size": 2}});
    world.patch("Redis", "payments", "sessions", change).await;
    viewer
        .until("document.querySelectorAll('.history tbody tr').length === 2")
        .await;
    viewer
        .until("document.querySelector('.history .chart').textContent === 'redis-20.1.4 (20.1.4)'")
        .await;
    viewer.click("[aria-label=\"Changes of revision 2\"]").await;
    viewer.until("document.querySelector('.shown ins')").await;
    let shown = viewer
        .evaluate("document.querySelector('.shown').textContent")
        .await;
    let shown = shown.as_str().unwrap();
    for part in ["size: \"2\"", "image: example.com/main:2", "'*** (after)'"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("hush"), "{shown}");
    let shared = viewer.evaluate("location.search").await;
    let shared = world.url(shared.as_str().unwrap());
    viewer
        .look(&shared, "changes", "document.querySelector('.shown ins')")
        .await;
    let failed = world.url("?resource=Redis.shops.example.com/payments/cart");
    viewer
        .look(
            &failed,
            "failed",
            "document.querySelector('.notice[data-state=failed]')",
        )
        .await;
    let text = viewer.evaluate(TEXT).await;
    assert!(text.as_str().unwrap().contains(HOSTILE), "{text}");

    let unknown = world.url("?resource=Redis.shops.example.com/payments/none");
    viewer.open(&unknown).await;
    viewer
        .until(&format!("{TEXT}.includes('does not know it')"))
        .await;
    viewer.check("unknown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_custom_resources_of_native_controllers_without_releases() {
    let Some(mut viewer) = Viewer::start_or_skip().await else {
        return;
    };
    let world = World::start().await;
    world
        .create("Redis", "payments", "sessions", json!({}))
        .await;
    world
        .create("Backup", "payments", "nightly", json!({}))
        .await;
    world
        .create("Backup", "payments", "weekly", json!({"broken": HOSTILE}))
        .await;
    world
        .until("Redis", "payments", "sessions", "Ready", "True")
        .await;
    world
        .until("Backup", "payments", "weekly", "Ready", "False")
        .await;
    let there = format!("{ROWS} === 3 && {TEXT}.includes('NoSpace')");
    viewer.look(&world.url(""), "native", &there).await;
    let weekly = world.url("?resource=Backup.shops.example.com/payments/weekly");
    let there = "document.querySelector('.notice[data-state=progressing]')";
    viewer.look(&weekly, "native-unready", there).await;
    let shown = "[...document.querySelectorAll('main section.card')].filter((card) => !card.hidden)\
        .map((card) => card.ariaLabel).join()";
    let shown = viewer.evaluate(shown).await;
    assert_eq!(shown, "Conditions,Reconciles");

    // What changes is shown without a reload.
    world
        .patch(
            "Backup",
            "payments",
            "weekly",
            json!({"spec": {"broken": null}}),
        )
        .await;
    viewer
        .until("document.querySelector('.state [data-state=ready]')")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_counts_releases_by_their_state() {
    let Some(mut viewer) = Viewer::start_or_skip().await else {
        return;
    };
    let world = World::start().await;
    let broken =
        json!({"broken": "set the size of the disk: without one, data is lost with the Pod"});
    for (kind, namespace, name, spec, state) in [
        ("Redis", "payments", "sessions", json!({"size": 3}), "True"),
        ("Redis", "payments", "cart", broken, "False"),
        (
            "Redis",
            "search",
            "suggestions",
            json!({"pending": true}),
            "False",
        ),
        ("Redis", "checkout", "locks", json!({}), "True"),
        ("Memcached", "search", "queries", json!({}), "True"),
        (
            "Memcached",
            "checkout",
            "prices",
            json!({"size": 2}),
            "True",
        ),
        ("Memcached", "payments", "rates", json!({}), "True"),
        ("Shop", "checkout", "storefront", json!({"size": 4}), "True"),
        ("Shop", "payments", "invoices", json!({}), "True"),
        ("Shop", "search", "catalogue", json!({}), "True"),
    ] {
        world.create(kind, namespace, name, spec).await;
        world.until(kind, namespace, name, "Ready", state).await;
    }
    for size in [5, 6] {
        world
            .patch(
                "Shop",
                "checkout",
                "storefront",
                json!({"spec": {"size": size}}),
            )
            .await;
        world
            .until("Shop", "checkout", "storefront", "Ready", "True")
            .await;
    }
    let paused =
        json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/paused": "true"}}});
    world.patch("Shop", "payments", "invoices", paused).await;
    let settings = "/api/v1/namespaces/search/configmaps/catalogue-settings";
    world
        .patch_at(settings, &json!({"data": {"size": "100"}}))
        .await;

    viewer.open(&world.url("")).await;
    let counts =
        "[...document.querySelectorAll('.chip .count')].map((count) => count.textContent).join()";
    // All, failed, drifted, progressing, deleting, paused, new, ready.
    let there = format!("{counts} === '10,1,1,1,0,1,0,6'");
    viewer.until(&there).await;
    viewer.look(&world.url(""), "states", &there).await;
    let of_one = format!("{counts} === '4,1,0,0,0,1,0,2' && {ROWS} === 4");
    viewer
        .look(&world.url("?namespace=payments"), "namespace", &of_one)
        .await;
    let pending = world.url("?resource=Redis.shops.example.com/search/suggestions");
    viewer
        .look(
            &pending,
            "pending",
            "document.querySelector('.tree [data-state=progressing]')",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_thousands_of_releases() {
    let Some(mut viewer) = Viewer::start_or_skip().await else {
        return;
    };
    let world = World::start().await;
    let begun = std::time::Instant::now();
    for number in 0..MANY {
        let (kind, _) = KINDS[[0, 0, 0, 1, 1, 2][number % 6]];
        let namespace = ["payments", "checkout", "search"][number % 3];
        let role = ["cache", "sessions", "carts", "jobs", "front"][number % 5];
        let spec = match number % 500 {
            7 => {
                json!({"broken": "set the size of the disk: without one, data is lost with the Pod"})
            }
            _ => json!({"size": number % 9, "pending": number % 300 == 5}),
        };
        world
            .create(kind, namespace, &format!("{role}-{number}"), spec)
            .await;
        if number % 400 == 11 {
            let paused = json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/paused": "true"}}});
            world
                .patch(kind, namespace, &format!("{role}-{number}"), paused)
                .await;
        }
    }
    world
        .create("Shop", "search", "last", json!({"broken": HOSTILE}))
        .await;
    eprintln!("created after {:?}", begun.elapsed());
    world
        .until("Shop", "search", "last", "Irreconcilable", "True")
        .await;
    world
        .until("Shop", "search", DRIFTED, "Ready", "True")
        .await;
    let settings = format!("/api/v1/namespaces/search/configmaps/{DRIFTED}-settings");
    world
        .patch_at(&settings, &json!({"data": {"size": "100"}}))
        .await;
    let there = format!(
        "document.querySelector('.chip[data-state=ready] .count')?.textContent === '2,975' && {ROWS} === 200"
    );
    viewer.open(&world.url("")).await;
    viewer.until(&there).await;
    eprintln!("ready after {:?}", begun.elapsed());
    viewer.look(&world.url(""), "many", &there).await;

    // Filters are in the address, which leads others to the same rows.
    viewer.open(&world.url("")).await;
    viewer.until(&there).await;
    viewer.click(".chip[data-state=failed]").await;
    viewer.until(&format!("{ROWS} === 7")).await;
    let filtered = viewer.evaluate("location.search").await;
    assert_eq!(filtered, "?state=failed");
    let found = world.url("?q=sessions+redis-20&namespace=payments&sort=-name");
    viewer
        .look(&found, "search", &format!("{ROWS} === 100"))
        .await;
}
