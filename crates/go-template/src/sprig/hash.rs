//! Checksums in hexadecimal, and Adler-32 in decimal.

use bounded::Buffer;
use data_encoding::HEXLOWER;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::encoding::push_encoded;
use super::{STRING, Text};
use crate::func::{Args, Call, Func};
use crate::go::strconv::push_uint;

pub(super) static FUNCS: &[Func] = &[
    Func::text("adler32sum", &[STRING], adler32_sum),
    Func::text("sha1sum", &[STRING], |call, args, out| {
        push_digest::<Sha1>(call, args, out)
    }),
    Func::text("sha256sum", &[STRING], |call, args, out| {
        push_digest::<Sha256>(call, args, out)
    }),
    Func::text("sha512sum", &[STRING], |call, args, out| {
        push_digest::<Sha512>(call, args, out)
    }),
];

fn push_digest<D: Digest>(call: &mut Call<'_>, args: &Args<'_>, out: &mut Buffer) -> Text {
    let text = args.str(0).as_bytes();
    call.budget().step(text.len() as u64 / 64)?;
    push_encoded(out, &HEXLOWER, &D::digest(text));
    Ok(())
}

fn adler32_sum(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    const MODULUS: u64 = 65_521;
    let (mut a, mut b) = (1_u64, 0_u64);
    // Sums of this many bytes do not overflow the counters.
    for chunk in args.str(0).as_bytes().chunks(4096) {
        for &byte in chunk {
            a += u64::from(byte);
            b += a;
        }
        (a, b) = (a % MODULUS, b % MODULUS);
    }
    push_uint(out, b << 16 | a);
    Ok(())
}
