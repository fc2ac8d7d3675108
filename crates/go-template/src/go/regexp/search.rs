//! Searching: one match, all matches, and the pieces between them, with Go's rules for empty
//! matches.

use std::borrow::Cow;
use std::ops::Range;

use bounded::memory::Held;
use bounded::{Budget, BudgetError, Buffer};
use regex_automata::Input;
use regex_automata::util::captures::Captures;

use super::Regexp;
use crate::go::utf8::{RUNE_ERROR, decode_rune, push_rune, runes};

/// The searched text: the original, or a copy that is valid UTF-8.
pub(super) struct Haystack<'t> {
    pub(super) original: &'t [u8],
    text: Cow<'t, [u8]>,
    /// For every offset in a copy, the offset in the original.
    origins: Vec<usize>,
    /// The memory of the copy.
    _held: Held,
}

/// Length of a text from which the clock is checked before each search: a single search may read
/// all of it.
const LONG: usize = 64 << 10;
/// Matches after which the memory is checked.
const MATCHES_BETWEEN_CHECKS: usize = 16 << 10;
/// The memory of a match in the lists of ranges and parts, in bytes.
const BYTES_PER_MATCH: usize = 64;

impl<'t> Haystack<'t> {
    pub(super) fn new(original: &'t [u8], budget: &Budget) -> Result<Self, BudgetError> {
        if std::str::from_utf8(original).is_ok() {
            return Ok(Self {
                original,
                text: Cow::Borrowed(original),
                origins: Vec::new(),
                _held: Held::default(),
            });
        }
        // Each byte may become three, each with an offset, in vectors that grow.
        let most = original
            .len()
            .saturating_mul(3 * 2 * (1 + size_of::<usize>()));
        budget.memory(most)?;
        let mut text = Buffer::with_capacity(original.len() + 16);
        let mut origins = Vec::with_capacity(original.len() + 16);
        for (at, rune, _) in runes(original) {
            push_rune(&mut text, rune);
            // A match never ends inside a rune.
            origins.resize(text.len(), at);
        }
        origins.push(original.len());
        let text = text.into_vec();
        let held = text.capacity() + origins.capacity() * size_of::<usize>();
        Ok(Self {
            original,
            text: Cow::Owned(text),
            origins,
            _held: Held::new(held),
        })
    }

    /// Counts a search from `at` on as work.
    pub(super) fn pace(&self, at: usize, budget: &Budget) -> Result<(), BudgetError> {
        if self.len().saturating_sub(at) > LONG {
            budget.slow(1)
        } else {
            budget.step(1)
        }
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the width of the rune at `at`, or 0 at the end.
    pub(super) fn width(&self, at: usize) -> usize {
        decode_rune(self.text.get(at..).unwrap_or_default()).1
    }

    /// Returns the part of the original for a range of the searched text.
    pub(super) fn part(&self, range: Range<usize>) -> &'t [u8] {
        let origin = |at: usize| match self.text {
            Cow::Borrowed(_) => at,
            Cow::Owned(_) => self.origins.get(at).copied().unwrap_or(self.original.len()),
        };
        self.original
            .get(origin(range.start)..origin(range.end))
            .unwrap_or_default()
    }
}

impl Regexp {
    /// Go's `MatchString`.
    ///
    /// # Errors
    /// An exceeded limit.
    pub fn is_match(&self, text: &[u8], budget: &Budget) -> Result<bool, BudgetError> {
        let haystack = Haystack::new(text, budget)?;
        Ok(self
            .automaton
            .is_match(Input::new(haystack.text.as_ref()).earliest(true)))
    }

    /// Go's `FindString`; `None` if there is no match.
    ///
    /// # Errors
    /// An exceeded limit.
    pub fn find<'t>(
        &self,
        text: &'t [u8],
        budget: &Budget,
    ) -> Result<Option<&'t [u8]>, BudgetError> {
        let haystack = Haystack::new(text, budget)?;
        Ok(self.find_at(&haystack, 0).map(|range| haystack.part(range)))
    }

    /// Go's `FindAllString`: at most `limit` matches, or all if it is negative. `None` stands for
    /// Go's nil if there is no match.
    ///
    /// # Errors
    /// An exceeded limit.
    pub fn find_all<'t>(
        &self,
        text: &'t [u8],
        limit: i64,
        budget: &Budget,
    ) -> Result<Option<Vec<&'t [u8]>>, BudgetError> {
        let haystack = Haystack::new(text, budget)?;
        let ranges = self.find_ranges(&haystack, limit, budget)?;
        let found: Vec<_> = ranges
            .into_iter()
            .map(|range| haystack.part(range))
            .collect();
        Ok((!found.is_empty()).then_some(found))
    }

    /// Go's `Split`: at most `limit` pieces between matches, or all if it is negative. `None`
    /// stands for Go's nil if `limit` is 0.
    ///
    /// # Errors
    /// An exceeded limit.
    pub fn split<'t>(
        &self,
        text: &'t [u8],
        limit: i64,
        budget: &Budget,
    ) -> Result<Option<Vec<&'t [u8]>>, BudgetError> {
        if limit == 0 {
            return Ok(None);
        }
        if self.has_pattern && text.is_empty() {
            return Ok(Some(vec![text]));
        }
        let haystack = Haystack::new(text, budget)?;
        let most = usize::try_from(limit).map_or(usize::MAX, |limit| limit.saturating_sub(1));
        let mut pieces = Vec::new();
        let (mut begin, mut end) = (0, 0);
        for found in self.find_ranges(&haystack, limit, budget)? {
            if pieces.len() >= most {
                break;
            }
            end = found.start;
            if found.end != 0 {
                pieces.push(haystack.part(begin..end));
            }
            begin = found.end;
        }
        if end != haystack.len() {
            pieces.push(haystack.part(begin..haystack.len()));
        }
        Ok(Some(pieces))
    }

    pub(super) fn find_at(&self, haystack: &Haystack<'_>, at: usize) -> Option<Range<usize>> {
        let input = Input::new(haystack.text.as_ref()).range(at..);
        self.automaton.search(&input).map(|found| found.range())
    }

    /// Like [`Regexp::find_at`], with the ranges of the groups.
    pub(super) fn captures_at(
        &self,
        haystack: &Haystack<'_>,
        at: usize,
        captures: &mut Captures,
    ) -> Option<Range<usize>> {
        let input = Input::new(haystack.text.as_ref()).range(at..);
        self.automaton.search_captures(&input, captures);
        captures.get_match().map(|found| found.range())
    }

    fn find_ranges(
        &self,
        haystack: &Haystack<'_>,
        limit: i64,
        budget: &Budget,
    ) -> Result<Vec<Range<usize>>, BudgetError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        let mut at = 0;
        let mut previous_end = None;
        while found.len() < limit && at <= haystack.len() {
            haystack.pace(at, budget)?;
            if found.len().is_multiple_of(MATCHES_BETWEEN_CHECKS) {
                let more = found.len() + MATCHES_BETWEEN_CHECKS;
                budget.memory(more.saturating_mul(BYTES_PER_MATCH))?;
            }
            let Some(range) = self.find_at(haystack, at) else {
                break;
            };
            // An empty match directly after the previous match does not count.
            let counts = range.end != at || Some(range.start) != previous_end;
            at = if range.end == at {
                match haystack.width(at) {
                    0 => haystack.len() + 1,
                    width => at + width,
                }
            } else {
                range.end
            };
            previous_end = Some(range.end);
            if counts {
                found.push(range);
            }
        }
        Ok(found)
    }
}

/// Returns whether a rune may occur in a group's name.
pub(super) fn is_name_rune(rune: char) -> bool {
    use crate::go::unicode::{is_digit, is_letter};
    rune == '_' || rune != RUNE_ERROR && (is_letter(rune) || is_digit(rune))
}
