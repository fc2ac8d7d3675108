//! One of the two servers that are compared, and what it has shown so far.

use std::collections::BTreeMap;

use futures::future::join_all;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

/// A request, with placeholders for what the servers choose:
///
/// | placeholder | is replaced by |
/// |---|---|
/// | `{{rv PATH}}`, `{{old-rv PATH}}` | the last and the first resource version seen at a path |
/// | `{{uid PATH}}`, `{{old-uid PATH}}` | the last and the first uid |
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Option<Value>,
    /// User whom the request impersonates.
    pub(crate) user: Option<String>,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub(crate) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl Step {
    fn new(method: Method, uri: impl Into<String>, body: Option<Value>) -> Self {
        Self {
            method,
            uri: uri.into(),
            content_type: JSON,
            accept: JSON,
            body,
            user: None,
        }
    }

    pub(crate) fn get(uri: impl Into<String>) -> Self {
        Self::new(Method::GET, uri, None)
    }

    pub(crate) fn post(uri: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, uri, Some(body))
    }

    pub(crate) fn put(uri: impl Into<String>, body: Value) -> Self {
        Self::new(Method::PUT, uri, Some(body))
    }

    pub(crate) fn delete(uri: impl Into<String>) -> Self {
        Self::new(Method::DELETE, uri, None)
    }

    /// Returns whether this is a write of the object at a path.
    pub(crate) fn changes(&self, path: &str) -> bool {
        self.method != Method::GET && self.uri.split('?').next() == Some(path)
    }

    pub(crate) fn patch(uri: impl Into<String>, content_type: &'static str, body: Value) -> Self {
        Self {
            content_type,
            ..Self::new(Method::PATCH, uri, Some(body))
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.uri)?;
        if self.content_type != JSON {
            write!(f, " [{}]", self.content_type)?;
        }
        if let Some(user) = &self.user {
            write!(f, " as {user}")?;
        }
        match &self.body {
            Some(body) => write!(f, " {body}"),
            None => Ok(()),
        }
    }
}

/// An answer; those that are compared are without what differs between servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

pub(crate) struct Side {
    client: Client,
    memory: Memory,
}

/// Uids and resource versions that a side has shown.
#[derive(Debug, Default, Clone)]
pub(crate) struct Memory {
    /// Uids and resource versions by path, in the order in which they were seen.
    seen: BTreeMap<String, Vec<(String, String)>>,
    uids: Vec<String>,
    /// Resource versions of each uid.
    versions: BTreeMap<String, Vec<String>>,
}

impl Side {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            memory: Memory::default(),
        }
    }

    /// Sends a request and returns the answer as the server gave it.
    async fn raw(&self, step: &Step) -> Answer {
        let response = self.response(step).await;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let mut warnings: Vec<String> = warnings
            .map(|value| value.to_str().unwrap().to_owned())
            .collect();
        warnings.sort();
        let text = text(response).await;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer {
            code,
            body,
            warnings,
        }
    }

    async fn response(&self, step: &Step) -> Response<Body> {
        let body = step
            .body
            .as_ref()
            .map(|body| self.resolved(&body.to_string()));
        let mut request = Request::builder();
        if let Some(user) = &step.user {
            request = request.header("impersonate-user", user);
        }
        let request = request
            .method(step.method.clone())
            .uri(self.resolved(&step.uri).replace(' ', "%20"))
            .header("accept", step.accept)
            .header("content-type", step.content_type)
            .header("user-agent", "compare")
            .body(Body::from(body.unwrap_or_default().into_bytes()))
            .unwrap();
        self.client.send(request).await.unwrap()
    }

    /// Sends a request and returns the code and the text of the answer, with its headers.
    pub(crate) async fn exact(&mut self, step: &Step) -> (u16, String) {
        let response = self.response(step).await;
        let code = response.status().as_u16();
        let headers = format!("{:?}", response.headers());
        let text = text(response).await;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        self.learn_from(step, code, &body);
        (code, format!("{headers} {text}"))
    }

    /// Sends a request and returns the answer without what differs.
    pub(crate) async fn send(&mut self, step: &Step) -> Answer {
        let answer = self.raw(step).await;
        self.learn_from(step, answer.code, &answer.body);
        self.normal_answer(answer)
    }

    pub(crate) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Forgets what the side has shown since.
    pub(crate) fn restore(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// Reads from paths at the same time, and returns the answers without what differs.
    pub(crate) async fn read(&mut self, uris: &[String]) -> Vec<Answer> {
        let answers = self.read_raw(uris).await.into_iter();
        answers.map(|answer| self.normal_answer(answer)).collect()
    }

    fn normal_answer(&mut self, answer: Answer) -> Answer {
        Answer {
            body: self.normal(answer.body),
            ..answer
        }
    }

    async fn read_raw(&self, uris: &[String]) -> Vec<Answer> {
        let requests = uris.iter().map(async |uri| {
            let step = Step::get(uri.clone());
            self.raw(&step).await
        });
        join_all(requests).await
    }

    /// Returns the events of watches, by object.
    pub(crate) async fn watch(&mut self, uris: &[String]) -> Vec<BTreeMap<String, Vec<Value>>> {
        let answers = self.read_raw(uris).await.into_iter();
        answers.map(|answer| self.events(&answer.body)).collect()
    }

    fn events(&mut self, body: &Value) -> BTreeMap<String, Vec<Value>> {
        let lines = match body {
            Value::String(text) => text.clone(),
            one => one.to_string(),
        };
        let mut events: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in lines.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event
                .pointer("/object/metadata/name")
                .and_then(Value::as_str);
            let name = masked(name.unwrap_or_default());
            if !is_furniture(&name) {
                let event = self.normal(event);
                events.entry(name).or_default().push(event);
            }
        }
        events
    }

    /// Returns the resource version of a list; `None` if there is no such path.
    pub(crate) async fn version(&self, uri: &str) -> Option<String> {
        let body = self.raw(&Step::get(uri)).await.body;
        Some(body["metadata"]["resourceVersion"].as_str()?.to_owned())
    }

    /// Returns the edition of the definition that the answer to a request shows.
    pub(crate) async fn edition(&self, step: &Step) -> Option<u64> {
        self.raw(step).await.body["spec"]["edition"].as_u64()
    }

    fn learn_from(&mut self, step: &Step, code: u16, body: &Value) {
        let path = step.uri.split('?').next().unwrap_or_default();
        self.learn(path, body);
        if code < 300 && step.method == Method::POST {
            let name = body.pointer("/metadata/name").and_then(Value::as_str);
            self.learn(&format!("{path}/{}", name.unwrap_or_default()), body);
        }
    }

    fn learn(&mut self, path: &str, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        if let (Some(uid), Some(version)) =
            (text("/metadata/uid"), text("/metadata/resourceVersion"))
        {
            let seen = self.memory.seen.entry(path.to_owned()).or_default();
            seen.push((uid.to_owned(), version.to_owned()));
        }
    }

    fn resolved(&self, text: &str) -> String {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (placeholder, after) = after.split_once("}}").unwrap();
            let (what, path) = placeholder.split_once(' ').unwrap();
            let mut seen = self.memory.seen.get(path).into_iter().flatten();
            let pair = if what.starts_with("old-") {
                seen.next()
            } else {
                seen.next_back()
            };
            let (uid, version) = match pair {
                Some((uid, version)) => (uid.as_str(), version.as_str()),
                None => ("00000000-0000-0000-0000-000000000000", "1"),
            };
            resolved.push_str(before);
            resolved.push_str(if what.ends_with("uid") { uid } else { version });
            rest = after;
        }
        resolved.push_str(rest);
        resolved
    }

    /// Replaces what differs between servers by what must not differ.
    fn normal(&mut self, mut value: Value) -> Value {
        self.normalize(&mut value);
        value
    }

    fn normalize(&mut self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalize(item)),
            Value::Object(fields) => {
                if let Some(Value::Array(items)) = fields.get_mut("items") {
                    items.retain(|item| {
                        !is_furniture(item["metadata"]["name"].as_str().unwrap_or_default())
                    });
                }
                if let Some(Value::Array(causes)) = fields.get_mut("causes") {
                    // The server names some causes twice, and those that follow from other causes.
                    causes.retain(|cause| {
                        let field = cause["field"].as_str().unwrap_or_default();
                        cause["reason"] == "FieldManagerConflict"
                            || (!field.starts_with('.') && field != "<nil>")
                    });
                    for cause in causes.iter_mut().filter(|cause| cause["field"] == "patch") {
                        cause["message"] = json!("…");
                    }
                    causes.sort_by_key(Value::to_string);
                    causes.dedup();
                }
                if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                    self.normalize_entries(entries);
                }
                for field in [
                    "creationTimestamp",
                    "deletionTimestamp",
                    "lastTransitionTime",
                ] {
                    if fields.get(field).is_some_and(Value::is_string) {
                        fields.insert(field.to_owned(), json!("TIME"));
                    }
                }
                if !text_of(fields, "continue").is_empty() {
                    fields.insert("continue".to_owned(), json!("TOKEN"));
                }
                // Their controllers may write in more steps than one.
                let has_controller = ["CustomResourceDefinition", "Namespace"];
                if has_controller.contains(&text_of(fields, "kind"))
                    && let Some(metadata) =
                        fields.get_mut("metadata").and_then(Value::as_object_mut)
                {
                    metadata.remove("resourceVersion");
                }
                if let Some(Value::String(version)) = fields.get("resourceVersion").cloned() {
                    let uid = text_of(fields, "uid").to_owned();
                    let versions = self.memory.versions.entry(uid.clone()).or_default();
                    let index = versions.iter().position(|known| *known == version);
                    let index = index.unwrap_or_else(|| {
                        versions.push(version);
                        versions.len() - 1
                    });
                    let shown = if uid.is_empty() {
                        "VERSION".to_owned()
                    } else {
                        format!("VERSION {index}")
                    };
                    fields.insert("resourceVersion".to_owned(), json!(shown));
                }
                if let Some(Value::String(uid)) = fields.get("uid").cloned() {
                    let index = self.uid(&uid);
                    fields.insert("uid".to_owned(), json!(format!("UID {index}")));
                }
                if let Some(Value::String(name)) = fields.get("name").cloned() {
                    fields.insert("name".to_owned(), json!(masked(&name)));
                }
                for (name, value) in fields.iter_mut() {
                    if name == "managedFields" {
                        // Their fields have names of all kinds.
                    } else if name == "message" {
                        *value = json!(self.words(value.as_str().unwrap_or_default()));
                    } else {
                        self.normalize(value);
                    }
                }
            }
            _ => {}
        }
    }

    /// Normalizes the entries of managers, which the servers sort by time.
    fn normalize_entries(&mut self, entries: &mut [Value]) {
        for entry in entries.iter_mut() {
            if entry["time"].is_string() {
                entry["time"] = json!("TIME");
            }
            let mut text = entry["fieldsV1"].to_string();
            for (index, uid) in self.memory.uids.iter().enumerate() {
                text = text.replace(uid, &format!("UID {index}"));
            }
            entry["fieldsV1"] = serde_json::from_str(&text).unwrap();
        }
        entries.sort_by_key(Value::to_string);
    }

    fn uid(&mut self, uid: &str) -> usize {
        let index = self.memory.uids.iter().position(|known| known == uid);
        index.unwrap_or_else(|| {
            self.memory.uids.push(uid.to_owned());
            self.memory.uids.len() - 1
        })
    }

    /// Replaces what differs in a message. Lists of causes are sorted, and the words of Go's decoder cut.
    fn words(&self, message: &str) -> String {
        let mut words = message.to_owned();
        for (index, uid) in self.memory.uids.iter().enumerate() {
            words = words.replace(uid, &format!("UID {index}"));
        }
        for mark in [
            "StorageError",
            "json: cannot",
            "ResourceVersion in the precondition",
            "patch: Invalid value",
            "current: ",
        ] {
            if let Some((before, _)) = words.split_once(mark) {
                words = format!("{before}{mark} …");
            }
        }
        // The server looks at fields in any order, and ends at one that is not declared.
        if words.contains("field not declared in schema")
            && let Some((before, _)) = words.split_once("): ")
        {
            words = format!("{before}): field not declared in schema …");
        }
        if let Some((before, list)) = words.split_once("errors:\n") {
            let mut list: Vec<&str> = list.lines().collect();
            list.sort_unstable();
            words = format!("{before}errors: {list:?}");
        }
        // The causes follow.
        if let Some((before, _)) = words.split_once("is invalid: ") {
            words = format!("{}is invalid: …", masked(before));
        }
        if let Some((before, list)) = words.split_once("strict decoding error: ") {
            let mut list: Vec<&str> = list.split(", ").collect();
            list.sort_unstable();
            words = format!("{before}strict decoding error: {list:?}");
        }
        words
    }
}

fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Replaces the ends of generated names, such as `g1-abcde`.
fn masked(text: &str) -> String {
    let words = text.split('"').map(|word| match word.split_once('-') {
        Some((prefix, end))
            if end.len() == 5 && prefix.starts_with('g') && prefix[1..].parse::<u32>().is_ok() =>
        {
            format!("{prefix}-GENERATED")
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join("\"")
}

/// Returns whether an object is one that every namespace has.
fn is_furniture(name: &str) -> bool {
    matches!(name, "default" | "kube-root-ca.crt")
}
