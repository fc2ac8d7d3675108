//! The controller of `examples/multi-secret` with kube-rs alone, for comparison. The types are those of the
//! example.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Selector, SelectorExt};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, predicates, reflector, watcher, WatchStreamExt};
use kube::{Api, Client, Resource, ResourceExt};
use multi_secret::api::{MultiSecret, MultiSecretStatus};
use serde_json::json;

const FINALIZER: &str = "multisecret.example.com/cleanup";
const OWNER_NAME: &str = "multisecret.example.com/name";
const OWNER_NAMESPACE: &str = "multisecret.example.com/namespace";

struct Shared {
    client: Client,
    recorder: Recorder,
    namespaces: Store<Namespace>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("Secret {0}/{1} already exists and belongs to somebody else")]
    Foreign(String, String),
    #[error("namespaceSelector: {0}")]
    Selector(String),
}

async fn run(client: Client) {
    let (reader, writer) = reflector::store();
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .touched_objects();
    let reporter = Reporter { controller: "multisecret".into(), instance: None };
    let shared = Arc::new(Shared {
        recorder: Recorder::new(client.clone(), reporter),
        namespaces: reader.clone(),
        client: client.clone(),
    });
    let (all, primary_writer) = reflector::store();
    let primaries = watcher(Api::<MultiSecret>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(primary_writer)
        .applied_objects()
        .predicate_filter(predicates::generation, Default::default());
    let secrets = Api::<Secret>::all(client.clone());
    let owned = watcher::Config::default().labels(OWNER_NAME);
    let selecting = all.clone();
    Controller::for_stream(primaries, all)
        // An owner reference cannot cross namespaces, so that labels name the owner.
        .watches(secrets, owned, |secret| {
            let name = secret.labels().get(OWNER_NAME)?;
            let namespace = secret.labels().get(OWNER_NAMESPACE)?;
            Some(ObjectRef::new(name).within(namespace))
        })
        // A namespace that is no longer selected concerns a MultiSecret, too.
        .watches_stream(namespaces, move |_| {
            let all = selecting.state();
            all.iter().map(|object| ObjectRef::from_obj(&**object)).collect::<Vec<_>>()
        })
        .shutdown_on_signal()
        .run(reconcile, error_policy, shared)
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(object: Arc<MultiSecret>, shared: Arc<Shared>) -> Result<Action, finalizer::Error<Error>> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<MultiSecret> = Api::namespaced(shared.client.clone(), &namespace);
    finalizer(&api, FINALIZER, object, |event| async {
        match event {
            finalizer::Event::Apply(object) => apply(&object, &shared).await,
            finalizer::Event::Cleanup(object) => clean_up(&object, &shared).await,
        }
    })
    .await
}

fn error_policy(_: Arc<MultiSecret>, error: &finalizer::Error<Error>, _: Arc<Shared>) -> Action {
    match error {
        finalizer::Error::ApplyFailed(Error::Selector(_)) => Action::await_change(),
        _ => Action::requeue(Duration::from_secs(5)),
    }
}

async fn apply(object: &MultiSecret, shared: &Shared) -> Result<Action, Error> {
    let selector = match Selector::try_from(object.spec.namespace_selector.clone()) {
        Ok(selector) => selector,
        Err(error) => {
            let error = Error::Selector(error.to_string());
            let event = Event {
                type_: EventType::Warning,
                reason: "InvalidSelector".into(),
                note: Some(error.to_string()),
                action: "Reconcile".into(),
                secondary: None,
            };
            shared.recorder.publish(&event, &object.object_ref(&())).await?;
            write_status(object, shared, 0, 0, "InvalidSelector", &error.to_string()).await?;
            return Err(error);
        }
    };
    let mut namespaces = shared.namespaces.state();
    namespaces.retain(|ns| {
        selector.matches(ns.labels()) && ns.meta().deletion_timestamp.is_none()
    });
    let mut failed = Vec::new();
    for namespace in &namespaces {
        if let Err(error) = apply_secret(object, shared, &namespace.name_any()).await {
            failed.push(error);
        }
    }
    prune(object, shared, |name| namespaces.iter().any(|ns| ns.name_any() == name)).await?;
    let (wanted, created) = (namespaces.len(), namespaces.len() - failed.len());
    let Some(first) = failed.into_iter().next() else {
        let message = format!("{wanted} namespaces have the Secret");
        write_status(object, shared, wanted, created, "AllCreated", &message).await?;
        return Ok(Action::await_change());
    };
    let message = format!("{} of {wanted} namespaces lack the Secret: {first}", wanted - created);
    write_status(object, shared, wanted, created, "NotCreated", &message).await?;
    Err(first)
}

/// Creates or changes the Secret of a namespace, and refuses to touch one of somebody else.
async fn apply_secret(object: &MultiSecret, shared: &Shared, namespace: &str) -> Result<(), Error> {
    let api: Api<Secret> = Api::namespaced(shared.client.clone(), namespace);
    let name = object.name_any();
    let labels = BTreeMap::from([
        (OWNER_NAME.to_owned(), name.clone()),
        (OWNER_NAMESPACE.to_owned(), object.namespace().unwrap_or_default()),
    ]);
    let mut data = object.spec.data.clone();
    for (key, text) in &object.spec.string_data {
        data.insert(key.clone(), ByteString(text.clone().into_bytes()));
    }
    let mut secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        type_: Some(object.spec.type_.clone()),
        data: Some(data),
        ..Secret::default()
    };
    let Some(present) = api.get_opt(&name).await? else {
        api.create(&PostParams::default(), &secret).await?;
        return Ok(());
    };
    if labels.iter().any(|(key, value)| present.labels().get(key) != Some(value)) {
        return Err(Error::Foreign(namespace.to_owned(), name));
    }
    if present.data == secret.data && present.type_ == secret.type_ {
        return Ok(());
    }
    secret.metadata.resource_version = present.resource_version();
    api.replace(&name, &PostParams::default(), &secret).await?;
    Ok(())
}

/// Deletes the Secrets of namespaces that are not kept, and returns how many were left.
async fn prune(object: &MultiSecret, shared: &Shared, keep: impl Fn(&str) -> bool) -> Result<usize, Error> {
    let api: Api<Secret> = Api::all(shared.client.clone());
    let namespace = object.namespace().unwrap_or_default();
    let labels = format!("{OWNER_NAME}={},{OWNER_NAMESPACE}={namespace}", object.name_any());
    let mut left = 0;
    for secret in api.list(&ListParams::default().labels(&labels)).await? {
        let namespace = secret.namespace().unwrap_or_default();
        if keep(&namespace) {
            continue;
        }
        left += 1;
        let api: Api<Secret> = Api::namespaced(shared.client.clone(), &namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: secret.uid(), ..Preconditions::default() }),
            ..DeleteParams::default()
        };
        match api.delete(&secret.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => drop(result?),
        }
    }
    Ok(left)
}

async fn clean_up(object: &MultiSecret, shared: &Shared) -> Result<Action, Error> {
    prune(object, shared, |_| false).await?;
    Ok(Action::await_change())
}

/// Writes the status if it differs.
async fn write_status(object: &MultiSecret, shared: &Shared, wanted: usize, created: usize, reason: &str, message: &str) -> Result<(), Error> {
    let present = object.status.clone().unwrap_or_default();
    let (wanted, created) = (wanted as i64, created as i64);
    let generation = object.metadata.generation;
    let unchanged = (present.wanted, present.created, present.observed_generation) == (wanted, created, generation);
    let value = if reason == "AllCreated" { "True" } else { "False" };
    let known = present.conditions.iter().find(|known| known.type_ == "Ready" && known.status == value);
    let now = || Time(jiff::Timestamp::now());
    let ready = Condition {
        type_: "Ready".into(),
        status: value.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: known.map_or_else(now, |known| known.last_transition_time.clone()),
    };
    let status = MultiSecretStatus {
        wanted,
        created,
        change_time: present.change_time.clone().filter(|_| unchanged).or_else(|| Some(now())),
        observed_generation: generation,
        conditions: vec![ready],
    };
    if status == present {
        return Ok(());
    }
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<MultiSecret> = Api::namespaced(shared.client.clone(), &namespace);
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&object.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

