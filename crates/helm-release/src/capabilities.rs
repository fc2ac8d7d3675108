//! Capabilities of a cluster, as templates see them.

use std::time::Duration;

use helm_core::Capabilities;
use helm_core::capabilities::{HelmVersion, KubeVersion};
use kube_objects::{Cluster, DiscoveryError};

/// Returns the capabilities as Helm builds them from a cluster, at most `max_age` old.
pub async fn capabilities(
    cluster: &Cluster,
    max_age: Duration,
) -> Result<Capabilities, DiscoveryError> {
    let served = cluster.served(max_age).await?;
    let version = served.version;
    Ok(Capabilities {
        kube_version: KubeVersion::from_server(version.git_version, version.major, version.minor),
        api_versions: served.api_versions.into_iter().collect(),
        helm_version: HelmVersion::default(),
    })
}
