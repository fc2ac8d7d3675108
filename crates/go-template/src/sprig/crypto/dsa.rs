//! DSA keys with primes of 2048 and 256 bits, which are obsolete but supported by Sprig.

use rsa::BigUint;
use rsa::rand_core::RngCore;

use super::der::{DerReader, Malformed, integer, sequence, tag};
use super::entropy::Entropy;

const P_BITS: usize = 2048;
const Q_BITS: usize = 256;
/// Rounds of the primality test: the error probability is below 4^-rounds.
const ROUNDS: usize = 40;
const SMALL_PRIMES: [u32; 53] = [
    3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
    101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193,
    197, 199, 211, 223, 227, 229, 233, 239, 241, 251,
];

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

pub(super) fn generate(random: &mut Entropy) -> DsaKey {
    let one = BigUint::from(1_u8);
    let (p, q) = primes(random);
    let exponent = (&p - &one) / &q;
    let mut base = BigUint::from(2_u8);
    let generator = loop {
        let generator = base.modpow(&exponent, &p);
        if generator != one {
            break generator;
        }
        base += &one;
    };
    let x = loop {
        let x = number(random, Q_BITS);
        if x > one && x < q {
            break x;
        }
    };
    let y = generator.modpow(&x, &p);
    DsaKey {
        numbers: [p, q, generator, y, x].map(|number| number.to_bytes_be()),
    }
}

/// Generates primes P and Q such that Q divides P - 1.
fn primes(random: &mut Entropy) -> (BigUint, BigUint) {
    loop {
        let q = with_ends_set(number(random, Q_BITS), Q_BITS);
        if !is_prime(&q, random) {
            continue;
        }
        // FIPS 186 allows this many candidates before a new Q is required.
        for _ in 0..4 * P_BITS {
            let candidate = with_ends_set(number(random, P_BITS), P_BITS);
            let rest = &candidate % (&q * 2_u32);
            let p = candidate - rest + 1_u32;
            if p.bits() == P_BITS && is_prime(&p, random) {
                return (p, q);
            }
        }
    }
}

fn number(random: &mut Entropy, bits: usize) -> BigUint {
    let mut bytes = vec![0; bits / 8];
    random.fill_bytes(&mut bytes);
    BigUint::from_bytes_be(&bytes)
}

/// Returns the number with its lowest and highest bit set.
fn with_ends_set(number: BigUint, bits: usize) -> BigUint {
    let one = BigUint::from(1_u8);
    let top = &one << (bits - 1);
    let below_top = number % &top;
    let odd = if &below_top % 2_u32 == one {
        below_top
    } else {
        below_top + &one
    };
    odd + top
}

/// Runs trial division and then the Miller-Rabin test.
fn is_prime(number: &BigUint, random: &mut Entropy) -> bool {
    let (zero, one) = (BigUint::from(0_u8), BigUint::from(1_u8));
    if SMALL_PRIMES.iter().any(|&prime| number % prime == zero) {
        return false;
    }
    let last = number - &one;
    let twos = last.trailing_zeros().unwrap_or(0);
    let odd = &last >> twos;
    (0..ROUNDS).all(|_| {
        let mut bytes = vec![0; number.bits() / 8];
        random.fill_bytes(&mut bytes);
        let base = BigUint::from_bytes_be(&bytes) % (number - 3_u32) + 2_u32;
        let mut power = base.modpow(&odd, number);
        if power == one || power == last {
            return true;
        }
        for _ in 1..twos {
            power = &power * &power % number;
            if power == last {
                return true;
            }
        }
        false
    })
}
