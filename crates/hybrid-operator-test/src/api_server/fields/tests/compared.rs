//! The same generated requests go to kube-apiserver and, with the object before them, to this module.
//!
//! Compared are: of each write `metadata.managedFields`, with order and times; of applies the answer with an error, and
//! the merged object: written back over the server's in a dry run, it changes nothing. So what the server's decoding and
//! defaults make of it is not compared. The object that [`update`] gets for a built-in kind is the server's answer, which
//! has these defaults, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::apply;
use super::samples::{Random, SAMPLES, Sample, widget_schema};
use super::server::{Answer, path, send};
use crate::TestNamespace;
use crate::api_server::fields::{ApplyError, TypeRef, Types, Writer, keep_times, update};
use crate::api_server::status::Failure;
use crate::api_server::typed::drop_nulls;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Requests to one object, which is then left alone.
const STEPS: usize = 14;

/// Requests to one object of many that update it, of which the oldest entries are merged.
const STEPS_OF_CROWD: usize = 40;

/// A generated request.
#[derive(Debug, Clone)]
struct Write {
    method: Method,
    content_type: &'static str,
    manager: String,
    force: bool,
    subresource: Option<&'static str>,
    api_version: &'static str,
    body: Value,
}

/// Writes objects of one kind, and compares what happens.
struct Comparison<'a> {
    client: &'a Client,
    namespace: &'a str,
    requests: u64,
    counts: BTreeMap<&'static str, usize>,
    findings: Vec<String>,
}

impl Comparison<'_> {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    async fn object(&mut self, random: &mut Random, sample: &Sample, type_: &TypeRef, name: &str) {
        let is_crowded = random.chance(10);
        let steps = if is_crowded { STEPS_OF_CROWD } else { STEPS };
        for step in 0..steps {
            let api_version = *random.pick(sample.api_versions);
            let all = path(api_version, self.namespace, &sample.plural());
            let one = format!("{all}/{name}");
            let found = self.get(&one).await;
            let live = found.is_success().then_some(found.body);
            let mut write = generate(random, sample, live.as_ref(), is_crowded);
            write.api_version = api_version;
            write.body["apiVersion"] = json!(api_version);
            write.body["kind"] = json!(sample.kind);
            write.body["metadata"]["name"] = json!(name);
            if let (Some(live), "Deployment") = (&live, sample.kind) {
                // Its controller writes, too.
                write.body["metadata"]["resourceVersion"] =
                    live["metadata"]["resourceVersion"].clone();
            }
            let place = if write.method == Method::POST {
                &all
            } else {
                &one
            };
            let place = of_subresource(place, write.subresource);
            let mut uri = format!("{place}?fieldManager={}", write.manager);
            if write.content_type == APPLY {
                uri = format!("{uri}&force={}", write.force);
            }
            let started = now();
            let (method, body) = (write.method.clone(), Some(&write.body));
            let answer = send(self.client, method, &uri, write.content_type, body).await;
            self.requests += 1;
            let compared = self.compare(sample, type_, live.as_ref(), &write, &answer, &started);
            if let Err(difference) = compared.await {
                // Conflicts are found before the version of the object is compared.
                let refused = sample.kind == "Deployment" && !answer.is_success();
                if refused && self.has_changed(&one, live.as_ref()).await {
                    self.count("overtaken by a controller");
                    continue;
                }
                self.findings.push(format!(
                    "{name}, step {step}: {difference}\n{} {uri}\n{}\nbefore {}\nserver {} {}",
                    write.method,
                    write.body,
                    live.unwrap_or_default(),
                    answer.code,
                    answer.body
                ));
            }
        }
        // Nothing keeps the namespace.
        let without = json!({"metadata": {"finalizers": null}});
        let all = path(sample.api_versions[0], self.namespace, &sample.plural());
        let one = format!("{all}/{name}");
        send(self.client, Method::PATCH, &one, MERGE, Some(&without)).await;
    }

    async fn get(&self, path: &str) -> Answer {
        send(self.client, Method::GET, path, JSON, None).await
    }

    async fn has_changed(&self, path: &str, live: Option<&Value>) -> bool {
        let found = self.get(path).await;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        live.map(version) != found.is_success().then(|| version(&found.body))
    }

    async fn compare(
        &mut self,
        sample: &Sample,
        type_: &TypeRef,
        live: Option<&Value>,
        write: &Write,
        answer: &Answer,
        started: &str,
    ) -> Result<(), String> {
        let server = &answer.body;
        if server["message"]
            .as_str()
            .is_some_and(|text| text.contains("object has been modified"))
        {
            self.count("overtaken by a controller");
            return Ok(());
        }
        // The clock is the server's.
        let entries = server["metadata"]["managedFields"].as_array();
        let times = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry["time"].as_str());
        let newest = times
            .max()
            .filter(|newest| *newest >= started)
            .unwrap_or(started);
        let writer = Writer {
            manager: &write.manager,
            subresource: write.subresource,
            api_version: write.api_version,
            now: newest,
        };
        if write.content_type != APPLY {
            if !answer.is_success() {
                self.count("updates that are invalid");
                return Ok(());
            }
            let new = decoded(sample, live, write, server);
            let ours = update(live, new, type_, &writer).map_err(|error| error.to_string())?;
            self.count(if write.content_type == MERGE {
                "merge patches"
            } else {
                "creates and updates"
            });
            return same_entries(&settled(live, server, &ours), server);
        }
        let ours = match apply(live, &write.body, type_, &writer, write.force) {
            Ok(ours) if answer.is_success() => ours,
            Ok(_) if answer.code == 422 => {
                self.count("applies that are invalid");
                return Ok(());
            }
            Ok(_) => return Err("refused by the server only".to_owned()),
            Err(error) => {
                self.count(match error {
                    ApplyError::Conflict { .. } => "conflicts",
                    _ => "applies of another type",
                });
                return same_error(&error, answer);
            }
        };
        self.count("applies");
        let entries = settled(live, server, &ours);
        if live.is_some_and(|live| {
            live["metadata"]["resourceVersion"] == server["metadata"]["resourceVersion"]
        }) {
            self.count("applies without effect");
        }
        same_entries(&entries, server)?;
        self.same_object(sample, write, ours, server).await
    }

    /// Compares a merged object with the server's: written over it, it changes nothing.
    async fn same_object(
        &mut self,
        sample: &Sample,
        write: &Write,
        mut ours: Value,
        server: &Value,
    ) -> Result<(), String> {
        let version = server["metadata"]["resourceVersion"].clone();
        ours["metadata"]["resourceVersion"] = version;
        ours["metadata"]["managedFields"] = server["metadata"]["managedFields"].clone();
        let name = server["metadata"]["name"].as_str().unwrap_or_default();
        let all = path(write.api_version, self.namespace, &sample.plural());
        let place = of_subresource(&format!("{all}/{name}"), write.subresource);
        let uri = format!("{place}?dryRun=All");
        let answer = send(self.client, Method::PUT, &uri, JSON, Some(&ours)).await;
        if answer.code == 409 {
            self.count("overtaken by a controller");
            return Ok(());
        }
        let timeless = |object: &Value| {
            let mut object = object.clone();
            object["metadata"]["managedFields"] = Value::Null;
            object["metadata"]["resourceVersion"] = Value::Null;
            object
        };
        if timeless(&answer.body) == timeless(server) {
            self.count("merged objects");
            Ok(())
        } else {
            Err(format!(
                "merged object {ours}\nwritten back {}",
                answer.body
            ))
        }
    }
}

fn of_subresource(path: &str, subresource: Option<&str>) -> String {
    subresource.map_or_else(
        || path.to_owned(),
        |subresource| format!("{path}/{subresource}"),
    )
}

/// Returns the time as `managedFields` has it. The server runs on this machine.
fn now() -> String {
    let now = k8s_openapi::jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns our object as the server would store it: its fields are the server's, without new times if nothing else is
/// new.
fn settled(live: Option<&Value>, server: &Value, ours: &Value) -> Value {
    let mut new = server.clone();
    new["metadata"]["managedFields"] = ours["metadata"]["managedFields"].clone();
    match live {
        Some(live) => keep_times(live, new),
        None => new,
    }
}

fn same_entries(ours: &Value, server: &Value) -> Result<(), String> {
    let entries = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array();
        entries.cloned().unwrap_or_default()
    };
    let (ours, server) = (entries(ours), entries(server));
    if ours == server {
        return Ok(());
    }
    let only = |some: &[Value], others: &[Value]| {
        let only = some.iter().filter(|entry| !others.contains(entry));
        only.map(|entry| format!("\n    {entry}"))
            .collect::<Vec<_>>()
            .concat()
    };
    Err(format!(
        "managed fields (or their order)\n  only ours{}\n  only the server's{}",
        only(&ours, &server),
        only(&server, &ours)
    ))
}

fn same_error(error: &ApplyError, answer: &Answer) -> Result<(), String> {
    let sorted = |status: &Value| {
        let mut status = status.clone();
        // The server finds several in the order of a map of Go.
        let message = status["message"].as_str().unwrap_or_default();
        let mut lines: Vec<_> = message.lines().map(ToOwned::to_owned).collect();
        if message.contains(": errors:\n") {
            lines.sort();
            status["message"] = json!(lines);
        }
        if let Some(causes) = status["details"]["causes"].as_array_mut() {
            causes.sort_by_key(Value::to_string);
        }
        status
    };
    let ours = Failure::from(error.clone()).status();
    // Of several fields that are not declared, the server names any.
    let undeclared = |status: &Value| {
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        message.contains("field not declared in schema")
    };
    if sorted(&ours) == sorted(&answer.body) || (undeclared(&ours) && undeclared(&answer.body)) {
        Ok(())
    } else {
        Err(format!("answer\n  ours   {ours}\n  server {}", answer.body))
    }
}

/// Returns the object that the server's field manager got: the request's, decoded and with defaults.
fn decoded(sample: &Sample, live: Option<&Value>, write: &Write, server: &Value) -> Value {
    let mut new = server.clone();
    if write.method == Method::POST && sample.kind == "Service" {
        // Allocated later.
        let spec = new["spec"].as_object_mut().unwrap();
        for allocated in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(allocated);
        }
    }
    if let ("Widget", Some(live)) = (sample.kind, live) {
        if write.method == Method::PATCH {
            new = live.clone();
            json_patch::merge(&mut new, &write.body);
        } else {
            new = write.body.clone();
        }
        // What is not declared is pruned.
        let declared = ["apiVersion", "kind", "metadata", "spec", "status"];
        let fields = new.as_object_mut().unwrap();
        fields.retain(|name, _| declared.contains(&name.as_str()));
        // Metadata has a type, in which empty maps are none.
        new["metadata"] = server["metadata"].clone();
        // The server added defaults.
        if write.subresource.is_none() && new.get("spec").is_some() {
            new["spec"] = server["spec"].clone();
        }
    }
    let entries = match write.method {
        Method::PATCH => live.map(|live| live["metadata"]["managedFields"].clone()),
        _ => Some(write.body["metadata"]["managedFields"].clone()),
    };
    new["metadata"]["managedFields"] = entries.unwrap_or_default();
    new
}

fn generate(random: &mut Random, sample: &Sample, live: Option<&Value>, is_crowded: bool) -> Write {
    let mut write = Write {
        method: Method::PATCH,
        content_type: APPLY,
        manager: format!("applier{}", random.0.u32(..3)),
        force: random.chance(50),
        subresource: None,
        api_version: "",
        body: (sample.generate)(random, live.is_none()),
    };
    if random.chance(3) {
        let twice = json!([{"port": 80}, {"port": 80, "protocol": "TCP"}]);
        let wrongs = [
            ("unknown", json!(1)),
            ("metadata", json!({"labels": "text"})),
            ("spec", json!("text")),
            ("data", json!({"k1": 5})),
            (
                "spec",
                json!({"items": [{"value": "a"}], "set": ["a", "a"]}),
            ),
            ("spec", json!({"items": [{"name": "a", "ports": twice}]})),
        ];
        let (field, wrong) = random.pick(&wrongs);
        write.body[*field] = wrong.clone();
    }
    let Some(live) = live else {
        if random.chance(40) {
            write.method = Method::POST;
            write.content_type = JSON;
            write.manager = format!("updater{}", random.0.u32(..3));
            drop_nulls(&mut write.body);
        }
        return write;
    };
    let status = sample.status.filter(|_| random.chance(25));
    let drawn = random.0.u32(..10) + if is_crowded { 4 } else { 0 };
    if drawn >= 6 {
        write.content_type = MERGE;
        write.manager = format!("updater{}", random.0.u32(..14));
    }
    if drawn >= 8 {
        write.method = Method::PUT;
        write.content_type = JSON;
        let mut body = live.clone();
        drop_nulls(&mut write.body);
        if let Some(status) = status {
            write.body = json!({"status": status(random)});
            drop_nulls(&mut write.body);
        }
        overlay(&mut body, &write.body, random);
        match random.0.u32(..20) {
            0..8 => {
                let metadata = body["metadata"].as_object_mut().unwrap();
                metadata.remove("managedFields");
            }
            8 => body["metadata"]["managedFields"] = json!([{}]),
            9 => body["metadata"]["managedFields"] = json!([]),
            _ => {}
        }
        write.body = body;
    }
    if let Some(status) = status {
        write.subresource = Some("status");
        if write.method == Method::PATCH {
            write.body["status"] = status(random);
        }
    }
    write
}

/// Replaces fields, and removes some of those that are replaced.
fn overlay(object: &mut Value, new: &Value, random: &mut Random) {
    for (name, value) in new.as_object().into_iter().flatten() {
        let fields = object.as_object_mut().unwrap();
        match fields.get_mut(name) {
            Some(Value::Object(_)) if value.is_object() => {
                overlay(fields.get_mut(name).unwrap(), value, random);
            }
            Some(_)
                if random.chance(20)
                    && !["selector", "containers", "name"].contains(&name.as_str()) =>
            {
                fields.remove(name);
            }
            _ => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
}

async fn define_widgets(client: &Client) {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": widget_schema()}})
    };
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.fields.example.com"},
        "spec": {"group": "fields.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", true), version("v2", false)]}});
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = send(client, Method::POST, all, JSON, Some(&crd)).await;
    assert!(answer.is_success() || answer.code == 409, "{}", answer.body);
    let deadline = Instant::now() + Duration::from_secs(30);
    let widgets = path("fields.example.com/v2", "default", "widgets");
    let served = async || send(client, Method::GET, &widgets, JSON, None).await;
    while !served().await.is_success() {
        assert!(Instant::now() < deadline, "the definition is not served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test]
async fn writes_have_the_effect_that_they_have_on_the_api_server() -> TestResult {
    let Some(plane) = crate::shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "fields").await?;
    let client = plane.client().await?;
    define_widgets(&client).await;
    let requests = variable("COMPARED_REQUESTS", 300);
    let first_seed = variable("COMPARED_SEED", 1);
    let mut comparison = Comparison {
        client: &client,
        namespace: namespace.name(),
        requests: 0,
        counts: BTreeMap::new(),
        findings: Vec::new(),
    };
    for seed in first_seed.. {
        if comparison.requests >= requests {
            break;
        }
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let total: usize = SAMPLES.iter().map(|sample| sample.weight).sum();
        let mut drawn = random.0.usize(..total);
        let sample = SAMPLES.iter().find(|sample| {
            let found = drawn < sample.weight;
            drawn = drawn.saturating_sub(sample.weight);
            found
        });
        let sample = sample.unwrap();
        let type_ = match sample.kind {
            "Widget" => {
                let schema = widget_schema();
                let versions = sample.api_versions.iter();
                let versions = versions.map(|version| ((*version).to_owned(), &schema, true));
                Types::of_definition("Widget", versions)?[sample.api_versions[0]].clone()
            }
            kind => Types::builtin(sample.api_versions[0], kind)?,
        };
        let name = format!("seed-{seed}");
        comparison.object(&mut random, sample, &type_, &name).await;
    }
    let (counts, findings) = (&comparison.counts, &comparison.findings);
    let first: Vec<_> = findings.iter().take(3).cloned().collect();
    assert!(
        findings.is_empty(),
        "{} differences, {counts:?}\n{}",
        findings.len(),
        first.join("\n\n")
    );
    // What is never compared proves nothing.
    for what in [
        "applies",
        "conflicts",
        "merge patches",
        "creates and updates",
        "merged objects",
    ] {
        assert!(
            counts.get(what).is_some_and(|count| *count > 10),
            "{what}: {counts:?}"
        );
    }
    std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("compared with the API server: {counts:?}\n").as_bytes(),
    )?;
    Ok(())
}
