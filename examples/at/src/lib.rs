//! Runs a command at a given time: [`api`] has the custom resource, [`controller`] what is done for
//! it.

pub mod api;
pub mod controller;
