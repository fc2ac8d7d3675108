//! Suggests the closest known name for a misspelt one.

/// Returns the candidate that is closest to `name`, if one is close enough.
///
/// Close enough is an edit distance of at most a third of the name's length, or 1 for short names.
/// Letter case is ignored.
pub fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    candidates
        .iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, cb) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            let replaced = diagonal + usize::from(ca != *cb);
            *cell = replaced.min(above + 1).min(left + 1);
            left = *cell;
            diagonal = above;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn distance_counts_edits() {
        for (a, b, expected) in [
            ("", "", 0),
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("abc", "", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a:?} to {b:?}");
        }
    }

    #[test]
    fn a_misspelt_field_finds_the_closest_one_and_nonsense_finds_none() {
        let fields = ["chart", "overrideValues", "valuesFrom", "values"];
        assert_eq!(nearest("overideValues", &fields), Some("overrideValues"));
        assert_eq!(nearest("overridevalues", &fields), Some("overrideValues"));
        assert_eq!(nearest("cahrt", &fields), None);
        assert_eq!(nearest("charts", &fields), Some("chart"));
        assert_eq!(nearest("somethingElse", &fields), None);
    }
}
