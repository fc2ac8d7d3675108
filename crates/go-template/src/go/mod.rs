//! Semantics of Go's libraries over bytes, free of the template's types.
//!
//! Numbers, quoting, runes, dates, regular expressions, versions: bytes in and bytes out, as Go
//! strings are bytes. Each module names the Go package (or the Go library) whose answers it
//! reproduces; none reads a clock, a file or the environment.

pub mod decimal;
pub mod duration;
pub mod regexp;
pub mod semver;
pub mod strconv;
pub mod time;
pub mod unicode;
pub mod url;
pub mod utf8;
