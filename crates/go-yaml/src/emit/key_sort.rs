//! The order of map keys: Go's "natural" order, with digits by value and letters after other
//! characters.
//!
//! As in yaml.v2's `keyList`, it is not a total order for keys such as `x2`, `x10` and `x1b`
//! together; the output then depends on the sort algorithm.

use super::Version;

/// Sorts as Go does if the order is total; small lists are sorted by insertion, like Go's `sort`,
/// so that the result is Go's even if the order is not total.
pub fn sort<T>(items: &mut Vec<T>, less: impl Fn(&T, &T) -> bool + Copy) {
    const SMALL: usize = 12;
    if items.len() > SMALL {
        let mut back = items.split_off(items.len() / 2);
        sort(items, less);
        sort(&mut back, less);
        *items = merged(std::mem::take(items), back, less);
        return;
    }
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            let out_of_order =
                matches!((items.get(at - 1), items.get(at)), (Some(a), Some(b)) if less(b, a));
            if !out_of_order {
                break;
            }
            items.swap(at - 1, at);
        }
    }
}

fn merged<T>(front: Vec<T>, back: Vec<T>, less: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut out = Vec::with_capacity(front.len() + back.len());
    let (mut front, mut back) = (front.into_iter().peekable(), back.into_iter().peekable());
    loop {
        let from_back = match (front.peek(), back.peek()) {
            (Some(a), Some(b)) => less(b, a),
            (None, Some(_)) => true,
            (_, None) => break,
        };
        out.extend(if from_back { back.next() } else { front.next() });
    }
    out.extend(front);
    out
}

/// Returns whether `a` comes before `b`.
pub fn less(version: Version, a: &str, b: &str) -> bool {
    let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    // The first difference may be inside a multi-byte character.
    let mut start = common;
    while !(a.is_char_boundary(start) && b.is_char_boundary(start)) {
        start -= 1;
    }
    let (head, rest_a, rest_b) = (
        a.get(..start).unwrap_or(""),
        a.get(start..).unwrap_or(""),
        b.get(start..).unwrap_or(""),
    );
    let (Some(ca), Some(cb)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return rest_a.is_empty() && !rest_b.is_empty();
    };
    let after_digit = version == Version::V3 && head.chars().next_back().is_some_and(is_digit);
    let (letter_a, letter_b) = (ca.is_alphabetic(), cb.is_alphabetic());
    if letter_a && letter_b {
        return ca < cb;
    }
    if letter_a || letter_b {
        // yaml.v3 puts letters before what follows a digit: `x1b` before `x10`.
        return if after_digit { letter_a } else { letter_b };
    }
    let mut carried = 0_i64;
    if ca == '0' || cb == '0' {
        // A zero counts if it follows digits other than zero.
        let digits = head.chars().rev().take_while(|c| is_digit(*c));
        if digits.into_iter().any(|c| c != '0') {
            carried = 1;
        }
    }
    let (number_a, len_a) = number(rest_a, carried);
    let (number_b, len_b) = number(rest_b, carried);
    if number_a != number_b {
        return number_a < number_b;
    }
    if len_a != len_b {
        return len_a < len_b;
    }
    ca < cb
}

fn number(text: &str, carried: i64) -> (i64, usize) {
    text.chars()
        .take_while(|c| is_digit(*c))
        .fold((carried, 0), |(value, len), c| {
            let digit = i64::from(u32::from(c)) - i64::from(u32::from('0'));
            (value.wrapping_mul(10).wrapping_add(digit), len + 1)
        })
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric() && !c.is_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::{Version, less, sort};

    #[test]
    fn keys_sort_naturally() {
        let mut keys = vec![
            "x10", "a1", "A", "9", "x2", "10", "a_1", "x1", "a-1", "", "x02", "b", "é",
        ];
        sort(&mut keys, |a, b| less(Version::V2, a, b));
        assert_eq!(
            keys,
            [
                "", "9", "10", "A", "a-1", "a_1", "a1", "b", "x1", "x2", "x02", "x10", "é"
            ]
        );
    }

    #[test]
    fn sorting_by_a_partial_order_does_not_panic() {
        let mut keys: Vec<String> = (0..200)
            .map(|i| format!("x{}{}", i % 17, ["", "b", "0"][i % 3]))
            .collect();
        let mut unsorted = keys.clone();
        sort(&mut keys, |a, b| less(Version::V2, a, b));
        keys.sort();
        unsorted.sort();
        assert_eq!(keys, unsorted, "nothing is lost");
    }
}
