//! Reconciles `VisitorsApp`: the database first, then the backend, then the frontend.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt;

use crate::api::{Database, VisitorsApp, VisitorsAppStatus};
use crate::objects::{self, Component, PASSWORD};

/// The order in which the components are created and changed.
const ORDER: [Component; 3] = [Component::Database, Component::Backend, Component::Frontend];

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<VisitorsApp> {
    native::controller::<VisitorsApp>("visitors")
        .defines_crd()
        .owns::<Secret>()
        .owns::<Service>()
        .owns::<Deployment>()
        .reconcile(reconcile)
}

async fn reconcile(app: Arc<VisitorsApp>, context: Context<VisitorsApp>) -> Result<Action, Error> {
    let mut status = app.status.clone().unwrap_or_default();
    let deployed = deploy(&app, &context, &mut status).await;
    let (ready, reason, message) = match &deployed {
        Ok(None) => (true, "AllAvailable", String::new()),
        Ok(Some(component)) => (
            false,
            match component {
                Component::Database => "DatabaseNotReady",
                Component::Backend => "BackendNotReady",
                Component::Frontend => "FrontendNotReady",
            },
            format!(
                "waiting for the Deployment {} to become available",
                component.name(&app)
            ),
        ),
        Err(error) => (false, "Failed", error.to_string()),
    };
    status.conditions = context
        .conditions(Some(&status.conditions))
        .set("Ready", ready, reason, message)
        .into_vec();
    context.patch_status(&status).await?;
    // Every change of a Deployment brings the next reconcile.
    deployed.map(|_| Action::done())
}

/// Applies the components in order, up to the first one that is not available, which is returned.
/// Those after it stay as they are.
async fn deploy(
    app: &VisitorsApp,
    context: &Context<VisitorsApp>,
    status: &mut VisitorsAppStatus,
) -> Result<Option<Component>, Error> {
    let secret_uid = secret(app, context).await?;
    for component in ORDER {
        context.apply(&objects::service(app, component)).await?;
        let wanted = objects::deployment(app, component, &secret_uid);
        let deployment = context.apply(&wanted).await?;
        let is_available = is_available(&deployment);
        match component {
            Component::Database if is_available => status.database = Database::Ready,
            Component::Database => status.database = Database::Starting,
            Component::Backend => status.backend_image = image(&deployment),
            Component::Frontend => status.frontend_image = image(&deployment),
        }
        if !is_available {
            return Ok(Some(component));
        }
    }
    Ok(None)
}

/// Makes the Secret with the password of the database exist; returns its uid. The password is chosen
/// when the Secret is created.
async fn secret(app: &VisitorsApp, context: &Context<VisitorsApp>) -> Result<String, Error> {
    let present = context.get::<Secret>(&objects::secret_name(app)).await?;
    let password = match present.and_then(|secret| secret.data.as_ref()?.get(PASSWORD).cloned()) {
        Some(password) => password,
        None => new_password()?,
    };
    let secret = context.apply(&objects::secret(app, password)).await?;
    Ok(secret.uid().unwrap_or_default())
}

fn new_password() -> Result<ByteString, Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(Error::other)?;
    Ok(ByteString(HEXLOWER.encode(&random).into_bytes()))
}

/// Reports whether all Pods of a Deployment are available, with its newest spec.
fn is_available(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let Some(status) = &deployment.status else {
        return false;
    };
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ];
    status.observed_generation >= deployment.metadata.generation
        && counts.iter().all(|count| *count == wanted)
}

fn image(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hybrid_operator::native::{Error, Fixture};
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Secret, Service};
    use serde_json::{Value, json};

    use super::{is_available, reconcile};
    use crate::api::{VisitorsApp, VisitorsAppSpec};

    const SECRET: &str = "/api/v1/namespaces/a/secrets/site-mysql";

    fn app() -> VisitorsApp {
        let spec = VisitorsAppSpec {
            size: 2,
            title: "Hello".to_owned(),
        };
        let mut app = VisitorsApp::new("site", spec);
        app.metadata.namespace = Some("a".to_owned());
        app
    }

    fn deployment(available: i32) -> Value {
        let counts = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": available});
        let containers = json!([{"name": "main", "image": "of-the-cluster"}]);
        let template = json!({"spec": {"containers": containers}});
        json!({
            "metadata": {"name": "x", "generation": 3},
            "spec": {"replicas": 2, "selector": {}, "template": template}, "status": counts,
        })
    }

    /// An API server on which the Deployments of these components are available, and all requests
    /// succeed.
    fn api(available: &[&str]) -> ScriptedApi {
        let api = ScriptedApi::new();
        api.on(When::get(SECRET), Answer::not_found());
        for component in available {
            let path = format!("/apis/apps/v1/namespaces/a/deployments/site-{component}");
            api.on(When::patch(&path), Answer::json(200, deployment(2)));
        }
        api.on(When::any(), Answer::echo(200));
        api
    }

    /// Reconciles with these Secrets in the cache.
    async fn run(api: &ScriptedApi, secrets: Vec<Secret>) -> Result<(), Error> {
        let context = Fixture::new(app(), api.client("a"))
            .owning::<Secret>(secrets)
            .owning::<Service>([])
            .owning::<Deployment>([])
            .build();
        let result = reconcile(Arc::clone(context.object()), context).await;
        result.map(drop)
    }

    /// Returns the names of the Deployments that were applied, and the status.
    fn applied(api: &ScriptedApi) -> (Vec<String>, Value) {
        let requests = api.requests();
        let deployments = requests.iter().filter(|r| r.kind() == "apply deployments");
        let names = deployments.filter_map(|r| r.name.clone()).collect();
        let status = requests.last().unwrap().json()["status"].clone();
        (names, status)
    }

    #[tokio::test]
    async fn each_component_waits_for_the_one_before_it() {
        let components = ["mysql", "backend", "frontend"];
        for (available, count, reason) in [
            (0, 1, "DatabaseNotReady"),
            (1, 2, "BackendNotReady"),
            (2, 3, "FrontendNotReady"),
            (3, 3, "AllAvailable"),
        ] {
            let api = api(&components[..available]);
            run(&api, Vec::new()).await.unwrap();
            let (applied, status) = applied(&api);
            let names = components[..count].iter();
            let names: Vec<String> = names.map(|name| format!("site-{name}")).collect();
            assert_eq!(applied, names);
            assert_eq!(status["conditions"][0]["reason"], reason);
            let database = if available == 0 { "Starting" } else { "Ready" };
            assert_eq!(status["database"], database);
        }
    }

    #[tokio::test]
    async fn the_status_has_the_images_of_the_cluster() {
        let api = api(&["mysql", "backend", "frontend"]);
        run(&api, Vec::new()).await.unwrap();
        let (_, status) = applied(&api);
        assert_eq!(status["backendImage"], "of-the-cluster");
        assert_eq!(status["frontendImage"], "of-the-cluster");
    }

    #[tokio::test]
    async fn a_password_is_chosen_once_and_then_kept() {
        let password = async |present: Vec<Secret>| {
            let api = api(&[]);
            run(&api, present).await.unwrap();
            let requests = api.requests();
            let secret = requests.iter().find(|r| r.kind() == "apply secrets");
            secret.unwrap().json()["data"]["password"].clone()
        };
        let (one, two) = (password(Vec::new()).await, password(Vec::new()).await);
        assert_ne!(one, two);
        let metadata = json!({"name": "site-mysql", "namespace": "a", "uid": "u"});
        let secret = json!({"metadata": metadata, "data": {"password": one}});
        let present = serde_json::from_value(secret).unwrap();
        assert_eq!(password(vec![present]).await, one);
    }

    #[tokio::test]
    async fn a_failure_is_reported_and_retried() {
        let api = ScriptedApi::new();
        api.on(When::get(SECRET), Answer::not_found());
        api.on(When::patch(SECRET), Answer::forbidden());
        api.on(When::any(), Answer::echo(200));
        let error = run(&api, Vec::new()).await.unwrap_err();
        assert!(error.is_forbidden(), "{error}");
        let (_, status) = applied(&api);
        assert_eq!(status["conditions"][0]["reason"], "Failed");
    }

    #[test]
    fn a_deployment_is_available_when_all_of_its_newest_pods_are() {
        let is = |value: Value| is_available(&serde_json::from_value(value).unwrap());
        assert!(is(deployment(2)));
        assert!(!is(deployment(1)));
        let mut changed = deployment(2);
        changed["metadata"]["generation"] = json!(4);
        assert!(!is(changed), "its controller has not seen the change");
    }
}
