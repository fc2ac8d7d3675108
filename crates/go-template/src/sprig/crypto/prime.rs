//! Random primes, searched by all processors together.
//!
//! A worker takes a random odd number, removes the multiples of small primes from the odd numbers after it,
//! and tests what is left as `crypto-primes` tests primes (Baillie-PSW).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crypto_bigint::{Encoding, RandomMod, UnsignedWithMontyForm};
use crypto_primes::{Flavor, is_prime};

use crate::error::FuncError;
use crate::sprig::random;

/// An integer of fixed width in which primes are searched.
pub(super) trait Width: UnsignedWithMontyForm + RandomMod + Encoding + Copy {}

impl<T: UnsignedWithMontyForm + RandomMod + Encoding + Copy> Width for T {}

/// More workers than primes gain less and less.
const MAX_WORKERS: usize = 8;

/// Number of odd numbers that a worker sieves at once. One of 355 is prime among those of 1,024 bits.
const WINDOW: usize = 4096;

/// Small primes are those below this number. With twice the primes, a twentieth of the candidates would be left
/// out that now are tested.
const SMALL: usize = 1 << 16;

/// Finds different primes that fill `T`. Their two highest bits are set, so that the product of two primes has
/// twice the bits.
pub(super) fn search<T: Width>(count: usize) -> Result<Vec<T>, FuncError> {
    let search = Search {
        count,
        found: Mutex::default(),
        done: AtomicBool::new(false),
    };
    let workers = if host::is_simulated() {
        1
    } else {
        std::thread::available_parallelism().map_or(1, usize::from)
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.min(MAX_WORKERS) {
            // Without other threads it only takes longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || search.work());
        }
        search.work()
    })?;
    Ok(search
        .found
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

struct Search<T> {
    count: usize,
    found: Mutex<Vec<T>>,
    done: AtomicBool,
}

impl<T: Width> Search<T> {
    /// Tests candidates until all primes are found, by this worker or by others.
    fn work(&self) -> Result<(), FuncError> {
        while !self.done.load(Ordering::Relaxed) {
            if let Some(prime) = self.next_prime(&random_odd::<T>()?) {
                let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.len() < self.count && !found.contains(&prime) {
                    found.push(prime);
                }
                self.done
                    .store(found.len() == self.count, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Returns the first prime in the window from an odd number on, unless all primes are found meanwhile.
    fn next_prime(&self, start: &T) -> Option<T> {
        let mut offset = 0_u32;
        for composite in sieve(start) {
            if !composite {
                if self.done.load(Ordering::Relaxed) {
                    return None;
                }
                let candidate = start.checked_add(&T::from(offset)).into_option()?;
                if is_prime(Flavor::Any, &candidate) {
                    return Some(candidate);
                }
            }
            offset += 2;
        }
        None
    }
}

/// Returns a random odd number whose two highest bits are set.
fn random_odd<T: Width>() -> Result<T, FuncError> {
    let mut bytes = T::from(0_u8).to_be_bytes();
    random::fill(bytes.as_mut())?;
    if let Some(first) = bytes.as_mut().first_mut() {
        *first |= 0b1100_0000;
    }
    if let Some(last) = bytes.as_mut().last_mut() {
        *last |= 1;
    }
    Ok(T::from_be_bytes(bytes))
}

/// Returns which of the odd numbers from `start` on have a small factor.
fn sieve<T: Width>(start: &T) -> Vec<bool> {
    let bytes = start.to_be_bytes();
    let mut composite = vec![false; WINDOW];
    for pair in SMALL_PRIMES.chunks(2) {
        // The product of two small primes fits into 32 bits, so that one division of the number serves both.
        let rest = remainder(bytes.as_ref(), pair.iter().product());
        for &prime in pair {
            // The first index i with start + 2i = 0 modulo the prime; half of it is (prime + 1) / 2.
            let missing = (prime - rest % prime) % prime;
            let first = missing * (prime.div_ceil(2)) % prime;
            let (Ok(first), Ok(step)) = (usize::try_from(first), usize::try_from(prime)) else {
                continue;
            };
            let multiples = composite.iter_mut().skip(first).step_by(step);
            multiples.for_each(|composite| *composite = true);
        }
    }
    composite
}

/// Returns whether a number has a small factor, or is one.
pub(super) fn has_small_factor<T: Width>(number: &T) -> bool {
    let bytes = number.to_be_bytes();
    SMALL_PRIMES.chunks(2).any(|pair| {
        let rest = remainder(bytes.as_ref(), pair.iter().product());
        pair.iter().any(|&prime| rest.is_multiple_of(prime))
    })
}

/// Returns the remainder of a number in big-endian bytes, whose count is a multiple of four, by a divisor of
/// at most 32 bits.
fn remainder(number: &[u8], divisor: u64) -> u64 {
    number.as_chunks().0.iter().fold(0, |rest, word| {
        ((rest << 32) | u64::from(u32::from_be_bytes(*word))) % divisor
    })
}

/// The odd primes below [`SMALL`].
static SMALL_PRIMES: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut composite = vec![false; SMALL];
    let mut primes = Vec::new();
    for number in (3..SMALL).step_by(2) {
        if composite.get(number) == Some(&false) {
            primes.extend(u64::try_from(number));
            let multiples = composite.iter_mut().skip(number).step_by(number);
            multiples.for_each(|composite| *composite = true);
        }
    }
    primes
});

#[cfg(test)]
mod tests {
    use crypto_bigint::{U64, U256};
    use crypto_primes::{Flavor, is_prime};

    use super::{WINDOW, has_small_factor, remainder, search, sieve};

    #[test]
    fn primes_are_different_and_have_their_highest_bits_set() {
        let primes = search::<U256>(3).unwrap();
        assert_eq!(primes.len(), 3);
        assert!(primes[0] != primes[1] && primes[1] != primes[2] && primes[0] != primes[2]);
        for prime in primes {
            assert!(is_prime(Flavor::Any, &prime));
            assert_eq!(prime.shr_vartime(254), U256::from(3_u8));
            assert!(!has_small_factor(&prime));
        }
    }

    #[test]
    fn the_sieve_leaves_out_exactly_the_multiples_of_small_primes() {
        let start = 0xC123_4567_89AB_CDEF_u64;
        let composite = sieve(&U64::from(start));
        assert_eq!(composite.len(), WINDOW);
        let has_factor = |number: u64| {
            (3..1 << 16)
                .step_by(2)
                .any(|factor| number.is_multiple_of(factor))
        };
        for (index, &composite) in composite.iter().enumerate().take(200) {
            let number = start + 2 * index as u64;
            assert_eq!(composite, has_factor(number), "{number}");
            assert_eq!(composite, has_small_factor(&U64::from(number)), "{number}");
        }
    }

    #[test]
    fn a_remainder_is_that_of_the_whole_number() {
        let number = 0x0123_4567_89AB_CDEF_0011_2233_4455_6677_u128;
        for divisor in [3, 65_521 * 65_519, 4_294_967_295] {
            assert_eq!(
                u128::from(remainder(&number.to_be_bytes(), divisor)),
                number % u128::from(divisor)
            );
        }
    }
}
