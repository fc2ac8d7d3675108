//! Random objects. Values come from small pools, so that managers often agree, and lists often have one key twice.

use serde_json::{Map, Value, json};

/// A kind of which objects are written.
pub(super) struct Sample {
    /// Relative frequency with which the kind is drawn.
    pub(super) weight: usize,
    pub(super) api_versions: &'static [&'static str],
    pub(super) kind: &'static str,
    /// Returns the body of an object, without its name. It can be created if the second argument is true.
    pub(super) generate: fn(&mut Random, bool) -> Value,
    /// Returns a status, if the kind has one.
    pub(super) status: Option<Generate>,
}

impl Sample {
    const fn new(
        weight: usize,
        api_versions: &'static [&'static str],
        kind: &'static str,
        generate: fn(&mut Random, bool) -> Value,
    ) -> Self {
        Self {
            weight,
            api_versions,
            kind,
            generate,
            status: None,
        }
    }

    const fn with_status(self, status: Generate) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    pub(super) fn plural(&self) -> String {
        format!("{}s", self.kind.to_lowercase())
    }
}

/// The kinds that are drawn.
pub(super) const SAMPLES: &[Sample] = &[
    Sample::new(2, &["v1"], "ConfigMap", config_map),
    Sample::new(2, &["v1"], "Service", service).with_status(service_status),
    Sample::new(2, &["apps/v1"], "Deployment", deployment).with_status(deployment_status),
    Sample::new(3, &["v1"], "PodTemplate", pod_template),
    Sample::new(5, WIDGETS, "Widget", widget).with_status(widget_status),
];

const WIDGETS: &[&str] = &["fields.example.com/v1", "fields.example.com/v2"];

type Generate = fn(&mut Random) -> Value;

/// A source of random values.
pub(super) struct Random(pub(super) fastrand::Rng);

impl Random {
    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.0.u32(..100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.0.usize(..values.len())]
    }

    fn pick_json(&mut self, values: &Value) -> Value {
        self.pick(values.as_array().unwrap()).clone()
    }

    fn word(&mut self) -> Value {
        json!(self.pick(&["a", "b", "c"]))
    }

    fn words(&mut self) -> Value {
        (0..self.0.usize(..4)).map(|_| self.word()).collect()
    }

    /// Returns a map of words, sometimes empty, rarely with a null.
    fn map(&mut self) -> Value {
        let mut map = Map::new();
        for _ in 0..self.0.usize(..4) {
            let key = (*self.pick(&["k1", "k2", "k3", "a.b/c"])).to_owned();
            let value = if self.chance(4) {
                Value::Null
            } else {
                self.word()
            };
            map.insert(key, value);
        }
        Value::Object(map)
    }

    /// Returns items, mostly with different keys.
    fn list(&mut self, item: fn(&mut Self) -> Value, key: &str) -> Value {
        let mut items: Vec<Value> = Vec::new();
        for _ in 0..self.0.usize(..4) {
            let item = item(self);
            if self.chance(3) || items.iter().all(|other| other[key] != item[key]) {
                items.push(item);
            }
        }
        Value::Array(items)
    }

    /// Returns an object with some of these fields.
    fn some(&mut self, percent: u32, fields: &[(&str, Generate)]) -> Value {
        let mut object = Map::new();
        for (name, value) in fields {
            if self.chance(percent) {
                let value = if self.chance(2) {
                    Value::Null
                } else {
                    value(self)
                };
                object.insert((*name).to_owned(), value);
            }
        }
        Value::Object(object)
    }

    fn metadata(&mut self) -> Value {
        self.some(25, &[("labels", Self::map), ("annotations", Self::map)])
    }
}

fn config_map(random: &mut Random, _: bool) -> Value {
    let mut object = random.some(70, &[("data", Random::map)]);
    object["metadata"] = random.metadata();
    if random.chance(20) {
        object["binaryData"] = json!({"k9": random.pick(&["YQ==", "Yg=="])});
    }
    object
}

fn service_port(random: &mut Random) -> Value {
    let mut port = random.some(
        40,
        &[
            ("targetPort", |random| {
                random.pick_json(&json!([80, "http"]))
            }),
            ("appProtocol", Random::word),
        ],
    );
    port["port"] = json!(random.pick(&[80, 443, 8080]));
    if random.chance(60) {
        port["protocol"] = json!(random.pick(&["TCP", "UDP"]));
    }
    let protocol = port["protocol"].as_str().unwrap_or("TCP").to_lowercase();
    port["name"] = json!(format!("p{}-{protocol}", port["port"]));
    port
}

fn service(random: &mut Random, whole: bool) -> Value {
    let mut spec = random.some(
        30,
        &[
            ("selector", Random::map),
            ("sessionAffinity", |random| {
                json!(random.pick(&["None", "ClientIP"]))
            }),
            ("publishNotReadyAddresses", |random| {
                json!(random.chance(50))
            }),
            ("loadBalancerSourceRanges", |_| json!([])),
            (
                "sessionAffinityConfig",
                |random| json!({"clientIP": {"timeoutSeconds": random.pick(&[10, 20])}}),
            ),
        ],
    );
    if whole || random.chance(70) {
        let mut ports = random.list(service_port, "name");
        if whole && ports == json!([]) {
            ports = json!([{"name": "p80-tcp", "port": 80}]);
        }
        spec["ports"] = ports;
    }
    if !spec["sessionAffinityConfig"].is_null() {
        spec["sessionAffinity"] = json!("ClientIP");
    }
    json!({"metadata": random.metadata(), "spec": spec})
}

fn env(random: &mut Random) -> Value {
    let name = random.pick(&["A", "B", "C"]);
    if random.chance(70) {
        json!({"name": name, "value": random.word()})
    } else {
        json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    }
}

fn container_port(random: &mut Random) -> Value {
    let mut port = json!({"containerPort": random.pick(&[80, 443])});
    if random.chance(50) {
        port["protocol"] = json!(random.pick(&["TCP", "UDP"]));
    }
    if random.chance(30) {
        port["hostIP"] = json!(random.pick(&["10.0.0.1", "10.0.0.2"]));
    }
    port
}

fn volume_mount(random: &mut Random) -> Value {
    json!({"name": "data", "mountPath": random.pick(&["/a", "/b"]), "readOnly": random.chance(50)})
}

fn resources(random: &mut Random) -> Value {
    random.some(
        60,
        &[
            (
                "limits",
                |random| json!({"cpu": random.pick_json(&json!(["1", "1000m", 1]))}),
            ),
            (
                "requests",
                |random| json!({"memory": random.pick(&["1Gi", "2Gi"])}),
            ),
        ],
    )
}

fn container(random: &mut Random) -> Value {
    let mut container = random.some(
        25,
        &[
            ("command", Random::words),
            ("env", |random| random.list(env, "name")),
            ("ports", |random| random.list(container_port, "containerPort")),
            ("resources", resources),
            ("volumeMounts", |random| random.list(volume_mount, "mountPath")),
            ("securityContext", |random| {
                json!({"capabilities": {"drop": random.words()}, "runAsUser": random.pick(&[0, 1])})
            }),
            ("tty", |random| json!(random.chance(50))),
        ],
    );
    container["name"] = json!(random.pick(&["web", "proxy"]));
    container["image"] = random.word();
    container
}

fn volume(random: &mut Random) -> Value {
    let name = random.pick(&["data", "more"]);
    if random.chance(50) {
        json!({"name": name, "emptyDir": {}})
    } else {
        json!({"name": name, "configMap": {"name": random.word()}})
    }
}

/// Returns a template whose volume mounts have their volume.
fn template(random: &mut Random, whole: bool) -> Value {
    let mut spec = random.some(
        20,
        &[
            ("nodeSelector", Random::map),
            ("serviceAccountName", Random::word),
            ("hostNetwork", |_| json!(false)),
            ("terminationGracePeriodSeconds", |random| {
                json!(random.pick(&[30, 60]))
            }),
            ("tolerations", |random| json!([{"key": random.word(), "operator": "Exists"}])),
            ("imagePullSecrets", |random| {
                random.list(|random| json!({"name": random.word()}), "name")
            }),
            ("hostAliases", |random| {
                json!([{"ip": random.pick(&["10.0.0.1", "10.0.0.2"]), "hostnames": random.words()}])
            }),
        ],
    );
    if whole || random.chance(60) {
        let mut containers = random.list(container, "name");
        if whole && containers == json!([]) {
            containers = json!([{"name": "web", "image": "a"}]);
        }
        spec["containers"] = containers;
    }
    let mut volumes = random.list(volume, "name");
    let needs_data = spec["containers"].to_string().contains("mountPath");
    let has_data = |volumes: &Value| volumes.to_string().contains("\"name\":\"data\"");
    if (whole || needs_data) && !has_data(&volumes) {
        let data = json!({"name": "data", "emptyDir": {}});
        volumes.as_array_mut().unwrap().push(data);
    }
    if volumes != json!([]) || random.chance(10) {
        spec["volumes"] = volumes;
    }
    json!({"metadata": {}, "spec": spec})
}

fn pod_template(random: &mut Random, whole: bool) -> Value {
    let mut template = template(random, whole);
    template["metadata"] = random.metadata();
    json!({"metadata": random.metadata(), "template": template})
}

fn deployment(random: &mut Random, whole: bool) -> Value {
    let mut spec = random.some(
        25,
        &[
            ("replicas", |random| json!(random.pick(&[0, 1]))),
            ("paused", |random| json!(random.chance(50))),
            ("minReadySeconds", |random| json!(random.pick(&[0, 5]))),
            ("strategy", |random| {
                random.pick_json(&json!([
                    {"type": "Recreate", "rollingUpdate": null},
                    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%"}},
                    {"rollingUpdate": {"maxSurge": 1}},
                ]))
            }),
        ],
    );
    if whole || random.chance(50) {
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
        spec["template"] = template(random, whole);
        spec["template"]["metadata"] = json!({"labels": {"app": "x"}});
    }
    if whole {
        // Pods are not needed.
        spec["replicas"] = json!(0);
    }
    json!({"metadata": random.metadata(), "spec": spec})
}

fn widget_item(random: &mut Random) -> Value {
    let mut item = random.some(
        35,
        &[
            ("value", Random::word),
            ("tags", |random| random.set()),
            ("ports", |random| random.list(widget_port, "port")),
            ("nested", |random| json!({"map": random.map()})),
        ],
    );
    item["name"] = random.word();
    item
}

fn widget_place(random: &mut Random) -> Value {
    let mut item = random.some(70, &[("note", Random::word)]);
    item["key"] = random.word();
    item["zone"] = json!(random.pick(&["z1", "z2"]));
    item
}

fn widget_port(random: &mut Random) -> Value {
    let mut port = json!({"port": random.pick(&[80, 443, 8080])});
    if random.chance(50) {
        port["protocol"] = json!(random.pick(&["TCP", "UDP"]));
    }
    if random.chance(50) {
        port["note"] = random.word();
    }
    port
}

impl Random {
    /// Returns different words.
    fn set(&mut self) -> Value {
        let mut set: Vec<Value> = Vec::new();
        for _ in 0..self.0.usize(..4) {
            let word = self.word();
            if !set.contains(&word) || self.chance(3) {
                set.push(word);
            }
        }
        Value::Array(set)
    }

    fn numbers(&mut self) -> Value {
        let mut numbers: Vec<_> = [1, 2, 10].into_iter().filter(|_| self.0.bool()).collect();
        self.0.shuffle(&mut numbers);
        json!(numbers)
    }

    fn some_object(&mut self) -> Value {
        self.some(
            60,
            &[
                ("x", Self::word),
                ("y", Self::word),
                (
                    "z",
                    |random| json!({"deep": random.word(), "list": random.words()}),
                ),
            ],
        )
    }
}

fn widget(random: &mut Random, _: bool) -> Value {
    let spec = random.some(
        30,
        &[
            ("text", Random::word),
            ("number", |random| random.pick_json(&json!([1, 2, 1.5]))),
            ("flag", |random| json!(random.chance(50))),
            ("intOrString", |random| random.pick_json(&json!([1, "1"]))),
            ("atomicMap", Random::map),
            ("map", Random::map),
            ("object", Random::some_object),
            ("atomicObject", Random::some_object),
            ("list", Random::words),
            ("atomicList", Random::words),
            ("set", Random::set),
            ("numbers", Random::numbers),
            ("items", |random| random.list(widget_item, "name")),
            ("optionalKeys", |random| random.list(widget_place, "key")),
            ("free", |random| {
                random.pick_json(&json!([
                    {"a": 1, "b": {"c": [1, {"d": 2}]}}, {"a": 2, "b": {"c": [1], "e": {}}},
                    {"b": {"f": "x"}}, {},
                ]))
            }),
            ("freeWithFields", |random| {
                random.pick_json(&json!([{"known": "a", "other": {"x": 1}}, {"other": {"y": []}}]))
            }),
            ("embedded", |random| {
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "x", "labels": random.map()}, "data": random.map()})
            }),
            (
                "mapOfLists",
                |random| json!({"one": random.set(), "two": random.set()}),
            ),
            ("mapOfObjects", |random| json!({"k1": random.some_object()})),
        ],
    );
    let mut widget = json!({"metadata": random.metadata(), "spec": spec});
    if random.chance(20) {
        let (a, b) = ("example.com/a", "example.com/b");
        widget["metadata"]["finalizers"] = random.pick_json(&json!([[a], [b, a], []]));
    }
    if random.chance(25) {
        widget["status"] = widget_status(random);
    }
    widget
}

fn condition(random: &mut Random) -> Value {
    json!({"type": random.pick(&["Custom", "Other"]), "status": random.pick(&["True", "False"]),
        "reason": "Any", "message": random.word(), "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn conditions(random: &mut Random) -> Value {
    random.list(condition, "type")
}

fn service_status(random: &mut Random) -> Value {
    random.some(80, &[("conditions", conditions)])
}

fn deployment_status(random: &mut Random) -> Value {
    random.some(
        60,
        &[
            ("conditions", conditions),
            ("observedGeneration", |random| json!(random.pick(&[1, 2]))),
            ("collisionCount", |random| json!(random.pick(&[0, 1]))),
        ],
    )
}

fn widget_condition(random: &mut Random) -> Value {
    json!({"type": random.pick(&["Ready", "Stalled"]), "status": random.pick(&["True", "False"])})
}

fn widget_status(random: &mut Random) -> Value {
    random.some(
        60,
        &[
            ("phase", Random::word),
            ("conditions", |random| random.list(widget_condition, "type")),
        ],
    )
}

/// Returns the schema of a widget, with every type of list and map.
pub(super) fn widget_schema() -> Value {
    let text = json!({"type": "string"});
    let map = json!({"type": "object", "additionalProperties": text});
    let list = json!({"type": "array", "items": text});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
    let object = json!({"type": "object", "properties": {"x": text, "y": text,
        "z": {"type": "object", "properties": {"deep": text, "list": list}}}});
    let with = |schema: &Value, name: &str, value: &str| {
        let mut schema = schema.clone();
        schema[name] = json!(value);
        schema
    };
    let keyed = |keys: &[&str], properties: Value| {
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "required": [keys[0]], "properties": properties}})
    };
    let ports = keyed(
        &["port", "protocol"],
        json!({"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "note": text}),
    );
    let mut optional_keys = keyed(
        &["zone", "key"],
        json!({"key": text, "zone": text, "note": text}),
    );
    optional_keys["items"]["required"] = json!(["key", "zone"]);
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": text,
            "number": {"type": "number"},
            "flag": {"type": "boolean"},
            "intOrString": {"x-kubernetes-int-or-string": true},
            "atomicMap": with(&map, "x-kubernetes-map-type", "atomic"),
            "map": map,
            "object": object,
            "atomicObject": with(&object, "x-kubernetes-map-type", "atomic"),
            "list": list,
            "atomicList": with(&list, "x-kubernetes-list-type", "atomic"),
            "set": set,
            "numbers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
            "items": keyed(&["name"], json!({"name": text, "value": text, "tags": set, "ports": ports,
                "nested": {"type": "object", "properties": {"map": map}}})),
            "optionalKeys": optional_keys,
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "freeWithFields": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": text}},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true},
            "mapOfLists": {"type": "object", "additionalProperties": set},
            "mapOfObjects": {"type": "object", "additionalProperties": object},
        }},
        "status": {"type": "object", "properties": {"phase": text,
            "conditions": keyed(&["type"], json!({"type": text, "status": text}))}},
    }})
}
