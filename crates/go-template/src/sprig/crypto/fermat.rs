//! Fermat's test to the base 2, in which almost all the time of a search for primes is spent.
//!
//! A power of 2 needs squarings and doublings only. They are written for this one use, because a key is then
//! found in three quarters of the time: a test of 1,024 bits takes 0.35 ms with them, and 0.5 ms with
//! `MontyForm::square` of `crypto-bigint` 0.7. A test compares the two.
//!
//! Source: "Analyzing and Comparing Montgomery Multiplication Algorithms" by Ç. K. Koç, T. Acar and
//! B. S. Kaliski (1996), finely integrated product scanning.

#![allow(
    clippy::indexing_slicing,
    reason = "indices are below the constant length, and without a check the loops are unrolled"
)]

use crypto_bigint::{NonZero, Uint, WideWord, Word};

/// Returns whether `2^(number - 1)` is 1 modulo an odd number above 1.
pub(super) fn passes<const L: usize>(number: &Uint<L>) -> bool {
    let Some(modulus) = NonZero::new(*number).into_option() else {
        return false;
    };
    // In Montgomery's form, 1 is the power of two beyond the highest number, modulo the number.
    let rest = Uint::<L>::MAX.rem_vartime(&modulus);
    let one = rest.wrapping_add(&Uint::ONE).to_words();
    let modulus = Modulus::new(number.to_words());
    let mut power = one;
    // The exponent is the number less one, whose lowest bit is 0.
    for (index, &word) in number.as_words().iter().enumerate().rev() {
        for bit in (0..Word::BITS).rev() {
            power = modulus.square(&power);
            if word >> bit & 1 == 1 && (index, bit) != (0, 0) {
                modulus.double(&mut power);
            }
        }
    }
    power == one
}

/// An odd modulus, with the lowest word first.
struct Modulus<const L: usize> {
    words: [Word; L],
    /// What the lowest word is multiplied with to be the highest word, which is -1.
    negated_inverse: Word,
}

impl<const L: usize> Modulus<L> {
    fn new(words: [Word; L]) -> Self {
        // Newton's iteration: the number of right bits doubles each time, from one to 64.
        let inverse = (0..6).fold(1, |inverse: Word, _| {
            let two: Word = 2;
            inverse.wrapping_mul(two.wrapping_sub(words[0].wrapping_mul(inverse)))
        });
        Self {
            words,
            negated_inverse: inverse.wrapping_neg(),
        }
    }

    /// Returns the square of a number in Montgomery's form, column by column from the lowest one. In each column
    /// of the lower half, a multiple of the modulus makes the column zero.
    fn square(&self, number: &[Word; L]) -> [Word; L] {
        let modulus = &self.words;
        let mut factors = [0; L];
        let mut result = [0; L];
        let mut column = Column::default();
        for i in 0..L {
            column.add_square(number, 0, i);
            for j in 0..i {
                column.add(factors[j], modulus[i - j]);
            }
            factors[i] = low(column.low).wrapping_mul(self.negated_inverse);
            column.add(factors[i], modulus[0]);
            column.next();
        }
        for i in L..2 * L - 1 {
            column.add_square(number, i + 1 - L, i);
            for j in i + 1 - L..L {
                column.add(factors[j], modulus[i - j]);
            }
            result[i - L] = column.next();
        }
        result[L - 1] = column.next();
        self.reduce(&mut result, column.low != 0);
        result
    }

    fn double(&self, number: &mut [Word; L]) {
        let mut carry = 0;
        for word in number.iter_mut() {
            (*word, carry) = (*word << 1 | carry, *word >> (Word::BITS - 1));
        }
        self.reduce(number, carry != 0);
    }

    /// Subtracts the modulus from a number, if it is not below it or `exceeds` its words.
    fn reduce(&self, number: &mut [Word; L], exceeds: bool) {
        if !exceeds && number.iter().rev().lt(self.words.iter().rev()) {
            return;
        }
        let mut borrow = false;
        for (word, &less) in number.iter_mut().zip(&self.words) {
            let (difference, first) = word.overflowing_sub(less);
            let (difference, second) = difference.overflowing_sub(Word::from(borrow));
            *word = difference;
            borrow = first || second;
        }
    }
}

/// A sum of products, in three words.
#[derive(Clone, Copy, Default)]
struct Column {
    low: WideWord,
    high: Word,
}

impl Column {
    #[inline]
    fn add(&mut self, a: Word, b: Word) {
        self.add_wide(WideWord::from(a) * WideWord::from(b));
    }

    #[inline]
    fn add_wide(&mut self, product: WideWord) {
        let (low, carry) = self.low.overflowing_add(product);
        self.low = low;
        self.high += Word::from(carry);
    }

    /// Adds what the words from `first` on contribute to column `i` of a square: each product of two different
    /// words twice.
    #[inline]
    fn add_square<const L: usize>(&mut self, number: &[Word; L], first: usize, i: usize) {
        let mut half = Self::default();
        for j in first..i.div_ceil(2) {
            half.add(number[j], number[i - j]);
        }
        self.high += 2 * half.high;
        self.add_wide(half.low);
        self.add_wide(half.low);
        if i.is_multiple_of(2) {
            self.add(number[i / 2], number[i / 2]);
        }
    }

    /// Removes and returns the lowest word.
    #[inline]
    fn next(&mut self) -> Word {
        let word = low(self.low);
        self.low = self.low >> Word::BITS | WideWord::from(self.high) << Word::BITS;
        self.high = 0;
        word
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
fn low(wide: WideWord) -> Word {
    wide as Word
}

#[cfg(test)]
mod tests {
    use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
    use crypto_bigint::{Odd, U64, U1024, U2048, Uint};
    use crypto_primes::{Flavor, is_prime};

    use super::{Modulus, passes};
    use crate::sprig::crypto::dsa::random_number;

    #[test]
    fn the_test_to_the_base_two_passes_primes_and_its_known_pseudoprimes() {
        let passes = |number: u64| passes(&U64::from(number));
        let odd = (3..5000).step_by(2);
        let wrong: Vec<u64> = odd
            .filter(|&number| passes(number) != is_prime(Flavor::Any, &U64::from(number)))
            .collect();
        // The first pseudoprimes to the base 2.
        assert_eq!(
            wrong,
            [
                341, 561, 645, 1105, 1387, 1729, 1905, 2047, 2465, 2701, 2821, 3277, 4033, 4369,
                4371, 4681
            ]
        );
    }

    /// Compares repeated squarings and doublings with those of the library.
    fn compare<const L: usize>(modulus: &Uint<L>, number: &Uint<L>) {
        let params = FixedMontyParams::new_vartime(Odd::new(*modulus).unwrap());
        let mut expected = FixedMontyForm::new(number, &params);
        let modulus = Modulus::new(modulus.to_words());
        let mut words = expected.as_montgomery().to_words();
        for _ in 0..20 {
            expected = expected.square().double();
            words = modulus.square(&words);
            modulus.double(&mut words);
            assert_eq!(words, expected.as_montgomery().to_words());
        }
    }

    #[test]
    fn squares_and_doubles_are_those_of_the_library() {
        for _ in 0..50 {
            let number = || random_number::<U1024>().unwrap();
            compare(&(number() | U1024::ONE), &number());
            let number = || random_number::<U2048>().unwrap();
            compare(&(number() | U2048::ONE), &number());
        }
        // The highest and the lowest carries.
        for modulus in [
            U1024::MAX,
            U1024::from(3_u8),
            U1024::ONE.shl_vartime(1023) | U1024::ONE,
        ] {
            for number in [U1024::ZERO, U1024::ONE, modulus.wrapping_sub(&U1024::ONE)] {
                compare(&modulus, &number);
            }
        }
    }

    #[test]
    fn known_primes_pass_and_their_neighbours_fail() {
        // Mersenne's prime 2^521 - 1.
        let prime = U1024::ONE.shl_vartime(521).wrapping_sub(&U1024::ONE);
        assert!(passes(&prime));
        for distance in [2_u8, 4, 6] {
            assert!(!passes(&prime.wrapping_sub(&U1024::from(distance))));
        }
    }
}
