//! The subresource `scale`.

use serde_json::{Value, json};

use super::decode::to_version;
use super::fields::scale::{merge, share};
use super::kinds;
use super::object::{at, meta, meta_field, remove_meta, set_at, set_meta};
use super::request::Call;
use super::server::{Place, Reply, Server};
use super::status::{Cause, Failure, Named};
use super::writing::Method;

/// The number that stands for none while a scale is written.
const NONE: i64 = i32::MIN as i64;

impl Server {
    pub(super) fn get_scale(&self, place: &Place) -> Result<Reply, Failure> {
        let object = to_version(&place.kind, &place.version, &self.find(place)?);
        check_replicas(place, &object)?;
        Ok(Reply::ok(scale(place, &object)))
    }

    pub(super) fn update_scale(&mut self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let kind = kinds::scale();
        let Some(version) = kind.versions.first().cloned() else {
            return Err(Failure::unmodelled("scales"));
        };
        let scales = Place {
            kind,
            version,
            namespace: place.namespace.clone(),
            name: place.name.clone(),
        };
        let method = Method::of(call, &scales)?;
        let existing = self.find(place)?;
        let mut object = (*to_version(&place.kind, &place.version, &existing)).clone();
        let replicas = path(&place.version.scale.replicas);
        let mut live = scale(place, &object);
        if place.kind.rules.custom && at(&object, &replicas).is_none() {
            set_at(&mut live, &["spec", "replicas"], NONE.into());
        }
        share(&object, &mut live, &place.kind.replicas)?;
        check_first_apply(place, &method, &live)?;
        let applies = matches!(method, Method::Apply(_));
        let new = self.written(call, &scales, method, Some(&live), Some("scale"))?;
        if applies {
            check_conversion(place, &live, &new)?;
        }
        let wanted = at(&new, &["spec", "replicas"]).and_then(Value::as_i64);
        let wanted = wanted.unwrap_or_default();
        check(place, &object, &new, wanted)?;
        let seen = meta(&new, "resourceVersion");
        if !seen.is_empty() || !place.kind.rules.custom {
            set_meta(&mut object, "resourceVersion", seen);
        }
        set_at(&mut object, &replicas, wanted.into());
        let (api_version, paths) = (&place.version.api_version, &place.kind.replicas);
        merge(&mut object, &new, api_version, paths)?;
        let updated = self.replace(call, place, &existing, object, None)?;
        Ok(Reply::ok(scale(place, &updated)))
    }
}

/// Fails for the first apply to the scale of a custom resource, which the server cannot convert.
fn check_first_apply(place: &Place, method: &Method, live: &Value) -> Result<(), Failure> {
    let Method::Apply(applied) = method else {
        return Ok(());
    };
    let is_same = |field: &str| applied.get(field) == live.get(field);
    let is_scale = is_same("apiVersion") && is_same("kind");
    if !place.kind.rules.custom || !is_scale || meta_field(live, "managedFields").is_some() {
        return Ok(());
    }
    Err(Failure::internal(
        "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1",
    ))
}

/// Fails for an apply that changes the scale of a custom resource, which the server cannot convert.
fn check_conversion(place: &Place, live: &Value, new: &Value) -> Result<(), Failure> {
    let content = |object: &Value| {
        let mut content = object.clone();
        remove_meta(&mut content, "managedFields");
        content
    };
    if !place.kind.rules.custom || content(live) == content(new) {
        return Ok(());
    }
    Err(Failure::internal(format!(
        "failed to convert new object (/{}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1",
        meta(new, "name")
    )))
}

/// Fails if a scale is invalid or names another object.
fn check(place: &Place, object: &Value, new: &Value, wanted: i64) -> Result<(), Failure> {
    if place.kind.rules.custom {
        if wanted == NONE {
            let field = &place.version.scale.replicas;
            return Err(Failure::bad_request(format!(
                "the spec replicas field {field:?} cannot be empty"
            )));
        }
        return Ok(());
    }
    let name = meta(object, "name");
    if wanted < 0 {
        let detail = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &wanted.into(), detail);
        let kind = kinds::scale();
        return Err(Failure::invalid(kind.named_kind(), name, &[cause]));
    }
    let (uid, own) = (meta(new, "uid"), meta(object, "uid"));
    if !uid.is_empty() && uid != own {
        let resource = Named {
            name: &format!("{}/scale", place.kind.resource.plural),
            ..place.kind.named()
        };
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
        return Err(Failure::conflict(resource, name, &why));
    }
    Ok(())
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
        let number = at(object, &path(text)).and_then(Value::as_i64);
        number.unwrap_or_default()
    };
    let mut metadata = json!({});
    for field in "name namespace uid resourceVersion creationTimestamp".split(' ') {
        if let Some(value) = meta_field(object, field) {
            set_at(&mut metadata, &[field], value.clone());
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = if place.kind.rules.custom {
        let path_of_selector = paths.selector.as_deref().map(path);
        let text = path_of_selector.and_then(|path| at(object, &path));
        text.and_then(Value::as_str).map(ToOwned::to_owned)
    } else {
        match_labels(object)
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        set_at(&mut status, &["selector"], selector.into());
    }
    let replicas = number(&paths.replicas);
    let mut spec = json!({});
    if replicas != 0 {
        set_at(&mut spec, &["replicas"], replicas.into());
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec,
        "status": status,
    })
}

fn match_labels(object: &Value) -> Option<String> {
    let labels = object.pointer("/spec/selector/matchLabels")?.as_object()?;
    let label = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
    let labels = labels.iter().filter_map(label);
    Some(labels.collect::<Vec<_>>().join(","))
}
