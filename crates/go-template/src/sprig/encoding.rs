//! Base64 and base32.

use bounded::Buffer;
use data_encoding::{BASE32, BASE64, Encoding};

use super::{STRING, Text};
use crate::func::{Args, Call, Func};

pub(super) static FUNCS: &[Func] = &[
    Func::text("b32dec", &[STRING], base32_decode),
    Func::text("b32enc", &[STRING], base32_encode),
    Func::text("b64dec", &[STRING], base64_decode_text),
    Func::text("b64enc", &[STRING], base64_encode),
];

/// Invalid encoded data, and the position of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base{base} data at input byte {at}")]
pub(super) struct CorruptInput {
    base: u8,
    at: usize,
}

fn base64_encode(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_base64(out, args.str(0).as_bytes());
    Ok(())
}

/// Appends bytes in base64.
pub(super) fn push_base64(out: &mut Buffer, bytes: &[u8]) {
    push_encoded(out, &BASE64, bytes);
}

/// Appends bytes in an encoding such as base64.
pub(super) fn push_encoded(out: &mut Buffer, encoding: &Encoding, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + encoding.encode_len(bytes.len()), 0);
    if let Some(room) = out.get_mut(start..) {
        encoding.encode_mut(bytes, room);
    }
}

fn base32_encode(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_encoded(out, &BASE32, args.str(0).as_bytes());
    Ok(())
}

/// Decodes base64; on failure, returns the error's text instead.
fn base64_decode_text(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let decoded = base64_decode(args.str(0).as_bytes());
    out.extend(decoded.unwrap_or_else(|error| error.to_string().into_bytes()));
    Ok(())
}

/// Like `b64dec`, for base32.
fn base32_decode(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let decoded = decode_base32(args.str(0).as_bytes());
    out.extend(decoded.unwrap_or_else(|error| error.to_string().into_bytes()));
    Ok(())
}

/// Go's `base64.StdEncoding`: newlines are skipped, and bits after the last byte may be set.
pub(super) fn base64_decode(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    if let Ok(bytes) = BASE64.decode(text) {
        return Ok(bytes);
    }
    let corrupt = |at: usize| CorruptInput { base: 64, at };
    let is_newline = |c: &u8| matches!(c, b'\n' | b'\r');
    let skip_newlines = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|c| is_newline(c)).count()
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut group, mut count) = (0_u32, 0);
    for (at, &c) in text.iter().enumerate().filter(|(_, c)| !is_newline(c)) {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' if count >= 2 => {
                let mut end = at + 1;
                if count == 2 {
                    // A second padding character must follow.
                    let next = skip_newlines(end);
                    match text.get(next) {
                        None => return Err(corrupt(text.len())),
                        Some(b'=') => end = next + 1,
                        Some(_) => return Err(corrupt(next - 1)),
                    }
                }
                let end = skip_newlines(end);
                if end < text.len() {
                    return Err(corrupt(end));
                }
                let bytes = (group << (6 * (4 - count))).to_be_bytes();
                out.extend(bytes.iter().skip(1).take(count - 1));
                return Ok(out);
            }
            _ => return Err(corrupt(at)),
        };
        group = group << 6 | u32::from(digit);
        count += 1;
        if count == 4 {
            out.extend(group.to_be_bytes().iter().skip(1));
            (group, count) = (0, 0);
        }
    }
    if count == 0 {
        Ok(out)
    } else {
        Err(corrupt(text.len() - count))
    }
}

/// Go's `base32.StdEncoding`: newlines are dropped first, and error positions do not count them.
fn decode_base32(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    let corrupt = |at: usize| CorruptInput { base: 32, at };
    let text: Vec<u8> = text
        .iter()
        .copied()
        .filter(|c| !matches!(c, b'\n' | b'\r'))
        .collect();
    let mut out = Vec::with_capacity(text.len() / 8 * 5 + 5);
    let (mut group, mut count) = (0_u64, 0);
    for (at, &c) in text.iter().enumerate() {
        let left = text.len() - at - 1;
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'2'..=b'7' => c - b'2' + 26,
            b'=' if count >= 2 && left < 8 => {
                if left + count < 7 {
                    return Err(corrupt(text.len()));
                }
                let padding = text.get(at + 1..at + 8 - count).unwrap_or_default();
                if let Some(bad) = padding.iter().position(|&c| c != b'=') {
                    return Err(corrupt(at + bad));
                }
                let bytes = match count {
                    2 => 1,
                    4 => 2,
                    5 => 3,
                    7 => 4,
                    _ => return Err(corrupt(at)),
                };
                group <<= 5 * (8 - count);
                out.extend(group.to_be_bytes().iter().skip(3).take(bytes));
                return Ok(out);
            }
            _ => return Err(corrupt(at)),
        };
        group = group << 5 | u64::from(digit);
        count += 1;
        if count == 8 {
            out.extend(group.to_be_bytes().iter().skip(3));
            (group, count) = (0, 0);
        }
    }
    if count == 0 {
        Ok(out)
    } else {
        Err(corrupt(text.len() - count))
    }
}
