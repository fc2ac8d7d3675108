//! The memcached operator: a chart and a Rust controller in one manager.
//!
//! [`api`] has the types of the native custom resources, [`controllers`] their controllers.
//! `Memcached` needs no code: `watches.yaml` binds it to `helm-charts/memcached`.

pub mod api;
pub mod controllers;
