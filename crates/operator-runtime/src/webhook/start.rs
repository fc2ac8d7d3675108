//! Starts the webhooks of a process.

use std::sync::Arc;

use futures::{StreamExt, stream};
use host::watch;
use http::Uri;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::api::Object;
use super::builder::{Hook, Webhooks};
use super::certificate::HostName;
use super::changes::of_definitions;
use super::configuration::{Address, Setup, Trust};
use super::objects::{self, ObjectWebhooks};
use super::options::WebhookOptions;
use super::rotation::Policy;
use super::server::{BindError, Endpoint, Listener};
use super::tls::{Served, Server};
use super::upkeep::{Source, Upkeep, Wanted};
use crate::telemetry::webhooks::WebhookMetrics;

/// Path of all conversions.
const CONVERT: &str = "/convert";

/// Error that keeps webhooks from being served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address is in use, or is no address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The declarations contradict each other.
    #[error("the webhooks contradict each other: {0}")]
    Declared(String),
    /// The URL cannot be used.
    #[error("cannot use --webhook-url {0}; give https://HOST or https://HOST:PORT")]
    Url(String),
    /// Without the directory there is no certificate that somebody else makes.
    #[error(
        "--webhook-inject-ca-from needs --webhook-cert-dir, the directory with the certificate"
    )]
    InjectedWithoutDirectory,
}

/// Inputs of the webhooks of a process.
pub struct Environment<'a> {
    /// Sends requests whether this process is the leader or not.
    pub(crate) client: Client,
    pub(crate) options: &'a WebhookOptions,
    pub(crate) operator: &'a str,
    /// The namespace that the operator runs in, if known.
    pub(crate) namespace: Option<&'a str>,
    /// Namespaces to watch; all when empty.
    pub(crate) namespaces: &'a [String],
    pub(crate) metrics: WebhookMetrics,
}

/// Webhooks that are being served.
pub struct Running {
    server: Server,
    upkeep: JoinHandle<()>,
    stop: CancellationToken,
    ready: watch::Receiver<bool>,
}

impl Running {
    /// Completes once there is a certificate.
    pub(crate) fn ready(&self) -> impl Future<Output = ()> + use<> {
        let mut ready = self.ready.clone();
        async move {
            // Without a sender the process is ending.
            let _ = ready.wait_for(|ready| *ready).await;
        }
    }

    /// Answers the requests in progress, and stops.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.server.stop().await;
        let _ = self.upkeep.await;
    }
}

impl Webhooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
            && self.conversions.kinds().next().is_none()
            && !self
                .objects
                .as_ref()
                .is_some_and(ObjectWebhooks::are_expected)
            && self.problems.is_empty()
    }

    /// Starts to serve, and keeps the certificate and the configurations up to date.
    pub fn start(self, environment: &Environment<'_>) -> Result<Running, WebhookError> {
        if !self.problems.is_empty() {
            return Err(WebhookError::Declared(self.problems.join("; ")));
        }
        let options = environment.options;
        if options.inject_ca_from.is_some() && options.certificate_directory.is_none() {
            return Err(WebhookError::InjectedWithoutDirectory);
        }
        let listener = Listener::bind(&options.bind_address)?;
        let namespace = environment.namespace.map(ToOwned::to_owned);
        let namespace =
            namespace.unwrap_or_else(|| environment.client.default_namespace().to_owned());
        let (address, host) = address(options, environment.operator, &namespace, &listener)?;
        info!(address = %listener.address, reached = ?address, "serving webhooks");

        let certificate = Arc::new(Served::default());
        let endpoints = self.endpoints();
        let server = listener.serve(
            endpoints,
            Arc::clone(&certificate),
            &environment.metrics,
            options.http2,
        )?;
        let (ready, is_ready) = watch::channel(false);
        let definitions = of_definitions(&environment.client, self.definitions());
        let kinds = self.objects.iter().map(ObjectWebhooks::changes);
        let changes = stream::select_all(kinds.chain([definitions])).boxed();
        let upkeep = Upkeep {
            source: self.source(environment, &namespace, host),
            operator: environment.operator.to_owned(),
            wanted: self.wanted(environment, address),
            served: certificate,
            ready,
            shown: None,
            configured: None,
        };
        let stop = CancellationToken::new();
        Ok(Running {
            server,
            upkeep: tokio::spawn(upkeep.run(changes, stop.clone())),
            stop,
            ready: is_ready,
        })
    }

    /// Returns the names of the definitions whose objects are converted.
    fn definitions(&self) -> impl Iterator<Item = &str> {
        let kinds = self.conversions.kinds();
        kinds.map(|versions| versions.definition.as_str())
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let hooks = self.hooks.iter().map(|hook| Endpoint {
            path: hook.path(),
            answer: Arc::clone(&hook.answer),
        });
        let conversions = Arc::new(self.conversions.clone());
        let convert = Endpoint {
            path: CONVERT.to_owned(),
            answer: Arc::new(move |body| {
                let conversions = Arc::clone(&conversions);
                Box::pin(async move { conversions.answer(&body) })
            }),
        };
        let admit = self.objects.iter().map(|objects| Endpoint {
            path: objects::PATH.to_owned(),
            answer: objects.answer(),
        });
        hooks.chain(admit).chain([convert]).collect()
    }

    fn source(&self, environment: &Environment<'_>, namespace: &str, host: HostName) -> Source {
        let options = environment.options;
        if let Some(directory) = &options.certificate_directory {
            return Source::Files {
                directory: directory.clone(),
                trust: Trust::Injected(options.inject_ca_from.clone()),
            };
        }
        let name = format!("{}-webhook-cert", environment.operator);
        Source::Own {
            secret: Box::new(Object::secret(&environment.client, namespace, &name)),
            name,
            policy: Policy {
                names: vec![host],
                lifetime: self.lifetime(),
            },
        }
    }

    /// Returns the objects that tell the API server of the webhooks.
    fn wanted(self, environment: &Environment<'_>, address: Address) -> Vec<Wanted> {
        let (operator, policy) = (environment.operator.to_owned(), self.failure_policy);
        let namespaces = environment.namespaces.to_vec();
        let conversions = self.conversions;
        let hooks = Arc::new(self.hooks);
        let objects = self.objects;
        let shared = Arc::new(move |trust: &Trust, make: &dyn Fn(&Setup<'_>) -> _| {
            make(&Setup {
                operator: &operator,
                namespaces: &namespaces,
                address: &address,
                trust,
                failure_policy: policy,
            })
        });
        let own = [
            ("ValidatingWebhookConfiguration", false),
            ("MutatingWebhookConfiguration", true),
        ];
        let admission = "admissionregistration.k8s.io";
        let name = format!("{}-webhooks", environment.operator);
        let mut wanted = Vec::new();
        for (kind, mutates) in own {
            let (hooks, shared) = (Arc::clone(&hooks), Arc::clone(&shared));
            let objects = objects.clone();
            wanted.push(Wanted {
                object: Object::of(&environment.client, admission, kind, &name),
                what: format!("{kind} {name}"),
                is_own: true,
                body: Box::new(move |trust| {
                    let admits = objects.as_ref().map(ObjectWebhooks::hooks);
                    let admits = admits.unwrap_or_default();
                    let hooks: Vec<&Hook> = hooks
                        .iter()
                        .chain(&admits)
                        .filter(|hook| hook.is_mutation() == mutates)
                        .collect();
                    if hooks.is_empty() {
                        return None;
                    }
                    shared(trust, &|setup| Some(setup.configuration(kind, &hooks)))
                }),
            });
        }
        for versions in conversions.kinds() {
            let (definition, shared) = (versions.definition.clone(), Arc::clone(&shared));
            let (group, kind) = ("apiextensions.k8s.io", "CustomResourceDefinition");
            wanted.push(Wanted {
                object: Object::of(&environment.client, group, kind, &definition),
                what: definition.clone(),
                is_own: false,
                body: Box::new(move |trust| {
                    shared(trust, &|setup| Some(setup.conversion(&definition, CONVERT)))
                }),
            });
        }
        wanted
    }
}

/// Returns how the API server reaches the webhooks, and the name that their certificate needs.
fn address(
    options: &WebhookOptions,
    operator: &str,
    namespace: &str,
    listener: &Listener,
) -> Result<(Address, HostName), WebhookError> {
    if let Some(url) = &options.url {
        let host = host_of(url).ok_or_else(|| WebhookError::Url(url.clone()))?;
        let url = url.trim_end_matches('/').to_owned();
        return Ok((Address::Url(url), host));
    }
    if options.service_name.is_some() || options.in_cluster {
        let name = options.service_name.clone();
        let name = name.unwrap_or_else(|| format!("{operator}-webhook"));
        let host = HostName::Dns(format!("{name}.{namespace}.svc"));
        let namespace = namespace.to_owned();
        return Ok((Address::Service { namespace, name }, host));
    }
    let mut address = listener.address;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let host = HostName::Ip(address.ip());
    Ok((Address::Url(format!("https://{address}")), host))
}

/// Returns the host of a URL that has no path.
fn host_of(url: &str) -> Option<HostName> {
    let uri: Uri = url.parse().ok()?;
    let plain = uri.scheme_str() == Some("https") && uri.path() == "/" && uri.query().is_none();
    uri.host().filter(|_| plain).map(HostName::new)
}

#[cfg(test)]
mod tests;
