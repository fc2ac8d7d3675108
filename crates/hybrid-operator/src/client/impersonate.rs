//! Impersonates a service account over the existing connection of the process.

use http::HeaderValue;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::service_fn;

/// A name that is not a valid header value.
#[derive(Debug, thiserror::Error)]
#[error("invalid service account name {0:?}")]
pub(crate) struct ImpersonateError(String);

/// Returns a client whose requests the API server authorizes as those of a service account.
///
/// RBAC: `impersonate` on `serviceaccounts`, at least for this one.
///
/// # Errors
/// When the name is not a valid header value.
pub(crate) fn impersonate(
    client: &Client,
    namespace: &str,
    account: &str,
) -> Result<Client, ImpersonateError> {
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let user = HeaderValue::from_str(&user).map_err(|_| ImpersonateError(account.to_owned()))?;
    let client = client.clone();
    let service = service_fn(move |mut request: http::Request<Body>| {
        request
            .headers_mut()
            .insert("impersonate-user", user.clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    Ok(ClientBuilder::new(service, namespace).build())
}
