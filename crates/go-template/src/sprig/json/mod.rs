//! JSON encoding and decoding of [`Value`] like Go's `encoding/json`, and Sprig's functions for it.
//!
//! Hosts build their own JSON functions on [`encode`] and [`decode`].
//!
//! ```
//! use go_template::{Budget, Buffer, Limits, sprig::json};
//! let value = json::decode(br#"{"b": 1e6, "a": "<x>"}"#).value;
//! let budget = Budget::new(Limits::default());
//! let mut out = Buffer::new();
//! json::encode(&value, json::Style::COMPACT, &budget, &mut out)?;
//! assert_eq!(&*out, br#"{"a":"\u003cx\u003e","b":1000000}"#);
//! # Ok::<(), json::EncodeError>(())
//! ```

mod read;
mod write;

pub use read::{DecodeError, Decoded, MAX_DEPTH, decode, decode_within};
pub use write::{EncodeError, Style, encode, push_float, push_string};

use super::{ANY, Answer, STRING, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::Value;
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::value("fromJson", &[STRING], from_json),
    Func::value("mustFromJson", &[STRING], must_from_json),
    Func::text("mustToJson", &[ANY], |call, args, out| {
        Ok(encode(args.get(0), Style::COMPACT, call.budget(), out)?)
    }),
    Func::text("mustToPrettyJson", &[ANY], |call, args, out| {
        Ok(encode(args.get(0), Style::PRETTY, call.budget(), out)?)
    }),
    Func::text("mustToRawJson", &[ANY], to_raw_json),
    Func::text("toJson", &[ANY], |call, args, out| {
        push_or_nothing(call, args.get(0), Style::COMPACT, out)
    }),
    Func::text("toPrettyJson", &[ANY], |call, args, out| {
        push_or_nothing(call, args.get(0), Style::PRETTY, out)
    }),
    Func::text("toRawJson", &[ANY], to_raw_json),
];

impl From<EncodeError> for FuncError {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::Budget(error) => error.into(),
            _ => Self::new(error.to_string()),
        }
    }
}

/// Encodes a value; encoding errors give no output, except exceeded limits.
fn push_or_nothing(call: &mut Call<'_>, value: &Value, style: Style, out: &mut Buffer) -> Text {
    let before = out.len();
    match encode(value, style, call.budget(), out) {
        Ok(()) => Ok(()),
        Err(EncodeError::Budget(error)) => Err(error.into()),
        Err(_) => {
            out.truncate(before);
            Ok(())
        }
    }
}

fn to_raw_json(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    Ok(encode(args.get(0), Style::RAW, call.budget(), out)?)
}

/// Decodes JSON; errors are dropped, and a partial result is returned.
fn from_json(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let decoded = decode_within(args.str(0).as_bytes(), call.budget());
    match decoded.error {
        Some(DecodeError::Budget(error)) => Err(error.into()),
        _ => Ok(decoded.value),
    }
}

fn must_from_json(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let decoded = decode_within(args.str(0).as_bytes(), call.budget());
    match decoded.error {
        Some(DecodeError::Budget(error)) => Err(error.into()),
        Some(error) => Err(FuncError::new(error.to_string())),
        None => Ok(decoded.value),
    }
}
