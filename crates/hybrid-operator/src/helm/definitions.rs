//! The definitions of a chart's `crds/`: installed before anything else of the release, and
//! awaited. They are never deleted: with a definition go all custom resources of its kind.

use std::time::Duration;

use helm_core::chart::CrdFile;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};

use super::HelmReconciler;
use super::observe::Facts;
use crate::cluster::{ApiError, FIELD_MANAGER, Target};
use crate::controller::ReconcileError;
use crate::watches::CrdPolicy;

/// How long a definition may take to be served.
const ESTABLISHED: Duration = Duration::from_secs(30);

/// Why a definition is not there.
#[derive(Debug, thiserror::Error)]
enum DefinitionError {
    #[error("{path} holds no CustomResourceDefinition that can be read")]
    Unreadable { path: String },
    #[error("{path} cannot be installed")]
    Api { path: String, source: ApiError },
    #[error("{path}: {name} is not served after {ESTABLISHED:?}")]
    Late { path: String, name: String },
}

impl HelmReconciler {
    /// Installs what is missing, or, with `createReplace`, makes all of them the chart's. As in
    /// Helm, an upgrade does not create definitions unless it replaces them.
    pub(super) async fn install_definitions(
        &self,
        facts: &Facts,
        files: &[CrdFile],
        upgrade: bool,
    ) -> Result<(), ReconcileError> {
        let replace = match self.watch.crds {
            CrdPolicy::Skip => return Ok(()),
            CrdPolicy::Create if upgrade => return Ok(()),
            CrdPolicy::Create => false,
            CrdPolicy::CreateReplace => true,
        };
        for file in files {
            let path = file.path();
            let unreadable = || DefinitionError::Unreadable {
                path: path.to_owned(),
            };
            let objects: Vec<serde_json::Value> =
                go_yaml::documents(file.file().data()).map_err(|_| unreadable())?;
            for object in objects.into_iter().filter(|object| !object.is_null()) {
                let object: DynamicObject =
                    serde_json::from_value(object).map_err(|_| unreadable())?;
                self.install_definition(facts, path, object, replace)
                    .await?;
            }
        }
        Ok(())
    }

    async fn install_definition(
        &self,
        facts: &Facts,
        path: &str,
        object: DynamicObject,
        replace: bool,
    ) -> Result<(), DefinitionError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let client = facts.cluster.client().clone();
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definition = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &definition);
        let answer = if replace {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&name, &params, &Patch::Apply(&object))
                .await
                .map(drop)
        } else {
            match api.create(&PostParams::default(), &object).await {
                // As in Helm, one that exists stays as it is.
                Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
                answer => answer.map(drop),
            }
        };
        answer.map_err(|error| {
            let verb = if replace { "patch" } else { "create" };
            DefinitionError::Api {
                path: path.to_owned(),
                source: ApiError::of(Target::of(verb, &definition, None, Some(&name)), error),
            }
        })?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        let served = await_condition(definitions, &name, conditions::is_crd_established());
        let late = || DefinitionError::Late {
            path: path.to_owned(),
            name: name.clone(),
        };
        match tokio::time::timeout(ESTABLISHED, served).await {
            Ok(Ok(_)) => {}
            _ => return Err(late()),
        }
        if let Some(group) = object.data.pointer("/spec/group").and_then(|g| g.as_str()) {
            facts.cluster.group_changed(group);
        }
        Ok(())
    }
}
