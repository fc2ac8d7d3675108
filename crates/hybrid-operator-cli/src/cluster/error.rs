//! Says what went wrong with a request, and what to do.

use std::error::Error;

use kube::runtime::watcher;

use super::Cluster;

/// Action of a request, in RBAC's words.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    verb: &'static str,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl Attempt {
    pub(crate) fn new(verb: &'static str, resource: &str) -> Self {
        Self {
            verb,
            resource: resource.to_owned(),
            namespace: None,
            name: None,
        }
    }

    pub(crate) fn on(mut self, namespace: Option<&str>, name: Option<&str>) -> Self {
        self.namespace = namespace.map(ToOwned::to_owned);
        self.name = name.map(ToOwned::to_owned);
        self
    }

    pub(super) fn text(&self) -> String {
        let object = match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => format!(" {namespace}/{name}"),
            (Some(namespace), None) => format!(" in namespace {namespace}"),
            (None, Some(name)) => format!(" {name}"),
            (None, None) => String::new(),
        };
        format!("{} {}{object}", self.verb, self.resource)
    }
}

/// Turns an error of a request to `server` into one line with its cause and the way out.
pub(crate) fn explain(error: kube::Error, attempt: &Attempt, server: &str) -> anyhow::Error {
    let doing = attempt.text();
    match error {
        kube::Error::Api(status) => match status.code {
            401 => anyhow::anyhow!(
                "cannot {doing}: {server} rejects the credentials of the kubeconfig; log in again, \
                 or choose another user with --context"
            ),
            403 => anyhow::anyhow!(
                "cannot {doing}: {}; allow the verb {:?} on the resource {:?} with a Role or \
                 ClusterRole",
                status.message,
                attempt.verb,
                attempt.resource
            ),
            _ => anyhow::anyhow!("cannot {doing}: {}", status.message),
        },
        kube::Error::Service(_) | kube::Error::HyperError(_) => anyhow::anyhow!(
            "cannot reach the cluster at {server}: {}; check --kubeconfig and --context",
            root(&error)
        ),
        other => anyhow::Error::new(other).context(format!("cannot {doing}")),
    }
}

pub(crate) fn explain_watch(
    cluster: &Cluster,
    error: watcher::Error,
    resource: &str,
    namespace: Option<&str>,
) -> anyhow::Error {
    let (verb, source) = match error {
        watcher::Error::InitialListFailed(source) => ("list", source),
        watcher::Error::WatchStartFailed(source) | watcher::Error::WatchFailed(source) => {
            ("watch", source)
        }
        watcher::Error::WatchError(status) => ("watch", kube::Error::Api(status)),
        other @ watcher::Error::NoResourceVersion => return other.into(),
    };
    cluster.explain(source, &Attempt::new(verb, resource).on(namespace, None))
}

/// Returns the first cause of an error.
fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::{Attempt, explain};

    #[test]
    fn errors_name_what_is_missing() {
        let attempt = Attempt::new("list", "shops.example.com").on(Some("prod"), None);
        let text = |code: u16| {
            let status = Status::failure("the reason", "Any").with_code(code);
            let error = kube::Error::Api(Box::new(status));
            explain(error, &attempt, "https://host/").to_string()
        };
        let expected = "cannot list shops.example.com in namespace prod: the reason; allow the verb \"list\" on \
                        the resource \"shops.example.com\" with a Role or ClusterRole";
        assert_eq!(text(403), expected);
        let rejected = text(401);
        assert!(rejected.contains("rejects the credentials"), "{rejected}");
        let expected = "cannot list shops.example.com in namespace prod: the reason";
        assert_eq!(text(500), expected);
        let refused = std::io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(refused));
        let explained = explain(error, &attempt, "https://host/").to_string();
        let expected = "cannot reach the cluster at https://host/: connection refused; check --kubeconfig and \
                        --context";
        assert_eq!(explained, expected);
    }
}
