//! The order of map keys: Go's "natural" order, digits by value and letters after the rest.
//!
//! As in yaml.v2's `keyList`, it is no total order for keys such as `x2`, `x10` and `x1b` side by
//! side; what is printed then depends on the sort.

use std::cmp::Ordering;

/// How two keys stand to each other.
pub fn compare(a: &str, b: &str) -> Ordering {
    if less(a, b) {
        Ordering::Less
    } else if less(b, a) {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

/// Whether `a` comes before `b`.
pub fn less(a: &str, b: &str) -> bool {
    let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    // The first difference may be inside a character.
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
    let (letter_a, letter_b) = (ca.is_alphabetic(), cb.is_alphabetic());
    if letter_a && letter_b {
        return ca < cb;
    }
    if letter_a || letter_b {
        return letter_b;
    }
    let mut carried = 0_i64;
    if ca == '0' || cb == '0' {
        // A zero counts when digits other than zero stand before it.
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
    use super::compare;

    #[test]
    fn keys_sort_naturally() {
        let mut keys = [
            "x10", "a1", "A", "9", "x2", "10", "a_1", "x1", "a-1", "", "x02", "b", "é",
        ];
        keys.sort_by(|a, b| compare(a, b));
        assert_eq!(
            keys,
            [
                "", "9", "10", "A", "a-1", "a_1", "a1", "b", "x1", "x2", "x02", "x10", "é"
            ]
        );
    }
}
