//! Source of a backup: the release that the chart made of its Memcached.

use hybrid_operator::helm::{self, DeployedRelease};
use hybrid_operator::native::{BoxError, Context, Error};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PodSpec, Service};
use kube::ResourceExt;

use crate::api::v1alpha1::{BackupSource, Memcached, MemcachedBackup};

/// Objects that a backup copies.
#[derive(Debug, PartialEq)]
pub(super) struct Source {
    /// The release, for the status.
    pub(super) release: BackupSource,
    /// The Pods that the chart deployed.
    pub(super) pods: PodSpec,
}

/// Why there is nothing to copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Finds the release of a Memcached.
pub(super) async fn find(
    context: &Context<MemcachedBackup>,
    name: &str,
) -> Result<Result<Source, Missing>, Error> {
    let Some(memcached) = context.cached::<Memcached>()?.get(name) else {
        return Ok(Err(Missing {
            reason: "MemcachedNotFound",
            message: format!(
                "there is no Memcached {name} in this namespace; create it, or correct spec.memcachedRef.name"
            ),
        }));
    };
    let Some(release) = helm::deployed(context, &*memcached).await? else {
        return Ok(Err(Missing {
            reason: "MemcachedNotDeployed",
            message: format!("the chart of Memcached {name} is not deployed yet"),
        }));
    };
    Ok(Ok(source(&release)?))
}

/// Reads Service and Pods from what the chart rendered.
fn source(release: &DeployedRelease) -> Result<Source, BoxError> {
    let services = release.objects::<Service>()?;
    let address = services.first().and_then(|service| {
        let ports = service.spec.as_ref()?.ports.as_ref()?;
        let namespace = service.namespace().unwrap_or_default();
        Some(format!(
            "{}.{namespace}.svc:{}",
            service.name_any(),
            ports.first()?.port
        ))
    });
    let deployments = release.objects::<Deployment>()?;
    let mut specs = deployments
        .into_iter()
        .filter_map(|one| one.spec?.template.spec);
    let lacks = |kind: &str| format!("release {} lacks a {kind} to copy", release.name);
    Ok(Source {
        release: BackupSource {
            release: release.name.clone(),
            revision: release.revision,
            address: address.ok_or_else(|| lacks("Service with a port"))?,
        },
        pods: specs.next().ok_or_else(|| lacks("Deployment"))?,
    })
}

#[cfg(test)]
mod tests {
    use hybrid_operator::helm::DeployedRelease;

    use super::source;

    const SERVICE: &str = "\
---
apiVersion: v1
kind: Service
metadata: {name: main-memcached}
spec: {ports: [{port: 11211}]}
";
    const DEPLOYMENT: &str = "\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: main-memcached}
spec:
  selector: {}
  template: {spec: {containers: [{name: memcached, image: 'memcached:1'}]}}
";

    #[test]
    fn the_source_is_the_service_and_the_pods_of_the_chart() {
        let manifest = format!("{SERVICE}{DEPLOYMENT}");
        let release = DeployedRelease::new("main", "ns", &manifest).unwrap();
        let source = source(&release).unwrap();
        assert_eq!(source.release.address, "main-memcached.ns.svc:11211");
        assert_eq!(
            source.pods.containers[0].image.as_deref(),
            Some("memcached:1")
        );
    }

    #[test]
    fn a_release_without_pods_is_an_error_that_names_it() {
        let release = DeployedRelease::new("main", "ns", SERVICE).unwrap();
        let error = source(&release).unwrap_err().to_string();
        assert_eq!(error, "release main lacks a Deployment to copy");
    }
}
