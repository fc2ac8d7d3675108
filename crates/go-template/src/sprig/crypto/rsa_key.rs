//! RSA keys generated as in Go: two primes of half the bits, and the exponent 65537.
//!
//! The primes come from `crypto-primes`, whose fixed-width arithmetic finds them three times faster
//! than the `rsa` crate, which does the rest.

use crypto_bigint::{
    Bounded, Encoding, RandomBits, RandomMod, U1024, U2048, UnsignedWithMontyForm,
};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use rsa::{BigUint, RsaPrivateKey};

use super::entropy::Entropy;
use crate::error::FuncError;

/// The size of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySize {
    /// Used in certificates.
    Bits2048,
    /// Used by `genPrivateKey "rsa"`.
    Bits4096,
}

/// Generates a key. Its primes are searched in parallel.
pub(super) fn generate(size: KeySize) -> Result<RsaPrivateKey, FuncError> {
    let prime = || match size {
        KeySize::Bits2048 => random_prime::<U1024>(),
        KeySize::Bits4096 => random_prime::<U2048>(),
    };
    loop {
        let (p, q) = std::thread::scope(|scope| {
            // Without a second thread it only takes longer.
            let other = std::thread::Builder::new().spawn_scoped(scope, prime);
            let p = prime();
            let q = match other {
                Ok(other) => other.join(),
                Err(_) => Ok(prime()),
            };
            (p, q)
        });
        let q = q.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // Fails only if the primes are equal or incompatible with the exponent.
        if let Ok(key) = RsaPrivateKey::from_p_q(p?, q?, BigUint::from(65_537_u32)) {
            return Ok(key);
        }
    }
}

/// Generates a prime that fills `T`. Its two highest bits are set, so that the product of two
/// primes has twice the bits.
fn random_prime<T>() -> Result<BigUint, FuncError>
where
    T: UnsignedWithMontyForm + RandomBits + RandomMod + Bounded + Encoding,
{
    let mut random = Entropy::new()?;
    let failed = |error| FuncError::new(format!("error generating rsa key: {error}"));
    let sieve = SmallFactorsSieveFactory::<T>::new(Flavor::Any, T::BITS, SetBits::TwoMsb)
        .map_err(failed)?;
    loop {
        let found = sieve_and_find(&mut random, sieve.clone(), |_, candidate| {
            is_prime(Flavor::Any, candidate)
        });
        if let Some(prime) = found.map_err(failed)? {
            return Ok(BigUint::from_bytes_be(prime.to_be_bytes().as_ref()));
        }
    }
}

#[cfg(test)]
mod tests {
    use rsa::traits::{PrivateKeyParts, PublicKeyParts};
    use rsa::{Pkcs1v15Sign, RsaPrivateKey};

    use super::{KeySize, generate};

    fn check(key: &RsaPrivateKey, bits: usize) {
        key.validate().unwrap();
        assert_eq!(key.n().bits(), bits);
        assert!(key.primes().iter().all(|prime| prime.bits() == bits / 2));
        let signature = key.sign(Pkcs1v15Sign::new_unprefixed(), b"text").unwrap();
        let public = key.to_public_key();
        public
            .verify(Pkcs1v15Sign::new_unprefixed(), b"text", &signature)
            .unwrap();
    }

    #[test]
    fn keys_are_valid_distinct_and_of_the_requested_size() {
        let keys = [(); 3].map(|()| generate(KeySize::Bits2048).unwrap());
        for key in &keys {
            check(key, 2048);
        }
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        check(&generate(KeySize::Bits4096).unwrap(), 4096);
    }
}
