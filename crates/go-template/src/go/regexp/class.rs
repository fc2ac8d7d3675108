//! Character classes: brackets, `\d`, `[:alpha:]` and `\p{Greek}`, with Go's rules and names.

use super::error::{Error, ErrorCode};
use super::escape::{next_rune, parse_escape};
use super::parse::Flags;
use super::rune_set::RuneSet;

/// Result of a class parser: the set and the rest of the pattern.
pub(super) type ParsedClass<'p> = (RuneSet, &'p [u8]);

/// Inclusive ranges of code points.
type Ranges = &'static [(u32, u32)];

const DIGIT: Ranges = &[(0x30, 0x39)];
const PERL_SPACE: Ranges = &[(0x9, 0xA), (0xC, 0xD), (0x20, 0x20)];
const WORD: Ranges = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];

/// The POSIX classes: ASCII only.
const POSIX: &[(&[u8], Ranges)] = &[
    (b"alnum", &[(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)]),
    (b"alpha", &[(0x41, 0x5A), (0x61, 0x7A)]),
    (b"ascii", &[(0x0, 0x7F)]),
    (b"blank", &[(0x9, 0x9), (0x20, 0x20)]),
    (b"cntrl", &[(0x0, 0x1F), (0x7F, 0x7F)]),
    (b"digit", DIGIT),
    (b"graph", &[(0x21, 0x7E)]),
    (b"lower", &[(0x61, 0x7A)]),
    (b"print", &[(0x20, 0x7E)]),
    (
        b"punct",
        &[(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    ),
    (b"space", &[(0x9, 0xD), (0x20, 0x20)]),
    (b"upper", &[(0x41, 0x5A)]),
    (b"word", WORD),
    (b"xdigit", &[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
];

/// Parses a bracketed class; `s` begins with `[`.
pub(super) fn parse_class(s: &[u8], flags: Flags) -> Result<ParsedClass<'_>, Error> {
    let mut rest = s.get(1..).unwrap_or_default();
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = rest.get(1..).unwrap_or_default();
    }
    let mut set = RuneSet::default();
    let mut first = true;
    while first || rest.first() != Some(&b']') {
        first = false;
        if let Some((named, tail)) = parse_named(rest, flags)? {
            set.extend(&named);
            rest = tail;
            continue;
        }
        if let Some((escaped, tail)) = parse_class_escape(rest, flags)? {
            set.extend(&escaped);
            rest = tail;
            continue;
        }
        let range = rest;
        let (low, tail) = class_char(rest, s)?;
        let mut high = low;
        rest = tail;
        if let [b'-', after @ ..] = tail
            && after.first().is_some_and(|&c| c != b']')
        {
            (high, rest) = class_char(after, s)?;
            if high < low {
                return Err(Error::before(ErrorCode::InvalidCharRange, range, rest));
            }
        }
        if flags.fold {
            set.extend(&RuneSet::from_ranges(&[(low, high)]).folded());
        } else {
            set.push(low, high);
        }
    }
    let rest = rest.get(1..).unwrap_or_default();
    Ok((if negated { set.negated() } else { set }, rest))
}

fn class_char<'p>(s: &'p [u8], whole: &[u8]) -> Result<(u32, &'p [u8]), Error> {
    match s.first() {
        None => Err(Error::new(ErrorCode::MissingBracket, whole)),
        Some(b'\\') => parse_escape(s),
        Some(_) => next_rune(s).map(|(rune, rest)| (rune as u32, rest)),
    }
}

/// Returns the part of `s` before its suffix `rest`.
pub(super) fn consumed<'p>(s: &'p [u8], rest: &[u8]) -> &'p [u8] {
    s.get(..s.len().saturating_sub(rest.len()))
        .unwrap_or_default()
}

/// Parses `[:name:]`. Returns `None` if `s` does not begin with one.
fn parse_named(s: &[u8], flags: Flags) -> Result<Option<ParsedClass<'_>>, Error> {
    let Some(body) = s.strip_prefix(b"[:") else {
        return Ok(None);
    };
    let Some(length) = body.windows(2).position(|pair| pair == b":]") else {
        return Ok(None);
    };
    let (name, rest) = body.split_at(length);
    let rest = rest.get(2..).unwrap_or_default();
    let (negated, wanted) = match name {
        [b'^', name @ ..] => (true, name),
        _ => (false, name),
    };
    let found = POSIX.iter().find(|(posix, _)| *posix == wanted);
    let Some((_, ranges)) = found else {
        return Err(Error::before(ErrorCode::InvalidCharRange, s, rest));
    };
    Ok(Some((group(ranges, negated, flags), rest)))
}

fn group(ranges: &[(u32, u32)], negated: bool, flags: Flags) -> RuneSet {
    let mut set = RuneSet::from_ranges(ranges);
    if flags.fold {
        set = set.folded();
    }
    if negated { set.negated() } else { set }
}

/// Parses `\p{…}`, `\pL`, `\d` and similar. Returns `None` if `s` does not begin with one.
pub(super) fn parse_class_escape(s: &[u8], flags: Flags) -> Result<Option<ParsedClass<'_>>, Error> {
    let [b'\\', letter, rest @ ..] = s else {
        return Ok(None);
    };
    let (ranges, negated) = match letter {
        b'd' => (DIGIT, false),
        b'D' => (DIGIT, true),
        b's' => (PERL_SPACE, false),
        b'S' => (PERL_SPACE, true),
        b'w' => (WORD, false),
        b'W' => (WORD, true),
        b'p' | b'P' => return parse_unicode(s, *letter == b'P', flags).map(Some),
        _ => return Ok(None),
    };
    Ok(Some((group(ranges, negated, flags), rest)))
}

fn parse_unicode(s: &[u8], negated: bool, flags: Flags) -> Result<ParsedClass<'_>, Error> {
    let after = s.get(2..).unwrap_or_default();
    let (rune, tail) = if after.is_empty() {
        // Go decodes an empty rest to a zero-width U+FFFD, which is not a class name.
        ('\u{FFFD}', after)
    } else {
        next_rune(after)?
    };
    let (name, rest) = if rune == '{' {
        let Some(end) = tail.iter().position(|&c| c == b'}') else {
            super::escape::check_utf8(s)?;
            return Err(Error::new(ErrorCode::InvalidCharRange, s));
        };
        let (name, rest) = tail.split_at(end);
        super::escape::check_utf8(name)?;
        (name, rest.get(1..).unwrap_or_default())
    } else {
        (consumed(after, tail), tail)
    };
    let (caret, name) = match name {
        [b'^', name @ ..] => (true, name),
        _ => (false, name),
    };
    let Some(set) = super::unicode_class::lookup(name) else {
        return Err(Error::before(ErrorCode::InvalidCharRange, s, rest));
    };
    let set = if flags.fold { set.folded() } else { set };
    Ok((if negated == caret { set } else { set.negated() }, rest))
}
