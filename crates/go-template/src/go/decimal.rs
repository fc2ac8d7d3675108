//! Decimal arithmetic on floats like `shopspring/decimal`: exact sums and products, quotients
//! rounded to 16 decimal places, and conversion to the nearest float.

use std::fmt::Write;

use super::strconv::Digits;

/// Numbers are stored in limbs of nine decimal digits, least significant first.
const LIMB: u64 = 1_000_000_000;
const LIMB_DIGITS: usize = 9;
/// Decimal places of a quotient.
const QUOTIENT_PLACES: i64 = 16;

/// An error of a decimal operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// Infinities and NaN have no digits.
    #[error("Cannot create a Decimal from {0}")]
    NotFinite(&'static str),
    /// A division by zero.
    #[error("decimal division by 0")]
    DivisionByZero,
}

/// An exact decimal number: limbs times a power of ten.
///
/// ```
/// use go_template::go::decimal::Decimal;
/// let sum = Decimal::from_float(0.1)?.add(&Decimal::from_float(0.2)?);
/// assert_eq!(sum.to_float(), 0.3);
/// # Ok::<(), go_template::go::decimal::DecimalError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    limbs: Vec<u32>,
    exponent: i64,
}

impl Decimal {
    /// Returns the shortest decimal that parses to `value`.
    ///
    /// # Errors
    /// If the number is not finite.
    pub fn from_float(value: f64) -> Result<Self, DecimalError> {
        if value.is_nan() {
            return Err(DecimalError::NotFinite("NaN"));
        }
        if value.is_infinite() {
            let name = if value > 0.0 { "+Inf" } else { "-Inf" };
            return Err(DecimalError::NotFinite(name));
        }
        let digits = Digits::shortest(value, 64);
        let whole = digits
            .as_bytes()
            .iter()
            .fold(0_u64, |whole, digit| whole * 10 + u64::from(digit - b'0'));
        let count = i64::try_from(digits.as_bytes().len()).unwrap_or(0);
        Ok(Self {
            negative: value < 0.0,
            limbs: limbs_of(whole),
            exponent: i64::from(digits.point) - count,
        })
    }

    /// Returns the number of limbs, which determines the cost of an operation.
    pub fn size(&self) -> usize {
        self.limbs.len()
    }

    fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    /// Returns the exact sum.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.scaled_to(exponent), other.scaled_to(exponent));
        if self.negative == other.negative {
            return Self {
                negative: self.negative,
                limbs: sum(&a, &b),
                exponent,
            };
        }
        let (negative, limbs) = if compare(&a, &b).is_ge() {
            (self.negative, difference(&a, &b))
        } else {
            (other.negative, difference(&b, &a))
        };
        Self {
            negative: negative && !limbs.is_empty(),
            limbs,
            exponent,
        }
    }

    /// Returns the exact difference.
    #[must_use]
    pub fn sub(&self, other: &Self) -> Self {
        self.add(&Self {
            negative: !other.negative && !other.is_zero(),
            ..other.clone()
        })
    }

    /// Returns the exact product.
    #[must_use]
    pub fn mul(&self, other: &Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            limbs: product(&self.limbs, &other.limbs),
            exponent: self.exponent + other.exponent,
        }
    }

    /// Returns the quotient by a float, rounded to 16 decimal places, half away from zero.
    ///
    /// # Errors
    /// If the divisor is zero or not finite.
    pub fn div_float(&self, divisor: f64) -> Result<Self, DecimalError> {
        let other = Self::from_float(divisor)?;
        // At most 17 digits.
        let digits = other
            .limbs
            .iter()
            .rev()
            .fold(0_u64, |all, limb| all * LIMB + u64::from(*limb));
        if digits == 0 {
            return Err(DecimalError::DivisionByZero);
        }
        let shift = self.exponent - other.exponent + QUOTIENT_PLACES;
        // What is cut off before the division, as twice its fraction of one unit of the dividend.
        let (mut limbs, lost) = if shift >= 0 {
            (shifted_up(&self.limbs, shift), Lost::Nothing)
        } else {
            shifted_down(&self.limbs, -shift)
        };
        let rest = divide(&mut limbs, digits);
        let twice = u128::from(rest) * 2;
        let round_up =
            twice >= digits.into() || twice + 1 == digits.into() && lost == Lost::HalfOrMore;
        if round_up {
            limbs = sum(&limbs, &[1]);
        }
        let negative = self.negative != other.negative && !limbs.is_empty();
        Ok(Self {
            negative,
            limbs,
            exponent: -QUOTIENT_PLACES,
        })
    }

    /// Returns the nearest float.
    pub fn to_float(&self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let mut text = String::with_capacity(self.limbs.len() * LIMB_DIGITS + 12);
        if self.negative {
            text.push('-');
        }
        for limb in self.limbs.iter().rev() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{limb:09}");
        }
        let _ = write!(text, "e{}", self.exponent);
        text.parse().unwrap_or(0.0)
    }

    /// Returns the limbs of the number at a lower exponent.
    fn scaled_to(&self, exponent: i64) -> Vec<u32> {
        shifted_up(&self.limbs, self.exponent - exponent)
    }
}

/// The part that was cut off from a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Nothing, or less than half a unit.
    Nothing,
    HalfOrMore,
}

fn limbs_of(mut value: u64) -> Vec<u32> {
    let mut limbs = Vec::with_capacity(3);
    while value > 0 {
        limbs.push(narrow(value % LIMB));
        value /= LIMB;
    }
    limbs
}

/// Converts to a limb; callers keep the value below [`LIMB`].
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

fn trimmed(mut limbs: Vec<u32>) -> Vec<u32> {
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
    limbs
}

fn compare(a: &[u32], b: &[u32]) -> std::cmp::Ordering {
    let by_length = a.len().cmp(&b.len());
    by_length.then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn sum(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut out = Vec::with_capacity(long.len() + 1);
    let mut carry = 0;
    let padded = short.iter().copied().chain(std::iter::repeat(0));
    for (x, y) in long.iter().zip(padded) {
        let total = u64::from(*x) + u64::from(y) + carry;
        out.push(narrow(total % LIMB));
        carry = total / LIMB;
    }
    if carry > 0 {
        out.push(narrow(carry));
    }
    out
}

/// Returns `a - b` for `a >= b`.
fn difference(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut out = Vec::with_capacity(a.len());
    let mut borrow = 0;
    let padded = b.iter().copied().chain(std::iter::repeat(0));
    for (x, y) in a.iter().zip(padded) {
        let total = LIMB + u64::from(*x) - u64::from(y) - borrow;
        out.push(narrow(total % LIMB));
        borrow = u64::from(total < LIMB);
    }
    trimmed(out)
}

fn product(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut out = vec![0_u32; a.len() + b.len()];
    for (start, x) in a.iter().enumerate() {
        let mut carry = 0;
        let factors = b.iter().copied().chain(std::iter::repeat(0));
        for (slot, y) in out.iter_mut().skip(start).zip(factors).take(b.len() + 1) {
            let total = u64::from(*x) * u64::from(y) + u64::from(*slot) + carry;
            *slot = narrow(total % LIMB);
            carry = total / LIMB;
        }
    }
    trimmed(out)
}

/// Divides in place and returns the remainder.
fn divide(limbs: &mut Vec<u32>, divisor: u64) -> u64 {
    let mut rest = 0_u128;
    for limb in limbs.iter_mut().rev() {
        let value = rest * u128::from(LIMB) + u128::from(*limb);
        *limb = u32::try_from(value / u128::from(divisor)).unwrap_or(0);
        rest = value % u128::from(divisor);
    }
    *limbs = trimmed(std::mem::take(limbs));
    u64::try_from(rest).unwrap_or(0)
}

/// Returns `10^digits` for fewer digits than a limb has.
fn small_power(digits: usize) -> u64 {
    (0..digits).fold(1, |power, _| power * 10)
}

/// Returns `limbs * 10^digits`.
fn shifted_up(limbs: &[u32], digits: i64) -> Vec<u32> {
    let digits = usize::try_from(digits).unwrap_or(0);
    if limbs.is_empty() || digits == 0 {
        return limbs.to_vec();
    }
    let mut out = vec![0; digits / LIMB_DIGITS];
    out.extend(product(limbs, &limbs_of(small_power(digits % LIMB_DIGITS))));
    out
}

/// Returns `limbs / 10^digits`, and the part cut off.
fn shifted_down(limbs: &[u32], digits: i64) -> (Vec<u32>, Lost) {
    let digits = usize::try_from(digits).unwrap_or(usize::MAX);
    // The digit after the point decides which half of a unit is lost.
    let kept = limbs.get((digits - 1) / LIMB_DIGITS..);
    let mut kept = kept.unwrap_or_default().to_vec();
    divide(&mut kept, small_power((digits - 1) % LIMB_DIGITS));
    let next = divide(&mut kept, 10);
    match next {
        5.. => (kept, Lost::HalfOrMore),
        _ => (kept, Lost::Nothing),
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the results are exact by definition")]
mod tests {
    use super::*;

    fn decimal(value: f64) -> Decimal {
        Decimal::from_float(value).unwrap()
    }

    #[test]
    fn sums_and_products_are_exact() {
        assert_eq!(decimal(0.1).add(&decimal(0.2)).to_float(), 0.3);
        assert_eq!(decimal(1.1).mul(&decimal(1.1)).to_float(), 1.21);
        assert_eq!(decimal(5.0).sub(&decimal(5.0)).to_float(), 0.0);
        assert_eq!(decimal(-1.5).sub(&decimal(1e20)).to_float(), -1e20);
        let infinite = decimal(1e300).mul(&decimal(1e300)).to_float();
        assert_eq!(infinite, f64::INFINITY);
        assert_eq!(decimal(1e308).add(&decimal(5e-324)).to_float(), 1e308);
        let product = decimal(123_456_789_012.0).mul(&decimal(-987_654_321.5));
        assert_eq!(product.to_float(), -1.219_326_311_862_155_2e20);
    }

    #[test]
    fn quotients_have_sixteen_decimal_places() {
        let quotient = |a: f64, b: f64| decimal(a).div_float(b).map(|found| found.to_float());
        assert_eq!(quotient(1.0, 3.0), Ok(0.333_333_333_333_333_3));
        assert_eq!(quotient(2.0, -3.0), Ok(-0.666_666_666_666_666_7));
        assert_eq!(quotient(1.0, 1e17), Ok(0.0));
        assert_eq!(quotient(5.0, 1e17), Ok(1e-16));
        assert_eq!(quotient(15.0, 3e17), Ok(1e-16));
        assert_eq!(quotient(0.0, 7.0), Ok(0.0));
        assert_eq!(quotient(1.0, 0.0), Err(DecimalError::DivisionByZero));
        let infinite = Decimal::from_float(f64::NEG_INFINITY);
        assert_eq!(infinite, Err(DecimalError::NotFinite("-Inf")));
    }
}
