//! Reconciles `MultiSecret`: one Secret in every selected namespace.

use std::sync::Arc;

use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use crate::api::{MultiSecret, MultiSecretSpec, MultiSecretStatus};

/// Removes the Secrets of other namespaces, which the garbage collector does not know.
const FINALIZER: &str = "multisecret.example.com/cleanup";

/// Namespaces that a message names.
const NAMED: usize = 5;

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<MultiSecret> {
    native::controller::<MultiSecret>("multisecret")
        .defines_crd()
        .owns::<Secret>()
        .watches_for::<Namespace>(|namespace, object| {
            selector(&object.spec).is_ok_and(|selector| selector.matches(namespace.labels()))
        })
        .finalizer(FINALIZER, cleanup)
        .reconcile(reconcile)
}

async fn reconcile(
    object: Arc<MultiSecret>,
    context: Context<MultiSecret>,
) -> Result<Action, Error> {
    let selector = match selector(&object.spec) {
        Ok(selector) => selector,
        Err(message) => {
            let message = format!("namespaceSelector: {message}");
            write_status(&object, &context, 0, 0, "InvalidSelector", &message).await?;
            context
                .warning_event("InvalidSelector", message.as_str())
                .await;
            return Err(Error::terminal(message));
        }
    };
    let mut namespaces = context.cached::<Namespace>()?.list();
    // A namespace that is being deleted takes its Secret with it, and accepts no new one.
    namespaces.retain(|namespace| {
        selector.matches(namespace.labels()) && namespace.metadata.deletion_timestamp.is_none()
    });

    // A namespace that refuses its Secret does not keep the others from theirs.
    let mut failed = Vec::new();
    for namespace in &namespaces {
        let name = namespace.name_any();
        if let Err(error) = context.apply(&secret(&object, &name)).await {
            failed.push((name, error));
        }
    }
    let is_selected = |secret: &Secret| {
        let namespace = secret.namespace().unwrap_or_default();
        secret.name_any() == object.name_any()
            && namespaces
                .iter()
                .any(|selected| selected.name_any() == namespace)
    };
    context.prune::<Secret>(is_selected).await?;

    let (wanted, created) = (namespaces.len(), namespaces.len() - failed.len());
    let Some((_, first)) = failed.first() else {
        let message = format!("{wanted} namespaces have the Secret");
        write_status(&object, &context, wanted, created, "AllCreated", &message).await?;
        return Ok(Action::done());
    };
    let mut names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    names.truncate(NAMED);
    let message = format!(
        "{} of {wanted} namespaces lack the Secret (for example {}): {first}",
        failed.len(),
        names.join(", "),
    );
    write_status(&object, &context, wanted, created, "NotCreated", &message).await?;
    let (_, first) = failed.swap_remove(0);
    Err(first)
}

/// Deletes all Secrets, and waits until they are gone: each deletion calls this again.
async fn cleanup(_: Arc<MultiSecret>, context: Context<MultiSecret>) -> Result<Action, Error> {
    match context.prune::<Secret>(|_| false).await? {
        0 => Ok(Action::done()),
        _ => Ok(Action::after(std::time::Duration::from_secs(5))),
    }
}

fn selector(spec: &MultiSecretSpec) -> Result<Selector, String> {
    Selector::try_from(spec.namespace_selector.clone()).map_err(|error| error.to_string())
}

fn secret(object: &MultiSecret, namespace: &str) -> Secret {
    let spec = &object.spec;
    Secret {
        metadata: ObjectMeta {
            name: Some(object.name_any()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(spec.type_.clone()),
        data: Some(spec.data.clone()),
        string_data: Some(spec.string_data.clone()),
        ..Secret::default()
    }
}

async fn write_status(
    object: &MultiSecret,
    context: &Context<MultiSecret>,
    wanted: usize,
    created: usize,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let present = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation;
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let (wanted, created) = (count(wanted), count(created));
    let unchanged = (present.wanted, present.created, present.observed_generation)
        == (wanted, created, generation);
    let conditions = context
        .conditions(Some(&present.conditions))
        .set("Ready", reason == "AllCreated", reason, message)
        .into_vec();
    let status = MultiSecretStatus {
        wanted,
        created,
        change_time: present
            .change_time
            .filter(|_| unchanged)
            .or_else(|| Some(Time(now()))),
        observed_generation: generation,
        conditions,
    };
    context.patch_status(&status).await
}

/// The time in seconds, as Kubernetes writes it.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hybrid_operator::native::{Action, Error, Fixture};
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use k8s_openapi::api::core::v1::{Namespace, Secret};
    use serde_json::{Value, json};

    use super::{cleanup, reconcile};
    use crate::api::MultiSecret;

    const NAMESPACES: usize = 200;
    const SECRETS: &str = "/api/v1/namespaces/*/secrets/shared";

    fn object(selector: &Value) -> MultiSecret {
        serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "MultiSecret",
            "metadata": {"name": "shared", "namespace": "home", "uid": "u", "generation": 1},
            "spec": {"stringData": {"password": "secret"}, "namespaceSelector": selector},
        }))
        .unwrap()
    }

    fn namespaces() -> Vec<Namespace> {
        let namespace = |i: usize| {
            let labels = json!({"team": if i.is_multiple_of(2) { "a" } else { "b" }});
            json!({"metadata": {"name": format!("n{i:03}"), "labels": labels}})
        };
        let namespaces = (0..NAMESPACES).map(namespace);
        namespaces
            .map(|namespace| serde_json::from_value(namespace).unwrap())
            .collect()
    }

    fn api() -> ScriptedApi {
        let api = ScriptedApi::new();
        let status = "/apis/example.com/v1/namespaces/home/multisecrets/shared/status";
        api.on(When::patch(status), Answer::echo(200));
        api
    }

    /// Reconciles with all namespaces in the cache.
    async fn reconciled(api: &ScriptedApi, selector: &Value) -> Result<Action, Error> {
        let context = Fixture::new(object(selector), api.client("home"))
            .owning::<Secret>([])
            .caching(namespaces())
            .build();
        reconcile(Arc::clone(context.object()), context).await
    }

    #[tokio::test]
    async fn every_selected_namespace_gets_the_secret_with_one_request_each() {
        let api = api();
        api.on(When::patch(SECRETS), Answer::echo(201));
        let selector = json!({"matchLabels": {"team": "a"}});
        reconciled(&api, &selector).await.unwrap();
        let requests = api.requests();
        assert_eq!(requests.len(), NAMESPACES / 2 + 1);
        let status = requests.last().unwrap().body.clone().unwrap();
        assert_eq!(status["status"]["created"], NAMESPACES / 2);
        let data = &requests[0].body.as_ref().unwrap()["data"];
        assert_eq!(*data, json!({"password": "c2VjcmV0"}));
    }

    #[tokio::test]
    async fn a_namespace_that_refuses_its_secret_does_not_keep_the_others_from_theirs() {
        let api = api();
        let path = "/api/v1/namespaces/n000/secrets/shared";
        api.on(When::patch(path), Answer::forbidden());
        api.on(When::patch(SECRETS), Answer::echo(201));
        let error = reconciled(&api, &json!({})).await.unwrap_err();
        assert!(error.is_forbidden(), "{error}");
        let status = api.requests().last().unwrap().body.clone().unwrap();
        assert_eq!(status["status"]["created"], NAMESPACES - 1);
        let message = &status["status"]["conditions"][0]["message"];
        assert!(message.as_str().unwrap().contains("n000"), "{message}");
    }

    #[tokio::test]
    async fn an_invalid_selector_is_reported_and_not_retried() {
        let api = api();
        api.on(When::any(), Answer::echo(201));
        let selector =
            json!({"matchExpressions": [{"key": "team", "operator": "Is", "values": ["a"]}]});
        let error = reconciled(&api, &selector).await.unwrap_err();
        assert!(matches!(error, Error::Terminal(_)), "{error}");
        let status = api.requests()[0].body.clone().unwrap();
        let reason = &status["status"]["conditions"][0]["reason"];
        assert_eq!(*reason, "InvalidSelector");
    }

    #[tokio::test]
    async fn the_clean_up_is_done_when_no_secret_is_left() {
        let context = Fixture::new(object(&json!({})), api().client("home"))
            .owning::<Secret>([])
            .build();
        let action = cleanup(Arc::clone(context.object()), context)
            .await
            .unwrap();
        assert_eq!(action, Action::done());
    }
}
