//! Sprig's functions for [`crate::Value`]: those of Sprig 3.3.0 that Helm 4 exposes.
//!
//! [`FUNCS`] contains all of them except `env` and `expandenv`, which Helm removes. Each behaves
//! like Sprig's Go code, quirks included, because charts depend on it; where Go would panic, the
//! function fails with the panic's text. Functions that could create huge values check the budget
//! first.
//!
//! ```
//! use std::sync::Arc;
//! use go_template::{Funcs, Limits, Map, Session, TemplateSet, Value, sprig};
//!
//! let funcs = Funcs::new().with(&sprig::FUNCS);
//! let mut set = TemplateSet::new("set", Arc::new(funcs));
//! set.parse("t", r#"{{ "Hello World" | kebabcase | quote }}"#)?;
//! let mut out = go_template::Buffer::new();
//! let root = Value::Map(Map::new());
//! Session::new(Limits::default()).execute(&set, "t", &root, &mut out)?;
//! assert_eq!(out, br#""hello-world""#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(
    clippy::unnecessary_wraps,
    reason = "functions of templates have one signature"
)]

mod case;
mod convert;
#[cfg(feature = "crypto")]
mod crypto;
mod date;
mod default;
mod dict;
mod encoding;
mod hash;
pub mod json;
mod list;
mod math;
mod merge;
mod path;
mod random;
mod reflect;
mod regex;
mod semver;
mod string;
mod text;
mod url;
mod wrap;

use std::sync::LazyLock;

pub use date::{DURATION, MONTH, TIME, WEEKDAY, duration_value, time_value};

use crate::error::FuncError;
use crate::func::Func;
use crate::value::{Type, Value};

/// The result of a function that returns a value.
type Answer = Result<Value, FuncError>;
/// The result of a function that writes a text.
type Text = Result<(), FuncError>;

const ANY: Type = Type::ANY;
const INT: Type = Type::INT;
const MAP: Type = Type::MAP;
const STRING: Type = Type::STRING;

/// All functions; without the feature `crypto`, all but those for keys, certificates, passwords and
/// ciphers.
pub static FUNCS: LazyLock<Vec<Func>> = LazyLock::new(|| {
    let tables: &[&[Func]] = &[
        case::FUNCS,
        convert::FUNCS,
        #[cfg(feature = "crypto")]
        &crypto::FUNCS,
        date::FUNCS,
        default::FUNCS,
        dict::FUNCS,
        encoding::FUNCS,
        hash::FUNCS,
        json::FUNCS,
        list::FUNCS,
        math::FUNCS,
        merge::FUNCS,
        path::FUNCS,
        random::FUNCS,
        reflect::FUNCS,
        regex::FUNCS,
        semver::FUNCS,
        string::FUNCS,
        url::FUNCS,
        wrap::FUNCS,
    ];
    tables.concat()
});

/// The message of Go's runtime for a method call on a nil interface, the result of most list
/// functions for nil.
const NIL_DEREFERENCE: &str = "runtime error: invalid memory address or nil pointer dereference";
