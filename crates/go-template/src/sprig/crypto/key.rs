//! Private keys: generating, PEM decoding and encoding, signing.

use ed25519_dalek::Signer as _;
use p256::elliptic_curve::sec1::ToSec1Point;

use super::der::{DerReader, Malformed, bit_string, element, integer, oid, sequence, tag};
use super::dsa::{self, DsaKey};
use super::pem;
use super::rsa_key::{self, KeySize, RsaError, RsaKey};
use crate::error::FuncError;

/// An error while parsing or using a key. The texts are those of Sprig and Go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyError {
    #[error("no PEM data in input")]
    NoPem,
    #[error("no private key data in PEM block of type {0}")]
    NoPrivateKey(String),
    #[error("invalid private key type {0}")]
    UnknownType(String),
    #[error("decoding PEM as PKCS#8: {0}")]
    Pkcs8(String),
    #[error("parsing {0} private key from PEM: {1}")]
    Parse(&'static str, String),
    #[error("x509: certificate private key does not implement crypto.Signer")]
    NoSigner,
    #[error(transparent)]
    Rsa(#[from] RsaError),
}

pub(super) enum PrivateKey {
    Rsa(Box<RsaKey>),
    /// On the curve P-256, the only one for which Sprig generates keys.
    Ec(Box<p256::SecretKey>),
    Ed25519(Box<ed25519_dalek::SigningKey>),
    Dsa(Box<DsaKey>),
}

impl PrivateKey {
    pub(super) fn generate_rsa(size: KeySize) -> Result<Self, FuncError> {
        Ok(Self::Rsa(Box::new(rsa_key::generate(size)?)))
    }

    pub(super) fn generate_ec() -> Result<Self, FuncError> {
        loop {
            let mut scalar = [0; 32];
            crate::sprig::random::fill(&mut scalar)?;
            // Only the few numbers beyond the order of the curve are rejected.
            if let Ok(key) = p256::SecretKey::from_slice(&scalar) {
                return Ok(Self::Ec(Box::new(key)));
            }
        }
    }

    pub(super) fn generate_ed25519() -> Result<Self, FuncError> {
        let mut seed = [0; 32];
        crate::sprig::random::fill(&mut seed)?;
        Ok(ed25519(&seed))
    }

    pub(super) fn generate_dsa() -> Result<Self, FuncError> {
        Ok(Self::Dsa(Box::new(dsa::generate()?)))
    }

    /// Parses the first block of a PEM text, like Sprig's `parsePrivateKeyPEM`.
    pub(super) fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let block = pem::decode(text).ok_or(KeyError::NoPem)?;
        if block.kind == "PRIVATE KEY" {
            return Self::from_pkcs8(&block.bytes);
        }
        match block.kind.strip_suffix(" PRIVATE KEY") {
            None => Err(KeyError::NoPrivateKey(block.kind)),
            Some("RSA") => rsa_from_der(&block.bytes)
                .map_err(|error| KeyError::Parse("RSA", error.to_string())),
            Some("EC") => {
                ec_from_der(&block.bytes, None).map_err(|error| KeyError::Parse("EC", error))
            }
            Some("DSA") => DsaKey::from_der(&block.bytes)
                .map(|key| Self::Dsa(Box::new(key)))
                .map_err(|error| KeyError::Parse("DSA", error.to_string())),
            Some(kind) => Err(KeyError::UnknownType(kind.to_owned())),
        }
    }

    fn from_pkcs8(bytes: &[u8]) -> Result<Self, KeyError> {
        let malformed = |error: Malformed| KeyError::Pkcs8(error.to_string());
        let mut fields = DerReader::new(bytes).sequence().map_err(malformed)?;
        fields.expect(tag::INTEGER).map_err(malformed)?;
        let mut algorithm = fields.sequence().map_err(malformed)?;
        let name = algorithm.expect(tag::OID).map_err(malformed)?;
        let key = fields.expect(tag::OCTET_STRING).map_err(malformed)?;
        let embedded = |kind: &str, error: String| {
            KeyError::Pkcs8(format!(
                "x509: failed to parse {kind} private key embedded in PKCS#8: {error}"
            ))
        };
        match name {
            oid::RSA => rsa_from_der(key).map_err(|error| embedded("RSA", error.to_string())),
            oid::EC => {
                let curve = algorithm.expect(tag::OID).ok();
                ec_from_der(key, curve).map_err(|error| embedded("EC", error))
            }
            oid::ED25519 => {
                let seed = DerReader::new(key).expect(tag::OCTET_STRING);
                let seed = seed.map_err(malformed)?;
                let seed = seed.try_into().map_err(|_| {
                    let length = seed.len();
                    KeyError::Pkcs8(format!(
                        "x509: invalid Ed25519 private key length: {length}"
                    ))
                })?;
                Ok(ed25519(seed))
            }
            _ => Err(KeyError::Pkcs8(
                "x509: PKCS#8 wrapping contained private key with unknown algorithm".to_owned(),
            )),
        }
    }

    /// Encodes the key in PEM, in the form that Go uses for its kind.
    pub(super) fn to_pem(&self) -> String {
        match self {
            Self::Rsa(key) => pem::encode("RSA PRIVATE KEY", &key.to_der()),
            Self::Ec(key) => {
                let curve = element(tag::OID, oid::P256);
                let bytes = sequence(&[
                    &integer(&[1]),
                    &element(tag::OCTET_STRING, &key.to_bytes()),
                    &element(tag::constructed(0), &curve),
                    &element(tag::constructed(1), &bit_string(&ec_point(key))),
                ]);
                pem::encode("EC PRIVATE KEY", &bytes)
            }
            Self::Ed25519(key) => {
                let seed = element(tag::OCTET_STRING, &key.to_bytes());
                let bytes = sequence(&[
                    &integer(&[0]),
                    &sequence(&[&element(tag::OID, oid::ED25519)]),
                    &element(tag::OCTET_STRING, &seed),
                ]);
                pem::encode("PRIVATE KEY", &bytes)
            }
            Self::Dsa(key) => pem::encode("DSA PRIVATE KEY", &key.to_der()),
        }
    }

    /// Returns the public key as encoded in certificates, and the bits that identify it.
    pub(super) fn public_key(&self) -> Result<PublicKey, KeyError> {
        let (algorithm, bits) = match self {
            Self::Rsa(key) => {
                let null = element(tag::NULL, &[]);
                let algorithm = sequence(&[&element(tag::OID, oid::RSA), &null]);
                (algorithm, key.public_to_der())
            }
            Self::Ec(key) => {
                let curve = element(tag::OID, oid::P256);
                let algorithm = sequence(&[&element(tag::OID, oid::EC), &curve]);
                (algorithm, ec_point(key))
            }
            Self::Ed25519(key) => {
                let bits = key.verifying_key().to_bytes().to_vec();
                (sequence(&[&element(tag::OID, oid::ED25519)]), bits)
            }
            Self::Dsa(_) => return Err(KeyError::NoSigner),
        };
        let info = sequence(&[&algorithm, &bit_string(&bits)]);
        Ok(PublicKey { info, bits })
    }

    /// Returns the encoded name of the algorithm that [`PrivateKey::sign`] uses.
    pub(super) fn signature_algorithm(&self) -> Result<Vec<u8>, KeyError> {
        Ok(match self {
            Self::Rsa(_) => {
                let name = element(tag::OID, oid::SHA256_WITH_RSA);
                sequence(&[&name, &element(tag::NULL, &[])])
            }
            Self::Ec(_) => sequence(&[&element(tag::OID, oid::ECDSA_WITH_SHA256)]),
            Self::Ed25519(_) => sequence(&[&element(tag::OID, oid::ED25519)]),
            Self::Dsa(_) => return Err(KeyError::NoSigner),
        })
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self {
            Self::Rsa(key) => Ok(key.sign(message)?),
            Self::Ec(key) => {
                let key = p256::ecdsa::SigningKey::from(&**key);
                let signature: p256::ecdsa::Signature = key.sign(message);
                Ok(signature.to_der().as_bytes().to_vec())
            }
            Self::Ed25519(key) => Ok(key.sign(message).to_bytes().to_vec()),
            Self::Dsa(_) => Err(KeyError::NoSigner),
        }
    }
}

/// A public key in certificates.
pub(super) struct PublicKey {
    /// The encoded key with its algorithm.
    pub(super) info: Vec<u8>,
    /// The key alone, from which key identifiers are derived.
    pub(super) bits: Vec<u8>,
}

fn ec_point(key: &p256::SecretKey) -> Vec<u8> {
    key.public_key().to_sec1_point(false).as_bytes().to_vec()
}

fn ed25519(seed: &[u8; 32]) -> PrivateKey {
    PrivateKey::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(seed)))
}

fn rsa_from_der(bytes: &[u8]) -> Result<PrivateKey, RsaError> {
    Ok(PrivateKey::Rsa(Box::new(RsaKey::from_der(bytes)?)))
}

/// Parses a SEC 1 key. The curve is given in the key or in its wrapper.
fn ec_from_der(bytes: &[u8], outer_curve: Option<&[u8]>) -> Result<PrivateKey, String> {
    let malformed = |error: Malformed| format!("x509: failed to parse EC private key: {error}");
    let mut fields = DerReader::new(bytes).sequence().map_err(malformed)?;
    if fields.expect(tag::INTEGER).map_err(malformed)? != [1] {
        return Err("x509: unknown EC private key version".to_owned());
    }
    let scalar = fields.expect(tag::OCTET_STRING).map_err(malformed)?;
    let mut curve = outer_curve;
    if curve.is_none() && fields.peek() == Some(tag::constructed(0)) {
        let inner = fields.expect(tag::constructed(0)).map_err(malformed)?;
        curve = Some(DerReader::new(inner).expect(tag::OID).map_err(malformed)?);
    }
    if curve != Some(oid::P256) {
        return Err("x509: unknown elliptic curve".to_owned());
    }
    // Some writers pad the number with zeros and others omit leading zeros.
    let zeros = scalar.iter().take_while(|&&byte| byte == 0).count();
    let significant = scalar.get(zeros..).unwrap_or_default();
    let padding = 32_usize.checked_sub(significant.len());
    let padding = padding.ok_or_else(|| "x509: invalid private key length".to_owned())?;
    let padded = [vec![0; padding].as_slice(), significant].concat();
    let key = p256::SecretKey::from_slice(&padded);
    let key = key.map_err(|_| "x509: invalid elliptic curve private key value".to_owned())?;
    Ok(PrivateKey::Ec(Box::new(key)))
}
