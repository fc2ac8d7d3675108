//! Texts of others that a status repeats, cut to a size that the API server accepts.

use std::borrow::Cow;

use helm_core::Digest;

/// Longest value of an annotation that is remembered as it is, in bytes.
const MAX_REMEMBERED: usize = 128;

/// Cuts a text to `limit` bytes, with a mark at its end that tells its size.
pub fn bounded(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let mark = format!("... (cut, {} bytes in all)", text.len());
    let end = text.floor_char_boundary(limit.saturating_sub(mark.len()));
    let kept = text.get(..end).unwrap_or_default();
    Cow::Owned(format!("{kept}{mark}"))
}

/// Returns the value of a one-time annotation as the status remembers it: a hash if it is long.
pub fn remembered(value: &str) -> Cow<'_, str> {
    if value.len() <= MAX_REMEMBERED {
        Cow::Borrowed(value)
    } else {
        Cow::Owned(format!("sha256:{}", Digest::of(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::{bounded, remembered};

    #[test]
    fn long_text_is_cut_between_characters_and_marked() {
        assert_eq!(bounded("short", 5), "short");
        for limit in [40, 41] {
            let cut = bounded("\u{fc}".repeat(50).as_str(), limit).into_owned();
            assert!(cut.len() <= limit, "{cut}");
            assert!(cut.ends_with("\u{fc}... (cut, 100 bytes in all)"), "{cut}");
        }
        assert_eq!(bounded(&"x".repeat(9), 3), "... (cut, 9 bytes in all)");
    }

    #[test]
    fn long_values_are_remembered_as_hashes() {
        assert_eq!(remembered("now"), "now");
        let (a, b) = ("a".repeat(200_000), "b".repeat(200_000));
        assert!(remembered(&a).len() < 100);
        assert_ne!(remembered(&a), remembered(&b));
    }
}
