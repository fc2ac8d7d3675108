//! Certificates, encoded like Go's `x509.CreateCertificate` does for Sprig's template.

use bounded::Buffer;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::der::{DerReader, Malformed, bit_string, element, integer, oid, sequence, tag};
use super::key::{KeyError, PrivateKey};
use super::pem;
use crate::error::FuncError;
use crate::go::duration::{Duration, HOUR};
use crate::go::strconv::quoted;
use crate::go::time::Time;

/// The content of a certificate.
pub(super) struct CertificateTemplate {
    pub(super) common_name: Vec<u8>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) names: Vec<Vec<u8>>,
    pub(super) not_before: Time,
    pub(super) days: i64,
    pub(super) is_authority: bool,
}

/// The issuer of a certificate.
pub(super) enum Issuer<'k> {
    /// The certificate is signed by its own key.
    Itself,
    /// The certificate is signed by another certificate's key.
    Authority(&'k Authority),
}

/// A certificate authority.
pub(super) struct Authority {
    pub(super) key: PrivateKey,
    /// Encoded subject.
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    /// Encoded public key.
    public_key: Vec<u8>,
}

/// An error while creating a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("x509: {0} cannot be encoded as an IA5String")]
    Name(String),
    #[error("asn1: string not valid UTF-8")]
    CommonName,
    #[error("cannot represent time as GeneralizedTime")]
    Time,
    #[error("x509: provided PrivateKey doesn't match parent's PublicKey")]
    Mismatch,
}

impl CertificateTemplate {
    /// Creates the certificate in DER.
    pub(super) fn create(
        &self,
        key: &PrivateKey,
        issuer: &Issuer<'_>,
    ) -> Result<Vec<u8>, FuncError> {
        let mut serial = [0; 16];
        crate::sprig::random::fill(&mut serial)?;
        let created = self.create_with_serial(key, issuer, &serial);
        created.map_err(|error| FuncError::new(format!("error creating certificate: {error}")))
    }

    fn create_with_serial(
        &self,
        key: &PrivateKey,
        issuer: &Issuer<'_>,
        serial: &[u8],
    ) -> Result<Vec<u8>, CertificateError> {
        let signer = match issuer {
            Issuer::Itself => key,
            Issuer::Authority(authority) => &authority.key,
        };
        let algorithm = signer.signature_algorithm()?;
        let public_key = key.public_key()?;
        let subject = self.subject()?;
        let key_id = self.is_authority.then(|| {
            let hash = Sha256::digest(&public_key.bits);
            hash.iter().copied().take(20).collect::<Vec<u8>>()
        });
        let (issuer_name, authority_id) = match issuer {
            Issuer::Itself => (&subject, None),
            Issuer::Authority(authority) => {
                if authority.key.public_key()?.info != authority.public_key {
                    return Err(CertificateError::Mismatch);
                }
                // An authority with the same name is treated as the certificate itself.
                let id = authority.key_id.as_ref();
                (
                    &authority.subject,
                    id.filter(|_| authority.subject != subject),
                )
            }
        };
        let span = Duration(self.days.wrapping_mul(24 * HOUR));
        let not_after = self.not_before.add(span);
        let validity = sequence(&[&encode_time(&self.not_before)?, &encode_time(&not_after)?]);
        let extensions = self.extensions(subject.len() == 2, key_id, authority_id)?;
        let body = sequence(&[
            &element(tag::constructed(0), &integer(&[2])),
            &integer(serial),
            &algorithm,
            issuer_name,
            &validity,
            &subject,
            &public_key.info,
            &element(tag::constructed(3), &sequence(&[&extensions])),
        ]);
        let signature = signer.sign(&body)?;
        Ok(sequence(&[&body, &algorithm, &bit_string(&signature)]))
    }

    fn subject(&self) -> Result<Vec<u8>, CertificateError> {
        let name = &self.common_name;
        if name.is_empty() {
            return Ok(sequence(&[]));
        }
        if std::str::from_utf8(name).is_err() {
            return Err(CertificateError::CommonName);
        }
        let printable = |c: &u8| c.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(c);
        let kind = if name.iter().all(printable) {
            tag::PRINTABLE_STRING
        } else {
            tag::UTF8_STRING
        };
        let attribute = sequence(&[&element(tag::OID, oid::COMMON_NAME), &element(kind, name)]);
        Ok(sequence(&[&element(tag::SET, &attribute)]))
    }

    fn extensions(
        &self,
        no_subject: bool,
        key_id: Option<Vec<u8>>,
        authority_id: Option<&Vec<u8>>,
    ) -> Result<Vec<u8>, CertificateError> {
        // Digital signature and key encipherment; for authorities also certificate signing.
        let usage: &[u8] = if self.is_authority {
            &[2, 0xA4]
        } else {
            &[5, 0xA0]
        };
        let purposes = [oid::SERVER_AUTH, oid::CLIENT_AUTH].map(|name| element(tag::OID, name));
        let authority: &[u8] = if self.is_authority {
            &[tag::BOOLEAN, 1, 0xFF]
        } else {
            &[]
        };
        let mut out = Vec::new();
        let mut add = |name, critical, value: &[u8]| out.extend(extension(name, critical, value));
        add(oid::KEY_USAGE, true, &element(tag::BIT_STRING, usage));
        add(oid::EXT_KEY_USAGE, false, &sequence(&[&purposes.concat()]));
        add(oid::BASIC_CONSTRAINTS, true, &sequence(&[authority]));
        if let Some(id) = key_id {
            add(oid::SUBJECT_KEY_ID, false, &element(tag::OCTET_STRING, &id));
        }
        if let Some(id) = authority_id {
            let id = sequence(&[&element(tag::primitive(0), id)]);
            add(oid::AUTHORITY_KEY_ID, false, &id);
        }
        let mut names = Vec::new();
        for name in &self.names {
            if !name.is_ascii() {
                return Err(CertificateError::Name(quoted(name)));
            }
            names.extend(element(tag::primitive(2), name));
        }
        for address in &self.addresses {
            names.extend(match address.to_canonical() {
                IpAddr::V4(address) => element(tag::primitive(7), &address.octets()),
                IpAddr::V6(address) => element(tag::primitive(7), &address.octets()),
            });
        }
        if !names.is_empty() {
            add(oid::SUBJECT_ALT_NAME, no_subject, &sequence(&[&names]));
        }
        Ok(out)
    }
}

fn extension(name: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical {
        &[tag::BOOLEAN, 1, 0xFF]
    } else {
        &[]
    };
    sequence(&[
        &element(tag::OID, name),
        critical,
        &element(tag::OCTET_STRING, value),
    ])
}

fn encode_time(time: &Time) -> Result<Vec<u8>, CertificateError> {
    let year = time.year();
    let (kind, layout): (_, &[u8]) = match year {
        1950..2050 => (tag::UTC_TIME, b"060102150405Z"),
        0..=9999 => (tag::GENERALIZED_TIME, b"20060102150405Z"),
        _ => return Err(CertificateError::Time),
    };
    let mut text = Buffer::new();
    time.format(layout, &mut text);
    Ok(element(kind, &text))
}

/// The parts of a certificate that are needed to sign with it.
struct ParsedCertificate<'d> {
    subject: &'d [u8],
    public_key: &'d [u8],
    key_id: Option<&'d [u8]>,
}

fn parse(bytes: &[u8]) -> Result<ParsedCertificate<'_>, Malformed> {
    let mut outer = DerReader::new(bytes);
    let mut certificate = outer.sequence()?;
    let mut body = certificate.sequence()?;
    certificate.sequence()?;
    certificate.expect(tag::BIT_STRING)?;
    if !outer.is_empty() || !certificate.is_empty() {
        return Err(Malformed);
    }
    if body.peek() == Some(tag::constructed(0)) {
        body.any()?;
    }
    body.expect(tag::INTEGER)?;
    let sequence =
        |body: &mut DerReader<'_>| body.any().map(|element| element.tag == tag::SEQUENCE);
    // Algorithm, issuer and validity.
    if !(sequence(&mut body)? && sequence(&mut body)? && sequence(&mut body)?) {
        return Err(Malformed);
    }
    let (subject, public_key) = (body.any()?, body.any()?);
    if subject.tag != tag::SEQUENCE || public_key.tag != tag::SEQUENCE {
        return Err(Malformed);
    }
    let mut key_id = None;
    while !body.is_empty() {
        let part = body.any()?;
        if part.tag == tag::constructed(3) {
            key_id = find_key_id(part.content)?;
        }
    }
    Ok(ParsedCertificate {
        subject: subject.whole,
        public_key: public_key.whole,
        key_id,
    })
}

fn find_key_id(extensions: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let mut extensions = DerReader::new(extensions).sequence()?;
    let mut found = None;
    while !extensions.is_empty() {
        let mut extension = extensions.sequence()?;
        let name = extension.expect(tag::OID)?;
        if extension.peek() == Some(tag::BOOLEAN) {
            extension.any()?;
        }
        let value = extension.expect(tag::OCTET_STRING)?;
        if name == oid::SUBJECT_KEY_ID {
            found = Some(DerReader::new(value).expect(tag::OCTET_STRING)?);
        }
    }
    Ok(found)
}

/// Checks that a PEM text begins with a certificate.
pub(super) fn check(text: &[u8]) -> Result<(), FuncError> {
    let block = pem::decode(text).ok_or_else(|| FuncError::new("unable to decode certificate"))?;
    parse(&block.bytes).map(|_| ()).map_err(malformed)
}

fn malformed(_: Malformed) -> FuncError {
    FuncError::new("error parsing certificate: decodedCert.Bytes: x509: malformed certificate")
}

impl Authority {
    /// Parses the authority from a PEM certificate and its PEM key.
    pub(super) fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, FuncError> {
        let block = pem::decode(certificate);
        let block = block.ok_or_else(|| FuncError::new("unable to decode certificate"))?;
        let parsed = parse(&block.bytes).map_err(malformed)?;
        let key = PrivateKey::from_pem(key)
            .map_err(|error| FuncError::new(format!("error parsing private key: {error}")))?;
        let key_id = parsed.key_id.filter(|id| !id.is_empty());
        Ok(Self {
            key,
            subject: parsed.subject.to_vec(),
            key_id: key_id.map(<[u8]>::to_vec),
            public_key: parsed.public_key.to_vec(),
        })
    }
}
