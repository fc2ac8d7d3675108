//! The versions that this crate reproduces.

/// The Helm release whose behaviour this crate reproduces; templates read it as
/// `.Capabilities.HelmVersion.Version`.
pub const HELM: &str = "v4.3.1";

/// The Go release that Helm was built with, for `.Capabilities.HelmVersion.GoVersion`.
pub const GO: &str = "go1.26.8";

/// The Kubernetes version that Helm assumes without a cluster.
pub const KUBERNETES: &str = "v1.37.0";
