//! The cryptography that the library of Sigstore computes with: that of rustls, which is in the program already.

use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::{AlgorithmIdentifier, alg_id};
use sha2::Digest as _;
use sigstore_verify::crypto::{
    CryptoProvider, Error, HashContext, SigningScheme, install_default_provider,
};
use sigstore_verify::types::HashAlgorithm;

/// Says how hashes and signatures are computed. If the program has said so before, it stays as it is.
pub(super) fn install() {
    let _ = install_default_provider(&Rustls);
}

#[derive(Debug)]
struct Rustls;

/// A hash that is being computed.
struct Hash<D>(D);

impl<D: sha2::Digest + Send> HashContext for Hash<D> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

impl CryptoProvider for Rustls {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>, Error> {
        match algorithm {
            HashAlgorithm::Sha2256 => Ok(Box::new(Hash(sha2::Sha256::new()))),
            HashAlgorithm::Sha2384 => Ok(Box::new(Hash(sha2::Sha384::new()))),
            HashAlgorithm::Sha2512 => Ok(Box::new(Hash(sha2::Sha512::new()))),
            other => Err(unsupported(&format!("hashes of the kind {other}"))),
        }
    }

    fn verify_raw(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), Error> {
        let (of_key, of_signature) = identifiers(scheme)?;
        let provider = ring::default_provider().signature_verification_algorithms;
        let mut known = provider.all.iter();
        let algorithm = known.find(|one| {
            one.public_key_alg_id() == of_key && one.signature_alg_id() == of_signature
        });
        let algorithm = algorithm.ok_or_else(|| unsupported(scheme.name()))?;
        algorithm
            .verify_signature(key, data, signature)
            .map_err(|_| invalid(scheme))
    }

    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        digest: &[u8],
        signature: &[u8],
    ) -> Result<(), Error> {
        if scheme != SigningScheme::EcdsaP256Sha256 {
            let what = format!("{} in a tag with signatures", scheme.name());
            return Err(unsupported(&what));
        }
        let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(key).map_err(|_| invalid(scheme))?;
        let signature = p256::ecdsa::Signature::from_der(signature).map_err(|_| invalid(scheme))?;
        key.verify_prehash(digest, &signature)
            .map_err(|_| invalid(scheme))
    }
}

/// Returns how rustls names a kind of signatures: the key, and the signature.
fn identifiers(scheme: SigningScheme) -> Result<(AlgorithmIdentifier, AlgorithmIdentifier), Error> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => (alg_id::ECDSA_P256, alg_id::ECDSA_SHA256),
        SigningScheme::EcdsaP256Sha384 => (alg_id::ECDSA_P256, alg_id::ECDSA_SHA384),
        SigningScheme::EcdsaP384Sha256 => (alg_id::ECDSA_P384, alg_id::ECDSA_SHA256),
        SigningScheme::EcdsaP384Sha384 => (alg_id::ECDSA_P384, alg_id::ECDSA_SHA384),
        SigningScheme::Ed25519 => (alg_id::ED25519, alg_id::ED25519),
        SigningScheme::RsaPkcs1Sha256 => (alg_id::RSA_ENCRYPTION, alg_id::RSA_PKCS1_SHA256),
        SigningScheme::RsaPkcs1Sha384 => (alg_id::RSA_ENCRYPTION, alg_id::RSA_PKCS1_SHA384),
        SigningScheme::RsaPkcs1Sha512 => (alg_id::RSA_ENCRYPTION, alg_id::RSA_PKCS1_SHA512),
        SigningScheme::RsaPssSha256 => (alg_id::RSA_ENCRYPTION, alg_id::RSA_PSS_SHA256),
        SigningScheme::RsaPssSha384 => (alg_id::RSA_ENCRYPTION, alg_id::RSA_PSS_SHA384),
        SigningScheme::RsaPssSha512 => (alg_id::RSA_ENCRYPTION, alg_id::RSA_PSS_SHA512),
        other => return Err(unsupported(other.name())),
    })
}

fn unsupported(what: &str) -> Error {
    Error::UnsupportedAlgorithm(format!("{what} are not supported"))
}

fn invalid(scheme: SigningScheme) -> Error {
    Error::Verification(format!("the signature ({}) is wrong", scheme.name()))
}
