//! `multipleOf` for decimals: Go computes with the number as written, which binary floats cannot
//! represent exactly (`0.3` and `0.1`).

use boon::{ErrorKind, ValidationError};

/// Returns whether an error remains one if `multipleOf` is computed with decimals.
pub(super) fn is_violation(error: &ValidationError<'_, '_>) -> bool {
    match &error.kind {
        ErrorKind::MultipleOf { got, want } => {
            !is_multiple(got.as_f64().unwrap_or(0.0), want.as_f64().unwrap_or(1.0))
        }
        ErrorKind::Group
        | ErrorKind::Schema { .. }
        | ErrorKind::Reference { .. }
        | ErrorKind::AllOf => error.causes.is_empty() || error.causes.iter().any(is_violation),
        ErrorKind::AnyOf => error.causes.iter().all(is_violation),
        ErrorKind::OneOf(None) => {
            let fine = error.causes.iter().filter(|cause| !is_violation(cause));
            fine.count() != 1
        }
        _ => true,
    }
}

/// Returns whether `number` is a whole multiple of `unit`, both taken as their shortest decimals.
fn is_multiple(number: f64, unit: f64) -> bool {
    let (Some((number, exponent)), Some((unit, unit_exponent))) = (decimal(number), decimal(unit))
    else {
        return false;
    };
    let shift = exponent - unit_exponent;
    if unit == 0 {
        return false;
    }
    if shift >= 0 {
        let mut rest = number % unit;
        for _ in 0..shift {
            rest = rest * 10 % unit;
        }
        return rest == 0;
    }
    let mut unit = unit;
    for _ in shift..0 {
        // If the unit is so much larger, only zero is a multiple.
        if unit > number {
            break;
        }
        unit *= 10;
    }
    number % unit == 0
}

/// Returns the digits of a float as an integer, and the power of ten to multiply them by.
fn decimal(value: f64) -> Option<(u128, i32)> {
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, exponent - i32::try_from(fraction.len()).ok()?))
}
