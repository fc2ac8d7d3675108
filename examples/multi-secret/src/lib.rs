//! Keeps one Secret in every selected namespace: [`api`] has the custom resource, [`controller`] what
//! is done for it.

pub mod api;
pub mod controller;
