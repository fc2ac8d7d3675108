//! Arithmetic: on wrapping `int64`, on floats through decimals; rounding, and ranges of integers.

use super::convert::{to_float, to_int};
use super::{ANY, Answer, INT};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::decimal::{Decimal, DecimalError};
use crate::go::strconv::push_int;
use crate::value::{List, Type, Value};
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::value("add", &[], |_, args| fold(args, i64::wrapping_add)).variadic(ANY),
    Func::value("add1", &[ANY], |_, args| {
        Ok(Value::Int64(to_int(args.get(0)).wrapping_add(1)))
    }),
    Func::value("add1f", &[ANY], add1f),
    Func::value("addf", &[], addf).variadic(ANY),
    Func::value("biggest", &[ANY], max).variadic(ANY),
    Func::value("ceil", &[ANY], |_, args| {
        Ok(to_float(args.get(0)).ceil().into())
    }),
    Func::value("div", &[ANY, ANY], |_, args| {
        divided(args, i64::wrapping_div)
    }),
    Func::value("divf", &[ANY], divf).variadic(ANY),
    Func::value("floor", &[ANY], |_, args| {
        Ok(to_float(args.get(0)).floor().into())
    }),
    Func::value("max", &[ANY], max).variadic(ANY),
    Func::value("maxf", &[ANY], |_, args| fold_floats(args, greater)).variadic(ANY),
    Func::value("min", &[ANY], |_, args| fold(args, i64::min)).variadic(ANY),
    Func::value("minf", &[ANY], |_, args| {
        fold_floats(args, |a, b| -greater(-a, -b))
    })
    .variadic(ANY),
    Func::value("mod", &[ANY, ANY], |_, args| {
        divided(args, i64::wrapping_rem)
    }),
    Func::value("mul", &[ANY], |_, args| fold(args, i64::wrapping_mul)).variadic(ANY),
    Func::value("mulf", &[ANY], mulf).variadic(ANY),
    Func::value("round", &[ANY, INT], round).variadic(Type::FLOAT64),
    Func::text("seq", &[], seq).variadic(INT),
    Func::value("sub", &[ANY, ANY], |_, args| fold(args, i64::wrapping_sub)),
    Func::value("subf", &[ANY], subf).variadic(ANY),
    Func::value("until", &[INT], until),
    Func::value("untilStep", &[INT, INT, INT], until_step),
];

/// Folds the arguments from the second on into the first.
fn fold(args: &Args<'_>, join: impl Fn(i64, i64) -> i64) -> Answer {
    let rest = args.rest(1).iter().map(to_int);
    Ok(Value::Int64(rest.fold(to_int(args.get(0)), join)))
}

fn max(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    fold(args, i64::max)
}

fn divided(args: &Args<'_>, divide: fn(i64, i64) -> i64) -> Answer {
    match to_int(args.get(1)) {
        0 => Err(FuncError::new("runtime error: integer divide by zero")),
        divisor => Ok(Value::Int64(divide(to_int(args.get(0)), divisor))),
    }
}

fn fold_floats(args: &Args<'_>, join: impl Fn(f64, f64) -> f64) -> Answer {
    let rest = args.rest(1).iter().map(to_float);
    Ok(Value::Float(rest.fold(to_float(args.get(0)), join)))
}

/// Go's `math.Max`: infinity beats NaN, NaN beats everything else, and 0 is greater than -0.
fn greater(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { b } else { a }
    } else {
        a.max(b)
    }
}

fn panicked(error: DecimalError) -> FuncError {
    FuncError::new(error.to_string())
}

/// Folds `values` into `start` as decimals; each step costs the size of the number.
fn fold_decimals(
    call: &mut Call<'_>,
    start: f64,
    values: &[Value],
    join: impl Fn(&Decimal, f64) -> Result<Decimal, DecimalError>,
) -> Answer {
    let mut result = Decimal::from_float(start).map_err(panicked)?;
    for value in values {
        call.budget().step(result.size() as u64)?;
        result = join(&result, to_float(value)).map_err(panicked)?;
    }
    Ok(Value::Float(result.to_float()))
}

fn add_decimal(sum: &Decimal, value: f64) -> Result<Decimal, DecimalError> {
    Ok(sum.add(&Decimal::from_float(value)?))
}

fn addf(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    fold_decimals(call, 0.0, args.all(), add_decimal)
}

fn add1f(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    fold_decimals(call, to_float(args.get(0)), &[Value::Int(1)], add_decimal)
}

fn subf(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    fold_decimals(call, to_float(args.get(0)), args.rest(1), |all, value| {
        Ok(all.sub(&Decimal::from_float(value)?))
    })
}

fn mulf(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    fold_decimals(call, to_float(args.get(0)), args.rest(1), |all, value| {
        Ok(all.mul(&Decimal::from_float(value)?))
    })
}

fn divf(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    fold_decimals(call, to_float(args.get(0)), args.rest(1), |all, value| {
        all.div_float(value)
    })
}

/// Rounds to a number of decimal places; fractions from one half, or from the third argument, are
/// rounded up. Negative numbers are rounded up only if that threshold is negative too.
fn round(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let from = match args.get(2) {
        Value::Float(from) => *from,
        _ => 0.5,
    };
    let power = power_of_ten(args.int(1));
    let shifted = power * to_float(args.get(0));
    // As in Go, an infinity has the fraction NaN.
    let fraction = shifted.fract();
    let rounded = if fraction >= from {
        shifted.ceil()
    } else {
        shifted.floor()
    };
    Ok(Value::Float(rounded / power))
}

/// Go's `math.Pow(10, exponent)`, bit for bit: squares a mantissa between one half and one.
fn power_of_ten(exponent: i64) -> f64 {
    if exponent == 0 {
        return 1.0;
    }
    if exponent == 1 {
        return 10.0;
    }
    let (mut result, mut result_exponent) = (1.0, 0_i64);
    let (mut square, mut square_exponent) = (0.625, 4_i64);
    let mut rest = exponent.unsigned_abs();
    while rest != 0 {
        if square_exponent.abs() > 1 << 12 {
            // The result is out of range in any case.
            result_exponent += square_exponent;
            break;
        }
        if rest & 1 == 1 {
            result *= square;
            result_exponent += square_exponent;
        }
        square *= square;
        square_exponent <<= 1;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        rest >>= 1;
    }
    if exponent < 0 {
        scaled(1.0 / result, -result_exponent)
    } else {
        scaled(result, result_exponent)
    }
}

/// Returns `value * 2^exponent`, computed in steps that a float can represent; only the last one
/// rounds.
fn scaled(mut value: f64, mut exponent: i64) -> f64 {
    let power = |exponent: i64| f64::from_bits(u64::try_from(exponent + 1023).unwrap_or(0) << 52);
    while exponent > 1000 {
        value *= power(1000);
        exponent -= 1000;
        if value.is_infinite() {
            return value;
        }
    }
    while exponent < -900 {
        if exponent < -5000 {
            return value * 0.0;
        }
        value *= power(-900);
        exponent += 900;
    }
    value * power(exponent)
}

fn integers(call: &mut Call<'_>, start: i64, end: i64, step: i64) -> Result<Vec<i64>, FuncError> {
    let distance = i128::from(end) - i128::from(start);
    let goes = if end < start { step < 0 } else { step > 0 };
    if !goes || distance == 0 {
        return Ok(Vec::new());
    }
    let step_size = u128::from(step.unsigned_abs());
    let count = distance.unsigned_abs().div_ceil(step_size);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    call.budget().range(count)?;
    let next = |number: &i64| number.checked_add(step);
    let numbers = std::iter::successors(Some(start), next);
    Ok(numbers.take(count).collect())
}

fn int_list(numbers: Vec<i64>) -> Value {
    let numbers = numbers.into_iter().map(Value::Int).collect();
    Value::List(List::new(Type::INTS, numbers).appended_to(0))
}

fn until(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let stop = args.int(0);
    let numbers = integers(call, 0, stop, if stop < 0 { -1 } else { 1 })?;
    Ok(int_list(numbers))
}

fn until_step(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let numbers = integers(call, args.int(0), args.int(1), args.int(2))?;
    Ok(int_list(numbers))
}

/// Formats space-separated numbers from the first to the last argument, inclusive.
fn seq(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result<(), FuncError> {
    let (start, step, end) = match args.len() {
        1 => (1, None, args.int(0)),
        2 => (args.int(0), None, args.int(1)),
        3 => (args.int(0), Some(args.int(1)), args.int(2)),
        _ => return Ok(()),
    };
    let direction = if end < start { -1 } else { 1 };
    if direction < 0 && step.is_some_and(|step| step > 0) {
        return Ok(());
    }
    let behind = end.wrapping_add(direction);
    let numbers = integers(call, start, behind, step.unwrap_or(direction))?;
    for (index, number) in numbers.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        push_int(out, *number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp, reason = "the bits are what matters")]
    fn powers_of_ten_match_go() {
        let powers = [2, -2, 23, -324].map(power_of_ten);
        assert_eq!(powers, [100.0, 0.01, 1e23, 0.0]);
        assert_eq!(power_of_ten(400), f64::INFINITY);
        assert_eq!(power_of_ten(i64::MIN), 0.0);
        assert_eq!(power_of_ten(-323), 1e-323);
    }
}
