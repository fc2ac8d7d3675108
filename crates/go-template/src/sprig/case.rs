//! `camelcase`, `snakecase`, `kebabcase`, with the rules of `huandu/xstrings` 1.5.

use super::Text;
use crate::func::{Args, Call, Func};
use crate::go::unicode;
use crate::go::utf8::{RUNE_ERROR, push_rune, runes};
use crate::value::Type;
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::text("camelcase", &[Type::STRING], camel_case),
    Func::text("kebabcase", &[Type::STRING], kebab_case),
    Func::text("snakecase", &[Type::STRING], snake_case),
];

fn camel_case(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_pascal_case(out, args.str(0).as_bytes());
    Ok(())
}

fn kebab_case(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_connected(out, args.str(0).as_bytes(), '-');
    Ok(())
}

fn snake_case(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_connected(out, args.str(0).as_bytes(), '_');
    Ok(())
}

fn is_connector(rune: char) -> bool {
    matches!(rune, '-' | '_') || unicode::is_space(rune)
}

/// Appends `text` in Pascal case: single connectors are removed and the next letter is capitalized.
/// Leading connectors stay; if there is nothing else, the last one is doubled.
fn push_pascal_case(out: &mut Buffer, text: &[u8]) {
    let mut runes = runes(text).map(|(_, rune, _)| rune);
    let mut last = None;
    let mut current = loop {
        match runes.next() {
            None => return last.into_iter().for_each(|rune| push_rune(out, rune)),
            Some(rune) if is_connector(rune) => {
                push_rune(out, rune);
                last = Some(rune);
            }
            Some(rune) => break rune,
        }
    };
    let mut in_capitals = unicode::is_upper(current);
    current = unicode::to_upper(current);
    for rune in runes {
        let previous = std::mem::replace(&mut current, rune);
        match (is_connector(previous), is_connector(current)) {
            (true, true) => push_rune(out, previous),
            (true, false) => {
                in_capitals = unicode::is_upper(current);
                current = unicode::to_upper(current);
            }
            (false, _) => {
                in_capitals &= unicode::is_upper(current);
                if in_capitals {
                    current = unicode::to_lower(current);
                }
                push_rune(out, previous);
            }
        }
    }
    push_rune(out, current);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The end of the text, or invalid UTF-8.
    Invalid,
    Number,
    Upper,
    Alphabet,
    Connector,
    Punctuation,
    Other,
}

/// Appends `text` as lower-case words joined by `connector`.
fn push_connected(out: &mut Buffer, text: &[u8], connector: char) {
    let (mut kind, mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if kind != Word::Connector {
            push_lower(out, kind, word, connector);
        }
        let (previous, last) = (kind, word);
        (kind, word, rest) = next_word(rest);
        match previous {
            Word::Number => {
                while matches!(kind, Word::Alphabet | Word::Number) {
                    push_lower(out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::Invalid | Word::Punctuation | Word::Connector) {
                    push_rune(out, connector);
                }
            }
            Word::Connector => push_lower(out, previous, last, connector),
            Word::Punctuation => {}
            _ if kind != Word::Number => {
                if !matches!(kind, Word::Connector | Word::Punctuation) {
                    push_rune(out, connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word, rest) = next_word(rest);
                if kind != Word::Alphabet {
                    push_lower(out, Word::Number, number, connector);
                    if !matches!(kind, Word::Connector | Word::Punctuation) {
                        push_rune(out, connector);
                    }
                    continue;
                }
                push_rune(out, connector);
                push_lower(out, Word::Number, number, connector);
                while matches!(kind, Word::Alphabet | Word::Number) {
                    push_lower(out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::Invalid | Word::Connector | Word::Punctuation) {
                    push_rune(out, connector);
                }
            }
        }
    }
    push_lower(out, kind, word, connector);
}

fn push_lower(out: &mut Buffer, kind: Word, word: &[u8], connector: char) {
    if !matches!(kind, Word::Upper | Word::Connector) {
        return out.extend_from_slice(word);
    }
    for (_, rune, _) in runes(word) {
        let lowered = if is_connector(rune) {
            connector
        } else if unicode::is_upper(rune) {
            unicode::to_lower(rune)
        } else {
            rune
        };
        push_rune(out, lowered);
    }
}

/// Returns the next valid rune, skipping others, with the bytes up to its end, or `previous` if
/// there is none.
fn next_valid(s: &[u8], previous: char) -> (char, usize) {
    let mut size = 0;
    for (_, rune, width) in runes(s) {
        size += width;
        if rune != RUNE_ERROR {
            return (rune, size);
        }
    }
    (previous, size)
}

/// Returns whether a rune is a letter, except CJK characters.
fn is_alphabet(rune: char) -> bool {
    let is_ideograph = matches!(
        rune,
        '\u{3400}'..='\u{4D85}' | '\u{4E00}'..='\u{9FCC}' | '\u{20000}'..='\u{2B81D}'
    );
    unicode::is_letter(rune) && !is_ideograph
}

/// Splits off the first word: its kind, its bytes, and the rest.
fn next_word(text: &[u8]) -> (Word, &[u8], &[u8]) {
    if text.is_empty() {
        return (Word::Invalid, text, text);
    }
    let (first, size) = next_valid(text, RUNE_ERROR);
    let split = |kind, end: usize| {
        let (word, rest) = text.split_at(end.min(text.len()));
        (kind, word, rest)
    };
    // Returns the end of the run of runes from `start` that satisfy `belongs`.
    let run = |start: usize, mut rune: char, belongs: &dyn Fn(char, usize) -> bool| {
        let mut end = start;
        let mut width;
        loop {
            let rest = text.get(end..).unwrap_or_default();
            if rest.is_empty() {
                return end;
            }
            (rune, width) = next_valid(rest, rune);
            if !belongs(rune, width) {
                return end;
            }
            end += width;
        }
    };
    let run_of =
        |kind, belongs: fn(char) -> bool| split(kind, run(size, first, &|rune, _| belongs(rune)));
    let lower_letter = |rune: char, _: usize| is_alphabet(rune) && !unicode::is_upper(rune);
    if first == RUNE_ERROR {
        split(Word::Invalid, size)
    } else if is_connector(first) {
        run_of(Word::Connector, is_connector)
    } else if unicode::is_punct(first) {
        run_of(Word::Punctuation, unicode::is_punct)
    } else if unicode::is_upper(first) {
        let rest = text.get(size..).unwrap_or_default();
        if rest.is_empty() {
            return split(Word::Upper, size);
        }
        let (second, width) = next_valid(rest, first);
        if unicode::is_upper(second) {
            split(Word::Upper, end_of_capitals(text, size, first))
        } else if is_alphabet(second) {
            split(Word::Upper, run(size + width, second, &lower_letter))
        } else {
            split(Word::Upper, size)
        }
    } else if is_alphabet(first) {
        split(Word::Alphabet, run(size, first, &lower_letter))
    } else if unicode::is_number(first) {
        run_of(Word::Number, unicode::is_number)
    } else {
        let other = |rune: char, width: usize| {
            width > 0
                && !is_connector(rune)
                && !is_alphabet(rune)
                && !unicode::is_number(rune)
                && !unicode::is_punct(rune)
        };
        split(Word::Other, run(size, first, &other))
    }
}

/// Returns the end of a run of capitals that begins with `first` before `start`. The last one belongs to the
/// next word if a small letter follows.
fn end_of_capitals(text: &[u8], start: usize, first: char) -> usize {
    let mut end = start;
    let mut last_width = 0;
    let mut rune = first;
    while let Some(rest) = text.get(end..).filter(|rest| !rest.is_empty()) {
        let width;
        (rune, width) = next_valid(rest, rune);
        if !unicode::is_upper(rune) {
            return if is_alphabet(rune) {
                end - last_width
            } else {
                end
            };
        }
        last_width = width;
        end += width;
    }
    end
}
