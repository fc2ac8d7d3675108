//! Serves `/metrics`: over plain HTTP, or with `--metrics-secure` over TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::metrics_access::{MetricsAccess, PATH};
use crate::options::CertificateFiles;
use crate::telemetry::exposition::Exposition;
use crate::telemetry::metrics::Metrics;
use crate::webhook::tls::Served;
use crate::webhook::{CertificateError, certified, self_signed};

/// Time between two looks at the files of a certificate, as in controller-runtime.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The certificate of `/metrics` cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetricsCertificateError {
    #[error("cannot read {file}")]
    Read {
        file: String,
        #[source]
        source: std::io::Error,
    },
    /// The files are not a certificate with its key, or none can be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Returns what answers `/metrics`.
pub(super) fn router(metrics: &Metrics, access: Option<MetricsAccess>) -> Router {
    let (metrics, access) = (metrics.clone(), access.map(Arc::new));
    let answer = move |method: Method, headers: HeaderMap| async move {
        if let Some(access) = access
            && let Err(refusal) = access.check(&method, &headers).await
        {
            return refusal.into_response();
        }
        let format = Exposition::accepted(&headers);
        // Some metrics have a sample for each custom resource.
        let encoded = tokio::task::spawn_blocking(move || encoded(&metrics, format)).await;
        encoded.unwrap_or_else(|error| internal_error(&error))
    };
    Router::new().route(PATH, get(answer))
}

fn encoded(metrics: &Metrics, format: Exposition) -> Response {
    match metrics.encode() {
        Ok(text) => ([(CONTENT_TYPE, format.content_type())], format.of(text)).into_response(),
        Err(error) => internal_error(&error),
    }
}

fn internal_error(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}

/// Returns the certificate to serve: from files, which are followed until `stop`, or self-signed.
pub(super) async fn certificate(
    files: Option<&CertificateFiles>,
    stop: &CancellationToken,
) -> Result<Arc<Served>, MetricsCertificateError> {
    let served = Arc::new(Served::default());
    let Some(files) = files else {
        served.set(self_signed(&["localhost", "127.0.0.1", "::1"])?);
        return Ok(served);
    };
    let known = Pair::read(files).await?;
    served.set(certified(&known.certificate, &known.key)?);
    let following = follow(files.clone(), known, Arc::clone(&served), LOOK_AGAIN);
    let stop = stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(following).await });
    Ok(served)
}

/// A certificate and its key, in PEM.
#[derive(PartialEq, Eq)]
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    async fn read(files: &CertificateFiles) -> Result<Self, MetricsCertificateError> {
        Ok(Self {
            certificate: read(&files.certificate).await?,
            key: read(&files.key).await?,
        })
    }
}

async fn read(file: &Path) -> Result<String, MetricsCertificateError> {
    let text = tokio::fs::read_to_string(file).await;
    text.map_err(|source| MetricsCertificateError::Read {
        file: file.display().to_string(),
        source,
    })
}

/// Serves what the files contain whenever that changes. While they are not usable, the certificate
/// stays, and that is logged once.
async fn follow(files: CertificateFiles, mut known: Pair, served: Arc<Served>, every: Duration) {
    let mut reported = String::new();
    loop {
        tokio::time::sleep(every).await;
        let renewed = match Pair::read(&files).await {
            Ok(pair) if pair == known => continue,
            Ok(pair) => certified(&pair.certificate, &pair.key)
                .map(|certificate| (pair, certificate))
                .map_err(MetricsCertificateError::from),
            Err(error) => Err(error),
        };
        match renewed {
            Ok((pair, certificate)) => {
                served.set(certificate);
                known = pair;
                reported.clear();
                info!("serving metrics with a new certificate");
            }
            Err(error) if error.to_string() == reported => {}
            Err(error) => {
                reported = error.to_string();
                let error = &error as &dyn std::error::Error;
                warn!(
                    error,
                    "cannot use the new certificate of metrics; the former one stays"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::certificate;
    use crate::options::CertificateFiles;
    use crate::webhook::generated_files;

    #[tokio::test(start_paused = true)]
    async fn renewed_files_are_served_and_broken_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = CertificateFiles {
            certificate: dir.path().join("tls.crt"),
            key: dir.path().join("tls.key"),
        };
        let write = |(certificate, key): (String, String)| {
            std::fs::write(&files.certificate, certificate).unwrap();
            std::fs::write(&files.key, key).unwrap();
        };
        let stop = CancellationToken::new();
        let missing = certificate(Some(&files), &stop).await.unwrap_err();
        assert!(missing.to_string().contains("tls.crt"), "{missing}");

        write(generated_files());
        let served = certificate(Some(&files), &stop).await.unwrap();
        let shown = || served.get().unwrap().cert.clone();
        let first = shown();
        std::fs::write(&files.certificate, "half a file").unwrap();
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert_eq!(shown(), first);
        write(generated_files());
        let renewed = async {
            while shown() == first {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), renewed)
            .await
            .unwrap();
        stop.cancel();
    }

    #[tokio::test]
    async fn a_certificate_is_made_if_none_is_given() {
        let served = certificate(None, &CancellationToken::new()).await.unwrap();
        assert!(!served.get().unwrap().cert.is_empty());
    }
}
