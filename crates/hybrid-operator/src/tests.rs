//! Tests of several modules, and the pages of the reference that tests keep up to date.

pub(crate) mod reference;
