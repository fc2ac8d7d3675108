//! Definitions that come, change and go.

use serde_json::{Value, json};

use super::{DEFINITIONS, Event, Generator};
use crate::sides::{MERGE, Step};

impl Generator {
    pub(super) fn definition(&self) -> Value {
        let group = self.group();
        let spec = json!({
            "type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 5},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4, "minLength": 1},
                "list": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {
                    "k": {"type": "string", "default": "kk"}, "n": {"type": "number"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "null": {"type": "string", "nullable": true},
                "flag": {"type": "boolean"},
            },
        });
        let status = json!({"type": "object", "properties": {"phase": {"type": "string"}, "n": {"type": "integer"}}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}},
                     "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}},
                    {"name": "v2", "served": true, "storage": false,
                     "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}}}}},
                ],
            },
        })
    }

    /// Returns the definition with other versions, schemas and subresources, and whether it is served in `v1`.
    fn edited(&mut self) -> (Value, bool) {
        self.edition += 1;
        let mut definition = self.definition();
        let versions = definition["spec"]["versions"].as_array_mut().unwrap();
        let mut first = versions.remove(0);
        let mut second = versions.remove(0);
        let schema = "/schema/openAPIV3Schema/properties/spec/properties";
        {
            let properties = first.pointer_mut(schema).unwrap();
            if self.chance(40) {
                properties["list"]["x-kubernetes-list-type"] = json!("map");
                properties["list"]["x-kubernetes-list-map-keys"] = json!(["k"]);
            }
            properties["tags"] = json!({"type": "array", "items": {"type": "string"}});
            if self.chance(50) {
                properties["tags"]["x-kubernetes-list-type"] = json!("set");
            }
            if self.chance(40) {
                properties["map"]["x-kubernetes-map-type"] = json!("atomic");
            }
            if self.chance(40) {
                properties["color"]["default"] = json!("blue");
            }
            for (percent, gone) in [(30, "flag"), (30, "free"), (20, "color"), (20, "null")] {
                if self.chance(percent) {
                    properties.as_object_mut().unwrap().remove(gone);
                }
            }
        }
        if self.chance(30) {
            let scale =
                json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"});
            first["subresources"] = self.pick_json(&json!([{}, {"status": {}}, {"scale": scale}]));
        }
        if self.chance(40) {
            // Both have the same fields.
            second["schema"] = first["schema"].clone();
        }
        if self.chance(40) {
            second["subresources"] = json!({"status": {}});
            second
                .pointer_mut("/schema/openAPIV3Schema/properties")
                .unwrap()["status"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        if self.chance(20) {
            second.pointer_mut(schema).unwrap()["new"] = json!({"type": "string", "default": "n"});
        }
        for version in [&mut first, &mut second] {
            version.pointer_mut(schema).unwrap()["edition"] =
                json!({"type": "integer", "default": self.edition});
        }
        let stored = self.chance(30);
        first["storage"] = json!(!stored);
        second["storage"] = json!(stored);
        let served = self.chance(85);
        first["served"] = json!(served);
        second["served"] = json!(!served || self.chance(70));
        let mut versions = vec![first, second];
        if self.chance(30) {
            let mut third = versions[1].clone();
            third["name"] = json!("v3");
            third["storage"] = json!(false);
            versions.push(third);
        }
        if self.chance(20) {
            // Fails if objects may be stored in it.
            let gone = usize::from(versions[0]["storage"] == true);
            versions.remove(gone);
            versions[0]["served"] = json!(true);
        }
        let served = versions
            .iter()
            .any(|version| version["name"] == "v1" && version["served"] == true);
        definition["spec"]["versions"] = json!(versions);
        (definition, served)
    }

    /// Returns the events of a definition that changes, or goes and comes again.
    pub(super) fn define(&mut self) -> Vec<Event> {
        let path = self.definition_path();
        let mut events = Vec::new();
        if self.chance(25) {
            // What is held would hold the definition.
            for namespace in self.namespaces() {
                for version in ["v1", "v2"] {
                    for name in ["x", "y", "z"] {
                        let path = format!("{}/{name}", self.things(version, &namespace));
                        let free = json!({"metadata": {"finalizers": null}});
                        events.push(Event::Request(Step::patch(path, MERGE, free)));
                    }
                }
            }
            events.push(Event::Request(Step::delete(path)));
            events.push(Event::Rest);
            let namespace = self.namespaces()[0].clone();
            let things = self.things("v1", &namespace);
            events.push(Event::Request(Step::get(things)));
            let definition = self.definition();
            events.push(Event::Request(Step::post(DEFINITIONS, definition)));
            events.push(Event::Rest);
            return events;
        }
        let (mut definition, first) = self.edited();
        definition["metadata"]["resourceVersion"] = json!(format!("{{{{rv {path}}}}}"));
        events.push(Event::Request(Step::get(&path)));
        events.push(Event::Request(if self.chance(50) {
            Step::put(path, definition)
        } else {
            let spec = json!({"spec": definition["spec"]});
            Step::patch(path, MERGE, spec)
        }));
        let version = if first { "v1" } else { "v2" };
        let things = self.things(version, &self.namespaces()[0]);
        let thing = json!({
            "apiVersion": format!("{}/{version}", self.group()), "kind": "Thing",
            "metadata": {"name": "probe"}, "spec": {"size": 1},
        });
        let probe = Step::post(format!("{things}?dryRun=All"), thing);
        events.push(Event::Served(probe, self.edition));
        events.push(Event::Rest);
        events
    }
}
