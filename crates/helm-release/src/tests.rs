//! Tests of several modules.

pub(crate) mod fixtures;
mod real_cluster;
