//! RSA keys as in Go: generated with two primes of half the bits and the exponent 65537, read and written in
//! the form of PKCS #1, and used to sign.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, ConcatenatingMul, NonZero, Odd, Resize, U1024, U2048};
use sha2::{Digest, Sha256};

use super::der::{DerReader, Malformed, integer, sequence, tag};
use super::prime::{self, Width};
use crate::error::FuncError;

/// The DER prefix of a PKCS #1 signature that identifies SHA-256.
const SHA256_PREFIX: &[u8] =
    b"\x30\x31\x30\x0D\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";

/// Keys with fewer bits do not sign, as in Go.
const MIN_BITS: u32 = 1024;
/// Larger keys are refused: the time of a signature grows with the third power of the bits.
const MAX_BITS: u32 = 16_384;
const EXPONENT: u32 = 65_537;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySize {
    /// Used in certificates.
    Bits2048,
    /// Used by `genPrivateKey "rsa"`.
    Bits4096,
}

/// An error while reading or using a key. Most texts are Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RsaError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("x509: unsupported private key version")]
    Version,
    #[error("x509: private key contains zero or negative value")]
    NotPositive,
    /// Go reads such keys, but advises against them.
    #[error("crypto/rsa: keys of more than two primes are not supported")]
    ManyPrimes,
    #[error("crypto/rsa: {0}-bit keys are larger than the limit of {MAX_BITS} bits")]
    TooLong(u32),
    #[error(
        "crypto/rsa: {0}-bit keys are insecure (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
    )]
    TooShort(u32),
    #[error("crypto/rsa: {0}")]
    Invalid(&'static str),
}

/// A private key whose numbers fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RsaKey {
    modulus: Odd<BoxedUint>,
    public_exponent: BoxedUint,
    private_exponent: BoxedUint,
    primes: [Odd<BoxedUint>; 2],
    /// The private exponent modulo each prime less one.
    exponents: [BoxedUint; 2],
    /// The inverse of the second prime modulo the first.
    coefficient: BoxedUint,
}

/// Generates a key.
pub(super) fn generate(size: KeySize) -> Result<RsaKey, FuncError> {
    match size {
        KeySize::Bits2048 => generate_from::<U1024>(),
        KeySize::Bits4096 => generate_from::<U2048>(),
    }
}

fn generate_from<T: Width>() -> Result<RsaKey, FuncError> {
    loop {
        let primes = prime::search::<T>(2)?;
        let mut primes = primes
            .iter()
            .map(|prime| number(prime.to_be_bytes().as_ref()));
        // A prime does not fit if it is a multiple of the exponent more than one.
        if let (Some(p), Some(q)) = (primes.next(), primes.next())
            && let Ok(key) = RsaKey::from_primes(p, q)
        {
            return Ok(key);
        }
    }
}

impl RsaKey {
    fn from_primes(p: BoxedUint, q: BoxedUint) -> Result<Self, RsaError> {
        let modulus = p.concatenating_mul(&q);
        let order = less_one(&p).concatenating_mul(less_one(&q));
        let exponent = number(&EXPONENT.to_be_bytes());
        let order = NonZero::new(order).into_option();
        let order = order.ok_or(RsaError::Invalid("invalid prime"))?;
        let private = exponent.clone().resize(order.bits_precision());
        let private = private.invert_mod(&order).into_option();
        let private = private.ok_or(RsaError::Invalid("invalid prime"))?;
        Self::checked(modulus, exponent, private, p, q, None)
    }

    /// Reads the sequence of PKCS #1. The numbers after the first two primes may be missing.
    pub(super) fn from_der(bytes: &[u8]) -> Result<Self, RsaError> {
        let mut whole = DerReader::new(bytes);
        let mut fields = whole.sequence()?;
        if !whole.is_empty() {
            return Err(RsaError::Malformed(Malformed));
        }
        if !matches!(fields.expect(tag::INTEGER)?, [0 | 1]) {
            return Err(RsaError::Version);
        }
        let mut next = || positive(fields.expect(tag::INTEGER)?);
        let (modulus, public, private) = (next()?, next()?, next()?);
        let (p, q) = (next()?, next()?);
        let mut computed = Vec::new();
        while computed.len() < 3 && fields.peek() == Some(tag::INTEGER) {
            computed.push(positive(fields.expect(tag::INTEGER)?)?);
        }
        if fields.peek() == Some(tag::SEQUENCE) && !fields.sequence()?.is_empty() {
            return Err(RsaError::ManyPrimes);
        }
        let computed = <[_; 3]>::try_from(computed);
        let computed = computed.map(|[for_p, for_q, coefficient]| ([for_p, for_q], coefficient));
        Self::checked(modulus, public, private, p, q, computed.ok())
    }

    /// Makes a key of numbers that are checked as Go checks them. The numbers that speed up a signature, the
    /// exponents for both primes and the coefficient, are computed unless they are given.
    fn checked(
        modulus: BoxedUint,
        public_exponent: BoxedUint,
        private_exponent: BoxedUint,
        p: BoxedUint,
        q: BoxedUint,
        computed: Option<([BoxedUint; 2], BoxedUint)>,
    ) -> Result<Self, RsaError> {
        use RsaError::Invalid;

        let bits = modulus.bits_vartime();
        if bits > MAX_BITS {
            return Err(RsaError::TooLong(bits));
        }
        if private_exponent >= modulus {
            return Err(Invalid("invalid private exponent"));
        }
        let even = "public modulus is even";
        let modulus = Odd::new(modulus).into_option().ok_or(Invalid(even))?;
        if public_exponent < number(&[2]) {
            return Err(Invalid("public exponent too small or negative"));
        }
        if !public_exponent.bit_vartime(0) {
            return Err(Invalid("public exponent is even"));
        }
        if public_exponent.bits_vartime() > 31 {
            return Err(Invalid("public exponent too large"));
        }
        if p >= *modulus || q >= *modulus {
            return Err(Invalid("invalid prime"));
        }
        if p.concatenating_mul(&q) != *modulus {
            return Err(Invalid("p * q != n"));
        }
        let orders = [&p, &q].map(|prime| NonZero::new(less_one(prime)).into_option());
        let odd = |prime| Odd::new(prime).into_option();
        let ([Some(p_order), Some(q_order)], Some(p), Some(q)) = (orders, odd(p), odd(q)) else {
            return Err(Invalid("invalid prime"));
        };
        let ([p_exponent, q_exponent], coefficient) = if let Some(computed) = computed {
            computed
        } else {
            let exponents = [&p_order, &q_order].map(|order| private_exponent.rem_vartime(order));
            (exponents, inverse(&q, &p)?)
        };
        for (exponent, order) in [(&p_exponent, &p_order), (&q_exponent, &q_order)] {
            let product = exponent.concatenating_mul(&public_exponent);
            let product = product.rem_vartime(order);
            if exponent >= order.as_ref() || product != BoxedUint::one() {
                return Err(Invalid("invalid CRT exponent"));
            }
        }
        let product = coefficient.concatenating_mul(&*q);
        let product = product.rem_vartime(p.as_nz_ref());
        if coefficient >= *p || product != BoxedUint::one() {
            return Err(Invalid("invalid CRT coefficient"));
        }
        if private_exponent.rem_vartime(&p_order) != p_exponent {
            return Err(Invalid("d does not match dP"));
        }
        if private_exponent.rem_vartime(&q_order) != q_exponent {
            return Err(Invalid("d does not match dQ"));
        }
        let (larger, smaller) = if p > q { (&p, &q) } else { (&q, &p) };
        let difference = larger.wrapping_sub(&**smaller).bits_vartime();
        if difference + 100 <= bits / 2 {
            return Err(Invalid("|p - q| too small"));
        }
        if private_exponent.bits_vartime() <= bits / 2 {
            return Err(Invalid("d too small"));
        }
        Ok(Self {
            modulus,
            public_exponent,
            private_exponent,
            primes: [p, q],
            exponents: [p_exponent, q_exponent],
            coefficient,
        })
    }

    /// Encodes the key in the form of PKCS #1.
    pub(super) fn to_der(&self) -> Vec<u8> {
        let Self {
            modulus,
            public_exponent,
            private_exponent,
            primes: [p, q],
            exponents: [p_exponent, q_exponent],
            coefficient,
        } = self;
        let numbers = [
            modulus,
            public_exponent,
            private_exponent,
            p,
            q,
            p_exponent,
            q_exponent,
            coefficient,
        ];
        let numbers = numbers.map(|number| integer(&number.to_be_bytes()));
        sequence(&[&integer(&[0]), &numbers.concat()])
    }

    /// Encodes the public key in the form of PKCS #1.
    pub(super) fn public_to_der(&self) -> Vec<u8> {
        let modulus = integer(&self.modulus.to_be_bytes());
        let exponent = integer(&self.public_exponent.to_be_bytes());
        sequence(&[&modulus, &exponent])
    }

    /// Signs a message with SHA-256 and the padding of PKCS #1, version 1.5.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, RsaError> {
        let bits = self.modulus.bits_vartime();
        if bits < MIN_BITS {
            return Err(RsaError::TooShort(bits));
        }
        let length = usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
        let hash = [SHA256_PREFIX, &Sha256::digest(message)].concat();
        let padding = vec![0xFF; length.saturating_sub(hash.len() + 3)];
        let padded = [&[0, 1], padding.as_slice(), &[0], &hash].concat();
        let padded = number(&padded);

        let signature = self.private_power(&padded);
        // A fault while computing would reveal the primes.
        if power(&signature, &self.public_exponent, &self.modulus) != padded {
            return Err(RsaError::Invalid("decryption error"));
        }
        let bytes = signature.to_be_bytes();
        let zeros = vec![0; length.saturating_sub(bytes.len())];
        let significant = bytes.get(bytes.len().saturating_sub(length)..);
        Ok([&zeros, significant.unwrap_or_default()].concat())
    }

    /// Raises a number to the private exponent.
    fn private_power(&self, number: &BoxedUint) -> BoxedUint {
        let [p, q] = &self.primes;
        let [p_exponent, q_exponent] = &self.exponents;
        let p_power = power(number, p_exponent, p);
        let q_power = power(number, q_exponent, q);
        let difference = p_power.sub_mod(&q_power.rem(p.as_nz_ref()), p.as_nz_ref());
        let product = difference.concatenating_mul(&self.coefficient);
        let factor = product.rem(p.as_nz_ref());
        // Less than the modulus, because both primes are larger than what they are multiplied with or added to.
        factor.concatenating_mul(&**q).wrapping_add(&q_power)
    }
}

/// Returns a number of big-endian bytes.
fn number(bytes: &[u8]) -> BoxedUint {
    BoxedUint::from_be_slice_vartime(bytes)
}

/// Returns a number that is encoded in DER and must be positive.
fn positive(bytes: &[u8]) -> Result<BoxedUint, RsaError> {
    let number = number(bytes);
    let negative = bytes.first().is_some_and(|&first| first >= 0x80);
    if negative || number.is_zero().into() {
        return Err(RsaError::NotPositive);
    }
    Ok(number)
}

/// Returns the inverse of a number modulo a prime.
fn inverse(number: &BoxedUint, prime: &Odd<BoxedUint>) -> Result<BoxedUint, RsaError> {
    let inverse = number.rem_vartime(prime.as_nz_ref()).invert_odd_mod(prime);
    let coprime = RsaError::Invalid("prime factors are not relatively prime");
    inverse.into_option().ok_or(coprime)
}

fn less_one(number: &BoxedUint) -> BoxedUint {
    number.wrapping_sub(BoxedUint::one())
}

fn power(base: &BoxedUint, exponent: &BoxedUint, modulus: &Odd<BoxedUint>) -> BoxedUint {
    let params = BoxedMontyParams::new_vartime(modulus.clone());
    let base = BoxedMontyForm::new(base.rem(modulus.as_nz_ref()), &params);
    base.pow(exponent).retrieve()
}

#[cfg(test)]
mod tests;
