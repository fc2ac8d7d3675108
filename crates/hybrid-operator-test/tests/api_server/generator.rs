//! Generates requests from a seed.

mod definitions;
mod ownership;
mod permissions;

use fastrand::Rng;
use http::Method;
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

const KINDS: [Kind; 6] = [
    Kind {
        api: "/api/v1",
        plural: "configmaps",
        name: "ConfigMap",
    },
    Kind {
        api: "/api/v1",
        plural: "secrets",
        name: "Secret",
    },
    Kind {
        api: "/api/v1",
        plural: "serviceaccounts",
        name: "ServiceAccount",
    },
    Kind {
        api: "/apis/rbac.authorization.k8s.io/v1",
        plural: "roles",
        name: "Role",
    },
    Kind {
        api: "/apis/coordination.k8s.io/v1",
        plural: "leases",
        name: "Lease",
    },
    Kind {
        api: "",
        plural: "things",
        name: "Thing",
    },
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

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
            for kind in &KINDS {
                paths.push(self.collection(kind, &namespace));
            }
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
        for namespace in self.namespaces() {
            let things = self.things("v2", &namespace);
            paths.push(things);
        }
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
            events.push(Event::Request(Step::new(
                Method::POST,
                "/api/v1/namespaces",
                Some(namespace),
            )));
        }
        events.push(Event::Request(Step::new(
            Method::POST,
            DEFINITIONS,
            Some(self.definition()),
        )));
        events.push(Event::Rest);
        events
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())].clone()
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
        let request = |step: Step| vec![Event::Request(step)];
        let settled = |step: Step| vec![Event::Request(step), Event::Rest];
        match self.random.u8(..144) {
            140.. => self.permission(&namespace),
            100..140 => self.ownership(kind, &namespace, name),
            0..20 => {
                let (object, rests) = self.object(kind, &namespace, name);
                let query = self.query();
                let step = Step::new(Method::POST, format!("{collection}{query}"), Some(object));
                if rests { settled(step) } else { request(step) }
            }
            20..28 => request(Step::new(Method::GET, path, None)),
            28..38 => self.list(&collection),
            38..50 => {
                let (mut object, rests) = self.object(kind, &namespace, name);
                let version = self.pick(&[
                    "{{rv @}}",
                    "{{rv @}}",
                    "{{rv @}}",
                    "{{old-rv @}}",
                    "",
                    "1",
                    "x",
                ]);
                if !version.is_empty() {
                    object["metadata"]["resourceVersion"] = json!(version.replace('@', &path));
                }
                if self.chance(20) {
                    let uid = self.pick(&["{{uid @}}", "{{old-uid @}}"]);
                    object["metadata"]["uid"] = json!(uid.replace('@', &path));
                }
                let query = self.query();
                let step = Step::new(Method::PUT, format!("{path}{query}"), Some(object));
                if rests { settled(step) } else { request(step) }
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
                if rests { settled(step) } else { request(step) }
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
                    Event::Request(Step::new(Method::GET, format!("{path}/scale"), None)),
                ]
            }
            93..95 => {
                let mut step = Step::new(
                    Method::GET,
                    if kind.api.is_empty() { other } else { path },
                    None,
                );
                if self.chance(50) {
                    step.accept = METADATA;
                }
                request(step)
            }
            95..97 => {
                let selector = self.pick(&["?labelSelector=l=1", "?labelSelector=l!=1", ""]);
                settled(Step::new(
                    Method::DELETE,
                    format!("{collection}{selector}"),
                    None,
                ))
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
        let create = Step::new(
            Method::POST,
            "/api/v1/namespaces",
            Some(json!({"metadata": {"name": name}})),
        );
        let map = json!({"metadata": {"name": "m"}});
        let held = json!({"metadata": {"name": "h", "finalizers": ["example.com/f"]}});
        let steps = match self.random.u8(..6) {
            0 => vec![create],
            1 => vec![
                create,
                Step::new(Method::POST, maps, Some(held)),
                Step::new(Method::DELETE, path, None),
            ],
            2 => vec![create, Step::new(Method::POST, maps, Some(map))],
            3 => vec![Step::new(Method::DELETE, path, None)],
            4 => vec![Step::patch(
                format!("{maps}/h"),
                MERGE,
                json!({"metadata": {"finalizers": null}}),
            )],
            _ => vec![Step::patch(
                path,
                MERGE,
                json!({"metadata": {"labels": {"n": "s"}}, "status": {"phase": "x"}}),
            )],
        };
        steps
            .into_iter()
            .flat_map(|step| [Event::Request(step), Event::Rest])
            .collect()
    }

    /// Returns a patch of a status, which also tries to change other fields.
    fn status(&mut self) -> Value {
        let status = self.pick(&[
            json!({"phase": "A"}),
            json!({"phase": "B", "n": 3}),
            json!({"phase": 1}),
            Value::Null,
        ]);
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
        let mut step = Step::new(Method::GET, format!("{collection}{query}"), None);
        if self.chance(20) {
            step.accept = METADATA_LIST;
        }
        vec![Event::Request(step)]
    }

    /// Returns requests that fail.
    fn odd(&mut self, namespace: &str, collection: &str) -> Vec<Event> {
        let step = match self.random.u8(..10) {
            0 => Step::new(Method::POST, format!("{collection}/x"), Some(json!({}))),
            1 => Step::new(Method::PUT, collection.to_owned(), Some(json!({}))),
            2 => Step::new(
                Method::GET,
                format!("/api/v1/namespaces/{namespace}/nothings"),
                None,
            ),
            3 => Step::new(
                Method::GET,
                format!("/apis/nothing.example.com/v1/namespaces/{namespace}/x"),
                None,
            ),
            4 => Step::new(Method::GET, format!("{collection}/x/nothing"), None),
            5 => {
                let object = json!({"metadata": {"name": "q"}});
                let path = format!("/api/v1/namespaces/{namespace}-none/configmaps");
                Step::new(Method::POST, path, Some(object))
            }
            6 => {
                let object = json!({"metadata": {"name": "q", "namespace": "default"}});
                let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                Step::new(Method::POST, path, Some(object))
            }
            7 => {
                let object = json!({"metadata": {"name": "other"}});
                let path = format!("/api/v1/namespaces/{namespace}/configmaps/x");
                Step::new(Method::PUT, path, Some(object))
            }
            8 => Step::new(
                Method::GET,
                format!("/api/v1/namespaces?labelSelector=run={}", self.prefix),
                None,
            ),
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
            metadata["annotations"] = self.pick(&[
                json!({"a": "b"}),
                json!({}),
                json!({"A/b": "c"}),
                json!({"a b": "c"}),
            ]);
        }
        if self.chance(12) {
            metadata["finalizers"] = self.pick(&[
                json!(["example.com/f"]),
                json!([]),
                json!(["f"]),
                json!(["example.com/f", "example.com/g"]),
            ]);
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
        match kind.plural {
            "configmaps" => self.pick(&[
                json!({}),
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "2", "b": ""}}),
                json!({"data": {}}),
                json!({"data": {"a b": "1"}}),
                json!({"data": {"a": "1"}, "immutable": true}),
                json!({"binaryData": {"c": "YQ=="}}),
            ]),
            "secrets" => self.pick(&[
                json!({}),
                json!({"data": {"a": "YQ=="}}),
                json!({"stringData": {"a": "text"}}),
                json!({"data": {"a": "???"}}),
                json!({"data": {"a": "YQ=="}, "stringData": {"a": "b", "c": "d"}}),
                json!({"type": "example.com/t", "data": {"a": "YQ=="}}),
                json!({"type": "Opaque", "immutable": true, "data": {"i": "YQ=="}}),
            ]),
            "serviceaccounts" => self.pick(&[
                json!({}),
                json!({"automountServiceAccountToken": false}),
                json!({"imagePullSecrets": [{"name": "s"}]}),
                json!({"secrets": []}),
            ]),
            "roles" => self.pick(&[
                json!({}),
                json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
                json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}),
            ]),
            "leases" => self.pick(&[
                json!({}),
                json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15}}),
                json!({"spec": {"leaseDurationSeconds": 0}}),
                json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1}}),
            ]),
            _ => {
                let spec = self.spec();
                self.pick(&[json!({"spec": spec}), json!({"spec": spec, "status": {"phase": "P"}}), json!({})])
            }
        }
    }

    fn spec(&mut self) -> Value {
        let mut spec = json!({"size": self.random.u8(1..5)});
        for (percent, field, values) in [
            (
                30,
                "color",
                vec![json!("blue"), json!("green"), Value::Null],
            ),
            (
                20,
                "name",
                vec![json!("abc"), json!("ABC"), json!("abcde"), json!("")],
            ),
            (
                20,
                "list",
                vec![
                    json!([{}]),
                    json!([{"z": 1}, {"k": "v"}]),
                    json!([{"k": "v", "n": 2}]),
                    json!([{"k": "w"}]),
                    json!([{}, {}, {}]),
                    json!([{"k": null, "n": 1.5}]),
                ],
            ),
            (20, "free", vec![json!({"a": {"b": null}}), json!({})]),
            (20, "port", vec![json!(80), json!("http"), json!(true)]),
            (20, "map", vec![json!({"a": "b"}), json!({"a": 1})]),
            (20, "null", vec![Value::Null, json!("n")]),
            (
                15,
                "tags",
                vec![
                    json!(["a"]),
                    json!(["a", "b"]),
                    json!(["b", "b"]),
                    json!([]),
                ],
            ),
            (20, "flag", vec![json!(true), json!("true"), Value::Null]),
            (10, "unknown", vec![json!(1), json!({"a": 1})]),
            (
                7,
                "size",
                vec![json!(0), json!(9), json!("1"), json!(1.5), Value::Null],
            ),
        ] {
            if self.chance(percent) {
                spec[field] = self.pick(&values);
            }
        }
        spec
    }

    fn merge_patch(&mut self, kind: &Kind, path: &str) -> (Value, bool) {
        let mut rests = false;
        let body = match self.random.u8(..12) {
            0 => json!({"metadata": {"labels": {"l": "2", "m": null}}}),
            1 => json!({"metadata": {"annotations": {"a": "c"}}}),
            2 => json!({"metadata": {"finalizers": ["example.com/f"]}}),
            3 => {
                rests = true;
                json!({"metadata": {"finalizers": null}})
            }
            4 => {
                json!({"metadata": {"resourceVersion": format!("{{{{old-rv {path}}}}}"), "labels": {"l": "3"}}})
            }
            5 => {
                json!({"metadata": {"uid": format!("{{{{uid {path}}}}}"), "annotations": {"u": "v"}}})
            }
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
        self.pick(&[
            json!([{"op": "add", "path": field, "value": "blue"}]),
            json!([{"op": "replace", "path": field, "value": "red"}]),
            json!([{"op": "remove", "path": field}]),
            json!([{"op": "test", "path": "/metadata/uid", "value": format!("{{{{uid {path}}}}}")},
                   {"op": "add", "path": "/metadata/annotations", "value": {"j": "p"}}]),
            json!([{"op": "test", "path": "/metadata/uid", "value": "x"}]),
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/j"}]),
            json!([{"op": "nothing", "path": field}]),
            json!([{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels"}]),
        ])
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
        Step::new(Method::DELETE, path, body)
    }
}
