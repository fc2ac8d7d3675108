//! Keeps the certificate and the configurations up to date, in every replica.
//!
//! ```text
//! read the Secret -> serve its certificate -> compare the configurations -> take the next step
//! ```
//!
//! All replicas do the same, and none of them needs to be the leader: what is wanted depends on the
//! Secret alone, and a Secret that has changed meanwhile is not overwritten. Nothing is written if
//! nothing differs. A changed definition is compared at once, everything else every 30 seconds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use futures::StreamExt;
use host::watch;
use kube_objects::ApiError;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::api::Object;
use super::certificate::{self, CertificateError};
use super::changes::Changes;
use super::configuration::{MANAGED_BY, Trust, is_current};
use super::rotation::{Policy, Step, Stored};
use super::tls::Served;

/// Time between two comparisons of unchanged configurations, in case somebody has changed them.
const COMPARE: Duration = Duration::from_secs(30);
/// The shortest time between two comparisons because of changes, so that two programs which undo
/// each other's changes do not keep the API server busy.
const CALM: Duration = Duration::from_secs(1);
/// The first pause after an error; it doubles up to the usual pause.
const FIRST_RETRY: Duration = Duration::from_millis(250);

/// Error that keeps the certificate or a configuration from being up to date.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpkeepError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("cannot read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{what} exists and is not this operator's; delete it, or give the operator another name with --leader-election-id"
    )]
    Foreign { what: String },
    #[error(
        "there is no CustomResourceDefinition {0}, whose objects this operator converts; install it"
    )]
    NoDefinition(String),
}

/// Source of the certificate.
pub(super) enum Source {
    /// The operator makes it and keeps it in a Secret.
    Own {
        secret: Box<Object>,
        name: String,
        policy: Policy,
    },
    /// Somebody else, such as cert-manager, writes `tls.crt` and `tls.key` in a directory.
    Files {
        directory: PathBuf,
        /// Source of the API server's trust in it.
        trust: Trust,
    },
}

/// Makes the content of an object for a given trust; `None` if there is to be no such object.
pub(super) type Body = Box<dyn Fn(&Trust) -> Option<Value> + Send + Sync>;

/// An object to apply, for a given trust.
pub(super) struct Wanted {
    pub(super) object: Object,
    /// For messages: `ValidatingWebhookConfiguration x`.
    pub(super) what: String,
    /// Whether the operator creates the object, and deletes it if there is nothing in it.
    pub(super) is_own: bool,
    pub(super) body: Body,
}

/// Keeps the certificate and the configurations up to date.
pub(super) struct Upkeep {
    pub(super) source: Source,
    pub(super) wanted: Vec<Wanted>,
    pub(super) operator: String,
    pub(super) served: Arc<Served>,
    pub(super) ready: watch::Sender<bool>,
    /// The certificate and the key that are served.
    pub(super) shown: Option<(String, String)>,
    /// The trust that all configurations had when they were compared last.
    pub(super) configured: Option<Configured>,
}

/// See [`Upkeep::configured`].
pub(super) struct Configured {
    trust: Trust,
    since: Instant,
    compared: Instant,
    /// Whether something has changed after the comparison.
    is_old: bool,
}

impl Upkeep {
    /// Runs until `stop` is cancelled. `changes` are those of the definitions.
    pub(super) async fn run(mut self, mut changes: Changes, stop: CancellationToken) {
        let pause = self.pause();
        let (mut retry, mut last) = (FIRST_RETRY, String::new());
        loop {
            let Some(round) = stop.run_until_cancelled(self.round()).await else {
                return;
            };
            let wait = match round {
                Ok(true) => continue,
                Ok(false) => {
                    (retry, last) = (FIRST_RETRY, String::new());
                    pause
                }
                Err(error) => {
                    // The same problem is reported once.
                    if last == error.to_string() {
                        debug!(
                            error = &error as &dyn std::error::Error,
                            "the webhooks are still not set up"
                        );
                    } else {
                        warn!(
                            error = &error as &dyn std::error::Error,
                            "the webhooks are not set up; retrying"
                        );
                        last = error.to_string();
                    }
                    let wait = retry.min(pause);
                    retry = wait * 2;
                    wait
                }
            };
            let rest = self.rest(wait, &mut changes);
            if stop.run_until_cancelled(rest).await.is_none() {
                return;
            }
        }
    }

    /// Waits for some time, or until the configurations are to be compared because a definition has
    /// changed.
    async fn rest(&mut self, wait: Duration, changes: &mut Changes) {
        let calm = Instant::now() + CALM.min(wait);
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            Some(()) = changes.next() => {
                tokio::time::sleep_until(calm).await;
                if let Some(configured) = &mut self.configured {
                    configured.is_old = true;
                }
            }
        }
    }

    /// Returns the time between two looks at the certificate.
    fn pause(&self) -> Duration {
        match &self.source {
            Source::Own { policy, .. } => {
                (policy.lifetime / 40).clamp(FIRST_RETRY, Duration::from_secs(10))
            }
            Source::Files { .. } => Duration::from_secs(1),
        }
    }

    /// Does what is to be done now; returns whether there is more to do at once.
    async fn round(&mut self) -> Result<bool, UpkeepError> {
        let (secret, name, policy) = match &self.source {
            Source::Files { directory, trust } => {
                let (directory, trust) = (directory.clone(), trust.clone());
                let certificate = read(directory.join("tls.crt")).await?;
                let key = read(directory.join("tls.key")).await?;
                self.serve(&certificate, &key)?;
                self.configure(trust, false).await?;
                return Ok(false);
            }
            Source::Own {
                secret,
                name,
                policy,
            } => (secret.clone(), name.clone(), policy.clone()),
        };
        let now = host::timestamp();
        let Some(mut found) = secret.get().await? else {
            let first = policy.first(now)?;
            let mut body = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                "metadata": {"name": name, "labels": {MANAGED_BY: self.operator}},
            });
            write(&first, &mut body);
            if secret.create(&body).await? {
                info!(secret = name, "made a certificate for the webhooks");
            }
            return Ok(true);
        };
        self.must_be_ours(&found, || format!("the Secret {name}"))?;
        let stored = stored(&found);
        let step = policy.step(&stored, now, false);
        // What cannot be used is replaced before anything else.
        let step = if matches!(step, Step::Replace(_) | Step::Switch) {
            step
        } else {
            self.serve(&stored.certificate, &stored.key)?;
            let trust = Trust::Bundle(stored.authorities.clone());
            let since = self.configure(trust, stored.next.is_some()).await?;
            policy.step(&stored, now, since.elapsed() >= settle(&policy))
        };
        let Some(changed) = policy.apply(step, &stored, now)? else {
            return Ok(false);
        };
        write(&changed, &mut found);
        if secret.replace(&found).await? {
            report(step, &name);
        }
        Ok(true)
    }

    /// Serves a certificate from the next connection on.
    fn serve(&mut self, certificate: &str, key: &str) -> Result<(), CertificateError> {
        let shown = self.shown.as_ref();
        if shown.is_some_and(|shown| shown.0 == certificate && shown.1 == key) {
            return Ok(());
        }
        self.served.set(certificate::certified(certificate, key)?);
        let all = certificate::describe("tls.crt", certificate)?;
        if let Some(first) = all.first() {
            let until = first.period.until;
            if until <= host::timestamp() {
                warn!(%until, "the certificate of the webhooks has expired");
            } else {
                info!(%until, "serving webhooks with a certificate");
            }
        }
        self.shown = Some((certificate.to_owned(), key.to_owned()));
        self.ready.send_replace(true);
        Ok(())
    }

    /// Makes all configurations trust `trust`, if it is new, `always`, or from time to time.
    /// Returns since when they have done so.
    async fn configure(&mut self, trust: Trust, always: bool) -> Result<Instant, UpkeepError> {
        let now = Instant::now();
        let same = self.configured.take().filter(|known| known.trust == trust);
        if let Some(known) = &same
            && !(always || known.is_old)
            && now.duration_since(known.compared) < COMPARE
        {
            let since = known.since;
            self.configured = same;
            return Ok(since);
        }
        let mut failed = None;
        let mut changed = false;
        for wanted in &self.wanted {
            match self.apply(wanted, &trust).await {
                Ok(applied) => changed |= applied,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let known = same.filter(|_| !changed);
        let since = known.map_or_else(Instant::now, |known| known.since);
        self.configured = Some(Configured {
            trust,
            since,
            compared: now,
            is_old: false,
        });
        Ok(since)
    }

    /// Makes an object what is wanted; returns whether that needed a write.
    async fn apply(&self, wanted: &Wanted, trust: &Trust) -> Result<bool, UpkeepError> {
        let manager = format!("{}-webhooks", self.operator);
        let what = &wanted.what;
        let live = wanted.object.get().await?;
        let body = (wanted.body)(trust);
        match (live, body) {
            (None, None) => return Ok(false),
            (None, Some(_)) if !wanted.is_own => {
                return Err(UpkeepError::NoDefinition(what.clone()));
            }
            (Some(live), body) => {
                if wanted.is_own {
                    self.must_be_ours(&live, || what.clone())?;
                }
                match body {
                    Some(body) if is_current(&live, &body, &manager) => return Ok(false),
                    Some(body) => wanted.object.apply(&body, &manager).await?,
                    None => {
                        let meta = live.get("metadata").unwrap_or(&Value::Null);
                        let version = meta.get("resourceVersion");
                        let exactly = json!({"uid": meta.get("uid"), "resourceVersion": version});
                        wanted
                            .object
                            .delete(&json!({"preconditions": exactly}))
                            .await?
                    }
                };
            }
            (None, Some(body)) => {
                wanted.object.apply(&body, &manager).await?;
            }
        }
        info!(object = what, "configured webhooks");
        Ok(true)
    }

    /// Fails if an object that the operator would overwrite was made by somebody else.
    fn must_be_ours(&self, object: &Value, what: impl Fn() -> String) -> Result<(), UpkeepError> {
        let labels = object.pointer("/metadata/labels");
        let owner = labels.and_then(|labels| labels.get(MANAGED_BY)?.as_str());
        if owner == Some(self.operator.as_str()) {
            return Ok(());
        }
        Err(UpkeepError::Foreign { what: what() })
    }
}

/// Returns how long an authority is in all bundles before a certificate of it is served: the API
/// servers learn of a change one after the other.
fn settle(policy: &Policy) -> Duration {
    (policy.lifetime / 10).min(Duration::from_mins(1))
}

fn report(step: Step, secret: &str) {
    match step {
        Step::Keep => {}
        Step::Announce => info!(secret, "made the next certificate for the webhooks"),
        Step::Switch => info!(secret, "switched to the next certificate for the webhooks"),
        Step::Replace(why) => warn!(secret, why, "replaced the certificate for the webhooks"),
        Step::Forget => info!(secret, "removed expired authorities of the webhooks"),
    }
}

async fn read(path: PathBuf) -> Result<String, UpkeepError> {
    let text = tokio::fs::read_to_string(&path).await;
    text.map_err(|source| UpkeepError::File { path, source })
}

/// Reads the content of the Secret. What is missing or no text is empty, and then replaced.
fn stored(secret: &Value) -> Stored {
    let text = |key: &str| {
        let encoded = secret.get("data")?.get(key)?.as_str()?;
        String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok()
    };
    let required = |key| text(key).unwrap_or_default();
    Stored {
        certificate: required("tls.crt"),
        key: required("tls.key"),
        authorities: required("ca.crt"),
        next: text("next.crt").zip(text("next.key")),
    }
}

/// Puts the content into a Secret.
fn write(stored: &Stored, secret: &mut Value) {
    let mut data = serde_json::Map::new();
    let next = stored
        .next
        .iter()
        .flat_map(|(crt, key)| [("next.crt", crt), ("next.key", key)]);
    let always = [
        ("tls.crt", &stored.certificate),
        ("tls.key", &stored.key),
        ("ca.crt", &stored.authorities),
    ];
    for (key, text) in always.into_iter().chain(next) {
        data.insert(key.to_owned(), BASE64.encode(text.as_bytes()).into());
    }
    if let Some(fields) = secret.as_object_mut() {
        fields.insert("data".to_owned(), Value::Object(data));
    }
}

#[cfg(test)]
mod tests;
