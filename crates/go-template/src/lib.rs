//! Go's text/template with fmt and Sprig, with byte-for-byte identical output.
//!
//! The template language only: no knowledge of Helm or Kubernetes, no I/O. The main types, from the
//! outside in:
//!
//! * [`Funcs`]: the functions that templates may call, built once. Go's own are in [`Funcs::new`],
//!   Sprig's in [`sprig`], and hosts add their own as [`Func`]s.
//! * [`TemplateSet`]: templates that are parsed and compiled once, and shared by threads without
//!   locks.
//! * [`Session`]: one render with its [`Limits`] and the host's data; it executes templates of a
//!   set with a [`Value`] and appends to a [`Buffer`].
//! * [`Value`]: Go's values. A [`Tree`] is their immutable, thread-safe form, which renders read in
//!   place.
//!
//! ```
//! use std::sync::Arc;
//! use go_template::{Buffer, Funcs, Limits, Map, Session, TemplateSet, Value};
//!
//! let mut set = TemplateSet::new("set", Arc::new(Funcs::new()));
//! set.parse("greeting", "Hello, {{ .name | printf \"%q\" }}!")?;
//!
//! let data: Map = [("name", Value::from("world"))].into_iter().collect();
//! let mut out = Buffer::new();
//! Session::new(Limits::default()).execute(&set, "greeting", &Value::Map(data), &mut out)?;
//! assert_eq!(&*out, b"Hello, \"world\"!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(clippy::missing_errors_doc)]

mod ast;
mod builtin;
mod code;
mod compile;
mod delimiters;
mod error;
mod eval;
pub mod fmt;
mod func;
pub mod go;
mod hidden;
mod lex;
mod memo;
mod parse;
#[cfg(feature = "serde")]
mod serde;
mod session;
mod set;
#[cfg(feature = "sprig")]
pub mod sprig;
mod value;

pub use bounded::{Budget, BudgetError, Buffer, Cancel, Limits, Stop};
pub use error::{Frame, FuncError, Location, ParseError, RenderError, WithoutValues};
pub use func::{Args, Call, Closure, Func, Funcs, TextFn, ValueFn};
#[cfg(feature = "serde")]
pub use serde::{ConvertError, from_value, to_value};
pub use session::Session;
pub use set::{MissingKey, ParsedTemplates, Template, TemplateSet};
pub use value::{
    Field, Kind, List, Map, Method, MethodFn, Name, Number, Object, Seen, SmallInt, Str, Tree,
    TreeList, TreeMap, Type, TypeInfo, Unsigned, Value, iter,
};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
