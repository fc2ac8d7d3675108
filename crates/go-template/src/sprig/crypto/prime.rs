//! Random primes, searched by all processors together.
//!
//! A worker takes a random odd number and tests those after it (Baillie-PSW), without the multiples of small primes.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crypto_bigint::{Encoding, RandomMod, UnsignedWithMontyForm};
use crypto_primes::hazmat::SmallFactorsSieve;
use crypto_primes::{Flavor, is_prime};

use crate::error::FuncError;
use crate::sprig::random;

/// An integer of fixed width in which primes are searched.
pub(super) trait Width: UnsignedWithMontyForm + RandomMod + Encoding + Copy {}

impl<T: UnsignedWithMontyForm + RandomMod + Encoding + Copy> Width for T {}

/// More workers than primes gain less and less.
const MAX_WORKERS: usize = 8;

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
    let found = search.found.into_inner();
    Ok(found.unwrap_or_else(PoisonError::into_inner))
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
            if let Some(prime) = self.next_prime(random_odd()?) {
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

    /// Returns the first prime from an odd number on, unless all primes are found meanwhile.
    fn next_prime(&self, start: T) -> Option<T> {
        without_small_factors(start)
            .take_while(|_| !self.done.load(Ordering::Relaxed))
            .find(|candidate| is_prime(Flavor::Any, candidate))
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

/// Returns the odd numbers from `start` on that have none of 2,047 small primes as a factor.
pub(super) fn without_small_factors<T: Width>(start: T) -> impl Iterator<Item = T> {
    let bits = NonZero::new(start.bits_precision());
    let sieve = bits.and_then(|bits| SmallFactorsSieve::new(start, bits, false).ok());
    sieve.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use crypto_bigint::U256;
    use crypto_primes::{Flavor, is_prime};

    use super::{search, without_small_factors};

    #[test]
    fn primes_are_different_and_have_their_highest_bits_set() {
        let primes = search::<U256>(3).unwrap();
        assert_eq!(primes.len(), 3);
        assert!(primes[0] != primes[1] && primes[1] != primes[2] && primes[0] != primes[2]);
        for prime in primes {
            assert!(is_prime(Flavor::Any, &prime));
            assert_eq!(prime.shr_vartime(254), U256::from(3_u8));
            assert_eq!(without_small_factors(prime).next(), Some(prime));
        }
    }
}
