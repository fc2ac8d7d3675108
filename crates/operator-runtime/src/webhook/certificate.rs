//! Makes and reads certificates.
//!
//! Each serving certificate has an authority of its own. The authority's key signs that one
//! certificate and is then forgotten, so that nobody can sign another certificate that the API
//! server would trust.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::pkcs8::{EncodePrivateKey, LineEnding};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::builder::profile::BuilderProfile;
use x509_cert::builder::{Builder, CertificateBuilder};
use x509_cert::certificate::TbsCertificate;
use x509_cert::der::asn1::Ia5String;
use x509_cert::der::oid::db::rfc5280::ID_KP_SERVER_AUTH;
use x509_cert::der::{Decode, EncodePem};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages,
    SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::ext::{Extension, ToExtension};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};
use x509_cert::time::{Time, Validity};
use x509_cert::{Certificate, builder};

/// Lifetime of a self-signed certificate; each process makes a new one.
const SELF_SIGNED: Duration = Duration::from_hours(10 * 365 * 24);

/// A certificate cannot be made, or what is stored is not one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("cannot generate a key")]
    Key,
    #[error("cannot make a certificate")]
    Build(#[source] builder::Error),
    #[error("{what} is not a certificate in PEM")]
    Certificate {
        /// The file or the key of the Secret.
        what: &'static str,
        #[source]
        source: x509_cert::der::Error,
    },
    #[error("{0} contains no certificate in PEM")]
    Empty(&'static str),
    #[error("tls.key is not a private key in PEM")]
    PrivateKey(#[source] rustls::pki_types::pem::Error),
    #[error("tls.crt and tls.key cannot be used together")]
    Mismatch(#[source] rustls::Error),
}

impl From<x509_cert::der::Error> for CertificateError {
    fn from(error: x509_cert::der::Error) -> Self {
        Self::Build(error.into())
    }
}

impl From<builder::Error> for CertificateError {
    fn from(error: builder::Error) -> Self {
        Self::Build(error)
    }
}

impl From<x509_cert::spki::Error> for CertificateError {
    fn from(error: x509_cert::spki::Error) -> Self {
        Self::Build(error.into())
    }
}

/// A name under which the API server calls the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostName {
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl HostName {
    /// Reads an address or a name, as it is part of a URL.
    pub(super) fn new(text: &str) -> Self {
        let address = text.trim_start_matches('[').trim_end_matches(']');
        match address.parse() {
            Ok(address) => Self::Ip(address),
            Err(_) => Self::Dns(text.to_owned()),
        }
    }

    fn general(&self) -> Result<GeneralName, CertificateError> {
        Ok(match self {
            Self::Dns(name) => GeneralName::DnsName(Ia5String::new(name)?),
            Self::Ip(address) => (*address).into(),
        })
    }
}

/// A serving certificate with its key, and the certificate of its authority, all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authority: String,
}

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// Contents of a stored certificate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Described {
    pub(super) period: Period,
    pub(super) names: Vec<GeneralName>,
    issuer: Name,
    subject: Name,
}

impl Described {
    /// Whether the certificate is valid for all of `names`.
    pub(super) fn covers(&self, names: &[HostName]) -> bool {
        let general = names.iter().map(HostName::general);
        general
            .map(Result::ok)
            .all(|name| name.is_some_and(|name| self.names.contains(&name)))
    }

    pub(super) fn is_issued_by(&self, authority: &Self) -> bool {
        self.issuer == authority.subject
    }
}

/// Makes a serving certificate for `names`, with an authority of its own.
pub(super) fn generate(names: &[HostName], period: Period) -> Result<Pair, CertificateError> {
    let validity = Validity::new(
        Time::try_from(SystemTime::from(period.from))?,
        Time::try_from(SystemTime::from(period.until))?,
    );
    let id = random::<8>()?;
    let called = |what: &str| {
        let name = format!(
            "CN=hybrid-operator webhooks {what} {}",
            HEXLOWER.encode(&id)
        );
        name.parse::<Name>()
    };
    let (root_key, key) = (signing_key()?, signing_key()?);
    let issuer = called("CA")?;
    let root = sign(
        Profile {
            issuer: issuer.clone(),
            subject: issuer.clone(),
            names: None,
        },
        &root_key,
        &root_key,
        validity,
    )?;
    let names: Result<Vec<_>, _> = names.iter().map(HostName::general).collect();
    let leaf = sign(
        Profile {
            issuer,
            subject: called("server")?,
            names: Some(names?),
        },
        &key,
        &root_key,
        validity,
    )?;
    let secret = p256::SecretKey::from(&key);
    let pem = secret.to_pkcs8_pem(LineEnding::LF);
    Ok(Pair {
        certificate: leaf.to_pem(LineEnding::LF)?,
        key: pem.map_err(|_| CertificateError::Key)?.to_string(),
        authority: root.to_pem(LineEnding::LF)?,
    })
}

fn sign(
    profile: Profile,
    key: &SigningKey,
    issuer_key: &SigningKey,
    validity: Validity,
) -> Result<Certificate, CertificateError> {
    let mut serial = random::<16>()?;
    // A serial number is positive, and its first byte is not zero.
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    let public = SubjectPublicKeyInfo::from_key(key.verifying_key())?;
    let builder = CertificateBuilder::new(profile, SerialNumber::new(&serial)?, validity, public)?;
    Ok(builder.build::<_, DerSignature>(issuer_key)?)
}

fn random<const N: usize>() -> Result<[u8; N], CertificateError> {
    let mut bytes = [0; N];
    host::fill(&mut bytes).map_err(|_| CertificateError::Key)?;
    Ok(bytes)
}

fn signing_key() -> Result<SigningKey, CertificateError> {
    // One in 2^32 random numbers is not a key of this curve.
    for _ in 0..3 {
        if let Ok(key) = SigningKey::from_slice(&random::<32>()?) {
            return Ok(key);
        }
    }
    Err(CertificateError::Key)
}

/// The extensions of the certificates: of an authority, or of a server with names.
struct Profile {
    issuer: Name,
    subject: Name,
    names: Option<Vec<GeneralName>>,
}

impl BuilderProfile for Profile {
    fn get_issuer(&self, _: &Name) -> Name {
        self.issuer.clone()
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    fn build_extensions(
        &self,
        key: SubjectPublicKeyInfoRef<'_>,
        issuer_key: SubjectPublicKeyInfoRef<'_>,
        _: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        let mut extensions = Vec::new();
        let mut add = |extension: builder::Result<Extension>| {
            extensions.push(extension?);
            Ok::<_, builder::Error>(())
        };
        let subject = &self.subject;
        add(Ok(
            AuthorityKeyIdentifier::try_from(issuer_key)?.to_extension(subject, &[])?
        ))?;
        add(Ok(
            SubjectKeyIdentifier::try_from(key)?.to_extension(subject, &[])?
        ))?;
        let constraints = BasicConstraints {
            ca: self.names.is_none(),
            path_len_constraint: self.names.is_none().then_some(0),
        };
        add(Ok(constraints.to_extension(subject, &[])?))?;
        match &self.names {
            None => {
                let usage = KeyUsage(KeyUsages::KeyCertSign.into());
                add(Ok(usage.to_extension(subject, &[])?))?;
            }
            Some(names) => {
                let usage = KeyUsage(KeyUsages::DigitalSignature.into());
                add(Ok(usage.to_extension(subject, &[])?))?;
                let purpose = ExtendedKeyUsage(vec![ID_KP_SERVER_AUTH]);
                add(Ok(purpose.to_extension(subject, &[])?))?;
                let names = SubjectAltName(names.clone());
                add(Ok(names.to_extension(subject, &[])?))?;
            }
        }
        Ok(extensions)
    }
}

/// Describes the certificates of a text in PEM, which contains at least one.
pub(super) fn describe(what: &'static str, pem: &str) -> Result<Vec<Described>, CertificateError> {
    let wrong = |source| CertificateError::Certificate { what, source };
    let all = Certificate::load_pem_chain(pem.as_bytes()).map_err(wrong)?;
    if all.is_empty() {
        return Err(CertificateError::Empty(what));
    }
    all.iter().map(described).collect()
}

fn described(certificate: &Certificate) -> Result<Described, CertificateError> {
    let content = certificate.tbs_certificate();
    let time = |time: &Time| Timestamp::try_from(time.to_system_time()).unwrap_or(Timestamp::MAX);
    let mut names = Vec::new();
    for extension in content.extensions().into_iter().flatten() {
        if extension.extn_id == <SubjectAltName as x509_cert::der::oid::AssociatedOid>::OID {
            names.extend(SubjectAltName::from_der(extension.extn_value.as_bytes())?.0);
        }
    }
    Ok(Described {
        period: Period {
            from: time(&content.validity().not_before),
            until: time(&content.validity().not_after),
        },
        names,
        issuer: content.issuer().clone(),
        subject: content.subject().clone(),
    })
}

/// Makes the files of a certificate and its key.
#[cfg(test)]
pub(crate) fn generated_files() -> (String, String) {
    let now = host::timestamp();
    let period = Period {
        from: now - Duration::from_hours(1),
        until: now + Duration::from_hours(1),
    };
    let pair = generate(&[HostName::new("localhost")], period).unwrap();
    (pair.certificate, pair.key)
}

/// Makes a certificate for `names` that clients have no reason to trust, for servers that only encrypt.
pub(crate) fn self_signed(names: &[&str]) -> Result<Arc<CertifiedKey>, CertificateError> {
    let now = host::timestamp();
    let period = Period {
        from: now - Duration::from_hours(1),
        until: now + SELF_SIGNED,
    };
    let names: Vec<HostName> = names.iter().map(|name| HostName::new(name)).collect();
    let pair = generate(&names, period)?;
    certified(&pair.certificate, &pair.key)
}

/// Prepares a certificate and its key for the TLS server.
pub(crate) fn certified(
    certificate: &str,
    key: &str,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|_| CertificateError::Empty("tls.crt"))?;
    if chain.is_empty() {
        return Err(CertificateError::Empty("tls.crt"));
    }
    let key =
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(CertificateError::PrivateKey)?;
    let provider = rustls::crypto::ring::default_provider();
    let pair = CertifiedKey::from_der(chain, key, &provider).map_err(CertificateError::Mismatch)?;
    Ok(Arc::new(pair))
}
