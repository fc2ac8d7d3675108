//! Rune properties and case mapping of Go's `unicode` package: Unicode 15.0, mapping one rune to
//! one rune.
//!
//! The standard library's tables are newer than Go's, and its case mapping may return several
//! characters. Properties therefore come from `regex-syntax`, restricted to the Unicode version of
//! Go's tables, and mappings are corrected where they differ.

use bounded::Buffer;
use std::sync::LazyLock;

use super::utf8::{RUNE_ERROR, push_rune, runes};

/// Sorted, disjoint ranges of code points.
type Ranges = Box<[(char, char)]>;

static PRINT: LazyLock<Ranges> = LazyLock::new(|| ranges(r"[\pL\pM\pN\pP\pS]"));
static LETTER: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\pL"));
static NUMBER: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\pN"));
static DIGIT: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\p{Nd}"));
static UPPER: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\p{Lu}"));
static LOWER: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\p{Ll}"));
static TITLE: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\p{Lt}"));
static PUNCT: LazyLock<Ranges> = LazyLock::new(|| ranges(r"\pP"));

/// Returns the members of a class that were assigned in the Unicode version of Go's tables.
fn ranges(class: &str) -> Ranges {
    let limited = format!(r"[{class}&&\p{{Age:15.0}}]");
    let Ok(hir) = regex_syntax::parse(&limited) else {
        return Box::default();
    };
    match hir.kind() {
        regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => class
            .iter()
            .map(|range| (range.start(), range.end()))
            .collect(),
        _ => Box::default(),
    }
}

fn contains(ranges: &[(char, char)], rune: char) -> bool {
    let at = ranges.partition_point(|&(_, high)| high < rune);
    ranges.get(at).is_some_and(|&(low, _)| low <= rune)
}

/// Returns whether a property holds: of ASCII by a function, of other runes by a table.
#[inline]
fn has(rune: char, in_ascii: impl Fn(&char) -> bool, others: &LazyLock<Ranges>) -> bool {
    if rune.is_ascii() {
        in_ascii(&rune)
    } else {
        contains(others, rune)
    }
}

/// Returns whether Go prints the rune unescaped in quoted text: letters, marks, numbers,
/// punctuation, symbols and the ASCII space.
pub fn is_print(rune: char) -> bool {
    match rune {
        ' '..='~' => true,
        '\0'..='\u{A0}' | '\u{AD}' => false,
        '\u{A1}'..='\u{FF}' => true,
        _ => contains(&PRINT, rune),
    }
}

/// Go's `unicode.IsSpace`.
#[inline]
pub fn is_space(rune: char) -> bool {
    match rune {
        ' ' | '\t'..='\r' => true,
        '\0'..='\u{7F}' => false,
        _ => rune.is_whitespace(),
    }
}

/// Go's `unicode.IsLetter`: category L.
pub fn is_letter(rune: char) -> bool {
    has(rune, char::is_ascii_alphabetic, &LETTER)
}

/// Go's `unicode.IsNumber`: category N.
pub fn is_number(rune: char) -> bool {
    has(rune, char::is_ascii_digit, &NUMBER)
}

/// Go's `unicode.IsDigit`: category Nd.
pub fn is_digit(rune: char) -> bool {
    has(rune, char::is_ascii_digit, &DIGIT)
}

/// Go's `unicode.IsUpper`: category Lu.
pub fn is_upper(rune: char) -> bool {
    has(rune, char::is_ascii_uppercase, &UPPER)
}

/// Go's `unicode.IsLower`: category Ll.
pub fn is_lower(rune: char) -> bool {
    has(rune, char::is_ascii_lowercase, &LOWER)
}

/// Go's `unicode.IsTitle`: category Lt.
pub fn is_title(rune: char) -> bool {
    !rune.is_ascii() && contains(&TITLE, rune)
}

/// Go's `unicode.IsPunct`: category P.
pub fn is_punct(rune: char) -> bool {
    contains(&PUNCT, rune)
}

/// Letters that got a counterpart of the other case in a Unicode version newer than Go's tables.
pub(super) const PAIRED_LATER: &[(u32, u32)] = &[
    (0x19B, 0x19B),
    (0x264, 0x264),
    (0x1C89, 0x1C8A),
    (0xA7CB, 0xA7CF),
    (0xA7D2, 0xA7D5),
    (0xA7DA, 0xA7DC),
    (0x10D50, 0x10D65),
    (0x10D70, 0x10D85),
    (0x16EA0, 0x16EB8),
    (0x16EBB, 0x16ED3),
];

fn paired_later(rune: char) -> bool {
    let rune = rune as u32;
    PAIRED_LATER
        .iter()
        .any(|&(low, high)| (low..=high).contains(&rune))
}

/// Go's `unicode.ToUpper`.
pub fn to_upper(rune: char) -> char {
    if rune.is_ascii() {
        return rune.to_ascii_uppercase();
    }
    if paired_later(rune) {
        return rune;
    }
    match rune {
        // Greek letters with iota subscript: the full mapping splits the iota off, the simple one
        // keeps it.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => {
            char::from_u32(rune as u32 + 8).unwrap_or(rune)
        }
        '\u{1FB3}' => '\u{1FBC}',
        '\u{1FC3}' => '\u{1FCC}',
        '\u{1FF3}' => '\u{1FFC}',
        _ => single(rune.to_uppercase(), rune),
    }
}

/// Go's `unicode.ToLower`.
pub fn to_lower(rune: char) -> char {
    if rune.is_ascii() {
        return rune.to_ascii_lowercase();
    }
    match rune {
        '\u{130}' => 'i',
        _ if paired_later(rune) => rune,
        _ => single(rune.to_lowercase(), rune),
    }
}

/// Go's `unicode.ToTitle`.
pub fn to_title(rune: char) -> char {
    match rune {
        '\u{1C4}'..='\u{1C6}' => '\u{1C5}',
        '\u{1C7}'..='\u{1C9}' => '\u{1C8}',
        '\u{1CA}'..='\u{1CC}' => '\u{1CB}',
        '\u{1F1}'..='\u{1F3}' => '\u{1F2}',
        // Georgian has capitals, but its title case uses small letters.
        '\u{10D0}'..='\u{10FA}' | '\u{10FD}'..='\u{10FF}' => rune,
        _ => to_upper(rune),
    }
}

/// Returns the mapping if it is a single character, otherwise the rune itself.
fn single(mut mapped: impl Iterator<Item = char>, rune: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => rune,
    }
}

/// Applies `mapping` to every rune, like Go's `strings.Map`; invalid bytes become U+FFFD.
pub fn map_runes(s: &[u8], mapping: impl Fn(char) -> char) -> Vec<u8> {
    let mut out = Buffer::with_capacity(s.len());
    for (_, rune, _) in runes(s) {
        push_rune(&mut out, mapping(rune));
    }
    out.into_vec()
}

/// Go's `strings.ToUpper`.
pub fn upper(s: &[u8]) -> Vec<u8> {
    if s.is_ascii() {
        s.to_ascii_uppercase()
    } else {
        map_runes(s, to_upper)
    }
}

/// Go's `strings.ToLower`.
pub fn lower(s: &[u8]) -> Vec<u8> {
    if s.is_ascii() {
        s.to_ascii_lowercase()
    } else {
        map_runes(s, to_lower)
    }
}

/// Go's `strings.Title`: capitalizes the first letter of every word. A word ends at anything but a
/// letter, digit or underscore.
pub fn title(s: &[u8]) -> Vec<u8> {
    let mut out = Buffer::with_capacity(s.len());
    let mut previous = ' ';
    for (_, rune, _) in runes(s) {
        let begins_word = ends_word(previous);
        push_rune(&mut out, if begins_word { to_title(rune) } else { rune });
        previous = rune;
    }
    out.into_vec()
}

fn ends_word(rune: char) -> bool {
    if rune.is_ascii() {
        !(rune.is_ascii_alphanumeric() || rune == '_')
    } else {
        is_space(rune)
    }
}

/// Go's `strings.TrimSpace`.
pub fn trim_space(s: &[u8]) -> &[u8] {
    trim_end_matches(trim_start_matches(s, is_space), is_space)
}

/// Strips leading runes that satisfy `wanted`.
pub fn trim_start_matches(s: &[u8], wanted: impl Fn(char) -> bool) -> &[u8] {
    let kept = runes(s).find(|&(_, rune, _)| !wanted(rune));
    kept.map_or(&[], |(at, ..)| s.get(at..).unwrap_or_default())
}

/// Strips trailing runes that satisfy `wanted`.
pub fn trim_end_matches(mut s: &[u8], wanted: impl Fn(char) -> bool) -> &[u8] {
    loop {
        let (rune, width) = super::utf8::decode_last_rune(s);
        if width == 0 || !wanted(rune) {
            return s;
        }
        s = s.get(..s.len() - width).unwrap_or_default();
    }
}

/// Strips runes in `cutset` from both ends, like Go's `strings.Trim`.
pub fn trim<'a>(s: &'a [u8], cutset: &[u8]) -> &'a [u8] {
    let cut = |rune: char| contains_rune(cutset, rune);
    trim_end_matches(trim_start_matches(s, cut), cut)
}

fn contains_rune(set: &[u8], rune: char) -> bool {
    if rune == RUNE_ERROR || !rune.is_ascii() {
        runes(set).any(|(_, member, _)| member == rune)
    } else {
        set.contains(&(rune as u8))
    }
}
