//! Writes that show who owns which field: server-side apply, scales, and entries of managers.

use serde_json::{Value, json};

use super::{Event, Generator, KINDS, Kind, request, request_that_may_rest};
use crate::sides::{APPLY, JSON_PATCH, MERGE, Step};

impl Generator {
    /// Returns events that show who owns which field, or that change what is owned.
    pub(super) fn ownership(&mut self, kind: &Kind, namespace: &str, name: &str) -> Vec<Event> {
        let path = format!("{}/{name}", self.collection(kind, namespace));
        let other = path.replace("/v1/", "/v2/");
        match self.random.u8(..40) {
            0..22 => {
                let place = if kind.api.is_empty() && self.chance(20) {
                    &other
                } else {
                    &path
                };
                let (step, rests) = self.apply(kind, namespace, name, place);
                request_that_may_rest(step, rests)
            }
            22..26 => {
                let body = json!({"metadata": {"managedFields": self.entries(kind)}});
                let query = self.query();
                request(Step::patch(format!("{path}{query}"), MERGE, body))
            }
            26..31 => {
                let scale = format!("{}/x/scale", self.things("v1", namespace));
                let read = Step::get(scale.trim_end_matches("/scale"));
                vec![Event::Request(self.scale(&scale)), Event::Request(read)]
            }
            31..35 => {
                let thing = format!("{}/{name}", self.things("v1", namespace));
                let status = self.status();
                let step = if self.chance(50) {
                    let mut object =
                        json!({"metadata": {"name": name}, "status": status["status"]});
                    self.set_type(&KINDS[5], "v1", &mut object);
                    self.applied(&format!("{thing}/status"), object)
                } else {
                    let manager = self.pick(&["m1", "m2"]);
                    let uri = format!("{thing}/status?fieldManager={manager}");
                    Step::patch(uri, MERGE, status)
                };
                request(step)
            }
            _ => self.define(),
        }
    }

    /// Returns an apply of an object, and whether the servers must come to rest then.
    fn apply(&mut self, kind: &Kind, namespace: &str, name: &str, path: &str) -> (Step, bool) {
        let (mut object, rests) = self.object(kind, namespace, name);
        let version = if path.contains("/v2/") { "v2" } else { "v1" };
        self.set_type(kind, version, &mut object);
        if self.chance(8) {
            let version = self.pick(&["{{rv @}}", "{{old-rv @}}", "1", "0"]);
            object["metadata"]["resourceVersion"] = json!(version.replace('@', path));
        }
        if self.chance(5) {
            object["metadata"]["uid"] = json!(format!("{{{{uid {path}}}}}"));
        }
        if self.chance(3) {
            object["metadata"]["managedFields"] = self.pick_json(&json!([[], null]));
        }
        if self.chance(3) {
            let (field, value) = self.pick(&[
                ("apiVersion", json!("v9")),
                ("kind", json!("Other")),
                ("metadata", json!({})),
                ("spec", json!("text")),
                ("data", json!(5)),
            ]);
            object[field] = value;
        }
        (self.applied(path, object), rests)
    }

    pub(super) fn set_type(&self, kind: &Kind, version: &str, object: &mut Value) {
        let api_version = match kind.api {
            "" => format!("{}/{version}", self.group()),
            api => api
                .trim_start_matches("/apis/")
                .trim_start_matches("/api/")
                .to_owned(),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind.name);
    }

    fn applied(&mut self, path: &str, object: Value) -> Step {
        let manager = self.pick(&["m1", "m1", "m2", "m3"]);
        let force = self.pick(&["", "&force=true", "&force=false", "&force=true"]);
        let more = self.pick(&["", "", "", "", "", "&dryRun=All", "&fieldValidation=Strict"]);
        let uri = format!("{path}?fieldManager={manager}{force}{more}");
        Step::patch(uri, APPLY, object)
    }

    /// Returns entries of managers that a client writes itself.
    fn entries(&mut self, kind: &Kind) -> Value {
        let mut object = json!({});
        let version = self.pick(&["v1", "v1", "v2", "v9"]);
        let version = if kind.api.is_empty() { version } else { "v1" };
        self.set_type(kind, version, &mut object);
        let entry = json!({
            "manager": self.pick(&["m1", "m2", "compare"]),
            "operation": self.pick(&["Apply", "Update"]),
            "apiVersion": object["apiVersion"], "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsV1": self.pick_json(&json!([
                {"f:data": {".": {}, "f:a": {}}}, {"f:spec": {"f:size": {}, "f:list": {}}},
                {"f:metadata": {"f:labels": {"f:l": {}}}}, {},
            ])),
        });
        let mut wrong = entry.clone();
        let (field, value) = self.pick(&[
            ("operation", json!("Nothing")),
            ("fieldsType", json!("")),
            ("fieldsV1", json!({"x": {}})),
            ("apiVersion", json!("")),
            ("time", json!("yesterday")),
            ("bogus", json!(1)),
            ("manager", json!(1)),
        ]);
        wrong[field] = value;
        self.pick_json(&json!([[], [{}], null, [entry], [entry], [wrong]]))
    }

    /// Returns a write of a scale.
    fn scale(&mut self, path: &str) -> Step {
        let replicas = self.pick(&[0, 2, 3, 4, 7]);
        let name = path.rsplit('/').nth(1).unwrap();
        let mut scale = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name},
            "spec": {"replicas": replicas},
        });
        let manager = self.pick(&["m1", "m2", "scaler"]);
        let query = format!("{path}?fieldManager={manager}");
        match self.random.u8(..4) {
            0 => self.applied(path, scale),
            1 => {
                let version = self.pick(&["", "{{rv @}}", "{{old-rv @}}"]);
                if !version.is_empty() {
                    let version = version.replace('@', path.trim_end_matches("/scale"));
                    scale["metadata"]["resourceVersion"] = json!(version);
                }
                Step::put(query, scale)
            }
            2 => {
                let replace =
                    json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]);
                Step::patch(query, JSON_PATCH, replace)
            }
            _ => Step::patch(query, MERGE, json!({"spec": {"replicas": replicas}})),
        }
    }
}
