//! Merges two changes of one text by lines, as `git merge` does: changes that touch each other are in conflict, unless
//! they are the same.

use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;

use similar::{Algorithm, DiffTag, capture_diff_slices};

/// A place that both texts have changed, each in its own way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Number of the first line in our text, from 1.
    pub(crate) line: usize,
    /// Lines before the changes.
    pub(crate) base: String,
    /// Lines of our text.
    pub(crate) ours: String,
    /// Lines of the other text.
    pub(crate) theirs: String,
}

/// Returns the text with the changes of both, or the places at which they are in conflict.
pub(super) fn merge(base: &str, ours: &str, theirs: &str) -> Result<String, Vec<Conflict>> {
    let base: Vec<&str> = base.split_inclusive('\n').collect();
    let (mut ours, mut theirs) = (Side::new(&base, ours), Side::new(&base, theirs));
    let mut merged = String::new();
    let mut conflicts = Vec::new();
    let mut at = 0;
    while let Some(start) = [ours.next(), theirs.next()].into_iter().flatten().min() {
        merged += &lines(&base, at..start).concat();
        let from = (ours.position(start), theirs.position(start));
        let mut end = start;
        while ours.take(&mut end) || theirs.take(&mut end) {}
        let before = lines(&base, start..end);
        let own = lines(&ours.lines, from.0..ours.position(end));
        let other = lines(&theirs.lines, from.1..theirs.position(end));
        if own == before {
            merged += &other.concat();
        } else if other == before || other == own {
            merged += &own.concat();
        } else {
            conflicts.push(Conflict {
                line: from.0 + 1,
                base: before.concat(),
                ours: own.concat(),
                theirs: other.concat(),
            });
        }
        at = end;
    }
    merged += &lines(&base, at..base.len()).concat();
    if conflicts.is_empty() {
        Ok(merged)
    } else {
        Err(conflicts)
    }
}

/// Lines of the base, and those that replace them.
type Change = (Range<usize>, Range<usize>);

/// A changed text.
struct Side<'t> {
    lines: Vec<&'t str>,
    /// The changes that were not read yet.
    changes: Peekable<IntoIter<Change>>,
    /// The ends of the last change that was read: in the base, and in the text.
    read: (usize, usize),
}

impl<'t> Side<'t> {
    fn new(base: &[&'t str], text: &'t str) -> Self {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut changes: Vec<Change> = Vec::new();
        let (mut old, mut new) = (0, 0);
        for part in capture_diff_slices(Algorithm::Myers, base, &lines) {
            // Only the lengths count: the positions of a removal in the text, and of an addition in the base, are not
            // always right.
            let ends = (old + part.old_range().len(), new + part.new_range().len());
            if part.tag() != DiffTag::Equal {
                changes.push((old..ends.0, new..ends.1));
            }
            (old, new) = ends;
        }
        Self {
            lines,
            changes: changes.into_iter().peekable(),
            read: (0, 0),
        }
    }

    /// Returns the line of the base at which the next change begins.
    fn next(&mut self) -> Option<usize> {
        self.changes.peek().map(|(before, _)| before.start)
    }

    /// Reads the next change if it touches lines of the base that end at `end`, which it may extend.
    fn take(&mut self, end: &mut usize) -> bool {
        let change = self.changes.next_if(|(before, _)| before.start <= *end);
        let Some((before, after)) = change else {
            return false;
        };
        *end = before.end.max(*end);
        self.read = (before.end, after.end);
        true
    }

    /// Returns the line of the text for a line of the base after the last change that was read.
    fn position(&self, line: usize) -> usize {
        self.read.1 + line - self.read.0
    }
}

fn lines<'l, 't>(all: &'l [&'t str], range: Range<usize>) -> &'l [&'t str] {
    all.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::merge;

    /// Merges texts whose lines are separated by spaces. Conflicts are `LINE:BASE|OURS|THEIRS`.
    fn merged(base: &str, ours: &str, theirs: &str) -> String {
        let split = |text: &str| -> String {
            let words = text.split_whitespace();
            words.flat_map(|word| [word, "\n"]).collect()
        };
        let join = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        match merge(&split(base), &split(ours), &split(theirs)) {
            Ok(text) => join(text),
            Err(conflicts) => {
                let shown = conflicts.into_iter().map(|found| {
                    let texts = [found.base, found.ours, found.theirs].map(join);
                    format!("{}:{}", found.line, texts.join("|"))
                });
                shown.collect::<Vec<_>>().join(" and ")
            }
        }
    }

    #[test]
    fn changes_of_different_places_are_joined_and_others_are_in_conflict() {
        for (base, ours, theirs, expected) in [
            ("a b c d", "A b c d", "a b c D", "A b c D"),
            ("a b c d", "a x b c d", "a b c", "a x b c"),
            ("a b c d", "d", "a b c d e", "d e"),
            ("a b c", "a B c", "a B c", "a B c"),
            ("a b c", "a B c", "a B c d", "a B c d"),
            ("a b c d e", "x a B c d e", "a C c d e", "3:b|B|C"),
            ("a b c", "a B c", "a b C", "2:b c|B c|b C"),
            ("a b c", "a x b c", "a y b c", "2:|x|y"),
            ("a b c d e", "a c d E", "a B c d F", "2:b||B and 4:e|E|F"),
            ("", "a", "a", "a"),
            ("", "a", "b", "1:|a|b"),
        ] {
            let found = merged(base, ours, theirs);
            assert_eq!(found, expected, "{base} -> {ours}, {theirs}");
        }
    }

    #[test]
    fn a_missing_line_break_at_the_end_is_kept() {
        assert_eq!(merge("a\nb\nc", "A\nb\nc", "a\nb\nc").unwrap(), "A\nb\nc");
        assert_eq!(
            merge("a\nb\nc\n", "A\nb\nc\n", "a\nb\nc").unwrap(),
            "A\nb\nc"
        );
        assert!(merge("a\nb", "a\nb\nc\n", "a\nb\nd").is_err());
    }

    proptest! {
        #[test]
        fn a_change_of_one_side_is_taken_whole_and_the_sides_are_equal(
            base in "([a-d]\n){0,8}[a-d]?", ours in "([a-d]\n){0,8}[a-d]?", theirs in "([a-d]\n){0,8}[a-d]?",
        ) {
            prop_assert_eq!(merge(&base, &ours, &base), Ok(ours.clone()));
            prop_assert_eq!(merge(&base, &base, &ours), Ok(ours.clone()));
            prop_assert_eq!(merge(&base, &ours, &ours), Ok(ours.clone()));
            let (there, back) = (merge(&base, &ours, &theirs), merge(&base, &theirs, &ours));
            prop_assert_eq!(there.is_ok(), back.is_ok());
            if let (Ok(there), Ok(back)) = (there, back) {
                prop_assert_eq!(there, back);
            }
        }
    }
}
