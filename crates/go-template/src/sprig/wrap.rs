//! Wrapping and abbreviating text, initials, and the case of first letters.

use super::string::decoded;
use super::{INT, STRING, Text};
use crate::func::{Args, Call, Func};
use crate::go::unicode;
use crate::go::utf8::push_rune;
use crate::value::Str;
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::text("abbrev", &[INT, STRING], abbrev),
    Func::text("abbrevboth", &[INT, INT, STRING], abbrev_both),
    Func::text("initials", &[STRING], initials),
    Func::text("swapcase", &[STRING], swap_case),
    Func::text("untitle", &[STRING], untitle),
    Func::text("wrap", &[INT, STRING], wrap),
    Func::text("wrapWith", &[INT, STRING, STRING], wrap_with),
];

fn abbrev(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let text = args.str(1);
    match usize::try_from(args.int(0)) {
        Ok(width) if width >= 4 => push_abbreviated(out, text.as_bytes(), 0, width),
        _ => out.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

fn abbrev_both(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let (left, right, text) = (args.int(0), args.int(1), args.str(2));
    match usize::try_from(right) {
        Ok(width) if right >= 4 && (left <= 0 || right >= 7) => {
            push_abbreviated(out, text.as_bytes(), left, width);
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

/// Appends at most `width` bytes of `text`, with dots for omitted parts. The byte at `offset` is
/// kept, which may require leading dots too.
fn push_abbreviated(out: &mut Buffer, text: &[u8], offset: i64, width: usize) {
    if text.len() <= width {
        return out.extend_from_slice(text);
    }
    let slice = |start: usize, end: usize| text.get(start..end.min(text.len())).unwrap_or_default();
    let room = width - 3;
    let offset = usize::try_from(offset)
        .unwrap_or(0)
        .min(text.len())
        .min(text.len() - room);
    if offset <= 4 {
        out.extend_from_slice(slice(0, room));
        return out.extend_from_slice(b"...");
    }
    // Callers require a width of at least seven bytes if there is an offset.
    out.extend_from_slice(b"...");
    if offset + room < text.len() {
        let rest = slice(offset, text.len());
        if room >= 4 {
            push_abbreviated(out, rest, 0, room);
        }
    } else {
        out.extend_from_slice(slice(text.len() - room, text.len()));
    }
}

/// Returns the first byte of every word, treated as a Latin-1 rune.
fn initials(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let mut gap = true;
    for &byte in args.str(0).as_bytes() {
        if unicode::is_space(byte as char) {
            gap = true;
        } else if std::mem::take(&mut gap) {
            push_rune(out, byte as char);
        }
    }
    Ok(())
}

fn untitle(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let mut first = true;
    for rune in decoded(args.str(0).as_bytes(), call.budget())? {
        if unicode::is_space(rune) {
            first = true;
            push_rune(out, rune);
        } else if std::mem::take(&mut first) {
            push_rune(out, unicode::to_lower(rune));
        } else {
            push_rune(out, rune);
        }
    }
    Ok(())
}

fn swap_case(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let mut gap = true;
    for rune in decoded(args.str(0).as_bytes(), call.budget())? {
        let swapped = if unicode::is_upper(rune) || unicode::is_title(rune) {
            gap = false;
            unicode::to_lower(rune)
        } else if unicode::is_lower(rune) {
            if std::mem::take(&mut gap) {
                unicode::to_title(rune)
            } else {
                unicode::to_upper(rune)
            }
        } else {
            gap = unicode::is_space(rune);
            rune
        };
        push_rune(out, swapped);
    }
    Ok(())
}

fn wrap(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_wrapped(call, args.int(0), args.str(1), None, out)
}

fn wrap_with(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_wrapped(call, args.int(0), args.str(2), Some(args.str(1)), out)
}

/// Wraps at spaces after at most `width` bytes; longer words are cut only if the line break is given.
fn push_wrapped(
    call: &mut Call<'_>,
    width: i64,
    text: &Str,
    newline: Option<&Str>,
    out: &mut Buffer,
) -> Text {
    let cut_words = newline.is_some();
    let newline = newline.filter(|newline| !newline.is_empty());
    let newline = newline.map_or(&b"\n"[..], Str::as_bytes);
    let width = usize::try_from(width).unwrap_or(1).max(1);
    call.budget()
        .string((text.len() / width).saturating_mul(newline.len()))?;
    let mut rest = text.as_bytes();
    while rest.len() > width {
        if let [b' ', after @ ..] = rest {
            rest = after;
            continue;
        }
        let head = rest.get(..=width).unwrap_or(rest);
        let (line, after) = match memchr::memrchr(b' ', head) {
            Some(space) => (rest.get(..space), rest.get(space + 1..)),
            None if cut_words => (rest.get(..width), rest.get(width..)),
            None => {
                let word = memchr::memchr(b' ', rest.get(width..).unwrap_or_default());
                let Some(space) = word.map(|end| width + end) else {
                    break;
                };
                (rest.get(..space), rest.get(space + 1..))
            }
        };
        out.extend_from_slice(line.unwrap_or_default());
        out.extend_from_slice(newline);
        rest = after.unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Ok(())
}
