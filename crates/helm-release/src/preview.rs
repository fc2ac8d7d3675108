//! Previews of releases, for programs that change nothing.

pub use crate::capabilities::capabilities;
pub use crate::engine::digest::DigestInputs;
pub use crate::engine::lookup::{LOOKUP_ROUNDS, VisibleObjects};
pub use crate::engine::render::{kind_of, read_key, render_once};
