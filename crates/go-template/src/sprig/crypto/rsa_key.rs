//! RSA keys as Go makes them: two primes of half the bits, and 65537.
//!
//! The primes come from `crypto-primes`, whose arithmetic of fixed width finds them three times
//! sooner than the `rsa` crate, which does the rest.

use crypto_bigint::{
    Bounded, Encoding, RandomBits, RandomMod, U1024, U2048, UnsignedWithMontyForm,
};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use rsa::{BigUint, RsaPrivateKey};

use super::entropy::Entropy;
use crate::error::FuncError;

/// The bits of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySize {
    /// As in certificates.
    Bits2048,
    /// As of `genPrivateKey "rsa"`.
    Bits4096,
}

/// Makes a key. Its primes are looked for side by side.
pub(super) fn generate(size: KeySize) -> Result<RsaPrivateKey, FuncError> {
    let prime = || match size {
        KeySize::Bits2048 => random_prime::<U1024>(),
        KeySize::Bits4096 => random_prime::<U2048>(),
    };
    loop {
        let (p, q) = std::thread::scope(|scope| {
            let other = scope.spawn(prime);
            let p = prime();
            (p, other.join())
        });
        let q = q.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // It fails only where the primes are the same or do not go with the exponent.
        if let Ok(key) = RsaPrivateKey::from_p_q(p?, q?, BigUint::from(65_537_u32)) {
            return Ok(key);
        }
    }
}

/// A prime that fills `T`. Its two highest bits are set, so that the product of two of them has
/// twice its bits.
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
    fn keys_are_valid_of_the_size_asked_for_and_never_the_same() {
        let keys = [(); 3].map(|()| generate(KeySize::Bits2048).unwrap());
        for key in &keys {
            check(key, 2048);
        }
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        check(&generate(KeySize::Bits4096).unwrap(), 4096);
    }
}
