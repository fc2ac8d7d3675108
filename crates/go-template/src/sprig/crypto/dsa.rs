//! DSA keys with primes of 2048 and 256 bits, which are obsolete but supported by Sprig.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Encoding, NonZero, Odd, U256, U2048};
use crypto_primes::{Flavor, is_prime};

use super::der::{DerReader, Malformed, integer, sequence, tag};
use super::prime;
use crate::error::FuncError;
use crate::sprig::random;

/// FIPS 186 allows this many candidates for P before a new Q is required.
const CANDIDATES: u32 = 4 * U2048::BITS;

/// A key with its parameters, as big-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DsaKey {
    /// P, Q, G, Y and X.
    numbers: [Vec<u8>; 5],
}

impl DsaKey {
    /// Encodes version 0 and the five numbers.
    pub(super) fn to_der(&self) -> Vec<u8> {
        let numbers = self.numbers.each_ref().map(|number| integer(number));
        sequence(&[&integer(&[0]), &numbers.concat()])
    }

    pub(super) fn from_der(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = DerReader::new(bytes).sequence()?;
        fields.expect(tag::INTEGER)?;
        let mut numbers: [Vec<u8>; 5] = Default::default();
        for number in &mut numbers {
            *number = fields.expect(tag::INTEGER)?.to_vec();
        }
        Ok(Self { numbers })
    }
}

pub(super) fn generate() -> Result<DsaKey, FuncError> {
    let failed = || FuncError::new("error generating dsa key: no prime was found");
    let (p, q) = loop {
        let primes = prime::search::<U256>(1)?;
        let q = primes
            .first()
            .ok_or_else(failed)?
            .resize::<{ U2048::LIMBS }>();
        if let Some(p) = prime_above_multiple(&q)? {
            break (p, q);
        }
    };
    let modulus = Odd::new(p).into_option().ok_or_else(failed)?;
    let order = NonZero::new(q).into_option().ok_or_else(failed)?;
    let params = FixedMontyParams::new_vartime(modulus);
    let power = |base: &U2048, exponent: &U2048| {
        FixedMontyForm::new(base, &params).pow(exponent).retrieve()
    };

    let exponent = p.wrapping_sub(&U2048::ONE).wrapping_div_vartime(&order);
    let mut bases = (2_u32..).map(|base| power(&U2048::from(base), &exponent));
    let generator = bases.find(|generator| *generator != U2048::ONE);
    let generator = generator.ok_or_else(failed)?;
    let x = loop {
        let x = random_number::<U256>()?.resize();
        if x > U2048::ONE && x < q {
            break x;
        }
    };
    let y = power(&generator, &x);
    Ok(DsaKey {
        numbers: [p, q, generator, y, x].map(|number| number.to_be_bytes().as_ref().to_vec()),
    })
}

/// Searches a prime of 2048 bits that is one more than a multiple of `q`.
fn prime_above_multiple(q: &U2048) -> Result<Option<U2048>, FuncError> {
    let Some(step) = NonZero::new(q.shl_vartime(1)).into_option() else {
        return Ok(None);
    };
    let highest = U2048::ONE.shl_vartime(U2048::BITS - 1);
    for _ in 0..CANDIDATES {
        let candidate = random_number::<U2048>()? | highest;
        let multiple = candidate.wrapping_sub(&candidate.rem_vartime(&step));
        let p = multiple.wrapping_add(&U2048::ONE);
        let is_candidate = || prime::without_small_factors(p).next() == Some(p);
        if p >= highest && is_candidate() && is_prime(Flavor::Any, &p) {
            return Ok(Some(p));
        }
    }
    Ok(None)
}

pub(super) fn random_number<T: Encoding>() -> Result<T, FuncError>
where
    T::Repr: Default,
{
    let mut bytes = T::Repr::default();
    random::fill(bytes.as_mut())?;
    Ok(T::from_be_bytes(bytes))
}
