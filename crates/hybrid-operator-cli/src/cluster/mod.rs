//! The cluster that the kubeconfig names, and the custom resources in it.

mod error;
mod kinds;
mod owned;
mod resource;
mod served;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use hybrid_operator::native::AnyObject;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind, TypeMeta};
use kube::discovery::{self, Scope};
use kube::{Client, Config, Resource};
use tokio::sync::OnceCell;

pub(crate) use error::{Attempt, explain, explain_watch};
pub(crate) use kinds::{Kind, Kinds, Listed};
pub(crate) use owned::{Found, Owned, owned_by, pods_of};
pub(crate) use resource::{Selected, condition, parse};
use served::ServedKind;

/// Time limit of opening a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Number of objects in a page of a list.
const PAGE: u32 = 500;

/// Flags that choose the cluster and the namespace.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Path of the kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, visible_alias = "kube-context")]
    context: Option<String>,
}

/// A cluster. Changes nothing unless a command does.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Namespace of the context.
    pub(crate) namespace: String,
    server: String,
    /// Source of the cluster: a context of a kubeconfig, or a service account.
    origin: String,
    kinds: Mutex<HashMap<GroupVersionKind, Served>>,
    served: OnceCell<Vec<ServedKind>>,
}

/// A kind that the cluster serves.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

impl Served {
    /// Returns the resource as RBAC names it.
    pub(crate) fn text(&self) -> String {
        if self.resource.group.is_empty() {
            self.resource.plural.clone()
        } else {
            format!("{}.{}", self.resource.plural, self.resource.group)
        }
    }
}

impl ClusterArgs {
    /// Returns whether a flag names a cluster.
    pub(crate) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Cluster) -> F,
    ) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.context("cannot start the runtime")?;
        runtime.block_on(async { work(self.connect().await?).await })
    }

    async fn connect(&self) -> anyhow::Result<Cluster> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let shown = path.display();
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot use the kubeconfig {shown}"))?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .with_context(|| format!("cannot use the kubeconfig {shown}"))?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .context("cannot use the kubeconfig; give another with --kubeconfig")?,
            None => Config::infer().await.context(
                "no cluster: give --kubeconfig or $KUBECONFIG, or run in a Pod with a service account",
            )?,
        };
        config.connect_timeout = Some(CONNECT);
        let (server, namespace) = (
            config.cluster_url.to_string(),
            config.default_namespace.clone(),
        );
        let client = Client::try_from(config).context("cannot create the client")?;
        Ok(Cluster {
            client,
            namespace,
            server,
            origin: self.origin(),
            kinds: Mutex::default(),
            served: OnceCell::new(),
        })
    }

    /// Returns what names the cluster.
    fn origin(&self) -> String {
        let (read, place) = match &self.kubeconfig {
            Some(path) => (Kubeconfig::read_from(path), path.display().to_string()),
            None => match std::env::var("KUBECONFIG") {
                Ok(path) if !path.is_empty() => (Kubeconfig::read(), path),
                _ => (Kubeconfig::read(), "~/.kube/config".to_owned()),
            },
        };
        let Ok(file) = read else {
            return "the service account of this Pod".to_owned();
        };
        let context = self.context.clone().or(file.current_context);
        format!("context {} of {place}", context.unwrap_or_default())
    }
}

impl Cluster {
    #[cfg(test)]
    pub(crate) fn of(client: Client) -> Self {
        Self {
            namespace: client.default_namespace().to_owned(),
            client,
            server: String::new(),
            origin: String::new(),
            kinds: Mutex::default(),
            served: OnceCell::new(),
        }
    }

    /// Says on standard error which cluster is about to be changed.
    pub(crate) fn announce(&self) {
        crate::print_message(&format!("cluster: {} ({})", self.server, self.origin));
    }

    /// Explains an error of a request.
    pub(crate) fn explain(&self, error: kube::Error, attempt: &Attempt) -> anyhow::Error {
        explain(error, attempt, &self.server)
    }

    /// Returns the resource of a kind.
    pub(crate) async fn served(&self, gvk: &GroupVersionKind) -> anyhow::Result<Served> {
        let known = |served: &Served| served.clone();
        if let Ok(kinds) = self.kinds.lock()
            && let Some(served) = kinds.get(gvk).map(known)
        {
            return Ok(served);
        }
        let found = discovery::pinned_kind(&self.client, gvk).await;
        let (resource, capabilities) = found.map_err(|error| {
            let missing = match &error {
                kube::Error::Api(status) => status.code == 404,
                kube::Error::Discovery(_) => true,
                _ => false,
            };
            if missing {
                let (group, version) = (&gvk.group, &gvk.version);
                anyhow::anyhow!(
                    "the cluster does not serve {} of {group}/{version}; install its \
                     CustomResourceDefinition (in a project: kubectl apply -k config/crd)",
                    gvk.kind
                )
            } else {
                self.explain(error, &Attempt::new("get", "the API resources"))
            }
        })?;
        let served = Served {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
        };
        if let Ok(mut kinds) = self.kinds.lock() {
            kinds.insert(gvk.clone(), served.clone());
        }
        Ok(served)
    }

    /// Returns the API of a kind in a namespace, or in all of them. A cluster-scoped kind has none.
    pub(crate) fn api<K>(&self, kind: &Served, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match namespace {
            Some(namespace) if kind.namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
            }
            _ => Api::all_with(self.client.clone(), &kind.resource),
        }
    }

    /// Reads an object; `None` if it does not exist. What is nested too deep in it is null.
    pub(crate) async fn get(
        &self,
        gvk: &GroupVersionKind,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let kind = self.served(gvk).await?;
        let api: Api<AnyObject> = self.api(&kind, namespace);
        let found = api.get_opt(name).await.map_err(|error| {
            self.explain(
                error,
                &Attempt::new("get", &kind.text()).on(namespace, Some(name)),
            )
        })?;
        Ok(found.map(|AnyObject(object)| object))
    }

    /// Lists objects, page by page. What is nested too deep in them is null.
    pub(crate) async fn list(
        &self,
        gvk: &GroupVersionKind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let kind = self.served(gvk).await?;
        let api: Api<AnyObject> = self.api(&kind, namespace);
        let mut params = ListParams::default().limit(PAGE);
        if let Some(selector) = selector {
            params = params.labels(selector);
        }
        let mut objects = Vec::new();
        loop {
            let page = api.list(&params).await.map_err(|error| {
                self.explain(
                    error,
                    &Attempt::new("list", &kind.text()).on(namespace, None),
                )
            })?;
            objects.extend(page.items.into_iter().map(|AnyObject(mut object)| {
                // Items of a list do not name their kind.
                object.types.get_or_insert_with(|| TypeMeta {
                    api_version: gvk.api_version(),
                    kind: gvk.kind.clone(),
                });
                object
            }));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(objects),
            }
        }
    }
}
