//! Values and functions that tests of several modules use.

pub(crate) mod pages;
