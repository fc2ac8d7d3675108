//! The native part of memcached-operator: [`api`] has the types of its custom resources,
//! [`controllers`] their controllers.
//!
//! Kinds that a chart serves need no code: `watches.yaml` binds them to a directory in
//! `helm-charts/`. `main.rs` runs both in one manager.

pub mod api;
pub mod controllers;
