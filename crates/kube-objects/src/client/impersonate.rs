//! Impersonates a service account over the existing connection of the process.

use http::{HeaderValue, Request, Response, StatusCode};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::core::Status;
use tower::service_fn;

/// The name of a service account is invalid.
#[derive(Debug, thiserror::Error)]
#[error("invalid service account name {0:?}")]
pub struct ImpersonateError(String);

/// Returns a client whose requests the API server authorizes as those of a user, in the namespace
/// of a service account.
///
/// RBAC: `impersonate` on `serviceaccounts`, at least for this one.
///
/// # Errors
/// When the name is not a valid header value.
pub fn impersonate(
    client: &Client,
    namespace: &str,
    user: &str,
) -> Result<Client, ImpersonateError> {
    let user = HeaderValue::from_str(user).map_err(|_| ImpersonateError(user.to_owned()))?;
    let client = client.clone();
    let service = service_fn(move |mut request: Request<Body>| {
        request
            .headers_mut()
            .insert("impersonate-user", user.clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    Ok(ClientBuilder::new(service, namespace).build())
}

/// Returns a client that sends nothing: it answers each request with 403 and `why`.
pub fn refusing(why: &'static str) -> Client {
    let service = service_fn(move |_: Request<Body>| async move {
        let status = Status::failure(why, "Forbidden").with_code(StatusCode::FORBIDDEN.as_u16());
        let body = serde_json::to_vec(&status)?;
        let mut answer = Response::new(Body::from(body));
        *answer.status_mut() = StatusCode::FORBIDDEN;
        Ok::<_, serde_json::Error>(answer)
    });
    ClientBuilder::new(service, "default").build()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::Api;

    use super::refusing;

    #[tokio::test]
    async fn a_client_without_an_account_is_refused_everything() {
        let maps: Api<ConfigMap> = Api::namespaced(refusing("no account"), "prod");
        let answer = maps.get("one").await;
        let Err(kube::Error::Api(status)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((status.code, &*status.message), (403, "no account"));
    }
}
