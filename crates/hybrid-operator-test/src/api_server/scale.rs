//! The subresource `scale`.

use http::Method;
use serde_json::{Value, json};

use super::checks::parse_body;
use super::decode::to_version;
use super::object::{at, meta, meta_field, set_at};
use super::request::Call;
use super::server::{Place, Reply, Server};
use super::status::Failure;

impl Server {
    pub(super) fn get_scale(&self, place: &Place) -> Result<Reply, Failure> {
        let key = place.key();
        let object = self.store.get(&place.kind.resource, &key);
        let object = object.ok_or_else(|| Failure::not_found(place.kind.named(), &key.name))?;
        let object = to_version(&place.kind, &place.version, &object);
        check_replicas(place, &object)?;
        Ok(Reply::ok(scale(place, &object)))
    }

    pub(super) fn update_scale(&mut self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let key = place.key();
        let existing = self.store.get(&place.kind.resource, &key);
        let existing = existing.ok_or_else(|| Failure::not_found(place.kind.named(), &key.name))?;
        let object = to_version(&place.kind, &place.version, &existing);
        check_replicas(place, &object)?;
        let mut wanted = scale(place, &object);
        if call.method == Method::PUT {
            wanted = parse_body(call, &place.kind)?;
        } else if call
            .content_type
            .starts_with("application/merge-patch+json")
        {
            let patch: Value = serde_json::from_slice(&call.body)
                .map_err(|error| Failure::bad_request(error.to_string()))?;
            json_patch::merge(&mut wanted, &patch);
        } else {
            return Err(Failure::unmodelled(
                "patches of scales that are no merge patches",
            ));
        }
        let version = meta(&wanted, "resourceVersion");
        if !version.is_empty() && version != meta(&object, "resourceVersion") {
            return Err(Failure::modified(place.kind.named(), &key.name));
        }
        let replicas = wanted
            .pointer("/spec/replicas")
            .cloned()
            .unwrap_or_default();
        let mut object = (*object).clone();
        set_at(&mut object, &path(&place.version.scale.replicas), replicas);
        let updated = self.replace(call, place, &existing, object, None)?;
        Ok(Reply::ok(scale(place, &updated)))
    }
}

/// Fails for a custom resource that has no number of replicas.
fn check_replicas(place: &Place, object: &Value) -> Result<(), Failure> {
    let field = &place.version.scale.replicas;
    if !place.kind.rules.custom || at(object, &path(field)).is_some() {
        return Ok(());
    }
    let why = format!("the spec replicas field {field:?} does not exist");
    let message = format!("Internal error occurred: {why}");
    let details = json!({"causes": [{"message": why}]});
    Err(Failure::new(500, "InternalError", message).with_details(details))
}

/// Returns the fields of a path such as `.spec.replicas`.
fn path(text: &str) -> Vec<&str> {
    text.split('.').filter(|field| !field.is_empty()).collect()
}

fn scale(place: &Place, object: &Value) -> Value {
    let paths = &place.version.scale;
    let number = |text: &str| {
        at(object, &path(text))
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = meta_field(object, field) {
            set_at(&mut metadata, &[field], value.clone());
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = if place.kind.rules.custom {
        let text = paths
            .selector
            .as_deref()
            .and_then(|text| at(object, &path(text)));
        text.and_then(Value::as_str).map(ToOwned::to_owned)
    } else {
        match_labels(object)
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        set_at(&mut status, &["selector"], selector.into());
    }
    let replicas = number(&paths.replicas);
    let spec = if replicas == 0 && !place.kind.rules.custom {
        json!({})
    } else {
        json!({"replicas": replicas})
    };
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec,
        "status": status,
    })
}

fn match_labels(object: &Value) -> Option<String> {
    let labels = object.pointer("/spec/selector/matchLabels")?.as_object()?;
    let labels = labels
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    Some(labels.collect::<Vec<_>>().join(","))
}
