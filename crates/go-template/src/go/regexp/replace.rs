//! Replacement of matches, literally or with a template that uses `$1` and `${name}`.

use bounded::{Budget, BudgetError, Buffer};
use regex_automata::util::captures::Captures;

use super::Regexp;
use super::search::{Haystack, is_name_rune};
use crate::go::utf8::runes;

/// A piece of a replacement template.
enum Piece<'t> {
    Text(&'t [u8]),
    Group(usize),
    Name(&'t [u8]),
}

impl Regexp {
    /// Appends `text` with every match replaced by `template`, like Go's `ReplaceAllString`: `$1`,
    /// `$name` and their forms in braces expand to groups, `$$` to a dollar sign.
    ///
    /// # Errors
    /// An exceeded limit.
    pub fn replace_all(
        &self,
        text: &[u8],
        template: &[u8],
        out: &mut Buffer,
        budget: &Budget,
    ) -> Result<(), BudgetError> {
        if !template.contains(&b'$') {
            return self.replace_all_literal(text, template, out, budget);
        }
        let pieces = parse_template(template);
        let mut captures = self.automaton.create_captures();
        replace(text, out, budget, |haystack, at, out| match at {
            MatchRequest::Find(at) => self.captures_at(haystack, at, &mut captures),
            MatchRequest::Replace => {
                self.expand(&pieces, haystack, &captures, out);
                None
            }
        })
    }

    /// Appends `text` with every match replaced by the literal `replacement`, like Go's
    /// `ReplaceAllLiteralString`.
    ///
    /// # Errors
    /// An exceeded limit.
    pub fn replace_all_literal(
        &self,
        text: &[u8],
        replacement: &[u8],
        out: &mut Buffer,
        budget: &Budget,
    ) -> Result<(), BudgetError> {
        replace(text, out, budget, |haystack, at, out| match at {
            MatchRequest::Find(at) => self.find_at(haystack, at),
            MatchRequest::Replace => {
                out.extend_from_slice(replacement);
                None
            }
        })
    }

    fn expand(
        &self,
        pieces: &[Piece<'_>],
        haystack: &Haystack<'_>,
        captures: &Captures,
        out: &mut Buffer,
    ) {
        let group = |index: usize| captures.get_group(index).map(|span| span.range());
        for piece in pieces {
            let range = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Piece::Group(index) => group(*index),
                // Of several groups with one name, the first that matched counts.
                Piece::Name(name) => self
                    .names
                    .iter()
                    .zip(1..)
                    .filter(|(known, _)| known.as_deref() == Some(name))
                    .find_map(|(_, index)| group(index)),
            };
            if let Some(range) = range {
                out.extend_from_slice(haystack.part(range));
            }
        }
    }
}

/// Iterates over the matches found by `run` and has it write their replacements.
fn replace<'t>(
    text: &'t [u8],
    out: &mut Buffer,
    budget: &Budget,
    mut run: impl FnMut(&Haystack<'t>, MatchRequest, &mut Buffer) -> Option<std::ops::Range<usize>>,
) -> Result<(), BudgetError> {
    let haystack = Haystack::new(text, budget)?;
    let before = out.len();
    let (mut last_end, mut at) = (0, 0);
    while at <= haystack.len() {
        haystack.pace(at, budget)?;
        let Some(found) = run(&haystack, MatchRequest::Find(at), out) else {
            break;
        };
        out.extend_from_slice(haystack.part(last_end..found.start));
        // An empty match directly after the previous match is not replaced.
        if found.end > last_end || found.start == 0 {
            run(&haystack, MatchRequest::Replace, out);
        }
        check_length(out, before, budget)?;
        last_end = found.end;
        at = found.end.max(at + haystack.width(at).max(1));
    }
    out.extend_from_slice(haystack.part(last_end..haystack.len()));
    check_length(out, before, budget)
}

fn check_length(out: &Buffer, before: usize, budget: &Budget) -> Result<(), BudgetError> {
    let limit = budget.limits().string;
    if out.len() - before > limit {
        return Err(BudgetError::String { limit });
    }
    out.check()
}

/// Requests of the loop over matches.
enum MatchRequest {
    Find(usize),
    Replace,
}

fn parse_template(template: &[u8]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(dollar) = rest.iter().position(|&c| c == b'$') {
        let (text, tail) = rest.split_at(dollar);
        pieces.push(Piece::Text(text));
        let (sign, after) = tail.split_at(1);
        if let [b'$', after @ ..] = after {
            pieces.push(Piece::Text(sign));
            rest = after;
            continue;
        }
        if let Some((piece, after)) = parse_reference(after) {
            pieces.push(piece);
            rest = after;
        } else {
            pieces.push(Piece::Text(sign));
            rest = after;
        }
    }
    pieces.push(Piece::Text(rest));
    pieces
}

/// Parses what follows a dollar sign: a name or number, possibly in braces.
fn parse_reference(s: &[u8]) -> Option<(Piece<'_>, &[u8])> {
    let (braced, body) = match s {
        [b'{', body @ ..] => (true, body),
        _ => (false, s),
    };
    let length = runes(body)
        .find(|&(_, rune, _)| !is_name_rune(rune))
        .map_or(body.len(), |(at, ..)| at);
    let (name, mut rest) = body.split_at(length);
    if name.is_empty() {
        return None;
    }
    if braced {
        rest = rest.strip_prefix(b"}")?;
    }
    let number = name.iter().all(u8::is_ascii_digit)
        && name.len() <= 9
        && (name.len() == 1 || !name.starts_with(b"0"));
    if !number {
        return Some((Piece::Name(name), rest));
    }
    let index = std::str::from_utf8(name)
        .ok()
        .and_then(|digits| digits.parse().ok());
    Some((Piece::Group(index.unwrap_or(usize::MAX)), rest))
}
