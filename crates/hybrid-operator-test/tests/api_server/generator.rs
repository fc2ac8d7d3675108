//! Generates requests from a seed.

mod definitions;
mod ownership;
mod permissions;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::sides::{JSON_PATCH, MERGE, METADATA, METADATA_LIST, Step};

/// Next event for both servers.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Both servers get a request.
    Request(Step),
    /// Both servers' controllers come to rest.
    Rest,
    /// Both servers get a request of a user, which changes nothing: the real one learns later what the user may do.
    Permitted(Step),
    /// Both servers serve a changed definition: a dry run shows this number.
    Served(Step, u32),
}

pub(crate) struct Generator {
    random: Rng,
    /// Number of prefixes of generated names so far. Each is another, so that lists have one order.
    generated: u32,
    /// Number of the present definition.
    edition: u32,
    pub(crate) prefix: String,
}

/// A kind whose objects the requests are about.
struct Kind {
    api: &'static str,
    plural: &'static str,
    name: &'static str,
}

impl Kind {
    const fn new(api: &'static str, plural: &'static str, name: &'static str) -> Self {
        Self { api, plural, name }
    }
}

const KINDS: [Kind; 6] = [
    Kind::new("/api/v1", "configmaps", "ConfigMap"),
    Kind::new("/api/v1", "secrets", "Secret"),
    Kind::new("/api/v1", "serviceaccounts", "ServiceAccount"),
    Kind::new("/apis/rbac.authorization.k8s.io/v1", "roles", "Role"),
    Kind::new("/apis/coordination.k8s.io/v1", "leases", "Lease"),
    Kind::new("", "things", "Thing"),
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn request(step: Step) -> Vec<Event> {
    vec![Event::Request(step)]
}

/// Returns a request after which the servers come to rest.
fn settled(step: Step) -> Vec<Event> {
    vec![Event::Request(step), Event::Rest]
}

fn request_that_may_rest(step: Step, rests: bool) -> Vec<Event> {
    if rests { settled(step) } else { request(step) }
}

impl Generator {
    pub(crate) fn new(seed: u64, run: &str) -> Self {
        Self {
            random: Rng::with_seed(seed),
            generated: 0,
            edition: 0,
            prefix: format!("c{run}-{seed}"),
        }
    }

    pub(crate) fn group(&self) -> String {
        format!("{}.example.com", self.prefix)
    }

    pub(crate) fn namespaces(&self) -> [String; 2] {
        ["a", "b"].map(|name| format!("{}-{name}", self.prefix))
    }

    /// Returns the paths whose lists are compared at the end.
    pub(crate) fn collections(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for namespace in self.namespaces() {
            paths.extend(KINDS.iter().map(|kind| self.collection(kind, &namespace)));
        }
        paths
    }

    /// Returns the name of a namespace that comes and goes.
    pub(crate) fn passing(&self) -> String {
        format!("{}-c", self.prefix)
    }

    /// Returns the paths that show where the servers have come to rest.
    pub(crate) fn state(&self) -> Vec<String> {
        let mut paths = self.collections();
        let passing = self.passing();
        paths.push(format!("/api/v1/namespaces/{passing}"));
        paths.push(format!("/api/v1/namespaces/{passing}/configmaps"));
        paths.extend(
            self.namespaces()
                .map(|namespace| self.things("v2", &namespace)),
        );
        paths.push(self.definition_path());
        paths
    }

    pub(crate) fn definition_path(&self) -> String {
        format!("{DEFINITIONS}/things.{}", self.group())
    }

    fn things(&self, version: &str, namespace: &str) -> String {
        format!(
            "/apis/{}/{version}/namespaces/{namespace}/things",
            self.group()
        )
    }

    fn collection(&self, kind: &Kind, namespace: &str) -> String {
        let api = if kind.api.is_empty() {
            format!("/apis/{}/v1", self.group())
        } else {
            kind.api.to_owned()
        };
        format!("{api}/namespaces/{namespace}/{}", kind.plural)
    }

    /// Returns the events that make the stage.
    pub(crate) fn first(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for name in self.namespaces() {
            let namespace = json!({"metadata": {"name": name, "labels": {"run": self.prefix}}});
            events.push(Event::Request(Step::post("/api/v1/namespaces", namespace)));
        }
        events.push(Event::Request(Step::post(DEFINITIONS, self.definition())));
        events.push(Event::Rest);
        events
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())].clone()
    }

    fn pick_json(&mut self, of: &Value) -> Value {
        self.pick(of.as_array().unwrap())
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    pub(crate) fn next(&mut self) -> Vec<Event> {
        let namespaces = self.namespaces();
        let namespace = self.pick(&namespaces);
        let kind = &KINDS[self.random.usize(..KINDS.len())];
        let collection = self.collection(kind, &namespace);
        let name = self.pick(&["x", "y", "z"]);
        let path = format!("{collection}/{name}");
        let other = format!("{}/{name}", collection.replace("/v1/", "/v2/"));
        match self.random.u8(..144) {
            140.. => self.permission(&namespace),
            100..140 => self.ownership(kind, &namespace, name),
            0..20 => {
                let (object, rests) = self.object(kind, &namespace, name);
                let query = self.query();
                let step = Step::post(format!("{collection}{query}"), object);
                request_that_may_rest(step, rests)
            }
            20..28 => request(Step::get(path)),
            28..38 => self.list(&collection),
            38..50 => {
                let (mut object, rests) = self.object(kind, &namespace, name);
                let rv = "{{rv @}}";
                let version = self.pick(&[rv, rv, rv, "{{old-rv @}}", "", "1", "x"]);
                if !version.is_empty() {
                    object["metadata"]["resourceVersion"] = json!(version.replace('@', &path));
                }
                if self.chance(20) {
                    let uid = self.pick(&["{{uid @}}", "{{old-uid @}}"]);
                    object["metadata"]["uid"] = json!(uid.replace('@', &path));
                }
                let query = self.query();
                let step = Step::put(format!("{path}{query}"), object);
                request_that_may_rest(step, rests)
            }
            50..66 => {
                let (body, rests) = self.merge_patch(kind, &path);
                let query = self.query();
                let place = if kind.api.is_empty() && self.chance(20) {
                    &other
                } else {
                    &path
                };
                let step = Step::patch(format!("{place}{query}"), MERGE, body);
                request_that_may_rest(step, rests)
            }
            66..72 => {
                let body = self.json_patch(kind, &path);
                request(Step::patch(path, JSON_PATCH, body))
            }
            72..86 => {
                let mut step = self.deletion(&path);
                if kind.api.is_empty() && self.chance(20) {
                    step.uri = other;
                }
                settled(step)
            }
            86..91 => {
                let body = self.status();
                request(Step::patch(format!("{path}/status"), MERGE, body))
            }
            91..93 => {
                let scale = json!({"spec": {"replicas": self.random.u8(0..7)}});
                let step = Step::patch(format!("{path}/scale"), MERGE, scale);
                vec![
                    Event::Request(step),
                    Event::Request(Step::get(format!("{path}/scale"))),
                ]
            }
            93..95 => {
                let mut step = Step::get(if kind.api.is_empty() { other } else { path });
                if self.chance(50) {
                    step.accept = METADATA;
                }
                request(step)
            }
            95..97 => {
                let selector = self.pick(&["?labelSelector=l=1", "?labelSelector=l!=1", ""]);
                settled(Step::delete(format!("{collection}{selector}")))
            }
            97 => self.namespace(),
            _ => self.odd(&namespace, &collection),
        }
    }

    /// Returns an event of the namespace that comes and goes.
    fn namespace(&mut self) -> Vec<Event> {
        let name = self.passing();
        let path = format!("/api/v1/namespaces/{name}");
        let maps = format!("{path}/configmaps");
        let create = Step::post("/api/v1/namespaces", json!({"metadata": {"name": name}}));
        let map = json!({"metadata": {"name": "m"}});
        let held = json!({"metadata": {"name": "h", "finalizers": ["example.com/f"]}});
        let free = json!({"metadata": {"finalizers": null}});
        let labels = json!({"metadata": {"labels": {"n": "s"}}, "status": {"phase": "x"}});
        let steps = match self.random.u8(..6) {
            0 => vec![create],
            1 => vec![create, Step::post(maps, held), Step::delete(path)],
            2 => vec![create, Step::post(maps, map)],
            3 => vec![Step::delete(path)],
            4 => vec![Step::patch(format!("{maps}/h"), MERGE, free)],
            _ => vec![Step::patch(path, MERGE, labels)],
        };
        steps
            .into_iter()
            .flat_map(|step| [Event::Request(step), Event::Rest])
            .collect()
    }

    /// Returns a patch of a status, which also tries to change other fields.
    fn status(&mut self) -> Value {
        let status =
            self.pick_json(&json!([{"phase": "A"}, {"phase": "B", "n": 3}, {"phase": 1}, null]));
        json!({"status": status, "spec": {"size": 4}, "metadata": {"labels": {"s": "t"}}})
    }

    fn query(&mut self) -> &'static str {
        self.pick(&[
            "",
            "",
            "",
            "?fieldManager=m1",
            "?fieldManager=m2",
            "?dryRun=All",
            "?fieldValidation=Strict",
            "?fieldValidation=Ignore",
            "?fieldManager=me",
        ])
    }

    fn list(&mut self, collection: &str) -> Vec<Event> {
        let query = self.pick(&[
            "",
            "?labelSelector=l=1",
            "?labelSelector=l in (1,2),!m",
            "?labelSelector=m",
            "?labelSelector=l notin (2)",
            "?fieldSelector=metadata.name=x",
            "?fieldSelector=metadata.name!=x",
            "?resourceVersion=0",
            "?limit=1",
            "?limit=2&labelSelector=l",
            "?fieldSelector=spec.nothing=x",
            "?resourceVersion=x",
            "?resourceVersionMatch=Exact",
        ]);
        let mut step = Step::get(format!("{collection}{query}"));
        if self.chance(20) {
            step.accept = METADATA_LIST;
        }
        vec![Event::Request(step)]
    }

    /// Returns requests that fail.
    fn odd(&mut self, namespace: &str, collection: &str) -> Vec<Event> {
        let step = match self.random.u8(..10) {
            0 => Step::post(format!("{collection}/x"), json!({})),
            1 => Step::put(collection.to_owned(), json!({})),
            2 => Step::get(format!("/api/v1/namespaces/{namespace}/nothings")),
            3 => Step::get(format!(
                "/apis/nothing.example.com/v1/namespaces/{namespace}/x"
            )),
            4 => Step::get(format!("{collection}/x/nothing")),
            5 => {
                let object = json!({"metadata": {"name": "q"}});
                let path = format!("/api/v1/namespaces/{namespace}-none/configmaps");
                Step::post(path, object)
            }
            6 => {
                let object = json!({"metadata": {"name": "q", "namespace": "default"}});
                let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                Step::post(path, object)
            }
            7 => {
                let object = json!({"metadata": {"name": "other"}});
                let path = format!("/api/v1/namespaces/{namespace}/configmaps/x");
                Step::put(path, object)
            }
            8 => Step::get(format!(
                "/api/v1/namespaces?labelSelector=run={}",
                self.prefix
            )),
            _ => Step::patch(format!("{collection}/x"), "application/json", json!({})),
        };
        vec![Event::Request(step)]
    }

    fn metadata(&mut self, kind: &Kind, namespace: &str, name: &str) -> (Value, bool) {
        let mut metadata = json!({"name": name});
        let mut rests = false;
        if self.chance(60) {
            let label = self.pick(&["1", "2", "", "-"]);
            metadata["labels"] = json!({"l": label});
            if self.chance(30) {
                metadata["labels"]["m"] = json!("x");
            }
        }
        if self.chance(20) {
            metadata["annotations"] =
                self.pick_json(&json!([{"a": "b"}, {}, {"A/b": "c"}, {"a b": "c"}]));
        }
        if self.chance(12) {
            let (f, g) = ("example.com/f", "example.com/g");
            metadata["finalizers"] = self.pick_json(&json!([[f], [], ["f"], [f, g]]));
        }
        // The real garbage collector knows a new kind after half a minute only.
        if self.chance(if kind.api.is_empty() { 1 } else { 10 }) {
            let (owner, uid) = self.pick(&[("x", "uid"), ("y", "uid"), ("z", "old-uid")]);
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{owner}");
            let mut reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": format!("{{{{{uid} {path}}}}}")});
            if self.chance(50) {
                reference["blockOwnerDeletion"] = json!(true);
            }
            if self.chance(10) {
                reference["uid"] = json!("");
            }
            metadata["ownerReferences"] = json!([reference]);
            rests = true;
        }
        if self.chance(4) {
            metadata["name"] = self.pick(&[json!("X_1"), json!(""), json!("a..b")]);
            self.generated += 1;
            let prefix = format!("g{}-", self.generated);
            metadata["generateName"] = self.pick(&[json!(prefix), Value::Null]);
        }
        if self.chance(3) {
            metadata["bogus"] = json!(1);
        }
        (metadata, rests)
    }

    fn object(&mut self, kind: &Kind, namespace: &str, name: &str) -> (Value, bool) {
        let (metadata, rests) = self.metadata(kind, namespace, name);
        let mut object = self.content(kind);
        object["metadata"] = metadata;
        if kind.api.is_empty() {
            object["apiVersion"] = json!(format!("{}/v1", self.group()));
            object["kind"] = json!("Thing");
        }
        if self.chance(5) {
            object["bogus"] = json!({"a": 1});
        }
        (object, rests)
    }

    /// Returns what objects of a kind have besides metadata.
    fn content(&mut self, kind: &Kind) -> Value {
        let contents = match kind.plural {
            "configmaps" => json!([
                {}, {"data": {"a": "1"}}, {"data": {"a": "2", "b": ""}}, {"data": {}}, {"data": {"a b": "1"}},
                {"data": {"a": "1"}, "immutable": true}, {"binaryData": {"c": "YQ=="}},
            ]),
            "secrets" => json!([
                {}, {"data": {"a": "YQ=="}}, {"stringData": {"a": "text"}}, {"data": {"a": "???"}},
                {"data": {"a": "YQ=="}, "stringData": {"a": "b", "c": "d"}},
                {"type": "example.com/t", "data": {"a": "YQ=="}},
                {"type": "Opaque", "immutable": true, "data": {"i": "YQ=="}},
            ]),
            "serviceaccounts" => json!([
                {}, {"automountServiceAccountToken": false}, {"imagePullSecrets": [{"name": "s"}]}, {"secrets": []},
            ]),
            "roles" => json!([
                {}, {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
                {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]},
            ]),
            "leases" => json!([
                {}, {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15}},
                {"spec": {"leaseDurationSeconds": 0}},
                {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1}},
            ]),
            _ => {
                let spec = self.spec();
                json!([{"spec": spec}, {"spec": spec, "status": {"phase": "P"}}, {}])
            }
        };
        self.pick_json(&contents)
    }

    fn spec(&mut self) -> Value {
        let mut spec = json!({"size": self.random.u8(1..5)});
        let lists = json!([
            [{}], [{"z": 1}, {"k": "v"}], [{"k": "v", "n": 2}], [{"k": "w"}], [{}, {}, {}], [{"k": null, "n": 1.5}],
        ]);
        for (percent, field, values) in [
            (30, "color", json!(["blue", "green", null])),
            (20, "name", json!(["abc", "ABC", "abcde", ""])),
            (20, "list", lists),
            (20, "free", json!([{"a": {"b": null}}, {}])),
            (20, "port", json!([80, "http", true])),
            (20, "map", json!([{"a": "b"}, {"a": 1}])),
            (20, "null", json!([null, "n"])),
            (15, "tags", json!([["a"], ["a", "b"], ["b", "b"], []])),
            (20, "flag", json!([true, "true", null])),
            (10, "unknown", json!([1, {"a": 1}])),
            (7, "size", json!([0, 9, "1", 1.5, null])),
        ] {
            if self.chance(percent) {
                spec[field] = self.pick_json(&values);
            }
        }
        spec
    }

    fn merge_patch(&mut self, kind: &Kind, path: &str) -> (Value, bool) {
        let mut rests = false;
        let (uid, old_version) = (
            format!("{{{{uid {path}}}}}"),
            format!("{{{{old-rv {path}}}}}"),
        );
        let body = match self.random.u8(..12) {
            0 => json!({"metadata": {"labels": {"l": "2", "m": null}}}),
            1 => json!({"metadata": {"annotations": {"a": "c"}}}),
            2 => json!({"metadata": {"finalizers": ["example.com/f"]}}),
            3 => {
                rests = true;
                json!({"metadata": {"finalizers": null}})
            }
            4 => json!({"metadata": {"resourceVersion": old_version, "labels": {"l": "3"}}}),
            5 => json!({"metadata": {"uid": uid, "annotations": {"u": "v"}}}),
            6 => json!({"metadata": {"labels": null, "creationTimestamp": null, "generation": 77}}),
            7 => json!({"metadata": {"name": "renamed"}}),
            8 => json!({"metadata": {"ownerReferences": null, "resourceVersion": null}}),
            _ => self.content(kind),
        };
        (body, rests)
    }

    fn json_patch(&mut self, kind: &Kind, path: &str) -> Value {
        let field = match kind.plural {
            "things" => "/spec/color",
            "leases" => "/spec/holderIdentity",
            _ => "/data/a",
        };
        self.pick_json(&json!([
            [{"op": "add", "path": field, "value": "blue"}],
            [{"op": "replace", "path": field, "value": "red"}],
            [{"op": "remove", "path": field}],
            [{"op": "test", "path": "/metadata/uid", "value": format!("{{{{uid {path}}}}}")},
                {"op": "add", "path": "/metadata/annotations", "value": {"j": "p"}}],
            [{"op": "test", "path": "/metadata/uid", "value": "x"}],
            [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/j"}],
            [{"op": "nothing", "path": field}],
            [{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels"}],
        ]))
    }

    fn deletion(&mut self, path: &str) -> Step {
        let mut options = json!({});
        if self.chance(40) {
            options["propagationPolicy"] =
                json!(self.pick(&["Background", "Foreground", "Orphan", "Nothing"]));
        }
        if self.chance(30) {
            let uid = self.pick(&["{{uid @}}", "{{uid @}}", "{{old-uid @}}"]);
            options["preconditions"]["uid"] = json!(uid.replace('@', path));
        }
        if self.chance(20) {
            let version = self.pick(&["{{rv @}}", "{{old-rv @}}"]);
            options["preconditions"]["resourceVersion"] = json!(version.replace('@', path));
        }
        if self.chance(8) {
            options["dryRun"] = json!(["All"]);
        }
        if self.chance(5) {
            options["orphanDependents"] = json!(self.random.bool());
        }
        let body = (!options.as_object().unwrap().is_empty()).then_some(options);
        Step {
            body,
            ..Step::delete(path)
        }
    }
}
