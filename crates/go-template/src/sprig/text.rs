//! Values as text: Sprig's `strval`, and small string functions of Go.

use std::ops::Deref;

use memchr::memmem;

use crate::fmt::print_value;
use crate::go::utf8::{decode_rune, runes};
use crate::value::{Kind, Value};
use bounded::{Budget, BudgetError, Buffer};

/// The text of a value.
pub(super) enum Shown<'v> {
    Borrowed(&'v [u8]),
    Owned(Buffer),
}

impl Deref for Shown<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

/// Returns the text of a value: strings and bytes as they are, types with a text method through it,
/// everything else as `%v` prints it.
pub(super) fn strval<'v>(value: &'v Value, budget: &Budget) -> Result<Shown<'v>, BudgetError> {
    match value {
        Value::Str(text) => Ok(Shown::Borrowed(text.as_bytes())),
        Value::Bytes(bytes) => Ok(Shown::Borrowed(bytes.as_bytes())),
        _ => {
            let mut out = Buffer::new();
            print_value(value, budget, &mut out)?;
            out.check()?;
            Ok(Shown::Owned(out))
        }
    }
}

/// Appends the result of [`strval`].
#[inline]
pub(super) fn push_strval(
    out: &mut Buffer,
    value: &Value,
    budget: &Budget,
) -> Result<(), BudgetError> {
    match value {
        Value::Bytes(bytes) => {
            out.extend_from_slice(bytes.as_bytes());
            Ok(())
        }
        _ => print_value(value, budget, out),
    }
}

/// Returns whether `text` contains `part`.
pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    memmem::find(text, part).is_some()
}

/// Appends `text` with every `old` replaced by `new`, like Go's `strings.ReplaceAll`: an empty
/// `old` matches before every rune and at the end.
pub(super) fn push_replaced(
    out: &mut Buffer,
    text: &[u8],
    old: &[u8],
    new: &[u8],
    budget: &Budget,
) -> Result<(), BudgetError> {
    if old == new {
        out.extend_from_slice(text);
        return Ok(());
    }
    if old.is_empty() {
        let count = runes(text).count() + 1;
        budget.string(count.saturating_mul(new.len()).saturating_add(text.len()))?;
        for (at, _, width) in runes(text) {
            out.extend_from_slice(new);
            out.extend_from_slice(text.get(at..at + width).unwrap_or_default());
        }
        out.extend_from_slice(new);
        return Ok(());
    }
    let limit = budget.limits().string;
    let before = out.len();
    let mut done = 0;
    for at in memmem::find_iter(text, old) {
        out.extend_from_slice(text.get(done..at).unwrap_or_default());
        out.extend_from_slice(new);
        done = at + old.len();
        if out.len() - before > limit {
            return Err(BudgetError::String { limit });
        }
        out.check()?;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
    budget.string(out.len() - before)
}

/// Pieces of a split text after which the budget is checked.
const PIECES_BETWEEN_CHECKS: usize = 64 << 10;

/// The memory of a piece and of the value that is made of it, in bytes.
const BYTES_PER_PIECE: usize = 48;

/// Splits `text` at separators into at most `limit` pieces, like Go's `strings.SplitN`. An empty
/// separator splits after every rune.
pub(super) fn split<'t>(
    text: &'t [u8],
    separator: &[u8],
    limit: usize,
    budget: &Budget,
) -> Result<Vec<&'t [u8]>, BudgetError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    if separator.is_empty() {
        budget.range(text.len().min(limit))?;
        while !rest.is_empty() {
            let width = if pieces.len() + 1 < limit {
                decode_rune(rest).1
            } else {
                rest.len()
            };
            let (piece, after) = rest.split_at(width.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        return Ok(pieces);
    }
    let finder = memmem::Finder::new(separator);
    while pieces.len() + 1 < limit {
        if pieces.len().is_multiple_of(PIECES_BETWEEN_CHECKS) {
            let more = pieces.len() + PIECES_BETWEEN_CHECKS;
            budget.memory(more.saturating_mul(BYTES_PER_PIECE))?;
            if !pieces.is_empty() {
                budget.check()?;
            }
        }
        let Some(at) = finder.find(rest) else {
            break;
        };
        let (piece, after) = rest.split_at(at);
        pieces.push(piece);
        rest = after.get(separator.len()..).unwrap_or_default();
    }
    pieces.push(rest);
    budget.range(pieces.len())?;
    Ok(pieces)
}

/// Returns whether the value is of kind slice.
pub(super) fn is_slice(value: &Value) -> bool {
    match value {
        Value::List(_) | Value::Bytes(_) => true,
        Value::NilOf(ty) => ty.kind() == Kind::Slice,
        _ => false,
    }
}
