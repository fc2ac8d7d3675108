//! Reconciles `{{kind}}`: applies a Deployment of the desired size, and reports in the status how
//! many of its Pods are ready.

mod desired;
mod status;

use std::sync::Arc;

use hybrid_operator::native::{self, Action, Context, NativeController};
use k8s_openapi::api::apps::v1::Deployment;

use crate::api::{{version}}::{{kind}};

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<{{kind}}> {
    native::controller::<{{kind}}>("{{lower}}")
        // A change of a Deployment triggers the object that it belongs to.
        .owns::<Deployment>()
        .reconcile(reconcile)
}

{{#if reconcile_wraps}}
async fn reconcile(
    object: Arc<{{kind}}>,
    context: Context<{{kind}}>,
) -> Result<Action, native::Error> {
{{else}}
async fn reconcile(object: Arc<{{kind}}>, context: Context<{{kind}}>) -> Result<Action, native::Error> {
{{/if}}
    // Sets the owner, and sends a request only if something differs.
    let deployment = context.apply(&desired::deployment(&object)).await?;
    let present = object.status.as_ref();
    let conditions = context.conditions(present.map(|status| status.conditions.as_slice()));
    let status = status::observed(&object, &deployment, conditions);
    context.patch_status(&status).await?;
    Ok(Action::done())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hybrid_operator::native::Fixture;
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use k8s_openapi::api::apps::v1::Deployment;

    use super::reconcile;
    use crate::api::{{version}}::{{types_with_spec}};

    #[tokio::test]
    async fn a_deployment_of_the_size_is_applied_and_the_status_says_that_it_is_not_ready() {
        let api = ScriptedApi::new();
        api.on(When::any(), Answer::echo(200));
        let mut object = {{kind}}::new("sample", {{kind}}Spec { size: 2 });
{{#if namespaced}}
        object.metadata.namespace = Some("default".to_owned());
{{else}}
        object.metadata.uid = Some("1".to_owned());
{{/if}}
        let context = Fixture::new(object, api.client("default"))
            .owning::<Deployment>([])
            .build();
        reconcile(Arc::clone(context.object()), context)
            .await
            .unwrap();
        let requests = api.requests();
        assert_eq!(requests[0].body.as_ref().unwrap()["spec"]["replicas"], 2);
        let status = &requests[1].body.as_ref().unwrap()["status"];
        assert_eq!(status["conditions"][0]["status"], "False");
    }
}
