//! A separate namespace for every test.

use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::core::ApiResource;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde_json::json;

use crate::control_plane::{ClientError, ControlPlane, client_of};
use crate::wait::{self, WaitError};

/// Time limit for the namespace's service account to appear.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Time limit of the requests to delete, so that an unreachable cluster does not delay the test.
const DELETE_WITHIN: Duration = Duration::from_secs(5);

/// An error while creating or deleting a namespace.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum NamespaceError {
    /// The client cannot be created.
    #[error("cannot create a client for the test namespace")]
    Client(#[from] ClientError),
    /// The API server rejects the creation of the namespace.
    #[error("cannot create the namespace {prefix}-*")]
    Create {
        /// The prefix of the name.
        prefix: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The namespace did not get its service account, without which Pods are rejected.
    #[error("the namespace {name} is not ready")]
    NotReady {
        name: String,
        #[source]
        source: WaitError,
    },
    /// The API server rejects the deletion of the namespace.
    #[error("cannot delete the namespace {name}")]
    Delete {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The namespace still exists after its deletion.
    #[error("the namespace {name} still exists after its deletion")]
    StillExists {
        name: String,
        #[source]
        source: WaitError,
    },
}

/// A namespace for one test. Dropping it requests its deletion, without waiting.
pub struct TestNamespace {
    name: String,
    client: Client,
    /// Kinds of custom resources whose finalizers are removed.
    freed: Mutex<Vec<ApiResource>>,
    /// `None` once the namespace is deleted.
    kubeconfig: Option<PathBuf>,
}

impl fmt::Debug for TestNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestNamespace").field(&self.name).finish()
    }
}

impl TestNamespace {
    /// Creates a namespace `<prefix>-<random>` and returns once Pods can be created in it.
    ///
    /// # Errors
    ///
    /// Any [`NamespaceError`] except those of deletion.
    pub async fn create(plane: &ControlPlane, prefix: &str) -> Result<Self, NamespaceError> {
        let client = plane.client().await?;
        let wanted = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces = Api::<Namespace>::all(client.clone());
        let created = namespaces.create(&PostParams::default(), &wanted).await;
        let created = created.map_err(|source| NamespaceError::Create {
            prefix: prefix.to_owned(),
            source: Box::new(source),
        })?;
        let name = created.metadata.name.unwrap_or_default();
        let namespace = Self {
            name: name.clone(),
            client,
            freed: Mutex::default(),
            kubeconfig: Some(plane.kubeconfig_path().to_owned()),
        };
        let accounts = namespace.api::<ServiceAccount>();
        let what = "its service account";
        let check = |account: Option<&ServiceAccount>| account.is_some();
        let ready = wait::object(&accounts, "default", what, READY_WITHIN, check).await;
        ready.map_err(|source| NamespaceError::NotReady { name, source })?;
        Ok(namespace)
    }

    /// Returns the namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client that the namespace was created with, as `admin`.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the kind's API in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Returns the API of a kind in this namespace. Dropping the namespace removes the finalizers of custom resources of
    /// this kind, because the controller that would remove them ends with the test. A namespace that does not become
    /// empty slows down all other tests: the API server is asked for the objects of every kind again and again.
    pub fn objects(&self, kind: &ApiResource) -> Api<DynamicObject> {
        let is_built_in = !kind.group.contains('.') || kind.group.ends_with(".k8s.io");
        let mut freed = self.freed.lock();
        if !is_built_in && !freed.contains(kind) {
            freed.push(kind.clone());
        }
        Api::namespaced_with(self.client.clone(), &self.name, kind)
    }

    /// Deletes the namespace and waits until it is gone, which proves that no finalizer is left in
    /// it.
    ///
    /// # Errors
    ///
    /// [`NamespaceError::Delete`] or [`NamespaceError::StillExists`].
    pub async fn finish(mut self, within: Duration) -> Result<(), NamespaceError> {
        self.kubeconfig = None;
        let api = Api::<Namespace>::all(self.client.clone());
        let name = self.name.clone();
        if let Err(source) = api.delete(&name, &DeleteParams::default()).await {
            return Err(NamespaceError::Delete {
                name,
                source: Box::new(source),
            });
        }
        wait::gone(&api, &name, within)
            .await
            .map_err(|source| NamespaceError::StillExists { name, source })
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let Some(kubeconfig) = self.kubeconfig.take() else {
            return;
        };
        let name = std::mem::take(&mut self.name);
        let freed = std::mem::take(self.freed.get_mut());
        // Nothing can be awaited here, and the test's runtime may be shutting down.
        let deletion = thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let Ok(runtime) = builder.enable_all().build() else {
                return;
            };
            let request = async {
                let client = client_of(&kubeconfig, None).await.ok()?;
                let namespaces = Api::<Namespace>::all(client.clone());
                let params = DeleteParams::default();
                namespaces.delete(&name, &params).await.ok()?;
                for kind in &freed {
                    let objects = Api::namespaced_with(client.clone(), &name, kind);
                    // The kind may be gone.
                    drop(remove_finalizers(&objects).await);
                }
                Some(())
            };
            drop(runtime.block_on(async { tokio::time::timeout(DELETE_WITHIN, request).await }));
        });
        drop(deletion.join());
    }
}

/// Deletes the objects that have finalizers, and removes these.
async fn remove_finalizers(objects: &Api<DynamicObject>) -> kube::Result<()> {
    let found = objects.list_metadata(&ListParams::default()).await?;
    for object in found.items.into_iter().map(|object| object.metadata) {
        if let (Some(name), Some(_)) = (object.name, object.finalizers) {
            // None can be added to an object that is being deleted.
            drop(objects.delete(&name, &DeleteParams::default()).await);
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let params = PatchParams::default();
            drop(objects.patch_metadata(&name, &params, &patch).await);
        }
    }
    Ok(())
}
