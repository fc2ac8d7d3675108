//! `html`, `js`, `urlquery`.

use crate::error::FuncError;
use crate::fmt;
use crate::func::{Args, Call};
use crate::go::unicode::is_print;
use crate::go::utf8::runes;
use bounded::Buffer;

type Result = std::result::Result<(), FuncError>;

/// Returns the text to escape: the arguments as actions print them.
fn text(call: &mut Call<'_>, args: &Args<'_>) -> std::result::Result<Buffer, FuncError> {
    let mut text = Buffer::new();
    fmt::sprint_actions(args.all(), call.budget(), &mut text)?;
    text.check()?;
    Ok(text)
}

pub(super) fn html(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result {
    for &byte in &*text(call, args)? {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            _ => out.push(byte),
        }
    }
    Ok(())
}

pub(super) fn js(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result {
    let text = text(call, args)?;
    for (at, rune, width) in runes(&text) {
        let bytes = text.get(at..at + width).unwrap_or_default();
        match rune {
            '\\' => out.extend_from_slice(br"\\"),
            '\'' => out.extend_from_slice(br"\'"),
            '"' => out.extend_from_slice(br#"\""#),
            '<' => out.extend_from_slice(br"\u003C"),
            '>' => out.extend_from_slice(br"\u003E"),
            '&' => out.extend_from_slice(br"\u0026"),
            '=' => out.extend_from_slice(br"\u003D"),
            '\0'..' ' => out.extend_from_slice(format!("\\u{:04X}", u32::from(rune)).as_bytes()),
            ' '..='\x7f' => out.extend_from_slice(bytes),
            _ if is_print(rune) => out.extend_from_slice(bytes),
            _ => out.extend_from_slice(format!("\\u{:04X}", u32::from(rune)).as_bytes()),
        }
    }
    Ok(())
}

pub(super) fn urlquery(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result {
    for &byte in &*text(call, args)? {
        match byte {
            b' ' => out.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    Ok(())
}
