//! Random numbers, texts and identifiers from the system's generator.

use bounded::Buffer;
use data_encoding::HEXLOWER;

use super::encoding::push_base64;
use super::string::decoded;
use super::{Answer, INT, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::utf8::push_rune;
use crate::value::{Type, Value};

pub(super) static FUNCS: &[Func] = &[
    Func::text("randAlpha", &[INT], |call, args, out| {
        push_random(call, args, out, LETTERS)
    }),
    Func::text("randAlphaNum", &[INT], |call, args, out| {
        push_random(call, args, out, ALPHANUMERIC)
    }),
    Func::text("randAscii", &[INT], |call, args, out| {
        push_random(call, args, out, PRINTABLE)
    }),
    Func::text("randBytes", &[INT], rand_bytes),
    Func::value("randInt", &[INT, INT], rand_int),
    Func::text("randNumeric", &[INT], |call, args, out| {
        push_random(call, args, out, DIGITS)
    }),
    Func::text("shuffle", &[Type::STRING], shuffle),
    Func::text("uuidv4", &[], uuid_v4),
];

const DIGITS: &[u8] = b"0123456789";
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ALPHANUMERIC: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PRINTABLE: &[u8] = b" !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`\
    abcdefghijklmnopqrstuvwxyz{|}~";

/// Random bytes, fetched in blocks.
pub(super) struct RandomBytes {
    block: [u8; 64],
    used: usize,
}

impl RandomBytes {
    pub(super) fn new() -> Self {
        Self {
            block: [0; 64],
            used: 64,
        }
    }

    fn byte(&mut self) -> Result<u8, FuncError> {
        if self.used >= self.block.len() {
            fill(&mut self.block)?;
            self.used = 0;
        }
        let byte = self.block.get(self.used).copied().unwrap_or(0);
        self.used += 1;
        Ok(byte)
    }

    /// Returns a uniformly distributed number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: u64) -> Result<u64, FuncError> {
        let bits = u64::BITS - (bound - 1).leading_zeros();
        let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |top| top - 1);
        loop {
            let mut number = 0;
            for _ in 0..bits.div_ceil(8) {
                number = number << 8 | u64::from(self.byte()?);
            }
            if number & mask < bound {
                return Ok(number & mask);
            }
        }
    }
}

/// Fills a buffer with random bytes.
pub(super) fn fill(buffer: &mut [u8]) -> Result<(), FuncError> {
    crate::value::vary();
    host::fill(buffer).map_err(|error| {
        FuncError::new(format!(
            "cannot read random numbers from the system: {error}"
        ))
    })
}

/// Appends as many random characters as the first argument requests; none if it is negative.
fn push_random(call: &mut Call<'_>, args: &Args<'_>, out: &mut Buffer, from: &[u8]) -> Text {
    let count = usize::try_from(args.int(0)).unwrap_or(0);
    call.budget().string(count)?;
    call.budget().step(count as u64)?;
    let mut source = RandomBytes::new();
    for _ in 0..count {
        let index = usize::try_from(source.below(from.len() as u64)?).unwrap_or(0);
        out.extend(from.get(index));
    }
    Ok(())
}

fn rand_bytes(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let count = usize::try_from(args.int(0))
        .map_err(|_| FuncError::new("runtime error: makeslice: len out of range"))?;
    call.budget().string(count.saturating_mul(2))?;
    let mut bytes = vec![0; count];
    fill(&mut bytes)?;
    push_base64(out, &bytes);
    Ok(())
}

fn rand_int(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let (low, high) = (args.int(0), args.int(1));
    let span = u64::try_from(high.wrapping_sub(low)).unwrap_or(0);
    if span == 0 {
        return Err(FuncError::new("invalid argument to Intn"));
    }
    let offset = RandomBytes::new().below(span)?;
    Ok(Value::Int(low.wrapping_add(offset.cast_signed())))
}

fn shuffle(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    call.budget().step(args.str(0).len() as u64)?;
    let mut runes = decoded(args.str(0).as_bytes(), call.budget())?;
    let mut source = RandomBytes::new();
    for last in (1..runes.len()).rev() {
        let other = source.below(last as u64 + 1)?;
        runes.swap(last, usize::try_from(other).unwrap_or(last));
    }
    for rune in runes {
        push_rune(out, rune);
    }
    Ok(())
}

fn uuid_v4(_: &mut Call<'_>, _: &mut Args<'_>, out: &mut Buffer) -> Text {
    let mut bits = [0; 16];
    fill(&mut bits)?;
    let mut number = u128::from_be_bytes(bits);
    // Version 4 and the variant of RFC 9562.
    number = number & !(0xF << 76) | 4 << 76;
    number = number & !(3 << 62) | 2 << 62;
    let digits = HEXLOWER.encode(&number.to_be_bytes());
    for (index, digit) in digits.bytes().enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            out.push(b'-');
        }
        out.push(digit);
    }
    Ok(())
}
