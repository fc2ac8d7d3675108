//! Runs memcached without a chart: [`api`] has the custom resource, [`controller`] what is done for
//! it.

pub mod api;
pub mod controller;
