//! Acting as a service account, over the connection that the process has already.

use http::HeaderValue;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::service_fn;

/// A name that cannot stand in a header.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no name of a service account")]
pub struct ImpersonateError(String);

/// A client whose requests the API server judges as those of a service account.
///
/// RBAC: `impersonate` on `serviceaccounts`, for this one at least.
///
/// # Errors
/// When the name cannot stand in a header.
pub fn impersonate(
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
