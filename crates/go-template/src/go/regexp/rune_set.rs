//! Sets of runes for parsing character classes.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir};

use crate::go::unicode::PAIRED_LATER;

const MAX_RUNE: u32 = 0x10_FFFF;

/// A set of code points as inclusive ranges, unordered until it is cleaned.
#[derive(Debug, Clone, Default)]
pub(super) struct RuneSet {
    ranges: Vec<(u32, u32)>,
}

impl RuneSet {
    pub(super) fn any() -> Self {
        Self::from_ranges(&[(0, MAX_RUNE)])
    }

    pub(super) fn from_ranges(ranges: &[(u32, u32)]) -> Self {
        Self {
            ranges: ranges.to_vec(),
        }
    }

    /// Returns the number of ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn push(&mut self, low: u32, high: u32) {
        self.ranges.push((low, high));
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.ranges.extend_from_slice(&other.ranges);
    }

    /// Returns the set extended by case variants of its members (simple folding).
    #[must_use]
    pub(super) fn folded(&self) -> Self {
        let later = Self::from_ranges(PAIRED_LATER).to_class();
        let mut class = self.to_class();
        class.difference(&later);
        // Fails only without Unicode tables, which are always built in.
        let _ = class.try_case_fold_simple();
        class.difference(&later);
        let mut folded = Self::from_class(&class);
        folded.extend(self);
        folded
    }

    #[must_use]
    pub(super) fn negated(mut self) -> Self {
        self.clean();
        let mut out = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.ranges {
            if next < low {
                out.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= MAX_RUNE {
            out.push((next, MAX_RUNE));
        }
        Self { ranges: out }
    }

    fn clean(&mut self) {
        self.ranges.sort_unstable();
        let mut clean: Vec<(u32, u32)> = Vec::with_capacity(self.ranges.len());
        for &(low, high) in &self.ranges {
            match clean.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => clean.push((low, high)),
            }
        }
        self.ranges = clean;
    }

    pub(super) fn from_class(class: &ClassUnicode) -> Self {
        let ranges = class
            .iter()
            .map(|range| (range.start() as u32, range.end() as u32));
        Self {
            ranges: ranges.collect(),
        }
    }

    /// Returns the class without surrogates, which do not occur in decoded text.
    fn to_class(&self) -> ClassUnicode {
        let ranges = self
            .ranges
            .iter()
            .flat_map(|&(low, high)| [(low, high.min(0xD7FF)), (low.max(0xE000), high)]);
        ClassUnicode::new(ranges.filter_map(|(low, high)| {
            let (low, high) = (char::from_u32(low)?, char::from_u32(high)?);
            (low <= high).then(|| ClassUnicodeRange::new(low, high))
        }))
    }

    pub(super) fn to_hir(&self) -> Hir {
        Hir::class(Class::Unicode(self.to_class()))
    }
}
