//! Options of webhooks: where they are served, and how the API server reaches them.

use std::path::PathBuf;

/// The settings of webhooks; they have no effect in an operator without webhooks.
#[derive(Debug, Clone, Default)]
pub struct WebhookOptions {
    /// Address to serve webhooks on.
    pub bind_address: String,
    /// Name of the Service through which the API server reaches the webhooks.
    pub service_name: Option<String>,
    /// URL under which the API server reaches the webhooks, instead of a Service.
    pub url: Option<String>,
    /// Directory with `tls.crt` and `tls.key` of somebody else.
    pub certificate_directory: Option<PathBuf>,
    /// Certificate of cert-manager, `NAMESPACE/NAME`, whose authority cert-manager fills in.
    pub inject_ca_from: Option<String>,
    /// Whether webhooks are also served over HTTP/2.
    pub http2: bool,
    /// Whether the operator runs in a Pod, so that a Service leads to it.
    pub in_cluster: bool,
}
