//! Applies the objects of a custom resource: server-side apply that never changes the object of
//! somebody else.
//!
//! ```text
//! cached and ours --apply, uid------------> 200 applied
//! not cached -------apply, version "1"----> 201 created
//!                                      +--> 409 exists --GET--> foreign: error, nothing changed
//!                                                          +--> ours: apply, uid
//! ```
//!
//! Server-side apply alone would merge into an object of the same name, whoever owns it. A uid or a
//! resource version in the body makes it an update or a creation of exactly one object.

use std::sync::Arc;

use data_encoding::BASE64;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::ApiResource;
use kube_objects::request::{self, Call};
use kube_objects::{
    ApiError, ApiKind, Claimant, ForeignOwner, OperatorId, Ownership, Primary, Scope, Target,
    ownership,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::error::Error;
use crate::controller::{Key, ObjectScope, TypedObject};

/// Annotation with a digest of what was applied last: an object with the digest of what is wanted
/// lacks no field that is to be removed.
pub(super) const APPLIED_ANNOTATION: &str = "helm.sdk.operatorframework.io/applied";

/// Digits of the digest.
const DIGITS: usize = 16;
/// Requests for one object before an apply gives up: others keep changing it.
const ROUNDS: usize = 3;

/// Connection and identity with which objects are applied.
#[derive(Clone)]
pub(super) struct Applier {
    pub(super) client: Client,
    pub(super) operator: OperatorId,
    /// Field manager of the controller.
    pub(super) manager: String,
}

/// An object that is ready to be applied.
pub(super) struct Wanted {
    pub(super) key: Key,
    body: Value,
}

/// The kind of a type, without asking the API server.
pub(super) fn kind_of<O: TypedObject>() -> ApiKind {
    ApiKind::of_type(
        ApiResource::erase::<O>(&()),
        if O::Scope::NAMESPACED {
            Scope::Namespaced
        } else {
            Scope::Cluster
        },
    )
}

impl Applier {
    /// Completes an object: its type, its namespace, its owner and the digest of all that.
    pub(super) fn wanted<O: TypedObject>(
        &self,
        object: &O,
        primary: &Primary,
    ) -> Result<Wanted, Error> {
        let kind = kind_of::<O>();
        let mut body = serde_json::to_value(object)?;
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(kind.resource.api_version));
            fields.insert("kind".to_owned(), json!(kind.resource.kind));
            // A status is written through its own endpoint.
            fields.remove("status");
            if O::kind(&()) == "Secret" && O::group(&()).is_empty() {
                encode_string_data(fields);
            }
        }
        let namespace = primary.namespace.as_deref().unwrap_or_default();
        ownership::mark_owned(&mut body, primary, &self.operator, namespace, kind.scope);
        let digest = digest(&body);
        let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else {
            let kind = kind.resource.kind;
            return Err(Error::NoName { kind });
        };
        for field in [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
        ] {
            metadata.remove(field);
        }
        let annotations = metadata.entry("annotations").or_insert(Value::Null);
        if !annotations.is_object() {
            *annotations = Value::Object(Map::new());
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(APPLIED_ANNOTATION.to_owned(), digest.into());
        }
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        let Some(name) = text("name").filter(|name| !name.is_empty()) else {
            let kind = kind.resource.kind;
            return Err(Error::NoName { kind });
        };
        let key = Key::new(text("namespace").filter(|text| !text.is_empty()), name);
        Ok(Wanted { key, body })
    }

    /// Applies an object. `present` is the cached object of this name.
    ///
    /// Sends no request if `present` has everything that is wanted, and nothing of ours beside it.
    pub(super) async fn apply<O: TypedObject>(
        &self,
        wanted: Wanted,
        present: Option<Arc<O>>,
        primary: &Primary,
    ) -> Result<Arc<O>, Error> {
        let mut uid = None;
        if let Some(present) = present
            && judge::<O>(&wanted.key, present.meta(), primary).is_ok()
        {
            if is_current(&wanted.body, &*present)? {
                return Ok(present);
            }
            uid.clone_from(&present.meta().uid);
        }
        for _ in 0..ROUNDS {
            let answer = match &uid {
                Some(uid) => self.send::<O>(&wanted, "uid", uid).await,
                // 1 is never the version of an object, so that this can only create.
                None => self.send::<O>(&wanted, "resourceVersion", "1").await,
            };
            match answer {
                Err(ApiError::Conflict { .. }) => {}
                answer => return Ok(Arc::new(answer?)),
            }
            uid = match self.metadata::<O>(&wanted.key).await? {
                Some(live) => {
                    judge::<O>(&wanted.key, &live, primary)?;
                    live.uid
                }
                None => None,
            };
        }
        Err(Error::Contended {
            kind: O::kind(&()).into_owned(),
            name: wanted.key.to_string(),
        })
    }

    /// Deletes exactly this object; one that is gone already is no error.
    pub(super) async fn delete<O: TypedObject>(&self, object: &O) -> Result<(), Error> {
        let kind = kind_of::<O>();
        let key = Key::of(object);
        let exactly = json!({"uid": object.meta().uid});
        let body = json!({"preconditions": exactly, "propagationPolicy": "Background"});
        let (namespace, name) = (key.namespace.as_deref(), Some(&*key.name));
        let call = Call::with_body(
            Method::DELETE,
            request::path(&kind, namespace, name)?,
            request::JSON,
            request::JSON,
            body.to_string().into_bytes(),
        );
        match request::call(&self.client, target("delete", &kind, &key), call).await {
            // A conflict means that there is another object of this name by now.
            Ok(_) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads an object from the API server.
    pub(super) async fn read<O: TypedObject>(&self, key: &Key) -> Result<Option<O>, Error> {
        self.get(&kind_of::<O>(), key, request::JSON).await
    }

    async fn metadata<O: TypedObject>(&self, key: &Key) -> Result<Option<ObjectMeta>, Error> {
        #[derive(Deserialize)]
        struct Metadata {
            metadata: ObjectMeta,
        }
        let kind = kind_of::<O>();
        let found: Option<Metadata> = self.get(&kind, key, request::METADATA_ONLY).await?;
        Ok(found.map(|found| found.metadata))
    }

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        kind: &ApiKind,
        key: &Key,
        accept: &'static str,
    ) -> Result<Option<T>, Error> {
        let path = request::path(kind, key.namespace.as_deref(), Some(&key.name))?;
        let answer = request::call(
            &self.client,
            target("get", kind, key),
            Call::get(path, accept),
        );
        match answer.await {
            Ok(answer) => Ok(Some(answer.decode()?)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an apply that only concerns the object with this uid or version.
    async fn send<O: TypedObject>(
        &self,
        wanted: &Wanted,
        field: &str,
        value: &str,
    ) -> Result<O, ApiError> {
        let kind = kind_of::<O>();
        let mut body = wanted.body.clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(field.to_owned(), value.into());
        }
        let key = &wanted.key;
        let path = request::path(&kind, key.namespace.as_deref(), Some(&key.name))?;
        let manager = request::query_value(&self.manager);
        let call = Call::with_body(
            Method::PATCH,
            format!("{path}?fieldManager={manager}&force=true&fieldValidation=Strict"),
            request::JSON,
            request::APPLY,
            body.to_string().into_bytes(),
        );
        let answer = request::call(&self.client, target("patch", &kind, key), call).await?;
        answer.decode()
    }
}

fn target(verb: &'static str, kind: &ApiKind, key: &Key) -> Target {
    request::target(verb, kind, key.namespace.as_deref(), Some(&key.name))
}

/// Fails if an existing object belongs to somebody else, or is being deleted.
fn judge<O: TypedObject>(key: &Key, live: &ObjectMeta, primary: &Primary) -> Result<(), Error> {
    let (kind, name) = (O::kind(&()).into_owned(), key.to_string());
    if live.deletion_timestamp.is_some() {
        return Err(Error::Terminating { kind, name });
    }
    match owner(live, primary) {
        None => Ok(()),
        Some(owner) => Err(Error::Foreign { kind, name, owner }),
    }
}

/// Returns to whom an object belongs, or `None` if it belongs to the custom resource.
pub(super) fn owner(live: &ObjectMeta, primary: &Primary) -> Option<ForeignOwner> {
    let claimant = Claimant {
        primary,
        release_name: "",
        release_namespace: "",
    };
    match ownership::ownership(live, &claimant) {
        Ownership::Ours => None,
        Ownership::Foreign(owner) => Some(owner),
        Ownership::Release => Some(ForeignOwner::Nobody),
    }
}

/// Reports whether a cached object has everything that is wanted, and was last applied with the
/// same content, so that no field has to be removed.
fn is_current<O: TypedObject>(wanted: &Value, present: &O) -> Result<bool, Error> {
    let applied = |object: &Value| {
        let annotations = object.pointer("/metadata/annotations")?;
        annotations.get(APPLIED_ANNOTATION).cloned()
    };
    let mut present = serde_json::to_value(present)?;
    if applied(&present) != applied(wanted) {
        return Ok(false);
    }
    if let Some(fields) = present.as_object_mut() {
        // A typed object does not always hold these.
        for field in ["apiVersion", "kind"] {
            if let Some(value) = wanted.get(field) {
                fields.insert(field.to_owned(), value.clone());
            }
        }
    }
    Ok(contains(&present, wanted))
}

/// Reports whether `present` has everything that `wanted` has; it may have more.
fn contains(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| match present.get(key) {
                Some(present) => contains(present, value),
                // The server leaves out what is empty.
                None => is_empty(value),
            })
        }
        (Value::Array(present), Value::Array(wanted)) => contains_named(present, wanted)
            .unwrap_or_else(|| {
                let mut pairs = present.iter().zip(wanted);
                present.len() == wanted.len() && pairs.all(|(p, w)| contains(p, w))
            }),
        _ => present == wanted,
    }
}

/// Reports whether each named entry of a list is among those present. Others may have added more.
fn contains_named(present: &[Value], wanted: &[Value]) -> Option<bool> {
    let name = |value: &Value| value.get("name").or_else(|| value.get("uid")).cloned();
    let mut all = true;
    for wanted in wanted {
        let wanted_name = Some(name(wanted)?);
        let mut present = present
            .iter()
            .filter(|present| name(present) == wanted_name);
        all &= present
            .next()
            .is_some_and(|present| contains(present, wanted));
    }
    Some(all)
}

/// Moves the `stringData` of a Secret to its `data`, as the server does.
fn encode_string_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    let data = secret.entry("data").or_insert(Value::Null);
    if !data.is_object() {
        *data = Value::Object(Map::new());
    }
    if let Some(data) = data.as_object_mut() {
        data.extend(texts.into_iter().map(|(key, text)| {
            let text = text.as_str().unwrap_or_default();
            (key, BASE64.encode(text.as_bytes()).into())
        }));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

fn digest(body: &Value) -> String {
    let mut hex = data_encoding::HEXLOWER.encode(&Sha256::digest(body.to_string()));
    hex.truncate(DIGITS);
    hex
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::GroupVersionKind;
    use serde_json::{Value, json};

    use super::*;

    fn primary() -> Primary {
        Primary {
            gvk: GroupVersionKind::gvk("example.com", "v1", "Widget"),
            namespace: Some("a".to_owned()),
            name: "one".to_owned(),
            uid: "uid-of-one".to_owned(),
            component: None,
        }
    }

    fn applier(api: &hybrid_operator_test::ScriptedApi) -> Applier {
        Applier {
            client: api.client("a"),
            operator: OperatorId::new("operator"),
            manager: "widget".to_owned(),
        }
    }

    fn map(data: &Value) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": data})).unwrap()
    }

    /// The object as the server would hold it after it was applied.
    fn live(applier: &Applier, data: &Value) -> Value {
        let mut live = applier.wanted(&map(data), &primary()).unwrap().body;
        live["metadata"]["uid"] = json!("uid-of-m");
        live["metadata"]["resourceVersion"] = json!("7");
        live
    }

    #[test]
    fn what_the_server_adds_or_leaves_out_is_no_difference() {
        let wanted =
            json!({"spec": {"replicas": 2, "containers": [{"name": "a"}], "x": null, "y": {}}});
        for (present, expected) in [
            (
                json!({"spec": {"replicas": 2, "containers": [{"name": "a", "pull": "Always"}]}, "status": {}}),
                true,
            ),
            (
                json!({"spec": {"replicas": 3, "containers": [{"name": "a"}]}}),
                false,
            ),
            (
                json!({"spec": {"replicas": 2, "containers": [{"name": "sidecar"}, {"name": "a"}]}}),
                true,
            ),
            (
                json!({"spec": {"replicas": 2, "containers": [{"name": "b"}]}}),
                false,
            ),
            (json!({"spec": {"containers": [{"name": "a"}]}}), false),
        ] {
            assert_eq!(contains(&present, &wanted), expected, "{present}");
        }
    }

    #[tokio::test]
    async fn an_unchanged_object_costs_no_request_and_a_dropped_field_is_removed() {
        use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
        let api = ScriptedApi::new();
        api.on(
            When::patch("/api/v1/namespaces/a/configmaps/m"),
            Answer::echo(200),
        );
        let applier = applier(&api);
        let present: ConfigMap =
            serde_json::from_value(live(&applier, &json!({"k": "v", "l": "w"}))).unwrap();
        let present = Arc::new(present);
        let apply = async |data: Value| {
            let wanted = applier.wanted(&map(&data), &primary()).unwrap();
            applier
                .apply(wanted, Some(Arc::clone(&present)), &primary())
                .await
                .unwrap()
        };
        apply(json!({"k": "v", "l": "w"})).await;
        assert!(api.requests().is_empty());
        apply(json!({"k": "v"})).await;
        let sent = api.requests();
        assert_eq!(sent.len(), 1);
        let body = sent[0].body.as_ref().unwrap();
        assert_eq!(body["metadata"]["uid"], "uid-of-m");
        assert_eq!(body["data"], json!({"k": "v"}));
    }

    #[tokio::test]
    async fn an_object_of_somebody_else_is_not_changed() {
        use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
        let other = json!({"name": "m", "namespace": "a", "uid": "u", "labels": {"helm.sdk.operatorframework.io/cr": "other"}});
        let nobody = json!({"name": "m", "namespace": "a", "uid": "u"});
        for metadata in [other, nobody] {
            let api = ScriptedApi::new();
            let path = "/api/v1/namespaces/a/configmaps/m";
            api.on(When::patch(path), Answer::conflict());
            api.on(
                When::get(path),
                Answer::json(200, json!({"metadata": metadata})),
            );
            let applier = applier(&api);
            let wanted = applier.wanted(&map(&json!({})), &primary()).unwrap();
            let error = applier.apply::<ConfigMap>(wanted, None, &primary()).await;
            assert!(matches!(error, Err(Error::Foreign { .. })), "{error:?}");
            // The first request could only create.
            let first = api.requests()[0].body.clone().unwrap();
            assert_eq!(first["metadata"]["resourceVersion"], "1");
        }
    }

    #[test]
    fn objects_in_other_namespaces_name_their_owner_by_annotations() {
        let api = hybrid_operator_test::ScriptedApi::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let mut object = map(&json!({}));
        object.metadata.namespace = Some("b".to_owned());
        let wanted = applier(&api).wanted(&object, &primary()).unwrap();
        let metadata: ObjectMeta = serde_json::from_value(wanted.body["metadata"].clone()).unwrap();
        assert_eq!(metadata.owner_references, None);
        assert_eq!(owner(&metadata, &primary()), None);
        assert_eq!(wanted.key.to_string(), "b/m");
    }
}
