//! TLS: trusted authorities, client certificates, and verification.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::access::Access;
use crate::error::PullError;

/// Returns the configuration of TLS: the authorities of the system and those of `--ca-file`.
pub(crate) fn config(access: &Access) -> Result<ClientConfig, PullError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| PullError::Tls(error.into()))?;
    let builder = if access.insecure_skip_tls_verify {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
    } else {
        builder.with_root_certificates(roots(access)?)
    };
    match (&access.cert_file, &access.key_file) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let private = PrivateKeyDer::from_pem_file(key).map_err(unusable(key))?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(unusable(cert))
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(path), None) | (None, Some(path)) => Err(PullError::Certificate {
            path: path.clone(),
            why: "a client needs both a certificate and a key".to_owned(),
        }),
    }
}

fn roots(access: &Access) -> Result<RootCertStore, PullError> {
    let mut roots = RootCertStore::empty();
    // Without any, all servers are untrusted, which is said when one is asked.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = &access.ca_file {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(unusable(path))?;
        }
    }
    if let Some((name, text)) = &access.ca_certificates {
        let path = Path::new(name);
        let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
        for certificate in some(found.map_err(unusable(path))?, path)? {
            roots.add(certificate).map_err(unusable(path))?;
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PullError> {
    let found = CertificateDer::pem_file_iter(path).map_err(unusable(path))?;
    some(
        found.collect::<Result<_, _>>().map_err(unusable(path))?,
        path,
    )
}

/// Refuses an empty list.
fn some<'a>(
    found: Vec<CertificateDer<'a>>,
    path: &Path,
) -> Result<Vec<CertificateDer<'a>>, PullError> {
    if found.is_empty() {
        return Err(unusable(path)("it has no certificate in PEM format"));
    }
    Ok(found)
}

fn unusable<E: ToString>(path: &Path) -> impl Fn(E) -> PullError {
    move |error| PullError::Certificate {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// Accepts all certificates, as users ask for with `--insecure-skip-tls-verify`. Signatures are
/// verified.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, config};

    #[test]
    fn certificates_that_are_no_file_are_named_by_where_they_come_from() {
        let of = |text: &[u8]| {
            let access = Access {
                ca_certificates: Some(("the Secret a/b".to_owned(), text.to_vec())),
                ..Access::default()
            };
            config(&access).map(drop).map_err(|error| error.to_string())
        };
        let expected = "cannot use the Secret a/b for TLS: it has no certificate in PEM format";
        assert_eq!(of(b"text").unwrap_err(), expected);
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = of(broken).unwrap_err();
        assert!(
            error.starts_with("cannot use the Secret a/b for TLS: "),
            "{error}"
        );
    }
}
