//! Reconciles `EtcdCluster`: observes, decides on one step, executes it and reports.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::api::EtcdCluster;
use crate::members::Step;
use crate::membership::{Gateway, Membership, MembershipError};
use crate::observe::{Observed, observe};
use crate::pods::{self, InitialState};
use crate::report::{describe, report, report_error};

const NAME: &str = "etcdcluster";

/// Pause before the next look at a cluster that is not as it should be: etcd does not report
/// changes of its members.
const SOON: Duration = Duration::from_millis(500);
/// The same for a cluster that the operator cannot help.
const LATER: Duration = Duration::from_secs(5);
/// Period in which healthy clusters are checked. The readiness of Pods reports most failures at once.
const RESYNC: Duration = Duration::from_secs(15);

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<EtcdCluster> {
    controller_with(Gateway::default())
}

/// Builds the controller with another way to reach etcd.
pub fn controller_with<M: Membership>(membership: M) -> NativeController<EtcdCluster> {
    let membership = Arc::new(membership);
    native::controller::<EtcdCluster>(NAME)
        .defines_crd()
        .owns::<Pod>()
        .owns::<Service>()
        .resync(RESYNC)
        .backoff(SOON, Duration::from_mins(1))
        .reconcile(move |cluster, context| {
            let membership = Arc::clone(&membership);
            async move { reconcile(cluster, context, &*membership).await }
        })
}

async fn reconcile<M: Membership>(
    cluster: Arc<EtcdCluster>,
    context: Context<EtcdCluster>,
    membership: &M,
) -> Result<Action, Error> {
    let done = advance(&cluster, &context, membership).await;
    if let Err(error) = &done {
        report_error(&cluster, &context, error).await?;
    }
    done
}

/// Brings a cluster one step further.
async fn advance<M: Membership>(
    cluster: &EtcdCluster,
    context: &Context<EtcdCluster>,
    membership: &M,
) -> Result<Action, Error> {
    for service in pods::services(cluster) {
        context.apply(&service).await?;
    }
    let observed = observe(cluster, context, membership).await?;
    let step = crate::members::next_step(&observed.facts);
    let recorded = cluster.status.as_ref();
    if observed.facts.bootstrapped && !recorded.is_some_and(|status| status.bootstrapped) {
        // Before anything else, because a cluster that is not known to have data may be created anew.
        report(cluster, context, &observed, &step, None).await?;
    }
    let executor = Executor {
        cluster,
        context,
        membership,
        observed: &observed,
    };
    let problem = executor.execute(&step).await?;
    report(cluster, context, &observed, &step, problem.as_deref()).await?;
    Ok(match step {
        Step::Done => Action::done(),
        Step::Fail(_) => Action::after(LATER),
        _ => Action::after(SOON),
    })
}

/// Executes a step.
struct Executor<'a, M> {
    cluster: &'a EtcdCluster,
    context: &'a Context<EtcdCluster>,
    membership: &'a M,
    observed: &'a Observed,
}

impl<M: Membership> Executor<'_, M> {
    /// Executes a step; returns why etcd did not, if it did not.
    async fn execute(&self, step: &Step) -> Result<Option<String>, Error> {
        if matches!(step, Step::Done | Step::Wait(_) | Step::Fail(_)) {
            return Ok(None);
        }
        let done = match step {
            Step::Bootstrap => self.bootstrap().await,
            Step::Add => self.add().await,
            Step::Promote(id, name) => {
                let endpoint = self.endpoint(Some(name));
                self.membership
                    .promote(&endpoint, *id)
                    .await
                    .map_err(Failed::Etcd)
            }
            Step::Remove(id, name, _) => {
                let endpoint = self.endpoint(Some(name));
                self.membership
                    .remove(&endpoint, *id)
                    .await
                    .map_err(Failed::Etcd)
            }
            Step::DeletePod(name) => self.delete_pod(name).await,
            Step::SetImage(name) => self.set_image(name).await,
            Step::Done | Step::Wait(_) | Step::Fail(_) => Ok(()),
        };
        let (cluster, namespace) = (self.cluster.name_any(), self.cluster.namespace());
        let (reason, message) = describe(step, self.cluster.spec.size);
        match done {
            Ok(()) => {
                tracing::info!(
                    cluster,
                    namespace,
                    step = reason,
                    detail = message,
                    "executed a step"
                );
                self.context.normal_event(reason, message).await;
                Ok(None)
            }
            Err(Failed::Etcd(error)) => {
                let error = full(&error);
                tracing::debug!(
                    cluster,
                    namespace,
                    step = reason,
                    error,
                    "cannot execute a step yet"
                );
                Ok(Some(error))
            }
            Err(Failed::Kubernetes(error)) => Err(error),
        }
    }

    async fn bootstrap(&self) -> Result<(), Failed> {
        // The cached object may be older than the record that the cluster has data.
        let live = self
            .context
            .get::<EtcdCluster>(&self.cluster.name_any())
            .await?;
        let is_new = live.is_some_and(|live| {
            let bootstrapped = live
                .status
                .as_ref()
                .is_some_and(|status| status.bootstrapped);
            live.uid() == self.cluster.uid() && !bootstrapped
        });
        if !is_new {
            let message =
                "the EtcdCluster has changed since it was cached; the next attempt sees it";
            return Err(Failed::Kubernetes(Error::other(message)));
        }
        let name = pods::first_name(self.cluster);
        self.create_pod(&name, &[name.clone()].into(), InitialState::New)
            .await
    }

    /// Adds a member, then creates its Pod. A member whose Pod is not created, because the operator
    /// is killed in between, is removed later.
    async fn add(&self) -> Result<(), Failed> {
        let name = pods::new_name(self.cluster);
        let endpoint = self.endpoint(None);
        let peer_url = pods::peer_url(self.cluster, &name);
        let members = self.membership.add_learner(&endpoint, &peer_url).await;
        let members = members.map_err(Failed::Etcd)?;
        let names = members
            .iter()
            .map(|member| pods::member_of(&member.peer_url));
        let names = names.map(ToOwned::to_owned).collect();
        self.create_pod(&name, &names, InitialState::Existing).await
    }

    async fn create_pod(
        &self,
        name: &str,
        members: &BTreeSet<String>,
        state: InitialState,
    ) -> Result<(), Failed> {
        let image = self.observed.facts.image.clone();
        let pod = pods::pod(self.cluster, name, members, state, image);
        self.context.apply(&pod).await?;
        Ok(())
    }

    async fn delete_pod(&self, name: &str) -> Result<(), Failed> {
        if let Some(pod) = self.context.get::<Pod>(name).await? {
            self.context.delete(&*pod).await?;
        }
        Ok(())
    }

    /// Changes the image, and nothing else: the other fields of a Pod cannot be changed.
    async fn set_image(&self, name: &str) -> Result<(), Failed> {
        let Some(pod) = self.context.get::<Pod>(name).await? else {
            return Ok(());
        };
        let image = &self.observed.facts.image;
        let patch = json!({
            // Fails if it is another Pod of this name by now.
            "metadata": {"uid": pod.uid()},
            "spec": {"containers": [{"name": pods::CONTAINER, "image": image}]},
        });
        let namespace = self.cluster.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.context.client().clone(), &namespace);
        let params = PatchParams {
            field_manager: Some(NAME.to_owned()),
            ..PatchParams::default()
        };
        let patched = api.patch(name, &params, &Patch::Strategic(&patch)).await;
        patched.map_err(|error| Failed::Kubernetes(Error::other(error)))?;
        Ok(())
    }

    /// Returns the client URL of a voting member other than `except`, the leader's if possible.
    fn endpoint(&self, except: Option<&str>) -> String {
        let mut names = self.observed.answering.iter().map(String::as_str);
        let name = names.find(|name| Some(*name) != except).or(except);
        pods::client_url(self.cluster, name.unwrap_or_default())
    }
}

/// Reason why a step was not executed.
enum Failed {
    /// etcd refused, or did not answer: nothing unusual while members come and go.
    Etcd(MembershipError),
    /// Kubernetes did.
    Kubernetes(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Kubernetes(error)
    }
}

/// Returns an error with its causes.
fn full(error: &MembershipError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hybrid_operator::native::Fixture;
    use hybrid_operator_test::request::Recorded;
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::{Value, json};

    use super::reconcile;
    use crate::api::EtcdCluster;
    use crate::membership::Gateway;

    const STATUS: &str = "/apis/etcd.example.com/v1/namespaces/prod/etcdclusters/db/status";

    fn cluster(status: &Value) -> EtcdCluster {
        serde_json::from_value(json!({
            "apiVersion": "etcd.example.com/v1", "kind": "EtcdCluster",
            "metadata": {"name": "db", "namespace": "prod", "uid": "1b2c3d4e", "generation": 1},
            "spec": {"version": "3.6.8"}, "status": status,
        }))
        .unwrap()
    }

    const LIVE: &str = "/apis/etcd.example.com/v1/namespaces/prod/etcdclusters/db";

    /// Reconciles a cluster without Pods. Returns the condition `Ready`, and the error.
    async fn reconciled(api: &ScriptedApi, status: &Value) -> (Value, Option<String>) {
        let live = serde_json::to_value(cluster(status)).unwrap();
        api.on(When::get(LIVE), Answer::json(200, live));
        api.on(When::patch(STATUS), Answer::echo(200));
        api.on(When::any(), Answer::echo(201));
        let context = Fixture::new(cluster(status), api.client("prod"))
            .owning::<Pod>([])
            .owning::<Service>([])
            .build();
        let cluster = Arc::clone(context.object());
        let error = reconcile(cluster, context, &Gateway::default()).await.err();
        let mut requests = api.requests().into_iter();
        let status = requests.rfind(|request| request.path == STATUS);
        let body = status.unwrap().body.unwrap();
        let mut conditions = body["status"]["conditions"].as_array().unwrap().iter();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        (ready.unwrap().clone(), error.map(|error| error.to_string()))
    }

    fn asks_for_no_pod(api: &ScriptedApi) {
        let requests = api.requests();
        let mut paths = requests.iter().map(|request| &request.path);
        assert!(!paths.any(|path| path.contains("/pods")), "{requests:?}");
    }

    #[tokio::test]
    async fn the_first_member_starts_a_new_cluster_with_both_services() {
        let api = ScriptedApi::new();
        let (ready, error) = reconciled(&api, &Value::Null).await;
        assert_eq!(ready["reason"], "CreatingFirst");
        assert_eq!(error, None);
        let writes = api.requests().into_iter().filter(Recorded::is_write);
        let writes: Vec<Recorded> = writes.collect();
        let paths: Vec<&str> = writes.iter().map(|write| write.path.as_str()).collect();
        let expected = [
            "/api/v1/namespaces/prod/services/db",
            "/api/v1/namespaces/prod/services/db-client",
            "/api/v1/namespaces/prod/pods/db-1b2c3d",
        ];
        assert_eq!(paths[..3], expected);
        let pod = writes[2].json();
        let args = pod["spec"]["containers"][0]["args"].as_array().unwrap();
        let state = json!("--initial-cluster-state=new");
        assert!(args.contains(&state), "{args:?}");
    }

    #[tokio::test]
    async fn what_kubernetes_refuses_is_in_the_condition() {
        for path in ["pods/db-1b2c3d", "services/db-client"] {
            let api = ScriptedApi::new();
            let path = format!("/api/v1/namespaces/prod/{path}");
            api.on(When::patch(&path), Answer::forbidden());
            let (ready, error) = reconciled(&api, &Value::Null).await;
            assert_eq!(ready["status"], "False");
            assert_eq!(ready["reason"], "ReconcileFailed");
            assert_eq!(ready["message"].as_str(), error.as_deref(), "{path}");
        }
    }

    #[tokio::test]
    async fn an_outdated_cache_does_not_lead_to_a_second_first_member() {
        let api = ScriptedApi::new();
        let live = serde_json::to_value(cluster(&json!({"bootstrapped": true}))).unwrap();
        api.on(When::get(LIVE), Answer::json(200, live));
        let (ready, _) = reconciled(&api, &Value::Null).await;
        assert_eq!(ready["reason"], "ReconcileFailed");
        asks_for_no_pod(&api);
    }

    #[tokio::test]
    async fn a_cluster_with_data_is_not_created_again() {
        let api = ScriptedApi::new();
        let status = json!({"bootstrapped": true, "phase": "Running", "currentVersion": "3.6.8"});
        let (ready, error) = reconciled(&api, &status).await;
        assert_eq!(ready["reason"], "QuorumLost");
        assert_eq!(error, None);
        asks_for_no_pod(&api);
    }
}
