//! Semantics of Go's libraries on bytes, independent of the template's types.
//!
//! Numbers, quoting, runes, dates, regular expressions, versions: all functions take and return
//! bytes, like Go strings. Each module names the Go package or library that it reproduces; none
//! reads a clock, a file or the environment.

pub mod decimal;
pub mod duration;
#[cfg(feature = "sprig")]
pub mod regexp;
pub mod semver;
pub mod strconv;
pub mod time;
pub mod unicode;
pub mod url;
pub mod utf8;

/// Splits at the first `separator`.
fn cut(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&c| c == separator) {
        Some(at) => {
            let (before, after) = text.split_at(at);
            (before, after.get(1..))
        }
        None => (text, None),
    }
}
