//! Objects whose names the server generates: each run creates them once and finds them again.

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use object_key::ObjectKey;
use serde_json::Value;

use super::apply::{
    Applied, Apply, WriteResponse, applied, bytes, gvk_of, incomplete, set_namespace,
};
use super::failure::{ApplyError, classify};
use super::locate::{locate, of_kind};
use super::ownership::{self, RUN_LABEL, placed};
use super::prepare::prepare;
use super::read::{self, ReadError, unserved};
use super::request::{self, Call};
use super::{ApiError, Claimant, Cluster, FIELD_MANAGER};

/// Creates an object whose name the server generates, or finds the one that an earlier attempt of
/// the same run created. The object carries the run in [`RUN_LABEL`].
pub async fn create_generated(
    cluster: &Cluster,
    request: Apply<'_>,
) -> Result<Applied, ApplyError> {
    let Apply {
        mut object,
        claimant,
        ..
    } = request;
    let key = ObjectKey::of(&object).ok_or_else(|| incomplete(&object, "apiVersion or kind"))?;
    let run = object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(RUN_LABEL));
    let Some(run) = run.and_then(Value::as_str).map(str::to_owned) else {
        return Err(incomplete(&object, "the label of its run"));
    };
    let kind = cluster.resolve(&gvk_of(&key)).await?;
    let key = placed(&key, kind.scope, claimant.release_namespace);
    set_namespace(&mut object, &key);
    let merged = prepare(&mut object);
    let prefix = object
        .pointer("/metadata/generateName")
        .and_then(Value::as_str);
    let prefix = prefix.unwrap_or_default().to_owned();
    let failed = |error| match unserved(cluster, &kind, &error) {
        Some(unserved) => unserved.into(),
        None => classify(&key, &object, error),
    };
    let selector = format!("{RUN_LABEL}={run}");
    let namespace = key.namespace.as_deref();
    let made = read::list_metadata(cluster, &kind, namespace, Some(&selector), None).await;
    let found = made.map_err(failed)?.into_iter().find(|live| {
        live.generate_name.as_deref() == Some(&prefix)
            && live.deletion_timestamp.is_none()
            && ownership::cr_of(live) == Some(claimant.primary.identity())
    });
    if let Some(live) = found {
        return Ok(applied(&key, live, false, Vec::new(), merged));
    }
    let uri = format!(
        "{}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict",
        request::path(&kind, namespace, None).map_err(ApiError::from)?
    );
    let target = request::target("create", &kind, namespace, None);
    let call = Call::with_body(
        Method::POST,
        uri,
        request::METADATA_ONLY,
        request::JSON,
        bytes(&object),
    );
    match request::call(cluster.client(), target, call).await {
        Ok(answer) => {
            let WriteResponse { metadata } = answer.decode()?;
            Ok(applied(&key, metadata, true, Vec::new(), merged))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Returns the objects that a run created for a custom resource, with their keys.
pub async fn list_generated(
    cluster: &Cluster,
    key: &ObjectKey,
    run: &str,
    claimant: &Claimant<'_>,
) -> Result<Vec<(ObjectKey, ObjectMeta)>, ReadError> {
    // Without the kind there are no objects.
    let Some(key) = locate(cluster, key, claimant.release_namespace).await? else {
        return Ok(Vec::new());
    };
    let selector = format!("{RUN_LABEL}={run}");
    let made = of_kind(cluster, &key, |kind| {
        let (namespace, selector) = (key.namespace.as_deref(), selector.as_str());
        Box::pin(async move {
            read::list_metadata(cluster, &kind, namespace, Some(selector), None).await
        })
    });
    let mut found = made.await?.unwrap_or_default();
    found.retain(|live| ownership::cr_of(live) == Some(claimant.primary.identity()));
    let with_key = |live: ObjectMeta| {
        let name = live.name.clone().unwrap_or_default();
        let key = ObjectKey {
            name,
            ..key.clone()
        };
        (key, live)
    };
    Ok(found.into_iter().map(with_key).collect())
}

/// Returns whether the server generates the name of an object.
pub fn is_generated(object: &Value) -> bool {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    text("/metadata/name").is_empty() && !text("/metadata/generateName").is_empty()
}
