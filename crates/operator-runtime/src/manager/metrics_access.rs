//! Who may read `/metrics`: the API server says whose token it is, and what that user may do, as with
//! controller-runtime's `WithAuthenticationAndAuthorization`.
//!
//! RBAC: `create` on `tokenreviews` of `authentication.k8s.io` and on `subjectaccessreviews` of
//! `authorization.k8s.io`. Clients need the verb `get` on the non-resource URL `/metrics`.

use host::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::{error, info};

/// The path that a client must be allowed to get.
pub(super) const PATH: &str = "/metrics";
/// Time that the answer about a token is kept.
const TOKEN_KEPT: Duration = Duration::from_mins(1);
/// Time that an answer that allows a user is kept.
const ALLOWED_KEPT: Duration = Duration::from_mins(5);
/// Time that an answer that denies a user is kept.
const DENIED_KEPT: Duration = Duration::from_secs(30);
/// Longest wait for an answer of the API server.
const WITHIN: Duration = Duration::from_secs(10);
/// Number of answers of each kind that are kept.
const MAX_KEPT: usize = 1024;

/// Asks the API server about the clients of `/metrics`.
pub(super) struct MetricsAccess {
    tokens: Api<TokenReview>,
    reviews: Api<SubjectAccessReview>,
    /// The user of a token, by the token's hash; `None` if nobody's.
    users: Mutex<Kept<[u8; 32], Option<Arc<UserInfo>>>>,
    allowed: Mutex<Kept<String, bool>>,
    /// Whether it was logged that the API server cannot be asked.
    failing: AtomicBool,
}

/// Reason why a client does not get the metrics, with the texts of controller-runtime.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no token, or it is nobody's.
    Unauthorized,
    /// The token cannot be reviewed.
    AuthenticationFailed,
    /// The user may not read metrics.
    Denied(String),
    /// The permissions of the user are unknown.
    AuthorizationFailed(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, text) = match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()),
            Self::AuthenticationFailed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Authentication failed".to_owned(),
            ),
            Self::Denied(user) => (
                StatusCode::FORBIDDEN,
                format!("Authorization denied for user {user}"),
            ),
            Self::AuthorizationFailed(user) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Authorization for user {user} failed"),
            ),
        };
        (code, text).into_response()
    }
}

/// The API server gave no answer.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("cannot create a {0}; the operator's service account needs the verb create on it")]
    Forbidden(&'static str, #[source] kube::Error),
    #[error("cannot create a {0}")]
    Api(&'static str, #[source] kube::Error),
    #[error("the API server did not answer a {0} within {WITHIN:?}")]
    Late(&'static str),
}

impl MetricsAccess {
    /// `client` must be able to write on every replica.
    pub(super) fn new(client: &Client) -> Self {
        Self {
            tokens: Api::all(client.clone()),
            reviews: Api::all(client.clone()),
            users: Mutex::default(),
            allowed: Mutex::default(),
            failing: AtomicBool::new(false),
        }
    }

    /// Returns whether a client may read the metrics.
    pub(super) async fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer_token(headers).ok_or(Refusal::Unauthorized)?;
        let user = match self.user(token).await {
            Ok(Some(user)) => user,
            Ok(None) => return Err(Refusal::Unauthorized),
            Err(error) => {
                self.failed(&error);
                return Err(Refusal::AuthenticationFailed);
            }
        };
        let name = user.username.clone().unwrap_or_default();
        match self.is_allowed(&user, method).await {
            Ok(allowed) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    info!("clients of /metrics are authenticated again");
                }
                allowed.then_some(()).ok_or(Refusal::Denied(name))
            }
            Err(error) => {
                self.failed(&error);
                Err(Refusal::AuthorizationFailed(name))
            }
        }
    }

    /// Logs a failure once, until it is over.
    fn failed(&self, error: &ReviewError) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            let error = error as &dyn std::error::Error;
            error!(
                error,
                "cannot authenticate or authorize a client of /metrics"
            );
        }
    }

    async fn user(&self, token: &str) -> Result<Option<Arc<UserInfo>>, ReviewError> {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.users.lock().get(&key, Instant::now()) {
            return Ok(known);
        }
        let asked = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let review = create(&self.tokens, &asked, "TokenReview").await?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let user = user.map(Arc::new);
        self.users
            .lock()
            .put(key, user.clone(), Instant::now(), TOKEN_KEPT);
        Ok(user)
    }

    async fn is_allowed(&self, user: &UserInfo, method: &Method) -> Result<bool, ReviewError> {
        let spec = SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(PATH.to_owned()),
                verb: Some(method.as_str().to_lowercase()),
            }),
            resource_attributes: None,
        };
        let key = format!("{spec:?}");
        if let Some(known) = self.allowed.lock().get(&key, Instant::now()) {
            return Ok(known);
        }
        let asked = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let review = create(&self.reviews, &asked, "SubjectAccessReview").await?;
        let allowed = review.status.is_some_and(|status| status.allowed);
        let keep = if allowed { ALLOWED_KEPT } else { DENIED_KEPT };
        self.allowed.lock().put(key, allowed, Instant::now(), keep);
        Ok(allowed)
    }
}

async fn create<K>(api: &Api<K>, review: &K, kind: &'static str) -> Result<K, ReviewError>
where
    K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PostParams::default();
    match tokio::time::timeout(WITHIN, api.create(&params, review)).await {
        Ok(answer) => answer.map_err(|source| match source {
            kube::Error::Api(status) if status.code == 403 => {
                ReviewError::Forbidden(kind, kube::Error::Api(status))
            }
            source => ReviewError::Api(kind, source),
        }),
        Err(_) => Err(ReviewError::Late(kind)),
    }
}

/// Returns the token of a request.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Answers that are kept for some time. Their number is limited, because clients choose the keys.
struct Kept<K, V>(HashMap<K, (Instant, V)>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Hash + Eq, V: Clone> Kept<K, V> {
    fn get(&self, key: &K, now: Instant) -> Option<V> {
        let (until, value) = self.0.get(key)?;
        (*until > now).then(|| value.clone())
    }

    fn put(&mut self, key: K, value: V, now: Instant, keep: Duration) {
        if self.0.len() >= MAX_KEPT {
            self.0.retain(|_, (until, _)| *until > now);
        }
        if self.0.len() >= MAX_KEPT {
            self.0.clear();
        }
        self.0.insert(key, (now + keep, value));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::{HeaderMap, Method};
    use hybrid_operator_test::scripted::Script;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::{Kept, MAX_KEPT, MetricsAccess, Refusal};

    const TOKENS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
    const REVIEWS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";

    fn with_token(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", value.parse().unwrap());
        headers
    }

    fn user(name: &str) -> Value {
        json!({"metadata": {}, "spec": {}, "status": {"authenticated": true, "user": {"username": name, "groups": ["g"]}}})
    }

    fn allowed(allowed: bool) -> Value {
        json!({"metadata": {}, "spec": {}, "status": {"allowed": allowed}})
    }

    async fn get(access: &MetricsAccess, token: &str) -> Result<(), Refusal> {
        access.check(&Method::GET, &with_token(token)).await
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_as_long_as_by_controller_runtime() {
        let script = Script::default()
            .on(TOKENS, 201, user("prometheus"))
            .on(REVIEWS, 201, allowed(true))
            // After one minute.
            .on(TOKENS, 201, user("prometheus"))
            // After five minutes.
            .on(TOKENS, 201, user("prometheus"))
            .on(REVIEWS, 201, allowed(false))
            // After another thirty seconds.
            .on(REVIEWS, 201, allowed(true));
        let access = MetricsAccess::new(&script.client());
        assert_eq!(get(&access, "Bearer t").await, Ok(()));
        assert_eq!(get(&access, "bearer  t ").await, Ok(()));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(get(&access, "Bearer t").await, Ok(()));
        tokio::time::advance(Duration::from_mins(4)).await;
        let denied = Err(Refusal::Denied("prometheus".to_owned()));
        assert_eq!(get(&access, "Bearer t").await, denied);
        assert_eq!(get(&access, "Bearer t").await, denied);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(get(&access, "Bearer t").await, Ok(()));
        let seen = script.finish();
        let attributes = &seen[1].body.as_ref().unwrap()["spec"];
        let expected = json!({"path": "/metrics", "verb": "get"});
        assert_eq!(attributes["nonResourceAttributes"], expected);
        assert_eq!(attributes["user"], "prometheus");
        assert_eq!(attributes["groups"][0], "g");
    }

    #[tokio::test]
    async fn clients_without_a_valid_token_are_unauthorized() {
        let nobody = json!({"metadata": {}, "spec": {}, "status": {"authenticated": false}});
        let script = Script::default().on(TOKENS, 201, nobody);
        let access = MetricsAccess::new(&script.client());
        let none = access.check(&Method::GET, &HeaderMap::new()).await;
        assert_eq!(none, Err(Refusal::Unauthorized));
        for value in ["Basic eDp5", "Bearer", "Bearer "] {
            let answer = get(&access, value).await;
            assert_eq!(answer, Err(Refusal::Unauthorized), "{value}");
        }
        assert_eq!(get(&access, "Bearer bad").await, Err(Refusal::Unauthorized));
        assert_eq!(get(&access, "Bearer bad").await, Err(Refusal::Unauthorized));
        script.finish();
    }

    #[tokio::test]
    async fn a_missing_permission_is_an_error_of_the_server() {
        let refused = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
        let script = Script::default()
            .on(TOKENS, 403, refused.clone())
            .on(TOKENS, 201, user("u"))
            .on(REVIEWS, 403, refused);
        let access = MetricsAccess::new(&script.client());
        let expected = Err(Refusal::AuthenticationFailed);
        assert_eq!(get(&access, "Bearer t").await, expected);
        let failed = Err(Refusal::AuthorizationFailed("u".to_owned()));
        assert_eq!(get(&access, "Bearer t").await, failed);
        script.finish();
    }

    #[test]
    fn number_of_kept_answers_is_limited() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        for key in 0..3 * MAX_KEPT {
            kept.put(key, (), now, Duration::from_secs(1));
            assert!(kept.0.len() <= MAX_KEPT);
        }
    }
}
